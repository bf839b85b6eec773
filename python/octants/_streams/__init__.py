"""Streams, captured graphs, concurrent launches, and races between launches."""
