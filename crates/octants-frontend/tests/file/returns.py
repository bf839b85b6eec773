"""What a kernel returns."""

import octants as qd

vec3 = qd.types.vector(3, qd.f32)
mat2 = qd.types.matrix(2, 2, qd.f32)


@qd.dataclass
class Ball:
    pos: vec3
    mass: qd.f32


@qd.kernel
def scalar(a: qd.i32) -> qd.f64:
    return a


@qd.kernel
def python_types(a: int, b: float) -> float:
    return a + b


@qd.kernel
def vector() -> vec3:
    return qd.Vector([1, 2, 3])


@qd.kernel
def vector_from_list(a: qd.f32) -> vec3:
    return [a, 0.0, 1.0]


@qd.kernel
def matrix(a: qd.f32) -> mat2:
    return qd.Matrix([[a, 0.0], [0.0, a]])


@qd.kernel
def several(a: qd.i32) -> (qd.i32, qd.f32, vec3):
    return a, a * 0.5, vec3(a)


@qd.kernel
def struct(m: qd.f32) -> Ball:
    return Ball(pos=vec3(0.0), mass=m)


@qd.kernel
def nothing(a: qd.i32):
    return


@qd.kernel
def declared_none(a: qd.i32) -> None:
    pass


@qd.kernel
def compile_time_branch(a: qd.i32) -> qd.i32:
    if qd.static(True):
        return a
    else:
        return 0
