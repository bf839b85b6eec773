"""`qd.graph.capture`: records the launches of a whole step, to launch them as one graph."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from octants import _octants
from octants._arrays import shadow_buffers
from octants._arrays.element_kernels import add_back
from octants._distributed.world import agree_on_steps
from octants._language.python_scope import runs_as_python
from octants._profiling.timelines import Timeline
from octants._profiling.written_files import AnyPath, write_text, write_whole
from octants._streams import saved_graphs
from octants._streams.graph_drawings import drawing, times_of
from octants._streams.host_steps import HostStep, capturing_graph, form_of, open_graphs
from octants._streams.named_arguments import Use, find_uses, member_at, new_member, paths_of_arrays, with_member
from octants.exceptions import OctantsRuntimeError

__all__ = ["CapturedGraph", "capture", "load"]

_ABANDONED = "the capture was abandoned, because an exception left its `with` block: capture the graph again"


class CapturedGraph:
    """A recorded sequence of launches, copies and fills that is launched as one graph: see `capture`.

    Arrays are captured by reference: each launch reads and writes their current contents. Scalars are captured by
    value, unless `update` changes them. The graph keeps all arrays that it uses alive.
    """

    def __init__(self, named: dict[str, Any], graph: _octants.CapturedGraph | None = None) -> None:
        self._graph = _octants.CapturedGraph() if graph is None else graph
        # The reason why the graph cannot be used yet, or ever.
        self._unready: str | None = (
            "the capture has not ended: launch and update a graph after the `with` block that captures it"
        )
        self._named = dict(named)
        # The uses of the names: in launches, and in fills and copies of arrays.
        self._uses: dict[str, list[Use]] = {}
        self._transferred: dict[str, dict[str, saved_graphs.Array]] = {}
        # Arrays that replace one array in fills and copies, and are another's there already.
        self._merged: list[saved_graphs.Array] = []
        self._calls: list[saved_graphs.Call] | None = None
        self._places: dict[str, list[tuple[int, int]]] = {}
        self._told = False
        # The steps with a gradient, besides kernel calls: the number of preceding steps, and either the gradient or the
        # launched graph with its version.
        self._others: list[tuple[int, Callable[[], None] | tuple[CapturedGraph, int]]] = []
        # Arguments of graphs that were launched in the capture.
        self._kept: list[Any] = []
        # Counts updates.
        self._version = 0
        # Fills and copies use other memory than when they were captured.
        self._moved = False
        # The steps that the host performs, by index, and their uses of named objects: the step, the index of the array,
        # and the path of members.
        self._host_steps: dict[int, HostStep] = {}
        self._host_uses: dict[str, list[tuple[int, int, tuple[str, ...]]]] = {}
        # All ranks are known to have captured the same exchanges.
        self._agreed = False
        # For a loaded graph, the arrays that were passed for its names.
        self._loaded: dict[str, saved_graphs.Array] | None = None

    @contextmanager
    def on_this_thread(self) -> Iterator[CapturedGraph]:
        """Adds this thread to a capture that is open on another one: `with g.on_this_thread():`. Streams and events
        order its launches relative to those of other threads, as usual. Raises RuntimeError once the capture has ended.
        """
        if self._unready == _ABANDONED:
            raise OctantsRuntimeError(_ABANDONED)
        self._graph.begin()
        writes = _HostWrites(self)
        shadow_buffers.open_scopes.append(writes)
        open_graphs[threading.get_ident()] = self
        try:
            yield self
        finally:
            del open_graphs[threading.get_ident()]
            shadow_buffers.open_scopes.remove(writes)
            self._graph.end()

    def launch(self, stream: Any = None) -> None:
        """Launches the graph on a stream, by default the current one, in stream order. Asynchronous if the device has
        streams. During another capture, the steps of this graph become steps of that one.

        Raises RuntimeError before the capture has ended and after the program has ended.
        """
        if self._unready is not None:
            self._check_ended()
        outer = capturing_graph()
        if not self._agreed and outer is None:
            agree_on_steps(self._graph.collectives())
            self._agreed = True
        self._graph.launch(stream)
        if outer is not None:
            outer._note(self)
            # Its steps use them even if they are replaced here.
            outer._kept.append(self._graph.calls())

    def add_graph(self, graph: Any, stream: Any = None) -> None:
        """Inside the `capture` block: adds another library's graph as a step, on a stream, by default the current one.

        Takes a CuPy graph, a `torch.cuda.CUDAGraph(keep_graph=True)`, or the driver's handle of a graph as an int.
        Copies the graph's current nodes, and keeps its memory alive.

        Raises TypeError if the object has no graph handle, and RuntimeError outside the block and on devices without
        graphs.
        """
        if capturing_graph() is not self:
            raise OctantsRuntimeError(
                "a graph can only be added inside the `with` block that captures this one, on a capturing thread"
            )
        self._graph.add_foreign(_graph_handle(graph), graph, stream)
        self._note(_refuse_gradient)

    def grad(self) -> CapturedGraph:
        """A graph of the gradients of this graph's launches, fills and copies, in reverse order. Launch this graph, set
        the gradients of its outputs, then launch the gradient graph: it accumulates into the gradients of the inputs.

            step.launch()
            loss.grad.fill(1)
            step.grad().launch()

        Gradients run on the streams of the launches, concurrently unless one accumulates into what another uses. Each
        one is `kernel.grad(...)` with the current arguments of the launch, and reads memory when it runs, except for
        the counters of data-dependent loops: each launch of this graph saves them.

        Raises RuntimeError if a launch is itself a derivative, or if a graph with a data-dependent loop was launched
        more than once in the capture.
        """
        self._check_ended()
        if self._loaded is not None:
            saved_graphs.refuse_loaded(
                "has no gradient: capture its launches in this process, or save its gradient graph too"
            )
        if self._moved:
            raise OctantsRuntimeError(
                "this graph has no gradient any more: `update` has replaced an array that it fills or copies. Call "
                "`grad` before, or capture the graph again"
            )
        notes = [(step, number) for number, (*_, step) in enumerate(self._graph.calls())]
        entries: list[tuple[int, int, int | Callable[[], None]]] = [(step, 1, number) for step, number in notes]
        # After the steps that they created.
        launched: set[int] = set()
        for steps, other in self._others:
            if isinstance(other, tuple):
                graph, version = other
                if id(graph) in launched and graph._saves_counters():
                    raise OctantsRuntimeError(
                        "this graph has no gradient, because a graph with a data-dependent loop was launched in its "
                        "capture more than once, and its counters are kept for one launch only: launch the kernel "
                        "itself, or capture a graph for each launch"
                    )
                launched.add(id(graph))
                if graph._version != version:
                    raise OctantsRuntimeError(
                        "this graph has no gradient any more: a graph that was launched in its capture was updated "
                        "since. Call `grad` before, or capture the graph again"
                    )
                other = graph.grad().launch
            entries.append((steps, 0, other))
        entries.sort(key=lambda entry: entry[:2])
        with _octants.on_program(self._graph.serial), capture() as backwards:
            order = _octants.GradientOrder()
            for _, _, entry in reversed(entries):
                if isinstance(entry, int):
                    self._graph.launch_gradient(entry, order)
                else:
                    order.join()
                    entry()
            order.join()
        return backwards

    def _saves_counters(self) -> bool:
        inner = (other[0] for _, other in self._others if isinstance(other, tuple))
        return self._graph.saves_counters() or any(graph._saves_counters() for graph in inner)

    def _note(self, gradient: Callable[[], None] | CapturedGraph) -> None:
        """Records what captures the gradient of the step just captured, or the graph whose steps were just captured."""
        noted = (gradient, gradient._version) if isinstance(gradient, CapturedGraph) else gradient
        self._others.append((self._graph.noted_steps(), noted))

    def _note_host_step(self, step: HostStep, stream: Any = None) -> None:
        """Records a step that the host performs at each launch of the graph, after the earlier steps of a stream."""
        self._graph.add_host_step(step.name, step.collective, step.calling(), stream)
        self._host_steps[self._graph.noted_steps() - 1] = step
        if step.gradient is not None:
            self._note(step.gradient)

    def update(self, **arguments: Any) -> None:
        """Replaces arguments of the recorded launches, effective from the next launch of the graph.

        A name passed to `capture` refers to all uses of that object in the capture: as an argument, in fills and in
        copies. Its members are replaced by those of the new object. If the object was passed as a member of a
        dataclass, the dataclass is copied with the new member. The name of a parameter refers to that parameter of
        every captured kernel.

        A loaded graph takes arrays, by the names given to `load`.

        Raises TypeError if there is no such argument, if launches had different arguments of that name, if a
        data-oriented object that holds the array was an argument, or if an array that is filled or copied is replaced
        by one of another type or shape. Raises RuntimeError while this thread captures a graph.
        """
        if self._loaded is not None:
            self._rebind(self._loaded, arguments)
            return
        self._check_ended()
        if capturing_graph() is not None:
            raise OctantsRuntimeError(
                "a graph cannot be updated in the `with` block that captures another one: update it before the block, "
                "or capture the launches of each step as a separate graph"
            )
        if self._calls is None:
            self._calls = self._recorded_calls()
        targets: dict[_Target, tuple[str, Any]] = {}
        parts: list[saved_graphs.MovedPart] = []
        steps: dict[int, HostStep] = {}
        for name, value in arguments.items():
            moved = self._moved_parts(name, value, parts)
            parts += moved
            others = self._exchanged_host_steps(name, value, steps)
            for target, new in self._targets(name, value, self._calls, bool(moved) or others):
                other, known = targets.setdefault(target, (name, new))
                if not _is_same(known, new):
                    raise TypeError(f"`{other}` and `{name}` are one argument of a captured launch: update only one")
        changed: dict[int, list[Any]] = {}
        # Whole arguments before members of them.
        for (number, place, within), (name, new) in sorted(targets.items(), key=lambda item: len(item[0][2])):
            kernel, _, known = self._calls[number]
            args = changed.setdefault(number, list(known))
            args[place] = with_member(name, kernel.__name__, args[place], within, new)
        same = self._graph.exchange([(number, tuple(args)) for number, args in changed.items()])
        for (number, args), is_same in zip(changed.items(), same, strict=True):
            kernel, names, _ = self._calls[number]
            if not is_same and not self._told:
                self._told = True
                text = "graph: kernel `%s` has different code for these arguments, so the graph is rebuilt"
                logging.getLogger("octants").info(text, kernel.__name__)
            self._calls[number] = (kernel, names, args)
        if parts:
            self._move(parts)
        for number, step in steps.items():
            self._graph.exchange_host_step(number, step.name, step.collective, step.calling())
        if steps:
            self._host_steps.update(steps)
            self._moved = True
        self._agreed = False
        self._named.update((name, value) for name, value in arguments.items() if name in self._named)
        self._version += 1

    def save(self, path: AnyPath, **named: Any) -> None:
        """Writes the graph to a file for `qd.graph.load`, in other processes with the same version of Octants and the
        same kind of device.

        The file contains machine code, scalars and names, but no arrays: pass these to `load` by name. The name of an
        array is the one passed here or to `capture`, or else that of its parameter. Name a field to pass its whole
        tree. Arrays created in the `capture` block are part of the file.

        Raises RuntimeError if a step has no meaning in another process: an array or graph of another library, memory
        without a name, or code that is not cached (`offline_cache=False`).
        """
        if self._loaded is not None:
            saved_graphs.refuse_loaded("cannot be saved again: copy its file")
        self._check_ended()
        memory = saved_graphs.named_memory(self._graph, {**self._named, **named}, self._recorded_calls())
        write_whole(path, self._graph.save(memory))

    def _rebind(self, loaded: dict[str, saved_graphs.Array], arguments: dict[str, Any]) -> None:
        others: dict[str, saved_graphs.Array] = {}
        for name, value in arguments.items():
            if name not in loaded:
                known = ", ".join(loaded)
                raise TypeError(
                    f"a loaded graph can only update the arrays that it was loaded with ({known}), not `{name}`"
                )
            others[name] = saved_graphs.check_array(name, saved_graphs.description(loaded[name]), value)
        memory = saved_graphs.memory_of
        self._graph.rebind([(memory(loaded[name]), memory(other), other) for name, other in others.items()])
        loaded.update(others)

    def __call__(self, *, qd_stream: Any = None, **arguments: Any) -> None:
        """`update(**arguments)` and `launch(qd_stream)`."""
        if arguments:
            self.update(**arguments)
        self.launch(qd_stream)

    def plot(self, path: AnyPath | None = None, measure: bool = False) -> str:
        """Draws the graph: steps, streams, dependences with their reasons, and the critical path. With `measure`,
        launches the graph once, step by step, to time each step on the device. Returns SVG, and writes it to `path` if
        given: an `.svg` file, whose missing folders are created.
        """
        self._check_ended()
        name = "" if path is None else os.path.basename(os.fspath(path))
        if path is not None and os.path.splitext(name)[1] != ".svg":
            raise ValueError(f"a graph can only be drawn as .svg, not as {name!r}")
        taken = None
        if measure:
            with Timeline() as timeline:
                self.launch()
            taken = times_of(self.steps, timeline.tasks)
        text = drawing(self.steps, taken)
        if path is not None:
            write_text(path, text)
        return text

    @property
    def steps(self) -> list[tuple[str, int, list[int]]]:
        """For each step: its operation (the name of a kernel, or `fill` or `copy` with a number of bytes), the index of
        its stream in the capture, and the indices of the steps that it depends on.
        """
        self._check_ended()
        return self._graph.steps()

    def __len__(self) -> int:
        return len(self.steps)

    def __repr__(self) -> str:
        if self._unready is not None:
            return f"<octants captured graph, {'abandoned' if self._unready == _ABANDONED else 'being captured'}>"
        return f"<octants captured graph of {len(self)} steps>"

    def _finish(self) -> None:
        """Builds the graph from the captured steps."""
        self._graph.finish()
        self._unready = None
        if self._named:
            calls = self._recorded_calls()
            for name, thing in self._named.items():
                self._uses[name] = find_uses(thing, calls)
                self._transferred[name] = saved_graphs.transferred(self._graph, name, thing)
                paths = paths_of_arrays(thing) if self._host_steps else {}
                self._host_uses[name] = [
                    (number, place, paths[id(array)])
                    for number, step in self._host_steps.items()
                    for place, array in enumerate(step.arrays)
                    if id(array) in paths
                ]

    def _recorded_calls(self) -> list[saved_graphs.Call]:
        return [(kernel, names, list(args)) for kernel, names, args, _ in self._graph.calls()]

    def _check_ended(self) -> None:
        if self._unready is not None:
            raise OctantsRuntimeError(self._unready)

    def _targets(
        self, name: str, value: Any, calls: list[saved_graphs.Call], is_moved: bool
    ) -> Iterator[tuple[_Target, Any]]:
        """The arguments, or members of arguments, that a name refers to, and their replacements."""
        if name not in self._named:
            for number, place in self._places.get(name) or self._find_places(name, calls):
                yield (number, place, ()), value
            return
        if not self._uses[name] and not is_moved:
            raise TypeError(
                f"the object named `{name}` is not an argument of any captured launch; if a launch uses it as a member "
                "or the gradient of an argument, give the name to that argument"
            )
        for use in self._uses[name]:
            yield (use.call, use.parameter, use.within), new_member(name, use, value)

    def _find_places(self, name: str, calls: list[saved_graphs.Call]) -> list[tuple[int, int]]:
        """Resolves the name of a parameter to pairs of call and parameter index, and remembers them."""
        found = [(n, names.index(name)) for n, (_, names, _) in enumerate(calls) if name in names]
        if not found:
            raise TypeError(f"no captured launch has an argument `{name}`")
        values = [calls[n][2][i] for n, i in found]
        if not all(_is_same(values[0], value) for value in values):
            kernels = sorted({calls[n][0].__name__ for n, _ in found})
            raise TypeError(
                f"captured launches of {', '.join(kernels)} were given different values of `{name}`: name the "
                "ones to update, as in qd.graph.capture(name=array)"
            )
        self._places[name] = found
        return found

    def _moved_parts(self, name: str, value: Any, before: list[saved_graphs.MovedPart]) -> list[saved_graphs.MovedPart]:
        """The arrays of a named object that are filled or copied, and their replacements. `before`: those found for
        other names.
        """
        arrays = self._transferred.get(name)
        if not arrays:
            return []
        parts = saved_graphs.moved_parts(name, arrays, value)
        for part in parts:
            if any(part.array is other.array and part.other is not other.other for other in before):
                raise TypeError(f"`{name}` holds an array that an update of another name replaces: update only one")
            if part.array is not part.other and any(part.array is array for array in self._merged):
                raise TypeError(
                    f"an update has made `{name}` an array that the graph also fills or copies for another reason: "
                    "the two can no longer be distinguished. Replace both in one update, or capture the graph again"
                )
        return parts

    def _exchanged_host_steps(self, name: str, value: Any, steps: dict[int, HostStep]) -> bool:
        """Adds the host's steps that use a named object, with the object that replaces it. Returns whether there are
        any.
        """
        for number, place, path in self._host_uses.get(name, ()):
            step = steps.get(number, self._host_steps[number])
            other, array = member_at(value, path), step.arrays[place]
            what = ".".join((name, *path))
            if type(other) is not type(array) or form_of(other) != form_of(array):
                is_ = form_of(other) if type(other) is type(array) else f"a {type(other).__name__!r} object"
                raise TypeError(f"the step {step.name} uses `{what}`, {form_of(array)}: it cannot be replaced by {is_}")
            steps[number] = step._replace(arrays=(*step.arrays[:place], other, *step.arrays[place + 1 :]))
        return bool(self._host_uses.get(name))

    def _move(self, parts: list[saved_graphs.MovedPart]) -> None:
        """Replaces arrays in fills and copies."""
        for part in parts:
            is_left = any(part.other is other.array for other in parts)
            if not is_left and self._graph.transfers(*saved_graphs.part_of(part.other)):
                self._merged.append(part.other)
        self._graph.move_transfers([part.for_graph() for part in parts])
        self._moved = True
        others = {id(part.array): part.other for part in parts}
        for arrays in self._transferred.values():
            arrays.update({path: others.get(id(array), array) for path, array in arrays.items()})


class _HostWrites:
    """Captures host writes to fields and ndarrays: see `shadow_buffers.HostWrites`."""

    def __init__(self, graph: CapturedGraph) -> None:
        self._graph = graph
        self._thread = threading.get_ident()

    def _host_wrote(self, whole: Any, key: Any, component: Any) -> None:
        gradient = shadow_buffers.shadow_buffer(whole, "grad")
        if gradient is not None:
            # Earlier values do not influence later ones.
            self._graph._note(lambda: gradient.fill(0))

    def _host_copied(self, to: Any, source: Any) -> None:
        taken, added = (shadow_buffers.shadow_buffer(whole, "grad") for whole in (to, source))
        if taken is not None and added is not None:
            self._graph._note(lambda: add_back(taken, added))
        elif taken is not None:
            self._graph._note(lambda: taken.fill(0))


def _graph_handle(graph: Any) -> int:
    """The driver's handle of another library's graph."""
    if isinstance(graph, int) and not isinstance(graph, bool):
        return graph
    raw = getattr(graph, "raw_cuda_graph", None)
    handle = raw() if callable(raw) else getattr(graph, "graph", None)
    if not isinstance(handle, int):
        raise TypeError(
            f"{type(graph).__name__!r} object has no graph handle: pass an int, a CuPy graph, or a torch graph "
            "made with `torch.cuda.CUDAGraph(keep_graph=True)`"
        )
    return handle


def _refuse_gradient() -> None:
    raise OctantsRuntimeError("a captured graph has no gradient if another library's graph is among its steps")


_Target = tuple[int, int, tuple[str, ...]]
"""The target of an update: index of a launch, index of a parameter, and path to a member of the argument."""


def _is_same(a: Any, b: Any) -> bool:
    return a is b or (type(a) is type(b) and isinstance(a, (bool, int, float)) and a == b)


def capture(**named: Any) -> AbstractContextManager[CapturedGraph]:
    """`with qd.graph.capture() as g:` records this thread's launches, copies and fills instead of executing them.
    `g.launch()` then launches them as one graph, any number of times.

        with qd.graph.capture() as g:
            forces(x, f)
            move(x, f, dt)
        for _ in range(1000):
            g.launch()

    Streams and events order the steps as they order launches; unordered steps run concurrently. Results are not
    available during the capture: kernels that return values, element access and `qd.sync()` raise RuntimeError.
    Ndarrays created in the block are zeroed at each launch. `named` names objects for `g.update`.
    """
    return _Capture(named)


class _Capture(AbstractContextManager[CapturedGraph]):
    """A capture block. Can be entered once."""

    def __init__(self, named: dict[str, Any]) -> None:
        self._named = named
        self._block: AbstractContextManager[CapturedGraph] | None = None

    def __enter__(self) -> CapturedGraph:
        if self._block is not None:
            raise OctantsRuntimeError(
                "a capture can only be entered once: call `qd.graph.capture()` for each graph, as in "
                "`with qd.graph.capture() as g:`"
            )
        self._block = _captured(self._named)
        return self._block.__enter__()

    def __exit__(self, *error: Any) -> bool | None:
        assert self._block is not None
        return self._block.__exit__(*error)


@contextmanager
def _captured(named: dict[str, Any]) -> Iterator[CapturedGraph]:
    if runs_as_python():
        raise OctantsRuntimeError("graphs need compiled kernels: arch=qd.python runs kernels as Python")
    graph = CapturedGraph(named)
    try:
        with graph.on_this_thread():
            yield graph
    except BaseException:
        graph._unready = _ABANDONED
        raise
    graph._finish()


def load(path: AnyPath, **arrays: Any) -> CapturedGraph:
    """Loads a graph that `g.save(path)` wrote, in this process or another one, and binds it to arrays.

        step = qd.graph.load("step.graph", x=x, v=v)
        step.launch()

    Pass an array of the same type, shape and layout for each name of the saved graph. The file contains machine code:
    load only files that you trust. Raises TypeError if an array is missing or does not match, and RuntimeError if the
    file is damaged, or was written by another version of Octants or for another device.
    """
    if runs_as_python():
        raise OctantsRuntimeError("graphs need compiled kernels: arch=qd.python runs kernels as Python")
    found: dict[str, saved_graphs.Array] = {}

    def find(wanted: list[tuple[str, str]]) -> list[tuple[str, _octants.Buffer, Any]]:
        arrays_by_name, memory = saved_graphs.find_memory(wanted, arrays)
        found.update(arrays_by_name)
        return memory

    with open(path, "rb") as file:
        saved = file.read()
    graph = CapturedGraph({}, _octants.CapturedGraph.load(saved, find))
    graph._unready, graph._loaded = None, found
    return graph
