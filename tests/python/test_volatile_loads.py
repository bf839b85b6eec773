"""`qd.volatile_load`: each load happens, in program order, regardless of optimization."""

import re

import pytest

import octants as qd


@pytest.fixture(autouse=True)
def program():
    qd.init(arch=qd.cpu)
    yield
    qd.reset()


@qd.func
def flag(flags: qd.template(), i):
    return qd.volatile_load(flags[i])


@qd.kernel
def wait(flags: qd.types.ndarray(qd.i32, 1), out: qd.types.ndarray(qd.i32, 1)):
    for i in range(4):
        while flag(flags, i) == 0:
            pass
        out[i] = flags[i]


@pytest.mark.parametrize(
    ("target", "instruction"),
    [
        ("cpu", ""),
        ("aarch64", r"ldr\s+w\d+, \[x\d+, x\d+, lsl #2\]"),
        ("sm_90", r"ld\.volatile\.global"),
        ("gfx90a", r"(flat|global)_load_dword .* glc"),
    ],
)
def test_a_polling_loop_loads_again(target, instruction):
    arrays = qd.ndarray(qd.i32, 4), qd.ndarray(qd.i32, 4)
    code = qd.inspect(wait, *arrays, target=target, emit=("ir", "llvm", "asm"))
    assert "volatile_load" in code["ir"]
    # Each is in a block that the loop repeats.
    blocks = dict(re.findall(r"^([\w.]+):(.*?)(?=^[\w.]+:|^})", code["llvm"], re.DOTALL | re.MULTILINE))
    follow = {name: set(re.findall(r"label %([\w.]+)", text)) for name, text in blocks.items()}
    loads = [name for name, text in blocks.items() if "load volatile i32" in text]
    assert loads
    for name in loads:
        reached = set(follow[name])
        while further := {to for at in reached for to in follow[at]} - reached:
            reached |= further
        assert name in reached, code["llvm"]
    assert re.search(instruction, code["asm"]), code["asm"]


def test_every_volatile_load_is_kept():
    x = qd.field(qd.i32, shape=4)
    v = qd.Vector.field(3, qd.f32, shape=2)
    flags = qd.field(qd.u1, shape=2)

    @qd.kernel
    def read() -> qd.i32:
        a = qd.volatile_load(x[1]) + qd.volatile_load(x[1])
        qd.volatile_load(x[2])
        b = qd.volatile_load(v[0]).sum()
        return a + qd.i32(b) + qd.i32(qd.volatile_load(flags[1]))

    x.fill(5)
    v.fill(2.0)
    flags[1] = True
    assert read() == 5 + 5 + 6 + 1
    text = qd.inspect(read, target="cpu", emit="llvm")
    assert len(re.findall(r"load volatile i32", text)) == 3
    assert len(re.findall(r"load volatile float", text)) == 3
    assert len(re.findall(r"load volatile i8", text)) == 1


def test_a_function_that_only_polls_is_kept():
    x = qd.field(qd.i32, shape=())

    @qd.func
    def arrived(flags: qd.template()):
        while qd.volatile_load(flags[None]) == 0:
            pass

    @qd.kernel
    def pass_by():
        arrived(x)
        x[None] += 1

    x[None] = 1
    pass_by()
    assert x[None] == 2
    assert "load volatile" in qd.inspect(pass_by, target="cpu", emit="llvm")


def test_only_elements_are_accepted():
    @qd.kernel
    def of_a_variable() -> qd.i32:
        a = 1
        return qd.volatile_load(a)

    @qd.kernel
    def of_a_number() -> qd.i32:
        return qd.volatile_load(1)

    for kernel in (of_a_variable, of_a_number):
        with pytest.raises(qd.OctantsCompilationError, match="volatile_load"):
            kernel()


def test_gradients_treat_it_as_a_load():
    x = qd.field(qd.f32, shape=3, needs_grad=True)
    loss = qd.field(qd.f32, shape=(), needs_grad=True)

    @qd.kernel
    def square():
        for i in x:
            loss[None] += qd.volatile_load(x[i]) ** 2

    for i in range(3):
        x[i] = i
    loss.grad[None] = 1.0
    square()
    square.grad()
    assert loss[None] == 5.0
    assert x.grad.to_numpy().tolist() == [0.0, 2.0, 4.0]
