"""The functions that create fields, ndarrays and tensors, for classes below them in the import order.

Vectors, matrices and structs have array constructors (`qd.Vector.field`), and arrays build on these value types. The
modules that create arrays register their functions here when they are imported. `import octants` imports all of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from octants._arrays.split_options import SplitOptions
from octants._program.on_first_use import OnFirstUse

__all__ = ["factories"]

Shape = tuple[int, ...]


class ArrayFactories:
    """One function for each kind of array."""

    matrix_field: Callable[..., Any]
    """`make_field.make_matrix_field`."""
    ndarray: Callable[[Shape, Any, Any, bool, Any, SplitOptions | None], Any]
    """`ndarrays.make_matrix_ndarray`: shape and scalar type of an element, shape, whether there is a gradient, device,
    how it is split over ranks."""
    tensor: Callable[[str, Shape, Any, Any, dict[str, Any]], Any]
    """`tensors.make_compound_tensor`."""
    view_of_slice: Callable[[Any, slice], Any]
    """`buffer_views.view_of_slice`."""
    sparse_matrix_builder: Callable[[], type]
    """Imports and returns the class of sparse matrix builders."""
    split_ndarray: Callable[[Any, Any, SplitOptions, bool], Any] = OnFirstUse(
        "octants._distributed.split_ndarrays", "split_ndarray"
    )
    """An ndarray that is split over ranks: its type and shape, how it is split."""
    split_struct: Callable[[Any, Any, SplitOptions, str, bool], Any] = OnFirstUse(
        "octants._distributed.split_structs", "make_split_struct"
    )
    """A field of structs that is split over ranks: its type and shape, how it is split, its name."""
    devices_ndarray: Callable[[Any, tuple[int, ...], int, int, bool, bool], Any] = OnFirstUse(
        "octants._distributed.device_arrays", "devices_ndarray"
    )
    """An ndarray that is split over the devices of this process: its type and shape, ghost rows, whether it is
    periodic."""
    struct_field: Callable[..., Any]
    """`struct.make_struct_field`."""


factories = ArrayFactories()
