"""Compiled kernels: inspection, caching, ahead-of-time compilation."""
