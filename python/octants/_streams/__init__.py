"""Streams, captured graphs, launches side by side, and races between them."""
