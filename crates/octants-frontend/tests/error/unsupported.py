"""Statements and expressions of Python that the kernel language does not have."""

import octants as qd

x = qd.field(qd.f32, shape=4)


@qd.kernel
def class_definition():
    class A:  #~ ERROR Unsupported node "ClassDef"
        pass


@qd.kernel
def inner_function():
    def f():  #~ ERROR Function definition is not allowed in 'qd.kernel' #~ HINT module level
        pass


@qd.kernel
def deletes(a: qd.i32):
    b = a
    del b  #~ ERROR Unsupported node "Delete" #~ AT del b #~ HINT kernels do not support this Python statement


@qd.kernel
def tries():
    try:  #~ ERROR Unsupported node "Try"
        pass
    except ValueError:
        pass


@qd.kernel
def raises():
    raise ValueError("no")  #~ ERROR Unsupported node "Raise" #~ AT raise ValueError("no")


@qd.kernel
def imports():
    import math  #~ ERROR Unsupported node "Import" #~ AT import math


@qd.kernel
def imports_from():
    from math import pi  #~ ERROR Unsupported node "ImportFrom"


@qd.kernel
def globals_():
    global x  #~ ERROR Unsupported node "Global" #~ AT global x


@qd.kernel
def matches(a: qd.i32):
    match a:  #~ ERROR Unsupported node "Match"
        case 1:
            pass


@qd.kernel
def lambdas():
    f = lambda y: y  #~ ERROR Unsupported node "Lambda" #~ AT lambda y: y


@qd.kernel
def sets():
    s = {1, 2}  #~ ERROR Unsupported node "Set" #~ AT {1, 2}


@qd.kernel
def set_comprehension():
    s = {i for i in range(3)}  #~ ERROR Unsupported node "SetComp"


@qd.kernel
def yields():
    yield 1  #~ ERROR Unsupported node "Yield" #~ AT yield 1


@qd.kernel
def complex_number():
    z = 1 + 2j  #~ ERROR Invalid constant scalar data type: <class 'complex'> #~ AT 2j


@qd.kernel
def bytes_():
    b = b"x"  #~ ERROR Invalid constant scalar data type: <class 'bytes'>


@qd.kernel
def ellipsis_():
    x[...] = 1  #~ ERROR Unsupported node "Ellipsis" #~ AT ...


@qd.kernel
def for_else(n: qd.i32):
    for i in range(n):  #~ ERROR 'else' clause for 'for' not supported #~ AT i in range(n)
        pass
    else:
        pass


@qd.kernel
def while_else(n: qd.i32):
    while n > 0:  #~ ERROR 'else' clause for 'while' not supported #~ AT n > 0
        pass
    else:
        pass


@qd.kernel
def with_other(n: qd.i32):
    with x:  #~ ERROR requires a call expression
        pass


@qd.kernel
def star_expression(n: qd.i32):
    a = *x  #~ ERROR unpacking with `*` is not supported here


@qd.kernel
def declaration():
    a: qd.i32  #~ ERROR a variable declaration needs a value


@qd.kernel
def is_operator(a: qd.i32) -> qd.i32:
    r = 0
    if a is r:  #~ ERROR Operator "is" in Quadrants scope is not supported #~ AT a is r #~ HINT ==
        r = 1
    return r


@qd.kernel
def is_not_operator(a: qd.i32) -> qd.u1:
    return a is not a  #~ ERROR Operator "is not" in Quadrants scope is not supported


@qd.kernel
def in_operator(a: qd.i32) -> qd.u1:
    return a in (1, 2)  #~ ERROR "In" is only supported inside `qd.static`


@qd.kernel
def not_in_operator(a: qd.i32) -> qd.u1:
    return a not in (1, 2)  #~ ERROR "NotIn" is only supported inside `qd.static`
