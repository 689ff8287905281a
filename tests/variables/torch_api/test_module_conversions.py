"""``Module.to()`` and its like inside a frame: nothing to convert costs nothing, a conversion is eager's."""
import copy

import pytest
import torch
from torch import nn

import dynamo_lite
from dynamo_lite import exc, log


class Net(nn.Module):
    def __init__(self, convert):
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
        self.register_buffer("scale", torch.ones(4))
        self.register_buffer("none", None)
        self.convert = convert

    def forward(self, x):
        self.inner = self.convert(self.inner, x)
        self.convert(self, x)
        return self.inner(x.to(self.scale.dtype)) * self.scale


def counted(name):
    return log.counters().get(name, 0)


def state(model):
    return [(name, t.dtype, t.requires_grad, None if t.grad is None else t.grad.dtype)
            for name, t in [*model.named_parameters(), *model.named_buffers()]]


NOTHING = {
    "dtype": lambda m, x: m.to(torch.float32),
    "device": lambda m, x: m.to("cpu"),
    "of the input": lambda m, x: m.to(x.device, x.dtype),
    "device and dtype": lambda m, x: m.to(device=torch.device("cpu"), dtype=torch.float),
    "float": lambda m, x: m.float(),
    "cpu": lambda m, x: m.cpu(),
}
SOMETHING = {
    "double": lambda m, x: m.double(),
    "to": lambda m, x: m.to(torch.float64),
    "layout": lambda m, x: m.to(torch.float32, memory_format=torch.contiguous_format).to(torch.bfloat16),
}


@pytest.mark.parametrize("backend", ["eager", "inductor_lite"])
@pytest.mark.parametrize("convert", NOTHING.values(), ids=NOTHING)
def test_nothing_to_convert(convert, backend):
    dynamo_lite.reset()
    log.reset()
    plain = Net(convert)
    model = copy.deepcopy(plain)
    parameters, buffers = list(model.parameters()), list(model.buffers())
    fn = dynamo_lite.compile(model, backend=backend, fullgraph=True)
    for step in range(3):  # gradients are there from the second on
        x = torch.randn(5, 3)
        want, got = plain(x), fn(x)
        torch.testing.assert_close(got, want)
        want.sum().backward()
        got.sum().backward()
        for a, b in zip(plain.parameters(), model.parameters()):
            torch.testing.assert_close(b.grad, a.grad, rtol=1e-4, atol=1e-4)
        if step == 1:
            graphs = counted("graphs")
    assert counted("graphs") == graphs <= 2
    assert all(a is b for a, b in zip(parameters, model.parameters()))
    assert all(a is b for a, b in zip(buffers, model.buffers()))
    assert state(plain) == state(model)


@pytest.mark.parametrize("convert", SOMETHING.values(), ids=SOMETHING)
def test_something_to_convert(convert):
    dynamo_lite.reset()
    plain = Net(convert)
    model = copy.deepcopy(plain)
    fn = dynamo_lite.compile(model, backend="eager")
    for _ in range(3):
        x = torch.randn(5, 3)
        torch.testing.assert_close(fn(x), plain(x))
        assert state(plain) == state(model)
    dynamo_lite.reset()
    with pytest.raises(exc.Unsupported, match="Tensor.data"):
        dynamo_lite.compile(Net(convert), backend="eager", fullgraph=True)(torch.randn(5, 3))


def test_what_to_refuses():
    dynamo_lite.reset()
    model = Net(lambda m, x: m.to(torch.int32))
    with pytest.raises(TypeError, match="floating point or complex"):
        dynamo_lite.compile(model, backend="eager")(torch.randn(5, 3))


def test_a_tensors_data_is_itself():
    def f(x):
        x.data = x
        y = x + 1
        y.data = y
        return y * x

    dynamo_lite.reset()
    fn = dynamo_lite.compile(f, backend="eager", fullgraph=True)
    x = torch.ones(3, requires_grad=True)
    assert torch.equal(fn(x), f(x)) and x.requires_grad and x.is_leaf

    def g(x):
        x.data = x.detach() * 2
        return x + 1

    a, b = torch.ones(3), torch.ones(3)
    assert torch.equal(dynamo_lite.compile(g, backend="eager")(a), g(b)) and torch.equal(a, b)
