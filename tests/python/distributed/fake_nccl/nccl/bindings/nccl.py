"""The functions of nccl4py that Octants calls, on host memory, by MPI. Like NCCL's, calls return at once, and a stream
waits; there are no streams here, so the end of a group waits, until `comm_abort`.
"""

import ctypes
import enum
import time

import numpy as np
from mpi4py import MPI

TYPES = "int8 uint8 int32 uint32 int64 uint64 float16 float32 float64"
DataType = enum.IntEnum("DataType", [(name.capitalize(), i) for i, name in enumerate(TYPES.split())])
RedOp = enum.IntEnum("RedOp", ["Sum", "Prod", "Max", "Min"], start=0)
OPERATIONS = [MPI.SUM, MPI.PROD, MPI.MAX, MPI.MIN]

calls = []
_group = None
_aborted = False


class NCCLError(Exception):
    """An error of the library."""


class UniqueId(bytes):
    """The identifier of a communicator."""

    def __new__(cls, contents=b"x" * 128):
        return super().__new__(cls, contents)

    from_buffer = classmethod(lambda cls, contents: cls(contents))


def get_version():
    return 23000


def get_unique_id():
    return UniqueId(b"octants " * 16)


def comm_init_rank(size, unique, rank):
    assert bytes(unique) == b"octants " * 16
    assert (size, rank) == (MPI.COMM_WORLD.size, MPI.COMM_WORLD.rank)
    calls.append("init")
    return MPI.COMM_WORLD.Dup()


def group_start():
    global _group
    _group = []


def send(address, count, dtype, peer, comm, stream):
    _group.append(comm.Isend([_array(address, count, dtype), MPI.BYTE], peer))


def recv(address, count, dtype, peer, comm, stream):
    _group.append(comm.Irecv([_array(address, count, dtype), MPI.BYTE], peer))


def group_end():
    calls.append(f"group of {len(_group)}")
    _wait(lambda: MPI.Request.Testall(_group))


def all_reduce(source, target, count, dtype, operation, comm, stream):
    assert source == target
    calls.append("all_reduce")
    values = _array(target, count, dtype)
    wide = values.astype(np.float32) if values.dtype == np.float16 else values
    _wait(comm.Iallreduce(MPI.IN_PLACE, wide, OPERATIONS[operation]).Test)
    values[:] = wide


def comm_abort(comm):
    global _aborted
    _aborted = True


def comm_destroy(comm):
    calls.append("destroy")
    comm.Free()


def _wait(has_ended):
    while not has_ended():
        if _aborted:
            raise NCCLError("aborted")
        time.sleep(1e-4)


def _array(address, count, dtype):
    kind = np.dtype(TYPES.split()[dtype])
    memory = (ctypes.c_char * (count * kind.itemsize)).from_address(address)
    return np.frombuffer(memoryview(memory), kind)
