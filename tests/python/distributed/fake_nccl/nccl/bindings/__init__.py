"""Stands in for the package of nccl4py."""
