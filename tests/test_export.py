"""export: one graph with the function's own inputs and outputs, or an error."""
from __future__ import annotations

import collections
import copy
import dataclasses
import operator

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import dynamo_lite
from dynamo_lite import exc

Pair = collections.namedtuple("Pair", "a b")


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(3, 3)
        self.norm = torch.nn.BatchNorm1d(3)
        self.register_buffer("offset", torch.ones(3))

    def forward(self, x, *, scale=1):
        return {"out": self.norm(self.linear(x)) * scale + self.offset, "in": x}


def exported(f, *args, **kwargs):
    result = dynamo_lite.export(f)(*args, **kwargs)
    assert isinstance(result.graph_module, torch.fx.GraphModule)
    return result.graph_module


def same(got, wanted):
    leaves, spec = torch.utils._pytree.tree_flatten(got)
    expected, expected_spec = torch.utils._pytree.tree_flatten(wanted)
    assert spec == expected_spec
    for a, b in zip(leaves, expected):
        if isinstance(b, torch.Tensor):
            torch.testing.assert_close(a, b)
        else:
            assert a == b and type(a) is type(b)


CASES = [
    (lambda x, d: {"y": x.sin() + d["k"], "z": [x * 2]}, (torch.ones(2), {"k": torch.ones(2)})),
    (lambda x, p: Pair(x + p.a, (p.b, x)), (torch.ones(2), Pair(torch.ones(2), torch.zeros(2)))),
    (lambda x: (x + 1, 3, "text", None, [x, x]), (torch.ones(2),)),
    (lambda *xs: sum(xs), (torch.ones(2), torch.ones(2), torch.ones(2))),
    (lambda x, k: x * k if k > 2 else x, (torch.ones(2), 3)),
    (lambda x: x.shape[0] * x, (torch.ones(2),)),
    (lambda x: x, (torch.ones(2),)),
    (lambda x: (x.view(-1), x.t()), (torch.ones(2, 3),)),
]


@pytest.mark.parametrize("f, args", CASES)
def test_structures(f, args):
    module = exported(f, *args)
    same(module(*args), f(*args))
    other = torch.utils._pytree.tree_map(lambda v: v + 1 if isinstance(v, torch.Tensor) else v, args)
    same(module(*other), f(*other))


def test_a_module_takes_its_parameters_along():
    net = Net().eval()
    module = exported(net, torch.ones(2, 3))
    x = torch.randn(2, 3)
    same(module(x), net(x))
    held = {id(t) for t in [*module.parameters(), *module.buffers()]}
    assert all(id(p) in held for p in net.parameters())


def test_keywords():
    net = Net().eval()
    module = exported(net, torch.ones(2, 3), scale=torch.tensor(2.0))
    x, scale = torch.randn(2, 3), torch.tensor(3.0)
    same(module(x, scale=scale), net(x, scale=scale))


def test_defaults_and_closures():
    weight = torch.full((2,), 5.0)

    def f(x, k=2, *, bias=None):
        return x * weight * k if bias is None else x + bias

    same(exported(f, torch.ones(2))(torch.zeros(2)), f(torch.zeros(2)))
    same(exported(f, torch.ones(2), bias=torch.ones(2))(torch.zeros(2), bias=torch.ones(2)), torch.ones(2))


def test_a_break_is_an_error():
    def f(x):
        if x.sum() > 0:
            return x
        return -x

    with pytest.raises(exc.Unsupported, match="data-dependent"):
        dynamo_lite.export(f)(torch.ones(2))


def test_a_side_effect_is_an_error():
    seen = []

    def f(x):
        seen.append(x * 2)
        return x + 1

    with pytest.raises(exc.Unsupported, match="seen"):
        dynamo_lite.export(f)(torch.ones(2))


def test_no_operation_at_all():
    assert dynamo_lite.export(lambda x: 3)(torch.ones(2)).graph_module(torch.ones(2)) == 3


class Hooked(torch.nn.Sequential):
    def __init__(self):
        super().__init__(torch.nn.Linear(3, 3), torch.nn.ReLU())
        self.register_forward_hook(lambda module, args, result: result * 2)
        self.register_forward_pre_hook(lambda module, args: (args[0] + 1,))


def test_a_module_with_hooks():
    net = Hooked()
    module = exported(net, torch.ones(2, 3))
    x = torch.randn(2, 3)
    same(module(x), net(x))


@pytest.mark.parametrize("make", [
    lambda: torch.nn.LazyLinear(2), lambda: torch.nn.Sequential(torch.nn.ReLU(), torch.nn.LazyLinear(2))])
def test_a_module_that_is_still_lazy_is_refused(make):
    net = make()
    inner = [m for m in net.modules() if isinstance(m, torch.nn.LazyLinear)][0]
    for fn in (net, lambda x: net(x)):
        with pytest.raises(exc.Unsupported, match="(?s)first call of module.*LazyLinear.*call a lazy module once"):
            dynamo_lite.export(fn)(torch.ones(2, 3))
        assert inner.has_uninitialized_params()
    net(torch.ones(2, 3))
    x = torch.randn(2, 3)
    same(exported(net, torch.ones(2, 3))(x), net(x))


class Doubled(torch.overrides.TorchFunctionMode):
    def __torch_function__(self, fn, types, args=(), kwargs=None):
        result = fn(*args, **(kwargs or {}))
        return result * 2 if fn is torch.sin else result


class Dispatch(TorchDispatchMode):
    def __torch_dispatch__(self, fn, types, args=(), kwargs=None):
        return fn(*args, **(kwargs or {}))


def test_a_function_mode_around_is_in_the_graph():
    with Doubled():
        run = exported(lambda x: torch.sin(x) + 1, torch.ones(2))
    same(run(torch.ones(2)), torch.ones(2).sin() * 2 + 1)


def test_what_runs_in_plain_python_is_refused():
    """Its result would stand in the graph as a constant."""
    def f(x):
        return x.sum().item()

    with Dispatch(), pytest.raises(exc.Unsupported, match="runs under a torch dispatch"):
        dynamo_lite.export(f)(torch.ones(2))

    def within(x):
        with pytest.raises(exc.Unsupported, match="functorch transform"):
            dynamo_lite.export(f)(torch.ones(2))
        return x.sum()

    torch.func.grad(within)(torch.ones(2))
    assert exported(f, torch.ones(2))(torch.ones(3)) == 3


def test_functions_in_c():
    x = torch.randn(3)
    same(exported(torch.sin, torch.ones(3))(x), x.sin())


# ---------------------------------------------------------------- odd inputs and outputs
@dataclasses.dataclass
class Two:
    first: torch.Tensor
    second: int = 2


def test_the_example_run_leaves_nothing_behind():
    model = torch.nn.BatchNorm1d(3)
    before = copy.deepcopy(model.state_dict())
    x = torch.randn(4, 3)
    state = torch.get_rng_state()

    def fn(x):
        x.add_(torch.rand(3))
        return model(x)

    kept = x.clone()
    graph_module = dynamo_lite.export(fn)(x).graph_module
    assert torch.equal(x, kept) and torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(v, before[k]) for k, v in model.state_dict().items())
    torch.manual_seed(0)
    got = graph_module(x)
    x.copy_(kept)
    model.load_state_dict(before)
    torch.manual_seed(0)
    torch.testing.assert_close(got, fn(x))


@pytest.mark.parametrize("fn, args, kwargs", [
    (lambda x, *, k=2: x * k, (torch.ones(2),), {"k": 3}),
    (lambda **kw: kw["a"] + kw["b"], (), {"a": torch.ones(2), "b": torch.ones(2)}),
    (lambda d: {"y": d["x"] + 1, "z": (d["x"], 5, "s", None)}, ({"x": torch.ones(2)},), {}),
    (lambda p: p.first * p.second, (Two(torch.ones(2)),), {}),
    (lambda a, b: (a + b, a), (torch.ones(2),) * 2, {}),
    (lambda x: (1, "a", None, x + 1, True, {1, 2}), (torch.ones(2),), {}),
    (lambda x, m: x if m is None else x * m, (torch.ones(2), None), {}),
    (lambda a: a + 1, (3,), {}),
])
def test_what_goes_in_and_out(fn, args, kwargs):
    assert repr(dynamo_lite.export(fn)(*args, **kwargs).graph_module(*args, **kwargs)) == repr(fn(*args, **kwargs))


@pytest.mark.parametrize("fn", [lambda x: Two(x + 1), lambda x: (t for t in [x + 1]), lambda x: [Two(x)]])
def test_outputs_that_a_graph_has_no_structure_for(fn):
    with pytest.raises(exc.Unsupported, match="an output of type") as error:
        dynamo_lite.export(fn)(torch.ones(2))
    assert "register_dataclass" in str(error.value)


def test_what_is_no_function():
    with pytest.raises(TypeError, match="export takes a function or an nn.Module, not 3"):
        dynamo_lite.export(3)


# ---------------------------------------------------------------- as aten operations
def aten(f, *args, **kwargs):
    """The graph module, all of whose calls are aten operations (or about layout), with the user's lines."""
    module = dynamo_lite.export(f, aten_graph=True)(*args, **kwargs).graph_module
    for node in module.graph.nodes:
        if node.op == "call_function":
            own = getattr(node.target, "__module__", "").startswith("dynamo_lite.backends.aot.ops")
            assert own or isinstance(node.target, torch._ops.OpOverload) or node.target is operator.getitem, node.target
        assert node.op not in ("call_method", "call_module")
    return module


def targets(module):
    return [str(node.target) for node in module.graph.nodes if node.op == "call_function"]


@pytest.mark.parametrize("f, args", CASES)
def test_aten_structures(f, args):
    same(aten(f, *args)(*args), f(*args))


def test_aten_graph_of_a_module():
    net = Net().eval()
    x = torch.randn(4, 3)
    module = aten(net, x, scale=3)
    same(module(x, scale=3), net(x, scale=3))
    other = torch.randn(4, 3)
    same(module(other, scale=3), net(other, scale=3))
    assert "aten.linear.default" in targets(module) or "aten.addmm.default" in targets(module)
    (module(x, scale=3)["out"].sum()).backward()  # it takes part in autograd as any function
    assert net.linear.weight.grad is not None


def test_aten_graph_writes_last():
    def f(x, y):
        x.add_(1)
        z = x[0]
        z.mul_(2)
        return z, y + x, x

    x, y = torch.ones(2, 3), torch.ones(2, 3)
    module = aten(f, x, y)
    assert torch.equal(x, torch.ones(2, 3))
    ours, theirs = x.clone(), x.clone()
    same(module(ours, y), f(theirs, y))
    assert torch.equal(ours, theirs)
    assert targets(module).count("aten.copy_.default") == 1
    got = module(ours, y)
    assert got[2] is ours and got[0]._base is ours
    ours = torch.ones(4, 3)[2:]  # memory that begins elsewhere
    theirs = ours.clone()
    same(module(ours, y), f(theirs, y))


def test_aten_graph_of_views_constants_and_random_numbers():
    def f(x):
        noise = torch.rand(3)
        y = torch.nn.functional.dropout(x, 0.5) + noise + torch.tensor([1.0, 2.0, 3.0])
        return y, y[0], y.t(), torch.view_as_complex(torch.stack([y, y], -1)), y.detach()

    x = torch.randn(2, 3)
    module = aten(f, x)
    torch.manual_seed(3)
    got = module(x)
    torch.manual_seed(3)
    same(got, f(x))
    assert got[1]._base is not None and got[1].data_ptr() == got[0].data_ptr()


def test_nodes_have_the_users_lines_and_fake_results():
    def inner(y):
        return y.sin()

    def f(x):
        return inner(x) + 1

    for as_aten in (False, True):
        module = dynamo_lite.export(f, aten_graph=as_aten)(torch.ones(2)).graph_module
        calls = [node for node in module.graph.nodes if node.op.startswith("call")]
        assert ["return y.sin()" in node.stack_trace for node in calls] == [True, False]
        assert all("return inner(x) + 1" in node.stack_trace and __file__ in node.stack_trace for node in calls)
        key = "val" if as_aten else "example_value"
        values = [node.meta[key] for node in module.graph.nodes if node.op != "output"]
        assert all(tuple(value.shape) == (2,) for value in values)


def test_what_has_no_aten_graph_is_refused():
    def f(x):
        with torch.enable_grad():
            y = x.detach().requires_grad_()
        return y

    with pytest.raises(exc.Unsupported):
        dynamo_lite.export(f, aten_graph=True)(torch.ones(2))
