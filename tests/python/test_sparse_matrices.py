"""`qd.linalg`: sparse matrices, their builders, and the solvers of linear systems, against numpy."""

import numpy as np
import pytest

import octants as qd

TYPES = [(qd.f32, np.float32, 2e-4), (qd.f64, np.float64, 1e-10)]


@pytest.fixture(autouse=True)
def program():
    qd.init(arch=qd.cpu, log_level=qd.ERROR)
    yield
    qd.reset()


@qd.kernel
def add_all(builder: qd.types.sparse_matrix_builder(), values: qd.types.ndarray(ndim=2)):
    for i, j in qd.ndrange(values.shape[0], values.shape[1]):
        if values[i, j] != 0:
            builder[i, j] += values[i, j]


def sparse(values, dtype, **options):
    builder = qd.linalg.SparseMatrixBuilder(*values.shape, max_num_triplets=values.size, dtype=dtype, **options)
    add_all(builder, values)
    return builder.build()


def dense(matrix):
    return np.array([[matrix[i, j] for j in range(matrix.m)] for i in range(matrix.n)])


def sample(shape, seed, numpy_type=np.float64):
    rng = np.random.default_rng(seed)
    return (rng.integers(-4, 5, shape) * (rng.random(shape) < 0.4)).astype(numpy_type)


def ndarray_of(values, dtype):
    made = qd.ndarray(dtype, values.shape)
    made.from_numpy(values)
    return made


@pytest.mark.parametrize(("dtype", "numpy_type", "_"), TYPES)
def test_additions_to_one_element_are_summed(dtype, numpy_type, _):
    builder = qd.linalg.SparseMatrixBuilder(3, 4, max_num_triplets=1000, dtype=dtype)

    @qd.func
    def add_twice(builder, i):
        builder[i, i + 1] += 0.5
        builder[i, i + 1] -= qd.f64(0.25)

    @qd.kernel
    def fill(builder: qd.types.sparse_matrix_builder()):
        for k in range(300):
            add_twice(builder, k % 3)

    fill(builder)
    matrix = builder.build()
    assert (matrix.dtype, matrix.shape, matrix.n, matrix.m) == (dtype, (3, 4), 3, 4)
    assert dense(matrix).tolist() == [[0, 25, 0, 0], [0, 0, 25, 0], [0, 0, 0, 25]]
    assert dense(builder.build()).tolist() == np.zeros((3, 4)).tolist()


def test_a_builder_may_be_a_member_of_an_object():
    @qd.data_oriented
    class Assembly:
        def __init__(self):
            self.builder = qd.linalg.SparseMatrixBuilder(2, max_num_triplets=2)

        @qd.kernel
        def fill(self):
            for i in range(2):
                self.builder[i, 1 - i] += i + 1

    assembly = Assembly()
    assembly.fill()
    assert dense(assembly.builder.build()).tolist() == [[0, 1], [2, 0]]


def test_a_builder_has_its_declared_capacity():
    builder = qd.linalg.SparseMatrixBuilder(2, 2, max_num_triplets=3)
    add_all(builder, np.ones((2, 2), np.float32))
    with pytest.raises(qd.OctantsRuntimeError, match=r"4 elements were added .* room for 3: .*max_num_triplets=4"):
        builder.build()
    outside = qd.linalg.SparseMatrixBuilder(2, 2, max_num_triplets=9)
    add_all(outside, np.ones((1, 3), np.float32))
    with pytest.raises(IndexError, match=r"element \(0, 2\) is out of bounds for a sparse matrix of shape \(2, 2\)"):
        outside.build()


def test_builder_elements_support_only_additions():
    builder = qd.linalg.SparseMatrixBuilder(2, 2, max_num_triplets=3)

    @qd.kernel
    def assign(builder: qd.types.sparse_matrix_builder()):
        builder[0, 0] = 1.0

    @qd.kernel
    def multiply(builder: qd.types.sparse_matrix_builder()):
        builder[0, 0] *= 1.0

    @qd.kernel
    def one_index(builder: qd.types.sparse_matrix_builder()):
        builder[0] += 1.0

    with pytest.raises(qd.OctantsSyntaxError, match="no elements to read or assign"):
        assign(builder)
    with pytest.raises(qd.OctantsSyntaxError, match=r"only `\+=` and `-=`, not `\*=`"):
        multiply(builder)
    with pytest.raises(qd.OctantsIndexError, match="two indices, not 1"):
        one_index(builder)

    @qd.kernel
    def float_indices(builder: qd.types.sparse_matrix_builder(), literal: qd.template()):
        for i in range(2):
            if qd.static(literal):
                builder[i, 0.5] += 1.0
            else:
                builder[i * 0.5, 0] += 1.0

    for literal in (True, False):
        with pytest.raises(qd.OctantsTypeError, match="must be an integer, not (a float|f32)") as caught:
            float_indices(builder, literal)
        assert "builder[i" in str(caught.value)
    with pytest.raises(qd.OctantsRuntimeError, match=r"needed .*SparseMatrixBuilder"):
        assign(3)


def test_printing(capfd, tmp_path):
    builder = qd.linalg.SparseMatrixBuilder(2, 3, max_num_triplets=4, dtype=qd.f64, storage_format="row_major")

    @qd.kernel
    def fill(builder: qd.types.sparse_matrix_builder()):
        for _ in range(1):
            builder[1, 0] += 1.5
            builder[0, 2] -= 12

    fill(builder)
    builder.print_triplets()
    assert capfd.readouterr().out == "n=2, m=3, num_triplets=2 (max=4)\n[1, 0] = 1.5\n[0, 2] = -12\n"
    matrix = builder.build()
    assert str(matrix) == repr(matrix) == "[  0,   0, -12]\n[1.5,   0,   0]"
    matrix.mmwrite(tmp_path / "matrix.mtx")
    lines = (tmp_path / "matrix.mtx").read_text().splitlines()
    assert lines == ["%%MatrixMarket matrix coordinate real general", "%", "2 3 2", "1 3 -12", "2 1 1.5"]


@pytest.mark.parametrize(("dtype", "numpy_type", "_"), TYPES)
def test_algebra(dtype, numpy_type, _):
    a, b, c = (sample(shape, seed, numpy_type) for seed, shape in enumerate([(5, 7), (5, 7), (7, 3)]))
    A, B, C = (sparse(values, dtype) for values in (a, b, c))
    for found, wanted in [
        (A + B, a + b),
        (A - B, a - b),
        (-A, -a),
        (A * B, a * b),
        (A * 3, a * 3),
        (0.5 * A, 0.5 * a),
        (A.transpose(), a.T),
        (A @ C, a @ c),
    ]:
        assert found.dtype == dtype
        np.testing.assert_array_equal(dense(found), wanted)
    A += B
    np.testing.assert_array_equal(dense(A), a + b)
    A -= B
    A[2, 3] = 9
    a[2, 3] = 9
    np.testing.assert_array_equal(dense(A), a)


@pytest.mark.parametrize(("dtype", "numpy_type", "_"), TYPES)
def test_products_with_vectors(dtype, numpy_type, _):
    a, x = sample((300, 40), 1, numpy_type), np.arange(40, dtype=numpy_type)
    A = sparse(a, dtype)
    field = qd.field(dtype, shape=40)
    field.from_numpy(x)
    array = ndarray_of(x, dtype)
    for found in (A @ x, A @ field, (A @ array).to_numpy()):
        assert found.dtype == numpy_type
        np.testing.assert_allclose(found, a @ x, rtol=1e-6)
    A[0, 0] += 5
    np.testing.assert_allclose((A @ ndarray_of(x + 1, dtype)).to_numpy()[0], (a @ (x + 1))[0] + 5, rtol=1e-6)
    nothing = qd.linalg.SparseMatrix(3, 40, dtype=dtype)
    assert (nothing @ array).to_numpy().tolist() == [0, 0, 0]


def test_misuse_of_matrices_is_refused():
    A = sparse(sample((3, 4), 1), qd.f32)
    with pytest.raises(AssertionError, match=r"between sparse matrices \(3, 4\) and \(4, 3\)"):
        A + A.transpose()
    with pytest.raises(AssertionError, match="Dimension mismatch between sparse matrices"):
        A @ A
    with pytest.raises(AssertionError, match="Dimension mismatch between sparse matrix"):
        A @ np.ones(3)
    with pytest.raises(qd.OctantsRuntimeError, match="Dimension mismatch between sparse matrix"):
        A @ qd.ndarray(qd.f32, 3)
    with pytest.raises(qd.OctantsRuntimeError, match="does not support <class 'list'>"):
        A @ [1, 2, 3, 4]
    with pytest.raises(qd.OctantsRuntimeError, match="different types cannot be combined: f32 and f64"):
        A + sparse(sample((3, 4), 1), qd.f64)
    with pytest.raises(IndexError, match="row 3 is out of bounds for a sparse matrix"):
        A[3, 0]
    with pytest.raises(IndexError, match="two indices, `A.i, j.`, not 0"):
        A[0]
    with pytest.raises(IndexError, match="two indices, .* not .0, 1, 2."):
        A[0, 1, 2] = 1.0
    with pytest.raises(TypeError, match="indices of a sparse matrix must be integers, not 0.5"):
        A[0.5, 0]
    for make in (qd.linalg.SparseMatrix, qd.linalg.SparseMatrixBuilder):
        with pytest.raises(ValueError, match="number of rows of a sparse matrix must be positive, not 0"):
            make(0, 3)
        with pytest.raises(ValueError, match="number of columns of a sparse matrix must be positive, not 0"):
            make(3, 0)
        with pytest.raises(TypeError, match="number of rows of a sparse matrix must be an integer, not 2.5"):
            make(2.5)
    with pytest.raises(ValueError, match="max_num_triplets cannot be negative, got -5"):
        qd.linalg.SparseMatrixBuilder(3, 3, -5)
    with pytest.raises(TypeError, match="max_num_triplets must be an integer, not '5'"):
        qd.linalg.SparseMatrixBuilder(3, 3, "5")
    with pytest.raises(qd.OctantsRuntimeError, match="Unsupported sparse matrix data type: i32"):
        qd.linalg.SparseMatrixBuilder(3, 3, dtype=qd.i32)
    with pytest.raises(qd.OctantsRuntimeError, match="Unsupported storage format 'CSR'"):
        qd.linalg.SparseMatrix(3, 3, storage_format="CSR")
    with pytest.raises(TypeError):
        A * "2"


def test_triplets_of_an_ndarray():
    A = qd.linalg.SparseMatrix(n=4, m=4, dtype=qd.f64)
    triplets = qd.Vector.ndarray(3, qd.f32, shape=5)

    @qd.kernel
    def fill(triplets: qd.types.ndarray()):
        for i in range(5):
            triplets[i] = qd.Vector([i % 4, 3 - i % 4, i + 0.5])

    fill(triplets)
    A.build_from_ndarray(triplets)
    assert dense(A).tolist() == [[0, 0, 0, 5], [0, 0, 1.5, 0], [0, 2.5, 0, 0], [3.5, 0, 0, 0]]
    with pytest.raises(qd.OctantsRuntimeError, match="divisible by 3"):
        A.build_from_ndarray(qd.ndarray(qd.f32, 10))
    with pytest.raises(qd.OctantsRuntimeError, match="only supports building from"):
        A.build_from_ndarray(np.ones(9))


def definite(n, numpy_type, seed=0):
    a = sample((n, n), seed)
    return (a @ a.T + n * np.eye(n)).astype(numpy_type)


@pytest.mark.parametrize(("dtype", "numpy_type", "tolerance"), TYPES)
@pytest.mark.parametrize("ordering", ["AMD", "COLAMD"])
@pytest.mark.parametrize("solver_type", ["LLT", "LDLT", "LU"])
def test_direct_solvers(dtype, numpy_type, tolerance, solver_type, ordering):
    n = 60
    a, b = definite(n, numpy_type), np.linspace(-1, 1, n).astype(numpy_type)
    A = sparse(a, dtype)
    solver = qd.linalg.SparseSolver(dtype=dtype, solver_type=solver_type, ordering=ordering)
    solver.compute(A)
    assert solver.info()
    field = qd.field(dtype, shape=n)
    field.from_numpy(b)
    wanted = np.linalg.solve(a.astype(np.float64), b)
    for found in (solver.solve(b), solver.solve(field), solver.solve(ndarray_of(b, dtype)).to_numpy()):
        assert found.dtype == numpy_type
        np.testing.assert_allclose(found, wanted, atol=tolerance)
    # Other values of the same pattern take the same analysis.
    solver.factorize(A * 2.0)
    np.testing.assert_allclose(solver.solve(b), wanted / 2, atol=tolerance)
    solver.factorize(sparse(np.eye(n), dtype))
    assert not solver.info()
    with pytest.raises(qd.OctantsRuntimeError, match="sparsity pattern of the matrix differs from the analyzed one"):
        solver.solve(b)


def test_singular_matrices_are_reported():
    indefinite = sparse(np.diag([1.0, -2.0]), qd.f64)
    cholesky = qd.linalg.SparseSolver(qd.f64, "LLT")
    cholesky.compute(indefinite)
    assert not cholesky.info()
    with pytest.raises(qd.OctantsRuntimeError, match="cannot be solved: the matrix is not positive definite"):
        cholesky.solve(np.ones(2))
    ldlt = qd.linalg.SparseSolver(qd.f64, "LDLT")
    ldlt.compute(indefinite)
    assert ldlt.solve(np.ones(2)).tolist() == [1, -0.5]
    for method in ("LDLT", "LU"):
        solver = qd.linalg.SparseSolver(qd.f64, method)
        solver.compute(sparse(np.ones((2, 2)), qd.f64))
        assert not solver.info()


def test_misuse_of_solvers_is_refused():
    solver = qd.linalg.SparseSolver()
    with pytest.raises(qd.OctantsRuntimeError, match=r"call compute\(\) before"):
        solver.solve(np.ones(3))
    for step in (solver.compute, solver.analyze_pattern, solver.factorize):
        with pytest.raises(qd.OctantsRuntimeError, match="The parameter type: <class 'int'>"):
            step(3)
    with pytest.raises(qd.OctantsRuntimeError, match="dtype f32 is not consistent with .* dtype f64"):
        solver.compute(qd.linalg.SparseMatrix(3, 3, dtype=qd.f64))
    with pytest.raises(qd.OctantsRuntimeError, match="only square matrices"):
        solver.compute(qd.linalg.SparseMatrix(3, 4))
    with pytest.raises(qd.OctantsRuntimeError, match=r"call analyze_pattern\(\) before"):
        solver.factorize(sparse(np.eye(3), qd.f32))
    solver.compute(sparse(np.eye(3), qd.f32))
    with pytest.raises(qd.OctantsRuntimeError, match="Dimension mismatch"):
        solver.solve(np.ones(4))
    with pytest.raises(qd.OctantsRuntimeError, match="The solver type QR with AMD is not supported"):
        qd.linalg.SparseSolver(solver_type="QR")


@pytest.mark.parametrize(("dtype", "numpy_type", "tolerance"), TYPES)
def test_conjugate_gradients(dtype, numpy_type, tolerance):
    n = 200
    a, b = definite(n, numpy_type), np.sin(np.arange(n)).astype(numpy_type)
    A = sparse(a, dtype)
    wanted = np.linalg.solve(a.astype(np.float64), b)
    for right in (b, ndarray_of(b, dtype)):
        x, succeeded = qd.linalg.SparseCG(A, right, max_iter=400, atol=tolerance / 100).solve()
        assert succeeded is True
        np.testing.assert_allclose(np.array([x[i] for i in range(n)]), wanted, atol=tolerance)
    x, succeeded = qd.linalg.SparseCG(A, b, wanted.astype(numpy_type), max_iter=0, atol=1e-3).solve()
    assert succeeded
    _, succeeded = qd.linalg.SparseCG(A, b, max_iter=1, atol=1e-9).solve()
    assert not succeeded
    with pytest.raises(qd.OctantsRuntimeError, match="Unsupported CG RHS type: <class 'list'>"):
        qd.linalg.SparseCG(A, [1.0] * n)


@qd.kernel
def laplacian(v: qd.template(), mv: qd.template()):
    for I in qd.grouped(v):
        total = 4.0 * v[I]
        for axis in qd.static(range(2)):
            step = qd.Vector.unit(2, axis)
            if I[axis] > 0:
                total -= v[I - step]
            if I[axis] < v.shape[axis] - 1:
                total -= v[I + step]
        mv[I] = total


@qd.kernel
def convection(v: qd.types.ndarray(), mv: qd.types.ndarray()):
    for i in range(v.shape[0]):
        total = 3.0 * v[i]
        if i > 0:
            total -= 2.0 * v[i - 1]
        if i < v.shape[0] - 1:
            total -= 0.5 * v[i + 1]
        mv[i] = total


@pytest.mark.parametrize(("dtype", "numpy_type", "tolerance"), TYPES)
@pytest.mark.parametrize("solve", [qd.linalg.MatrixFreeCG, qd.linalg.MatrixFreeBICGSTAB])
def test_solvers_without_a_matrix(dtype, numpy_type, tolerance, solve, capsys):
    b, x, back = (qd.field(dtype, shape=(12, 15)) for _ in range(3))
    b.from_numpy(np.cos(np.arange(180)).reshape(12, 15).astype(numpy_type))
    operator = qd.linalg.LinearOperator(laplacian)
    assert solve(operator, b, x, tol=tolerance, maxiter=500) is True
    operator.matvec(x, back)
    np.testing.assert_allclose(back.to_numpy(), b.to_numpy(), atol=10 * tolerance)
    assert capsys.readouterr().out == ""
    x.fill(0)
    assert solve(operator, b, x, tol=1e-30, maxiter=2, quiet=False) is False
    assert "not converged after 2 iterations" in capsys.readouterr().out


def test_bicgstab_of_ndarrays():
    b, x, back = (qd.ndarray(qd.f64, 100) for _ in range(3))
    b.from_numpy(np.arange(100.0))
    operator = qd.linalg.LinearOperator(convection)
    assert qd.linalg.MatrixFreeBICGSTAB(operator, b, x, tol=1e-9)
    operator.matvec(x, back)
    np.testing.assert_allclose(back.to_numpy(), b.to_numpy(), atol=1e-8)
    with pytest.raises(qd.OctantsRuntimeError, match="Dimension mismatch"):
        operator.matvec(x, qd.ndarray(qd.f64, 50))
    with pytest.raises(qd.OctantsRuntimeError, match="Dimension mismatch"):
        qd.linalg.MatrixFreeCG(operator, b, qd.ndarray(qd.f64, 50))
    with pytest.raises(qd.OctantsTypeError, match="a kernel or a function of x and Ax, not <class 'int'>"):
        qd.linalg.LinearOperator(5)
    for solver in (qd.linalg.MatrixFreeCG, qd.linalg.MatrixFreeBICGSTAB):
        with pytest.raises(qd.OctantsTypeError, match="needs a LinearOperator, not <class 'int'>"):
            solver(5, b, x)
        with pytest.raises(qd.OctantsTypeError, match="`b` of .* must be a field or an ndarray, not <class 'int'>"):
            solver(operator, 5, x)
        with pytest.raises(qd.OctantsTypeError, match="`x` of .* must be a field or an ndarray, not <.*numpy"):
            solver(operator, b, np.zeros(100))
    with pytest.raises(qd.OctantsTypeError, match="Dtype mismatch"):
        qd.linalg.MatrixFreeCG(operator, b, qd.ndarray(qd.f32, 100))
    with pytest.raises(qd.OctantsTypeError, match="Not supported dtype: i32"):
        qd.linalg.MatrixFreeCG(operator, qd.ndarray(qd.i32, 100), qd.ndarray(qd.i32, 100))
    with pytest.raises(qd.OctantsRuntimeError, match="only supports 1D, 2D and 3D inputs, got 4D"):
        qd.linalg.MatrixFreeCG(operator, qd.ndarray(qd.f32, (1, 1, 1, 1)), qd.ndarray(qd.f32, (1, 1, 1, 1)))
