"""Mistakes are refused with the exceptions and message texts that programs written for Quadrants rely on."""

import dataclasses
import warnings

import numpy as np
import pytest

import octants as qd


@pytest.fixture(autouse=True)
def program():
    qd.init(arch=qd.cpu)
    yield
    qd.reset()


def refused(kernel, *args, error, match):
    with pytest.raises(error, match=match):
        kernel(*args)


def test_loop_variables_do_not_share_names_with_variables():
    @qd.kernel
    def shadows() -> qd.i32:
        i = 0
        for i in range(4):  # noqa: B007
            pass
        return i

    refused(shadows, error=qd.OctantsSyntaxError, match="Variable 'i' is already declared in the outer scope")


def test_loops_over_values_without_elements():
    x = qd.field(qd.i32, (2, 3))

    @qd.kernel
    def no_ranges():
        for i in qd.ndrange():  # noqa: B007
            pass

    @qd.kernel
    def over_a_number():
        for i in 3:  # noqa: B007
            pass

    @qd.kernel
    def one_index_for_two():
        for i in x:
            x[i, 0] = 1

    @qd.kernel
    def chosen_at_run_time(n: qd.i32):
        for i in range(2) if n > 0 else range(3):  # noqa: B007
            pass

    @qd.kernel
    def unrolled_at_run_time(n: qd.i32):
        for i in qd.static(range(n)):  # noqa: B007
            pass

    refused(no_ranges, error=qd.OctantsSyntaxError, match="at least one range")
    refused(over_a_number, error=qd.OctantsSyntaxError, match="Cannot loop over the object an int")
    refused(one_index_for_two, error=qd.OctantsSyntaxError, match=r"loop variable dimensionality \(1 != 2\)")
    refused(chosen_at_run_time, 1, error=qd.OctantsSyntaxError, match="non static inlined if")
    refused(unrolled_at_run_time, 3, error=qd.OctantsTypeError, match="known at compile time")


def test_axes_of_ndrange():
    for axes, error, match in (
        ((1, 1), qd.OctantsSyntaxError, "not a permutation"),
        ((0,), qd.OctantsSyntaxError, "they must match"),
        (("a", 0), qd.OctantsTypeError, "must be Python ints"),
        (1, qd.OctantsTypeError, "tuple of integers"),
    ):

        @qd.kernel
        def loop(order: qd.template()):
            for i, j in qd.ndrange(2, 3, axes=order):  # noqa: B007
                pass

        refused(loop, axes, error=error, match=match)
    with pytest.raises(qd.OctantsTypeError):
        qd.ndrange(2, 3, axes=("a", 0))
    assert list(qd.ndrange()) == [()]


def test_options_of_loops():
    @qd.kernel
    def unknown():
        qd.loop_config(block=8)
        for i in range(2):  # noqa: B007
            pass

    @qd.kernel
    def positional():
        qd.loop_config(8)
        for i in range(2):  # noqa: B007
            pass

    refused(unknown, error=qd.OctantsTypeError, match="no option `block`")
    refused(positional, error=qd.OctantsTypeError, match="keyword arguments only")


def test_vectors_and_matrices_are_not_interchangeable():
    v, m = qd.Vector([3.0, 4.0]), qd.Matrix([[1.0, 2.0], [3.0, 4.0]])
    for name in ("dot", "normalized", "transpose", "trace", "determinant", "inverse"):
        wrong = m if name in ("dot", "normalized") else v
        args = (wrong,) if name == "dot" else ()

        @qd.kernel
        def in_a_kernel():
            x = wrong
            y = getattr(x, name)(*args)
            print(y)

        with pytest.raises(qd.OctantsCompilationError, match="vector|matrix"):
            in_a_kernel()
        with pytest.raises(qd.OctantsTypeError, match="vector|matri(x|ces)"):
            getattr(wrong, name)(*args)
    with pytest.raises(qd.OctantsTypeError, match=r"dimension mismatch between \(2, 2\) and \(3,\)"):
        m @ qd.Vector([1, 2, 3])
    with pytest.raises(ValueError, match="must have the same shape"):
        v.dot(qd.Vector([1, 2, 3]))
    with pytest.raises(IndexError):
        qd.Vector.unit(3, 3)


def test_matrix_products_with_mismatched_shapes():
    @qd.kernel
    def product():
        a = qd.Matrix([[1, 2], [3, 4], [5, 6]])
        b = qd.Vector([1, 2])
        c = b @ a
        print(c)

    refused(product, error=qd.OctantsTypeError, match=r"dimension mismatch between \(2,\) and \(3, 2\)")


def test_a_number_is_not_a_struct():
    pair = qd.types.struct(a=qd.i32, b=qd.f32)

    @qd.kernel
    def assign():
        s = pair(1, 2)
        s = 3
        print(s.a)

    refused(assign, error=qd.OctantsTypeError, match="Only dict or Struct can be assigned to a Struct")


def test_members_of_structs_have_no_defaults():
    with pytest.raises(qd.OctantsSyntaxError, match="Default value in @dataclass"):

        @qd.dataclass
        class Point:
            x: qd.f32 = 3


def test_struct_arguments_with_other_members():
    pair = qd.types.struct(v=qd.types.vector(3, qd.f32))
    other = qd.types.struct(v=qd.types.vector(2, qd.f32))

    @qd.kernel
    def take(s: pair) -> qd.f32:
        return s.v.sum()

    assert take(pair([1, 2, 3])) == 6
    refused(take, other([1, 2]), error=qd.OctantsRuntimeTypeError, match="cannot be converted into required type")


def test_conditions_are_integers():
    @qd.kernel
    def branch(x: qd.f32) -> qd.i32:
        y = 0
        if x:
            y = 1
        return y

    @qd.kernel
    def choose(n: qd.i32):
        v = qd.Vector([n, 0])
        w = v if v else v + 1
        print(w)

    refused(branch, 1.0, error=qd.OctantsTypeError, match="`if` conditions must be an integer; found f32")
    refused(choose, 1, error=qd.OctantsSyntaxError, match="qd.select")


def test_logic_of_vectors_is_component_by_component():
    @qd.kernel
    def logic(a: qd.i32, b: qd.i32) -> qd.types.vector(4, qd.i32):
        v, w = qd.Vector([a, b]), qd.Vector([b, 3])
        x, y = v or w, v and w
        return qd.Vector([x[0], x[1], y[0], y[1]])

    assert logic(2, 0) == [1, 1, 0, 0]
    assert logic(4, 6) == [1, 1, 1, 1]


def test_leaving_unrolled_loops_at_run_time():
    @qd.kernel
    def leave(n: qd.i32):
        for i in qd.static(range(3)):  # noqa: B007
            if n > 1:
                break

    refused(leave, 1, error=qd.OctantsSyntaxError, match="`break` statement is inside a non-static `if`")


def test_parameters_cannot_be_rebound():
    x = qd.field(qd.i32, 3)

    @qd.kernel
    def rebind(a: qd.template(), b: qd.types.ndarray()):
        a = 3  # noqa: F841

    @qd.kernel
    def add(b: qd.types.ndarray()):
        b += 3

    refused(rebind, x, np.zeros(3), error=qd.OctantsSyntaxError, match='Kernel argument "a" is immutable')
    refused(add, np.zeros(3), error=qd.OctantsSyntaxError, match='Kernel argument "b" is immutable')


def test_kinds_of_parameters():
    with pytest.raises(qd.OctantsSyntaxError, match="do not support keyword parameters"):

        @qd.kernel
        def by_name(*, a: qd.i32):
            pass

    with pytest.raises(qd.OctantsSyntaxError, match="positional or keyword"):

        @qd.func
        def by_position(a, /):
            pass

    with pytest.raises(TypeError):
        qd.kernel(3)


def test_results_that_do_not_fit_their_annotation():
    @qd.kernel
    def shape() -> qd.types.vector(3, qd.f32):
        return qd.Vector([1, 2])

    @qd.kernel
    def axes() -> qd.types.vector(3, qd.f32):
        return qd.Matrix([[1, 2], [3, 4]])

    @qd.kernel
    def scalar() -> qd.i32:
        return qd.Vector([1, 2])

    @qd.kernel
    def nothing() -> qd.i32:
        pass

    refused(shape, error=qd.OctantsTypeError, match=r"shape mismatch, expecting=\(3,\), got=\(2,\)")
    refused(axes, error=qd.OctantsTypeError, match="ndim mismatch, expecting=1, got=2")
    refused(scalar, error=qd.OctantsTypeError, match="cannot be converted into required type i32")
    refused(nothing, error=qd.OctantsSyntaxError, match="does not have a return statement")


def test_targets_of_atomic_operations():
    x = qd.field(qd.i32, 3)

    @qd.kernel
    def of_an_argument(a: qd.i32):
        qd.atomic_add(a, 1)

    @qd.kernel
    def of_a_field():
        qd.atomic_cas(x, 0, 1)

    @qd.kernel
    def of_a_local():
        y = 3
        z = qd.volatile_load(y)
        print(z)

    refused(of_an_argument, 1, error=qd.OctantsSyntaxError, match="non-writable target as the first operand")
    refused(of_a_field, error=qd.OctantsSyntaxError, match="index it first")
    refused(of_a_local, error=qd.OctantsTypeError, match="requires a global lvalue")


def test_loop_options_appear_once_and_directly_before_the_loop():
    x = qd.field(qd.i32, (2, 3))

    @qd.kernel
    def grouped_twice():
        for i in qd.grouped(qd.grouped(x)):
            x[i] = 1

    @qd.kernel
    def static_inside():
        for i in qd.grouped(qd.static(qd.ndrange(2, 3))):
            x[i] = 1

    @qd.kernel
    def static_count():
        for i in qd.ndrange(qd.static(2)):
            x[i, 0] = 1

    @qd.kernel
    def static_counts():
        for i, j in qd.ndrange(qd.static(2), 3):
            x[i, j] += 1
        for i in qd.static(qd.grouped(qd.ndrange(2, 3))):
            x[i] += 1

    refused(grouped_twice, error=qd.OctantsSyntaxError, match="'qd.grouped' cannot be nested")
    refused(static_inside, error=qd.OctantsSyntaxError, match="'qd.static' is not allowed inside 'qd.grouped'")
    refused(static_count, error=qd.OctantsSyntaxError, match="No decorator is allowed inside 'qd.ndrange'")
    static_counts()
    assert (x.to_numpy() == 2).all()


def test_an_array_has_no_negative_index():
    a = qd.ndarray(qd.i32, 3)
    m = qd.ndarray(qd.i32, (3, 3))
    begins_below_zero = qd.field(qd.i32, 3, offset=-1)

    @qd.kernel
    def last(a: qd.types.ndarray()) -> qd.i32:
        return a[-1]

    @qd.kernel
    def corner(m: qd.types.ndarray()) -> qd.i32:
        return m[0, -1]

    @qd.kernel
    def of_a_vector(m: qd.types.ndarray()) -> qd.i32:
        return m[[0, -1]]

    @qd.kernel
    def of_a_field() -> qd.i32:
        return begins_below_zero[-1]

    for kernel, array in ((last, a), (corner, m), (of_a_vector, m)):
        refused(kernel, array, error=qd.OctantsSyntaxError, match="Negative indices are not supported")
    begins_below_zero[-1] = 7
    assert of_a_field() == 7


def test_unknown_attributes():
    @qd.data_oriented
    class Holder:
        def __init__(self):
            self.x = qd.ndarray(qd.i32, 3)

        @qd.kernel
        def step(self):
            for i in range(3):
                self.x[i] += 1

    @qd.kernel
    def of_a_number(a: qd.i32):
        b = a.nothing
        print(b)

    holder = Holder()
    holder.step()
    del holder.x
    refused(holder.step, error=AttributeError, match="'Holder' object has no attribute 'x'")
    refused(of_a_number, 3, error=AttributeError, match="no attribute `nothing`")


def test_static_assertions_of_run_time_values():
    @qd.kernel
    def check(n: qd.i32):
        qd.static_assert(n > 2, "too small")

    refused(check, 3, error=qd.OctantsTypeError, match="Static assert with non-static condition")


def test_large_unrolling_is_a_syntax_warning():
    @qd.kernel
    def long():
        for i in qd.static(range(40)):  # noqa: B007
            pass

    with pytest.warns(SyntaxWarning, match="unrolling more than 32 iterations"):
        long()


def test_views_of_arrays():
    data = qd.ndarray(qd.f32, 10)

    @qd.kernel
    def middle(a: qd.types.ndarray()):
        view = qd.BufferView(a, 2, 3)
        for i in range(view.size):
            view[i] = i + 1

    @qd.kernel
    def of_a_view(a: qd.types.ndarray()):
        part = a[2:5]
        view = qd.BufferView(part, offset=1, size=1)
        view[0] = 1

    middle(data)
    assert data.to_numpy()[2:5].tolist() == [1, 2, 3]
    refused(of_a_view, data, error=qd.OctantsTypeError, match="Cannot nest BufferView")
    with pytest.raises(TypeError, match="requires a slice"):
        list(data[2:5])


def test_tensors_of_another_kind():
    with pytest.raises(TypeError, match="requires a vector-element impl"):
        qd.VectorTensor(qd.ndarray(qd.f32, 3))
    tensor = qd.tensor(qd.f32, (2, 3), layout=(1, 0))
    tensor.fill(value=2)
    with pytest.raises(TypeError, match="requires a full tuple key"):
        tensor[0]
    with pytest.raises(TypeError, match="has 1 entries but rank is 2"):
        tensor[0,]
    assert tensor[1, 2] == 2


def test_options_and_types():
    with pytest.raises(KeyError, match="unsigned type of 'default_ip'"):
        qd.init(arch=qd.cpu, default_up=qd.u32)
    with pytest.raises(ValueError, match="use ndim"):
        qd.types.ndarray(field_dim=2)
    with pytest.raises(TypeError):
        qd.types.ndarray(dtype=qd.types.vector(3, qd.f32), element_dim=1)
    with pytest.raises(qd.OctantsSyntaxError):
        qd.types.vector(3, qd.f32)()
    with pytest.raises(AssertionError, match="correct dtype list"):
        qd.Vector.field(3, dtype=[qd.f32, qd.f32], shape=2)
    assert qd.max(3) == 3
    assert qd.types.struct(a=qd.i32, v=qd.types.vector(2, qd.f32)).filled_with_scalar(2).v == [2, 2]


def test_numbers_read_at_launch_are_not_static():
    @qd.data_oriented(template_primitives=False)
    class Counter:
        def __init__(self):
            self.n = 3

        @qd.kernel
        def unroll(self):
            for i in qd.static(range(self.n)):  # noqa: B007
                pass

    refused(Counter().unroll, error=qd.OctantsSyntaxError, match="cannot be used inside qd.static")


def test_a_program_with_a_field_that_was_never_placed():
    x, n = qd.field(qd.f32, 3), qd.ndarray(qd.f32, 3)
    before = qd.field(qd.f32, 2)
    before[0] = 1
    waiting = qd.field(qd.f32)
    for use in (qd.sync, lambda: x[0], lambda: x.fill(1), lambda: n[0], n.to_numpy):
        with pytest.raises(qd.OctantsRuntimeError, match="not placed"):
            use()
    # Kernels in use before still work.
    assert before[0] == 1
    qd.root.dense(qd.i, 4).place(waiting)
    qd.sync()
    assert x[0] == 0
    assert n.to_numpy().tolist() == [0, 0, 0]


def test_components_of_unpacked_vectors_are_named_at_compile_time():
    @qd.dataclass
    class Tile:
        r: qd.types.vector(4, qd.f32, unpacked=True)

    @qd.kernel
    def at_run_time(i: qd.i32) -> qd.f32:
        t = Tile()
        return t.r[i]

    @qd.kernel
    def outside() -> qd.f32:
        t = Tile()
        return t.r[4]

    @qd.kernel
    def inside() -> qd.f32:
        t = Tile()
        for i in qd.static(range(4)):
            t.r[i] = i
        return t.r[3]

    assert inside() == 3
    refused(at_run_time, 1, error=qd.OctantsSyntaxError, match="requires a python-int index")
    refused(outside, error=qd.OctantsSyntaxError, match="out of bounds")
    with pytest.raises(qd.OctantsSyntaxError, match="collides with"):

        @qd.dataclass
        class Twice:
            r: qd.types.vector(4, qd.f32, unpacked=True)
            _r1: qd.f32


def test_members_of_structs_are_numbers():
    s = qd.types.struct(a=qd.i32)(1)
    with pytest.raises(TypeError, match="A number is expected"):
        s.a = "x"
    assert s.a == 1


def test_a_call_of_a_plain_function_warns():
    def plain(x):
        return x + 1

    @qd.pyfunc
    def declared(x):
        return x + 1

    @qd.kernel
    def unrolled() -> qd.i32:
        total = 0
        for i in qd.static(range(3)):
            total += plain(i)
        return total

    @qd.kernel
    def no_warning(n: qd.i32) -> qd.i32:
        return qd.static(plain(2)) + declared(n)

    with pytest.warns(SyntaxWarning, match='Calling non-quadrants function "plain"') as seen:
        assert unrolled() == 6
    assert len(seen) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert no_warning(4) == 8


def test_attributes_that_vectors_do_not_have():
    @qd.kernel
    def unknown():
        v = qd.Vector([1, 2, 3])
        a = v.foo
        print(a)

    @qd.kernel
    def mixed():
        v = qd.Vector([1, 2, 3])
        print(v.xg)

    @qd.kernel
    def not_called():
        v = qd.Vector([1.0, 2.0])
        print(v.norm)

    for kernel, name in ((unknown, "foo"), (mixed, "xg"), (not_called, "norm")):
        refused(kernel, error=qd.OctantsAttributeError, match=f"has no attribute `{name}`")


def test_unsupported_literals():
    @qd.kernel
    def complex_number():
        a = 1j
        print(a)

    @qd.kernel
    def some_bytes():
        a = b"abc"
        print(a)

    for kernel, name in ((complex_number, "complex"), (some_bytes, "bytes")):
        refused(kernel, error=qd.OctantsTypeError, match=f"Invalid constant scalar data type: <class '{name}'>")


def test_coroutines():
    @qd.kernel
    async def waits():
        pass

    refused(waits, error=qd.OctantsSyntaxError, match='Unsupported node "AsyncFunctionDef"')


def test_floats_stored_to_integer_elements():
    x, v, m = qd.field(qd.i32, 2), qd.Vector.field(2, qd.i32, 2), qd.Matrix.field(2, 2, qd.i32, ())
    a, w = qd.ndarray(qd.i32, 2), qd.Vector.ndarray(2, qd.i32, 2)
    s = qd.Struct.field({"a": qd.i32}, shape=2)
    for whole, value in ((x, 2.7), (x, 2.0), (a, 2.7), (v, [1.5, 2]), (w, [1.5, 2.0]), (s, {"a": 2.5})):
        with pytest.raises(TypeError, match="integer"):
            whole[0] = value
    with pytest.raises(TypeError, match="integer"):
        v[0][1] = 2.7
    with pytest.raises(TypeError, match="integer"):
        w[0][1] = 2.7
    with pytest.raises(TypeError, match="integer"):
        m[None][0, 1] = 2.7
    with pytest.raises(TypeError, match="integer"):
        s[0].a = 2.7
    x[0], a[0], v[0], w[0] = np.float32(3.7), True, [1, np.int64(2)], qd.Vector([3, 4])
    x.fill(2.7)
    assert (x[0], a[0], v[0].to_list(), w[0].to_list()) == (2, 1, [1, 2], [3, 4])
    with pytest.raises(TypeError, match="integer"):
        qd.Vector.field(2.5, qd.f32, 3)


def test_division_by_zero_in_debug_mode():
    qd.init(arch=qd.cpu, debug=True)

    @qd.kernel
    def divide(a: qd.i32, b: qd.i32) -> qd.i32:
        return a // b

    @qd.kernel
    def modulo(a: qd.u32, b: qd.u32) -> qd.u32:
        return a % b

    @qd.kernel
    def vectors(b: qd.i32) -> qd.i32:
        v = qd.Vector([4, 6]) // qd.Vector([2, b])
        return v.sum()

    @qd.kernel
    def floats(a: qd.f32, b: qd.f32) -> qd.f32:
        return a / b

    assert (divide(7, -2), modulo(7, 4), vectors(3)) == (-4, 3, 4)
    with pytest.raises(qd.OctantsAssertionError, match="Integer division by zero"):
        divide(5, 0)
    with pytest.raises(qd.OctantsAssertionError, match="Integer modulo by zero"):
        modulo(5, 0)
    with pytest.raises(qd.OctantsAssertionError, match="Integer division by zero"):
        vectors(0)
    assert floats(1.0, 0.0) == np.inf


class Holder:
    def __init__(self, value):
        self.value = value


def test_classes_called_in_kernels():
    @qd.kernel
    def known() -> qd.i32:
        return Holder(3).value

    @qd.kernel
    def static() -> qd.i32:
        return qd.static(Holder(4).value)

    @qd.kernel
    def at_run_time(n: qd.i32) -> qd.i32:
        return Holder(n).value

    @qd.kernel
    def function_of_numpy(x: qd.f32) -> qd.f32:
        return np.cbrt(x)

    with pytest.warns(SyntaxWarning, match='Calling non-quadrants function "Holder"'):
        assert known() == 3
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert static() == 4
    with pytest.warns(SyntaxWarning):
        refused(at_run_time, 3, error=qd.OctantsTypeError, match="the class `Holder` cannot be called with run-time")
    refused(
        function_of_numpy, 3.0, error=qd.OctantsTypeError, match="`cbrt`, an object of type ufunc, cannot be called"
    )


def test_structs_are_set_from_dicts_and_read_by_the_names_of_members():
    inner = qd.types.struct(x=qd.f32)
    pair = qd.types.struct(a=qd.i32, v=qd.math.vec2, s=inner)
    field = pair.field(shape=2)

    @qd.kernel
    def assign(n: qd.i32) -> qd.f32:
        s = pair(2)
        s = {"a": n, "v": [1.0, n], "s": {"x": 0.5}}
        field[1] = {"s": inner(4.0), "v": qd.Vector([5.0, 6.0]), "a": 7}
        s["a"] += 10
        return s["a"] + s.v.y + s["s"]["x"] + field[1]["s"].x

    @qd.kernel
    def too_few():
        s = pair(2)
        s = {"a": 3}
        print(s.a)

    @qd.kernel
    def other_names():
        s = inner(2.0)
        s = {"y": 3}
        print(s.x)

    assert assign(3) == 13 + 3 + 0.5 + 4
    assert field[1].to_dict() == {"a": 7, "v": [5.0, 6.0], "s": {"x": 4.0}}
    refused(too_few, error=qd.OctantsTypeError, match="the dict has no key `v`")
    refused(other_names, error=qd.OctantsTypeError, match="the dict has no key `x`")


def test_unknown_names_of_modules_and_classes():
    @qd.kernel
    def of_module():
        qd.no_such_function(1)

    @qd.kernel
    def of_class():
        a = qd.Matrix.no_such_matrix(1)
        print(a)

    refused(of_module, error=AttributeError, match="module 'octants' has no attribute 'no_such_function'")
    refused(of_class, error=AttributeError, match="class 'Matrix' has no attribute 'no_such_matrix'")


def test_keywords_name_the_parameters_of_functions_for_kernels():
    x = qd.field(qd.i32, 3)

    @qd.kernel
    def named() -> qd.i32:
        for index in qd.grouped(x=x):
            qd.atomic_add(x=x[index], y=2)
        qd.atomic_max(x[0], y=7)
        return qd.atomic_cas(x=x[1], expected=2, desired=5) + qd.volatile_load(target=x[0])

    assert named() == 9
    assert x.to_numpy().tolist() == [7, 5, 2]

    @qd.kernel
    def unknown():
        qd.atomic_add(x[0], value=2)

    refused(unknown, error=qd.OctantsTypeError, match="`atomic_add` has no parameter `value`")

    @qd.kernel
    def unknown_of_ndrange():
        for i in qd.ndrange(3, order=(0,)):
            x[i] = 1

    refused(unknown_of_ndrange, error=qd.OctantsTypeError, match="unexpected keyword argument 'order'")


def test_loops_over_values_without_axes():
    x = qd.field(qd.i32, ())

    @qd.kernel
    def one_index():
        for i in x:
            x[i] = 1

    refused(one_index, error=qd.OctantsCompilationError, match=r"loop variable dimensionality \(1 != 0\)")

    @qd.kernel
    def grouped():
        for index in qd.grouped(x):
            x[index] = 9

    grouped()
    assert x[None] == 9


def test_inconsistent_results():
    @qd.func
    def first_is_whole(n):
        if n > 2:
            return 1
        return 2.5

    @qd.func
    def too_few() -> tuple[qd.i32, qd.f32]:
        return 1

    @qd.kernel
    def truncates(n: qd.i32) -> qd.f32:
        return first_is_whole(n)

    @qd.kernel
    def unpacks() -> qd.f32:
        a, b = too_few()
        return a + b

    refused(truncates, 1, error=qd.OctantsTypeError, match="(?s)return 2.5.*gives f32, but an earlier one.*gives i32")
    refused(unpacks, error=qd.OctantsTypeError, match="(?s)return 1.*returns one value, but its annotation has 2")


def test_members_that_a_dataclass_lacks_are_named():
    @dataclasses.dataclass
    class Given:
        x: qd.types.NDArray[qd.f32, 1]

    @dataclasses.dataclass
    class Wanted:
        y: qd.types.NDArray[qd.f32, 1]

    @qd.func
    def use(s: Wanted):
        s.y[0] = 1.0

    @qd.kernel
    def run(s: Given):
        use(s)

    match = "(?s)s.y.*the dataclass `Given` has no member `y`.*members `x`"
    refused(run, Given(qd.ndarray(qd.f32, 2)), error=qd.OctantsAttributeError, match=match)


def test_invalid_element_types_and_axes():
    for make in (
        lambda: qd.Vector.ndarray(2, [qd.f32, qd.i32], shape=2),
        lambda: qd.Matrix.ndarray(2, 2, [qd.f32, qd.i32], shape=2),
        lambda: qd.types.vector(2, [qd.f32]),
        lambda: qd.types.matrix(2, 2, [qd.f32]),
    ):
        with pytest.raises(ValueError, match="Invalid data type .f32"):
            make()
    with pytest.raises(ValueError, match="ndim of an array parameter must be at least 0, got -1"):
        qd.types.ndarray(ndim=-1)
    with pytest.raises(TypeError, match="ndim of an array parameter must be an integer, got 1.5"):
        qd.types.NDArray[qd.f32, 1.5]


def test_whole_arrays_are_refused_as_conditions():
    flag = qd.field(qd.i32, ())
    array = qd.ndarray(qd.i32, 3)

    @qd.kernel
    def of_a_field() -> qd.i32:
        n = 0
        if flag:
            n = 1
        return n

    @qd.kernel
    def of_a_parameter(x: qd.types.NDArray[qd.i32, 1]):
        if x:
            x[0] = 1

    for kernel, args, found in ((of_a_field, (), "a field"), (of_a_parameter, (array,), "an array")):
        refused(kernel, *args, error=qd.OctantsTypeError, match=f"is {found}, which has no truth value")


def test_functions_return_a_value_on_all_paths_or_none():
    @qd.func
    def sometimes(x: qd.i32):
        if x > 0:
            return
        return 3

    @qd.kernel
    def run(x: qd.i32) -> qd.i32:
        return sometimes(x)

    refused(
        run,
        1,
        error=qd.OctantsSyntaxError,
        match="(?s)return 3.*has a value, but an earlier one of the function has none",
    )


def test_fields_are_refused_as_operands_in_python():
    x = qd.field(qd.f32, 2)
    for call in (lambda: qd.sin(x), lambda: qd.max(x, 1.0), lambda: qd.atan2(1.0, x), lambda: qd.floor(x)):
        with pytest.raises(TypeError, match="ScalarField"):
            call()
    assert qd.sin(np.float32(0)) == 0


def test_messages_about_results():
    S = qd.types.struct(a=qd.i32)
    T = qd.types.struct(b=qd.f32)

    @qd.kernel
    def other_struct() -> S:
        return T(b=1.0)

    @qd.kernel
    def text() -> str:
        return "a"

    @qd.kernel
    def one_of_two() -> tuple[qd.i32, qd.f32]:
        return 1

    refused(other_struct, error=qd.OctantsTypeError, match=r"\(type=struct of b: f32\) .* type struct of a: i32")
    refused(text, error=qd.OctantsTypeError, match="`str` is not a type that kernels support")
    refused(one_of_two, error=qd.OctantsTypeError, match="the kernel returns one value, but its annotation has 2")


def test_an_unknown_attribute_of_a_vector_gets_no_advice_to_call_it():
    x = qd.field(qd.i32, ())

    @qd.kernel
    def unknown():
        x[None] = qd.Vector([1, 2]).foo

    @qd.kernel
    def method():
        x[None] = qd.Vector([1, 2]).sum

    with pytest.raises(AttributeError, match="has no attribute `foo`") as raised:
        unknown()
    assert "help" not in str(raised.value)
    refused(method, error=AttributeError, match=r"call the method: `sum\(\)`")


def test_graph_conditions_cannot_be_combined():
    counter, several = qd.field(qd.i32, ()), qd.Vector.field(2, qd.i32, ())

    @qd.kernel(graph=True)
    def combined(n: qd.i32):
        while qd.graph.do_while(counter) and n > 1:
            counter[None] = 0

    @qd.kernel(graph=True)
    def of_vector():
        if qd.graph.cond(several):
            counter[None] = 0

    refused(combined, 3, error=qd.OctantsSyntaxError, match=r"do_while\(...\) must be the whole condition of a `while`")
    refused(of_vector, error=qd.OctantsTypeError, match="the array must be a 0-dimensional i32 ndarray")


def test_membership_tests_in_variables_get_advice():
    @qd.kernel
    def search() -> qd.i32:
        a = [1, 2]
        r = 0
        if qd.static(1 in a):
            r = 1
        return r

    refused(search, error=qd.OctantsTypeError, match=r"keep the list at compile time: `a = qd\.static\(\[1, 2\]\)`")


def test_library_functions_are_named_as_they_are_called():
    x, total, scratch = qd.field(qd.i32, 8), qd.field(qd.i32, 1), qd.field(qd.u32, 1024)

    @qd.kernel
    def reduce():
        qd.algorithms.reduce_add(x, total, scratch, 8, 1)

    @qd.kernel
    def scan():
        qd.algorithms.exclusive_scan_add(x, total, scratch, 8, 1)

    refused(reduce, error=qd.OctantsSyntaxError, match="Missing argument 'log256_max_n' of `reduce_add`")
    refused(scan, error=qd.OctantsSyntaxError, match="Missing argument 'log256_max_n' of `exclusive_scan_add`")
    with pytest.raises(qd.OctantsScopeError, match="`zeros` is a @qd.func"):
        qd.simt.Tile16x16.zeros(dtype=qd.f32)


def test_functions_on_fields_in_python_are_refused():
    x = qd.field(qd.f32, 4)
    for call in (lambda: qd.sin(x), lambda: qd.floor(x), lambda: qd.max(x, x), lambda: qd.pow(x, 2)):
        with pytest.raises(qd.OctantsTypeError, match="ScalarField is no operand of mathematical functions in Python"):
            call()
    assert [type(qd.max(1.5, 2)), type(qd.min(2, 2.5)), type(qd.max(1, 2))] == [float, float, int]


def test_atomic_operations_on_bits_take_integers():
    x = qd.field(qd.i32, ())

    @qd.kernel
    def bits():
        qd.atomic_and(x[None], 1.5)

    refused(bits, error=qd.OctantsTypeError, match="'atomic_and' requires integer operands, got f32")


def test_tiles_are_loaded_by_slice_assignment():
    f = qd.field(qd.f32, (16, 16))

    @qd.kernel
    def load():
        qd.loop_config(block_dim=32)
        for _ in range(32):
            t = qd.simt.Tile16x16.zeros(dtype=qd.f32)
            t = f[0:16, 0:16]
            f[0:16, 0:16] = t

    refused(load, error=qd.OctantsSyntaxError, match=r"load the slice into the tile: `t\[:\] = a\[r0:r1, c0:c1\]`")


def test_structs_have_the_members_of_their_type():
    S = qd.types.struct(a=qd.i32, b=qd.f32)
    for call, message in (
        (lambda: S(1, 2, 3), "has 2 members, but 3 values are given"),
        (lambda: S(a=1, zz=2), "has no member `zz`"),
    ):
        with pytest.raises(qd.OctantsTypeError, match=message):
            call()


@qd.func
def inverse_of(m):
    return m.inverse()


def test_mistakes_found_in_the_package_show_the_users_lines():
    x = qd.field(qd.f32, 64, needs_grad=True)

    @qd.kernel
    def invert():
        print(inverse_of(qd.Matrix([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])))

    @qd.kernel
    def mixed():
        print(qd.math.mix(qd.Vector([1.0, 2.0]), qd.Vector([1.0, 2.0, 3.0]), 0.5))

    @qd.func
    def largest(value):
        return qd.atomic_max(x[0], value)

    @qd.kernel
    def differentiated():
        for i in x:
            x[i] = largest(x[i])

    def message_of(call):
        with pytest.raises(qd.OctantsCompilationError) as raised:
            call()
        return str(raised.value).strip().split("\n")

    lines = message_of(invert)
    files = [line for line in lines if line.startswith("File")]
    assert len(files) == 2
    assert all("test_language_misuse.py" in line for line in files)
    assert files[0].endswith("in invert:")
    assert files[1].endswith("in inverse_of:")
    assert lines[-3].startswith("Static assertion failed: expected a square matrix")
    assert lines[-2].startswith("  note: reported by `_check_square`, at ")
    assert lines[-1].startswith("    static_assert(")
    lines = message_of(mixed)
    assert [line.split(", in ")[1] for line in lines if line.startswith("File")] == ["mixed:"]
    assert "  note: reported by `mix`, at " in lines[-2]
    # Found after lowering, in code that is inlined by then.
    lines = message_of(differentiated.grad)
    first = differentiated.fn.__code__.co_firstlineno
    assert f"line {first + 3}:" in lines[0]
    assert "largest(x[i])" in lines[1]
    assert "return qd.atomic_max" in lines[4]


def test_syntax_errors_of_code_that_runs_at_compile_time_are_syntax_errors():
    lanes = qd.types.vector(4, qd.f32, unpacked=True)

    @qd.kernel
    def instantiate() -> qd.f32:
        x = lanes(1.0)
        return x[0]

    refused(instantiate, error=qd.OctantsSyntaxError, match="cannot instantiate a vector declared with unpacked=True")
