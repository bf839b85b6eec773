"""Times fields of quantized types on this package and on others with the same interface, compared with plain f32.

    python benches/quantized_types.py --python octants=PYTHON --python quadrants=PYTHON

Each case updates 4 M elements of two fields on one thread, or those of one field of single bits.
"""

# mypy: ignore-errors
# Annotations of kernels are values.

import importlib
import statistics
import time
from typing import Any

from package_rounds import compare

ELEMENTS = 1 << 22


def fields(qd: Any) -> dict[str, tuple[Any, Any]]:
    """Two fields of each kind."""
    quant = qd.types.quant
    made = {}
    for name, make, bits, shared in (
        ("fixed-point numbers of 16 bits", lambda: quant.fixed(16, max_value=4.0), 32, False),
        ("floats of 19 bits", lambda: quant.float(6, 13), 64, False),
        ("floats of 13 bits, shared exponent", lambda: quant.float(6, 13), 32, True),
    ):
        pair = qd.field(make()), qd.field(make())
        word = qd.BitpackedFields(max_num_bits=bits)
        word.place(*pair, shared_exponent=shared)
        qd.root.dense(qd.i, ELEMENTS).place(word)
        made[name] = pair
    made["f32"] = qd.field(qd.f32, shape=ELEMENTS), qd.field(qd.f32, shape=ELEMENTS)
    return made


def measure(package: str, repeat: int) -> dict[str, float]:
    """Milliseconds of each case."""
    qd = importlib.import_module(package)
    qd.init(arch=qd.cpu, log_level=qd.ERROR, cpu_max_num_threads=1)
    bits = []
    for _ in range(2):
        bits.append(qd.field(qd.types.quant.int(1, False)))
        qd.root.dense(qd.i, ELEMENTS // 32).quant_array(qd.i, 32, max_num_bits=32).place(bits[-1])

    @qd.kernel
    def update(x: qd.template(), y: qd.template()):
        for i in x:
            x[i] = x[i] * 0.5 + 0.1
            y[i] = y[i] + x[i] * 0.01

    @qd.kernel
    def flip(x: qd.template(), y: qd.template()):
        for i in x:
            y[i] = x[i] ^ 1

    @qd.kernel
    def count(x: qd.template(), y: qd.template()) -> qd.i32:
        ones = 0
        for i in x:
            ones += x[i]
        return ones

    def median(kernel: Any, pair: tuple[Any, Any]) -> float:
        times = []
        for _ in range(repeat + 1):
            qd.sync()
            start = time.perf_counter()
            kernel(*pair)
            qd.sync()
            times.append(1e3 * (time.perf_counter() - start))
        return statistics.median(times[1:])

    found = {f"{name}: update": median(update, pair) for name, pair in fields(qd).items()}
    found["single bits in words of 32: store"] = median(flip, tuple(bits))
    found["single bits in words of 32: count"] = median(count, tuple(bits))
    return found


if __name__ == "__main__":
    compare(__doc__, __file__, measure)
