"""Constructs inside each other."""

import octants as qd

vec2 = qd.types.vector(2, qd.f32)
mat2 = qd.types.matrix(2, 2, qd.f32)
x = qd.field(qd.f32, shape=8)
n = qd.field(qd.i32, shape=())
m = qd.Matrix.field(2, 2, qd.f32, shape=4)
S = qd.types.struct(v=vec2, m=mat2, k=qd.i32)
T = qd.types.struct(s=S, t=qd.f32)
ts = T.field(shape=4)
K = 5


@qd.func
def first_positive(a, b):
    for i in qd.static(range(2)):
        if qd.static(i == 1):
            return b
    return a


@qd.func
def nested_static_return(a):
    if qd.static(True):
        for i in qd.static(range(3)):
            if qd.static(i > 1):
                return a * i
    return a


@qd.func
def or_zero(a):
    if a > 0:
        return a
    return 0


@qd.func
def loops_inside(k):
    s = 0
    for i in range(k):
        if i == 3:
            continue
        while s < 10:
            s += i + 1
            if s == 7:
                break
    return s


@qd.func
def asserts(a):
    assert a > 0, "positive"
    return a


@qd.func
def vector_result(a):
    if a > 0:
        return vec2(1.0, a)
    return vec2(0.0)


@qd.func
def calls_template(f: qd.template(), i):
    f[i] = f[i + 1]
    return f[i]


@qd.func
def passes_function(g: qd.template(), a):
    return g(a) + g(1)


@qd.func
def double(a):
    return a * 2


@qd.kernel
def returns_in_static(a: qd.i32) -> qd.i32:
    return first_positive(a, 3) + nested_static_return(a)


@qd.kernel
def functions_in_loops(a: qd.i32) -> qd.f32:
    s = 0.0
    for i in range(a):
        s += or_zero(i) + loops_inside(i) + asserts(i) + vector_result(i).y
        s += calls_template(x, i) + passes_function(double, i)
    return s


@qd.kernel
def swap_elements(i: qd.i32, j: qd.i32):
    x[i], x[j] = x[j], x[i]


@qd.kernel
def fibonacci(k: qd.i32) -> qd.i32:
    a, b = 0, 1
    i = 0
    while i < k and b < 1000:
        a, b = b, a + b
        i += 1
    return b


@qd.kernel
def global_then_local() -> qd.i32:
    k = K
    k += 1
    return k + K


@qd.kernel
def nested_members(s: S) -> qd.f32:
    c = s
    c.v[0] = 1.0
    c.m[0, 1] += 2.0
    c.v.yx = c.v
    c.m[1, :] = [3.0, 4.0]
    for i in ts:
        ts[i].s.v += c.v
        ts[i].s.m[0, 1] -= 1
        ts[i].s = c
        ts[i].t += ts[i].s.k
        m[i][0, :] = c.v
        m[i][1, 0] += 1
        m[i] = m[i] @ c.m
    return c.v.x + c.m.trace()


@qd.kernel
def matrix_comprehension(a: qd.f32) -> qd.f32:
    k = qd.Matrix([[a * (i + j) for j in range(2)] for i in range(2)])
    return k.sum() + sum([a * i for i in range(3)]) + max([a, 2.0, 3.0]) + all([a > 0, a < 1])


@qd.kernel
def vector_operators(v: qd.types.vector(2, qd.i32), w: vec2) -> vec2:
    a = -v + (v // 2) % 3 + (v << 1) ** 2 & 7
    b = not v
    c = (v > 0) & (w < 1)
    return w / v + a + c + b


@qd.kernel
def conditions_in_loops(k: qd.i32) -> qd.i32:
    r = 0
    for i in range(k):
        j = i
        while j > 0 and x[j] > 0 or j == 5:
            j -= 1 if j % 2 == 0 else 2
            if j == 3 and not r:
                break
        else_value = j if j > 0 and x[j] > 1 else -1
        r += else_value
    return r


@qd.kernel
def static_inside_runtime(k: qd.i32) -> qd.i32:
    s = 0
    for i in range(k):
        for j in qd.static(range(4)):
            if qd.static(j == 1):
                continue
            if qd.static(j == 3):
                break
            if i == j:
                s += 1
        if s > 3:
            continue
        s += 2
    return s


@qd.kernel
def constant_while() -> qd.i32:
    i = 0
    while True:
        i += 1
        while 1:
            i += 2
            break
        if i > 10:
            break
    return i


@qd.kernel
def len_and_shape(a: qd.types.ndarray(qd.f32, 2)) -> qd.i32:
    return len(a) + len(x) + a.shape[1] + len(x.shape) + x.shape[0]


@qd.kernel
def bools(a: qd.u1, b: qd.u1) -> qd.i32:
    c = a and not b
    d = a == b
    e = c + d
    if a & b:
        e = True
    return e + int(c)


@qd.kernel
def static_values(a: qd.i32) -> qd.i32:
    k, l = qd.static(K, K + 1)
    r = a
    if qd.static(K > 3 and K < 10):
        r += k
    if qd.static(K in (1, 5) and K is not None):
        r += l
    if qd.static(x is not None and not isinstance(K, float)):
        r += 1
    w = qd.static([1, 2, 3])
    for i in qd.static(w):
        r += i
    return r + qd.static(sum([1, 2]))
