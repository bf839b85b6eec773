"""Profiling reports."""
