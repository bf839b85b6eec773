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
    assert (text.count("case {"), text.count("else {"), text.count("range count")) == (2, 1, 4)


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

    wrong = "`x` must be a 0-dimensional i32 ndarray or field, but it has 1 dimensions and elements of type i32"
    with pytest.raises(qd.QuadrantsTypeError, match=wrong):
        not_a_scalar(x, flag)
    field = qd.field(qd.f32, shape=(2, 3))

    @qd.kernel(graph=True)
    def of_a_field(x: A, flag: C):
        while qd.graph.do_while(field):
            for i in x:
                x[i] += 1

    wrong = r"do_while\(field\)(.|\n)*has 2 dimensions and elements of type f32"
    with pytest.raises(qd.QuadrantsTypeError, match=wrong):
        of_a_field(x, flag)

    @qd.kernel(graph=True)
    def negated(x: A, flag: C):
        if not qd.graph.cond(flag):
            for i in x:
                x[i] += 1

    advice = "put the whole expression in the call: `if qd.graph.cond"
    refused(rf"whole condition of an `if`(.|\n)*{advice}", negated, x, flag)

    @qd.kernel(graph=True)
    def nested_with_break(x: A, flag: C):
        while qd.graph.do_while(flag):
            while qd.graph.do_while(flag):
                for i in x:
                    x[i] += 1
                flag[()] = 0
            break

    refused("a `break`, `continue` or `return` may leave an iteration of the loop around", nested_with_break, x, flag)


@qd.kernel(graph=True)
def pick(x: A, stage: C):
    if qd.graph.cond(stage[()] == 0):
        for i in x:
            x[i] += 1
        stage[()] = 2  # decides nothing in this launch
    elif qd.graph.cond(stage[()] == 2):
        for i in x:
            x[i] += 10
    elif qd.graph.cond(stage[()] == 1):
        for i in x:
            x[i] += 100
    else:
        for i in x:
            x[i] += 1000


def test_a_chain_over_one_integer_is_a_switch():
    for value, expected in {0: 1, 1: 100, 2: 10, 3: 1000, -1: 1000, 1 << 30: 1000}.items():
        x, stage = zeros(), scalar(value)
        pick(x, stage)
        assert x.to_numpy().tolist() == [expected] * 100, value
        assert stage[()] == (value or 2)
    text = graph_of(pick, x, stage)
    assert "switch @1 {" in text
    assert "serial" not in text.split("case", 1)[0]
    assert (text.count("case {"), text.count("else {"), text.count("if ")) == (3, 1, 0)


@qd.kernel(graph=True)
def pick_by_conditions(x: A, at: C):
    scale = x[0] + 1
    if qd.graph.cond(at[()] < 0):
        for i in x:
            x[i] -= scale
    elif qd.graph.cond(at[()] < 100 and x[at[()]] > 5):  # reads no element outside of `x`
        for i in x:
            x[i] += 10 * scale
        scale = 7
    elif qd.graph.cond(at[()] % 2):
        pass
    elif qd.graph.cond(at[()] == 40):
        if qd.graph.cond(x[1] == 0):
            for i in x:
                x[i] += 3
    else:
        for i in x:
            x[i] += 1000
    for i in x:
        x[i] += scale * 10000


def test_a_chain_of_other_conditions_evaluates_each_only_if_those_before_do_not_hold():
    def expected(values, at):
        x, scale = list(values), values[0] + 1
        if at < 0:
            x = [v - scale for v in x]
        elif at < 100 and x[at] > 5:
            x, scale = [v + 10 * scale for v in x], 7
        elif at % 2:
            pass
        elif at == 40:
            x = [v + 3 for v in x] if x[1] == 0 else x
        else:
            x = [v + 1000 for v in x]
        return [v + scale * 10000 for v in x]

    values = np.arange(100, dtype=np.int32) % 9
    for first in (0, 3):
        values[1] = first
        for at in (-5, 0, 6, 7, 40, 41, 42, 101, 10**8, 10**8 + 1):
            x, where = zeros(), scalar(at)
            x.from_numpy(values)
            pick_by_conditions(x, where)
            assert x.to_numpy().tolist() == expected(values.tolist(), at), at
    text = graph_of(pick_by_conditions, x, where)
    assert text.count("switch frame") == 1
    assert text.count("case {") == 4
    assert text.count("if ") == 1


def test_a_chain_that_reads_an_integer_before_and_after_it_changes_is_no_switch_over_it():
    @qd.kernel(graph=True)
    def run(x: A, stage: C):
        before = stage[()]
        stage[()] = 1
        if qd.graph.cond(before == 0):
            for i in x:
                x[i] += 1
        elif qd.graph.cond(stage[()] == 1):
            for i in x:
                x[i] += 10
        else:
            for i in x:
                x[i] += 100

    for value, expected in ((0, 1), (1, 10), (2, 10)):
        x = zeros()
        run(x, scalar(value))
        assert x.to_numpy().tolist() == [expected] * 100


def test_switches_in_loops_and_captured_graphs_take_other_cases_in_each_iteration():
    @qd.kernel(graph=True)
    def run(x: A, n: C):
        while qd.graph.do_while(n):
            if qd.graph.cond(n[()] % 3 == 0):
                for i in x:
                    x[i] = x[i] * 2 + 1
            elif qd.graph.cond(n[()] % 3 == 1):
                for i in x:
                    x[i] += 5
            else:
                total = 0
                for i in x:
                    total += x[i]
                x[0] = total % 1000
            n[()] -= 1

    def expected(x, n):
        for n in range(n, 0, -1):
            if n % 3 == 0:
                x = [2 * v + 1 for v in x]
            elif n % 3 == 1:
                x = [v + 5 for v in x]
            else:
                x = [sum(x) % 1000, *x[1:]]
        return x

    x, n = zeros(), scalar(8)
    run(x, n)
    assert x.to_numpy().tolist() == expected([0] * 100, 8)
    with qd.graph.capture() as g:
        x.fill(1)
        n.fill(7)
        run(x, n)
        pick(x, n)
    for _ in range(2):
        g.launch()
        assert x.to_numpy().tolist() == [v + 1 for v in expected([1] * 100, 7)]


def test_gradients_run_through_the_case_that_was_taken():
    Numbers = qd.types.ndarray(dtype=qd.f64, ndim=1, needs_grad=True)

    @qd.kernel(graph=True)
    def run(x: Numbers, y: Numbers, stage: C):
        if qd.graph.cond(stage[()] == 0):
            for i in x:
                y[i] += x[i] ** 2
        elif qd.graph.cond(stage[()] == 1):
            for i in x:
                y[i] += 5.0 * x[i]
        elif qd.graph.cond(x[0] > 2.0):
            for i in x:
                y[i] += x[i] ** 3

    for value, expected in ((0, 6.0), (1, 5.0), (2, 27.0)):
        x, y = (qd.ndarray(qd.f64, 10, needs_grad=True) for _ in range(2))
        x.fill(3.0)
        y.fill(0.0)
        y.grad.fill(1.0)
        stage = scalar(value)
        run(x, y, stage)
        run.grad(x, y, stage)
        assert x.grad.to_numpy().tolist() == [expected] * 10
