"""The extension module, on which the Python package builds. Users access it through `octants`."""

from collections.abc import Callable, Sequence
from os import PathLike
from typing import Any, final, overload

from typing_extensions import Self

from octants._code.cache_observations import CacheObservations, FastcacheObservations
from octants.graph import GraphStatus

__version__: str

def register(package: Any) -> None:
    """Takes the classes and functions of the package that this module calls, as attributes of `package`. The first call
    counts."""

def init(options: dict[str, Any] | None = None) -> list[str]:
    """Starts a program under the given options, ending the one before. Returns the notices to log."""

def before_fork() -> None:
    """Waits for other threads' compilations, and for a limited time for their launches."""

def after_fork_in_parent() -> None:
    """Lets other threads continue."""

def after_fork_in_child() -> None:
    """In a child process: releases the parent's programs with real streams."""

def run_as_python(runner: Callable[[Any, tuple[Any, ...], dict[str, Any], bool], Any] | None) -> None:
    """Sets the function that runs kernels and functions as Python. It takes the Python function, its arguments and
    keyword arguments, and whether it is a kernel. None switches back to compilation."""

def probe_lines(asked: Callable[[str, int, bool], tuple[Any, int] | None] | None) -> None:
    """Sets the function that compilations call to get the field and element that mark a line of a file, or that a
    condition on it is false. None removes it."""

def reset(wait: bool = True) -> None:
    """Ends the program; its fields, ndarrays and compiled kernels can no longer be used. Waits for queued work, unless
    `wait` is false and the device can end it early."""

def end_process(wait: bool) -> None:
    """Ends the program with the process. Does not wait for queued work if `wait` is false, or if the user has
    interrupted a wait for it."""

def sync() -> None:
    """Waits until everything launched before is done."""

def subgroup_size() -> int:
    """The number of threads of a subgroup of the running program's device; zero without a program."""

def max_shared_bytes() -> int:
    """The maximum number of bytes of shared memory for the arrays of a block on the running program's device."""

def clock_hz() -> float | None:
    """Nominal rate of the clock that code of the current program's device reads, in hertz, if known."""

def device_processor() -> str | None:
    """The target processor of the current program's device; `None` for the host's processor."""

def last_task_count() -> int:
    """The number of tasks of this thread's last launch of a user's kernel."""

def compiled_count() -> int:
    """The number of kernel specializations that the current program has compiled."""

def is_initialized() -> bool:
    """Whether `init` was called (and `reset` was not)."""

def generation() -> int:
    """Counts `init` and `reset`."""

def requested_arch() -> str | None:
    """The `arch` that the environment requests, if any."""

def program_serial() -> int:
    """The serial number of this thread's current program, which is never reused; 0 without a program."""

def program_serials() -> list[int]:
    """The serial numbers of all running programs; the one of `init` is first."""

def config() -> dict[str, Any]:
    """The current options of the current device, by name."""

def set_option(name: str, value: Any) -> None:
    """Changes an option of the current program for later compilations and launches."""

def options() -> list[tuple[str, str]]:
    """Name and one line of documentation of every option."""

def cache_counts() -> dict[str, Any] | None:
    """The folder of the current program's disk cache, and the numbers of hits and stored entries; None without a
    cache."""

def cache_examine(folder: str | PathLike[str] | None = None) -> dict[str, Any]:
    """Reads and checks every entry of a folder of compiled kernels."""

def cache_clear(folder: str | PathLike[str] | None = None) -> tuple[int, int]:
    """Removes every compiled kernel of a folder. Returns their number and size in bytes."""

def create_stream(priority: int = 0, device: Device | str | None = None) -> Stream:
    """Creates a stream, on the current device by default. Streams of a higher priority run first if the device supports
    priorities."""

def create_event(timing: bool = False, device: Device | str | None = None) -> Event:
    """Creates an event, on the current device by default. Only events with `timing` can measure elapsed times."""

def open_device(name: str, options: dict[str, Any] | None = None) -> Device:
    """Opens the device of a name such as `cuda:1`, or returns it if it is open. `options` override those of `init`."""

def set_device_group(serials: list[int]) -> None:
    """Makes these programs, the default one first, the devices of launches on split arrays. With fewer than two, there
    is no such group."""

def device_group() -> list[int]:
    """The programs of the group that the current program leads; empty if it leads none."""

def buffer_at(serial: int, address: int) -> tuple[Buffer, int]:
    """The memory of a program that contains an address, and the offset of the address in it."""

@final
class PeerExchange:
    """Copies between the devices of the group that launches make again and again."""

    def __init__(self, copies: list[tuple[tuple[int, Buffer, int], tuple[int, Buffer, int], int]]) -> None:
        """`copies`: destination and source (device, memory, first byte), and the number of bytes."""

    def begin(self, streams: list[Stream]) -> None:
        """Begins the copies, after the work queued on these streams, one of each device."""

    def finish(self, streams: list[Stream]) -> None:
        """Makes later work on these streams come after the copies."""

def current_device() -> Device:
    """The device of this thread."""

def device_of(serial: int) -> Device:
    """The device of the program with this number."""

def on_program(serial: int) -> ProgramScope:
    """The scope of the device of the program with this number. Has no effect on a thread that is already in it."""

def stream_scope(stream: Any) -> StreamScope:
    """Makes a stream this thread's current one for the length of a `with` block."""

def set_autodiff_scope(
    kind: str | None, record: Callable[[RecordedLaunch, tuple[Any, ...]], None] | None = None, validation: bool = False
) -> None:
    """Makes this thread's launches be differentiated ("forward") or passed to `record` ("record"); None ends that."""

def in_autodiff_scope() -> bool:
    """Whether this thread's launches are differentiated or recorded."""

def default_stream() -> Stream:
    """The default stream, on which kernels run unless another one is named."""

def current_stream() -> Stream:
    """The stream of the innermost `stream_scope` of this thread; else the default stream."""

def request_concurrency(concurrent: bool | None) -> bool | None:
    """Sets whether this thread's launches on the default stream run concurrently if they can; `None` leaves it to the
    program. Returns the previous setting."""

def request_fusion(fuses: bool) -> bool:
    """Sets whether this thread's repeated launches are fused even if the program's option does not enable it. Returns
    the previous setting."""

def take_decisions() -> tuple[
    list[tuple[int, str, int | None, list[tuple[int, str]], list[str], int | None]],
    int,
    list[tuple[list[str], list[str], str]],
]:
    """The decisions about concurrent launches since the last call: number, kernel, lane, the launches waited for with
    the name of the buffer, for each of these the elements in which they meet, and the replay that it is part of. Also
    the number of rounds that the program has launched as graphs. Also the fused kernels, the temporaries that are no
    longer stored, and the reason why the last kernel was not fused."""

def collect_races() -> None:
    """Collects races from the next `init` on, instead of raising errors."""

def checks_host_accesses() -> bool:
    """Whether race checks need to know the host's accesses to memory of some program."""

def report_host_access(ranges: Sequence[tuple[int, int]], write: bool) -> None:
    """Checks an access of the host to ranges of addresses for races with queued work."""

def take_races() -> list[Any]:
    """The races that were collected since the last call, each as `octants._streams.races.race_of` takes it."""

def stream_pool_stats() -> dict[str, int]:
    """Counters of the stream pool for groups of kernels: created, in_use, idle, reused."""

def trim_stream_pool() -> None:
    """Releases the pool's idle streams."""

def queueing_stream(qd_stream: Any = None) -> Stream | None:
    """The stream for work that replaces a kernel: the one given, or that of a scope. None if there is neither, or if
    the device executes immediately."""

def default_stream_after(buffers: Sequence[Buffer]) -> Stream:
    """The default stream, ordered after all work that uses these buffers: for work that a device does in place of the
    host."""

def end_host_work() -> None:
    """Call this after queuing such work: all later launches, on any stream, run after it."""

def capturing() -> bool:
    """Whether this thread records its launches for a graph."""

def uncaptured(function: Callable[[], Any]) -> Any:
    """Calls a function as if this thread captured nothing."""

@final
class CapturedGraph:
    """Recorded launches, during or after the capture."""

    def __init__(self) -> None: ...
    @property
    def serial(self) -> int:
        """The number of its program."""

    def begin(self) -> None:
        """Starts recording this thread's launches here."""

    def end(self) -> None:
        """Ends the recording that `begin` started, on the same thread."""

    def finish(self) -> None:
        """Makes a graph from the recorded steps."""

    def launch(self, stream: Any = None) -> None:
        """Launches the graph on a stream, by default the current one."""

    def add_foreign(self, handle: int, holder: Any, stream: Any = None) -> None:
        """Records a graph of another library, by its handle, on a stream, and keeps its owner alive."""

    def add_host_step(
        self, name: str, collective: str | None, function: Callable[[Stream], Any], stream: Any = None
    ) -> None:
        """Records a step that calls a function with the stream of the graph's launch, at each launch. `collective` is
        what all ranks do together there."""

    def exchange_host_step(
        self, step: int, name: str, collective: str | None, function: Callable[[Stream], Any]
    ) -> None:
        """Replaces a step that `add_host_step` recorded."""

    def collectives(self) -> list[str]:
        """What all ranks do together at the host's steps, in order."""

    def noted_steps(self) -> int:
        """The number of steps recorded so far, by all threads."""

    def owns(self, buffer: Buffer) -> bool:
        """Whether memory was allocated in the capture."""
    def saves_counters(self) -> bool:
        """Whether the graph saves counters of loops for its gradient."""
    def launch_gradient(self, call: int, order: GradientOrder) -> None:
        """Records the gradient of a call in this thread's capture, ordered with those of a gradient order."""

    def calls(self) -> list[tuple[Kernel, list[str], tuple[Any, ...], int]]:
        """The recorded calls: kernel, parameter names, arguments, and step."""

    def exchange(self, calls: list[tuple[int, tuple[Any, ...]]]) -> list[bool]:
        """Repeats recorded calls with other arguments, for later launches: all of them, or none if one fails. True for
        those that launch the same code."""

    def save(self, named: list[tuple[str, str, Buffer]]) -> bytes:
        """The graph as bytes, for other processes. Its steps use named memory, each with a textual description, or
        memory that the graph owns."""

    @staticmethod
    def load(saved: bytes, find: Callable[[list[tuple[str, str]]], list[tuple[str, Buffer, Any]]]) -> CapturedGraph:
        """The graph from bytes of `save`. `find` takes the name and the description of named memory, and returns the
        memory and the object that owns it."""

    def rebind(self, pairs: list[tuple[Buffer, Buffer, Any]]) -> None:
        """Replaces memory in the steps, and keeps the new owners alive: old, new, owner."""

    def transfers(self, buffer: Buffer, first: int, bytes: int) -> int:
        """How many fills and copies begin in `bytes` of a buffer, from byte `first` on."""

    def move_transfers(self, parts: list[tuple[tuple[Buffer, int], tuple[Buffer, int], int, Any]]) -> None:
        """Lets fills and copies use other memory, and keeps the new owners alive: buffer and first byte before and
        after, the number of bytes, owner."""

    def steps(self) -> list[tuple[str, int, list[int]]]:
        """The description of each step, its lane, and the steps that it depends on."""

    @property
    def makes(self) -> int:
        """The number of times that the device built a graph from the steps."""

def before_host_work(qd_stream: Any = None) -> None:
    """Call this before host work that replaces a kernel: waits for the work queued on the given stream, if there is
    one."""

def profiler_start() -> int:
    """Measures launches from now on. Returns the number of the next span."""

def profiler_stop() -> int:
    """Ends what `profiler_start` began. Returns the number of the next span."""

def profiler_spans(
    first: int, last: int
) -> tuple[list[tuple[int, int, str, str, int, float, float, list[int]]], list[int], int]:
    """The spans with these numbers by start time (number, launch, kernel, task, lane, begin, end, spans it waited for),
    the lanes (number of the stream, or negated number of the worker), and the number of dropped spans. Waits for all
    launches."""

def profiler_totals() -> list[
    tuple[str, tuple[int, float, float, float], list[tuple[str, tuple[int, float, float, float]]]]
]:
    """The sums of each kernel and of its tasks: count; total, shortest and longest in milliseconds. Waits for all
    launches."""

def profiler_clear() -> int:
    """Clears the sums, after waiting for all launches. Returns the number of the next span."""

def compilations() -> list[tuple[str, float, bool, list[tuple[str, str, float, float]]]]:
    """The compilations in order: kernel, start in seconds since the program's start, whether the code was found on
    disk, and steps: phase, name, start in seconds since the compilation's start, duration in seconds."""

def compile_phases() -> list[str]:
    """The phases of a compilation, in order."""

def clear_compilations() -> None:
    """Clears the records of `compilations`."""

def memory_info() -> dict[str, Any]:
    """The device's name, its driver software with the vendor's version string (`software`), and bytes: those in buffers
    (`in_use`) and the device's total, if known (`capacity`)."""

@final
class Stream:
    """An in-order queue of work on the device. Kernels launched on different streams may run at the same time."""

    @staticmethod
    def from_handle(handle: int) -> Stream:
        """Wraps a stream of another library, by the driver's handle. Zero is the default stream. It is never
        destroyed."""

    @property
    def handle(self) -> int:
        """The driver's handle; 0 for the default stream, without streams of its own, and after `destroy()`."""

    @property
    def _native_handle(self) -> int:
        """The driver's handle, also of the default stream."""

    @property
    def number(self) -> int:
        """Its number in the program, by which messages and profiles name it; 0 for the default stream."""

    def synchronize(self) -> None:
        """Waits until all work of the stream is done, and raises its failures."""

    def query(self) -> bool:
        """Whether all queued work is done."""

    def wait(self, event_or_stream: Any) -> None:
        """Makes later work of this stream wait for an event, or for the work queued on another stream now. Either may
        belong to another device."""

    def _note_use(self, buffer: Buffer) -> None:
        """Notes that work on this stream uses and changes an array's memory, for work that no launch queued."""

    def _fill(self, address: int, element: bytes, count: int) -> None:
        """Sets elements in the device's memory, from an address on, to copies of one. Returns when that is queued. The
        caller keeps the memory alive."""

    def _read(self, address: int, nbytes: int) -> bytearray:
        """Bytes of the device's memory, from an address on. Waits for the stream."""

    def _write(self, address: int, data: bytes) -> None:
        """Copies bytes into the device's memory, from an address on. Waits for the stream."""

    def destroy(self) -> None:
        """Waits for the stream's work and releases the stream. A second call has no effect. A wrapped stream is not
        destroyed."""

    def __cuda_stream__(self) -> tuple[int, int]:
        """The protocol by which other libraries take the stream: version and handle."""

    def __enter__(self) -> Stream: ...
    def __exit__(self, kind: Any = None, value: Any = None, traceback: Any = None) -> None: ...
    def __eq__(self, other: object) -> bool: ...
    def __hash__(self) -> int: ...

@final
class Event:
    """A point in a stream's work, for other streams or the host to wait for."""

    @property
    def handle(self) -> int:
        """The driver's handle; 0 without streams of the device's own, and after `destroy()`."""

    def record(self, qd_stream: Any = None) -> None:
        """Records the event after all work queued on the stream so far."""

    def wait(self, qd_stream: Any = None) -> None:
        """Makes later work of the stream, which may be another device's, wait for the event. Does not block the host,
        except between devices of different libraries."""

    def synchronize(self) -> None:
        """Makes the host wait for the event, and raises the failure of its stream, if any."""

    def query(self) -> bool:
        """Whether the event has completed; True if it was never recorded."""

    def elapsed_ms(self, later: Event) -> float:
        """Milliseconds from this event to a later one. Both were made with `timing=True` and recorded; waits for
        both."""

    def destroy(self) -> None:
        """Releases the event. Work that waits for it still does. A second call has no effect."""

    def __enter__(self) -> Event: ...
    def __exit__(self, *exception: object) -> None: ...

@final
class StreamScope:
    """What `stream_scope` returns."""

    def __enter__(self) -> Stream: ...
    def __exit__(self, *exception: object) -> None: ...

@final
class Device:
    """A device that this process uses. In `with device:`, kernels run there, and fields, ndarrays and streams are
    created there."""

    @property
    def name(self) -> str:
        """Its name: the kind, and the number if known, such as `cuda:1`."""

    @property
    def kind(self) -> str:
        """The name of its kind."""

    @property
    def serial(self) -> int:
        """The number of its program."""

    @property
    def alive(self) -> bool:
        """False once `init` or `reset` has ended its program."""

    def sync(self) -> None:
        """Waits for the work of this device, on all of its streams."""

    def __enter__(self) -> Device: ...
    def __exit__(self, *exception: object) -> None: ...

@final
class ProgramScope:
    """What `on_program` returns."""

    def __enter__(self) -> None: ...
    def __exit__(self, *exception: object) -> None: ...

@final
class Buffer:
    """Zeroed memory of the current program; a writable numpy buffer if the host can address it. A sparse buffer may be
    larger than the available memory if the device only allocates touched pages."""

    def __init__(self, nbytes: int, sparse: bool = False) -> None: ...
    @property
    def serial(self) -> int:
        """The number of the program whose memory it is."""

    def copy_from_device(self, source: Buffer, ranges: list[tuple[int, int, int]], stream: Stream | None) -> bool:
        """Queues copies of ranges (first byte here, first byte there, bytes) from memory of another device, on a stream
        of this one or, without one, in place of the host. Returns False if the devices cannot copy; the host must copy
        then."""

    @property
    def nbytes(self) -> int:
        """Size in bytes."""

    @property
    def ptr(self) -> int:
        """Address on the device."""

    @property
    def alive(self) -> bool:
        """Whether the program that made it still runs, and it is not retired."""

    def retire(self, reason: str) -> None:
        """Ends its use by kernels and by the host; `reason` is the message of errors. The memory is freed with the last
        kernel that was compiled for it."""

    def wait(self, write: bool = False) -> None:
        """Waits until the host may read the memory: for the streams whose work writes to it, and no others. With
        `write`, for all that use it."""

    @property
    def immediate(self) -> bool:
        """Whether the device executes work within the call."""

    @property
    def host_addressable(self) -> bool:
        """Whether the host can address the memory. Otherwise, use `read` and `write`."""

    def read(self, offset: int, nbytes: int) -> bytearray:
        """A copy of some bytes, once the work that writes to the memory is done."""

    def read_into(self, offset: int, to: Any) -> None:
        """Copies bytes into an array of the host's, once the work that writes to the memory is done."""

    def write(self, offset: int, data: Any) -> None:
        """Sets some bytes, once the work that uses the memory is done. `data` has the buffer protocol and is
        contiguous."""

    @property
    def dlpack_device(self) -> tuple[int, int]:
        """The device as DLPack names it: its kind and its number."""

    @property
    def has_foreign_addresses(self) -> bool:
        """Whether other libraries use other addresses for the memory of this device."""

    @property
    def array_protocol(self) -> str | None:
        """Name of the attribute by which Python objects show arrays in the memory of this device, if there is one."""

    def dlpack(
        self,
        place: tuple[int, Sequence[int], Sequence[int]],
        dtype_name: str,
        versioned: bool,
        stream: int | None,
    ) -> Any:
        """A DLPack capsule of an array here, which keeps the memory: byte offset, extents and strides in bytes. The
        consumer's stream, given by the driver's handle, waits for the work that uses the memory; -1 lets it wait for
        nothing."""

    def hand_over(self, stream: int | None = None) -> int | None:
        """Makes another library's stream, given by the driver's handle, wait for the work that uses the memory; without
        one, the stream that libraries use when none is named. Returns its handle, or None if the host has waited
        instead."""

    def fill(self, stream: Stream, offset: int, element: bytes, count: int) -> None:
        """Queues on a stream that `count` elements from an offset on become `element`."""

    def copy_from(self, stream: Stream, offset: int, source: Buffer, source_offset: int, nbytes: int) -> None:
        """Queues on a stream a copy from another buffer."""

    def upload(self, stream: Stream, offset: int, data: Any) -> None:
        """Queues on a stream that some bytes become those of `data`, which is read now."""

    def __len__(self) -> int: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...

class Ndarray:
    """An array of scalars, vectors or matrices in the device's memory."""

    def __new__(
        cls,
        dtype_name: str,
        element_shape: Sequence[int],
        shape: Sequence[int],
        needs_grad: bool = False,
        of: Ndarray | None = None,
        first: int = 0,
        first_row: int | None = None,
        axis: int = 0,
    ) -> Self: ...
    @property
    def _offset_in_memory(self) -> int:
        """Its offset in its memory, in bytes."""

    def _forget_ghosts(self) -> None:
        """Invalidates the ghost rows of an array that is split over ranks."""

    @property
    def buffer(self) -> Buffer:
        """Its memory."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Extents of the axes, elements not counted; None when the program that made the ndarray has ended."""

    @property
    def element_shape(self) -> tuple[int, ...]:
        """`()`, `(n,)` or `(n, m)`."""

    @property
    def dtype_name(self) -> str:
        """Name of the scalar type."""

    @property
    def needs_grad(self) -> bool:
        """Whether a gradient was requested."""

    @property
    def alive(self) -> bool:
        """Whether the program that made it still runs."""

    def check_alive(self) -> None:
        """Raises if its program has ended."""

    def _set_layout(self, order: Sequence[int]) -> None: ...

@final
class Placement:
    """The position of a component in a buffer: a byte offset, and for each axis the mixed-radix digits of an index."""

    def __new__(cls, base: int, axes: Sequence[Sequence[tuple[int, int]]]) -> Placement: ...
    @staticmethod
    def of_array(
        first: int, shape: Sequence[int], order: Sequence[int] | None, itemsize: int, components: int
    ) -> list[Placement]:
        """The components of an array without gaps, from byte `first` on. `order` lists the axes, outermost in memory
        first. The components of an element are adjacent, `itemsize` bytes each."""

    @property
    def base(self) -> int:
        """Byte offset of index zero."""

    @property
    def axes(self) -> tuple[tuple[tuple[int, int], ...], ...]:
        """For each axis its digits (extent, stride in bytes), outermost first."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Extent of each axis."""

    def relative_to(self, low: int) -> Placement:
        """The same elements in a part of the buffer that begins at byte `low`."""

    def digits_of(self, index: Sequence[int]) -> tuple[int, ...]:
        """The values of all digits of an index that counts from zero, axis by axis, outermost first."""

    def span(self, itemsize: int) -> tuple[int, int]:
        """The first byte of the component and the one past its last."""

    def gapless_range(self, itemsize: int, components: int, step: int) -> tuple[int, int] | None:
        """First byte and number of bytes, when the items fill a range without gaps. An element has `components` items,
        `step` bytes apart."""

    def __hash__(self) -> int: ...

def component_offsets(placements: Sequence[Placement], index: Sequence[int]) -> list[int]:
    """The byte offset of each component of an element; indices count from zero."""

def common_step(placements: Sequence[Placement]) -> int | None:
    """The distance in bytes from each component of an element to the next, when it is the same for all. 0 for one
    component."""

def shared_axes(
    placements: Sequence[Placement], components: tuple[int, Sequence[int]] | None = None
) -> list[tuple[int, list[int]]] | None:
    """The elements of placements of one shape as arrays of the same extents: each axis with its extent, and a stride in
    bytes for each placement. `components` is a further axis. None if the layouts divide an axis in ways that do not
    fit."""

@final
class LevelTree:
    """The levels of a tree, by number: the root is 0, the others are numbered in the order of being added."""

    def __new__(cls) -> LevelTree: ...
    def check_parent(self, parent: int, kind: str) -> None:
        """Raises when no level or place of a kind can be below another level."""

    def add_level(self, parent: int, kind: str, axes: tuple[int, ...], extents: tuple[int, ...]) -> int:
        """Adds a level below another one: axes and extents, outermost in memory first. Returns its number."""

    def add_place(self, parent: int, nbytes: int) -> int:
        """Puts a scalar of `nbytes` bytes into each cell of a level. Returns the number of its place."""

    def shape(self, level: int) -> tuple[int, ...]:
        """Number of cells along each used axis, counting the levels above."""

    def lay_out(self, kept: Sequence[int]) -> tuple[int, bool]:
        """Fixes the sizes and positions of the levels with these numbers, and of those above them. Returns the size of
        the memory in bytes, and whether it contains areas of sparse levels."""

    def cell_bytes(self, level: int) -> int:
        """Bytes of a cell of a level; 0 for places, and before the tree is laid out."""

    def offset_in_cell(self, level: int) -> int:
        """The offset of a level in a cell of the level above; 0 before the tree is laid out."""

    def placement(self, place: int) -> Placement:
        """The placement of a component."""

    def areas(self) -> list[Area]:
        """The areas of sparse levels, in the order in which they are in memory."""

    def cell_indices(self, level: int) -> list[Cells]:
        """How the indices of a level or place name the cells of the sparse levels above it, outermost first; for a
        sparse level, its own cells come last."""

@final
class Area:
    """The area of a sparse level after the data of its tree: which cells are active."""

    @property
    def level(self) -> int:
        """Number of the level."""

    @property
    def axes(self) -> int:
        """How many indices name a cell; of a dynamic level those of an element."""

    @property
    def capacity(self) -> int:
        """Cells of the level; of a dynamic level those of one list."""

    @property
    def is_list(self) -> bool:
        """Whether words of state are lengths of lists."""

    @property
    def can_be_listed(self) -> bool:
        """Whether there is room for a list of active cells."""

    @property
    def candidates(self) -> int:
        """Words of state; with a sparse level around, cells of that one."""

    @property
    def chunk(self) -> int:
        """Candidates that one thread looks at when active cells are listed."""

    @property
    def inside(self) -> tuple[int, ...]:
        """Extents of the words of state within a cell of the level around."""

    @property
    def word_inside(self) -> Cells:
        """How the number of a cell of the level around, followed by indices along `inside`, names a word of state."""

    @property
    def state(self) -> Placement:
        """The words of state by the indices of a cell or list."""

    @property
    def flat_state(self) -> Placement:
        """The words of state by their number."""

    @property
    def cells(self) -> Placement:
        """The list of active cells."""

    @property
    def counts(self) -> Placement:
        """Active cells of each chunk."""

    @property
    def starts(self) -> Placement:
        """The start of each chunk's cells in the list."""

    @property
    def count(self) -> Placement:
        """How many cells are listed."""

    @property
    def views(self) -> list[tuple[int, Placement, tuple[int, ...]]]:
        """The components in a cell that are not below another sparse level: the component's number, its placement by
        the indices of the cell and within it, and the extents within the cell."""

    @property
    def nested(self) -> list[tuple[int, tuple[tuple[int, int], ...]]]:
        """The next sparse levels within a cell: number of the level, and for each axis of its state the axis of the
        cell's index, or -1, and the words of state along it in one cell."""

@final
class Cells:
    """How the indices of a field or level name a cell of a sparse level above it."""

    @property
    def level(self) -> int:
        """Number of the sparse level."""

    def locate(self, index: Sequence[int]) -> tuple[int, int | None]:
        """For an index that counts from zero: the number of the word of state; for a dynamic level, also the number of
        the element in its list."""

@final
class HostMatrix:
    """A sparse matrix in the host's memory, of f32 or f64."""

    def __init__(self, rows: int, columns: int, dtype_name: str) -> None: ...
    @staticmethod
    def from_triplets(shape: tuple[int, int], rows: Any, columns: Any, values: Any) -> HostMatrix:
        """The sum of entries: arrays of rows and columns (i64), and of values (f32 or f64). `IndexError` for one
        outside."""

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""

    @property
    def dtype_name(self) -> str:
        """Name of the elements' type."""

    def get(self, i: int, j: int) -> float: ...
    def set(self, i: int, j: int, value: float) -> None: ...
    def add(self, other: HostMatrix) -> HostMatrix: ...
    def subtract(self, other: HostMatrix) -> HostMatrix: ...
    def multiply_elements(self, other: HostMatrix) -> HostMatrix: ...
    def multiply(self, other: HostMatrix) -> HostMatrix: ...
    def scale(self, factor: float) -> HostMatrix: ...
    def transpose(self) -> HostMatrix: ...
    def by_columns(self) -> tuple[Any, Any, Any]:
        """The start of each column's entries followed by the end, the row of each entry, and its value."""

@final
class DirectSolver:
    """Factors of a sparse matrix: "LLT", "LDLT" or "LU", ordered by "minimum_degree" or "column_minimum_degree"."""

    def __init__(self, dtype_name: str, method: str, ordering: str) -> None: ...
    def analyze(self, matrix: HostMatrix) -> str | None:
        """Analyzes the pattern of a square matrix. Returns a string with the reason if that is impossible."""

    def factorize(self, matrix: HostMatrix) -> str | None:
        """Computes the factors of a matrix with the analyzed pattern. Returns a string with the reason if there are
        none."""

    @property
    def is_analyzed(self) -> bool:
        """Whether a pattern was analyzed."""

    @property
    def is_factorized(self) -> bool:
        """Whether there are factors."""

    def solve(self, right: Any) -> None:
        """Replaces the right side of a system, an array of the solver's type, by the solution."""

def missing_sparse_library(work: str) -> str | None:
    """Why the device has no library for "products" or "solvers" of sparse matrices; `None` if it has one."""

@final
class DeviceProduct:
    """A sparse matrix by rows in the device's memory, for products by the vendor's library."""

    def __init__(
        self, shape: tuple[int, int], entries: int, arrays: tuple[Buffer, Buffer, Buffer], dtype_name: str
    ) -> None: ...
    def multiply(self, x: Buffer, y: Buffer) -> bool:
        """Queues `y = A x`. False, with nothing queued, while launches are captured into a graph."""

@final
class DeviceSolver:
    """Factors of sparse matrices of one pattern by the vendor's library: "LLT", "LDLT" or "LU"."""

    def __init__(
        self,
        extent: int,
        entries: int,
        arrays: tuple[Buffer, Buffer, Buffer],
        dtype_name: str,
        method: str,
    ) -> None: ...
    def analyze(self) -> None:
        """Orders the unknowns, and computes the pattern of the factors."""

    def factorize(self, values: Buffer) -> str | None:
        """Computes the factors of a matrix of the same pattern with these values. Returns a string with the reason if
        there are none."""

    def solve(self, right: Buffer, solution: Buffer) -> None:
        """Queues the solution for a right side."""

@final
class ElementView:
    """Scalars in a buffer as an argument of kernels: `offset` and `strides` are in bytes."""

    def __init__(
        self, buffer: Buffer, dtype_name: str, offset: int, shape: Sequence[int], strides: Sequence[int]
    ) -> None: ...

@final
class Func:
    """A function in the kernel language: the result of `@func` and `@real_func`."""

    def __init__(self, fn_: Callable[..., Any], *, requires_top_level: bool = False, real: bool = False) -> None: ...
    @property
    def fn(self) -> Callable[..., Any]:
        """The Python function."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any: ...
    def __get__(self, instance: Any, owner: Any = None) -> Any: ...
    def _update(self) -> None: ...

@final
class KernelGradient:
    """The gradient of a kernel: `kernel.grad`."""

    @property
    def kernel(self) -> Kernel:
        """The kernel."""

    def __call__(self, *args: Any, **kwargs: Any) -> None: ...

@final
class RecordedLaunch:
    """The record of a launch that a tape or a torch function keeps. Its gradient matches the launch, or raises if
    something has changed since."""

    @property
    def kernel(self) -> Any:
        """The kernel."""

    @property
    def serial(self) -> int:
        """The number of the program that made it."""

    @property
    def is_on_stream(self) -> bool:
        """Whether it was made on another stream than the default one."""

    def __call__(self, *args: Any) -> None: ...
    def precede(self, order: GradientOrder) -> None:
        """Orders the gradients of an order after the work of the launch's stream."""

    def grad(self, *args: Any, others: bool = False, order: GradientOrder | None = None) -> None:
        """Runs the gradient of the launch on its stream, ordered with those of a gradient order. The arguments are
        those of the launch, or `others` in their positions: the same memory with gradients.
        """

@final
class GradientOrder:
    """Gradients that wait only for earlier ones that use the same memory. All run after the current stream's work."""

    def join(self) -> None:
        """Orders the stream that was current at creation after all gradients."""

@final
class BoundKernel:
    """A kernel that is a method, bound to an object."""

    __name__: str
    __self__: Any
    __func__: Kernel

    @property
    def grad(self) -> KernelGradient:
        """The gradient, bound to the same object."""

    def resume(self, *args: Any, from_checkpoint: int, **kwargs: Any) -> GraphStatus:
        """Resumes from the checkpoint with this label, and skips everything before it. Raises `RuntimeError` if the
        kernel has no such checkpoint."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any: ...
    def __getattr__(self, name: str) -> Any: ...

@final
class Kernel:
    """A function that is compiled and launched: the result of `@kernel`."""

    __name__: str
    autodiff_mode: Any

    def __init__(
        self,
        fn_: Callable[..., Any],
        graph: bool = False,
        library: bool = False,
        checkpoints: bool = False,
        concurrent: bool = True,
    ) -> None: ...
    @property
    def fn(self) -> Callable[..., Any]:
        """The Python function."""

    @property
    def grad(self) -> KernelGradient:
        """The kernel's gradient: called with the kernel's arguments, it adds to the gradients of memory that the kernel
        reads."""

    def resume(self, *args: Any, from_checkpoint: int, **kwargs: Any) -> GraphStatus:
        """Resumes from the checkpoint with this label, and skips everything before it. Raises `RuntimeError` if the
        kernel has no such checkpoint."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any: ...
    @overload
    def __get__(self, instance: None, owner: Any = None) -> Kernel: ...
    @overload
    def __get__(self, instance: object, owner: Any = None) -> BoundKernel: ...
    @property
    def _primal(self) -> Kernel:
        """The kernel itself."""

    @property
    def src_ll_cache_observations(self) -> FastcacheObservations:
        """Whether the folder of compiled kernels spared the latest compilation, of a kernel with `fastcache=True`."""

    @src_ll_cache_observations.setter
    def src_ll_cache_observations(self, value: FastcacheObservations) -> None: ...
    @property
    def fe_ll_cache_observations(self) -> CacheObservations:
        """Whether the folder held the machine code of the latest compilation, of a kernel without `fastcache=True`."""

    @property
    def is_pure(self) -> bool:
        """Whether the kernel is declared to depend on its arguments only: `fastcache=True`, or `@qd.pure`."""

    def _specialization_count(self) -> int:
        """The number of specializations kept."""

    def _launch(
        self, args: tuple[Any, ...], with_gradients: Callable[[], tuple[Any, ...]]
    ) -> RecordedLaunch | None: ...
    def _declare_pure(self) -> None: ...
    def _update(self) -> None: ...

@final
class PreparedCall:
    """A kernel, or its gradient, with the arguments of a call."""

    def __init__(self, callee: Any, args: tuple[Any, ...], kwargs: dict[str, Any] | None = None) -> None: ...
    def compile(self) -> None:
        """Compiles for the call, unless it was compiled before."""

    def inspect(self) -> Inspection:
        """The kernel as the call would compile it."""

class Inspection:
    """A kernel as a call would compile it. Its code can be inspected for any machine."""

    @property
    def kernel(self) -> str:
        """Name of the kernel."""

    def emit(self, form: str, arch: str | None = None, target: str | None = None) -> tuple[bytes, str]:
        """The code in a form, for a machine named by its kind, its chip or both, and the usual ending of a file with
        it."""

def code_targets() -> list[tuple[str, list[str]]]:
    """The kinds of machines, and the supported targets of each."""

def devices() -> list[tuple[str, list[tuple[str, int | None, str | None]], str | None]]:
    """The devices of all kinds: for each kind its name, its devices (name, bytes, note), and the reason if there are
    none."""

def observe_compilations(callback: Callable[[Inspection], None] | None) -> None:
    """Calls `callback` for each kernel compiled from now on; `None` ends this."""
