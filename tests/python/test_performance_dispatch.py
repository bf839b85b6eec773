"""`qd.perf_dispatch`: measuring by an injected clock and by events, choosing, repeating, forcing."""

import inspect
import time

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

    for name in costs:

        def run(n, name=name):
            clock.now += costs[name]
            return name

        def implementation(n, run=run):
            return run(n)

        implementation.__signature__ = inspect.signature(lambda n: None)
        implementation.__name__ = name
        op.register(implementation)
    return op


def test_the_fastest_is_used_after_each_was_timed(clock):
    op = dispatcher(clock, {"slow": 2.0, "fast": 1.0}, first_warmup=1, active=1)
    assert [op(8) for _ in range(4)] == ["slow", "fast", "slow", "fast"]
    assert [op(8) for _ in range(5)] == ["fast"] * 5


def test_geometries_are_measured_separately(clock):
    op = dispatcher(clock, {"a": 1.0, "b": 2.0}, first_warmup=0, active=1)
    assert [op(1), op(1), op(1)] == ["a", "b", "a"]
    assert [op(2), op(2), op(2)] == ["a", "b", "a"]


def test_a_repeated_geometry_is_not_hashed_again(clock):
    class Geometry:
        hashed = 0

        def __hash__(self):
            Geometry.hashed += 1
            return 1

    op = dispatcher(clock, {"slow": 2.0, "fast": 1.0}, first_warmup=0, active=1)
    one, other = Geometry(), Geometry()
    assert [op(one) for _ in range(20)] == ["slow", "fast"] + ["fast"] * 18
    counted = Geometry.hashed
    assert counted <= 3
    assert [op(other) for _ in range(3)] == ["slow", "fast", "fast"], "another geometry is measured apart"
    assert Geometry.hashed > counted
    qd.init(arch=qd.cpu)
    assert [op(other) for _ in range(3)] == ["slow", "fast", "fast"], "a new program is measured anew"


def test_measuring_is_repeated_after_a_number_of_calls(clock):
    costs = {"a": 1.0, "b": 2.0}
    op = dispatcher(clock, costs, first_warmup=0, warmup=0, active=1, repeat_after_count=3)
    assert [op(1) for _ in range(4)] == ["a", "b", "a", "a"]
    costs["b"] = 0.5
    assert [op(1) for _ in range(4)] == ["a", "b", "b", "b"], "the third call after a decision measures again"


def test_only_requested_triggers_repeat_measuring(clock):
    op = dispatcher(clock, {"a": 1.0, "b": 2.0}, first_warmup=0)
    assert [op(1) for _ in range(301)] == ["a", "b"] + ["a"] * 299
    assert [op(1) for _ in range(2)] == ["a", "b"]
    op = dispatcher(clock, {"a": 1.0, "b": 2.0}, first_warmup=0, repeat_after_seconds=1e9)
    assert [op(1) for _ in range(700)].count("b") == 1
    op = dispatcher(clock, {"a": 1.0, "b": 2.0}, first_warmup=0, repeat_after_count=0, repeat_after_seconds=0)
    assert [op(1) for _ in range(700)].count("b") == 1


def test_the_mean_of_several_timed_calls_decides(clock):
    costs = {"a": 1.0, "b": 2.0}
    op = dispatcher(clock, costs, first_warmup=0, active=2)
    assert [op(1) for _ in range(2)] == ["a", "b"]
    costs["a"] = 4.0
    assert [op(1) for _ in range(4)] == ["a", "b", "b", "b"]


def test_measuring_is_repeated_after_some_seconds(clock):
    op = dispatcher(clock, {"a": 1.0, "b": 2.0}, first_warmup=0, active=1, repeat_after_seconds=100.0)
    assert [op(1) for _ in range(3)] == ["a", "b", "a"]
    clock.now += 100.0
    assert [op(1) for _ in range(3)] == ["a", "b", "a"]


def test_incompatible_implementations_are_skipped(clock):
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

    with pytest.raises(qd.OctantsSyntaxError, match="must take the parameters"):

        @op.register
        def other(m):
            return m


def test_an_implementation_can_be_forced(clock, monkeypatch, capsys):
    monkeypatch.setenv("OCTANTS_PERFDISPATCH_FORCE", "op:slow")
    op = dispatcher(clock, {"slow": 2.0, "fast": 1.0})
    assert [op(1) for _ in range(4)] == ["slow"] * 4
    assert "registered 'fast'" in capsys.readouterr().out


@pytest.mark.parametrize("value", ["op:missing", "other:fast", "?"])
def test_an_unforceable_choice_is_measured(clock, monkeypatch, capsys, caplog, value):
    monkeypatch.setenv("QD_PERFDISPATCH_FORCE", value)
    op = dispatcher(clock, {"slow": 2.0, "fast": 1.0}, first_warmup=0)
    assert [op(1) for _ in range(3)] == ["slow", "fast", "fast"]
    out = capsys.readouterr().out
    assert "perf_dispatch 'op': registered 'slow'\n" in out
    assert out.count("perf_dispatch 'op': available implementations: ['slow', 'fast']\n") == 1
    assert caplog.text.count("has no implementation `missing`") == (value == "op:missing")


def test_decisions_are_printed_on_request(clock, monkeypatch, capsys):
    op = dispatcher(clock, {"a": 1.0}, first_warmup=0)
    op(1)
    assert capsys.readouterr().out == ""
    monkeypatch.setenv("QD_PERFDISPATCH_PRINT_DEBUG", "1")
    op = dispatcher(clock, {"a": 1.0, "b": 2.0}, first_warmup=0)
    op(1), op(1)
    out = capsys.readouterr().out
    assert "perf_dispatch 'op': registered 'b'" in out
    assert "perf_dispatch 'op': chose 'a', the fastest of 2" in out


def test_a_call_that_raises_is_not_timed(clock):
    failing = [True]

    @qd.perf_dispatch(get_geometry_hash=lambda n: n, first_warmup=0, clock=clock)
    def op(n): ...

    @op.register
    def fails(n):
        if failing[0]:
            raise ZeroDivisionError
        clock.now += 2.0
        return "fails"

    @op.register
    def works(n):
        clock.now += 1.0
        return "works"

    with pytest.raises(ZeroDivisionError):
        op(1)
    failing[0] = False
    assert [op(1) for _ in range(3)] == ["fails", "works", "works"]


def test_each_measured_call_uses_a_compatible_implementation(clock):
    @qd.perf_dispatch(get_geometry_hash=lambda n: 0, first_warmup=2, clock=clock)
    def op(n): ...

    @op.register(is_compatible=lambda n: n > 0)
    def positive(n):
        assert n > 0
        return "positive"

    @op.register(is_compatible=lambda n: n != 0)
    def other(n):
        clock.now += 1.0
        return "other"

    assert [op(1), op(1)] == ["positive", "other"]
    assert op(-1) == "other"


def test_a_new_program_measures_again(clock):
    op = dispatcher(clock, {"a": 1.0, "b": 2.0}, first_warmup=1, repeat_after_count=0)
    assert [op(1) for _ in range(5)] == ["a", "b", "a", "b", "a"]
    qd.init(arch=qd.cpu)
    assert [op(1) for _ in range(5)] == ["a", "b", "a", "b", "a"]


def test_methods_are_dispatched(clock):
    @qd.data_oriented
    class Owner:
        def __init__(self, factor):
            self.factor = factor
            self.x = qd.field(qd.i32, shape=4)

        @qd.perf_dispatch(get_geometry_hash=lambda self, n: n)
        def add(self, n: qd.i32): ...

        @add.register
        @qd.kernel
        def in_a_loop(self, n: qd.i32):
            for i in self.x:
                self.x[i] += n * self.factor

        @add.register
        def on_the_host(self, n):
            for i in range(4):
                self.x[i] += n * self.factor

    owners = Owner(1), Owner(10)
    for _ in range(6):
        for owner in owners:
            owner.add(2)
    assert [owner.x.to_numpy().tolist() for owner in owners] == [[12] * 4, [120] * 4]


@pytest.mark.parametrize("streams", [False, True])
def test_device_time_and_host_time_both_count(streams):
    qd.init(arch=qd.cpu, cpu_streams=streams)
    x = qd.field(qd.f32, shape=4)

    @qd.kernel
    def work(n: qd.i32):
        qd.loop_config(serialize=True)
        for i in range(n):
            x[i % 4] = qd.sin(x[i % 4] + i)

    work(1)
    start = time.perf_counter()
    work(1_000_000)
    qd.sync()
    seconds = time.perf_counter() - start

    @qd.perf_dispatch(get_geometry_hash=lambda busy: busy, first_warmup=0)
    def op(busy): ...

    @op.register
    def long_on_the_device(busy):
        work(10_000_000)
        return "device"

    @op.register
    def long_on_the_host(busy):
        time.sleep(10 * seconds)
        return "host"

    @op.register
    def short(busy):
        work(10)
        return "short"

    with qd.create_stream() as s:
        for busy in (False, True):
            seen = []
            for _ in range(4):
                if busy:
                    work(1_000_000, qd_stream=s)
                seen.append(op(busy, qd_stream=s))
            assert seen == ["device", "host", "short", "short"]


def test_python_implementations_run_on_the_stream_of_the_call(clock):
    qd.init(arch=qd.cpu, cpu_streams=True)

    @qd.perf_dispatch(get_geometry_hash=lambda n: n)
    def op(n): ...

    @op.register
    def first(n):
        return qd.current_stream()

    @op.register(is_compatible=lambda n: n > 0)
    def second(n):
        return qd.current_stream()

    with qd.create_stream() as s:
        assert [op(1, qd_stream=s) for _ in range(5)] == [s] * 5
        assert op(1) == op(1, qd_stream=None) == qd.default_stream()
        with pytest.raises(TypeError, match="stream must be a Stream"):
            op(1, qd_stream=3)


def test_register_is_applied_above_the_kernel_decorator(clock):
    @qd.perf_dispatch(get_geometry_hash=lambda n: 0)
    def op(n: qd.i32): ...

    with pytest.raises(qd.OctantsSyntaxError, match="put `.register` on top"):

        @qd.kernel
        @op.register
        def below(n: qd.i32): ...
