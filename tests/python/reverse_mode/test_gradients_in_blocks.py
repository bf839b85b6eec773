"""Gradients of strip-mined loops, whose states are stored once per block of iterations as on GPUs, against finite
differences."""

import numpy as np
import pytest

import octants as qd

# Blocks have 8 iterations, or 4.
LENGTHS = np.array([0, 1, 3, 4, 5, 7, 8, 9, 16, 17, 100, 2], dtype=np.int32)
N = len(LENGTHS)


@pytest.fixture
def fields():
    x = qd.field(qd.f64, shape=N, needs_grad=True)
    y = qd.field(qd.f64, shape=N, needs_grad=True)
    rate = qd.field(qd.f64, shape=128, needs_grad=True)
    n = qd.field(qd.i32, shape=N)
    x.from_numpy(np.linspace(0.4, 1.3, N))
    rate.from_numpy(0.1 + 0.2 * np.sin(np.arange(128.0)))
    n.from_numpy(LENGTHS)
    return x, y, rate, n


def is_gpu():
    return qd.cfg.arch != qd.cpu


def kept(kernel, *args):
    lines = qd.inspect(kernel.grad, *args, emit="ir").splitlines()
    return [line.rsplit(": ", 1)[1] for line in lines if line.startswith("; keeps ")]


def expect_blocks(kernel, *states):
    """The size of the gradient's store, and the number of iterations per stored state on GPUs."""
    each = [f"{size} bytes for each iteration" for size, _ in states]
    blocks = [f"{size} bytes for every {n} iterations" for size, n in states]
    assert kept(kernel) == (blocks if is_gpu() else each)


def check(kernel, y, *inputs, tolerance=2e-6):
    """Compares gradients of a weighted sum of `y` with differences along the inputs' elements."""
    weights = np.cos(np.arange(N, dtype=np.float64))
    before = [f.to_numpy() for f in inputs]

    def loss():
        y.fill(0)
        kernel()
        return float((y.to_numpy() * weights).sum())

    loss()
    for f in inputs:
        f.grad.fill(0)
    y.grad.from_numpy(weights)
    kernel.grad()
    for f, values in zip(inputs, before, strict=True):
        found = f.grad.to_numpy()
        rng = np.random.default_rng(1)
        for _ in range(6):
            direction = rng.standard_normal(values.shape)
            f.from_numpy(values + 1e-6 * direction)
            high = loss()
            f.from_numpy(values - 1e-6 * direction)
            low = loss()
            f.from_numpy(values)
            expected = (high - low) / 2e-6
            np.testing.assert_allclose((found * direction).sum(), expected, rtol=tolerance, atol=tolerance)


def test_lengths_near_the_block_length(fields):
    x, y, rate, n = fields

    @qd.kernel
    def compute():
        for i in x:
            a = x[i]
            for k in range(n[i]):
                a = a + rate[k] * qd.sin(a)
            y[i] += a

    check(compute, y, x, rate)
    expect_blocks(compute, (8, 8))


def test_each_element_has_its_own_gradient(fields):
    x, y, rate, n = fields

    @qd.kernel
    def compute():
        for i in x:
            a = x[i]
            for k in range(n[i]):
                a = a + rate[k] * qd.sin(a)
            y[i] += a

    y.grad.fill(1)
    compute.grad()
    for i, length in enumerate(LENGTHS):
        a, slope = x[i], 1.0
        for k in range(length):
            a, slope = a + rate[k] * np.sin(a), slope * (1 + rate[k] * np.cos(a))
        np.testing.assert_allclose(x.grad[i], slope, rtol=1e-12)


@pytest.mark.parametrize("begin", [-11, -8, 3, 2**30 - 200, 2**31 - 200, -(2**31)])
def test_ranges_with_a_nonzero_begin(fields, begin):
    x, y, rate, n = fields

    @qd.kernel
    def compute():
        for i in x:
            a = x[i]
            for k in range(begin, begin + n[i]):
                a = a + rate[k - begin] * qd.sin(a + 1e-9 * k)
            y[i] += a

    check(compute, y, x, rate)
    expect_blocks(compute, (8, 8))


def test_empty_ranges(fields):
    x, y, rate, n = fields

    @qd.kernel
    def compute():
        for i in x:
            a = x[i]
            for k in range(5, n[i]):
                a = a + rate[k] * qd.sin(a)
            y[i] += a

    check(compute, y, x, rate)


def test_indices_of_64_bits(fields):
    x, y, rate, n = fields
    begin = qd.field(qd.i64, shape=())
    begin[None] = 2**40 - 3

    @qd.kernel
    def compute():
        for i in x:
            a = x[i]
            first = begin[None]
            for k in range(first, first + n[i]):
                a = a + rate[k - first] * qd.sin(a)
            y[i] += a

    check(compute, y, x, rate)
    expect_blocks(compute, (8, 8))


def test_several_states(fields):
    x, y, rate, n = fields

    @qd.kernel
    def two():
        for i in x:
            a = x[i]
            b = 0.3
            for k in range(n[i]):
                c = a * b
                a = a + rate[k] * qd.sin(c)
                b = b - 0.1 * rate[k] * c * c
            y[i] += a + b

    @qd.kernel
    def four():
        for i in x:
            p = qd.Vector([x[i], 0.4])
            v = qd.Vector([0.2, -0.1 * x[i]])
            for k in range(n[i]):
                v -= 0.05 * rate[k] * p / (1 + p.dot(p))
                p += 0.05 * v / (1 + v.dot(v))
            y[i] += p.dot(v)

    check(two, y, x, rate)
    check(four, y, x, rate)
    expect_blocks(two, (8, 8), (8, 8))
    expect_blocks(four, (16, 4), (16, 4))


def test_states_of_32_bits():
    x, y = (qd.field(qd.f32, shape=N, needs_grad=True) for _ in range(2))
    n = qd.field(qd.i32, shape=N)
    x.from_numpy(np.linspace(0.4, 1.3, N, dtype=np.float32))
    n.from_numpy(LENGTHS)

    @qd.kernel
    def compute():
        for i in x:
            a = x[i]
            for k in range(n[i]):
                a = a + qd.f32(0.1) * qd.sin(a)
            y[i] += a

    y.grad.fill(1)
    compute.grad()
    expect_blocks(compute, (4, 8))
    for i, length in enumerate(LENGTHS):
        a, slope = float(x[i]), 1.0
        for _ in range(length):
            a, slope = a + 0.1 * np.sin(a), slope * (1 + 0.1 * np.cos(a))
        np.testing.assert_allclose(x.grad[i], slope, rtol=1e-4)


def test_large_states_are_kept_in_every_iteration(fields):
    x, y, rate, n = fields

    @qd.kernel
    def compute():
        for i in x:
            p = qd.Vector([x[i], 0.4, 0.1, -0.3, 0.2])
            for k in range(n[i]):
                p += 0.05 * rate[k] * p * p
            y[i] += p.sum()

    check(compute, y, x, rate)
    assert kept(compute) == ["40 bytes for each iteration"]


def test_branches_on_states_and_variables_of_an_iteration(fields):
    x, y, rate, n = fields

    @qd.kernel
    def compute():
        for i in x:
            a = x[i]
            b = 1.0
            for k in range(n[i]):
                b = a * a
                if a > 1.0:
                    b = qd.exp(-a)
                elif k % 3 == 1:
                    continue
                a = a + rate[k] * qd.sin(b)
            y[i] += a * b

    check(compute, y, x, rate)


def test_an_index_that_the_loop_computes(fields):
    x, y, rate, n = fields

    @qd.kernel
    def compute():
        for i in x:
            a = x[i]
            at = i
            for k in range(n[i]):
                a = a + rate[at] * qd.sin(a)
                at = (5 * at + 3 * k + 1) % 128
            y[i] += a

    check(compute, y, x, rate)


def test_short_loops_in_a_loop(fields):
    x, y, rate, n = fields

    @qd.kernel
    def compute():
        for i in x:
            a = x[i]
            for k in range(n[i]):
                for j in range(3):
                    a = a + 0.1 * rate[k] * a * rate[j]
            y[i] += a

    check(compute, y, x, rate)
    expect_blocks(compute, (8, 8))


@pytest.mark.parametrize("length", [1, 7, 8, 9, 16, 40, 100, 2000])
def test_constant_lengths(fields, length):
    x, y, rate, _ = fields

    @qd.kernel
    def compute():
        for i in x:
            a = x[i]
            for k in range(-3, length - 3):
                a = a + 0.1 * rate[(k + 3) % 128] * qd.sin(a)
            y[i] += a

    check(compute, y, x, rate)
    # Few states need no store.
    assert kept(compute) == (["8 bytes for each iteration"] if length == 2000 and not is_gpu() else [])


def test_the_innermost_of_long_loops(fields):
    x, y, rate, n = fields

    @qd.kernel
    def compute():
        for i in x:
            a = x[i]
            for k in range(n[i % 9]):
                for j in range(k):
                    a = a + 0.1 * rate[k] * qd.sin(a) * rate[j]
            y[i] += a

    check(compute, y, x, rate)
    if is_gpu():
        assert kept(compute) == ["8 bytes for each iteration", "8 bytes for every 8 iterations"]


def test_loops_with_break(fields):
    x, y, rate, n = fields

    @qd.kernel
    def compute():
        for i in x:
            a = x[i]
            for k in range(n[i]):
                if a > 1.6:
                    break
                a = a + rate[k] * qd.sin(a)
            y[i] += a

    check(compute, y, x, rate)


def test_loops_without_bounds(fields):
    x, y, rate, _ = fields

    @qd.kernel
    def compute():
        for i in x:
            a = x[i]
            k = 0
            while a < 2.5 + 0.1 * i and k < 50:
                a = a + 0.1 * rate[k] * qd.sin(a)
                k += 1
                if k == 8 * i - 1:
                    break
            y[i] += a

    check(compute, y, x, rate)
    expect = [f"{size} bytes for {'every 8 iterations' if is_gpu() else 'each iteration'}" for size in (8, 4)]
    assert kept(compute)[:2] == expect


def test_a_store_for_fewer_threads():
    qd.init(arch=qd.cpu, default_fp=qd.f64, ad_store_bytes=256)
    x, y = (qd.field(qd.f64, shape=N, needs_grad=True) for _ in range(2))
    n = qd.field(qd.i32, shape=N)
    n.from_numpy(np.minimum(LENGTHS, 17))
    x.from_numpy(np.linspace(0.4, 1.3, N))

    @qd.kernel
    def compute():
        for i in x:
            a = x[i]
            for _ in range(n[i]):
                a = a + 0.1 * qd.sin(a)
            y[i] += a

    check(compute, y, x)


@pytest.mark.parametrize("options", [{"debug": True}, {"fast_math": False}, {"check_out_of_bound": True}])
def test_other_options(options):
    qd.init(arch=qd.cpu, default_fp=qd.f64, **options)
    x, y = (qd.field(qd.f64, shape=N, needs_grad=True) for _ in range(2))
    rate = qd.field(qd.f64, shape=100, needs_grad=True)
    n = qd.field(qd.i32, shape=N)
    n.from_numpy(LENGTHS)
    x.from_numpy(np.linspace(0.4, 1.3, N))
    rate.fill(0.1)

    @qd.kernel
    def compute():
        for i in x:
            a = x[i]
            for k in range(n[i]):
                a = a + rate[k] * qd.sin(a)
            y[i] += a

    check(compute, y, x, rate)


@pytest.mark.parametrize("validation", [False, True])
def test_tapes(validation):
    qd.init(arch=qd.cpu, default_fp=qd.f64, debug=validation)
    x = qd.field(qd.f64, shape=N, needs_grad=True)
    n = qd.field(qd.i32, shape=N)
    loss = qd.field(qd.f64, shape=(), needs_grad=True)
    x.from_numpy(np.linspace(0.4, 1.3, N))
    n.from_numpy(LENGTHS)

    @qd.kernel
    def compute():
        for i in x:
            a = x[i]
            for _ in range(n[i]):
                a = a + 0.1 * qd.sin(a)
            loss[None] += a

    with qd.ad.Tape(loss, validation=validation):
        compute()
    for i, length in enumerate(LENGTHS):
        a, slope = x[i], 1.0
        for _ in range(length):
            a, slope = a + 0.1 * np.sin(a), slope * (1 + 0.1 * np.cos(a))
        np.testing.assert_allclose(x.grad[i], slope, rtol=1e-12)
    line = compute.fn.__code__.co_firstlineno + 4
    message = f"the loop at line {line} ran 172 times in total, but would run 174 times now"

    def change():
        with qd.ad.Tape(loss, validation=validation):
            compute()
            n[3] = 6

    with pytest.raises(RuntimeError, match=message):
        change()


def test_states_of_a_block_are_kept_in_registers():
    qd.init(arch=qd.cpu)
    p, v = (qd.Vector.field(2, qd.f32, shape=N, needs_grad=True) for _ in range(2))
    y = qd.field(qd.f32, shape=N, needs_grad=True)
    n = qd.field(qd.i32, shape=N)

    @qd.kernel
    def fall():
        for i in p:
            q, w = p[i], v[i]
            for _ in range(n[i]):
                w -= 0.01 * q / (q.norm() + 0.1) ** 3
                q += 0.01 * w
            y[i] += q.norm()

    code = qd.inspect(fall.grad, arch="cuda", target="sm_90")
    assert ".entry" in code
    assert ".local" not in code


@pytest.mark.parametrize("n", [1, 127, 128, 255, 256, 257, 1000])
@pytest.mark.parametrize("longest", [1, 5, 90])
def test_rows_of_any_length_have_their_own_gradients(n: int, longest: int) -> None:
    x, y = (qd.field(qd.f64, n, needs_grad=True) for _ in range(2))
    rate = qd.field(qd.f64, longest, needs_grad=True)
    length = qd.field(qd.i32, n)

    @qd.kernel
    def swing() -> None:
        for i in x:
            a = x[i]
            for k in range(length[i]):
                a = a + rate[k] * qd.sin(a)
            y[i] += a

    random = np.random.default_rng(n + longest)
    values, rates, seeds = random.random(n), random.random(longest), random.random(n)
    lengths = random.integers(0, longest + 1, n).astype(np.int32)
    x.from_numpy(values)
    rate.from_numpy(rates)
    length.from_numpy(lengths)
    y.grad.from_numpy(seeds)
    swing.grad()

    states, runs = [values], [k < lengths for k in range(longest)]
    for k in range(longest):
        states.append(np.where(runs[k], states[k] + rates[k] * np.sin(states[k]), states[k]))
    adjoint, of_rates = seeds.copy(), np.zeros(longest)
    for k in reversed(range(longest)):
        of_rates[k] = np.sum(np.where(runs[k], adjoint * np.sin(states[k]), 0.0))
        adjoint = np.where(runs[k], adjoint * (1.0 + rates[k] * np.cos(states[k])), adjoint)
    np.testing.assert_allclose(x.grad.to_numpy(), adjoint, rtol=1e-9)
    np.testing.assert_allclose(rate.grad.to_numpy(), of_rates, rtol=1e-9, atol=1e-12)
