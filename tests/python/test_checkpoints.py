"""`qd.checkpoint`: launches that end at one and resume there."""

import warnings
from enum import IntEnum

import numpy as np
import pytest

import octants as qd

Numbers = qd.types.ndarray(qd.i32, ndim=1)
Flag = qd.types.ndarray(qd.i32, ndim=0)


class Stage(IntEnum):
    LOAD = 0
    SOLVE = 7


@pytest.fixture(autouse=True)
def program():
    qd.init(arch=qd.cpu)
    yield
    qd.reset()


def array(values):
    made = qd.ndarray(qd.i32, shape=np.shape(values))
    made.from_numpy(np.array(values, np.int32))
    return made


@qd.kernel(graph=True, checkpoints=True)
def step(a: Numbers, b: Numbers, c: Numbers, stop: Flag, never: Flag):
    for i in a:
        a[i] += 1
    with qd.checkpoint(Stage.LOAD, yield_on=stop):
        "More than one task."
        for i in b:
            b[i] += a[i]
        for _ in range(1):
            if b[0] == 3:
                stop[None] = 1
    with qd.checkpoint(cp_id=Stage.SOLVE, yield_on=never):
        for i in c:
            c[i] += 1
    for i in c:
        c[i] += 10


def test_a_launch_ends_at_a_checkpoint_and_resumes_there():
    a, b, c, stop, never = array([1, 2]), array([0, 0]), array([0, 0]), array(1), array(0)
    status = step(a, b, c, stop, never)
    assert (status.yielded, status.checkpoint, type(status.checkpoint)) == (True, Stage.LOAD, Stage)
    assert repr(status) == "GraphStatus(yielded=True, checkpoint=<Stage.LOAD: 0>)"
    assert (a.to_numpy().tolist(), b.to_numpy().tolist(), c.to_numpy().tolist()) == ([2, 3], [2, 3], [0, 0])
    # Only the program resets the flag.
    assert stop.to_numpy() == 1
    stop.fill(0)
    status = step.resume(a, b, c, stop, never, from_checkpoint=status.checkpoint)
    assert (status.yielded, status.checkpoint, repr(status)) == (False, None, "GraphStatus(yielded=False)")
    assert (a.to_numpy().tolist(), b.to_numpy().tolist(), c.to_numpy().tolist()) == ([2, 3], [4, 6], [11, 11])
    # After the checkpoint that was waited for, by its label's number and by argument names.
    status = step.resume(a, b, c, stop=stop, never=never, from_checkpoint=7)
    assert not status.yielded
    assert (a.to_numpy().tolist(), b.to_numpy().tolist(), c.to_numpy().tolist()) == ([2, 3], [4, 6], [22, 22])


def test_a_flag_set_in_the_checkpoint_ends_the_launch():
    a, b, c, stop, never = array([2]), array([0]), array([0]), array(0), array(0)
    assert step(a, b, c, stop, never).checkpoint is Stage.LOAD
    assert (b.to_numpy().tolist(), c.to_numpy().tolist()) == ([3], [0])


def test_a_checkpoint_in_a_loop_exits_and_resumes_in_the_loop():
    @qd.kernel(graph=True, checkpoints=True)
    def run(a: Numbers, b: Numbers, rounds: Flag, inner: Flag, stop: Flag):
        for i in a:
            a[i] += 100
        while qd.graph.do_while(rounds):
            for _ in range(1):
                inner[None] = 2
                a[0] += 1
            while qd.graph.do_while(inner):
                with qd.checkpoint(3, yield_on=stop):
                    for _ in range(1):
                        b[0] += 1
                        if b[0] == 4:
                            stop[None] = 1
                for _ in range(1):
                    inner[None] -= 1
            for _ in range(1):
                rounds[None] -= 1

    a, b, rounds, inner, stop = array([0]), array([0]), array(3), array(0), array(0)
    status = run(a, b, rounds, inner, stop)
    # The second of the inner loop's rounds in the second of the outer one's.
    assert status.checkpoint == 3
    assert [int(x.to_numpy().flat[0]) for x in (a, b, rounds, inner)] == [102, 4, 2, 1]
    stop.fill(0)
    assert not run.resume(a, b, rounds, inner, stop, from_checkpoint=3).yielded
    # The checkpoint ran again; then one more round of each loop, and the third of the outer one.
    assert [int(x.to_numpy().flat[0]) for x in (a, b, rounds, inner)] == [103, 7, 0, 0]


def test_members_of_objects_are_flags_and_methods_resume():
    @qd.data_oriented
    class Simulation:
        def __init__(self):
            self.x = array([0])
            self.full = array(1)

        @qd.kernel(graph=True, checkpoints=True)
        def advance(self):
            with qd.checkpoint(Stage.SOLVE, yield_on=self.full):
                for i in self.x:
                    self.x[i] += 1
            for i in self.x:
                self.x[i] += 10

    simulation = Simulation()
    assert simulation.advance().checkpoint is Stage.SOLVE
    simulation.full.fill(0)
    assert not simulation.advance.resume(from_checkpoint=Stage.SOLVE).yielded
    assert simulation.x.to_numpy().tolist() == [12]


def test_kernels_without_checkpoints_cannot_resume():
    @qd.kernel(graph=True, checkpoints=True)
    def plain(a: Numbers):
        for i in a:
            a[i] += 1

    a = array([1])
    assert plain(a) is None
    with pytest.raises(RuntimeError, match="at least one qd.checkpoint"):
        plain.resume(a, from_checkpoint=0)
    arguments = array([0]), array([0]), array([0]), array(0), array(0)
    with pytest.raises(RuntimeError, match=r"from_checkpoint=3 does not match any of its .*LOAD.*, .*SOLVE"):
        step.resume(*arguments, from_checkpoint=3)
    with pytest.raises(RuntimeError, match="must be an int or IntEnum value"):
        step.resume(*arguments, from_checkpoint="LOAD")
    assert a.to_numpy().tolist() == [2]


def refused(text, line, function, **options):
    """The kernel is refused with this text, and the line is shown."""
    kernel = qd.kernel(**{"graph": True, "checkpoints": True, **options})(function)
    with pytest.raises(qd.OctantsSyntaxError, match=text) as caught:
        kernel(array([0]), array(0))
    assert line in str(caught.value)


def test_misuse_is_refused_with_the_line():
    def bare(a: Numbers, f: Flag):
        with qd.checkpoint(0, yield_on=f):
            a[0] = 1

    def nested(a: Numbers, f: Flag):
        with qd.checkpoint(0, yield_on=f):
            for i in a:
                a[i] = 1
            with qd.checkpoint(1, yield_on=f):
                for i in a:
                    a[i] = 2

    def twice(a: Numbers, f: Flag):
        with qd.checkpoint(Stage.LOAD, yield_on=f):
            for i in a:
                a[i] = 1
        with qd.checkpoint(0, yield_on=f):
            for i in a:
                a[i] = 1

    def no_flag(a: Numbers, f: Flag):
        with qd.checkpoint(0):
            for i in a:
                a[i] = 1

    def no_counter(a: Numbers, f: Flag):
        with qd.checkpoint(0, yield_on=1):
            for i in a:
                a[i] = 1

    def unknown_label(a: Numbers, f: Flag):
        with qd.checkpoint(f[None], yield_on=f):
            for i in a:
                a[i] = 1

    def in_loop(a: Numbers, f: Flag):
        for i in range(2):
            with qd.checkpoint(0, yield_on=f):
                for j in a:
                    a[j] = i

    def in_section(a: Numbers, f: Flag):
        with qd.graph.parallel_context():
            with qd.graph.parallel():
                with qd.checkpoint(0, yield_on=f):
                    for i in a:
                        a[i] = 1

    refused("cannot appear inside a qd.graph.parallel", "with qd.checkpoint(0", in_section, checkpoints=False)
    refused("not supported in a kernel with checkpoints=True", "with qd.graph.parallel_context", in_section)
    refused("bare top-level assignment", "a[0] = 1", bare)
    refused("cannot be nested", "with qd.checkpoint(1", nested)
    refused("label 0 is already used", "with qd.checkpoint(0", twice)
    refused("missing the required argument `yield_on`", "with qd.checkpoint(0)", no_flag)
    refused("does not resolve to an ndarray kernel parameter", "yield_on=1", no_counter)
    refused("must be an int literal or an IntEnum value", "qd.checkpoint(f[None]", unknown_label)
    refused("kernel top level", "with qd.checkpoint(0", in_loop)
    refused("requires @qd.kernel.graph=True, checkpoints=True", "with qd.checkpoint(0", no_flag, checkpoints=False)
    refused("requires @qd.kernel.graph=True", "with qd.checkpoint(0", no_flag, graph=False, checkpoints=False)
    with pytest.raises(qd.OctantsSyntaxError, match="requires graph=True"):
        qd.kernel(checkpoints=True)(bare)
    with qd.checkpoint(0, yield_on=None):
        pass


def test_checkpoints_have_no_deprecated_name():
    @qd.kernel(graph=True, checkpoints=True)
    def run(a: Numbers, stop: Flag):
        with qd.checkpoint(0, yield_on=stop):
            for i in a:
                a[i] += 1

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not run(array([1, 2]), array(0)).yielded


def test_a_capture_refuses_kernels_with_checkpoints_by_name():
    @qd.kernel(graph=True, checkpoints=True)
    def plain(a: Numbers):
        for i in a:
            a[i] += 1

    a, flags = array([0]), (array(0), array(0))
    with qd.graph.capture() as g:
        with pytest.raises(RuntimeError, match="kernel `step` has checkpoints, whose flags the host reads"):
            step(a, a, a, *flags)
        plain(a)
    g.launch()
    assert a.to_numpy().tolist() == [1]
