"""The parts of the kernel language that Python sees: decorators, operations, loops."""
