"""What a kernel is compiled to: looked at, kept, compiled ahead of time."""
