"""A module whose `__builtins__` programs written for Quadrants change to turn its own assertions off."""
