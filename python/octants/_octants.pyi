"""The extension module: what the Python package builds on. Users reach it through `octants`."""

from collections.abc import Callable, Sequence
from typing import Any, final

__version__: str

def init(options: dict[str, Any] | None = None) -> list[str]:
    """Starts a program under the given options, ending the one before. Returns the notices to log."""

def reset() -> None:
    """Ends the program; its fields, ndarrays and compiled kernels can no longer be used."""

def sync() -> None:
    """Waits until everything launched before is done."""

def compiled_count() -> int:
    """How many specialisations of kernels the current program has compiled."""

def is_initialized() -> bool:
    """Whether `init` was called (and `reset` was not)."""

def generation() -> int:
    """Counts `init` and `reset`."""

def config() -> dict[str, Any]:
    """The options in force, by name."""

def options() -> list[tuple[str, str]]:
    """Name and one line of documentation of every option."""

@final
class Buffer:
    """Memory of the current program, zeroed; on the CPU a writable buffer for numpy."""

    def __init__(self, nbytes: int) -> None: ...
    @property
    def nbytes(self) -> int:
        """Size in bytes."""

    @property
    def ptr(self) -> int:
        """Address on the device."""

    @property
    def alive(self) -> bool:
        """Whether the program that made it still runs."""

    def __len__(self) -> int: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...

class Ndarray:
    """An array of scalars, vectors or matrices in the device's memory."""

    def __init__(
        self, dtype_name: str, element_shape: Sequence[int], shape: Sequence[int], needs_grad: bool = False
    ) -> None: ...
    def __new__(
        cls, dtype_name: str, element_shape: Sequence[int], shape: Sequence[int], needs_grad: bool = False
    ) -> Ndarray: ...
    @property
    def buffer(self) -> Buffer:
        """Its memory."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Extents of the axes, elements not counted."""

    @property
    def element_shape(self) -> tuple[int, ...]:
        """`()`, `(n,)` or `(n, m)`."""

    @property
    def dtype_name(self) -> str:
        """Name of the scalar type."""

    @property
    def needs_grad(self) -> bool:
        """Whether a gradient was asked for."""

    @property
    def alive(self) -> bool:
        """Whether the program that made it still runs."""

    def check_alive(self) -> None:
        """Raises where the program that made it has ended."""

    def _set_layout(self, order: Sequence[int]) -> None: ...

@final
class Func:
    """A function in the kernel language; what `@func` and `@real_func` make."""

    def __init__(self, fn_: Callable[..., Any], *, requires_top_level: bool = False, real: bool = False) -> None: ...
    @property
    def fn(self) -> Callable[..., Any]:
        """The Python function."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any: ...
    def __get__(self, instance: Any, owner: Any = None) -> Any: ...
    def _update(self) -> None: ...

@final
class Kernel:
    """A function that is compiled and launched; what `@kernel` makes."""

    __name__: str

    def __init__(self, fn_: Callable[..., Any]) -> None: ...
    @property
    def fn(self) -> Callable[..., Any]:
        """The Python function."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any: ...
    def __get__(self, instance: Any, owner: Any = None) -> Any: ...
    def _timings(self) -> list[dict[str, float]]:
        """For each specialisation compiled so far the seconds spent in each stop of its compilation."""

    def _update(self) -> None: ...
