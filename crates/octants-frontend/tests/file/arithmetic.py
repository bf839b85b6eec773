"""Operators on scalars: promotion, division, powers, shifts, folding of constants."""

import octants as qd


@qd.kernel
def integers(a: qd.i32, b: qd.i32) -> qd.i32:
    c = a + b - a * 3
    d = -a // b
    e = a % b
    f = (a << 2) | (a >> 1) & 7 ^ ~b
    return c + d + e + f + +a


@qd.kernel
def floats(a: qd.f32, b: qd.f64) -> qd.f64:
    return a / b - a // b + a % b + a**2 + b**0.5 + a**b


@qd.kernel
def mixed(a: qd.i32, b: qd.f32, c: qd.u8, d: qd.i64) -> qd.f32:
    quotient = a / 2
    wide = a + d
    narrow = c + c
    return quotient + b * a + wide + narrow


@qd.kernel
def folded() -> qd.i32:
    a = 2 * 3 + 4
    b = 7 // 2 + -7 // 2 + 7 % -3 + (1 << 4)
    return a + b


@qd.kernel
def literals(a: qd.f64, n: qd.i64) -> qd.f64:
    x = qd.f64(0.1) + a
    y = n + 1
    z = qd.u8(200)
    w = 0xFF
    return x + y + z + w


@qd.kernel
def truth(a: qd.i32, b: qd.f32) -> qd.u1:
    c = not a
    d = bool(b)
    return c and d


@qd.kernel
def casts(a: qd.f32) -> qd.i32:
    b = qd.cast(a, qd.i8)
    c = qd.bit_cast(a, qd.i32)
    d = int(a) + float(b) + qd.i64(c)
    return d


@qd.kernel
def functions(x: qd.f32, i: qd.i32) -> qd.f32:
    a = qd.sin(x) + qd.sqrt(i) + qd.atan2(x, i) + qd.exp(1.0)
    b = max(x, i, 2) + min(x, 1) + abs(i) + qd.abs(x)
    c = qd.select(i > 0, x, 1)
    d = qd.floor(x) + qd.round(x, qd.i32) + qd.rsqrt(x) + qd.sgn(x) + qd.rcp(x)
    e = qd.popcnt(i) + qd.clz(i) + qd.isnan(x)
    return a + b + c + d + e + pow(x, 3) + qd.raw_div(i, 2) + qd.bit_shr(i, 1)


@qd.kernel
def draws() -> qd.f32:
    return qd.random() + qd.random(qd.i32) + qd.random(dtype=qd.f64)
