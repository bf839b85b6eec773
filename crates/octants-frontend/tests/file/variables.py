"""Assignment: annotated, augmented, to copies and aliases; atomic where memory is shared."""

import octants as qd

x = qd.field(qd.f32, shape=4)
n = qd.field(qd.i32, shape=())
v = qd.Vector.field(3, qd.f32, shape=4)


@qd.kernel
def annotated(a: qd.i32) -> qd.f64:
    b: qd.f64 = a
    c: qd.u8 = 3
    d: float = a
    b += c + d
    return b


@qd.kernel
def annotated_vectors(a: qd.f32) -> qd.types.vector(2, qd.f64):
    b: qd.i32 = qd.Vector([a, 2.5])
    b: qd.i32 = qd.Vector([a, 3.5])  #~ WARN Assign may lose precision: i32 <- f32
    c: qd.f64 = b
    return c


@qd.kernel
def keeps_its_type(a: qd.f32) -> qd.i32:
    i = 1
    i = a  #~ WARN Assign may lose precision: i32 <- f32
    i += a  #~ WARN Atomic add may lose precision: i32 <- f32
    return i


@qd.kernel
def augmented_locals(a: qd.i32) -> qd.i32:
    s = a
    s += 1
    s -= 2
    s *= 3
    s //= 2
    s %= 7
    s <<= 1
    s >>= 2
    s |= 1
    s &= 3
    s ^= 2
    s **= 2
    f = 1.0
    f /= a
    return s


@qd.kernel
def augmented_memory(y: qd.types.ndarray(qd.i32, 1)):
    for i in range(4):
        x[i] += 1
        x[i] -= i
        x[i] *= 2
        x[i] /= 2
        y[i] |= 1
        y[i] &= 3
        y[i] ^= 2
        y[i] //= 2
        n[None] += 1
        v[i] += 1.0
        v[i].xy += [1.0, 2.0]
        v[i][2] -= 1


@qd.kernel
def copies(i: qd.i32) -> qd.f32:
    a = x[i]
    x[i] = 3.0
    w = v[i]
    w.x = 9.0
    return a + w.x


@qd.kernel
def aliases(i: qd.i32):
    a = qd.static(x)
    a[i] = 1.0
    e, f = qd.static(x, v)
    f[i] = e[0]


@qd.kernel
def old_values(y: qd.types.ndarray(qd.i32, 1)) -> qd.i32:
    a = qd.atomic_add(y[0], 1)
    b = qd.atomic_max(y[1], a)
    c = qd.atomic_min(x[0], 0.5)
    d = qd.atomic_xor(n[None], 3)
    e = qd.atomic_exchange(y[2], 5)
    f = qd.atomic_cas(y[3], 0, e)
    qd.atomic_add(v[0], [1.0, 2.0, 3.0])
    s = 1
    g = qd.atomic_sub(s, 2)
    h = qd.atomic_or(s, 8)
    return a + b + c + d + e + f + g + h + s


@qd.kernel
def zero_and_one(w: qd.types.vector(2, qd.f64)) -> qd.types.vector(2, qd.f64):
    return qd.zero(w) + qd.one(w)


@qd.kernel
def promoted_updates(y: qd.types.ndarray(qd.i32, 1)) -> qd.i32:
    i = 3
    i += 0.7  #~ WARN Atomic add may lose precision: i32 <- f32
    i *= 2.5  #~ WARN Atomic mul may lose precision: i32 <- f32
    y[0] += 0.7  #~ WARN Atomic add may lose precision: i32 <- f32
    y[0] *= 2.5  #~ WARN Atomic mul may lose precision: i32 <- f32
    y[0] *= i
    x[0] *= 2
    return i


@qd.kernel
def slices(m: qd.types.matrix(2, 2, qd.f32)) -> qd.f32:
    u = qd.Vector([1.0, 2.0, 3.0])
    u[1:3] = u[0:2]
    u[0:2] = 7.0
    u[0:2] += [1.0, 2.0]
    k = m
    k[:, :] = m @ m
    k[0, :] *= 2
    return u[0] + k[0, 0]
