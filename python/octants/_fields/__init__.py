"""Fields and the trees of levels that they lie in."""
