"""Public names that no other test uses, from kernels and from Python."""

import inspect
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import octants as qd


@pytest.fixture(autouse=True)
def program():
    qd.init(arch=qd.cpu)
    yield
    qd.reset()


def test_atomics_return_the_old_value():
    x = qd.field(qd.i32, 6)

    @qd.kernel
    def change() -> qd.types.vector(7, qd.i32):
        for _ in range(1):
            for i in range(6):
                x[i] = 12
        old = qd.Vector([0] * 7)
        for _ in range(1):
            old[0] = qd.atomic_and(x[0], 10)
            old[1] = qd.atomic_or(x[1], 10)
            old[2] = qd.atomic_xor(x[2], 10)
            old[3] = qd.atomic_sub(x[3], 5)
            old[4] = qd.atomic_exchange(x[4], 7)
            old[5] = qd.atomic_cas(x[5], 12, 8)
            old[6] = qd.atomic_cas(x[5], 12, 9)
        return old

    assert change().to_list() == [12, 12, 12, 12, 12, 12, 8]
    assert x.to_numpy().tolist() == [8, 14, 6, 7, 7, 8]


def test_frexp_splits_floats():
    @qd.kernel
    def apart(x: qd.f32) -> qd.types.vector(2, qd.f32):
        mantissa, exponent = qd.frexp(x)
        return qd.Vector([mantissa, qd.cast(exponent, qd.f32)])

    for x in (8.0, -0.3, 0.0):
        assert apart(x).to_list() == list(np.frexp(np.float32(x)))
        assert tuple(qd.frexp(x)) == tuple(np.frexp(x))


def test_hints_do_not_change_results():
    x, y = qd.field(qd.i32, 8), qd.field(qd.i32, 8)

    @qd.kernel
    def fill():
        qd.block_local(x)
        qd.cache_read_only(y)
        qd.no_activate(x)
        for i in x:
            x[i] = qd.assume_in_range(i, 0, 0, 8) + qd.volatile_load(y[i])

    y.fill(2)
    fill()
    assert x.to_numpy().tolist() == list(range(2, 10))


@pytest.mark.parametrize("write", ["y[i] = 1", "y[i] += 1", "qd.atomic_max(y[i], 3)", "put(i)", "s[i].b = 2"])
def test_loops_do_not_write_what_they_promise_to_only_read(write: str, tmp_path: Path) -> None:
    source = f"""import octants as qd
x, y = qd.field(qd.i32, 8), qd.field(qd.i32, 8)
s = qd.Struct.field(dict(a=qd.i32, b=qd.i32), shape=8)
@qd.func
def put(i):
    y[i] = 4
@qd.kernel
def before():
    y[0] = 3
    qd.cache_read_only(y, s)
    for i in x:
        x[i] = y[i] + s[i].b
    for i in y:
        {write}
@qd.kernel
def k():
    qd.cache_read_only(y, s)
    for i in x:
        x[i] = y[i]
        {write}
"""
    file = tmp_path / "program.py"
    file.write_text(source)
    names: dict[str, Any] = {}
    exec(compile(source, str(file), "exec"), names)
    names["before"]()
    with pytest.raises(qd.OctantsCompilationError, match="according to `qd.cache_read_only`, it only reads") as caught:
        names["k"]()
    assert 'program.py", line 20' in str(caught.value)


def test_hints_take_arrays() -> None:
    @qd.kernel
    def k():
        qd.block_local(3)

    with pytest.raises(qd.OctantsTypeError, match="`block_local` takes fields and arrays"):
        k()


def test_indices_are_scaled_from_one_shape_to_another():
    fine, wide, line = qd.field(qd.i32, (8, 12)), qd.field(qd.i32, (4, 24)), qd.field(qd.i32, 8)
    block = qd.root.dense(qd.ij, (2, 3))
    block.dense(qd.ij, 4).place(qd.field(qd.i32))

    @qd.kernel
    def scaled(to: qd.template(), i: qd.i32, j: qd.i32) -> qd.types.vector(2, qd.i32):
        index = qd.Vector([i, j])
        found = qd.rescale_index(fine, to, index)
        assert (index == qd.Vector([i, j])).all()
        return found

    assert [scaled(wide, *index).to_list() for index in ((0, 0), (3, 5), (7, 11))] == [[0, 0], [1, 10], [3, 22]]
    assert scaled(line, 3, 5).to_list() == [3, 5]
    assert scaled(block, 7, 11).to_list() == [1, 2]
    assert qd.rescale_index(fine, wide, [7, 11]) == [3, 22]

    @qd.kernel
    def of_a_list() -> qd.types.vector(2, qd.i32):
        return qd.rescale_index(fine, wide, [7, 11])

    assert of_a_list() == [3, 22]


def test_functions_work_in_python_and_kernels():
    @qd.pyfunc
    def area(a, b):
        return a * b

    @qd.kernel
    def double() -> qd.i32:
        return 2 * area(3, 4)

    assert (area(3, 4), double()) == (12, 24)


def test_operations_on_numbers_of_python():
    assert (qd.abs(-2), qd.pow(2, 3), qd.zero(2.5), qd.one(3), qd.max(1, 2, 3), qd.min(3, 1)) == (2, 8, 0.0, 1, 3, 1)

    @qd.kernel
    def same() -> qd.types.vector(4, qd.f32):
        return qd.Vector([qd.abs(-2.0), qd.pow(2.0, 3), qd.zero(2.5), qd.one(2.5)])

    assert same().to_list() == [2, 8, 0, 1]


@pytest.mark.parametrize(
    ("long", "short"),
    [
        ("int8", "i8"),
        ("int16", "i16"),
        ("int32", "i32"),
        ("int64", "i64"),
        ("uint1", "u1"),
        ("uint8", "u8"),
        ("uint16", "u16"),
        ("uint32", "u32"),
        ("uint64", "u64"),
        ("float16", "f16"),
        ("float32", "f32"),
        ("float64", "f64"),
    ],
)
def test_types_have_long_names(long, short):
    assert getattr(qd, long) is getattr(qd, short) is getattr(qd.types, long)


def test_kinds_of_types():
    kinds = {t.name: (qd.types.is_integral(t), qd.types.is_real(t)) for t in (qd.f16, qd.u1, qd.i64)}
    assert kinds == {"f16": (False, True), "u1": (True, False), "i64": (True, False)}
    assert [qd.types.is_signed(t) for t in (qd.i8, qd.u8)] == [True, False]
    assert qd.types.is_tensor(qd.types.vector(2, qd.f32))
    assert not qd.types.is_tensor(qd.f32)


def test_combined_axes_have_names():
    letters = dict(zip("ijkl", (qd.i, qd.j, qd.k, qd.l), strict=True))
    for name in ("ij", "ik", "il", "jk", "jl", "kl", "ijk", "ijl", "ikl", "jkl", "ijkl"):
        assert list(getattr(qd, name)) == [axis for letter in name for axis in _axes(letters[letter])]
    x = qd.field(qd.i32)
    qd.root.dense(qd.jkl, (2, 3, 4)).place(x)
    assert x.shape == (2, 3, 4)


def _axes(axis):
    return list(axis) if isinstance(axis, tuple) else [axis]


@pytest.mark.parametrize(("name", "entries"), [("vec", float), ("ivec", int), ("uvec", int)])
def test_graphics_vector_types(name, entries):
    for n in (2, 3, 4):
        kind = getattr(qd.math, f"{name}{n}")
        assert kind(*range(n)).to_list() == [entries(i) for i in range(n)]
        assert kind(1).to_list() == [entries(1)] * n


def test_graphics_matrix_types():
    for n in (2, 3, 4):
        rows = [[float(n * i + j) for j in range(n)] for i in range(n)]
        assert getattr(qd.math, f"mat{n}")(rows).to_list() == rows


def test_the_options_in_force_are_printed(capsys):
    qd.dump_compile_config()
    assert "fast_math=True" in capsys.readouterr().out


def test_names_of_levels_and_devices():
    for level in (qd.TRACE, qd.DEBUG, qd.INFO, qd.WARN, qd.ERROR, qd.CRITICAL):
        qd.set_logging_level(level)
        assert qd.is_logging_effective(level)
    qd.set_logging_level("info")
    assert {qd.vulkan, qd.metal, qd.cuda} < set(qd.Arch)
    assert all(isinstance(part, int) for part in qd.__version__)


@pytest.mark.on_cpu
def test_archs_have_numbers():
    kinds = (qd.x64, qd.arm64, qd.python, qd.cuda, qd.metal, qd.amdgpu, qd.vulkan)
    assert [int(arch) for arch in kinds] == [0, 1, 3, 4, 5, 7, 8]
    assert all(qd._lib.core.Arch(int(arch)) is arch for arch in type(qd.cpu))
    assert type(qd.cpu)("cuda") is qd.cuda
    with pytest.raises(ValueError, match="99"):
        type(qd.cpu)(99)
    qd.init(arch=qd._lib.core.Arch(int(qd.cfg.arch)))
    assert qd.cfg.arch is qd.cpu


def test_types_have_names_in_numpy():
    from octants.lang.util import to_numpy_type, to_quadrants_type

    qd.init(arch=qd.cpu)
    for dtype in (qd.f16, qd.f32, qd.f64, qd.i8, qd.i64, qd.u1, qd.u16):
        assert to_quadrants_type(to_numpy_type(dtype)) is dtype
        assert qd.ndarray(dtype, 1).to_numpy().dtype == to_numpy_type(dtype)
    for unknown in ("x", np.complex64):
        with pytest.raises(TypeError, match="no scalar type"):
            to_quadrants_type(unknown)


def test_fields_are_copied_into_existing_arrays():
    from octants._kernels import matrix_to_ext_arr, ndarray_matrix_to_ext_arr, ndarray_to_ext_arr, tensor_to_ext_arr

    qd.init(arch=qd.cpu)
    numbers = np.arange(24, dtype=np.int32).reshape(4, 2, 3)
    field, array = qd.Matrix.field(2, 3, qd.i32, 4), qd.Matrix.ndarray(2, 3, qd.i32, 4)
    field.from_numpy(numbers)
    array.from_numpy(numbers)
    out = np.zeros_like(numbers)
    matrix_to_ext_arr(field, out, False)
    assert (out == numbers).all()
    out = np.zeros((2, 3, 4), np.int32)
    ndarray_matrix_to_ext_arr(array, out, False, False)
    assert (out == np.moveaxis(numbers, 0, -1)).all()
    vectors = qd.Vector.field(2, qd.i32, 4)
    vectors.from_numpy(numbers[:, :, 0])
    out = np.zeros((4, 2), np.int32)
    matrix_to_ext_arr(vectors, out, True)
    assert (out == numbers[:, :, 0]).all()
    for copy, scalars in ((tensor_to_ext_arr, qd.field(qd.i32, 4)), (ndarray_to_ext_arr, qd.ndarray(qd.i32, 4))):
        scalars.fill(3)
        out = np.zeros(4, np.int32)
        copy(scalars, out)
        assert (out == 3).all()


def test_available_back_ends_are_reported():
    core = qd._lib.core
    assert {core.with_cuda(), core.with_amdgpu(), core.with_vulkan()} <= {True, False}
    assert not core.with_metal()


def test_archs_are_numbers():
    assert qd.cuda == 4
    assert sorted([qd.vulkan, qd.x64]) == [qd.x64, qd.vulkan]
    assert str(qd.x64) == f"{qd.x64}" == repr(qd.x64) == "Arch.x64"


def test_names_of_formats_and_capabilities():
    assert qd.Format.rgba8.value == 3
    assert qd.Format.depth32f.value == len(qd.Format) - 1
    assert qd.DeviceCapability.spirv_has_int64 == "spirv_has_int64"


def test_import_paths_of_quadrants():
    from octants.lang._ndarray import Ndarray, ScalarNdarray
    from octants.lang.buffer_view import BufferView
    from octants.lang.graph_status import GraphStatus
    from octants.lang.impl import axes, root
    from octants.lang.misc import get_host_arch_list, is_arch_supported, is_extension_supported
    from octants.lang.runtime_ops import sync
    from octants.lang.snode import deactivate
    from octants.linalg.matrixfree_cg import MatrixFreeCG
    from octants.tools.np2ply import PLYWriter
    from octants.types.compound_types import vector
    from octants.types.enums import Layout
    from octants.types.ndarray_type import NdarrayType

    assert issubclass(ScalarNdarray, Ndarray)
    assert BufferView is qd.BufferView
    assert GraphStatus is qd.GraphStatus
    assert (axes, root, deactivate, Layout) == (qd.axes, qd.root, qd.deactivate, qd.Layout)
    with pytest.raises(AttributeError, match="module 'octants.lang.impl' has no attribute 'no_such_name'"):
        qd.lang.impl.no_such_name  # noqa: B018
    assert sync is qd.sync
    assert MatrixFreeCG is qd.linalg.MatrixFreeCG
    assert PLYWriter is qd.tools.PLYWriter
    assert vector is qd.types.vector
    assert NdarrayType is qd.types.NdarrayType
    assert get_host_arch_list() == [qd.cpu]
    assert is_arch_supported(qd.cpu)
    assert is_arch_supported(qd.python)
    assert is_extension_supported(qd.cpu, qd.extension.data64)
    assert is_extension_supported(qd.cpu, qd.extension.mesh)
    assert not is_extension_supported(qd.cpu, qd.extension.bls)


def test_signatures_of_kernel_functions_are_visible():
    assert str(inspect.signature(qd.atomic_add)) == "(x, y)"
    assert str(inspect.signature(qd.atomic_cas)) == "(x, expected, desired)"
    assert str(inspect.signature(qd.graph.do_while)) == "(condition)"
    with pytest.raises(TypeError, match="missing a required argument: 'y'"):
        qd.atomic_add(1)
    with pytest.raises(qd.OctantsScopeError, match=r"qd\.simt\.block\.sync\(\) can only be called in kernels"):
        qd.simt.block.sync()


def test_enumerations_match_the_numbers_of_quadrants():
    from octants.types.enums import AutodiffMode, SNodeGradType

    assert [mode.name for mode in sorted(AutodiffMode)] == ["FORWARD", "REVERSE", "NONE", "VALIDATION"]
    assert [int(kind) for kind in SNodeGradType] == [0, 1, 2, 3]
    assert [int(ability) for ability in qd.extension] == list(range(9))
    assert repr(qd.extension.data64) == "Extension.data64"
    assert repr(AutodiffMode.REVERSE) == "AutodiffMode.REVERSE"
    assert qd.is_extension_enabled(int(qd.extension.data64))


def test_matrix_types_are_made_as_in_quadrants():
    from octants.lang.matrix import MatrixType, VectorType

    qd.init(arch=qd.cpu)

    @qd.func
    def square(n: qd.template(), dtype: qd.template()) -> qd.template():
        m = MatrixType(n, n, 2, dtype)(0)
        for i in qd.static(range(n)):
            m[i, i] = i + 1
        return m

    @qd.kernel
    def corner() -> qd.f32:
        return square(3, qd.f32)[2, 2] + VectorType(2, qd.i32)(4)[1]

    assert corner() == 7.0
    made = MatrixType(2, 3, 2, qd.i32)
    assert made.shape == (2, 3)
    assert made.dtype is qd.i32
    with pytest.raises(ValueError, match="MatrixType has 2 axes, but 1 were given"):
        MatrixType(2, 1, 1, qd.f32)
