"""The exact message of each misuse of streams: S2, S3, S4, S6, S7, S9, S13.

Misuse within a kernel is reported with the user's line; the tests here compare the message below that line.
"""

import warnings

import pytest
from stream_kernels import MODES, Ints, fill, ints, unknown_handle

import octants as qd

STREAM = "a Stream (or an object with __cuda_stream__)"
GONE = "this stream was destroyed: create another with create_stream()"
EVENT_GONE = "this event was destroyed: create another with create_event()"


def ended(what):
    return f"this {what} belongs to a program that `init()` or `reset()` has ended; create it again after `init()`"


def said(use, kind=RuntimeError):
    with pytest.raises(kind) as caught:
        use()
    return str(caught.value)


class Versioned:
    def __cuda_stream__(self):
        return (9, 0)


def test_s2_s3_s4_wrong_types(mode):
    x, s, e = ints(), qd.create_stream(), qd.create_event()
    operation = qd.perf_dispatch(get_geometry_hash=lambda x, value: x.shape)(lambda x, value: None)
    operation.register(fill)
    for use in [
        lambda bad: fill(x, 1, qd_stream=bad),
        lambda bad: operation(x, 1, qd_stream=bad),
        lambda bad: x.fill(1, qd_stream=bad),
        lambda bad: x.copy_from(ints(), qd_stream=bad),
        lambda bad: e.record(bad),
        lambda bad: e.wait(qd_stream=bad),
    ]:
        assert said(lambda: use(3), TypeError) == f"qd_stream must be {STREAM}, got int"
        assert said(lambda: use("s"), TypeError) == f"qd_stream must be {STREAM}, got str"
        assert said(lambda: use(e), TypeError) == f"qd_stream must be {STREAM}, got Event"
    assert said(lambda: qd.stream_scope(None), TypeError) == f"stream must be {STREAM}, got NoneType"
    assert said(lambda: s.wait(1.5), TypeError) == f"event_or_stream must be an Event or {STREAM}, got float"
    assert said(lambda: e.elapsed_ms(s), TypeError) == "later must be an Event, got Stream"
    version = "version 9 of __cuda_stream__ is not supported"
    assert said(lambda: fill(x, 1, qd_stream=Versioned()), TypeError) == f"qd_stream: {version}"
    assert x[0] == 0


def test_s3_s4_wrong_order(mode):
    with qd.create_stream() as s, qd.create_stream() as t:
        outer, inner = qd.stream_scope(s), qd.stream_scope(t)
        with outer:
            inner.__enter__()
            order = "a `with stream:` block must end on the thread on which it began, after the blocks inside it"
            assert said(outer.__exit__) == order
            inner.__exit__()
    plain, timed = qd.create_event(), qd.create_event(timing=True)
    plain.record()
    timing = "elapsed_ms() needs events with timing: create them with create_event(timing=True)"
    assert said(lambda: plain.elapsed_ms(timed)) == timing
    unrecorded = "elapsed_ms() needs two recorded events: call record() on both"
    assert said(lambda: timed.elapsed_ms(timed)) == unrecorded


def test_s2_kernels_that_are_graphs_take_a_stream(mode):
    graph = qd.kernel(graph=True)(fill.fn)
    x = ints()
    with qd.create_stream() as s:
        graph(x, 1, qd_stream=s)
        assert x[0] == 1
        graph(x, 2)
        assert x[0] == 2
        with qd.stream_scope(s):
            graph(x, 3)
        assert x[0] == 3


def test_s6_s7_destroyed_objects(mode):
    x, s, e, other = ints(), qd.create_stream(), qd.create_event(), qd.create_stream()
    s.destroy()
    e.destroy()
    uses = [lambda: fill(x, 1, qd_stream=s), s.synchronize, s.query, s.__cuda_stream__, s.__enter__]
    uses += [lambda: s.wait(other), lambda: other.wait(s), lambda: qd.stream_scope(s), lambda: x.fill(1, qd_stream=s)]
    assert {said(use) for use in uses} == {GONE}
    uses = [e.record, e.wait, e.synchronize, e.query, e.__enter__, lambda: other.wait(e), lambda: e.elapsed_ms(e)]
    assert {said(use) for use in uses} == {EVENT_GONE}
    event = qd.create_event()
    qd.init(arch=qd.cpu, **MODES[mode])
    y = ints()
    uses = [lambda: fill(y, 1, qd_stream=other), other.synchronize, other.query, lambda: event_of_now().record(other)]
    assert {said(use) for use in uses} == {ended("stream")}
    uses = [event.record, event.wait, event.synchronize, event.query]
    assert {said(use) for use in uses} == {ended("event")}
    assert y[0] == 0, "nothing was launched somewhere else"
    if mode != "in order":
        assert said(lambda: qd.Stream.from_handle(47)) == unknown_handle(47)
        if qd.cfg.arch == qd.cpu:
            # The handle of a stream of the program before is not one of this program's.
            assert said(lambda: fill(y, 1, qd_stream=qd.Stream.from_handle(1 << 40))) == unknown_handle(1 << 40)
    qd.reset()
    text = "Octants is not initialized. Maybe you forgot to call `qd.init()` first?"
    assert {said(qd.create_stream), said(qd.default_stream), said(lambda: qd.Stream.from_handle(0))} == {text}


def event_of_now():
    return qd.create_event()


def syntax(kernel, *args):
    return said(lambda: kernel(*args), qd.QuadrantsSyntaxError).splitlines()


@pytest.fixture
def program():
    qd.init(arch=qd.cpu)
    yield
    qd.reset()


def test_s9_misplaced_sections(program):
    x = ints()

    @qd.kernel
    def mixed(x: Ints):
        with qd.stream_parallel():
            x[0] = 1
        x[1] = 2

    @qd.kernel
    def nested(x: Ints):
        with qd.stream_parallel():
            with qd.stream_parallel():
                x[0] = 1

    @qd.kernel
    def in_loop(x: Ints):
        for i in range(3):
            with qd.stream_parallel():
                x[i] = 1

    @qd.kernel
    def in_branch(x: Ints):
        if x[0] == 0:
            with qd.stream_parallel():
                x[0] = 1

    @qd.func
    def helper(x: qd.template()):
        with qd.stream_parallel():
            x[0] = 1

    @qd.kernel
    def in_func(x: Ints):
        helper(x)

    @qd.kernel
    def named(x: Ints):
        with qd.stream_parallel() as s:
            x[0] = 1

    @qd.kernel
    def several(x: Ints):
        with qd.stream_parallel(), qd.stream_parallel():
            x[0] = 1

    @qd.kernel
    def returns(x: Ints) -> qd.i32:
        with qd.stream_parallel():
            x[0] = 1
        return 3

    @qd.kernel
    def returns_within(x: Ints) -> qd.i32:
        with qd.stream_parallel():
            return 3

    @qd.kernel(graph=True)
    def graph(x: Ints):
        with qd.stream_parallel():
            for i in x:
                x[i] = 1

    @qd.kernel
    def option(x: Ints):
        with qd.stream_parallel(overlap=True):
            x[0] = 1

    @qd.kernel
    def other(x: Ints):
        with open("file"):
            x[0] = 1

    found = {k.__name__: syntax(k, x) for k in [mixed, nested, in_loop, in_branch, in_func, named, several]}
    found |= {k.__name__: syntax(k, x) for k in [returns, returns_within, graph, option, other]}
    for name, lines in found.items():
        assert any(line.startswith('File "') and "test_stream_messages.py" in line for line in lines), name
        assert any("^" in line for line in lines), f"{name}: the place is underlined"
    assert {name: what(lines) for name, lines in found.items()} == SECTIONS
    text = "qd.stream_parallel() belongs in a kernel: with qd.stream_parallel(): ..."
    assert said(qd.stream_parallel, qd.OctantsScopeError) == text
    assert x[0] == 0


def what(lines):
    """The message and the hint: the text after the last underlined line."""
    last = max(i for i, line in enumerate(lines) if set(line.strip()) == {"^"})
    return " ".join(line.strip() for line in lines[last + 1 :] if line.strip())


TOP_LEVEL = (
    "When using qd.stream_parallel(), all top-level statements must be 'with qd.stream_parallel():' blocks "
    "help: move non-parallel code to a separate kernel; `qd.static_assert`, `if qd.static(...)` and "
    "`for ... in qd.static(...)` are allowed here"
)
NOT_AT_TOP_LEVEL = (
    "qd.stream_parallel() must be at the top level of the kernel help: it cannot be in a run-time `if`, `for` or "
    "`while`, only in `if qd.static(...)` and `for ... in qd.static(...)`"
)
SECTIONS = {
    "mixed": TOP_LEVEL,
    "nested": "Nested 'with qd.stream_parallel()' blocks are not supported",
    "in_loop": NOT_AT_TOP_LEVEL,
    "in_branch": NOT_AT_TOP_LEVEL,
    "in_func": "qd.stream_parallel() can only be used inside @qd.kernel, not @qd.func",
    "named": "'with ... as ...' is not supported in kernels",
    "several": "a `with` statement in a kernel only supports a single context manager",
    "returns": TOP_LEVEL,
    "returns_within": "`return` is not supported in a kernel with qd.stream_parallel()",
    "graph": "qd.stream_parallel() is not compatible with graph=True kernels help: use `with qd.graph.parallel():` in "
    "a `with qd.graph.parallel_context():`, or remove `graph=True`",
    "option": "qd.stream_parallel() takes no arguments except `allow_overlap`",
    "other": "a `with` statement in a kernel only supports qd.stream_parallel(), qd.graph.parallel_context(), "
    "qd.graph.parallel() and qd.checkpoint()",
}


def test_s13_conflicting_sections(program):
    x, y = ints(), ints()

    @qd.kernel
    def both_write(x: Ints, y: Ints):
        with qd.stream_parallel():
            for i in x:
                x[i] = 1
        with qd.stream_parallel():
            for i in x:
                x[i] = 2

    @qd.kernel
    def one_reads(x: Ints, y: Ints):
        with qd.stream_parallel():
            for i in x:
                x[i] = 1
        with qd.stream_parallel():
            for i in x:
                y[i] = x[i]

    @qd.kernel
    def maybe(x: Ints, y: Ints):
        with qd.stream_parallel():
            for i in range(5):
                x[2 * i] = 1
        with qd.stream_parallel():
            for i in range(5):
                x[y[i] + 1] = 2

    @qd.kernel
    def apart(x: Ints, y: Ints):
        with qd.stream_parallel():
            for i in x:
                x[i] = 1
        with qd.stream_parallel():
            for i in y:
                y[i] = 2

    hint = "put both into one block, or write `qd.stream_parallel(allow_overlap=True)` if this is intended"

    def other(text):
        """The line of the other block, which the message names."""
        return text.replace(__file__, "FILE")

    got = other(what(syntax(both_write, x, y)))
    assert got.startswith("two qd.stream_parallel() blocks write the same elements of `x` (the other is at FILE:")
    assert got.endswith(f") help: {hint}")
    got = other(what(syntax(one_reads, x, y)))
    start = "one qd.stream_parallel() block writes elements of `x` that another reads (the other is at FILE:"
    assert got.startswith(start)
    assert got.endswith(f") help: {hint}")
    with pytest.warns(UserWarning, match="may write") as caught:
        maybe(x, y)
    got = other(str(caught[0].message))
    assert got.startswith("two qd.stream_parallel() blocks may write the same elements of `x` (the other is at FILE:")
    assert got.endswith(f"); {hint}")
    got = other(what(syntax(apart, x, x)))
    start = "two qd.stream_parallel() blocks write the same elements of `x` and `y` (the same memory in this call) (the"
    assert got.startswith(start)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        apart(x, y)
