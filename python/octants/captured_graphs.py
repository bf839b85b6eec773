"""`qd.graph.capture`: launches of a whole step, noted once and launched as one."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from octants import _octants
from octants.exceptions import OctantsRuntimeError
from octants.graph_drawings import drawing, times_of
from octants.python_scope import runs_as_python
from octants.timelines import Timeline

__all__ = ["CapturedGraph", "capture"]

_Call = tuple[Any, list[str], list[Any]]
"""A kernel, the names of its parameters, and its arguments."""


class CapturedGraph:
    """Launches, copies and fills that were captured, to be launched as one: see `capture`.

    Arrays are those of the capture: a launch reads and writes what they hold when it runs. Numbers are those of the capture,
    unless `update` changes them. The graph keeps all arrays that it uses.
    """

    def __init__(self, named: dict[str, Any]) -> None:
        self._graph = _octants.CapturedGraph()
        self._named = dict(named)
        self._calls: list[_Call] | None = None
        self._places: dict[str, list[tuple[int, int]]] = {}
        self._told = False

    @contextmanager
    def on_this_thread(self) -> Iterator[CapturedGraph]:
        """While the block of `capture` is open on one thread, lets another take part: `with g.on_this_thread():`. Its streams
        and events order its launches among those of the others, as ever. Raises RuntimeError once the capture has ended."""
        self._graph.begin()
        try:
            yield self
        finally:
            self._graph.end()

    def launch(self, stream: Any = None) -> None:
        """Launches the graph on a stream, by default the current one: behind the work of that stream, and ahead of what is
        launched there later. The call returns at once where streams are real. In another capture, the graph's steps
        become steps of that one.

        Raises RuntimeError before the capture has ended, and after the program has.
        """
        self._graph.launch(stream)

    def update(self, **arguments: Any) -> None:
        """Gives the launches other arguments, from the next launch of the graph on.

        A name is one that was given to `capture`, and stands for all places where that object was an argument; or it is that
        of a parameter, and stands for it in every kernel that has it. Raises TypeError where there is no such argument,
        or where launches were given different ones by that name.
        """
        if self._calls is None:
            self._calls = [(kernel, names, list(args)) for kernel, names, args in self._graph.calls()]
        changed: dict[int, list[Any]] = {}
        for name, value in arguments.items():
            for number, place in self._places.get(name) or self._find_places(name, self._calls):
                changed.setdefault(number, list(self._calls[number][2]))[place] = value
        for number, args in changed.items():
            kernel, names, _ = self._calls[number]
            if not self._graph.exchange(number, tuple(args)) and not self._told:
                self._told = True
                text = "graph: kernel `%s` is other code with these arguments, so that the graph is made anew"
                logging.getLogger("octants").info(text, kernel.__name__)
            self._calls[number] = (kernel, names, args)

    def __call__(self, *, qd_stream: Any = None, **arguments: Any) -> None:
        """`update(**arguments)` and `launch(qd_stream)`."""
        if arguments:
            self.update(**arguments)
        self._graph.launch(qd_stream)

    def plot(self, path: str | Path | None = None, measure: bool = False) -> str:
        """Draws the graph: steps, streams, what waits for what and why, and the critical path. With `measure` the graph is
        launched once, its steps one by one, for the time of each on the device. Writes SVG to `path`, if given, and returns
        it."""
        taken = None
        if measure:
            with Timeline() as timeline:
                self.launch()
            taken = times_of(self.steps, timeline.tasks)
        text = drawing(self.steps, taken)
        if path is not None:
            Path(path).parent.mkdir(parents=True, exist_ok=True)
            Path(path).write_text(text, encoding="utf-8")
        return text

    @property
    def steps(self) -> list[tuple[str, int, list[int]]]:
        """What each step does (a kernel's name, or `fill` or `copy` with a number of bytes), the number of its stream among
        those of the capture, and the numbers of the steps that it waits for."""
        return self._graph.steps()

    def __len__(self) -> int:
        return len(self._graph.steps())

    def __repr__(self) -> str:
        try:
            return f"<octants captured graph of {len(self)} steps>"
        except RuntimeError:
            return "<octants captured graph, being captured>"

    def _find_places(self, name: str, calls: list[_Call]) -> list[tuple[int, int]]:
        """The arguments that a name stands for, as numbers of calls and of parameters, from now on."""
        if name in self._named:
            named = self._named[name]
            found = [(n, i) for n, (_, _, args) in enumerate(calls) for i, arg in enumerate(args) if arg is named]
            if not found:
                raise TypeError(f"what was named `{name}` is no argument of a captured launch")
        else:
            found = [(n, names.index(name)) for n, (_, names, _) in enumerate(calls) if name in names]
            if not found:
                raise TypeError(f"no captured launch has an argument `{name}`")
            values = [calls[n][2][i] for n, i in found]
            if not all(_is_same(values[0], value) for value in values):
                kernels = sorted({calls[n][0].__name__ for n, _ in found})
                raise TypeError(
                    f"captured launches of {', '.join(kernels)} were given different values of `{name}`: name those that are "
                    "to change, as in qd.graph.capture(name=array)"
                )
        self._places[name] = found
        return found


def _is_same(a: Any, b: Any) -> bool:
    return a is b or (type(a) is type(b) and isinstance(a, (bool, int, float)) and a == b)


@contextmanager
def capture(**named: Any) -> Iterator[CapturedGraph]:
    """`with qd.graph.capture() as g:` notes what this thread launches, copies and fills, in the place of running it;
    `g.launch()` then launches all of it as one, as often as wanted.

        with qd.graph.capture() as g:
            forces(x, f)
            move(x, f, dt)
        for _ in range(1000):
            g.launch()

    Streams and events order the steps as they order launches; steps that nothing orders run side by side. What the host would
    wait for or look at has not happened: kernels that return values, reads and writes of elements, `qd.sync()` raise
    RuntimeError. ndarrays that are made meanwhile are zeroed at each launch. `named` gives objects names for `g.update`.
    """
    if runs_as_python():
        raise OctantsRuntimeError("graphs are captured of compiled kernels: under arch=qd.python kernels run as Python")
    graph = CapturedGraph(named)
    with graph.on_this_thread():
        yield graph
    graph._graph.finish()
