"""`if`, `while`, `break`, `continue`, and what is known at compile time."""

import octants as qd

DEBUG = False


@qd.kernel
def branches(a: qd.i32) -> qd.i32:
    r = 0
    if a > 10:
        r = 1
    elif a > 5:
        r = 2
        t = r * 2
        r += t
    else:
        r = 3
    return r


@qd.kernel
def nothing_else(a: qd.i32) -> qd.i32:
    if a:
        pass
    return a


@qd.kernel
def loops(n: qd.i32) -> qd.i32:
    i = 0
    s = 0
    while i < n:
        i += 1
        if i % 2 == 0:
            continue
        if s > 100:
            break
        s += i
    while True:
        s -= 1
        if s < 0:
            break
    return s


@qd.kernel
def dead_code(n: qd.i32) -> qd.i32:
    s = 0
    for i in range(n):
        for j in range(n):
            if j == i:
                break
                s = 5
            s += 1
    return s


@qd.kernel
def compile_time(a: qd.i32) -> qd.i32:
    r = a
    fresh = 0
    if qd.static(DEBUG):
        r = nowhere
    elif qd.static(not DEBUG):
        r += 1
        fresh = r
    return fresh


@qd.kernel
def docstring(a: qd.i32):
    """Text is not code."""
    pass
