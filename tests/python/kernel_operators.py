"""Binary operators as functions of the kernel language, for tests that try each of them on many types."""

import octants as qd


@qd.func
def add(a, b):
    return a + b


@qd.func
def sub(a, b):
    return a - b


@qd.func
def mul(a, b):
    return a * b


@qd.func
def divide(a, b):
    return a / b


@qd.func
def floordiv(a, b):
    return a // b


@qd.func
def modulo(a, b):
    return a % b


@qd.func
def power(a, b):
    return a**b


@qd.func
def bit_and(a, b):
    return a & b


@qd.func
def bit_or(a, b):
    return a | b


@qd.func
def bit_xor(a, b):
    return a ^ b


@qd.func
def shl(a, b):
    return a << b


@qd.func
def shr(a, b):
    return a >> b


@qd.func
def raw_div(a, b):
    return qd.raw_div(a, b)


@qd.func
def maximum(a, b):
    return max(a, b)
