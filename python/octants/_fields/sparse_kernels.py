"""Kernel operations on sparse levels: queries and changes of cells, lists of active cells, fills."""

# mypy: ignore-errors
# Mypy cannot check kernels: their annotations are values, and their assignments have no Python type.

from functools import cache

from octants._language.kernel_decorators import func, library_kernel
from octants._language.loop_ranges import ndrange
from octants._language.ops import (
    atomic_add,
    atomic_min,
    cast,
    cell_is_active,
    cell_number,
    flat_values,
    grouped,
    loop_config,
    static,
)
from octants.exceptions import OctantsRuntimeError, OctantsTypeError
from octants.types.annotations import ndarray, template
from octants.types.primitive import i32, i64
from octants.types.values import Vector

MOST_LISTED = 2**31 - 1
"""Entries in a list of active cells."""


def _level(node, name, indices, lists=None):
    """The sparse level of an operation. Raises if `node` is not such a level, or if the number of indices is wrong."""
    levels = getattr(node, "_sparse_levels", None)
    if not levels or getattr(node, "_sparse", None) is None:
        raise OctantsRuntimeError(f"qd.{name} takes a pointer, bitmasked or dynamic level, not {node!r}")
    level = levels[-1].level
    if lists is not None and level.is_list != lists:
        wanted = "a dynamic level" if lists else "a pointer or bitmasked level"
        raise OctantsTypeError(f"qd.{name} takes {wanted}, not {node!r}")
    expected = level.axes if name == "is_active" else len(level.state.shape)
    if indices != expected:
        raise OctantsRuntimeError(
            f"{node} has {expected} indices. Indexed with {indices}: qd.{name} needs {expected} indices"
        )
    return level


def _last(node):
    return node._sparse_levels[-1]


@func
def is_active(node: template(), indices: template()):
    """Whether a cell of a sparse level is active; for a dynamic level, whether the list has that element."""
    index = flat_values(indices)
    static(_level(node, "is_active", len(index)))
    for axis, extent in static(enumerate(node.shape)):
        assert 0 <= index[axis] < extent, (
            f"Out of bound access: qd.is_active of {static(repr(node))} at {Vector(index)} with bounds {node.shape}"
        )
    return cell_is_active(static(_last(node)), index)


@func
def activate(node: template(), indices: template()):
    """Activates a cell of a pointer or bitmasked level, and the cells above that contain it."""
    index = flat_values(indices)
    level = static(_level(node, "activate", len(index), False))
    level.touch[indices] = 1


@func
def deactivate(node: template(), indices: template()):
    """Deactivates a cell of a pointer or bitmasked level, or empties a list, and clears its data."""
    index = flat_values(indices)
    level = static(_level(node, "deactivate", len(index)))
    if static(level.is_list):
        # Beyond its end, a list is zero already.
        for n in range(min(level.state[indices], level.capacity)):
            for view in static(level.views):
                if static(len(view.inner) == 1):
                    view.field[indices, n] = 0
                else:
                    for inner in grouped(ndrange(*view.inner[1:])):
                        view.field[indices, n, inner] = 0
    else:
        for view in static(level.views):
            if static(len(view.inner) == 0):
                view.field[indices] = 0
            else:
                for inner in grouped(ndrange(*view.inner)):
                    view.field[indices, inner] = 0
        for nested in static(level.nested):
            for place in grouped(ndrange(*[words for _, words in nested.axes])):
                inside = _index_inside(nested.axes, index, place)
                if nested.node._sparse.state[inside] != 0:
                    deactivate(nested.node, inside)
    level.state[indices] = 0


@func
def _index_inside(axes: template(), index: template(), place: template()):
    """The index of an activation state within a cell, from the cell's index and the position in the cell."""
    return Vector(
        [place[n] if axis < 0 else index[axis] * words + place[n] for n, (axis, words) in static(enumerate(axes))]
    )


@func
def length(node: template(), indices: template()):
    """The number of elements of a list of a dynamic level."""
    index = flat_values(indices)
    level = static(_level(node, "length", len(index), True))
    return min(level.state[indices], level.capacity)


@func
def append(node: template(), indices: template(), val):
    """Appends an element to a list of a dynamic level and returns its index. A full list does not change."""
    index = flat_values(indices)
    level = static(_level(node, "append", len(index), True))
    old = atomic_add(level.touch[indices], 1)
    if old < level.capacity:
        values = flat_values(val)
        for n, view in static(enumerate(_views_of_element(level, len(values)))):
            view.field[indices, old] = values[n]
    else:
        atomic_min(level.state[indices], level.capacity)
    return old


def _views_of_element(level, count):
    if count != len(level.views) or any(len(view.inner) != 1 for view in level.views):
        raise OctantsRuntimeError(
            f"qd.append takes a value for each of the {len(level.views)} components placed in the list"
        )
    return level.views


@func
def _count_active(level: template(), number: template()):
    """The number of active cells that an activation state represents."""
    state = level.flat_state[number]
    if static(level.is_list):
        state = min(state, level.capacity)
    return state


@func
def _write_active(level: template(), number: template(), at: template()):
    """Appends the numbers of the active cells that an activation state represents to the cell list at `at`."""
    if static(level.is_list):
        for element in range(min(level.flat_state[number], level.capacity)):
            if static(level.entry is i32):
                level.cells[at] = number * level.capacity + element
                at += 1
            elif at < MOST_LISTED:
                level.cells[at] = cast(number, i64) * level.capacity + element
                at += 1
    elif level.flat_state[number] != 0:
        level.cells[at] = number
        at += 1


@func
def _words_inside(level: template(), visit: template(), state: template(), cell: template()):
    """Calls `visit` for each activation state within a cell of the enclosing level."""
    if static(len(level.inside) == 0):
        visit(level, cell_number(level.word_inside, [cell]), state)
    else:
        for place in grouped(ndrange(*level.inside)):
            visit(level, cell_number(level.word_inside, [cell, *place]), state)


@func
def _add_active(level: template(), number: template(), count: template()):
    count += _count_active(level, number)


@func
def _list_around(level: template()):
    """Lists the active cells of the enclosing level. Returns the number of candidates for this level."""
    candidates = level.candidates
    if static(level.around is not None):
        list_active_cells(level.around)
        candidates = level.around.level.count[None]
    return candidates


@func
def _visit(level: template(), visit: template(), candidate: template(), state: template()):
    """Calls `visit` for each activation state of a candidate."""
    if static(level.around is None):
        visit(level, candidate, state)
    else:
        _words_inside(level, visit, state, level.around.level.cells[candidate])


@func
def _limited(level: template(), count):
    """A number of active cells as an i32. Lists with room for more elements than that are listed in part."""
    if static(level.entry is i64):
        count = min(count, MOST_LISTED)
    return cast(count, i32)


def _listable(level):
    if not level.can_be_listed:
        raise OctantsRuntimeError(
            "on this device, a loop over a dynamic level supports at most 2^31 - 1 elements in all its lists together"
        )
    return level


@func
def list_active_cells(of: template()):
    """Lists the active cells of a level, ordered by the enclosing cell and then by number. Called at the top level of a
    kernel.
    """
    level = static(_listable(of.level))
    candidates = _list_around(level)
    loop_config(name="count_active_cells")
    for chunk in range((candidates + level.chunk - 1) // level.chunk):
        count = cast(0, static(level.entry))
        for candidate in range(chunk * level.chunk, min((chunk + 1) * level.chunk, candidates)):
            _visit(level, _add_active, candidate, count)
        level.counts[chunk] = _limited(level, count)
    loop_config(serialize=True)
    for _ in range(1):
        total = cast(0, static(level.entry))
        for chunk in range((candidates + level.chunk - 1) // level.chunk):
            level.starts[chunk] = _limited(level, total)
            total += level.counts[chunk]
        level.count[None] = _limited(level, total)
    loop_config(name="list_active_cells")
    for chunk in range((candidates + level.chunk - 1) // level.chunk):
        at = level.starts[chunk]
        for candidate in range(chunk * level.chunk, min((chunk + 1) * level.chunk, candidates)):
            _visit(level, _write_active, candidate, at)


@library_kernel
def deactivate_cells(node: template()):
    """Deactivates all active cells of a pointer or bitmasked level."""
    for index in grouped(node):
        deactivate(node, index)


@library_kernel
def empty_lists(node: template(), lists: template()):
    """Empties all lists of a dynamic level."""
    for index in grouped(ndrange(*lists)):
        deactivate(node, index)


@cache
def fill_active(dtype):
    """A kernel that sets the elements of a field in active cells to one value."""

    @library_kernel
    def fill_active_cells(x: template(), value: dtype):
        for index in grouped(x):
            x[index] = value

    return fill_active_cells


@cache
def write_active(dtype):
    """A kernel that sets the elements of a field in active cells from an array with zero-based indices."""

    @library_kernel
    def write_active_cells(x: template(), values: ndarray(), first: template()):
        for index in grouped(x):
            if static(any(first)):
                x[index] = cast(values[index - Vector(first)], dtype)
            else:
                x[index] = cast(values[index], dtype)

    return write_active_cells
