"""`qd.perf_dispatch`: measuring by an injected clock, choosing, repeating, forcing."""

import pytest

import octants as qd


class Clock:
    """Seconds that the implementations themselves let pass."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    qd.init(arch=qd.cpu)
    return Clock()


def dispatcher(clock: Clock, costs: dict[str, float], **options):
    """An operation with one implementation per cost; each returns its name."""

    @qd.perf_dispatch(get_geometry_hash=lambda n: n, clock=clock, **options)
    def op(n): ...

    for name, cost in costs.items():

        def run(n, name=name, cost=cost):
            clock.now += cost
            return name

        def implementation(n, run=run):
            return run(n)

        implementation.__signature__ = __import__("inspect").signature(lambda n: None)
        implementation.__name__ = name
        op.register(implementation)
    return op


def test_the_fastest_is_used_after_each_was_timed(clock):
    op = dispatcher(clock, {"slow": 2.0, "fast": 1.0}, first_warmup=1, active=1)
    assert [op(8) for _ in range(4)] == ["slow", "fast", "slow", "fast"]
    assert [op(8) for _ in range(5)] == ["fast"] * 5


def test_geometries_are_measured_apart(clock):
    op = dispatcher(clock, {"a": 1.0, "b": 2.0}, first_warmup=0, active=1)
    assert [op(1), op(1), op(1)] == ["a", "b", "a"]
    assert [op(2), op(2), op(2)] == ["a", "b", "a"]


def test_measuring_is_repeated_after_a_number_of_calls(clock):
    costs = {"a": 1.0, "b": 2.0}
    op = dispatcher(clock, costs, first_warmup=0, warmup=0, active=1, repeat_after_count=3)
    assert [op(1) for _ in range(5)] == ["a", "b", "a", "a", "a"]
    assert [op(1) for _ in range(3)] == ["a", "b", "a"]


def test_measuring_is_repeated_after_some_seconds(clock):
    op = dispatcher(clock, {"a": 1.0, "b": 2.0}, first_warmup=0, active=1, repeat_after_seconds=100.0)
    assert [op(1) for _ in range(3)] == ["a", "b", "a"]
    clock.now += 100.0
    assert [op(1) for _ in range(3)] == ["a", "b", "a"]


def test_incompatible_implementations_are_left_out(clock):
    @qd.perf_dispatch(get_geometry_hash=lambda n: n, clock=clock)
    def op(n): ...

    @op.register(is_compatible=lambda n: n > 10)
    def large(n):
        return "large"

    @op.register
    def small(n):
        return "small"

    assert [op(1) for _ in range(4)] == ["small"] * 4

    @qd.perf_dispatch(get_geometry_hash=lambda n: n, clock=clock)
    def none(n): ...

    none.register(large, is_compatible=lambda n: False)
    with pytest.raises(qd.OctantsRuntimeError, match="none of .* is compatible"):
        none(1)


def test_kernels_are_implementations(clock):
    total = qd.field(qd.i32, shape=())

    @qd.perf_dispatch(get_geometry_hash=lambda n: 0)
    def add(n: qd.i32): ...

    @add.register
    @qd.kernel
    def one_by_one(n: qd.i32):
        for _ in range(n):
            total[None] += 1

    @add.register
    @qd.kernel
    def at_once(n: qd.i32):
        total[None] += n

    for _ in range(7):
        add(5)
    assert total[None] == 35


def test_parameters_must_agree(clock):
    @qd.perf_dispatch(get_geometry_hash=lambda n: 0)
    def op(n): ...

    with pytest.raises(qd.OctantsSyntaxError, match="takes the parameters"):

        @op.register
        def other(m):
            return m


def test_an_implementation_can_be_forced(clock, monkeypatch, capsys):
    monkeypatch.setenv("OCTANTS_PERFDISPATCH_FORCE", "op:slow")
    op = dispatcher(clock, {"slow": 2.0, "fast": 1.0})
    assert [op(1) for _ in range(4)] == ["slow"] * 4
    assert "registered 'fast'" in capsys.readouterr().out


def test_registering_stands_above_the_kernel_decorator(clock):
    @qd.perf_dispatch(get_geometry_hash=lambda n: 0)
    def op(n: qd.i32): ...

    with pytest.raises(qd.OctantsSyntaxError, match="put `.register` on top"):

        @qd.kernel
        @op.register
        def below(n: qd.i32): ...
