"""Operands, indices, arguments of operations of the wrong type."""

import octants as qd

x = qd.field(qd.f32, shape=(4, 4))
n = qd.field(qd.i32, shape=())
v = qd.Vector.field(3, qd.f32, shape=4)
vec2 = qd.types.vector(2, qd.f32)
vec3 = qd.types.vector(3, qd.f32)
mat2 = qd.types.matrix(2, 2, qd.f32)
mat23 = qd.types.matrix(2, 3, qd.f32)
P = qd.types.struct(a=qd.i32, b=vec2)
Q = qd.types.struct(a=qd.i32)


@qd.kernel
def shapes_differ(a: vec2, b: vec3):
    c = a + b  #~ ERROR unsupported operand type(s) for '+': '[Tensor (2) f32]' and '[Tensor (3) f32]' #~ HINT the shapes (2,) and (3,) differ #~ AT a + b


@qd.kernel
def matrix_product(a: mat23, b: mat2):
    c = a @ b  #~ ERROR dimension mismatch between #~ HINT the left operand must have #~ AT a @ b


@qd.kernel
def scalar_product(a: qd.f32, b: qd.f32):
    c = a @ b  #~ ERROR unsupported operand type(s) for '@': 'f32' and 'f32' #~ AT a @ b


@qd.kernel
def bits_of_floats(a: qd.f32):
    b = a & 1  #~ ERROR unsupported operand type(s) for '&': 'f32' and 'i32' #~ AT a & 1


@qd.kernel
def shift_of_floats(a: qd.f32):
    b = a << 1  #~ ERROR unsupported operand type(s) for '<<': 'f32' and 'i32' #~ AT a << 1


@qd.kernel
def invert_float(a: qd.f32):
    b = ~a  #~ ERROR 'bit_not' takes integral inputs only #~ AT ~a


@qd.kernel
def struct_operand(p: P):
    b = p + 1  #~ ERROR unsupported operand type for `+` #~ AT p + 1


@qd.kernel
def string_operand(a: qd.i32):
    b = a + "s"  #~ ERROR unsupported operand type for `+`: a string #~ AT a + "s"


@qd.kernel
def none_operand(a: qd.i32):
    b = a * None  #~ ERROR unsupported operand type for `*`: None


@qd.kernel
def field_operand(a: qd.i32):
    b = a - x  #~ ERROR unsupported operand type for `-` #~ AT a - x


@qd.kernel
def compares_field(a: qd.i32):
    b = a < x  #~ ERROR unsupported operand type for `<`


@qd.kernel
def negates_field():
    b = -x  #~ ERROR cannot be used as a value #~ AT -x


@qd.kernel
def too_few_indices():
    x[1] = 0  #~ ERROR Field with dim 2 accessed with indices of dim 1 #~ AT x[1] #~ HINT give 2 indices


@qd.kernel
def too_many_indices() -> qd.f32:
    return x[1, 2, 3]  #~ ERROR Field with dim 2 accessed with indices of dim 3 #~ AT x[1, 2, 3]


@qd.kernel
def zero_d_needs_none() -> qd.i32:
    return n[1]  #~ ERROR `n` takes 0 indices #~ HINT x[None]


@qd.kernel
def array_indices(a: qd.types.ndarray(qd.f32, 2)) -> qd.f32:
    return a[0]  #~ ERROR `a` takes 2 indices


@qd.kernel
def float_index(f: qd.f32):
    x[f, 0] = 1  #~ ERROR indices must be integers, however 'f32' is provided #~ AT x[f, 0] #~ HINT int(x)


@qd.kernel
def float_literal_index():
    x[1.5, 0] = 1  #~ ERROR indices must be integers


@qd.kernel
def float_component(a: vec3, f: qd.f32) -> qd.f32:
    return a[f]  #~ ERROR indices must be integers


@qd.kernel
def vector_index_of_floats(p: vec2):
    x[p] = 1  #~ ERROR indices must be integers


@qd.kernel
def struct_index(p: P):
    x[p, 0] = 1  #~ ERROR an index must be an integer, not struct


@qd.kernel
def slices_a_field():
    a = x[0:2, 1]  #~ ERROR arrays and fields cannot be sliced


@qd.kernel
def component_outside(a: vec3) -> qd.f32:
    return a[3]  #~ ERROR index 3 is out of bounds for an axis of 3 components #~ AT a[3]


@qd.kernel
def component_from_behind(a: vec3) -> qd.f32:
    return a[-1]  #~ ERROR Negative indices are not supported


@qd.kernel
def swizzle_outside(a: vec2) -> qd.f32:
    return a.z  #~ ERROR vec2 only has attributes=('x', 'y'), got=('z',) #~ AT a.z


@qd.kernel
def component_indices(a: mat2) -> qd.f32:
    return a[0, 1, 2]  #~ ERROR Expected 2 indices, got 3


@qd.kernel
def vector_indices() -> qd.i32:
    v = qd.Vector([1, 2])
    return v[0, 1]  #~ ERROR Expected 1 indices, got 2


@qd.kernel
def vector_transpose() -> qd.i32:
    v = qd.Vector([1, 2])
    return v.transpose()[0, 0]  #~ ERROR cannot apply to a vector


@qd.kernel
def attribute_without_use():
    v = qd.Vector([1, 2])
    v.foo  #~ ERROR has no attribute `foo` #~ AT v.foo


@qd.kernel
def indexes_scalar(a: qd.i32) -> qd.i32:
    return a[0]  #~ ERROR i32 cannot be indexed #~ AT a[0]


@qd.kernel
def tuple_outside() -> qd.i32:
    t = (1, 2)
    return t[2]  #~ ERROR list index out of range: 2 of 2 items


@qd.kernel
def empty_slice(a: vec3):
    b = a[2:1]  #~ ERROR this slice is empty


@qd.kernel
def slice_at_run_time(a: vec3, i: qd.i32):
    b = a[0:i]  #~ ERROR the bounds of a slice must be known at compile time


@qd.kernel
def slice_step_zero(a: vec3):
    b = a[::0]  #~ ERROR slice step cannot be zero


@qd.kernel
def wrong_vector(a: vec2):
    b = vec3(0.0)
    b = a  #~ ERROR cannot assign '[Tensor (2) f32]' to '[Tensor (3) f32]'


@qd.kernel
def vector_to_scalar(a: vec2):
    b = 1.0
    b = a  #~ ERROR cannot assign '[Tensor (2) f32]' to 'f32'


@qd.kernel
def scalar_element(a: vec2):
    x[0, 0] = a  #~ ERROR cannot assign '[Tensor (2) f32]' to 'f32'


@qd.kernel
def struct_to_scalar(p: P):
    b = 1.0
    b = p  #~ ERROR struct


@qd.kernel
def other_struct(p: P, q: Q):
    r = p
    r = q  #~ ERROR cannot assign a value of type struct


@qd.kernel
def string_to_scalar():
    b = 1.0
    b = "s"  #~ ERROR a string cannot be used as a value


@qd.kernel
def annotated_type(a: qd.f32):
    b = 1
    b: qd.f32 = a  #~ ERROR type overloading


@qd.kernel
def bad_annotation(a: qd.f32):
    b: x = a  #~ ERROR is not a type that kernels support


@qd.kernel
def annotated_static(a: qd.f32):
    b: qd.i32 = qd.static(1)  #~ ERROR Static assign cannot be used on annotated assignment


@qd.kernel
def ragged():
    m = qd.Matrix([[1, 2], [3]])  #~ ERROR all rows of a matrix must have the same length


@qd.kernel
def empty_row():
    m = qd.Matrix([[]])  #~ ERROR at least one component


@qd.kernel
def vector_of_number(a: qd.i32):
    m = qd.Vector(a)  #~ ERROR take a list of components


@qd.kernel
def wrong_component_count(a: vec2):
    b = vec3(a)  #~ ERROR it has 3 components, but 2 are given #~ AT vec3(a)


@qd.kernel
def dot_of_lengths(a: vec2, b: vec3) -> qd.f32:
    return a.dot(b)  #~ ERROR required shapes to be the same


@qd.kernel
def cross_of_lengths(a: vec2, b: vec3) -> qd.f32:
    return a.cross(b).x  #~ ERROR required shapes to be the same


@qd.kernel
def trace_of_rectangle(a: mat23) -> qd.f32:
    return a.trace()  #~ ERROR expected a square matrix, got shape


@qd.kernel
def unknown_method(a: vec3) -> qd.f32:
    return a.lenght()  #~ ERROR [Tensor (3) f32] has no method `lenght` #~ AT a.lenght()


@qd.kernel
def unknown_member(p: P) -> qd.f32:
    return p.c  #~ ERROR no member or method `c` #~ AT p.c


@qd.kernel
def struct_keyword() -> qd.i32:
    return P(a=1, c=2).a  #~ ERROR has no member `c`


@qd.kernel
def struct_count() -> qd.i32:
    return Q(1, 2).a  #~ ERROR has 1 members, but 2 values are given


@qd.kernel
def calls_a_number(a: qd.i32) -> qd.i32:
    return a(1)  #~ ERROR i32 cannot be called #~ AT a(1)


@qd.kernel
def math_of_a_field() -> qd.f32:
    return qd.sin(x)  #~ ERROR sin #~ AT qd.sin(x)


@qd.kernel
def math_arity(a: qd.f32) -> qd.f32:
    return qd.sin(a, a)  #~ ERROR sin


@qd.kernel
def popcnt_of_float(a: qd.f32) -> qd.i32:
    return qd.popcnt(a)  #~ ERROR popcnt


@qd.kernel
def atomic_on_a_value(a: qd.f32) -> qd.f32:
    return qd.atomic_add(a + 1, 1)  #~ ERROR first operand of 'atomic_add' #~ HINT an element of an array


@qd.kernel
def atomic_on_a_field() -> qd.f32:
    return qd.atomic_add(x, 1)  #~ ERROR first operand of 'atomic_add'


@qd.kernel
def atomic_bits_of_float():
    qd.atomic_or(x[0, 0], 1)  #~ ERROR 'atomic_or' requires integer operands


@qd.kernel
def augmented_bits_of_float():
    x[0, 0] |= 1  #~ ERROR unsupported operand type(s) for '|' #~ AT x[0, 0] |= 1


@qd.kernel
def literal_range() -> qd.i32:
    return 3_000_000_000  #~ ERROR exceeded the range of default_ip


@qd.kernel
def typed_literal_range() -> qd.i32:
    return qd.u8(256)  #~ ERROR exceeded the range of specified dtype: u8


@qd.kernel
def typed_literal_kind() -> qd.i32:
    return qd.i32(1.5)  #~ ERROR Floating-point literals must be annotated


@qd.kernel
def unpack_count(a: vec3):
    p, q = a  #~ ERROR 2 targets, 3 values


@qd.kernel
def unpack_number(a: qd.i32):
    p, q = a  #~ ERROR Cannot unpack type: i32


@qd.kernel
def unpack_matrix(a: mat2):
    p, q = a  #~ ERROR cannot be unpacked


@qd.kernel
def condition_of_vector(a: vec2):
    if a > 0:  #~ ERROR `if` conditions must be an integer; found [Tensor (2) u1] #~ AT a > 0 #~ HINT x.any()
        pass


@qd.kernel
def condition_of_struct(p: P):
    if p:  #~ ERROR `if` conditions must be an integer; found struct #~ AT p
        pass


@qd.kernel
def while_of_vector(a: vec2):
    while a:  #~ ERROR `while` conditions must be an integer; found [Tensor (2) f32] #~ AT a
        pass


@qd.kernel
def branches_differ(a: qd.i32, p: P):
    b = 1 if a > 0 else p  #~ ERROR the two sides of a conditional expression are i32 and struct


@qd.kernel
def bit_cast_width(a: qd.f32):
    b = qd.bit_cast(a, qd.i64)  #~ ERROR bit_cast


@qd.kernel
def cast_to_value(a: qd.f32):
    b = qd.cast(a, 3)  #~ ERROR an int is not a type


@qd.kernel
def what_a_view_is_of(v: qd.types.ndarray(qd.f32, 1)):
    v.get_ndarray()[0] = 1.0  #~ ERROR `v` is an array without `get_ndarray`: only a `qd.BufferView` has it #~ HINT annotate the parameter
