"""`if qd.graph.cond(...)`: parts of a graph that run only sometimes."""

import numpy as np
import pytest
from graph_arrays import SCHEDULES, A, C, begin, graph_of, scalar, zeros

import octants as qd


@pytest.fixture(autouse=True, params=SCHEDULES)
def program(request):
    begin(request.param)
    yield request.param
    qd.reset()


@qd.kernel(graph=True)
def choose(x: A, flag: C):
    if qd.graph.cond(flag):
        for i in x:
            x[i] += 1
        flag[()] = 0
        for i in x:
            x[i] += flag[()]
    elif qd.graph.cond(x[0] > 5):
        for i in x:
            x[i] += 100
    else:
        step = 10
        for i in x:
            x[i] += step


def test_exactly_one_branch_runs():
    x, flag = zeros(), scalar(1)
    found = []
    for _ in range(3):
        choose(x, flag)
        found.append(x.to_numpy().tolist())
    assert found == [[1] * 100, [11] * 100, [111] * 100]
    text = graph_of(choose, x, flag)
    assert (text.count("if "), text.count("else"), text.count("range count")) == (2, 2, 4)


def test_a_flag_argument_is_read_at_the_branch():
    @qd.kernel(graph=True)
    def run(x: A, flag: C):
        flag[()] = 1
        for i in x:
            x[i] += 1
        if qd.graph.cond(flag):
            for i in x:
                x[i] += 10

    x, flag = zeros(), scalar(0)
    run(x, flag)
    assert x.to_numpy().tolist() == [11] * 100
    assert "if @1 {" in graph_of(run, x, flag), "the flag decides itself, and no task copies it"


def test_conditions_may_be_fields_arguments_and_expressions():
    field = qd.field(qd.i32, ())

    @qd.kernel(graph=True)
    def run(x: A, least: qd.i32):
        if qd.graph.cond(field):
            for i in x:
                x[i] += 1
        if qd.graph.cond(least > 2 and x[0] < 100):
            for i in x:
                x[i] += 10
        if qd.graph.cond(least):
            for i in x:
                x[i] += 100

    x = zeros()
    field[None] = 1
    run(x, 3)
    field[None] = 0
    run(x, 2)
    run(x, 0)
    assert x.to_numpy().tolist() == [211] * 100


def test_variables_keep_values_assigned_in_a_branch():
    @qd.kernel(graph=True)
    def run(x: A, y: A, flag: C):
        offset = 1
        largest = 0
        if qd.graph.cond(flag):
            offset = 20
            for i in x:
                qd.atomic_max(largest, x[i])
            for i in x:
                x[i] += offset
        for i in y:
            y[i] = offset + largest

    x, y = zeros(), zeros()
    x.from_numpy(np.arange(100, dtype=np.int32))
    for on, expected in ((0, 1), (1, 119), (0, 1)):
        run(x, y, scalar(on))
        assert y.to_numpy().tolist() == [expected] * 100
    assert x.to_numpy().tolist() == list(range(20, 120))


def test_branches_and_loops_nest():
    @qd.func
    def solve(x: A, n: C, by):
        if qd.graph.cond(n):
            while qd.graph.do_while(n):
                if qd.graph.cond(n[()] % 2):
                    for i in x:
                        x[i] += by
                else:
                    for i in x:
                        x[i] += 100 * by
                n[()] -= 1

    @qd.kernel(graph=True)
    def run(x: A, n: C, outer: C):
        while qd.graph.do_while(outer):
            n[()] = outer[()] - 1
            solve(x, n, 1)
            outer[()] -= 1

    x, n, outer = zeros(), scalar(5), scalar(4)
    run(x, n, outer)
    # 3, 2, 1 and 0 rounds.
    assert x.to_numpy().tolist() == [(1 + 100 + 1) + (100 + 1) + 1] * 100
    assert int(n.to_numpy()) == 0


def test_branches_contain_sections_and_checkpoints():
    @qd.kernel(graph=True, checkpoints=True)
    def run(x: A, y: A, flag: C, stop: C):
        if qd.graph.cond(flag):
            with qd.graph.parallel_context(allow_nesting=True):
                with qd.graph.parallel():
                    if qd.graph.cond(flag[()] > 1):
                        for i in x:
                            x[i] += 1
                with qd.graph.parallel():
                    for i in y:
                        y[i] += 2
            with qd.checkpoint(3, yield_on=stop):
                if qd.graph.cond(flag):
                    for i in y:
                        y[i] += 10
            for i in x:
                x[i] += 100
        for i in x:
            x[i] += 1000

    x, y, flag, stop = zeros(), zeros(), scalar(2), scalar(1)
    status = run(x, y, flag, stop)
    assert (status.yielded, status.checkpoint) == (True, 3)
    assert (x[7], y[7]) == (1, 12)
    stop.fill(0)
    status = run.resume(x, y, flag, stop, from_checkpoint=3)
    assert (status.yielded, x[7], y[7]) == (False, 1101, 22)
    flag.fill(0)
    run(x, y, flag, stop)
    assert (x[7], y[7]) == (2101, 22)


def test_captured_graphs_evaluate_branches_at_each_launch():
    x, flag = zeros(), scalar(0)
    with qd.graph.capture() as graph:
        choose(x, flag)
    for _ in range(2):
        graph.launch()
    flag.fill(1)
    graph.launch()
    assert x.to_numpy().tolist() == [111] * 100
    other = zeros()
    graph.update(x=other)
    graph.launch()
    assert other.to_numpy().tolist() == [10] * 100


def test_a_failed_assertion_ends_a_branch(program):
    qd.reset()
    qd.init(arch=qd.cpu, debug=True)

    @qd.kernel(graph=True)
    def run(x: A, flag: C):
        if qd.graph.cond(flag):
            for i in x:
                assert x[i] < 5, "too large"
            for i in x:
                x[i] += 1
        for i in x:
            x[i] += 10

    x, flag = zeros(), scalar(1)
    x.fill(7)

    def launch():
        run(x, flag)
        qd.sync()

    with pytest.raises(AssertionError, match="too large"):
        launch()
    assert x[0] == 7
    flag.fill(0)
    run(x, flag)
    assert x[0] == 17


def test_compile_time_conditions_are_resolved_at_compile_time():
    @qd.kernel(graph=True)
    def run(x: A, on: qd.template()):
        if qd.graph.cond(on):
            for i in x:
                x[i] += 1
        else:
            for i in x:
                x[i] += 10

    x = zeros()
    run(x, True)
    run(x, False)
    assert x.to_numpy().tolist() == [11] * 100


def test_random_numbers_depend_on_iterations_not_branches():
    @qd.kernel(graph=True)
    def run(x: qd.types.ndarray(qd.f32, ndim=1), n: C):
        while qd.graph.do_while(n):
            if qd.graph.cond(n[()] % 2):
                for i in x:
                    x[i] = qd.random()
            n[()] -= 1

    drawn = []
    for rounds in (1, 3):
        x = qd.ndarray(qd.f32, 10)
        run(x, scalar(rounds))
        drawn.append(x.to_numpy())
    assert not (drawn[0] == drawn[1]).any()


def test_gradients_run_through_the_branch_that_was_taken():
    Numbers = qd.types.ndarray(dtype=qd.f64, ndim=1, needs_grad=True)

    @qd.kernel(graph=True)
    def run(x: Numbers, y: Numbers, flag: C):
        if qd.graph.cond(flag):
            for i in x:
                y[i] += x[i] ** 2
        else:
            for i in x:
                y[i] += 5.0 * x[i]

    for on, expected in ((1, 6.0), (0, 5.0)):
        x, y = (qd.ndarray(qd.f64, 10, needs_grad=True) for _ in range(2))
        x.fill(3.0)
        y.fill(0.0)
        y.grad.fill(1.0)
        flag = scalar(on)
        run(x, y, flag)
        run.grad(x, y, flag)
        assert x.grad.to_numpy().tolist() == [expected] * 10


@pytest.mark.parametrize("program", ["in order"], indirect=True)
def test_invalid_conditions_are_refused(program):
    def refused(text, *args):
        with pytest.raises(qd.QuadrantsSyntaxError, match=text):
            args[0](*args[1:])

    x, flag = zeros(), scalar(1)

    @qd.kernel
    def no_graph(x: A, flag: C):
        if qd.graph.cond(flag):
            for i in x:
                x[i] += 1

    refused(r"qd.graph.cond\(\) requires @qd.kernel\(graph=True\)", no_graph, x, flag)

    @qd.kernel(graph=True)
    def in_a_plain_if(x: A, flag: C):
        if x[0] == 0:
            if qd.graph.cond(flag):
                for i in x:
                    x[i] += 1

    refused("must be at the kernel top level, or directly in", in_a_plain_if, x, flag)

    @qd.kernel(graph=True)
    def left(x: A, flag: C):
        if qd.graph.cond(flag):
            return
        for i in x:
            x[i] += 1

    refused("cannot leave an `if qd.graph.cond", left, x, flag)

    @qd.kernel(graph=True)
    def in_a_section(x: A, flag: C):
        with qd.graph.parallel_context():
            with qd.graph.parallel():
                if qd.graph.cond(flag):
                    for i in x:
                        x[i] += 1

    refused("cannot appear inside a qd.graph.parallel", in_a_section, x, flag)

    @qd.kernel(graph=True)
    def not_a_scalar(x: A, flag: C):
        if qd.graph.cond(x):
            for i in x:
                x[i] += 1

    with pytest.raises(qd.QuadrantsTypeError, match="`x` must be a 0-dimensional i32 ndarray"):
        not_a_scalar(x, flag)
