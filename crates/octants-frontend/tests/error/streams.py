"""Where `qd.stream_parallel()` cannot be."""

import octants as qd

x = qd.field(qd.f32, shape=4)
y = qd.field(qd.f32, shape=4)


@qd.func
def with_block(n):
    with qd.stream_parallel():  #~ ERROR can only be used inside @qd.kernel, not @qd.func
        for i in range(n):
            x[i] = 1


@qd.kernel
def mixed(n: qd.i32):
    with qd.stream_parallel():
        for i in range(n):
            x[i] = 1
    for i in range(n):  #~ ERROR all top-level statements must be 'with qd.stream_parallel():' blocks #~ AT i in range(n) #~ HINT separate kernel
        y[i] = 1


@qd.kernel
def mixed_before(n: qd.i32):
    x[0] = 1  #~ ERROR all top-level statements must be
    with qd.stream_parallel():
        for i in range(n):
            x[i] = 1


@qd.kernel
def nested(n: qd.i32):
    with qd.stream_parallel():
        with qd.stream_parallel():  #~ ERROR Nested 'with qd.stream_parallel()' blocks are not supported
            for i in range(n):
                x[i] = 1


@qd.kernel
def in_a_loop(n: qd.i32):
    for i in range(n):
        with qd.stream_parallel():  #~ ERROR must be at the top level
            x[i] = 1


@qd.kernel
def in_a_branch(n: qd.i32):
    if n > 0:
        with qd.stream_parallel():  #~ ERROR must be at the top level
            x[0] = 1


@qd.kernel
def in_a_loop_of_a_static_branch(n: qd.i32):
    if qd.static(True):
        for k in range(n):
            with qd.stream_parallel():  #~ ERROR must be at the top level
                x[0] = 1


@qd.kernel
def in_a_function(n: qd.i32):
    with_block(n)


@qd.kernel
def as_target(n: qd.i32):
    with qd.stream_parallel() as s:  #~ ERROR 'with ... as ...' is not supported #~ AT qd.stream_parallel() as s
        x[0] = 1


@qd.kernel
def several(n: qd.i32):
    with qd.stream_parallel(), qd.stream_parallel():  #~ ERROR only supports a single context manager
        x[0] = 1


@qd.kernel
def other_manager(n: qd.i32):
    with qd.opaque():  #~ ERROR only supports qd.stream_parallel()
        x[0] = 1


@qd.kernel
def not_a_call(n: qd.i32):
    with qd.stream_parallel:  #~ ERROR requires a call expression
        x[0] = 1


@qd.kernel
def positional(n: qd.i32):
    with qd.stream_parallel(3):  #~ ERROR takes no arguments except `allow_overlap`
        x[0] = 1


@qd.kernel
def unknown_option(n: qd.i32):
    with qd.stream_parallel(overlap=True):  #~ ERROR takes no arguments except `allow_overlap`
        x[0] = 1


@qd.kernel
def returns(n: qd.i32) -> qd.i32:
    with qd.stream_parallel():
        return n  #~ ERROR `return` is not supported in a kernel with qd.stream_parallel()


@qd.kernel
def returns_after(n: qd.i32) -> qd.i32:
    with qd.stream_parallel():
        x[0] = 1
    return n  #~ ERROR all top-level statements must be


@qd.kernel
def as_an_expression(n: qd.i32):
    qd.stream_parallel()  #~ ERROR write `with qd.stream_parallel():`
