"""Calls: arguments, recursion, kernels, returns of functions."""

import dataclasses

import octants as qd

vec2 = qd.types.vector(2, qd.f32)
vec3 = qd.types.vector(3, qd.f32)
x = qd.field(qd.f32, shape=4)


@qd.func
def two(a, b):
    return a + b  #~ ERROR unsupported operand type for `+`: an object of type Field


@qd.func
def typed(a: qd.f32, v: vec2):
    return a + v.x


@qd.func
def nothing(a):
    pass


@qd.func
def itself(a):
    return itself(a - 1)  #~ ERROR recursive call of `itself` #~ AT itself(a - 1)


@qd.func
def forever(n: qd.template()):
    return forever(n + 1)  #~ ERROR recursive call of `forever`: more than 32 nested calls


@qd.func
def changes_run_time(n: qd.template(), a):
    return changes_run_time(a, a)  #~ ERROR recursive call of `changes_run_time`: a function cannot call itself


@qd.func
def ping(a):
    return pong(a)


@qd.func
def pong(a):
    return ping(a)  #~ ERROR recursive call of `ping`


@qd.func
def wrong_inside(a):
    return a + "s"  #~ ERROR unsupported operand type


@qd.func
def mixed_returns(a):
    if a > 0:
        return vec2(1.0)
    return vec3(1.0)  #~ ERROR Return matrix shape mismatch, expecting=(2,), got=(3,).


@qd.func
def mixed_counts(a):
    if a > 0:
        return 1, 2
    return 1, 2, 3  #~ ERROR this `return` has 3 values


@qd.real_func
def no_annotation(a: qd.i32):
    return a  #~ ERROR must be annotated with a return type


@qd.func
def annotated_number(a) -> qd.i32:
    return nothing  #~ ERROR Return (type=an object of type


@qd.func(requires_top_level=True)
def top_only(n):
    for i in range(n):
        x[i] = 1


@qd.func
def returns_in_parallel(n):
    for i in range(n):
        if i > 2:
            return i  #~ ERROR Return inside non-static if/for is not supported in a function with parallel loops
    return 0


def raises(a):
    return a / 0


@qd.kernel
def other_kernel():
    y = two(x, 1)


@qd.kernel
def too_many() -> qd.i32:
    return two(1, 2, 3)  #~ ERROR Too many arguments. `two` takes 2 arguments, 3 given #~ AT two(1, 2, 3)


@qd.kernel
def too_few() -> qd.i32:
    return two(1)  #~ ERROR Missing argument 'b' of `two` #~ AT two(1)


@qd.kernel
def unknown_keyword() -> qd.i32:
    return two(1, c=2)  #~ ERROR Unexpected argument 'c'


@qd.kernel
def twice() -> qd.i32:
    return two(1, a=2)  #~ ERROR Multiple values for argument 'a'


@qd.kernel
def text_for_scalar(v: vec2) -> qd.f32:
    return typed("1", v)  #~ ERROR Argument a must be f32, got a string #~ AT typed("1", v)


@qd.kernel
def scalar_for_vector(a: qd.f32) -> qd.f32:
    return typed(a, a)  #~ ERROR Argument v of type [Tensor (2) f32] is expected to be a Matrix, but got f32


@qd.kernel
def string_for_scalar(v: vec2) -> qd.f32:
    return typed("s", v)  #~ ERROR Argument a must be f32, got a string


@qd.kernel
def field_for_scalar(v: vec2) -> qd.f32:
    return typed(x, v)  #~ ERROR Argument a must be f32


@qd.kernel
def nothing_to_use(a: qd.i32) -> qd.i32:
    b = nothing(a) + 1  #~ ERROR unsupported operand type(s) for +: 'NoneType' and 'int'
    return b


@qd.kernel
def calls_itself(a: qd.i32) -> qd.i32:
    return itself(a)


@qd.kernel
def calls_each_other(a: qd.i32) -> qd.i32:
    return ping(a)


@qd.kernel
def calls_a_kernel():
    other_kernel()  #~ ERROR Kernels cannot call other kernels #~ HINT `@qd.func`


@qd.kernel
def error_in_the_callee(a: qd.i32):
    wrong_inside(a)


@qd.kernel
def other_types(a: qd.i32):
    b = mixed_returns(a)


@qd.kernel
def other_counts(a: qd.i32):
    b = mixed_counts(a)


@qd.kernel
def real_without_type(a: qd.i32):
    b = no_annotation(a)


@qd.kernel
def other_annotation(a: qd.f32):
    b = annotated_number(a)


@qd.kernel
def not_at_top(n: qd.i32):
    if n > 0:
        top_only(n)  #~ ERROR must be called at the top level


@qd.kernel
def parallel_return(n: qd.i32):
    b = returns_in_parallel(n)


@qd.kernel
def compile_time_call_raises():
    a = raises(3)  #~ ERROR ZeroDivisionError #~ AT raises(3)


@qd.kernel
def positional_cast(a: qd.i32):
    b = float(a, a)  #~ ERROR `float()` takes one argument


@qd.kernel
def print_option(a: qd.i32):
    print(a, file=3)  #~ ERROR `print` takes only the keyword arguments `sep` and `end`


@qd.kernel
def fold_division() -> qd.i32:
    return 1 // 0  #~ ERROR ZeroDivisionError #~ AT 1 // 0


@qd.kernel
def format_count(a: qd.i32):
    print("{} {}".format(a))  #~ ERROR Expected 2 positional argument(s), but received 1


@qd.kernel
def percent_count(a: qd.i32):
    print("%d %d" % a)  #~ ERROR not enough arguments for format string


@qd.func
def prints_if(a, what):
    if a > 0:
        print(what)
        return 1
    return 0


@qd.kernel
def run_time_text_to_an_outlined_function(a: qd.i32):
    prints_if(a, f"a={a}")  #~ ERROR argument `what` cannot be a string in a function that is compiled separately #~ HINT inside a branch


@qd.kernel
def nested_format(a: qd.i32):
    print(f"{a:{a}d}")  #~ ERROR Unsupported node "FormattedValue" #~ AT {a}


@qd.kernel
def two_stars(a: qd.i32):
    two(*(1, 2), **{"c": 3})  #~ ERROR Unexpected argument 'c'


@qd.kernel
def unused_format_argument(a: qd.i32):
    print("{}".format(a, 2))  #~ ERROR positional argument(s), but received 2


@qd.kernel
def unused_percent_argument(a: qd.i32):
    print("%d" % (a, 2))  #~ ERROR not all arguments converted


@qd.kernel
def missing_format_name(a: qd.i32):
    print("{b}".format(a=a))  #~ ERROR Keyword 'b' not found


@qd.kernel
def calls_forever():
    forever(0)


@qd.kernel
def calls_with_a_run_time_value(a: qd.i32) -> qd.i32:
    return changes_run_time(a, a)


@qd.func
def promises_a_number(a) -> qd.i32:
    pass  #~ ERROR Function has a return type but does not have a return statement


@qd.kernel
def calls_a_promise():
    promises_a_number(1)
