"""A minimal other library on the device under test: it allocates memory, creates streams, captures them into graphs,
and imports and exports arrays by DLPack and by the array protocol.

On a GPU, it calls the driver's library through `ctypes`, by functions that CUDA and HIP share. It uses none of our
code, so it receives exactly what torch or CuPy would receive. On the CPU, where no other library has streams, it is
numpy.
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

import numpy as np
import pytest

import octants as qd

_P = ctypes.c_void_p
_N = ctypes.c_size_t


# DLPack's structures


class DLTensor(ctypes.Structure):
    """An array as DLPack describes it."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device", ctypes.c_int32 * 2),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


class Managed(ctypes.Structure):
    """The contents of a capsule."""

    _fields_ = (("tensor", DLTensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p))


class Versioned(ctypes.Structure):
    """The contents of a capsule since DLPack 1.0."""

    _fields_ = (
        ("version", ctypes.c_uint32 * 2),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", DLTensor),
    )


KINDS = {"i": 0, "u": 1, "f": 2, "c": 5, "b": 6}
Delete = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)


def _api(name: str, result: Any, *parameters: Any) -> Any:
    function = getattr(ctypes.pythonapi, name)
    function.restype, function.argtypes = result, parameters
    return function


_new = _api("PyCapsule_New", ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
_name_of = _api("PyCapsule_GetName", ctypes.c_char_p, ctypes.py_object)
_pointer = _api("PyCapsule_GetPointer", ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)
_rename = _api("PyCapsule_SetName", ctypes.c_int, ctypes.py_object, ctypes.c_char_p)
# A capsule keeps the address of its name.
NAMES = {Managed: b"dltensor", Versioned: b"dltensor_versioned"}
USED = b"used_dltensor"


def capsule(address: int, name: bytes) -> Any:
    """A capsule; name and memory are the caller's to keep."""
    return _new(address, name, None)


def described(address: int, array: Any, device: tuple[int, int]) -> tuple[DLTensor, Any]:
    """DLPack's description of an array with numpy's dtype, shape and byte strides; and the objects that must stay alive
    with it."""
    shape, strides = ((ctypes.c_int64 * len(values))(*values) for values in (array.shape, array.strides))
    for axis in range(len(array.shape)):
        strides[axis] //= array.dtype.itemsize
    code, bits = KINDS[array.dtype.kind], 8 * array.dtype.itemsize
    lists = [ctypes.cast(values, ctypes.POINTER(ctypes.c_int64)) for values in (shape, strides)]
    place = (ctypes.c_int32 * 2)(*device)
    # Not all in one place: readers must add the offset.
    return DLTensor(address - 4, place, len(array.shape), code, bits, 1, *lists, 4), (shape, strides)


class Taken:
    """An array that this library has taken over from a capsule."""

    def __init__(self, library: Gpu, given: Any) -> None:
        self.library = library
        name = _name_of(given)
        form = next(form for form, known in NAMES.items() if known == name)
        self._managed = form.from_address(_pointer(given, name))
        assert _rename(given, USED) == 0
        tensor = self._managed.tensor
        kind = next(kind for kind, code in KINDS.items() if code == tensor.code)
        self.dtype = np.dtype(np.bool_) if kind == "b" else np.dtype(f"{kind}{tensor.bits // 8}")
        self.device = tuple(tensor.device)
        self.shape = tuple(tensor.shape[: tensor.ndim])
        self.strides = tuple(stride * self.dtype.itemsize for stride in tensor.strides[: tensor.ndim])
        self.address = (tensor.data or 0) + tensor.byte_offset
        delete, address = Delete(self._managed.deleter), ctypes.addressof(self._managed)
        weakref.finalize(self, delete, address)

    def on(self, stream: int) -> np.ndarray[Any, Any]:
        """The elements, copied after what is queued on a stream."""
        return self.library.read(self.address, self.dtype, self.shape, self.strides, stream)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        return self.on(0).astype(dtype or self.dtype)

    def fill(self, value: Any) -> None:
        """Sets all elements."""
        self.library.write(self.address, np.full(self.shape, value, self.dtype))


class Array:
    """An array in this library's own memory, ready on a stream. Others see it by DLPack and by the array protocol."""

    def __init__(self, library: Gpu, address: int, like: np.ndarray[Any, Any], stream: int) -> None:
        self.library, self.address, self.stream = library, address, stream
        self.dtype, self.shape, self.strides = like.dtype, like.shape, like.strides
        # The streams that DLPack's consumers named.
        self.asked: list[Any] = []
        self._keeps: list[Any] = []

    def __getitem__(self, where: Any) -> Array:
        """Some of the elements, as numpy selects them."""
        whole = np.lib.stride_tricks.as_strided(np.empty(1, self.dtype), self.shape, self.strides)
        some = whole[where]
        part = Array(self.library, self.address + some.ctypes.data - whole.ctypes.data, some, self.stream)
        part._keeps.append(self)
        return part

    def on(self, stream: int) -> np.ndarray[Any, Any]:
        """The elements, copied after what is queued on a stream."""
        return self.library.read(self.address, self.dtype, self.shape, self.strides, stream)

    def set_bytes(self, byte: int, stream: int) -> None:
        """Queues that all bytes are set. The array has no gaps."""
        count = int(np.prod(self.shape)) * self.dtype.itemsize
        self.library.call("memset", _P(self.address), ctypes.c_ubyte(byte), _N(count), _P(stream))

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        place = {"data": (self.address, False), "shape": self.shape, "strides": self.strides}
        # The null stream has no handle there if it is 0, so its queued work is waited for.
        if not self.stream:
            self.library.call("synchronize", None)
        return place | {"typestr": self.dtype.str, "version": 3, "stream": self.stream or None}

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.library.device

    def __dlpack__(self, *, stream: Any = None, max_version: Any = None) -> Any:
        self.asked.append(stream)
        if stream != -1:
            self.library.order(self.stream, stream or 0)
        tensor, lists = described(self.address, self, self.library.device)
        made = Managed(tensor)
        # The caller keeps this array alive.
        self._keeps.append((made, lists))
        return capsule(ctypes.addressof(made), NAMES[Managed])


# HIP's and CUDA's names.
FUNCTIONS = {
    "allocate": ("hipMalloc", "cuMemAlloc_v2"),
    "free": ("hipFree", "cuMemFree_v2"),
    "memset": ("hipMemsetD8Async", "cuMemsetD8Async"),
    "to_device": ("hipMemcpyHtoDAsync", "cuMemcpyHtoDAsync_v2"),
    "to_host": ("hipMemcpyDtoHAsync", "cuMemcpyDtoHAsync_v2"),
    "stream_create": ("hipStreamCreateWithPriority", "cuStreamCreateWithPriority"),
    "stream_destroy": ("hipStreamDestroy", "cuStreamDestroy_v2"),
    "synchronize_all": ("hipDeviceSynchronize", "cuCtxSynchronize"),
    "synchronize": ("hipStreamSynchronize", "cuStreamSynchronize"),
    "wait": ("hipStreamWaitEvent", "cuStreamWaitEvent"),
    "event_create": ("hipEventCreateWithFlags", "cuEventCreate"),
    "event_destroy": ("hipEventDestroy", "cuEventDestroy_v2"),
    "record": ("hipEventRecord", "cuEventRecord"),
    "begin_capture": ("hipStreamBeginCapture", "cuStreamBeginCapture_v2"),
    "end_capture": ("hipStreamEndCapture", "cuStreamEndCapture"),
    "graph_instantiate": ("hipGraphInstantiateWithFlags", "cuGraphInstantiateWithFlags"),
    "graph_launch": ("hipGraphLaunch", "cuGraphLaunch"),
    "graph_destroy": ("hipGraphDestroy", "cuGraphDestroy"),
    "ready_destroy": ("hipGraphExecDestroy", "cuGraphExecDestroy"),
}


# DLPack's number of devices of Vulkan.
VULKAN = 7

# CUDA's and HIP's libraries.
DRIVERS = (["libcuda.so.1"], [f"libamdhip64.so{version}" for version in (".7", ".6", ".5", "")])


def first_of(names: list[str]) -> ctypes.CDLL:
    """The first of these libraries that is installed."""
    for name in names[:-1]:
        with suppress(OSError):
            return ctypes.CDLL(name)
    return ctypes.CDLL(names[-1])


class Stream:
    """A stream of this library's own, which shows its handle as torch's streams do."""

    def __init__(self, library: Gpu, blocking: bool) -> None:
        self.library = library
        self.cuda_stream: int = library.made("stream_create", ctypes.c_uint(0 if blocking else 1), 0)
        library.at_close.callback(self.destroy)

    @property
    def handle(self) -> int:
        """The driver's handle."""
        return self.cuda_stream

    def synchronize(self) -> None:
        """Waits for its work."""
        self.library.call("synchronize", _P(self.cuda_stream))

    def destroy(self) -> None:
        """Gives it back. Doing so twice is fine."""
        if self.cuda_stream:
            self.library.call("stream_destroy", _P(self.cuda_stream))
        self.cuda_stream = 0


class Graph:
    """The graph captured from a stream."""

    def __init__(self, library: Gpu) -> None:
        self.library, self.graph, self.ready = library, _P(), _P()

    def end(self, stream: Stream) -> None:
        """Ends the capture."""
        self.library.call("end_capture", _P(stream.handle), ctypes.byref(self.graph))
        self.library.call("graph_instantiate", ctypes.byref(self.ready), self.graph, ctypes.c_ulonglong(0))

    def launch(self, stream: int) -> None:
        """Queues all of it."""
        self.library.call("graph_launch", self.ready, _P(stream))

    def destroy(self) -> None:
        """Gives it back."""
        self.library.call("ready_destroy", self.ready)
        self.library.call("graph_destroy", self.graph)


class Gpu:
    """The library on a GPU. Streams are given by their handles; 0 is the null stream."""

    protocol = "__cuda_array_interface__"
    has_streams = True

    def __init__(self, device: tuple[int, int]) -> None:
        self.device = device
        self.is_hip = device[0] == 10
        # A library that the program has opened is found by its path, or by one of its names.
        self.driver = first_of([qd.cfg.driver_library] if qd.cfg.driver_library else DRIVERS[self.is_hip])
        # DLPack's handle for an unnamed stream.
        self.unnamed = 0 if self.is_hip else 1
        # Not when objects are collected, which could be while a stream is captured.
        self.at_close = ExitStack()
        self.context = _P()
        if not self.is_hip:
            assert self.driver.cuDevicePrimaryCtxRetain(ctypes.byref(self.context), device[1]) == 0

    @contextmanager
    def _entered(self) -> Iterator[None]:
        """On the device, which the thread leaves as it was."""
        before = ctypes.c_int()
        if self.is_hip:
            assert self.driver.hipGetDevice(ctypes.byref(before)) == 0
            assert self.driver.hipSetDevice(self.device[1]) == 0
        else:
            assert self.driver.cuCtxPushCurrent_v2(self.context) == 0
        try:
            yield
        finally:
            if self.is_hip:
                self.driver.hipSetDevice(before)
            else:
                self.driver.cuCtxPopCurrent_v2(ctypes.byref(_P()))

    def call(self, name: str, *arguments: Any) -> None:
        """Calls one of `FUNCTIONS`, which must succeed."""
        name = FUNCTIONS[name][not self.is_hip]
        with self._entered():
            code = getattr(self.driver, name)(*arguments)
        assert code == 0, f"{name} failed with code {code}"

    def made(self, name: str, *arguments: Any) -> int:
        """The value that one of `FUNCTIONS` stores through its first argument."""
        at = _P()
        self.call(name, ctypes.byref(at), *arguments)
        return at.value or 0

    def close(self) -> None:
        """Gives back memory and streams."""
        self.call("synchronize_all")
        self.at_close.close()

    def allocate(self, count: int) -> int:
        """Memory of the device."""
        return self.made("allocate", _N(count))

    def write(self, address: int, values: np.ndarray[Any, Any], stream: int = 0) -> None:
        """Writes values, row-major."""
        values = np.ascontiguousarray(values)
        self.call("to_device", _P(address), _P(values.ctypes.data), _N(values.nbytes), _P(stream))
        self.call("synchronize", _P(stream))

    def read(self, address: int, dtype: Any, shape: Any, strides: Any, stream: int) -> np.ndarray[Any, Any]:
        """Reads an array, after the work queued on a stream."""
        if 0 in shape:
            return np.empty(shape, dtype)
        count = sum((n - 1) * stride for n, stride in zip(shape, strides, strict=True)) + dtype.itemsize
        memory = np.empty(count, np.uint8)
        self.call("to_host", _P(memory.ctypes.data), _P(address), _N(count), _P(stream))
        self.call("synchronize", _P(stream))
        return np.ndarray(shape, dtype, memory, strides=strides).copy()

    def order(self, earlier: int, later: int) -> None:
        """Makes a stream wait for the work queued on another."""
        event = self.made("event_create", ctypes.c_uint(2))
        self.call("record", _P(event), _P(earlier))
        self.call("wait", _P(later), _P(event), ctypes.c_uint(0))
        self.call("event_destroy", _P(event))

    def take(self, source: Any, **keywords: Any) -> Taken:
        """The array that something offers by DLPack."""
        assert source.__dlpack_device__() == self.device
        taken = Taken(self, source.__dlpack__(**keywords))
        assert taken.device == self.device
        return taken

    def array(self, values: Any, stream: int = 0) -> Array:
        """An array of this library's own, with values that are written on a stream."""
        values = np.array(values, order="C")
        address = self.allocate(max(values.nbytes, 1))
        self.write(address, values, stream)
        self.at_close.callback(self.call, "free", _P(address))
        return Array(self, address, values, stream)

    def stream(self, blocking: bool = False) -> Stream:
        """A stream of this library; ordered with the null stream if it is `blocking`."""
        return Stream(self, blocking)

    @contextmanager
    def captured(self, stream: Stream) -> Iterator[Graph]:
        """Captures the work queued on a stream, in the strictest mode, which restricts all threads of the process."""
        graph = Graph(self)
        self.call("begin_capture", _P(stream.handle), ctypes.c_int(0))
        try:
            yield graph
        finally:
            graph.end(stream)


class Host:
    """The library on the CPU: numpy. Only Octants has streams there."""

    protocol = "__octants_array_interface__"
    has_streams = False
    device = (1, 0)

    def take(self, source: Any, **keywords: Any) -> np.ndarray[Any, Any]:
        """The array that something offers by DLPack."""
        array: np.ndarray[Any, Any] = np.from_dlpack(source)
        return array

    def close(self) -> None:
        """Nothing to release."""


def beside(array: Any) -> Gpu | Host:
    """The other library on the device of an array."""
    device = array.__dlpack_device__()
    if device[0] == VULKAN or qd.cfg.arch == qd.vulkan:
        pytest.skip("other libraries share memory with Vulkan in another way: see test_vulkan_sharing.py")
    return Host() if device == Host.device else Gpu(device)


def of_program() -> Gpu | Host:
    """The other library on the device of the program that runs."""
    return beside(qd.ndarray(qd.f32, shape=1))
