"""The running program, and what the extension module is told of the package."""
