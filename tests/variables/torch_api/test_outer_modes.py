"""Torch function modes that are entered around a compiled function."""
import contextlib

import pytest
import torch
from torch.overrides import TorchFunctionMode

import dynamo_lite


class Plain(TorchFunctionMode):
    def __torch_function__(self, function, types, args=(), kwargs=None):
        return function(*args, **(kwargs or {}))


class Minus(TorchFunctionMode):
    """Subtracts where the program adds."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        if function is torch.add:
            function = torch.sub
        return function(*args, **(kwargs or {}))


class Scaled(TorchFunctionMode):
    def __init__(self, factor):
        super().__init__()
        self.factor = factor

    def __torch_function__(self, function, types, args=(), kwargs=None):
        made = function(*args, **(kwargs or {}))
        return made * self.factor if function is torch.sin else made


class Noted(TorchFunctionMode):
    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_function__(self, function, types, args=(), kwargs=None):
        self.names.append(function.__name__)
        return function(*args, **(kwargs or {}))


def step(x):
    return torch.sin(torch.add(x, 1)).sum(-1)


def broken(x):
    y = torch.add(x, 1)
    dynamo_lite.graph_break()
    return torch.add(y, 2)


def writing(x):
    x.add_(1)
    y = x * 2
    y[0] = 5
    return y


def reading(x):
    return x.T + len(x) if x.shape[0] == 2 else x


def beside_a_mode(x):
    y = torch.add(x, 1)
    with Minus():
        z = torch.add(x, 1)
    return y, z, torch.add(z, 1)


def making(x):
    return torch.ones(3), torch.zeros_like(x), torch.tensor([1, 2])


def kept(x):
    Box.value = torch.add(x, 1)
    return [x, Box.value]


class Box:
    value = None


@contextlib.contextmanager
def entered(*modes):
    with contextlib.ExitStack() as stack:
        for mode in modes:
            stack.enter_context(mode)
        yield


def _run(function, *modes):
    x = torch.arange(6.0).reshape(2, 3)
    with entered(*modes):
        made = function(x)
    return torch.utils._pytree.tree_leaves((made, x, [getattr(mode, "names", None) for mode in modes]))


MODES = {
    "plain": lambda: (Plain(),), "minus": lambda: (Minus(),), "scaled": lambda: (Scaled(2),),
    "noted": lambda: (Noted(),), "two": lambda: (Scaled(3), Minus()), "noted_inside": lambda: (Minus(), Noted()),
}


@pytest.mark.parametrize("modes", MODES)
@pytest.mark.parametrize("function", [step, broken, writing, reading, beside_a_mode, making, kept])
def test_results_are_those_of_plain_python(function, modes):
    compiled = dynamo_lite.compile(function, fullgraph=function is not broken)
    dynamo_lite.reset_metrics()
    for _ in range(2):
        got, wanted = _run(compiled, *MODES[modes]()), _run(function, *MODES[modes]())
        assert len(got) == len(wanted)
        for a, b in zip(got, wanted):
            assert torch.equal(a, b) if isinstance(b, torch.Tensor) else a == b
        assert not torch._C._len_torch_function_stack()
    graphs = dynamo_lite.metrics()["graphs"]
    assert graphs == (2 if function is broken else 1)


def test_what_the_mode_holds_is_guarded():
    compiled, x = dynamo_lite.compile(step, fullgraph=True), torch.ones(2, 3)
    dynamo_lite.reset_metrics()
    for modes in ((Scaled(2),), (Scaled(2),), (), (Plain(),), (Scaled(2), Plain()), (Plain(), Scaled(2)), (Scaled(2),)):
        with entered(*modes):
            assert torch.equal(compiled(x), step(x))
    assert dynamo_lite.metrics()["graphs"] == 5


def test_a_graph_that_raises_leaves_the_modes_on():
    def chosen(x, index):
        return torch.add(x, 1)[index]

    compiled = dynamo_lite.compile(chosen)
    mode = Minus()
    with mode:
        assert torch.equal(compiled(torch.ones(3), torch.tensor([1])), torch.zeros(1))
        with pytest.raises(IndexError):
            compiled(torch.ones(3), torch.tensor([7]))
        assert torch._C._len_torch_function_stack() == 1 and torch._C._get_function_stack_at(0) is mode
    with mode, pytest.raises(IndexError):
        dynamo_lite.compile(chosen, fullgraph=True)(torch.ones(3), torch.tensor([7]))
    assert not torch._C._len_torch_function_stack()


def test_with_a_default_device_it_runs_in_plain_python():
    compiled = dynamo_lite.compile(step)
    dynamo_lite.reset_metrics()
    with torch.device("cpu"), Scaled(2):
        assert torch.equal(compiled(torch.ones(2, 3)), step(torch.ones(2, 3)))
    assert dynamo_lite.metrics()["graphs"] == 0


class Double(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        return torch.add(grad, 1)


def by_function(x):
    return Double.apply(x) * 3


def by_hook(x):
    y = x * 2
    y.register_hook(lambda grad: torch.add(grad, 1))
    return y * 3


def by_checkpoint(x):
    return torch.utils.checkpoint.checkpoint(lambda v: torch.add(v, 1).sin(), x, use_reentrant=False)


def by_attribute(x):
    y = x.detach().clone()
    y.requires_grad = True
    return y * x


@pytest.mark.parametrize("function", [by_function, by_hook, by_checkpoint, by_attribute])
def test_what_runs_later_breaks(function):
    def gradient(f):
        x, mode = torch.arange(3.0, requires_grad=True), Minus()
        with mode:
            f(x).sum().backward()
        return x.grad

    compiled = dynamo_lite.compile(function)
    for _ in range(2):
        assert torch.equal(gradient(compiled), gradient(function))
    with Minus(), pytest.raises(dynamo_lite.exc.Unsupported):
        dynamo_lite.compile(function, fullgraph=True)(torch.arange(3.0, requires_grad=True))


def test_compiles_and_guards_are_not_seen_by_the_mode():
    compiled = dynamo_lite.compile(step)
    linear = torch.nn.Linear(3, 3)
    for n in (2, 3, 4, 2):
        x, mode = torch.ones(n, 3), Noted()
        with mode:
            compiled(x)
        assert mode.names == ["add", "sin", "sum"]
    trained = dynamo_lite.compile(lambda x: torch.relu(linear(x)).sum())
    for n in (2, 3, 4, 2):
        loss, mode = trained(torch.ones(n, 3)), Noted()
        with mode:
            loss.backward()
        assert mode.names == ["backward"]
        x = torch.ones(n, 3)
        with Noted() as mode:
            trained(x).backward()
        assert mode.names == ["linear", "relu", "sum", "backward"]
