"""Default devices and dtypes, and torch function modes, inside of captured functions and around them."""
from __future__ import annotations

import pytest
import torch
from language_support import same
from torch.overrides import TorchFunctionMode

import dynamo_lite

BACKENDS = ["eager", "inductor_lite"]
LOG: list = []


class Count(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        LOG.append(getattr(func, "__name__", str(func)))
        return func(*args, **(kwargs or {}))


class Replace(TorchFunctionMode):
    def __init__(self, factor):
        super().__init__()
        self.factor = factor

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if func in (torch.add, torch.Tensor.add):
            return func(*args, **kwargs) * self.factor
        return func(*args, **kwargs)


def device_scope(x):
    with torch.device("cpu"):
        y = torch.ones(3) + torch.tensor([1.0, 2, 3])
    return x + y


def other_device(x):
    with torch.device("meta"), torch.device("cpu") as d:
        a = torch.ones(3)
    with torch.device("meta"):
        b, c = torch.ones(3, 4), torch.zeros(2, device="cpu")
    return x + b.shape[1] + a, b.device.type, c, d


def dtype_scope(x):
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    y = torch.ones(3)
    torch.set_default_dtype(before)
    return x + y, torch.ones(1)


def break_in_scope(x):
    with torch.device("meta"):
        y = torch.ones(3)
        dynamo_lite.graph_break()
        z = torch.ones(3) * 2
    return x + torch.ones(3), y.device, z.device


def default_device(x):
    torch.set_default_device("cpu")
    y = torch.ones(3)
    torch.set_default_device(None)
    return x + y


def mode_inside(x):
    with Replace(3), Count():
        y = torch.add(x, 1)
        z = x.add(2)
    return y + z


PROGRAMS = {f.__name__: (f, None) for f in (device_scope, other_device, dtype_scope, mode_inside)}
PROGRAMS |= {"break_in_scope": (break_in_scope, "graph_break"), "default_device": (default_device, "set_default")}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_inside(name, backend):
    function, reason = PROGRAMS[name]
    x = torch.arange(3.0)
    LOG.clear()
    want = function(x), list(LOG)
    if reason is not None:
        with pytest.raises(dynamo_lite.exc.Unsupported, match=reason):
            dynamo_lite.compile(function, backend=backend, fullgraph=True)(x)
    compiled = dynamo_lite.compile(function, backend=backend, fullgraph=reason is None)
    for _ in range(2):
        LOG.clear()
        got = compiled(x), list(LOG)
        assert same(got, want)
        assert torch._C._len_torch_function_stack() == 0


@pytest.mark.parametrize("backend", BACKENDS)
def test_modes_around_a_call_are_seen(backend):
    def function(x):
        return torch.add(x, 1) * 2

    x = torch.arange(4.0)
    results = []
    for f in (function, dynamo_lite.compile(function, backend=backend, fullgraph=True)):
        LOG.clear()
        made = [f(x)]
        for mode in (Replace(3), Replace(2), Count()):
            with mode:
                made += [f(x), f(x)]
        results.append((made, list(LOG)))
    assert same(*results)


@pytest.mark.parametrize("backend", BACKENDS)
def test_default_devices_around_a_call(backend):
    def function(x):
        return torch.ones(3).device.type, x + 1

    x = torch.ones(2)
    compiled = dynamo_lite.compile(function, backend=backend, fullgraph=True)
    assert compiled(x)[0] == "cpu"
    with torch.device("meta"):
        assert compiled(x)[0] == "meta"
    with dynamo_lite.config.patch(error_on_recompile=True):
        with torch.device("meta"):
            assert compiled(x)[0] == "meta"
        torch.set_default_device("meta")
        try:
            assert compiled(x)[0] == "meta"
        finally:
            torch.set_default_device(None)
        assert compiled(x)[0] == "cpu"


def _entered_by_name(x):
    device = torch.device("meta")
    device.__enter__()
    dynamo_lite.graph_break()
    y = torch.empty(3)
    device.__exit__(None, None, None)
    return y.device, torch.empty(2).device


def _entered_by_methods(x):
    enter, leave = torch.device("meta").__enter__, torch.device("meta").__exit__
    dynamo_lite.graph_break()
    enter()
    y = torch.empty(3)
    dynamo_lite.graph_break()
    leave(None, None, None)
    return y.device, torch.empty(2).device


def _broken_inside(x):
    with torch.device("meta"):
        y = torch.empty(3)
        dynamo_lite.graph_break()
        z = torch.empty(3)
    return y.device, z.device, torch.empty(2).device


@pytest.mark.parametrize("program", [_entered_by_name, _entered_by_methods, _broken_inside])
def test_devices_that_are_entered_around_a_break(program):
    want, compiled = program(torch.ones(2)), dynamo_lite.compile(program, backend="eager")
    assert [compiled(torch.ones(2)) for _ in range(2)] == [want] * 2
    assert torch.empty(1).device.type == "cpu"
