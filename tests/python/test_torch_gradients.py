"""Kernels in torch's autograd: tensors with gradients as arguments, tapes over them, and the wrapper."""

import numpy as np
import pytest

import octants as qd

torch = pytest.importorskip("torch")


@pytest.fixture(autouse=True)
def program():
    qd.init(arch=qd.cpu)
    yield
    qd.reset()


@qd.kernel
def square(x: qd.types.ndarray(), y: qd.types.ndarray()):
    for i in x:
        y[i] += x[i] * x[i]


def test_gradients_are_stored_in_the_tensors():
    x = torch.arange(4.0, requires_grad=True)
    y = torch.zeros(4, requires_grad=True)
    square(x, y)
    assert x.grad.tolist() == [0] * 4  # made by the launch
    y.grad.fill_(1)
    address = x.grad.data_ptr()
    square.grad(x, y)
    assert x.grad.tolist() == [0, 2, 4, 6]
    assert x.grad.data_ptr() == address
    y.grad = torch.ones(1).expand(4)
    square.grad(x, y)
    assert x.grad.tolist() == [0, 4, 8, 12]


def test_plain_tensors_are_constants():
    x = torch.arange(4.0)
    y = torch.zeros(4, requires_grad=True)
    square(x, y)
    y.grad.fill_(1)
    square.grad(x, y)
    assert x.grad is None


def test_strided_tensors_and_elements():
    @qd.kernel
    def weigh(
        x: qd.types.ndarray(dtype=qd.types.vector(2, qd.f32), ndim=1), w: qd.types.ndarray(), y: qd.types.ndarray()
    ):
        for i in x:
            y[0] += x[i].dot(x[i]) * w[i]

    base = torch.arange(12.0).reshape(6, 2)
    x = base[::2].detach().requires_grad_()
    w = torch.arange(6.0)[1::2].detach().requires_grad_()
    y = torch.zeros(1, requires_grad=True)
    with qd.ad.Tape(loss=y):
        weigh(x, w, y)
    np.testing.assert_allclose(x.grad, 2 * x.detach() * w.detach()[:, None])
    np.testing.assert_allclose(w.grad, (x.detach() ** 2).sum(1))


def test_tape_of_tensors():
    x = torch.full((3,), 2.0, requires_grad=True)
    loss = torch.zeros((), requires_grad=True)

    @qd.kernel
    def total(x: qd.types.ndarray(), loss: qd.types.ndarray()):
        for i in x:
            loss[None] += x[i] ** 3

    for _ in range(2):
        x.grad = None
        with qd.ad.Tape(loss):
            total(x, loss)
        assert loss.item() == 24
        assert x.grad.tolist() == [12] * 3
    with pytest.raises(RuntimeError, match="must be a tensor only contains one element"):
        qd.ad.Tape(x).__enter__()
    with pytest.raises(RuntimeError, match="please set requires_grad=True"):
        qd.ad.Tape(torch.zeros(1)).__enter__()


def test_wrapper_agrees_with_torch():
    qd.init(arch=qd.cpu, default_fp=qd.f64)

    @qd.kernel
    def layer(x: qd.types.ndarray(), w: qd.types.ndarray(), scale: qd.f64, y: qd.types.ndarray()):
        for i, j in y:
            s = 0.0
            for k in range(x.shape[1]):
                s += x[i, k] * w[k, j]
            y[i, j] = qd.tanh(s) * scale

    apply = qd.ad.torch_function(layer, outputs={"y": lambda x, w, scale: (x.shape[0], w.shape[1])})
    x = torch.rand(3, 4, dtype=torch.double, requires_grad=True)
    w = torch.rand(4, 2, dtype=torch.double, requires_grad=True)
    y = apply(x, w, 0.5)
    np.testing.assert_allclose(y.detach(), (torch.tanh(x @ w) * 0.5).detach(), rtol=1e-12)
    assert torch.autograd.gradcheck(lambda x, w: apply(x, w, scale=0.5), (x, w))
    (apply(x * 2, w, 0.5) * 3).sum().backward()
    expected = torch.autograd.grad((torch.tanh((x * 2) @ w) * 1.5).sum(), [x, w])
    np.testing.assert_allclose(x.grad, expected[0], rtol=1e-9)
    np.testing.assert_allclose(w.grad, expected[1], rtol=1e-9)
    assert apply(x.detach(), w.detach(), 0.5).requires_grad is False


def test_wrapper_with_several_outputs_and_methods():
    @qd.data_oriented
    class Model:
        def __init__(self, factor):
            self.factor = factor

        @qd.kernel
        def both(self, x: qd.types.ndarray(), twice: qd.types.ndarray(), total: qd.types.ndarray()):
            for i in x:
                twice[i] = self.factor * x[i]
                total[None] += x[i] * x[i]

    run = qd.ad.torch_function(Model(2.0).both, outputs={"twice": None, "total": ()})
    x = torch.arange(3.0, requires_grad=True)
    twice, total = run(x)
    assert twice.tolist() == [0, 2, 4]
    assert total.item() == 5
    total.backward()  # nothing comes from the other output
    assert x.grad.tolist() == [0, 2, 4]


def test_wrapper_reports_misuse():
    with pytest.raises(TypeError, match="kernel `square` has no parameter `z`"):
        qd.ad.torch_function(square, outputs=["z"])
    with pytest.raises(TypeError, match="takes a kernel"):
        qd.ad.torch_function(len, outputs=["z"])
    apply = qd.ad.torch_function(square, outputs=["y"])
    with pytest.raises(TypeError, match="`square` takes the inputs x"):
        apply()
    with pytest.raises(TypeError, match="at least one input of `square` must be a tensor"):
        apply(3.0)


def test_with_real_streams():
    qd.init(arch=qd.cpu, cpu_streams=True, cpu_stream_schedule="seed:7")
    apply = qd.ad.torch_function(square, outputs=["y"])
    x = torch.arange(1000.0, requires_grad=True)
    apply(x).sum().backward()
    assert torch.equal(x.grad, 2 * x.detach())


def test_a_bound_that_changed_before_backward_is_reported():
    @qd.kernel
    def first_squares(x: qd.types.ndarray(), count: qd.types.ndarray(), y: qd.types.ndarray()):
        for i in x:
            for _ in range(count[i]):
                y[i] += x[i] * x[i]

    apply = qd.ad.torch_function(first_squares, outputs={"y": lambda x, count: x.shape})
    x = torch.arange(4.0, requires_grad=True)
    count = torch.tensor([1, 0, 2, 1], dtype=torch.int32)
    line = first_squares.fn.__code__.co_firstlineno + 3

    @qd.kernel
    def set_first(count: qd.types.ndarray(), value: qd.i32):
        count[0] = value  # nothing that torch knows of

    y = apply(x, count)
    set_first(count, 3)
    message = (
        f"gradient of kernel `first_squares`.*the loop at line {line} ran 4 times in total, but would run 6 times now"
    )
    with pytest.raises(RuntimeError, match=message):
        y.sum().backward(retain_graph=True)
    set_first(count, 1)
    y.sum().backward()
    assert x.grad.tolist() == [0, 0, 8, 6]
    with torch.no_grad():
        assert not apply(x, count).requires_grad


def test_backward_uses_the_numbers_of_the_forward_pass():
    @qd.data_oriented(template_primitives=False)
    class Model:
        def __init__(self):
            self.factor = 2.0

        @qd.kernel
        def scale(self, x: qd.types.ndarray(), y: qd.types.ndarray()):
            for i in x:
                y[i] = self.factor * x[i]

    model = Model()
    apply = qd.ad.torch_function(model.scale, outputs=["y"])
    x = torch.ones(2, requires_grad=True)
    y = apply(x)
    model.factor = 5.0
    y.sum().backward()
    assert x.grad.tolist() == [2, 2]
