"""Races of the host: none can be planted through the package's own functions, which wait. Kept for the sake of names."""

PROGRAMS: list = []
