"""Functions: inlined, outlined, by reference, real, called at compile time."""

import octants as qd

x = qd.field(qd.f32, shape=4)
SCALE = 3


@qd.func
def add(a, b=2):
    return a + b


@qd.func
def typed(a: qd.f32, b: qd.i32) -> qd.f32:
    b += 1
    return a * b


@qd.func
def both(a):
    return a, a * 2


@qd.func
def increment(a: qd.template()):
    a += 1


@qd.func
def changes_its_own(a):
    a += 1
    return a


@qd.func
def sign(a):
    if a > 0:
        return 1
    if a < 0:
        return -1
    return 0


@qd.func
def find(n, what):
    for i in range(n):
        if i * i == what:
            return i
    return -1


@qd.func
def early_pair(a):
    if a > 0:
        return a, 1
    return 0, 2


@qd.func
def changes_reference(a: qd.template(), limit):
    if a > limit:
        return 0
    a += 1
    return 1


@qd.real_func
def square(a: qd.f32) -> qd.f32:
    return a * a


@qd.real_func
def halves(a: qd.i32) -> (qd.i32, qd.f32):
    return a // 2, a / 2


@qd.real_func
def stores(i: qd.i32):
    x[i] = 1.0


def at_compile_time(n):
    return n * SCALE


@qd.kernel
def inlined(a: qd.i32) -> qd.f32:
    b = add(a) + add(a, 1) + add(b=a, a=3)
    c, d = both(b)
    return b + c + d + typed(a, 2.7)


@qd.kernel
def references(i: qd.i32) -> qd.i32:
    a = i
    increment(a)
    increment(x[i])
    b = changes_its_own(a)
    return a + b


@qd.kernel
def outlined(a: qd.i32) -> qd.i32:
    r = 0
    for i in range(a):
        r += sign(i - 2) + find(i, 9) + sign(a)
        s, t = early_pair(i)
        r += s + t
    return r


@qd.kernel
def specialized(a: qd.i32, b: qd.f32) -> qd.f32:
    return sign(a) + sign(b) + sign(3)


@qd.kernel
def references_outlined(i: qd.i32) -> qd.i32:
    a = i
    return changes_reference(a, 3) + changes_reference(x[i], 3) + a


@qd.kernel
def real(a: qd.i32) -> qd.f32:
    stores(a)
    p, q = halves(a)
    return square(a) + square(2) + p + q


@qd.kernel
def host_call(a: qd.i32) -> qd.i32:
    return a + at_compile_time(4) + at_compile_time(n=2)  #~ WARN Calling non-quadrants function


@qd.kernel
def plain_function_at_run_time(a: qd.i32) -> qd.i32:
    return at_compile_time(a)  #~ WARN Calling non-quadrants function


@qd.func
def fills(n):
    for i in range(n):
        x[i] = 2.0


@qd.kernel
def parallel_in_a_function(n: qd.i32):
    fills(n)


@qd.func
def deep(a, n: qd.template()):
    r = a
    if qd.static(n > 0):
        r = deep_other(a, n - 1) + 1
    return r


@qd.func
def deep_other(a, n: qd.template()):
    return a * n


@qd.kernel
def templates(a: qd.i32) -> qd.i32:
    return deep(a, 2) + deep(a, 0)


@qd.func
def pick(pair, which):
    if which:
        return pair[0] * 1.0
    a, b = pair
    return b


@qd.func
def from_dict(d, which):
    if which:
        return d["a"]
    return d["b"]


@qd.kernel
def tuples_to_an_outlined_function(a: qd.i32, b: qd.f32) -> qd.f32:
    return pick((a, b), a) + pick((1, b), a) + from_dict({"a": a, "b": 2}, a)


@qd.kernel
def evaluated_once(n: qd.template() = qd.field(qd.i32, shape=())):
    for i in range(4):
        x[qd.atomic_add(n[None], 1)] += n[None]


@qd.func
def rotated(order: qd.types.vector(3), v: qd.types.vector(3)):
    return v[order[0]]


@qd.kernel
def vectors_of_any_scalar(i: qd.i32, a: qd.f64) -> qd.f64:
    return rotated(qd.Vector([i, 1, 0]), [a, 2.0, a])


@qd.func
def power(n: qd.template(), a):
    result = a * a
    if qd.static(n > 1):
        result = power(n - 1, a) * a
    return result


@qd.kernel
def recursion_by_template(a: qd.f32) -> qd.f32:
    return power(3, a)


@qd.func
def components_as(v) -> qd.f32:
    return v * 2


@qd.kernel
def scalar_annotation_of_a_vector(a: qd.i32) -> qd.f32:
    return components_as(qd.Vector([a, 1]))[0]
