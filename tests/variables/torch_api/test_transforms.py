"""``torch.vmap`` and ``torch.func``: one graph, eager's values and gradients."""
from __future__ import annotations

import new_process
import pytest
import torch
from gradient_checks import check, check_one_graph
from torch import func, nn

import dynamo_lite

pytestmark = pytest.mark.by_turns(3)

BACKENDS = ["eager", "inductor_lite"]
torch.manual_seed(0)
NET = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 3))
W = torch.randn(3, requires_grad=True)


@torch.vmap
def decorated(v):
    return v.sum() + v


gradient_of_square = func.grad(lambda v: (v**2).sum())


def loss(parameters, x, y):
    return ((func.functional_call(NET, parameters, (x,)) - y) ** 2).mean()


def per_sample(x):
    parameters = {name: p.detach() for name, p in NET.named_parameters()}
    grads = torch.vmap(func.grad(loss), in_dims=(None, 0, 0))(parameters, x, x * 2)
    return grads["0.weight"].sum((1, 2)) + grads["2.bias"].sum(1)


def called_with_parameters(x):
    return func.functional_call(NET, {name: p * 2 for name, p in NET.named_parameters()}, (x,)) + NET(x)


def two_gradients(x):
    (a, b), value = func.grad_and_value(lambda a, b: (a * b).sin().sum(), argnums=(0, 1))(x, x * 2)
    return a + b * value


def with_aux(x):
    g, (a, b) = func.grad(lambda v: ((v**2).sum(), (v.sin(), v.cos())), has_aux=True)(x)
    return g * a + b


def pullback(x):
    y, pull = func.vjp(lambda a, b: (a * b).sin(), x, x + 1)
    a, b = pull(torch.ones_like(y))
    return y + a * b


def pushforward(x):
    y, t = func.jvp(lambda a: a.sin() * W, (x,), (torch.ones_like(x),))
    return y + t


def effect_once(x):
    seen: list = []
    y = torch.vmap(lambda v: (seen.append(tuple(v.shape)), v * 2)[1])(x)
    return y + len(seen)


def nested_structures(x):
    out = torch.vmap(lambda a, b: {"s": a + b, "p": (a * b, a)}, in_dims=(1, 0), out_dims=1)(x, x.t())
    return out["p"][0] + out["s"]


PROGRAMS = {
    "vmap": lambda x: torch.vmap(lambda v: v.sum() * v)(x + 1),
    "vmap_closure": lambda x: torch.vmap(lambda v: (v * W).sum())(x),
    "vmap_builtin": lambda x: torch.vmap(torch.dot, in_dims=(0, None))(x, W),
    "vmap_structures": nested_structures,
    "vmap_of_vmap": lambda x: torch.vmap(torch.vmap(torch.mul, in_dims=(None, 0)), in_dims=(0, None))(x[:, 0], x[0]),
    "vmap_random": lambda x: torch.vmap(lambda v: v + torch.rand(3), randomness="different")(x),
    "vmap_index": lambda x: torch.vmap(lambda i, j: x[i] * x[i, j])(torch.arange(2), torch.arange(2)),
    "vmap_keywords": lambda x: torch.vmap(lambda v, *, s: v * s)(x, s=x * 2),
    "vmap_chunks": lambda x: torch.vmap(lambda v: v * W, chunk_size=2)(torch.cat([x, x + 1, x[:1]])),
    "vmap_one_chunk": lambda x: torch.vmap(lambda v: v * 2, in_dims=1, out_dims=1, chunk_size=7)(x),
    "vmap_chunks_inside": lambda x: torch.vmap(lambda v: v * 2, in_dims=1, out_dims=1, chunk_size=2)(x),
    "vmap_effect": effect_once,
    "decorated": lambda x: decorated(x),
    "grad": lambda x: func.grad(lambda v: (v**2).sum())(x) + 1,
    "grad_made_before": lambda x: gradient_of_square(x) + 1,
    "grad_closure": lambda x: func.grad(lambda v: (v * W).sin().sum())(x) + 1,
    "grad_of_grad": lambda x: func.grad(lambda z: func.grad(lambda v: (v**3).sum())(z).sum())(x),
    "two_gradients": two_gradients,
    "aux": with_aux,
    "vjp": pullback,
    "jvp": pushforward,
    "jacrev": lambda x: func.jacrev(lambda v: v.sin() * W)(x[0]),
    "jacfwd": lambda x: func.jacfwd(lambda v: v.sin() * W)(x[0]),
    "hessian": lambda x: func.hessian(lambda v: v.sin().sum())(x[0].detach()),
    "functional_call": called_with_parameters,
    "per_sample_gradients": per_sample,
}

# A tensor at two places: what the transform replaces at one, it does not replace at the other.
PROGRAMS.update({
    "one tensor, mapped once": lambda x: torch.vmap(lambda a, b: a * b.sum(), in_dims=(0, None))(x, x),
    "one tensor, mapped twice": lambda x: torch.vmap(lambda a, b: a.sum() + b, in_dims=(0, 0))(x, x),
    "one tensor, mapped along both dimensions": lambda x: torch.vmap(
        lambda a, b: a.sum() + b, in_dims=(0, 1))(x[:, :2], x[:, :2]),
    "one tensor, mapped and by name": lambda x: torch.vmap(lambda a, b: a * b.sum(), in_dims=(0,))(x, b=x[0]),
    "one tensor, written to in the mapped copy": lambda x: torch.vmap(
        lambda a, b: a.mul_(2) + b)(x.clone(), x),
    "one tensor, differentiated once": lambda x: func.grad(lambda a, b: (a * b * b).sum())(x, x),
    "one tensor, differentiated by the last": lambda x: func.grad(lambda a, b: (a * b * b).sum(), argnums=-1)(x, x),
    "one tensor, differentiated twice": lambda x: sum(
        func.grad(lambda a, b: (a * b * b).sum(), argnums=(0, 1))(x, x)),
    "jacobian by one of two": lambda x: func.jacrev(lambda a, b: (a * b * b).sum(0))(x, x),
    "jvp of one tensor twice": lambda x: func.jvp(lambda a, b: a * b * b, (x, x), (x, x * 2))[1],
})


def run(function):
    torch.manual_seed(0)
    x = torch.randn(2, 3, requires_grad=True)
    leaves = [x, W, *NET.parameters()]
    for leaf in leaves:
        leaf.grad = None
    y = function(x)
    if y.requires_grad:
        y.sum().backward()
    return [y.detach(), *[leaf.grad for leaf in leaves], torch.rand(2)]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_one_graph(name, backend):
    check_one_graph(run, PROGRAMS[name], backend, strides=True)


BREAKING = {
    "print": (lambda x: torch.vmap(lambda v: (print(end=""), v * 2)[1])(x) + 1, "print"),
    "data": (lambda x: func.grad(lambda v: (v * float(v.detach().sum() > 0)).sum())(x) + 1, "float|item"),
    "chunks of one state": (
        lambda x: torch.vmap(lambda v: v * 2, chunk_size=1, randomness="same")(x) + 1, "one state of the generator"),
    "written to at one of two places": (
        lambda x: (lambda y: torch.vmap(lambda a, b: a.mul_(2) + b)(y, y))(x.clone()) + 1, "one tensor twice"),
    "functionalize": (lambda x: func.functionalize(lambda v: v.add_(1))(x.detach() + 1) + 1, "functorch"),
}


@pytest.mark.parametrize("name", BREAKING)
def test_breaks_with_a_reason(name):
    program, reason = BREAKING[name]

    def function(x):
        return program(x)

    with pytest.raises(dynamo_lite.exc.Unsupported, match=reason):
        run(dynamo_lite.compile(function, backend="eager", fullgraph=True))
    check(run, function, dynamo_lite.compile(function, backend="eager"), strides=True)


def test_what_eager_refuses():
    """An error of the transform is raised as in eager."""

    def function(x):
        return torch.vmap(lambda v: v + torch.rand(3))(x)

    for compiled in (function, dynamo_lite.compile(function, backend="eager")):
        with pytest.raises(RuntimeError, match="randomness"):
            compiled(torch.ones(2, 3))


def test_numbers_under_nested_transforms_are_compiled():
    def function(x):
        return torch.vmap(torch.vmap(lambda v: v.sin() * 2 + 0.5))(x)

    x = torch.randn(4, 3)
    before = dict(dynamo_lite.metrics()["fallbacks"])
    for dtype in (torch.float32, torch.float64, torch.int64):
        compiled = dynamo_lite.compile(function, fullgraph=True)
        torch.testing.assert_close(compiled(x.to(dtype)), function(x.to(dtype)))
    assert dynamo_lite.metrics()["fallbacks"] == before


@pytest.mark.parametrize("backend", ["eager", "inductor_lite"])
def test_forward_mode_around_a_compiled_function(backend):
    def function(x):
        return x.sin() * x

    compiled = dynamo_lite.compile(function, backend=backend)
    x, tangent = torch.randn(4), torch.randn(4)
    for _ in range(2):
        torch.testing.assert_close(compiled(x), function(x))
        with torch.autograd.forward_ad.dual_level():
            dual = torch.autograd.forward_ad.make_dual(x, tangent)
            got, want = (torch.autograd.forward_ad.unpack_dual(call(dual)) for call in (compiled, function))
            torch.testing.assert_close(tuple(got), tuple(want))


def test_a_transformed_function_leaves_the_frame():
    def function(x):
        return func.grad(lambda v: (v * x).sum()), x + 1

    g, _ = dynamo_lite.compile(function, backend="eager")(torch.tensor([2.0]))
    assert g(torch.ones(1)).item() == 2


SIZED = {
    "rows": lambda x: torch.vmap(lambda r: r * 2 + r.sum())(x),
    "columns": lambda x: torch.vmap(lambda c: c * c.shape[0])(x.t()),
    "matrices": lambda x: torch.vmap(lambda r: torch.softmax(r, 0) @ x.t())(x),
    "indices": lambda x: torch.vmap(lambda i: x[i])(torch.arange(x.shape[0])),
    "masks": lambda x: torch.vmap(torch.vmap(lambda i, j: i >= j, (None, 0)), (0, None))(
        torch.arange(x.shape[0]), torch.arange(1, x.shape[0])),
    "gradients": lambda x: torch.vmap(torch.func.grad(lambda r: (r * r).sum()))(x),
    "jvp": lambda x: torch.func.jvp(lambda y: torch.softmax(y @ y.t(), -1), (x,), (x,)),
    "jacobian": lambda x: torch.func.jacrev(lambda y: (y * y).sum(0))(x),
}


@pytest.mark.parametrize("name", SIZED)
def test_transforms_over_sizes_that_change(name):
    compiled = dynamo_lite.compile(SIZED[name], dynamic=True, fullgraph=True)
    for n in (6, 5, 9, 7):
        x = torch.randn(n, 4)
        torch.testing.assert_close(compiled(x), SIZED[name](x))
    metrics = dynamo_lite.metrics()
    assert metrics["graphs"] == 1 and "recompiles" not in metrics


FIXED = {
    "joined": lambda x: torch.vmap(lambda r: torch.cat([r, r.new_zeros(x.shape[0])]))(x),
    "normalized": lambda x: torch.vmap(lambda r: torch.nn.functional.layer_norm(r, (4,)))(x) + x,
    "convolved": lambda x: torch.vmap(lambda r: torch.nn.functional.conv1d(r[None, None], torch.ones(1, 1, 2)))(x),
    "itself": lambda x: torch.vmap(lambda r: (r, torch.nn.functional.layer_norm(r, (4,))))(x)[0].mul_(2),
    "trained": lambda x: torch.vmap(lambda r: torch.nn.functional.layer_norm(r, (4,)))(x.requires_grad_()).sum(),
}


@pytest.mark.parametrize("name", FIXED)
@pytest.mark.parametrize("backend", ["eager", "inductor_lite"])
def test_what_torch_fails_to_map_over_symbols_is_for_the_sizes_of_the_call(name, backend):
    whole = name not in ("itself", "trained")
    compiled = dynamo_lite.compile(FIXED[name], dynamic=True, fullgraph=whole, backend=backend)
    for n in (6, 5, 6, 3):
        x, y = (torch.ones(n, 4) + torch.arange(4) for _ in range(2))
        got, want = compiled(x), FIXED[name](y)
        torch.testing.assert_close(got, want)
        assert got.stride() == want.stride() and torch.equal(x, y)


@pytest.mark.parametrize("transform", [
    "func.grad(lambda v: (v**2).sum())(x)", "func.hessian(lambda v: (v**3).sum())(x)", "func.jacrev(torch.sin)(x)",
    "func.jacfwd(torch.sin)(x)", "func.vjp(torch.sin, x)[1](x)[0]", "torch.vmap(func.grad(torch.sin))(x)"])
def test_before_anything_of_torchs_compiler_is_imported(transform):
    """torch.func reads a setting of torch._dynamo, which nobody has imported where a compile comes first."""
    done = new_process.run(f"""
import torch
from torch import func
import dynamo_lite
f = lambda x: {transform}
x = torch.rand(3)
got = dynamo_lite.compile(f, backend="eager", fullgraph=True)(x)
torch.testing.assert_close(got, f(x))
""")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("backend", BACKENDS)
def test_chunks_of_structures(backend):
    def function(x):
        body = lambda v, w: {"a": v * w["b"], "c": (v.sum(), v)}
        return torch.vmap(body, in_dims=(0, None), chunk_size=2)(x, {"b": W})

    x = torch.randn(5, 3)
    for _ in range(2):
        compiled = dynamo_lite.compile(function, backend=backend, fullgraph=True)
        torch.testing.assert_close(compiled(x), function(x))
