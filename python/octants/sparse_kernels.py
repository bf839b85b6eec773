"""What kernels do with sparse levels: asking for cells and changing them, lists of active cells, and fills."""

# mypy: ignore-errors
# Kernels are Python in form only: their annotations are values, and they assign to what no Python type describes.

from functools import cache

from octants.exceptions import OctantsRuntimeError
from octants.kernel_decorators import func, library_kernel
from octants.loop_ranges import ndrange
from octants.ops import atomic_add, atomic_min, cast, flat_values, grouped, loop_config, static
from octants.types.annotations import ndarray, template
from octants.types.values import Vector


def _level(node, name, indices, lists=None):
    """The sparse level that an operation is for; raises where it is for none, or not with so many indices."""
    levels = getattr(node, "_sparse_levels", None)
    if not levels or getattr(node, "_sparse", None) is None:
        raise OctantsRuntimeError(f"qd.{name} takes a pointer, bitmasked or dynamic level, not {node!r}")
    level = levels[-1].level
    if lists is not None and level.is_list != lists:
        wanted = "a dynamic level" if lists else "a pointer or bitmasked level"
        raise OctantsRuntimeError(f"qd.{name} takes {wanted}, not {node!r}")
    expected = level.axes if name == "is_active" else len(level.state.shape)
    if indices != expected:
        raise OctantsRuntimeError(f"{node} has {expected} indices. Indexed with {indices}: qd.{name} needs as many")
    return level


def _last(node):
    return node._sparse_levels[-1]


@func
def _state_number(digits: template(), index: template()):
    number = 0
    for axis, extent, weight in static(digits):
        number = number * extent + index[axis] // weight % extent
    return number


@func
def is_active(node: template(), indices: template()):
    """Whether a cell of a sparse level is active; of a dynamic level, whether the list has an element there."""
    index = flat_values(indices)
    level = static(_level(node, "is_active", len(index)))
    of = static(_last(node))
    state = of.state[_state_number(of.digits, index)]
    found = state != 0
    if static(level.is_list):
        axis, extent, weight = static(of.list_digit)
        found = index[axis] // weight % extent < state
    return found


@func
def activate(node: template(), indices: template()):
    """Activates a cell of a pointer or bitmasked level, and those above that hold it."""
    index = flat_values(indices)
    level = static(_level(node, "activate", len(index), False))
    level.touch[indices] = 1


@func
def deactivate(node: template(), indices: template()):
    """Deactivates a cell of a pointer or bitmasked level, or empties a list. What lies in it is zero then."""
    index = flat_values(indices)
    level = static(_level(node, "deactivate", len(index)))
    level.state[indices] = 0
    for view in static(level.views):
        if static(len(view.inner) == 0):
            view.field[indices] = 0
        else:
            for inner in grouped(ndrange(*view.inner)):
                view.field[indices, inner] = 0


@func
def length(node: template(), indices: template()):
    """The number of elements of a list of a dynamic level."""
    index = flat_values(indices)
    level = static(_level(node, "length", len(index), True))
    return min(level.state[indices], level.capacity)


@func
def append(node: template(), indices: template(), val):
    """Appends an element to a list of a dynamic level; returns its number. A full list stays as it is."""
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
def _is_listed(of: template(), number: template()):
    found = of.state[number // of.level.capacity] > number % of.level.capacity
    return found


@func
def list_active_cells(of: template()):
    """Makes the list of the active cells of a level, in the order of their numbers. Called at the top level of a kernel."""
    level = static(of.level)
    loop_config(name="count_active_cells")
    for chunk in range(level.chunks):
        count = 0
        for number in range(chunk * level.chunk, min((chunk + 1) * level.chunk, level.number_of_cells)):
            if static(level.is_list):
                if of.state[number // level.capacity] > number % level.capacity:
                    count += 1
            elif of.state[number] != 0:
                count += 1
        level.counts[chunk] = count
    loop_config(serialize=True)
    for _ in range(1):
        total = 0
        for chunk in range(level.chunks):
            level.starts[chunk] = total
            total += level.counts[chunk]
        level.count[None] = total
    loop_config(name="list_active_cells")
    for chunk in range(level.chunks):
        at = level.starts[chunk]
        for number in range(chunk * level.chunk, min((chunk + 1) * level.chunk, level.number_of_cells)):
            if static(level.is_list):
                if of.state[number // level.capacity] > number % level.capacity:
                    level.cells[at] = number
                    at += 1
            elif of.state[number] != 0:
                level.cells[at] = number
                at += 1


@cache
def fill_active(dtype):
    """A kernel that sets the elements of a field in active cells."""

    @library_kernel
    def fill_active_cells(x: template(), value: dtype):
        for index in grouped(x):
            x[index] = value

    return fill_active_cells


@cache
def write_active(dtype):
    """A kernel that sets the elements of a field in active cells from an array whose indices count from zero."""

    @library_kernel
    def write_active_cells(x: template(), values: ndarray(), first: template()):
        for index in grouped(x):
            if static(any(first)):
                x[index] = cast(values[index - Vector(first)], dtype)
            else:
                x[index] = cast(values[index], dtype)

    return write_active_cells
