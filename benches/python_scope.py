"""Times vectors, matrices and elements of fields in Python scope, on this package and on others of the same interface.

    python benches/python_scope.py --python octants=PYTHON --python quadrants=PYTHON

Times are processor microseconds of one statement: the fastest of many bursts, in the fastest of all rounds.
"""

import importlib
import time
import timeit
from typing import Any

from package_rounds import compare

STATEMENTS = {
    "vector from a list": "qd.Vector([1.0, 2.0, 3.0])",
    "matrix from lists": "qd.Matrix([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0], [7.0, 8.0, 9.0]])",
    "vector by its type": "vec3(1.0, 2.0, 3.0)",
    "component by index": "v[1]",
    "component by letter": "v.x",
    "swizzle": "v.xy",
    "set a component": "v[1] = 2.0",
    "set a component by letter": "v.x = 2.0",
    "iterate over a vector": "[c for c in v]",
    "sum of two vectors": "v + w",
    "dot product": "v.dot(w)",
    "norm": "v.norm()",
    "matrix product": "m @ m",
    "vector to numpy": "v.to_numpy()",
    "vector to list": "v.to_list()",
    "vector to text": "str(v)",
    "struct by its type": "S(a=1.0, b=[1, 2, 3], c=5)",
    "scalar field: element": "f[3]",
    "scalar field: set": "f[3] = 1.5",
    "field of no axes: element": "f0[None]",
    "field of no axes: set": "f0[None] = 1",
    "u8 in a field of two axes: set": "u8[1, 2] = 7",
    "vector field: element": "x[3]",
    "vector field: component": "x[3][0]",
    "vector field: component by letter": "x[3].x",
    "vector field: set": "x[3] = [1, 2, 3]",
    "vector field: set to a vector": "x[3] = v",
    "vector field: set a component": "x[3][0] = 2.0",
    "matrix field: element": "y[3]",
    "struct field: element": "s[3]",
    "struct field: member": "s[3].a",
    "struct field: set a member": "s[3].a = 1.0",
    "struct field: set a vector member": "s.b[3] = [1, 2, 3]",
    "struct field: set": "s[3] = r",
    "ndarray: element": "nd[3]",
    "ndarray: set": "nd[3] = 2.0",
    "vector ndarray: element": "nv[3]",
    "vector ndarray: component": "nv[3][0]",
    "vector ndarray: set": "nv[3] = [1, 2, 3]",
    "matrix ndarray: element": "nm[3]",
    "sparse field: element": "sparse[3]",
    "sparse field: set": "sparse[3] = 1.0",
    "bitmasked field: set": "masked[3] = 1.0",
    "quantized field: element": "packed[3]",
    "field: shape": "f.shape",
    "ndarray: shape": "nd.shape",
    "field of 1,000: fill": "f.fill(1.0)",
    "ndarray of 1,000: fill": "nd.fill(1.0)",
    "field of 1,000: to numpy": "f.to_numpy()",
    "sparse field of 1,048,576: to numpy": "blocks.to_numpy()",
    "vector field of 300,000, SOA: to numpy": "soa.to_numpy()",
    "matrix field of 300,000: fill": "big.fill(0)",
}


def prepared(qd: Any) -> dict[str, Any]:
    """The names that the statements use."""
    vec3 = qd.types.vector(3, qd.f32)
    struct = qd.types.struct(a=qd.f32, b=vec3, c=qd.i32)
    sparse, blocks, masked = qd.field(qd.f32), qd.field(qd.f32), qd.field(qd.f32)
    qd.root.pointer(qd.i, 16).dense(qd.i, 16).place(sparse)
    qd.root.pointer(qd.ij, 64).dense(qd.ij, 16).place(blocks)
    qd.root.bitmasked(qd.i, 256).place(masked)
    blocks[3, 3] = 1.0
    packed = qd.field(qd.types.quant.int(bits=5))
    word = qd.BitpackedFields(32)
    word.place(packed)
    qd.root.dense(qd.i, 16).place(word)
    return {
        "qd": qd,
        "vec3": vec3,
        "v": qd.Vector([1.0, 2.0, 3.0]),
        "w": qd.Vector([4.0, 5.0, 6.0]),
        "m": qd.Matrix([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0], [7.0, 8.0, 9.0]]),
        "S": struct,
        "r": struct(a=1.0, b=[1, 2, 3], c=5),
        "f": qd.field(qd.f32, shape=1000),
        "f0": qd.field(qd.i32, shape=()),
        "u8": qd.field(qd.u8, shape=(10, 10)),
        "x": qd.Vector.field(3, qd.f32, shape=100),
        "y": qd.Matrix.field(3, 3, qd.f32, shape=100),
        "s": struct.field(shape=100),
        "nd": qd.ndarray(qd.f32, 1000),
        "nv": qd.Vector.ndarray(3, qd.f32, 100),
        "nm": qd.Matrix.ndarray(3, 3, qd.f32, 100),
        "sparse": sparse,
        "masked": masked,
        "packed": packed,
        "blocks": blocks,
        "soa": qd.Vector.field(3, qd.f32, shape=300_000, layout=qd.Layout.SOA),
        "big": qd.Matrix.field(3, 3, qd.f32, shape=300_000),
    }


def measure(package: str, repeat: int) -> dict[str, float]:
    """Microseconds of each statement."""
    qd = importlib.import_module(package)
    qd.init(arch=qd.cpu, log_level=qd.ERROR)
    names = prepared(qd)
    found = {}
    for case, statement in STATEMENTS.items():
        timer = timeit.Timer(statement, timer=time.process_time, globals=names)
        count = 1
        while (spent := timer.timeit(count)) < 0.002:
            count *= 2 if spent > 0.0005 else 8
        found[case] = 1e6 * min(timer.repeat(repeat, count)) / count
    return found


if __name__ == "__main__":
    compare(__doc__, __file__, measure, unit="us", of_rounds=min)
