"""Contexts with `allow_nesting=True`: data-dependent loops and contexts in sections, and contexts together with
checkpoints."""

import warnings

import numpy as np
import pytest
from graph_arrays import SCHEDULES, A, C, begin, scalars, zeros

import octants as qd


@pytest.fixture(autouse=True, params=SCHEDULES)
def program(request):
    begin(request.param)
    yield request.param
    qd.reset()


def test_sections_and_loops_nest():
    @qd.func
    def count_down(x: A, n: C, by):
        while qd.graph.do_while(n):
            for i in x:
                x[i] += by
            n[()] -= 1

    @qd.kernel(graph=True)
    def run(a: A, b: A, c: A, n: C, p: C, q: C, outer: C):
        while qd.graph.do_while(outer):
            with qd.graph.parallel_context(allow_nesting=True):
                with qd.graph.parallel():
                    n[()] = 3
                    count_down(a, n, 1)
                with qd.graph.parallel():
                    p[()] = 2
                    while qd.graph.do_while(p):
                        factor = p[()]
                        with qd.graph.parallel_context():
                            with qd.graph.parallel():
                                for i in b:
                                    b[i] += 10 * factor
                            with qd.graph.parallel():
                                q[()] = factor
                                count_down(c, q, 100)
                        p[()] -= 1
            for i in a:
                a[i] += b[i] + c[i]
            outer[()] -= 1

    a, b, c = (zeros() for _ in range(3))
    counters = scalars(0, 0, 0, 2)
    for _ in range(2):
        counters[-1].fill(2)
        run(a, b, c, *counters)
    expected = np.zeros(3, int)
    for _ in range(4):
        expected += [3, 30, 300]
        expected[0] += expected[1] + expected[2]
    assert [x.to_numpy().tolist() for x in (a, b, c)] == [[value] * 100 for value in expected]
    assert [int(n.to_numpy()) for n in counters] == [0, 0, 0, 0]


def test_sections_with_loops_run_concurrently(program):
    """The first section's loop ends only after the second section has run, so sequential sections would never end."""
    if program == "in order":
        pytest.skip("sections run one after the other")

    @qd.kernel(graph=True)
    def run(x: A, waits: C, n: C, done: C):
        with qd.graph.parallel_context(allow_nesting=True):
            with qd.graph.parallel(allow_overlap=True):
                while qd.graph.do_while(waits):
                    for i in x:
                        x[i] += 1
                    waits[()] = 1 - qd.volatile_load(done[()])
            with qd.graph.parallel():
                while qd.graph.do_while(n):
                    n[()] -= 1
                done[()] = 1

    x = zeros()
    waits, n, done = scalars(1, 20, 0)
    run(x, waits, n, done)
    assert int(waits.to_numpy()) == 0
    assert x.to_numpy()[0] >= 1


def test_dependent_sections_of_nested_contexts_run_in_order():
    @qd.kernel(graph=True)
    def run(a: A, b: A, c: A):
        with qd.graph.parallel_context(allow_nesting=True):
            with qd.graph.parallel():
                with qd.graph.parallel_context():
                    with qd.graph.parallel():
                        for i in a:
                            a[i] += 1
                    with qd.graph.parallel():
                        for i in b:
                            b[i] += 2
                for i in a:
                    a[i] += b[i]
            with qd.graph.parallel():
                total = 0
                for i in c:
                    total += c[i] + 1
                for i in c:
                    c[i] = total

    a, b, c = (zeros(10) for _ in range(3))
    run(a, b, c)
    assert [x.to_numpy().tolist() for x in (a, b, c)] == [[3] * 10, [2] * 10, [10] * 10]


def test_a_context_in_a_kernel_with_checkpoints():
    @qd.kernel(graph=True, checkpoints=True)
    def run(a: A, b: A, flag: C, n: C):
        while qd.graph.do_while(n):
            with qd.graph.parallel_context(allow_nesting=True):
                with qd.graph.parallel():
                    for i in a:
                        a[i] += 1
                with qd.graph.parallel():
                    for i in b:
                        b[i] += 2
            with qd.checkpoint(7, yield_on=flag):
                for i in range(1):
                    if a[0] == 2:
                        flag[()] = 1
            for _ in range(1):
                n[()] -= 1

    a, b = (zeros() for _ in range(2))
    flag, n = scalars(0, 3)
    status = run(a, b, flag, n)
    assert status.yielded
    assert status.checkpoint == 7
    assert (a.to_numpy()[0], b.to_numpy()[0], int(n.to_numpy())) == (2, 4, 2)
    flag.fill(0)
    a.fill(5)
    assert not run.resume(a, b, flag, n, from_checkpoint=7).yielded
    assert (a.to_numpy()[0], b.to_numpy()[0], int(n.to_numpy())) == (6, 6, 0)


def test_undeclared_nesting_is_refused_with_the_line_and_a_remedy():
    @qd.kernel(graph=True)
    def loop(x: A, n: C):
        with qd.graph.parallel_context():
            with qd.graph.parallel():
                while qd.graph.do_while(n):
                    for i in x:
                        x[i] += 1

    @qd.kernel(graph=True)
    def context(x: A, n: C):
        with qd.graph.parallel_context():
            with qd.graph.parallel():
                with qd.graph.parallel_context():
                    with qd.graph.parallel():
                        for i in x:
                            x[i] += 1

    @qd.kernel(graph=True, checkpoints=True)
    def beside_checkpoints(x: A, n: C):
        with qd.graph.parallel_context():
            with qd.graph.parallel():
                for i in x:
                    x[i] += 1

    @qd.kernel(graph=True, checkpoints=True)
    def checkpoint(x: A, n: C):
        with qd.graph.parallel_context(allow_nesting=True):
            with qd.graph.parallel():
                with qd.checkpoint(1, yield_on=n):
                    for i in x:
                        x[i] += 1

    for kernel, line, text in (
        (loop, "while qd.graph.do_while", r"do_while\(\) cannot appear inside a qd.graph.parallel\(\) section"),
        (context, "with qd.graph.parallel_context", "cannot be nested"),
        (beside_checkpoints, "with qd.graph.parallel_context", "not supported in a kernel with checkpoints=True"),
        (checkpoint, "with qd.checkpoint", "cannot appear inside a qd.graph.parallel"),
    ):
        with pytest.raises(qd.OctantsSyntaxError, match=text) as caught:
            kernel(zeros(), *scalars(1))
        assert line in str(caught.value)
        assert ("allow_nesting=True" in str(caught.value)) == (kernel is not checkpoint)


def test_conflicting_nested_sections_are_found():
    @qd.kernel(graph=True)
    def certain(x: A, n: C):
        with qd.graph.parallel_context(allow_nesting=True):
            with qd.graph.parallel():
                for i in x:
                    x[i] = 1
            with qd.graph.parallel():
                for i in range(3):
                    x[i] = 2

    @qd.kernel(graph=True)
    def in_a_loop(x: A, n: C):
        with qd.graph.parallel_context(allow_nesting=True):
            with qd.graph.parallel():
                for i in x:
                    x[i] = 1
            with qd.graph.parallel():
                while qd.graph.do_while(n):
                    for i in range(3):
                        x[i] += 2
                    n[()] -= 1

    x, (n,) = zeros(), scalars(1)
    with pytest.raises(
        qd.OctantsSyntaxError, match=r"two qd.graph.parallel\(\) sections write the same elements of `x`"
    ):
        certain(x, n)
    with pytest.warns(UserWarning, match=r"two qd.graph.parallel\(\) sections may write the same elements of `x`"):
        in_a_loop(x, n)


def test_a_failed_assertion_ends_the_loops_of_all_sections():
    @qd.kernel(graph=True)
    def run(a: A, b: A, n: C, m: C):
        with qd.graph.parallel_context(allow_nesting=True):
            with qd.graph.parallel():
                while qd.graph.do_while(n):
                    for i in a:
                        a[i] += 1
            with qd.graph.parallel():
                while qd.graph.do_while(m):
                    for i in b:
                        b[i] += 1
                    m[()] -= 1

    def run_to_the_end():
        run(a, b, *scalars(1, 3))
        qd.sync()

    a, b = (zeros() for _ in range(2))
    with pytest.raises(AssertionError, match="`n` is still 1 after 10000 iterations"):
        run_to_the_end()
    assert (b.to_numpy() <= 3).all()


def test_python_runs_the_blocks_in_order():
    seen = []
    with qd.graph.parallel_context(allow_nesting=True), qd.graph.parallel():
        seen.append(1)
    assert seen == [1]


def test_gradients_of_nested_sections_match_sequential_ones():
    history = qd.types.ndarray(dtype=qd.f64, ndim=2, needs_grad=True)
    loss_type = qd.types.ndarray(dtype=qd.f64, ndim=1, needs_grad=True)

    @qd.kernel(graph=True)
    def run(x: history, y: history, loss: loss_type, s: C, t: C, n: C, m: C):
        with qd.graph.parallel_context(allow_nesting=True):
            with qd.graph.parallel():
                while qd.graph.do_while(n):
                    for i in range(x.shape[1]):
                        x[s[()] + 1, i] = x[s[()], i] * x[s[()], i]
                    s[()] += 1
                    n[()] -= 1
            with qd.graph.parallel():
                while qd.graph.do_while(m):
                    for i in range(y.shape[1]):
                        y[t[()] + 1, i] = 3.0 * y[t[()], i]
                    t[()] += 1
                    m[()] -= 1
        for i in range(x.shape[1]):
            loss[0] += x[2, i] * y[3, i]

    x, y = (qd.ndarray(qd.f64, (4, 5), needs_grad=True) for _ in range(2))
    loss = qd.ndarray(qd.f64, 1, needs_grad=True)
    x.fill(2.0)
    y.fill(1.0)
    counters = scalars(0, 0, 2, 3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with qd.ad.Tape(loss):
            run(x, y, loss, *counters)
    assert loss.to_numpy()[0] == 5 * 16 * 27
    assert x.grad.to_numpy()[0].tolist() == [4 * 8 * 27.0] * 5
    assert y.grad.to_numpy()[0].tolist() == [16 * 27.0] * 5
