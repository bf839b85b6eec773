"""Memory layouts of fields with vector, matrix or struct elements."""

from __future__ import annotations

from enum import IntEnum


class Layout(IntEnum):
    """Memory layout of structs: members interleaved per element (`AOS`), or one array per member (`SOA`)."""

    AOS = 1
    SOA = 2
    NULL = 3

    def __str__(self) -> str:
        return f"Layout.{self.name}"

    __repr__ = __str__
