"""The annotation of compile-time parameters: `qd.Template`."""

from __future__ import annotations

from typing import Generic, TypeVar

T = TypeVar("T")


class Template(Generic[T]):
    """The annotation of a template parameter: in a kernel any compile-time value, in a `@qd.func` passed by
    reference.
    """

    _octants_entity = "template"

    def __init__(self, element_type: type[T] | None = None, ndim: int | None = None) -> None:
        self.element_type = element_type
        self.ndim = ndim

    def __repr__(self) -> str:
        return "qd.template()"


template = Template
