"""Modules on the meta device that lend their structure: parameters from elsewhere take the place of their own."""
import copy

import pytest
import torch
from torch import nn
from torch.func import functional_call, grad, stack_module_state, vmap

import dynamo_lite
from dynamo_lite import config, log


def models():
    return [nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 3)) for _ in range(3)]


@pytest.mark.parametrize("backend", ["eager", "inductor_lite"])
def test_an_ensemble_on_a_meta_module_is_one_graph(backend):
    torch.manual_seed(0)
    parameters, buffers = stack_module_state(models())
    base = copy.deepcopy(models()[0]).to("meta")

    def one(p, b, x):
        return functional_call(base, (p, b), (x,))

    def function(parameters, x):
        return vmap(one, (0, 0, None))(parameters, buffers, x)

    compiled = dynamo_lite.compile(function, backend=backend, fullgraph=True)
    before = log.counters().get("graphs", 0)
    with config.patch(error_on_recompile=True):
        for _ in range(3):
            x = torch.randn(5, 3)
            torch.testing.assert_close(compiled(parameters, x), function(parameters, x))
    assert log.counters()["graphs"] == before + 1
    assert all(p.device.type == "meta" for p in base.parameters())


def test_gradients_for_each_example():
    torch.manual_seed(0)
    model = models()[0]
    base = copy.deepcopy(model).to("meta")
    parameters = {name: p.detach() for name, p in model.named_parameters()}

    def loss(p, x, y):
        return (functional_call(base, p, (x,)) - y).square().mean()

    def function(p, x, y):
        return vmap(grad(loss), (None, 0, 0))(p, x, y)

    compiled = dynamo_lite.compile(function, backend="eager", fullgraph=True)
    for _ in range(2):
        x, y = torch.randn(4, 3), torch.randn(4, 3)
        want, got = function(parameters, x, y), compiled(parameters, x, y)
        assert list(got) == list(want)
        for name, value in want.items():
            torch.testing.assert_close(got[name], value)


def test_what_is_computed_on_meta_is_computed_in_plain_python():
    model = nn.Linear(3, 2, device="meta")

    def function(x):
        y = x * 2
        z = model(y.to("meta"))
        return y + 1, z

    compiled = dynamo_lite.compile(function, backend="eager")
    for _ in range(2):
        y, z = compiled(torch.ones(2, 3))
        assert y.tolist() == [[3.0] * 3] * 2 and z.device.type == "meta" and z.shape == (2, 2)
    with pytest.raises(dynamo_lite.exc.Unsupported, match="on meta"):
        dynamo_lite.compile(function, backend="eager", fullgraph=True)(torch.ones(2, 3))
    model.to_empty(device="cpu")
    nn.init.ones_(model.weight), nn.init.zeros_(model.bias)
    assert dynamo_lite.compile(lambda x: model(x), backend="eager")(torch.ones(1, 3)).tolist() == [[3.0, 3.0]]


MOVED = torch.arange(12.0).view(3, 4)


def uses_methods_of_what_moved(x):
    method = MOVED.detach
    return x + 1, method()[1:].shape, MOVED.sum(0).device.type


def test_methods_of_a_tensor_that_moves_to_the_meta_device(monkeypatch):
    compiled = dynamo_lite.compile(uses_methods_of_what_moved, backend="eager")
    for _ in range(2):
        result, expected = compiled(torch.ones(4)), uses_methods_of_what_moved(torch.ones(4))
        torch.testing.assert_close(result[0], expected[0])
        assert result[1:] == expected[1:]
        monkeypatch.setitem(globals(), "MOVED", MOVED.to("meta"))
