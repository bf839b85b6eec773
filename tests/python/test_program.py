"""The program around kernels: init, reset, options, logging, imports, running as Quadrants."""

import gc
import logging
import os
import subprocess
import sys
import textwrap

import numpy as np
import pytest

import octants as qd


@pytest.fixture(autouse=True)
def program():
    yield
    qd.reset()


def run(code, *, args=(), cwd=None):
    return subprocess.run([sys.executable, *args, "-c", textwrap.dedent(code)], capture_output=True, text=True, cwd=cwd)


@pytest.mark.on_cpu
def test_options_are_read_back():
    qd.reset()
    assert qd.cfg is None
    qd.init(arch=qd.cpu, default_fp=qd.f64, debug=True, cpu_max_num_threads=1)
    assert qd.cfg.arch == qd.cpu
    assert qd.cfg.default_fp is qd.f64
    assert qd.cfg.default_ip is qd.i32
    assert qd.cfg.debug is True
    assert qd.cfg.cpu_max_num_threads == 1
    with pytest.raises(AttributeError, match="no option"):
        qd.cfg.foo
    with pytest.raises(AttributeError, match=r"qd.init\(\)"):
        qd.cfg.cpu_max_num_threads = 2
    assert qd.is_extension_enabled(qd.extension.data64)
    assert not qd.is_extension_enabled(qd.extension.bls)
    assert qd.field(float, 1).dtype is qd.f64
    qd.reset()
    assert qd.cfg is None


def test_unknown_options_and_bad_values_are_refused():
    with pytest.raises(KeyError, match="did you mean `debug`"):
        qd.init(arch=qd.cpu, debgu=True)
    for kwargs in (dict(default_fp=qd.i32), dict(default_ip=qd.f32), dict(opt_level=9), dict(log_level="loud")):
        with pytest.raises(ValueError):
            qd.init(arch=qd.cpu, **kwargs)
    with pytest.raises(TypeError):
        qd.init(arch=3)


def test_compute_capability_is_that_of_nvidia_gpus():
    from octants.lang import impl

    qd.reset()
    assert impl.get_cuda_compute_capability() == 0, "no program"
    qd.init(arch=qd.cpu)
    assert (impl.get_cuda_compute_capability() >= 70) == (qd.cfg.arch == qd.cuda)


def test_gpu_falls_back_to_the_cpu_with_one_line(caplog):
    with caplog.at_level(logging.INFO, logger="octants"):
        qd.init(arch=qd.gpu)
    if qd.cfg.arch == qd.cpu:
        assert len(caplog.records) == 1
        qd.reset()
        with pytest.raises(RuntimeError):
            qd.init(arch=qd.gpu, enable_fallback=False)


@pytest.fixture
def without_garbage_collection():
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("without_garbage_collection")
def test_many_programs_leak_nothing():
    import resource

    def cycle():
        qd.init(arch=qd.cpu)
        x = qd.field(qd.f32, 1 << 20)
        x[5] = 1
        qd.ndarray(qd.f32, 1 << 20)[3] = 2
        y = qd.field(qd.f32)
        qd.root.dense(qd.i, 1 << 20).place(y)
        y[5] = 1
        assert x[5] == 1

    for _ in range(10):
        cycle()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(100):
        cycle()
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert after - before < 64 * 1024


def test_logging_levels():
    qd.init(arch=qd.cpu, log_level="error")
    assert not qd.is_logging_effective("warn")
    assert qd.is_logging_effective("error")
    qd.set_logging_level("trace")
    assert qd.is_logging_effective(qd.TRACE)
    qd.set_logging_level("info")
    with pytest.raises(ValueError, match="logging level"):
        qd.set_logging_level("loud")


def test_import_loads_neither_torch_nor_unused_modules():
    result = run(
        """
        import sys
        import octants as qd
        print([m for m in ("torch", "octants.math", "octants.algorithms", "octants._linalg") if m in sys.modules])
        assert qd.math.vec3(1, 2, 3).z == 3
        assert "svd" in dir(qd) and callable(qd.ndrange)
        """
    )
    assert (result.returncode, result.stdout.strip()) == (0, "[]"), result.stderr


def test_environment_sets_options():
    result = subprocess.run(
        [sys.executable, "-c", "import octants as qd; qd.init(qd.cpu); print(qd.cfg.default_fp, qd.cfg.debug)"],
        capture_output=True,
        text=True,
        env=os.environ | {"OCTANTS_DEFAULT_FP": "f64", "OCTANTS_DEBUG": "1"},
    )
    assert result.stdout.strip() == "f64 True", result.stderr


PROGRAM = """
import sys
import quadrants as qd
from quadrants.math import vec3
import quadrants.types

qd.init(arch=qd.cpu)
x = qd.field(qd.i32, 4)

@qd.kernel
def square():
    for i in x:
        x[i] = i * i

square()
print(__name__, sys.argv[1:], x.to_numpy().tolist(), qd.__name__, quadrants.types is qd.types, vec3(1).x)
"""


def test_a_program_for_quadrants_runs_unchanged(tmp_path):
    script = tmp_path / "program.py"
    script.write_text(PROGRAM)
    expected = "__main__ ['a', '-b'] [0, 1, 4, 9] octants True 1.0"
    for command in (["octants.as_quadrants", str(script)], ["octants.as_quadrants", "-m", "program"]):
        result = subprocess.run(
            [sys.executable, "-m", *command, "a", "-b"], capture_output=True, text=True, cwd=tmp_path
        )
        assert result.stdout.strip() == expected, result.stderr
    result = run("import octants.as_quadrants, quadrants, octants; assert quadrants is octants")
    assert result.returncode == 0, result.stderr
    result = run("import octants.as_quadrants\nimport quadrants.no_such_module")
    assert "ModuleNotFoundError" in result.stderr


def test_the_alias_comes_before_a_finder_that_finds_quadrants(tmp_path):
    # As pytest's does when an installed Quadrants brings a plugin.
    (tmp_path / "quadrants.py").write_text("")
    program = """
import octants.as_quadrants, sys
from importlib.machinery import PathFinder

class Earlier:
    find_spec = staticmethod(lambda name, path=None, target=None: PathFinder.find_spec(name, [%r]))

sys.meta_path.insert(0, Earlier())
octants.as_quadrants.install()
octants.as_quadrants.install()
import quadrants
assert quadrants is octants, quadrants
assert sum(type(finder).__module__ == "octants._quadrants_finder" for finder in sys.meta_path) == 1
"""
    result = run(program % str(tmp_path))
    assert result.returncode == 0, result.stderr


def test_scalar_types_are_classified_by_kind():
    kinds = qd.types.primitive_types
    assert qd.f16 in kinds.real_types
    assert qd.u1 in kinds.integer_types
    assert qd.f32 not in kinds.integer_types
    assert kinds.all_types == kinds.real_types | kinds.integer_types
    assert id(qd.f64) in kinds.real_type_ids
    assert id(qd.i8) in kinds.integer_type_ids


def test_data_oriented_and_plain_functions():
    qd.init(arch=qd.cpu)

    @qd.data_oriented
    class Simulation:
        def __init__(self, n):
            self.n = n
            self.x = qd.field(qd.f32, shape=n)

        @qd.kernel
        def step(self, dt: qd.f32):
            for i in range(self.n):
                self.x[i] += self.weight(i) * dt

        @qd.func
        def weight(self, i):
            return i + 1

    a, b = Simulation(3), Simulation(2)
    a.step(2)
    b.step(1)
    assert a.x.to_numpy().tolist() == [2, 4, 6]
    assert b.x.to_numpy().tolist() == [1, 2]
    with pytest.raises(qd.QuadrantsSyntaxError):
        qd.data_oriented(3)
    with pytest.raises(qd.QuadrantsTypeError):
        qd.kernel(3)


def test_kernels_see_every_layout():
    qd.init(arch=qd.cpu)
    shape = (6, 4)
    nested = qd.field(qd.i32)
    qd.root.dense(qd.j, 2).dense(qd.ij, (3, 2)).dense(qd.i, 2).place(nested)
    fields = [
        qd.field(qd.i32, shape),
        qd.field(qd.i32, shape, order="ji"),
        nested,
        qd.tensor(qd.i32, shape, layout=(1, 0)),
        qd.tensor(qd.i32, shape, layout=(1, 0), backend=qd.Backend.FIELD),
    ]

    @qd.kernel
    def write(x: qd.Tensor):
        for i, j in qd.ndrange(6, 4):
            x[i, j] = i * 10 + j

    @qd.kernel
    def add(x: qd.Tensor):
        for I in qd.grouped(x):
            x[I] += 1

    expected = np.arange(6)[:, None] * 10 + np.arange(4)
    for x in fields:
        write(x)
        np.testing.assert_array_equal(x.to_numpy(), expected)
        x[5, 3] = -1
        add(x)
        assert x[5, 3] == 0
        assert x[0, 0] == 1


def test_kernels_see_struct_fields_and_offsets():
    qd.init(arch=qd.cpu)
    particle = qd.types.struct(pos=qd.math.vec3, mass=qd.f64, alive=qd.u1)
    for layout in (qd.Layout.AOS, qd.Layout.SOA):
        particles = particle.field(shape=5, layout=layout)
        shifted = qd.Vector.field(2, qd.f32, shape=5, offset=-2, layout=layout)

        @qd.kernel
        def move():
            for i in particles:
                particles[i].pos = qd.math.vec3(i, 2 * i, 1)
                particles[i].mass = i * 0.5
                particles[i].alive = i > 2
            for i in shifted:
                shifted[i] = [i, -i]

        move()
        assert particles[3].pos.to_list() == [3, 6, 1]
        assert particles.mass.to_numpy().tolist() == [0, 0.5, 1, 1.5, 2]
        assert particles.alive.to_numpy().tolist() == [False, False, False, True, True]
        assert shifted.to_numpy().tolist() == [[i, -i] for i in range(-2, 3)]


def test_fill_and_constants_in_kernels():
    qd.init(arch=qd.cpu)
    x, v = qd.field(qd.i32, (2, 3)), qd.Vector.field(2, qd.f32, 4)
    constant = qd.Vector([1, 2])

    @qd.kernel
    def fill(value: qd.i32):
        x.fill(value)
        v.fill(constant)

    fill(7)
    assert (x.to_numpy() == 7).all()
    assert v.to_numpy().tolist() == [[1, 2]] * 4

    @qd.kernel
    def build(a: qd.math.vec2) -> qd.math.mat2:
        return (
            qd.Matrix.cols([a, 2 * a]) + qd.Matrix.rows([a, a]) + qd.Matrix.diag(2, a.x) + qd.Matrix.identity(qd.f32, 2)
        )

    assert build(qd.math.vec2(3, 5)).to_list() == [[3 + 3 + 3 + 1, 6 + 5], [5 + 3, 10 + 5 + 3 + 1]]


def test_debug_mode_always_checks_bounds():
    qd.init(arch=qd.cpu, debug=True, check_out_of_bound=False)
    assert qd.cfg.check_out_of_bound
    x = qd.field(qd.i32, 4)

    @qd.kernel
    def write(i: qd.i32):
        x[i] = 1

    with pytest.raises(qd.OctantsAssertionError, match=r"\[4\] with bounds \[4\]"):
        write(4)
    qd.init(arch=qd.cpu)
    assert not qd.cfg.check_out_of_bound
    qd.cfg.debug = True
    assert qd.cfg.check_out_of_bound


def test_unknown_architectures_are_refused_by_name():
    for arch in ("opengl", ""):
        with pytest.raises(ValueError, match=f"`{arch}` is not one of cpu, x64, arm64, gpu, cuda"):
            qd.init(arch=arch)
    for arch in ([qd.cuda, "opengl"], []):
        with pytest.raises(ValueError, match="a list of architectures must name some of .*cuda"):
            qd.init(arch=arch)
    with pytest.raises(TypeError, match="got 5"):
        qd.init(arch=[5])
    qd.init(arch=qd.cpu)
    with pytest.raises(ValueError, match="`opengl` is not one of"):
        qd.cfg.arch = "opengl"
    assert not qd.lang.misc.is_arch_supported("opengl")
    code = "import octants as qd; qd.init()"
    for variable in ("OCTANTS_ARCH", "QD_ARCH"):
        env = {**os.environ, variable: "opengl"}
        found = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True)
        assert f"option `{variable}`: `opengl` is not one of cpu" in found.stderr
        assert "KeyError" not in found.stderr


def test_of_a_list_of_architectures_the_first_available_one_is_used():
    for arches, expected in (([qd.cpu, qd.cuda], qd.cpu), ([qd.metal, qd.cpu], qd.cpu), ([qd.cpu], qd.cpu)):
        qd.init(arch=arches, log_level="error")
        assert qd.cfg.arch == expected
