"""Memory that Vulkan shares with CUDA's libraries on the same GPU: on Mesa's lavapipe, with a stand-in for CUDA's
library that maps the exported memory. Lavapipe exports no semaphores, so the host waits between the two.
"""

from pathlib import Path

import cuda_standin
import pytest

START = """
import ctypes
import gc
import os

import numpy as np
from other_library import Taken

import octants as qd

standin = ctypes.CDLL(os.environ["CUDA_STANDIN"])
standin.standin_add.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_float]
qd.init(arch=qd.vulkan, enable_fallback=False, offline_cache=False)


def taken(array, **keywords):
    return Taken(None, array.__dlpack__(**keywords))


def seen(tensor):
    # What is in the memory right now, as the other library sees it.
    count = int(np.prod(tensor.shape))
    floats = np.ctypeslib.as_array((ctypes.c_float * count).from_address(tensor.address))
    return floats.reshape(tensor.shape)


def queue_addition(tensor, value):
    assert standin.standin_add(tensor.address, int(np.prod(tensor.shape)), value) == 0


class Shown:
    # Another library's array at an address, or one that it has taken from us.

    def __init__(self, array):
        self.__dlpack__, self.__dlpack_device__ = array.__dlpack__, array.__dlpack_device__


@qd.kernel
def add(x: qd.types.ndarray(dtype=qd.f32, ndim=1), value: qd.f32, rounds: qd.i32):
    for i in x:
        sum = 0.0
        for k in range(rounds):
            sum += qd.sin(sum + k)
        x[i] += value + 0.0 * sum
"""


def run(folder, program, **options):
    return cuda_standin.run(folder, START + program, **options)


def test_both_see_the_same_bytes(tmp_path):
    run(
        tmp_path,
        """
small, x, field = qd.ndarray(qd.f32, shape=3), qd.ndarray(qd.f32, shape=1000), qd.Vector.field(2, qd.f32, shape=5)
x.fill(2.0)
for array, shape in (small, (3,)), (x, (1000,)), (field, (5, 2)):
    assert array.__dlpack_device__() == (2, 1)
    tensor = taken(array, stream=1)
    assert tensor.device == (2, 1) and tensor.shape == shape
    seen(tensor)[...] = np.arange(np.prod(shape)).reshape(shape)
    assert np.array_equal(array.to_numpy(), seen(tensor))
    array.fill(4.0)
    qd.sync()
    assert (seen(tensor) == 4.0).all()
# Large arrays are in memory of their own.
large = qd.ndarray(qd.f32, shape=1 << 25)
tensor = taken(large, stream=1)
seen(tensor)[-1] = 5.0
assert large[(1 << 25) - 1] == 5.0
""",
    )


def test_work_on_both_sides_runs_in_program_order(tmp_path):
    run(
        tmp_path,
        """
x = qd.ndarray(qd.f32, shape=4096)
tensor = taken(x, stream=1)
for number in range(1, 20):
    # The stand-in adds when something waits for its stream, so the launch must.
    queue_addition(tensor, 1.0)
    add(x, float(2 * number), 500)
    # Nothing waits here but the launch: later work of the other library must run after it.
    total = number + number * (number + 1)
    assert (seen(tensor) == total).all(), (number, seen(tensor)[:3])
queue_addition(tensor, 1.0)
assert x[7] == 400.0
queue_addition(tensor, 1.0)
assert (x.to_numpy() == 401.0).all()
""",
    )


def test_an_import_waits_for_work_of_all_streams(tmp_path):
    run(
        tmp_path,
        """
x, stream = qd.ndarray(qd.f32, shape=4096), qd.create_stream()
add(x, 1.0, 2000, qd_stream=stream)
tensor = taken(x, stream=1)
assert (seen(tensor) == 1.0).all()

# A stream is ordered with the other library through the default stream.
queue_addition(tensor, 1.0)
event = qd.create_event()
event.record()
stream.wait(event)
add(x, 1.0, 2000, qd_stream=stream)
qd.default_stream().wait(stream)
assert (seen(tensor) == 3.0).all()


@qd.kernel
def halves(x: qd.types.ndarray(dtype=qd.f32, ndim=1)):
    with qd.stream_parallel():
        for i in range(2048):
            x[i] += 1.0
    with qd.stream_parallel():
        for i in range(2048, 4096):
            x[i] += 1.0


for number in range(5):
    queue_addition(tensor, 1.0)
    halves(x)
    assert (seen(tensor) == 5.0 + 2 * number).all(), number
""",
    )


# A library with memory of its own, under the name of one that is known.
LIBRARY = """
import sys
import types

from other_library import NAMES, Managed, capsule, described

cupy = types.ModuleType("cupy")


class Array:
    def __init__(self, values, library=cupy):
        self.values = np.ascontiguousarray(values, np.float32)
        self.shape, self.strides, self.dtype = values.shape, self.values.strides, self.values.dtype

    def __dlpack_device__(self):
        return (2, 1)

    def __dlpack__(self, **keywords):
        tensor, self.lists = described(self.values.ctypes.data, self, (2, 1))
        self.made = Managed(tensor)
        return capsule(ctypes.addressof(self.made), NAMES[Managed])

    def __setitem__(self, where, other):
        assert where is Ellipsis
        self.values[...] = other.values


def from_dlpack(array):
    made = Array.__new__(Array)
    made.tensor = taken(array, stream=1)
    made.values = seen(made.tensor)
    return made


cupy.ndarray, cupy.from_dlpack = Array, from_dlpack
cupy.cuda = types.SimpleNamespace(get_current_stream=lambda: types.SimpleNamespace(ptr=0))
torch = types.ModuleType("torch")


class Tensor(Array):
    requires_grad, device = False, types.SimpleNamespace(type="cuda", index=1)

    def detach(self):
        return self

    def copy_(self, other):
        self.values[...] = other.values


def tensor_from_dlpack(array):
    made = from_dlpack(array)
    made.__class__ = Tensor
    return made


torch.Tensor, torch.from_dlpack, torch.device = Tensor, tensor_from_dlpack, lambda name: name
torch.cuda = types.SimpleNamespace(current_stream=lambda device: types.SimpleNamespace(cuda_stream=0))
"""


def test_shared_memory_comes_back_as_an_argument(tmp_path):
    run(
        tmp_path,
        """
x, other = qd.ndarray(qd.f32, shape=100), qd.ndarray(qd.f32, shape=100)
add(Shown(x), 1.0, 1)
assert (x.to_numpy() == 1.0).all() and (other.to_numpy() == 0.0).all()
""",
    )


def test_arrays_of_other_libraries_are_copied_for_a_launch(tmp_path):
    run(
        tmp_path,
        LIBRARY
        + """
sys.modules["cupy"] = cupy


@qd.kernel
def scale(points: qd.types.ndarray(dtype=qd.math.vec2, ndim=1), factor: qd.types.ndarray(), by: qd.f32):
    for i in points:
        points[i] *= factor[None] * by


a = Array(np.arange(4096.0))
add(a, 1.0, 500)
assert np.array_equal(a.values, np.arange(1.0, 4097.0))
points, factor = Array(np.arange(20.0).reshape(10, 2)), Array(np.array(3.0))
for number in range(3):
    scale(points, factor, 2.0)
assert np.array_equal(points.values, np.arange(20.0).reshape(10, 2) * 216.0)
assert factor.values == 3.0

x = qd.ndarray(qd.f32, shape=4096)
x.from_numpy(np.arange(4096.0, dtype=np.float32))


@qd.kernel
def both(x: qd.types.ndarray(dtype=qd.f32, ndim=1), y: qd.types.ndarray(dtype=qd.f32, ndim=1)):
    for i in x:
        y[i] += x[i]


both(x, a)
assert np.array_equal(a.values, 2 * np.arange(4096.0) + 1)
# Two copies of the same memory could not both be copied back.
try:
    both(a, a)
except ValueError as error:
    assert "memory that this device shares" in str(error) and "another argument shares its memory" in str(error), error
else:
    raise AssertionError("one of two copies was lost")

try:
    with qd.graph.capture():
        add(a, 1.0, 1)
except ValueError as error:
    assert "which a graph captures" in str(error), error
else:
    raise AssertionError("a graph would not copy")
""",
    )


def test_tensors_are_copied_on_the_device(tmp_path):
    run(
        tmp_path,
        LIBRARY
        + """
sys.modules["torch"] = torch
tensor = Tensor(np.arange(100.0))
add(tensor, 1.0, 500)
assert np.array_equal(tensor.values, np.arange(1.0, 101.0))
x, field = qd.ndarray(qd.f32, shape=100), qd.field(qd.f32, shape=(4, 25))
x.from_torch(tensor)
field.from_torch(Tensor(tensor.values.reshape(4, 25)))
assert np.array_equal(x.to_numpy(), tensor.values) and np.array_equal(field.to_numpy().ravel(), tensor.values)
shared = x.to_torch(copy=False)
shared.values[3] = -1.0
assert x[3] == -1.0
# The gradient would be lost.
tensor.requires_grad = True
try:
    add(tensor, 1.0, 1)
except Exception as error:
    assert "requires_grad" in str(error), error
else:
    raise AssertionError("a tensor with a gradient was copied")
""",
    )


def test_the_memory_of_a_copy_is_kept_for_the_next_launch(tmp_path):
    run(
        tmp_path,
        LIBRARY
        + """
sys.modules["torch"] = torch
made = []


def counted(array, make=torch.from_dlpack):
    made.append(array)
    return make(array)


torch.from_dlpack = counted
streams = [0]
torch.cuda.current_stream = lambda device: types.SimpleNamespace(cuda_stream=streams[-1])
tensor, other = Tensor(np.arange(100.0)), Tensor(np.zeros(100))
for number in range(1, 6):
    add(tensor, 1.0, 100)
    add(other, 2.0, 1)
    assert np.array_equal(tensor.values, np.arange(100.0) + number) and (other.values == 2.0 * number).all()
    # The first launch of a kernel converts its arguments more than once.
    count = count if number > 1 else len(made)
assert len(made) == count, (len(made), count)

# Values that the library has stored in the meantime.
tensor.values[:] = 7.0
add(tensor, 1.0, 1)
assert (tensor.values == 8.0).all() and len(made) == count


@qd.kernel
def both(x: qd.types.ndarray(dtype=qd.f32, ndim=1), y: qd.types.ndarray(dtype=qd.f32, ndim=1)):
    for i in x:
        y[i] += x[i]


@qd.kernel
def doubled(x: qd.types.ndarray(dtype=qd.f32, ndim=1)) -> qd.f32:
    sum = 0.0
    for i in x:
        sum += x[i] + x[i]
    return sum


both(tensor, other)
assert (other.values == 18.0).all() and (tensor.values == 8.0).all()
# An array that is read only.
assert doubled(tensor) == 1600.0
count = len(made)
both(tensor, other)
assert doubled(tensor) == 1600.0 and (other.values == 26.0).all() and len(made) == count
# Twice in one launch: each argument has a copy of its own, of which one is kept.
@qd.kernel
def product(x: qd.types.ndarray(dtype=qd.f32, ndim=1), y: qd.types.ndarray(dtype=qd.f32, ndim=1)) -> qd.f32:
    sum = 0.0
    for i in x:
        sum += x[i] * y[i]
    return sum


assert product(tensor, tensor) == 6400.0
count = len(made)
assert product(tensor, tensor) == 6400.0 and len(made) == count + 1

# On another stream, the copy may still be in use.
count = len(made)
add(tensor, 0.0, 1)
assert len(made) == count
streams.append(5)
try:
    add(tensor, 0.0, 1)
except Exception:  # the stand-in has no such stream
    pass
assert len(made) == count + 1
streams.pop()

# Another shape, and another program.
add(tensor, 0.0, 1)
count = len(made)
tensor.values, tensor.shape = tensor.values[:50], (50,)
add(tensor, 1.0, 1)
assert len(made) == count + 1 and (tensor.values == 9.0).all() and len(tensor.values) == 50
qd.init(arch=qd.vulkan, enable_fallback=False, offline_cache=False)
add(tensor, 1.0, 1)
assert len(made) > count + 1 and (tensor.values == 10.0).all()

# The copy is freed with the array.
import weakref
copies = [weakref.ref(array) for array in made]
made.clear()
gc.collect()
assert sum(copy() is not None for copy in copies) == 1
del tensor
gc.collect()
assert all(copy() is None for copy in copies)
# Large copies are not kept.
large = Tensor(np.zeros(5_000_000))
for number in range(3):
    count = len(made)
    add(large, 1.0, 0)
    assert len(made) == count + 1
assert (large.values == 3.0).all()
""",
    )


def test_arrays_of_an_unknown_library_are_refused(tmp_path):
    run(
        tmp_path,
        LIBRARY
        + """
try:
    add(Array(np.zeros(100)), 1.0, 1)
except ValueError as error:
    assert "shares only its own memory" in str(error) and "from_torch" in str(error), error
else:
    raise AssertionError("memory of another library was used")
""",
    )


def test_memory_lives_as_long_as_both_sides_need_it(tmp_path):
    run(
        tmp_path,
        """
x = qd.ndarray(qd.f32, shape=1 << 10)
x.fill(3.0)
tensor = taken(x, stream=1)
del x
gc.collect()
for number in range(20):
    qd.ndarray(qd.f32, shape=1 << 10).fill(float(number))
qd.sync()
assert (seen(tensor) == 3.0).all()
# It is freed after the work that the other library has queued.
queue_addition(tensor, 1.0)
seen_before = seen(tensor)
del tensor
gc.collect()
assert (seen_before == 4.0).all()

y = qd.ndarray(qd.f32, shape=1 << 10)
tensor = taken(y, stream=1)
assert standin.standin_live_imports() == standin.standin_live_mappings() == 1
qd.reset()
seen(tensor)[...] = 1.0
del tensor, y
gc.collect()
assert standin.standin_live_imports() == standin.standin_live_mappings() == 0
""",
    )


def test_sharing_ends_with_the_memory(tmp_path):
    run(
        tmp_path,
        """
x, y = qd.ndarray(qd.f32, shape=10), qd.ndarray(qd.f32, shape=10)
address = taken(x, stream=1).address
assert standin.standin_add(address, 10, 1.0) == 0
add(y, 1.0, 1)
assert x[0] == 1.0  # the launch has waited, although it uses other memory
del x
gc.collect()
z = qd.ndarray(qd.f32, shape=10)
qd.sync()
assert standin.standin_add(address, 10, 1.0) == 0
add(y, 1.0, 1)
first = (ctypes.c_float * 10).from_address(address)[0]
qd.sync()
assert (y.to_numpy() == 2.0).all()
assert (ctypes.c_float * 10).from_address(address)[0] == first, "a launch waits although nothing is shared"
""",
    )


def test_without_the_same_gpu_nothing_is_shared(tmp_path):
    run(
        tmp_path,
        """
x = qd.ndarray(qd.f32, shape=10)
assert x.__dlpack_device__() == (7, 0)
add(Shown(x), 1.0, 1)
assert (x.to_numpy() == 1.0).all()
assert standin.standin_has_context() == standin.standin_live_imports() == 0
""",
        knows_device=False,
    )


def test_a_context_is_created_by_the_first_import_only(tmp_path):
    run(
        tmp_path,
        """
x = qd.ndarray(qd.f32, shape=10)
assert x.__dlpack_device__() == (2, 1)
assert standin.standin_has_context() == 0
tensor = taken(x, stream=1)
assert standin.standin_has_context() == 1
""",
    )


def test_validation_layers_report_nothing(tmp_path):
    if not any(Path("/usr/share/vulkan/explicit_layer.d").glob("VkLayer_khronos_validation.json")):
        pytest.skip("Khronos' validation layers (package vulkan-validationlayers) are not installed")
    printed = run(
        tmp_path,
        """
x, stream = qd.ndarray(qd.f32, shape=4096), qd.create_stream()
add(x, 1.0, 10, qd_stream=stream)
tensor = taken(x, stream=1)
for number in range(3):
    queue_addition(tensor, 1.0)
    add(x, 1.0, 10)
qd.default_stream().wait(stream)
assert x[5] == 7.0
x = tensor = None
gc.collect()
qd.reset()
""",
        VK_INSTANCE_LAYERS="VK_LAYER_KHRONOS_validation",
        VK_LOADER_DEBUG="layer",
    )
    assert 'Inserted device layer "VK_LAYER_KHRONOS_validation"' in printed, "the layer was not loaded"
    told = [line for line in printed.splitlines() if "VUID" in line]
    assert not told, told
