"""Programs with data-dependent races on a local of the kernel, and their race-free twins."""

import numpy as np
from data_dependent import N, array, ints

import octants as qd

PROGRAMS = []


def program(function):
    """Adds a program to the list."""
    PROGRAMS.append(function)
    return function


def marks(*places):
    """An array of zeros, with ones at these places."""
    values = np.zeros(N)
    values[list(places)] = 1
    return array(values)


@program
def last_index_that_matches(races):
    @qd.kernel
    def last(x: ints) -> qd.i32:
        found = -1
        for i in range(x.shape[0]):
            if x[i] == 1:
                found = i  # meets
        return found

    place = last(marks(3, 50) if races else marks(3))
    assert races or place == 3


@program
def largest_by_comparison(races):
    @qd.kernel
    def largest(x: ints) -> qd.i32:
        most = 0
        for i in range(x.shape[0]):
            if x[i] > most:  # meets
                most = x[i]  # meets
        return most

    assert largest(marks(3, 50) if races else marks()) <= 1


@program
def counters_by_a_dynamic_component(races):
    @qd.kernel
    def count(x: ints, out: ints):
        counts = qd.Vector([0, 0])
        for i in range(x.shape[0]):
            counts[x[i]] += 1  # meets
            if i == x.shape[0] - 1:
                out[0] = counts[1]  # meets

    count(marks(3, 50) if races else marks(), marks())


@program
def running_sum_with_a_condition(races):
    @qd.kernel
    def run(x: ints, out: ints):
        total = 0
        for i in range(x.shape[0]):
            if x[i] == 1:
                total += 1  # meets
                out[i] = total  # meets

    run(marks(3, 50) if races else marks(3), marks())


@program
def flag_in_rounds_of_a_graph(races):
    @qd.kernel(graph=True)
    def search(x: ints, out: ints, rounds: qd.types.ndarray(qd.i32, ndim=0)):
        found = 0
        while qd.graph.do_while(rounds):
            for i in range(x.shape[0]):
                if x[i] == 1:
                    found = i  # meets
            rounds[()] -= 1
        for _ in range(1):
            out[0] = found

    rounds = qd.ndarray(qd.i32, ())
    rounds.fill(3)
    search(marks(3, 50) if races else marks(3), marks(), rounds)


@program
def struct_member_set_by_some(races):
    Best = qd.types.struct(place=qd.i32, count=qd.i32)

    @qd.kernel
    def best(x: ints, out: ints):
        chosen = Best(place=0, count=0)
        for i in range(x.shape[0]):
            if x[i] == 1:
                chosen.place = i  # meets
        out[0] = chosen.place

    best(marks(3, 50) if races else marks(3), marks())


@program
def swap_through_an_outer_local(races):
    @qd.kernel
    def shared(x: ints, y: ints):
        kept = 0
        for i in range(x.shape[0]):
            if x[i] >= 0:
                kept = x[i] + i  # meets
            x[i] = y[i]
            y[i] = kept  # meets

    @qd.kernel
    def own(x: ints, y: ints):
        for i in range(x.shape[0]):
            kept = 0
            if x[i] >= 0:
                kept = x[i] + i
            x[i] = y[i]
            y[i] = kept

    (shared if races else own)(marks(3), marks())


@program
def two_locals_and_one_that_all_set_alike(races):
    @qd.kernel
    def find(x: ints, out: ints):
        any_found, place = 0, -1
        for i in range(x.shape[0]):
            if x[i] == 1:
                any_found = 1
                place = i  # meets
        out[0] = any_found + place

    find(marks(3, 50) if races else marks(3), marks())
