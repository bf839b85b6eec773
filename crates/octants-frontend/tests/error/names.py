"""Names: unknown, in one branch only, attributes, assignments that are not allowed."""

import octants as qd

x = qd.field(qd.f32, shape=4)
thing = qd.opaque(n=3, broken=1)


@qd.func
def uses_unknown(a):
    return a + missing_in_func  #~ ERROR Name "missing_in_func" is not defined #~ AT missing_in_func


@qd.kernel
def unknown(a: qd.i32) -> qd.i32:
    return a + nope  #~ ERROR Name "nope" is not defined #~ AT nope


@qd.kernel
def unknown_function(a: qd.i32):
    nope(a)  #~ ERROR Name "nope" is not defined #~ AT nope


@qd.kernel
def unknown_in_a_function(a: qd.i32) -> qd.i32:
    return uses_unknown(a)


@qd.kernel
def unknown_target_index():
    x[j] = 1  #~ ERROR Name "j" is not defined #~ AT j


@qd.kernel
def augmented_unknown():
    total += 1  #~ ERROR Name "total" is not defined #~ AT total


@qd.kernel
def in_one_branch(a: qd.i32) -> qd.i32:
    if a > 0:
        b = 1
    return b  #~ ERROR Name "b" is not defined #~ AT b #~ HINT assign a value before it


@qd.kernel
def in_both_branches(a: qd.i32) -> qd.i32:
    if a > 0:
        b = 1
    else:
        b = 2
    return b  #~ ERROR Name "b" is not defined #~ HINT assign a value before it


@qd.kernel
def after_the_loop(n: qd.i32) -> qd.i32:
    for i in range(n):
        last = i
    return last  #~ ERROR Name "last" is not defined #~ HINT only inside an `if` or a loop


@qd.kernel
def index_after_the_loop(n: qd.i32) -> qd.i32:
    for i in range(n):
        pass
    return i  #~ ERROR Name "i" is not defined


@qd.kernel
def in_a_while(n: qd.i32) -> qd.i32:
    while n > 0:
        t = 1
        break
    return t  #~ ERROR Name "t" is not defined


@qd.kernel
def attribute_of_an_object() -> qd.i32:
    return thing.m  #~ ERROR 'Thing' object has no attribute 'm' #~ AT thing.m


@qd.kernel
def attribute_that_raises() -> qd.i32:
    return thing.broken  #~ ERROR RuntimeError: this property raises #~ AT thing.broken


@qd.kernel
def attribute_of_qd(a: qd.f32) -> qd.f32:
    return qd.sinn(a)  #~ ERROR 'module' object has no attribute 'sinn' #~ AT qd.sinn


@qd.kernel
def assigns_an_argument(a: qd.i32):
    a = 2  #~ ERROR Kernel argument "a" is immutable in the kernel #~ HINT copy it


@qd.kernel
def changes_an_argument(a: qd.i32):
    a += 2  #~ ERROR Kernel argument "a" is immutable in the kernel


@qd.kernel
def unpacks_to_an_argument(a: qd.i32):
    b, a = 1, 2  #~ ERROR Kernel argument "a" is immutable in the kernel


@qd.kernel
def assigns_a_loop_index(n: qd.i32):
    for i in range(n):
        i = 3  #~ ERROR the loop index "i" cannot be assigned


@qd.kernel
def changes_a_loop_index(n: qd.i32):
    for i in range(n):
        i += 3  #~ ERROR the loop index "i" cannot be assigned


@qd.kernel
def assigns_an_array(a: qd.types.ndarray(qd.f32, 1)):
    a = 3  #~ ERROR Kernel argument "a" is immutable


@qd.kernel
def assigns_a_call(n: qd.i32):
    float(n).x = 1  #~ ERROR cannot be assigned


@qd.kernel
def shadowed_index(n: qd.i32):
    for i in range(n):
        for i in range(n):  #~ ERROR Variable 'i' is already declared in the outer scope
            pass


@qd.kernel
def static_again(n: qd.i32):
    a = qd.static(3)
    a = qd.static(4)  #~ ERROR Recreating variables is not allowed


@qd.kernel
def static_element(n: qd.i32):
    x[0] = qd.static(4)  #~ ERROR Static assign cannot be used on elements in arrays


@qd.kernel
def assigns_static(n: qd.i32):
    a = qd.static(3)
    a = 4  #~ ERROR Variable 'a' cannot be assigned
