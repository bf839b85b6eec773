"""`qd.graph.parallel_context` and its sections."""

import warnings

import numpy as np
import pytest

import octants as qd


@pytest.fixture(autouse=True)
def program():
    qd.init(arch=qd.cpu)
    yield
    qd.reset()


def test_sections_run_between_the_surrounding_tasks():
    @qd.func
    def scale(a: qd.types.ndarray(qd.i32, ndim=1), by):
        for i in range(a.shape[0]):
            a[i] *= by

    @qd.kernel(graph=True)
    def run(
        a: qd.types.ndarray(qd.i32, ndim=1),
        b: qd.types.ndarray(qd.i32, ndim=1),
        c: qd.types.ndarray(qd.i32, ndim=1),
        third: qd.template(),
    ):
        for i in range(a.shape[0]):
            a[i] += 1
            c[i] = 0
        with qd.graph.parallel_context():
            with qd.graph.parallel():
                scale(a, 3)
            with qd.graph.parallel():
                for i in range(2, b.shape[0]):
                    b[i] -= 5
            if qd.static(third):
                with qd.graph.parallel():
                    n = c.shape[0]
                    for i in range(n):
                        c[i] += 1000
            for k in qd.static(range(2)):
                with qd.graph.parallel():
                    b[k] += k + 95
        for i in a:
            a[i] += b[i] + c[i]

    for third, more in ((False, 0), (True, 1000)):
        a, b, c = np.arange(4, dtype=np.int32), np.zeros(4, np.int32), np.zeros(4, np.int32)
        run(a, b, c, third)
        assert b.tolist() == [95, 96, -5, -5]
        assert a.tolist() == [98 + more, 102 + more, 4 + more, 7 + more]


def test_sections_in_a_loop_with_the_older_names():
    @qd.kernel(graph=True)
    def run(a: qd.types.ndarray(qd.i32, ndim=1), left: qd.types.ndarray(qd.i32, ndim=0)):
        while qd.graph_do_while(left):
            with qd.graph_parallel_context():
                with qd.graph_parallel():
                    for i in a:
                        a[i] += 1
            left[()] = left[()] - 1

    a, left = np.zeros(3, np.int32), np.array(4, np.int32)
    run(a, left)
    assert a.tolist() == [4, 4, 4]


def test_python_runs_the_blocks_in_order():
    seen = []
    with qd.graph.parallel_context(), qd.graph.parallel():
        seen.append(1)
    assert seen == [1]


def refused(body, message):
    field = qd.field(qd.i32, 4)
    with pytest.raises(qd.QuadrantsSyntaxError, match=message):
        body(field)


def test_misplaced_statements_are_refused():
    @qd.kernel(graph=True)
    def outside(x: qd.template()):
        with qd.graph.parallel():
            for i in x:
                x[i] = 1

    @qd.kernel(graph=True)
    def nested(x: qd.template()):
        with qd.graph.parallel_context():
            with qd.graph.parallel():
                with qd.graph.parallel_context():
                    pass

    @qd.kernel(graph=True)
    def loop(x: qd.template()):
        with qd.graph.parallel_context():
            for i in x:
                x[i] = 1

    @qd.kernel(graph=True)
    def choice(x: qd.template()):
        with qd.graph.parallel_context():
            if x[0] > 0:
                with qd.graph.parallel():
                    x[0] = 1

    @qd.kernel(graph=True)
    def arguments(x: qd.template()):
        with qd.graph.parallel_context(2):
            pass

    @qd.kernel
    def no_graph(x: qd.template()):
        with qd.graph.parallel_context():
            pass

    @qd.kernel
    def no_graph_loop(left: qd.types.ndarray(qd.i32, ndim=0)):
        while qd.graph.do_while(left):
            pass

    refused(no_graph, r"requires @qd.kernel\(graph=True\)")
    with pytest.raises(qd.QuadrantsSyntaxError, match=r"requires @qd.kernel\(graph=True\)"):
        no_graph_loop(np.array(1, np.int32))
    refused(outside, r"inside a qd.graph.parallel_context\(\)")
    refused(nested, "cannot be nested")
    refused(loop, "may contain only")
    refused(choice, "may contain only")
    refused(arguments, r"parallel_context\(\) takes no arguments except `allow_nesting`")


def test_conflicting_sections_are_found():
    @qd.kernel(graph=True)
    def certain(x: qd.template()):
        with qd.graph.parallel_context():
            with qd.graph.parallel():
                for i in x:
                    x[i] = 1
            with qd.graph.parallel():
                for i in range(3):
                    x[i + 1] = 2

    @qd.kernel(graph=True)
    def in_rounds(x: qd.template(), left: qd.types.ndarray(qd.i32, ndim=0)):
        while qd.graph.do_while(left):
            with qd.graph.parallel_context():
                with qd.graph.parallel():
                    for i in x:
                        x[i] = 1
                with qd.graph.parallel():
                    for i in range(2):
                        x[i] += x[i + 1]
            left[()] -= 1

    @qd.kernel(graph=True)
    def apart(x: qd.template()):
        with qd.graph.parallel_context():
            with qd.graph.parallel():
                for i in range(2):
                    x[i] = 1
            with qd.graph.parallel():
                for i in range(2, 4):
                    x[i] = 2
        with qd.graph.parallel_context():
            with qd.graph.parallel():
                for i in x:
                    x[i] += 1
            with qd.graph.parallel():
                pass

    @qd.kernel(graph=True)
    def meant(x: qd.template(), at: qd.types.ndarray(qd.i32, ndim=1)):
        with qd.graph.parallel_context():
            with qd.graph.parallel(allow_overlap=True):
                for i in at:
                    x[at[i]] = 3
            with qd.graph.parallel():
                for i in range(2):
                    x[i] = 3

    @qd.kernel(graph=True)
    def perhaps(x: qd.template(), at: qd.types.ndarray(qd.i32, ndim=1)):
        with qd.graph.parallel_context():
            with qd.graph.parallel():
                for i in at:
                    x[at[i]] = 4
            with qd.graph.parallel():
                for i in range(2):
                    x[i] = 5

    refused(certain, r"two qd.graph.parallel\(\) sections write the same elements of `x`")
    with pytest.raises(qd.QuadrantsSyntaxError, match=r"qd.graph.parallel\(\) section"):
        in_rounds(qd.field(qd.i32, 4), np.array(1, np.int32))
    x, at = qd.field(qd.i32, 4), np.array([2, 3], np.int32)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        apart(x)
        meant(x, at)
    assert x.to_numpy().tolist() == [3, 3, 3, 3]
    with pytest.warns(UserWarning, match=r"two qd.graph.parallel\(\) sections may write the same elements of `x`"):
        perhaps(x, at)
    assert x.to_numpy().tolist() == [5, 5, 4, 4]


def test_flat_names_still_work_and_are_deprecated():
    A = qd.types.ndarray(qd.i32, ndim=1)

    @qd.kernel(graph=True)
    def run(a: A, n: qd.types.ndarray(qd.i32, ndim=0)):
        while qd.graph_do_while(n):
            with qd.graph_parallel_context():
                with qd.graph_parallel():
                    for i in a:
                        a[i] += 1
            n[()] -= 1

    a, n = qd.ndarray(qd.i32, 3), qd.ndarray(qd.i32, ())
    a.fill(0)
    n.fill(2)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        run(a, n)
    assert a.to_numpy().tolist() == [2, 2, 2]
    assert all(w.category is DeprecationWarning for w in caught)
    assert [str(w.message) for w in caught] == [
        f"qd.{flat}() is deprecated and will be removed in a future release; use qd.{new}() instead"
        for flat, new in [
            ("graph_do_while", "graph.do_while"),
            ("graph_parallel_context", "graph.parallel_context"),
            ("graph_parallel", "graph.parallel"),
        ]
    ]
