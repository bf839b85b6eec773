"""Programs whose threads race on shared arrays of their block, and their race-free twins: as in `data_dependent`."""

import numpy as np
from data_dependent import array, floats, ints

import octants as qd

PROGRAMS = []
N, THREADS = 128, 32
block = qd.simt.block


def program(function):
    """Adds a program to the list."""
    PROGRAMS.append(function)
    return function


@program
def neighbors_behind_a_barrier(races):
    @qd.kernel
    def shift(x: ints, y: ints, waits: qd.template()):
        qd.loop_config(block_dim=THREADS)
        for i in range(N):
            shared = block.SharedArray((THREADS,), qd.i32)
            t = i % THREADS
            shared[t] = x[i] + 1  # meets
            if qd.static(waits):
                block.sync()
            y[i] = shared[(t + 1) % THREADS]  # meets

    shift(array(np.arange(N)), array(np.zeros(N)), not races)


@program
def reversal(races):
    @qd.kernel
    def reverse(x: ints, y: ints, waits: qd.template()):
        qd.loop_config(block_dim=THREADS)
        for i in range(N):
            shared = block.SharedArray((THREADS,), qd.i32)
            t = i % THREADS
            shared[THREADS - 1 - t] = x[i] + 1  # meets
            if qd.static(waits):
                block.sync()
            y[i] = shared[t]  # meets

    reverse(array(np.arange(N)), array(np.zeros(N)), not races)


@program
def sum_by_halves(races):
    @qd.kernel
    def add(x: floats, y: floats, waits: qd.template()):
        qd.loop_config(block_dim=THREADS)
        for i in range(N):
            shared = block.SharedArray((THREADS,), qd.f32)
            t = i % THREADS
            shared[t] = x[i]
            block.sync()
            step = THREADS // 2
            while step > 0:
                if t < step:
                    shared[t] = shared[t] + shared[t + step]  # meets
                if qd.static(waits):
                    block.sync()
                step //= 2
            block.sync()
            if t == 0:
                y[i // THREADS] = shared[0]

    add(array(np.arange(N) + 1, qd.f32), array(np.zeros(N // THREADS), qd.f32), not races)


@program
def prefix_sum_without_the_second_barrier(races):
    @qd.kernel
    def scan(x: ints, y: ints, waits: qd.template()):
        qd.loop_config(block_dim=THREADS)
        for i in range(N):
            shared = block.SharedArray((THREADS,), qd.i32)
            t = i % THREADS
            shared[t] = x[i]
            block.sync()
            step = 1
            while step < THREADS:
                before = 0
                if t >= step:
                    before = shared[t - step]  # meets
                if qd.static(waits):
                    block.sync()
                shared[t] += before  # meets
                block.sync()
                step *= 2
            y[i] = shared[t]

    scan(array(np.arange(N) + 1), array(np.zeros(N)), not races)


@program
def tile_that_is_loaded_again(races):
    @qd.kernel
    def fold(x: ints, y: ints, waits: qd.template()):
        qd.loop_config(block_dim=THREADS)
        for i in range(THREADS):
            shared = block.SharedArray((THREADS,), qd.i32)
            total = 0
            for tile in range(N // THREADS):
                shared[i] = x[tile * THREADS + i]  # meets
                block.sync()
                for k in range(THREADS):
                    total += shared[k] * (k + 1)  # meets
                if qd.static(waits):
                    block.sync()
            y[i] = total

    fold(array(np.arange(N) + 1), array(np.zeros(THREADS)), not races)


@program
def counts_of_a_block(races):
    @qd.kernel
    def count(x: ints, y: ints, plain: qd.template()):
        qd.loop_config(block_dim=THREADS)
        for i in range(N):
            bins = block.SharedArray((THREADS,), qd.i32)
            t = i % THREADS
            bins[t] = 0
            block.sync()
            if qd.static(plain):
                bins[x[i]] = bins[x[i]] + 1  # meets
            else:
                bins[x[i]] += 1
            block.sync()
            y[i] = bins[t]

    count(array(np.arange(N) % 8), array(np.zeros(N)), races)


@program
def leader_that_tells_the_others(races):
    @qd.kernel
    def tell(x: ints, y: ints, waits: qd.template()):
        qd.loop_config(block_dim=THREADS)
        for i in range(N):
            told = block.SharedArray((1,), qd.i32)
            if i % THREADS == 0:
                told[0] = x[i] + 7  # meets
            if qd.static(waits):
                block.sync()
            y[i] = told[0]  # meets

    tell(array(np.arange(N)), array(np.zeros(N)), not races)


@program
def value_that_all_store(races):
    @qd.kernel
    def store(x: ints, y: ints, own: qd.i32):
        qd.loop_config(block_dim=THREADS)
        for i in range(N):
            told = block.SharedArray((1,), qd.i32)
            told[0] = 5 + own * x[i]  # meets
            block.sync()
            y[i] = told[0]

    store(array(np.arange(N)), array(np.zeros(N)), int(races))


@program
def permutation_in_a_block(races):
    @qd.kernel
    def permute(at: ints, y: ints):
        qd.loop_config(block_dim=THREADS)
        for i in range(N):
            shared = block.SharedArray((THREADS,), qd.i32)
            shared[at[i]] = i  # meets
            block.sync()
            y[i] = shared[i % THREADS]

    at = np.concatenate([np.random.default_rng(b).permutation(THREADS) for b in range(N // THREADS)])
    if races:
        at[40] = at[41]
    permute(array(at), array(np.zeros(N)))
