"""Trains a model with DDP on environments that are split over ranks: `torchrun --nproc-per-node 2 ddp_program.py FILE`.

The environments are rows of a split array. A second parameter is trained with the gradient of a kernel. Rank 0 writes
the trained parameters to FILE.
"""

import os
import sys

import numpy as np
import torch

import octants as qd

N, STEPS = 24, 5


@qd.kernel
def advance(state: qd.types.ndarray(), total: qd.types.ndarray()):
    for i, j in state:
        state[i, j] = 0.9 * state[i, j] + 0.1 * qd.sin(qd.cast(i + j, qd.f32))
    for i, j in state:
        total[0] += qd.cast(state[i, j], qd.f64)


@qd.kernel
def loss_of(rows: qd.types.ndarray(), gain: qd.types.ndarray(), loss: qd.types.ndarray()):
    for i, j in rows:
        loss[0] += (gain[j] * rows[i, j] - 1.0) ** 2 / N


def main():
    several = "RANK" in os.environ
    if several:
        torch.distributed.init_process_group("gloo")
    qd.distributed.init()
    qd.init(arch=qd.cpu)
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 1)
    trained = torch.nn.parallel.DistributedDataParallel(model) if several else model
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    state = qd.ndarray(qd.f32, shape=(N, 4), split=0, halo=0)
    total = qd.ndarray(qd.f64, shape=(1,))
    first, end = state.rows
    rows = qd.ndarray(qd.f32, shape=(end - first, 4))
    gain = qd.ndarray(qd.f32, shape=(4,), needs_grad=True)
    loss = qd.ndarray(qd.f32, shape=(1,), needs_grad=True)
    gain.fill(0.5)
    for _ in range(STEPS):
        advance(state, total)
        own = state.to_numpy(gather=False)
        optimizer.zero_grad()
        # DDP takes the mean over the ranks, whose batches are of the same size.
        ((trained(torch.from_numpy(own)) - 1.0) ** 2).mean().backward()
        optimizer.step()
        rows.from_numpy(own)
        loss.fill(0.0)
        gain.grad.fill(0.0)
        loss.grad.fill(1.0)
        loss_of(rows, gain, loss)
        loss_of.grad(rows, gain, loss)
        qd.distributed.all_reduce(gain.grad)
        gain.from_numpy(gain.to_numpy() - 0.1 * gain.grad.to_numpy())
    if qd.distributed.rank() == 0:
        weights = [p.detach().numpy() for p in model.parameters()]
        np.savez(sys.argv[1], weight=weights[0], bias=weights[1], gain=gain.to_numpy(), total=total.to_numpy())
    qd.distributed.barrier()


main()
