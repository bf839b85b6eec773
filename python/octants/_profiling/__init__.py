"""Where a program's time goes."""
