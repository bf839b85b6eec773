"""Handwritten versions of two examples on several ranks, with CuPy's kernels and torch's NCCL.

    torchrun --nproc-per-node 2 benches/distributed_by_hand.py --program heat_3d --size 512 --steps 200

Prints what the examples print. The border is computed first and sent while the inner rows are computed.
"""

from __future__ import annotations

import argparse
import os
import time

import cupy
import torch
import torch.distributed as ranks

SOURCE = r"""
extern "C" __global__ void heat(const float* u, float* v, int first, int end, int m) {
    int k = blockIdx.x * blockDim.x + threadIdx.x, j = blockIdx.y * blockDim.y + threadIdx.y;
    int i = first + blockIdx.z;
    if (i >= end || j < 1 || j >= m - 1 || k < 1 || k >= m - 1) return;
    long long row = (long long)m * m, at = i * row + (long long)j * m + k;
    float around = u[at - row] + u[at + row] + u[at - m] + u[at + m];
    around += u[at - 1] + u[at + 1];
    v[at] = u[at] + 0.1f * (around - 6.0f * u[at]);
}

extern "C" __global__ void sweep(const float* u, float* v, int first, int end, int m, float* residual) {
    int k = blockIdx.x * blockDim.x + threadIdx.x, i = first + blockIdx.z * blockDim.y + threadIdx.y;
    float change = 0.0f;
    if (i < end && k >= 1 && k < m - 1) {
        long long at = (long long)i * m + k;
        float value = 0.25f * (u[at - m] + u[at + m] + u[at - 1] + u[at + 1]);
        change = (value - u[at]) * (value - u[at]);
        v[at] = value;
    }
    if (residual == nullptr) return;
    for (int step = 16; step > 0; step /= 2) change += __shfl_down_sync(0xffffffff, change, step);
    __shared__ float parts[8];
    int thread = threadIdx.y * blockDim.x + threadIdx.x;
    if (thread % 32 == 0) parts[thread / 32] = change;
    __syncthreads();
    if (thread == 0) {
        for (int warp = 1; warp < 8; ++warp) change += parts[warp];
        atomicAdd(residual, change);
    }
}
"""


class Slab:
    """A rank's rows of a field, with a ghost row on each side."""

    def __init__(self, rows: int, shape: tuple[int, ...], periodic: bool) -> None:
        rank, size = ranks.get_rank(), ranks.get_world_size()
        self.u = torch.rand((rows + 2, *shape), device="cuda")
        self.periodic = periodic
        self.before = (rank - 1) % size if rank > 0 or periodic else None
        self.after = (rank + 1) % size if rank + 1 < size or periodic else None
        self.alone = size == 1

    def exchange(self) -> list:
        """Starts to fill the ghost rows."""
        u = self.u
        if self.alone:
            if self.periodic:
                u[0].copy_(u[-2])
                u[-1].copy_(u[1])
            return []
        operations = []
        if self.after is not None:
            operations += [ranks.P2POp(ranks.isend, u[-2], self.after)]
        if self.before is not None:
            operations += [ranks.P2POp(ranks.irecv, u[0], self.before), ranks.P2POp(ranks.isend, u[1], self.before)]
        if self.after is not None:
            operations += [ranks.P2POp(ranks.irecv, u[-1], self.after)]
        return ranks.batch_isend_irecv(operations)


def main() -> None:
    """Prints the speed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", choices=["heat_3d", "jacobi"], default="heat_3d")
    parser.add_argument("--size", type=int, default=512)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--weak", action="store_true")
    args = parser.parse_args()
    torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    here = "tcp://127.0.0.1:0"
    alone = {} if "RANK" in os.environ else {"rank": 0, "world_size": 1, "init_method": here}
    ranks.init_process_group("nccl", device_id=torch.device("cuda", torch.cuda.current_device()), **alone)
    size, m = ranks.get_world_size(), args.size
    rows = m if args.weak else m // size
    module = cupy.RawModule(code=SOURCE, options=("--std=c++17",))
    heat, sweep = module.get_function("heat"), module.get_function("sweep")
    three_axes = args.program == "heat_3d"
    old, new = (Slab(rows, (m, m) if three_axes else (m,), not three_axes) for _ in range(2))
    residual = torch.zeros(1, device="cuda")

    def compute(a: Slab, b: Slab, first: int, end: int, into: int) -> None:
        pointers = a.u.data_ptr(), b.u.data_ptr(), first, end, m
        with cupy.cuda.ExternalStream(torch.cuda.current_stream().cuda_stream):
            if three_axes:
                heat((-(-m // 64), -(-m // 4), end - first), (64, 4, 1), pointers)
            else:
                sweep((-(-m // 64), 1, -(-(end - first) // 4)), (64, 4, 1), (*pointers, into))

    def half(a: Slab, b: Slab, measures: bool) -> None:
        into = residual.data_ptr() if measures else 0
        if measures:
            residual.zero_()
        if size == 1:
            compute(a, b, 1, rows + 1, into)
            b.exchange()
            return
        compute(a, b, 1, 2, into)
        compute(a, b, rows, rows + 1, into)
        works = b.exchange()
        compute(a, b, 2, rows, into)
        for work in works:
            work.wait()
        if measures:
            ranks.all_reduce(residual)

    def step() -> None:
        half(old, new, False)
        half(new, old, not three_axes)

    for _ in range(10):
        step()
    torch.cuda.synchronize()
    ranks.barrier()
    began = time.perf_counter()
    for _ in range(args.steps):
        step()
    torch.cuda.synchronize()
    ranks.barrier()
    seconds = time.perf_counter() - began
    updates = 2.0 * rows * size * (m * m if three_axes else m)
    if ranks.get_rank() == 0:
        speed, each = args.steps * updates / seconds / 1e9, 1e3 * seconds / args.steps
        print(f"{size} ranks: {speed:.3f} G cell updates/s, {each:.3f} ms per step")
    ranks.destroy_process_group()


if __name__ == "__main__":
    main()
