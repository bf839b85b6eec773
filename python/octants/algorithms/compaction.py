"""Keeping the flagged elements of an array, and one element for each run of equal keys."""

# mypy: ignore-errors
# Kernels are Python in form only: their annotations are values, and they assign to what no Python type describes.

from octants.algorithms.tile_shapes import CHUNKS, check_capacity
from octants.kernel_decorators import func
from octants.ops import cast, min, static
from octants.types import i32, template, u32


def _check(log256_max_n):
    check_capacity(log256_max_n)
    return 0


@func(requires_top_level=True)
def _scan_counts(scratch: template(), total_out: template()):
    """Turns the counts of the chunks into the place where each chunk's output starts."""
    for _ in range(1):
        total = u32(0)
        for chunk in range(static(CHUNKS)):
            count = scratch[chunk]
            scratch[chunk] = total
            total += count
        total_out[0] = cast(total, i32)


@func(requires_top_level=True)
def select(
    arr: template(),
    flags: template(),
    out: template(),
    num_out: template(),
    scratch: template(),
    n,
    log256_max_n: template(),
):
    """Copies each `arr[i]` whose `flags[i]` is 1 to the front of `out`, in order, and their number to `num_out[0]`."""
    static(_check(log256_max_n))
    for chunk in range(static(CHUNKS)):
        length = (n + static(CHUNKS - 1)) // static(CHUNKS)
        count = u32(0)
        for i in range(chunk * length, min(n, (chunk + 1) * length)):
            if flags[i] != 0:
                count += 1
        scratch[chunk] = count
    _scan_counts(scratch, num_out)
    for chunk in range(static(CHUNKS)):
        length = (n + static(CHUNKS - 1)) // static(CHUNKS)
        place = cast(scratch[chunk], i32)
        for i in range(chunk * length, min(n, (chunk + 1) * length)):
            if flags[i] != 0:
                out[place] = arr[i]
                place += 1


@func
def _starts_run(keys: template(), i):
    starts = i == 0
    if i > 0:
        starts = keys[i] != keys[i - 1]
    return starts


@func(requires_top_level=True)
def reduce_by_key_add(
    keys_in: template(),
    values_in: template(),
    keys_out: template(),
    values_out: template(),
    num_runs: template(),
    scratch: template(),
    n,
    value_dtype: template(),
    log256_max_n: template(),
):
    """For each run of equal neighbours in `keys_in`: the key to `keys_out`, the sum of its values to `values_out`, and the
    number of runs to `num_runs[0]`.
    """
    static(_check(log256_max_n))
    for chunk in range(static(CHUNKS)):
        length = (n + static(CHUNKS - 1)) // static(CHUNKS)
        count = u32(0)
        for i in range(chunk * length, min(n, (chunk + 1) * length)):
            if _starts_run(keys_in, i):
                count += 1
        scratch[chunk] = count
    _scan_counts(scratch, num_runs)
    for chunk in range(static(CHUNKS)):
        # A chunk sums the runs that start in it, to their ends.
        length = (n + static(CHUNKS - 1)) // static(CHUNKS)
        end = min(n, (chunk + 1) * length)
        place = cast(scratch[chunk], i32)
        i = chunk * length
        while i < end and not _starts_run(keys_in, i):
            i += 1
        while i < end:
            total = values_in[i]
            key = keys_in[i]
            i += 1
            while i < n and keys_in[i] == key:
                total += values_in[i]
                i += 1
            keys_out[place] = key
            values_out[place] = total
            place += 1
