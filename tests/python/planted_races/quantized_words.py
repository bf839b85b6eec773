"""Programs with data-dependent races on quantized fields, several of whose elements are in one word, and their
race-free twins. Their form is that of `data_dependent`.
"""

import numpy as np
from data_dependent import N, array, doubled, ints, shuffled

import octants as qd

PROGRAMS = []


def program(function):
    """Adds a program to the list."""
    PROGRAMS.append(function)
    return function


def packed(bits=4):
    """A field of N numbers, of which eight are in a word."""
    x = qd.field(qd.types.quant.int(bits))
    qd.root.dense(qd.i, N // 8).quant_array(qd.i, 8, max_num_bits=8 * bits).place(x)
    return x


@program
def scatter_to_elements_of_words(races):
    x = packed()

    @qd.kernel
    def scatter(at: ints):
        for i in range(at.shape[0]):
            x[at[i]] = i % 7  # meets

    scatter(array(doubled() if races else shuffled()))


@program
def neighbors_in_words(races):
    x, y = packed(), packed()

    @qd.kernel
    def copy(at: ints):
        for i in range(at.shape[0]):
            x[i] = x[at[i]]  # meets

    @qd.kernel
    def copy_apart(at: ints):
        for i in range(at.shape[0]):
            y[i] = x[at[i]]

    x.from_numpy((np.arange(N) % 7).astype(np.int32))
    (copy if races else copy_apart)(array(shuffled()))


@program
def components_in_words(races):
    x = qd.Vector.field(2, qd.types.quant.fixed(bits=16, max_value=4.0))
    words = qd.BitpackedFields(max_num_bits=32)
    words.place(x)
    qd.root.dense(qd.i, N).place(words)

    @qd.kernel
    def move(at: ints):
        for i in range(at.shape[0]):
            x[i][0] = 0.5
            x[at[i]][1] += 0.5
            if x[at[i]][1] > 3.0:
                x[at[i]][1] = 0.25

    @qd.kernel
    def meet(at: ints):
        for i in range(at.shape[0]):
            x[i][0] = i * 0.01  # meets
            x[at[i]][1] = x[at[i]][0]  # meets

    (meet if races else move)(array(shuffled()))


@program
def sums_in_words(races):
    total = packed()

    @qd.kernel
    def count(x: ints):
        for i in range(x.shape[0]):
            if x[i] % 3 == 0:
                total[3] += 1  # meets
            if x[i] == 17:
                total[2] = 1

    @qd.kernel
    def count_and_look(x: ints):
        for i in range(x.shape[0]):
            if x[i] % 3 == 0:
                total[3] += 1  # meets
            if x[i] == 17:
                x[i] = total[3]  # meets

    (count_and_look if races else count)(array(shuffled()))
