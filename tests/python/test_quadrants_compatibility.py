"""Start-up of programs written for Quadrants: options at run time, environment variables, code dumps, child
processes."""

import os
import subprocess
import sys
import textwrap
import venv
from pathlib import Path

import numpy as np
import pytest

import octants as qd


@pytest.fixture(autouse=True)
def program():
    qd.init(arch=qd.cpu)
    yield
    qd.reset()


def run(code, env=(), cwd=None, python=sys.executable):
    return subprocess.run(
        [python, "-c", textwrap.dedent(code)], capture_output=True, text=True, env=os.environ | dict(env), cwd=cwd
    )


def launch_and_wait(kernel, *args):
    kernel(*args)
    qd.sync()


@pytest.mark.on_cpu
def test_options_of_a_running_program_can_be_set():
    @qd.kernel
    def quotient() -> qd.f64:
        x = 1
        return x / 3

    @qd.kernel
    def quotient_again() -> qd.f64:
        x = 1
        return x / 3

    assert quotient() == np.float32(1 / 3)
    qd.cfg.default_fp = qd.f64
    assert qd.cfg.default_fp is qd.f64
    assert qd.field(float, 1).dtype is qd.f64
    assert quotient_again() == 1 / 3
    assert quotient() == np.float32(1 / 3), "what is compiled stays as it is"
    qd.cfg.opt_level = 1
    assert qd.cfg.opt_level == 1
    qd.cfg.flatten_if = True
    assert (qd.cfg.flatten_if, qd.cfg.cfg_optimization) == (True, True)
    assert qd.cfg.default_up is qd.u32
    qd.cfg.arch = qd.cpu
    for name, value, error in (("cpu_streams", True, AttributeError), ("flatten", 1, AttributeError)):
        with pytest.raises(error, match=name):
            setattr(qd.cfg, name, value)
    with pytest.raises(ValueError, match="opt_level"):
        qd.cfg.opt_level = "fast"
    old = qd.cfg
    qd.init(arch=qd.cpu)
    with pytest.raises(AttributeError, match="has ended"):
        old.debug = True


@pytest.mark.on_cpu
def test_debug_mode_can_be_turned_on_for_later_kernels():
    @qd.kernel
    def fails():
        assert 1 == 2, "told"

    qd.cfg.debug = True
    with pytest.raises(AssertionError, match="told"):
        launch_and_wait(fails)


def test_the_default_integer_type_may_become_unsigned():
    from octants.lang import impl

    impl.get_runtime().set_default_ip(qd.u64)
    numbers = qd.field(qd.u64, 3)

    @qd.kernel
    def fill():
        for i in numbers:
            numbers[i] = 0xFFFFFFFFFFFFFFFF

    fill()
    assert (numbers.to_numpy() == 2**64 - 1).all()
    with pytest.raises(ValueError, match="default_ip"):
        qd.init(arch=qd.cpu, default_ip=qd.u32)


def test_a_required_version_refers_to_quadrants():
    for version in ("1.3.0", "1.3"):
        qd.init(arch=qd.cpu, require_version=version)
    for version in ("1.99.0", "1.4", "2.0.0", "0.9.0"):
        with pytest.raises(Exception, match="version mismatch"):
            qd.init(arch=qd.cpu, require_version=version)
    for version in ("one", 1):
        with pytest.raises(ValueError, match="major.minor.patch"):
            qd.init(arch=qd.cpu, require_version=version)
    assert qd.__version_str__ == ".".join(map(str, qd.__version__))


def test_kernels_that_are_not_declared_pure_are_named(capsys):
    qd.init(arch=qd.cpu, print_non_pure=True)

    @qd.kernel
    def plain():
        pass

    @qd.kernel(fastcache=True)
    def declared():
        pass

    plain()
    declared()
    plain()
    assert capsys.readouterr().out == "[NOT_PURE] Debug information: not pure: plain\n"


@pytest.mark.on_cpu
def test_options_write_code_to_files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    qd.init(
        arch=qd.cpu,
        print_kernel_llvm_ir=True,
        print_kernel_llvm_ir_optimized=True,
        print_kernel_asm=True,
        debug_dump_path=str(tmp_path / "stages"),
    )

    @qd.kernel
    def three() -> qd.i32:
        return 3

    assert three() == 3
    names = sorted(path.name.rsplit("_", 1)[0] for path in tmp_path.glob("*.*"))
    assert names == [
        "quadrants_kernel_cpu_llvm_ir_optimized",
        "quadrants_kernel_cpu_llvm_ir_optimized_asm",
        "quadrants_kernel_generic_llvm_ir",
    ]
    assert all("ret" in path.read_text() for path in tmp_path.glob("*.*"))
    monkeypatch.setenv("QD_DUMP_IR", "1")

    @qd.kernel
    def four() -> qd.i32:
        return 4

    assert four() == 4
    stages = sorted(path.suffix for path in (tmp_path / "stages").glob("four_*"))
    assert stages == [".ll", ".ll", ".oir", ".schedule"]


def test_unsupported_quadrants_variables_are_reported():
    code = """
        import octants as qd
        qd.init(arch=qd.cpu)
        print("started")
        """
    found = run(code, {"QD_DUMP_CFG": "1", "QD_LOAD_IR": "0"})
    assert "QD_DUMP_CFG has no effect here" in found.stdout + found.stderr
    assert "started" in found.stdout
    found = run(code, {"QD_LOAD_IR": "1"})
    assert found.returncode
    assert "running kernels from code files is not supported" in found.stderr
    assert "started" not in found.stdout


def test_quadrants_variables_set_options():
    code = """
        import octants as qd
        qd.init(**OPTIONS)
        print(qd.cfg.debug, qd.cfg.default_fp, qd.cfg.offline_cache, qd.cfg.arch == qd.cpu)
        """
    env = {"QD_DEBUG": "1", "QD_DEFAULT_FP": "64", "QD_OFFLINE_CACHE": "0", "QD_ARCH": "x64"}
    found = run(code.replace("OPTIONS", "{}"), env)
    assert found.stdout.split("\n")[-2] == "True f64 False True", found
    found = run(code.replace("OPTIONS", "dict(arch=qd.cpu)"), {**env, "QD_ARCH": "cuda"})
    assert found.stdout.split("\n")[-2] == "True f64 False True", found
    assert "overrides that of the environment, cuda" in found.stdout + found.stderr
    found = run(code.replace("OPTIONS", "dict(arch=qd.cpu, debug=False)"), {**env, "OCTANTS_DEFAULT_FP": "f16"})
    assert found.stdout.split("\n")[-2] == "False f16 False True", found
    found = run(code.replace("OPTIONS", "dict(arch=qd.cpu)"), {"QD_DEBUG": "perhaps"})
    assert "QD_DEBUG" in found.stderr
    assert found.returncode


def test_installed_programs_find_octants_in_child_processes_too(tmp_path):
    venv.create(tmp_path / "env", symlinks=True)
    python = str(tmp_path / "env" / "bin" / "python")
    packages = [str(Path(qd.__file__).parent.parent), str(Path(np.__file__).parent.parent)]
    env = {"PYTHONPATH": os.pathsep.join(packages)}
    code = """
        import multiprocessing, subprocess, sys
        import quadrants as qd
        import quadrants.types
        print(qd.__name__, quadrants.types.__name__)
        subprocess.run([sys.executable, "-c", "import quadrants; print(quadrants.__name__)"], check=True)
        """
    assert run(code, env, python=python).returncode
    command = [python, "-m", "octants.as_quadrants"]
    environment = os.environ | env
    subprocess.run([*command, "--install"], check=True, env=environment, capture_output=True)
    found = run(code, env, python=python)
    assert sorted(found.stdout.split()) == ["octants", "octants", "octants.types"], found
    start = run("import sys; print('octants' in sys.modules, 'numpy' in sys.modules)", env, python=python)
    assert start.stdout == "False False\n", "a start of Python must not pay for the package"
    removed = subprocess.run([*command, "--uninstall"], check=True, env=environment, capture_output=True, text=True)
    assert removed.stdout.startswith("removed ")
    assert run(code, env, python=python).returncode


def test_queries_about_the_running_program():
    from octants.lang import impl
    from octants.lang._fast_caching import FIELD_METADATA_CACHE_VALUE

    assert FIELD_METADATA_CACHE_VALUE
    runtime = impl.get_runtime()
    before = runtime.prog.get_total_compilation_time()
    a, b = qd.ndarray(qd.f32, 4), qd.Vector.ndarray(2, qd.f32, 4)
    assert runtime.prog._get_num_ndarrays() == 2
    assert {id(x) for x in runtime.ndarrays} == {id(a), id(b)}
    del a
    assert len(runtime.ndarrays) == 1

    @qd.kernel
    def nothing():
        pass

    nothing()
    assert runtime.prog.get_total_compilation_time() > before


def test_a_tensor_is_given_a_layout_afterwards():
    from octants._tensor import _with_layout

    t = qd.tensor(qd.i32, shape=(4, 3), needs_grad=False)
    t.from_numpy(np.arange(12).reshape(4, 3))
    memory = t.to_numpy()
    assert _with_layout(t, (1, 0)) is t
    assert (t.shape, t.layout) == ((3, 4), (1, 0))
    assert (t.to_numpy() == memory.T).all()

    @qd.kernel
    def add(x: qd.types.ndarray()):
        for i, j in qd.ndrange(3, 4):
            x[i, j] += 100

    add(t)
    assert (t.to_numpy() == memory.T + 100).all()
    for wrong in ((0,), (0, 0)):
        with pytest.raises(ValueError, match="layout"):
            _with_layout(t, wrong)
    with pytest.raises(TypeError, match="NDARRAY"):
        _with_layout(qd.field(qd.i32, 3), (0,))


def test_grids_are_written_for_viewers(tmp_path):
    values = np.arange(6, dtype=np.float32).reshape(2, 3)
    path = Path(qd.tools.write_vtk(values, str(tmp_path / "grid")))
    text = path.read_text()
    assert 'WholeExtent="0 2 0 3 0 1"' in text
    assert 'type="Float32"' in text
    with pytest.raises(ValueError, match="2- or 3-dimensional"):
        qd.tools.write_vtk(values[0], str(tmp_path / "line"))


@pytest.mark.parametrize("error", [qd.QuadrantsSyntaxError, SyntaxError, AssertionError, qd.QuadrantsRuntimeError])
def test_atomic_operations_in_python_raise_an_error_that_programs_catch(error):
    x = qd.field(qd.f32, ())
    with pytest.raises(error, match=r"qd.atomic_add\(\) can only be called in kernels") as caught:
        qd.atomic_add(x[None], 1)
    assert type(caught.value) is qd.OctantsScopeError
    assert x[None] == 0


@pytest.mark.parametrize("error", [AssertionError, IndexError, qd.QuadrantsAssertionError])
def test_indices_out_of_bounds_in_python_raise_an_error_that_programs_catch(error):
    for whole in (qd.field(qd.f32, 3), qd.ndarray(qd.f32, 3), qd.tensor(qd.f32, 3)):
        with pytest.raises(error, match="(?i)out of bound"):
            whole[3]
        with pytest.raises(error, match="(?i)out of bound"):
            whole[-1] = 2.0
        assert not whole.to_numpy().any()


@pytest.mark.parametrize("backend", qd.Backend)
def test_the_gradient_of_a_tensor_is_one_object(backend):
    x = qd.tensor(qd.f32, 3, backend=backend, needs_grad=True)
    assert x.grad is x.grad
    x.grad[1] = 2.0
    assert x._unwrap().grad[1] == 2.0
