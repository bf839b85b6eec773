"""The running program, and the package's registration with the extension module."""
