"""Fields, and the trees of levels in which they are placed."""
