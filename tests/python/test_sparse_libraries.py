"""Sparse matrices by the vendor's libraries: products and direct solvers, against numpy.

Products run on the stand-in for hipSPARSE too (`--arch amdgpu-standin`); direct solvers need an NVIDIA GPU with cuDSS.
"""

import hip_standin
import numpy as np
import pytest

import octants as qd
from octants import _octants

TYPES = [(qd.f32, np.float32, 2e-4), (qd.f64, np.float64, 1e-10)]


@pytest.fixture(autouse=True)
def program(request, monkeypatch, tmp_path):
    if request.config.getoption("--arch") == hip_standin.ARCH:
        (tmp_path / "lib").mkdir()
        (tmp_path / "lib" / "libhipsparse.so").symlink_to(hip_standin.path())
        monkeypatch.setenv("ROCM_PATH", str(tmp_path))
    qd.init(arch=qd.cpu, log_level=qd.ERROR)
    yield
    qd.reset()


def wants(work):
    missing = _octants.missing_sparse_library(work)
    if missing is not None:
        pytest.skip(missing)


def sample(shape, seed, numpy_type=np.float64):
    rng = np.random.default_rng(seed)
    return (rng.integers(-4, 5, shape) * (rng.random(shape) < 0.4)).astype(numpy_type)


def sparse(values, dtype):
    triplets = np.array([(i, j, values[i, j]) for i, j in zip(*np.nonzero(values), strict=True)], values.dtype)
    matrix = qd.linalg.SparseMatrix(*values.shape, dtype=dtype)
    matrix.build_from_ndarray(ndarray_of(triplets.ravel(), dtype))
    return matrix


def ndarray_of(values, dtype):
    made = qd.ndarray(dtype, values.shape)
    made.from_numpy(np.ascontiguousarray(values))
    return made


def laplacian(n, numpy_type):
    """A symmetric, positive definite matrix."""
    return (3 * np.eye(n) - np.eye(n, k=1) - np.eye(n, k=-1)).astype(numpy_type)


def same(got, expected, tolerance):
    got = got if isinstance(got, np.ndarray) else got.to_numpy()
    np.testing.assert_allclose(got, expected, atol=tolerance * max(1, np.abs(expected).max()))
    return True


@pytest.mark.parametrize(("dtype", "numpy_type", "tolerance"), TYPES)
def test_products_use_the_vendor_library(dtype, numpy_type, tolerance):
    wants("products")
    values = sample((70, 50), 1, numpy_type)
    matrix = sparse(values, dtype)
    assert matrix._rows_on_device()._product is not None
    for seed in (2, 3):
        x = sample((50,), seed, numpy_type)
        assert same(matrix @ ndarray_of(x, dtype), values @ x, tolerance)
    matrix[3, 4] = 7.0
    values[3, 4] = 7.0
    x = sample((50,), 4, numpy_type)
    assert same(matrix @ ndarray_of(x, dtype), values @ x, tolerance)


def test_products_follow_stream_order():
    wants("products")
    n = 400
    values = sample((n, n), 5)
    matrix = sparse(values, qd.f64)
    vectors = [sample((n,), seed) for seed in range(6)]

    @qd.kernel
    def double(v: qd.types.ndarray(ndim=1)):
        for i in range(v.shape[0]):
            v[i] *= 2.0

    results, streams = [], [qd.create_stream() for _ in range(2)]
    for k, vector in enumerate(vectors):
        x = ndarray_of(vector, qd.f64)
        with qd.stream_scope(streams[k % 2]):
            double(x)
            y = matrix @ x
            double(y)
        results.append(y)
        del x
    for stream in streams:
        stream.synchronize()
    for vector, y in zip(vectors, results, strict=True):
        assert same(y, 4 * (values @ vector), 1e-10)


def test_vectors_of_other_types_and_empty_matrices_use_kernels():
    values = sample((6, 4), 6)
    matrix = sparse(values, qd.f64)
    x = np.arange(4, dtype=np.float32)
    assert same(matrix @ ndarray_of(x, qd.f32), values @ x, 1e-4)
    empty = qd.linalg.SparseMatrix(3, 4, dtype=qd.f32)
    assert same(empty @ ndarray_of(x, qd.f32), np.zeros(3), 0)


@pytest.mark.parametrize(("dtype", "numpy_type", "tolerance"), TYPES)
@pytest.mark.parametrize("solver_type", ["LLT", "LDLT", "LU"])
def test_direct_solvers_on_the_device(dtype, numpy_type, tolerance, solver_type):
    wants("solvers")
    values = laplacian(60, numpy_type)
    if solver_type == "LU":
        values += np.triu(sample(values.shape, 8, numpy_type)) / 10
    elif solver_type == "LDLT":
        values[10, 10] = -5.0
    matrix = sparse(values, dtype)
    solver = qd.linalg.SparseSolver(dtype=dtype, solver_type=solver_type, runs_on="device")
    solver.compute(matrix)
    assert solver.info()
    right = sample((60,), 9, numpy_type)
    for b in (right, ndarray_of(right, dtype)):
        assert same(solver.solve(b), np.linalg.solve(values, right), 10 * tolerance)
    solver.factorize(sparse(2 * values, dtype))
    assert same(solver.solve(right), np.linalg.solve(2 * values, right), 10 * tolerance)


def test_unfactorizable_matrices_on_the_device_are_reported():
    wants("solvers")
    solver = qd.linalg.SparseSolver(dtype=qd.f64, runs_on="device")
    solver.compute(sparse(-laplacian(8, np.float64), qd.f64))
    assert not solver.info()
    with pytest.raises(qd.QuadrantsRuntimeError, match="cannot be solved"):
        solver.solve(np.ones(8))
    solver.analyze_pattern(sparse(laplacian(8, np.float64), qd.f64))
    solver.factorize(sparse(np.eye(8), qd.f64))
    with pytest.raises(qd.QuadrantsRuntimeError, match="sparsity pattern of the matrix differs"):
        solver.solve(np.ones(8))


def test_without_a_library_the_host_factorizes_or_an_error_is_raised():
    missing = _octants.missing_sparse_library("solvers")
    if missing is None:
        pytest.skip("this device has a library of direct solvers")
    values = laplacian(8, np.float64)
    solver = qd.linalg.SparseSolver(dtype=qd.f64)
    solver.compute(sparse(values, qd.f64))
    assert same(solver.solve(np.ones(8)), np.linalg.solve(values, np.ones(8)), 1e-12)
    with pytest.raises(qd.QuadrantsRuntimeError, match='Use runs_on="host" to factorize on the host') as error:
        qd.linalg.SparseSolver(runs_on="device")
    assert missing in str(error.value)
    with pytest.raises(qd.QuadrantsRuntimeError, match="runs_on"):
        qd.linalg.SparseSolver(runs_on="gpu")
