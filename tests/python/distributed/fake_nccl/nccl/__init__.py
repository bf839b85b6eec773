"""Stands in for nccl4py in tests on machines without GPUs."""
