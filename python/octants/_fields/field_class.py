"""The public class `qd.Field`, for `isinstance` checks."""

__all__ = ["Field"]


class Field:
    """A field of scalars, vectors, matrices or structs. Made by `qd.field` and its relatives, not by calling the
    class."""
