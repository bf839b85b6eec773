"""Programs whose threads synchronize in blocks or subgroups and race on memory, and their race-free twins: as in
`data_dependent`. Barriers of a block do not order the threads of other blocks, and those of a subgroup do not order the
threads of other subgroups.
"""

import numpy as np
from data_dependent import array, ints

import octants as qd

PROGRAMS = []
N, THREADS = 128, 32
block, subgroup = qd.simt.block, qd.simt.subgroup


def program(function):
    """Adds a program to the list."""
    PROGRAMS.append(function)
    return function


def numbers():
    return array(np.arange(N) * 3 + 1)


@program
def sum_of_block_sums(races):
    @qd.kernel
    def total(x: ints, y: ints, is_atomic: qd.template()):
        qd.loop_config(block_dim=THREADS)
        for i in range(N):
            partial = block.reduce_add(x[i], THREADS, qd.i32)
            if block.thread_idx() == 0:
                if qd.static(is_atomic):
                    y[0] += partial
                else:
                    y[0] = y[0] + partial  # meets

    total(numbers(), array([0]), not races)


@program
def elements_of_the_next_block(races):
    @qd.kernel
    def shift(x: ints, in_block: qd.template()):
        qd.loop_config(block_dim=THREADS)
        for i in range(N - 1):
            t = block.thread_idx()
            own = x[i - t + (t + 1) % THREADS] if qd.static(in_block) else x[i + 1]  # meets
            block.sync()
            x[i] = own  # meets

    shift(numbers(), not races)


@program
def exchange_within_a_block_in_global_memory(races):
    @qd.kernel
    def rotate(x: ints, between: ints, y: ints, waits: qd.template()):
        qd.loop_config(block_dim=64)
        for i in range(N):
            t = block.thread_idx()
            between[i] = x[i]  # meets
            if qd.static(waits):
                block.sync()
            y[i] = between[i - t + (t + 7) % 64]  # meets
            block.sync()
            y[i] += 1

    rotate(numbers(), array(np.zeros(N)), array(np.zeros(N)), not races)


@program
def threads_in_turn(races):
    """Each thread of a block in turn, in more phases than a word can tell apart with eight bits."""

    @qd.kernel
    def pass_on(x: ints, skipped: qd.i32):
        qd.loop_config(block_dim=THREADS)
        for i in range(2 * THREADS):
            t = block.thread_idx()
            for step in range(600):
                if t == step % THREADS:
                    x[i // THREADS] = x[i // THREADS] + step + 1  # meets
                if step != skipped:
                    block.sync()

    pass_on(array(np.zeros(2)), 555 if races else -1)


@program
def counter_of_subgroups(races):
    @qd.kernel
    def largest(x: ints, y: ints, is_atomic: qd.template()):
        qd.loop_config(block_dim=THREADS)
        for i in range(N):
            found = subgroup.reduce_max(x[i])
            if subgroup.elect():
                if qd.static(is_atomic):
                    qd.atomic_max(y[0], found)
                elif found > y[0]:  # meets
                    y[0] = found  # meets

    largest(numbers(), array([0]), not races)


@program
def pairs_of_a_subgroup(races):
    @qd.kernel
    def gather(x: ints, y: ints, per_element: qd.i32):
        qd.loop_config(block_dim=THREADS)
        for i in range(N):
            other = subgroup.shuffle_down(x[i], 1)
            y[i // per_element] = other + i  # meets

    gather(numbers(), array(np.zeros(N)), 2 if races else 1)


@program
def subgroups_of_a_block(races):
    @qd.kernel
    def total(x: ints, y: ints, waits: qd.template()):
        qd.loop_config(block_dim=N)
        for i in range(2 * N):
            partial = block.SharedArray((4,), qd.i32)
            t = block.thread_idx()
            found = subgroup.reduce_add(x[i])
            if t % THREADS == 0:
                partial[t // THREADS] = found  # meets
            if qd.static(waits):
                block.sync()
            if t == 0:
                y[i // N] = partial[0] + partial[1] + partial[2] + partial[3]  # meets

    total(array(np.arange(2 * N) + 1), array(np.zeros(2)), not races)


@program
def exchange_one_subgroup_barrier_short(races):
    @qd.kernel
    def twice(x: ints, y: ints, waits: qd.template()):
        qd.loop_config(block_dim=THREADS)
        for i in range(N):
            shared = block.SharedArray((THREADS,), qd.i32)
            t = block.thread_idx()
            shared[t] = x[i]
            subgroup.sync()
            got = shared[t ^ 1]  # meets
            if qd.static(waits):
                subgroup.sync()
            shared[t] = got * 2  # meets
            subgroup.sync()
            y[i] = shared[(t + 5) % THREADS]

    twice(numbers(), array(np.zeros(N)), not races)


@program
def barrier_of_a_subgroup_for_a_block(races):
    @qd.kernel
    def reverse(x: ints, y: ints, waits: qd.template()):
        qd.loop_config(block_dim=64)
        for i in range(N):
            shared = block.SharedArray((64,), qd.i32)
            t = block.thread_idx()
            shared[t] = x[i]  # meets
            if qd.static(waits):
                block.sync()
            else:
                subgroup.sync()
            y[i] = shared[63 - t]  # meets

    reverse(numbers(), array(np.zeros(N)), not races)


@program
def operand_of_a_library_function(races):
    @qd.kernel
    def sums(x: ints, y: ints, apart: qd.template()):
        qd.loop_config(block_dim=THREADS)
        for i in range(N - 1):
            found = block.inclusive_add(x[i], THREADS, qd.i32)  # meets
            if qd.static(apart):
                y[i + 1] = found
            else:
                x[i + 1] = found  # meets

    sums(numbers(), array(np.zeros(N)), not races)
