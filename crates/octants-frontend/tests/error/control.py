"""Loops, branches, returns, `qd.static` where they cannot be."""

import octants as qd

x = qd.field(qd.f32, shape=(4, 4))
vec2 = qd.types.vector(2, qd.f32)


@qd.kernel
def breaks_parallel(n: qd.i32):
    for i in range(n):
        if i > 3:
            break  #~ ERROR Cannot break in the outermost loop #~ AT break #~ HINT serialize=True


@qd.kernel
def breaks_field_loop():
    for i, j in x:
        break  #~ ERROR Cannot break in the outermost loop


@qd.kernel
def breaks_nowhere():
    break  #~ ERROR `break` outside of a loop #~ AT break


@qd.kernel
def continues_nowhere(n: qd.i32):
    if n > 0:
        continue  #~ ERROR `continue` outside of a loop


@qd.kernel
def breaks_static_at_run_time(n: qd.i32):
    for i in qd.static(range(3)):
        if n > i:
            break  #~ ERROR You are trying to `break` a static `for` loop #~ AT break


@qd.kernel
def continues_static_at_run_time(n: qd.i32):
    for i in qd.static(range(3)):
        if n > i:
            continue  #~ ERROR `continue` statement is inside a non-static `if`


@qd.kernel
def returns_in_a_loop(n: qd.i32) -> qd.i32:
    for i in range(n):
        return i  #~ ERROR Return inside non-static if/for is not supported #~ AT i


@qd.kernel
def returns_in_a_branch(n: qd.i32) -> qd.i32:
    if n > 0:
        return 1  #~ ERROR Return inside non-static if/for is not supported
    return 0


@qd.kernel
def returns_in_a_while(n: qd.i32):
    while n > 0:
        return  #~ ERROR Return inside non-static if/for is not supported #~ AT return


@qd.kernel
def returns_without_annotation(n: qd.i32):
    return n  #~ ERROR must be annotated with a return type #~ AT n


@qd.kernel
def never_returns(n: qd.i32) -> qd.i32:
    pass  #~ ERROR Kernel has a return type but does not have a return statement #~ HINT remove the return annotation


@qd.kernel
def returns_nothing(n: qd.i32) -> qd.i32:
    return  #~ ERROR Kernel has a return type but does not have a return statement


@qd.kernel
def returns_too_many(n: qd.i32) -> (qd.i32, qd.f32):
    return n, n, n  #~ ERROR returns 3 values, but its annotation has 2 #~ AT n, n, n


@qd.kernel
def returns_other_shape(v: vec2) -> qd.f32:
    return v  #~ ERROR Return (type=[Tensor (2) f32]) cannot be converted into required type f32


@qd.kernel
def returns_text() -> qd.f32:
    return "s"  #~ ERROR Return (type=a string) cannot be converted


@qd.kernel
def static_of_a_run_time_value(a: qd.i32):
    if qd.static(a > 0):  #~ ERROR must be compile-time constants #~ AT qd.static(a > 0) #~ HINT remove `qd.static`
        pass


@qd.kernel
def static_range_of_a_run_time_value(n: qd.i32):
    for i in qd.static(range(n)):  #~ ERROR known at compile time
        pass


@qd.kernel
def static_assert_fails():
    qd.static_assert(1 > 2, "one is small")  #~ ERROR Static assertion failed: one is small


@qd.kernel
def static_assert_at_run_time(a: qd.i32):
    qd.static_assert(a > 2)  #~ ERROR Static assert with non-static condition


@qd.kernel
def comprehension_at_run_time(n: qd.i32):
    a = [i for i in range(n)]  #~ ERROR known at compile time


@qd.kernel
def comprehension_condition(n: qd.i32):
    a = [i for i in range(3) if n > i]  #~ ERROR must be a compile-time constant


@qd.kernel
def loops_over_a_number(n: qd.i32):
    for i in n:  #~ ERROR Cannot loop over the object i32 in a kernel #~ AT n #~ HINT qd.static
        pass


@qd.kernel
def loops_over_a_list(n: qd.i32):
    for i in [1, 2]:  #~ ERROR Cannot loop over the object a list in a kernel
        pass


@qd.kernel
def range_step(n: qd.i32):
    for i in range(0, n, 2):  #~ ERROR Range should have 1 or 2 arguments, found 3 #~ HINT qd.static(range
        pass


@qd.kernel
def range_without_arguments():
    for i in range():  #~ ERROR Range should have 1 or 2 arguments, found 0
        pass


@qd.kernel
def range_of_a_vector(v: vec2):
    for i in range(v):  #~ ERROR a loop bound must be a number, not [Tensor (2) f32]
        pass


@qd.kernel
def range_of_a_field():
    for i in range(x):  #~ ERROR cannot be used as a value
        pass


@qd.kernel
def too_few_targets(n: qd.i32):
    for i in qd.ndrange(n, n):  #~ ERROR 1 variables, 2 axes #~ AT i #~ HINT qd.grouped
        pass


@qd.kernel
def too_many_targets(n: qd.i32):
    for i, j in range(n):  #~ ERROR a loop over `range` takes one variable #~ AT i, j
        pass


@qd.kernel
def field_targets():
    for i in x:  #~ ERROR does not match loop variable dimensionality (1 != 2)
        pass


@qd.kernel
def grouped_targets():
    for i, j in qd.grouped(x):  #~ ERROR Group for should have 1 loop target, found 2
        pass


@qd.kernel
def element_target(n: qd.i32):
    for x[0, 0] in range(n):  #~ ERROR a loop variable must be a name #~ AT x[0, 0]
        pass


@qd.kernel
def nested_target(n: qd.i32):
    for i, (j, k) in qd.ndrange(n, n):  #~ ERROR a loop variable must be a name #~ AT (j, k)
        pass


@qd.kernel
def ndrange_float():
    for i, j in qd.ndrange(2, 1.5):  #~ ERROR Every argument of ndrange should be an integer
        pass


@qd.kernel
def ndrange_triple():
    for i in qd.ndrange((1, 2, 3)):  #~ ERROR Every argument of ndrange should be a scalar or a tuple/list like (begin, end)
        pass


@qd.kernel
def ndrange_axes_repeated(n: qd.i32):
    for i, j in qd.ndrange(n, n, axes=(0, 0)):  #~ ERROR is not a permutation of range(2)
        pass


@qd.kernel
def ndrange_axes_count(n: qd.i32):
    for i, j in qd.ndrange(n, n, axes=(0,)):  #~ ERROR they must match
        pass


@qd.kernel
def ndrange_axes_type(n: qd.i32):
    for i, j in qd.ndrange(n, n, axes=(0, n)):  #~ ERROR must be Python ints
        pass


@qd.kernel
def config_option(n: qd.i32):
    qd.loop_config(blokc_dim=3)  #~ ERROR `qd.loop_config` has no option `blokc_dim`
    for i in range(n):
        pass


@qd.kernel
def config_value(n: qd.i32):
    qd.loop_config(block_dim=-1)  #~ ERROR `block_dim` of loop_config must be a non-negative integer
    for i in range(n):
        pass


@qd.kernel
def config_at_run_time(n: qd.i32):
    qd.loop_config(serialize=n > 2)  #~ ERROR `serialize` of loop_config must be a compile-time constant
    for i in range(n):
        pass


@qd.kernel
def config_positional(n: qd.i32):
    qd.loop_config(True)  #~ ERROR takes keyword arguments only


@qd.kernel
def assert_message(n: qd.i32):
    assert n > 0, range(n)  #~ ERROR must be a constant or a formatted string, not a loop range


@qd.kernel
def prints_a_range(n: qd.i32):
    print(range(n))  #~ ERROR a loop range cannot be printed


@qd.kernel
def loop_variable_named_like_an_argument(n: qd.i32):
    for n in range(3):  #~ ERROR Variable 'n' is already declared in the outer scope #~ AT n
        pass


@qd.kernel
def two_loop_variables_of_one_name():
    for i, i in qd.ndrange(2, 3):  #~ ERROR Recreating variables is not allowed
        pass


@qd.kernel
def nested_static():
    for i in qd.static(qd.static(range(3))):  #~ ERROR 'qd.static' cannot be nested #~ AT qd.static(qd.static(range(3)))
        pass


@qd.kernel
def float_constant_as_condition():
    while 1.5:  #~ ERROR `while` conditions must be an integer; found f32 #~ AT 1.5
        break
