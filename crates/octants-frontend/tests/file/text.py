"""`print`, f-strings, formats, `assert`."""
#~ OPTIONS debug

import octants as qd

vec2 = qd.types.vector(2, qd.f32)
P = qd.types.struct(a=qd.i32, b=vec2)


@qd.kernel
def prints(a: qd.i32, b: qd.f32, v: vec2):
    print("a is", a, b)
    print(f"a={a} b={b:.3f} {a + 1=}")
    print(a, 1.5, True, sep=", ", end="!\n")
    print("{} and {:.2e} {name}".format(a, b, name="n"))
    print("%d of %.2f%%" % (a, b))
    print(v, (a, b), [a, a])
    print()


@qd.kernel
def prints_struct(p: P):
    print(p, p.b)


@qd.kernel
def asserts(a: qd.i32):
    assert a > 0
    assert a < 10, "a is too big"
    assert 0 <= a < 10, f"a is {a}"


@qd.kernel
def at_compile_time(a: qd.i32):
    qd.static_print("size", 3, a)
    qd.static_assert(1 + 1 == 2, "numbers work")
