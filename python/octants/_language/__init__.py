"""What kernels are written with: decorators, operations, loops."""
