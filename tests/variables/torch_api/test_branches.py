"""torch.cond, while_loop, map, scan and associative_scan, against what they say in plain Python: in eager most of them
call torch.compile."""
from __future__ import annotations

import new_process
import pytest
import torch
from language_support import same
from torch import nn
from torch._higher_order_ops.associative_scan import associative_scan
from torch._higher_order_ops.map import map as torch_map
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop

import dynamo_lite

BACKENDS = ["eager", "inductor_lite"]
LINEAR = nn.Linear(3, 3)


def plain_cond(pred, true_fn, false_fn, operands=()):
    return true_fn(*operands) if pred else false_fn(*operands)


def one_operand(x, cond):
    return cond(x.sum() > 3, lambda t: t.sin(), lambda t: t.cos(), (x,))


def closures(x, cond):
    y = x * 2
    return cond(x.sum() > 3, lambda: y.sin(), lambda: x.cos()) + 1


def structures(x, cond):
    return cond(x.sum() > 3, lambda t: (t.sin(), {"a": t + 1}), lambda t: (t.cos(), {"a": t - 1}), (x,))


def nested(x, cond):
    return cond(x.sum() > 3, lambda t: cond(t.max() > 4.9, torch.sin, torch.cos, (t,)), lambda t: t.tan(), (x,))


def known(x, cond):
    return cond(x.shape[0] == 2, lambda t: t.sin(), lambda t: t.cos(), (x,))


@torch.no_grad()
def modules(x, cond):
    return cond((x.sum() > 3).reshape(1), LINEAR, lambda t: LINEAR(t) * 2, (x,))


def under_autograd(x, cond):
    return cond(x.sum() > 3, lambda t: t @ LINEAR.weight, lambda t: t @ LINEAR.weight * 2, (x,))


def one_with_gradients(x, cond):
    return cond(x.sum() > 3, lambda t: t @ LINEAR.weight, lambda t: t * 2, (x,))


def other_shapes(x, cond):
    return cond(x.sum() > 3, lambda t: t.sum(0), lambda t: t.sum(), (x,))


def identity(x, cond):
    return cond(x.sum() > 3, lambda t: t, lambda t: t * 2, (x,))


def random(x, cond):
    return cond(x.sum() > 3, lambda t: t + torch.rand(3), lambda t: t * 2, (x,))


def effects(x, cond):
    seen = []
    return cond(x.sum() > 3, lambda t: seen.append(1) or t.sin(), lambda t: t.cos(), (x,)), seen


ONE_GRAPH = [one_operand, closures, structures, nested, known, modules, under_autograd]
BROKEN = [one_with_gradients, other_shapes, identity, random, effects]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("function", ONE_GRAPH + BROKEN)
def test_cond(function, backend):
    def call(x):
        return function(x, torch.cond)

    def check(compiled):
        for start in (0, -3, 0, -1):
            x = torch.arange(start, start + 6.0).reshape(2, 3)
            torch.manual_seed(0)
            want = function(x, plain_cond)
            torch.manual_seed(0)
            torch.testing.assert_close(compiled(x), want)

    if function in BROKEN:
        with pytest.raises(dynamo_lite.exc.Unsupported, match="cond"):
            dynamo_lite.compile(call, backend=backend, fullgraph=True)(torch.ones(2, 3))
    compiled = dynamo_lite.compile(call, backend=backend, fullgraph=function in ONE_GRAPH)
    with dynamo_lite.config.patch(error_on_recompile=function in ONE_GRAPH):
        check(compiled)


@pytest.mark.parametrize("backend", BACKENDS)
def test_gradients_are_those_of_the_branch_that_ran(backend):
    """The other one is not run: its gradient may be infinite there."""
    def function(x, w, cond):
        a, b = cond(x.sum() > 0, lambda t: (t * w, t.detach() * 2), lambda t: ((-t).sqrt(), t.detach() - 1), (x,))
        return (a * b).sum()

    def gradients(run, cond, start):
        x, w = torch.tensor([start, 0.0], requires_grad=True), torch.tensor([3.0, 4.0], requires_grad=True)
        loss = run(x, w, cond) if cond is plain_cond else run(x, w)
        loss.backward()
        return loss.item(), x.grad.tolist(), w.grad if w.grad is None else w.grad.tolist()

    compiled = dynamo_lite.compile(lambda x, w: function(x, w, torch.cond), backend=backend, fullgraph=True)
    with dynamo_lite.config.patch(error_on_recompile=True):
        for start in (2.0, -1.0, 3.0):
            assert gradients(compiled, torch.cond, start) == gradients(function, plain_cond, start)


def test_a_condition_for_each_of_a_batch():
    def function(x):
        return torch.vmap(lambda t: torch.cond(t.sum() > 0, torch.sin, torch.cos, (t,)))(x)

    x = torch.tensor([[1.0], [-1.0], [2.0]])
    for backend in BACKENDS:
        got = dynamo_lite.compile(function, backend=backend, fullgraph=True)(x)
        torch.testing.assert_close(got, torch.where(x > 0, x.sin(), x.cos()))


def pairs(x):
    def combine(a, b):
        return b[0] * a[0], b[0] * a[1] + b[1]

    return associative_scan(combine, (x, x + 1), dim=0, combine_mode="generic")


def long(x):
    return associative_scan(torch.mul, x.repeat(1, 3), dim=1, combine_mode="generic")


def in_reverse(x):
    made = associative_scan(lambda a, b: {"k": a["k"] + b["k"]}, {"k": x}, dim=1, reverse=True, combine_mode="generic")
    return made["k"]


def refused(x):
    try:
        return associative_scan(torch.mul, x, dim=1)
    except ValueError as error:
        return x, str(error)


# Since torch 2.15 the default mode is no error on a CPU: torch compiles the scan by itself there.
REFUSES = torch.__version__ < (2, 15)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("function", [pairs, long, in_reverse, *([refused] if REFUSES else [])])
def test_associative_scan(function, backend):
    compiled = dynamo_lite.compile(function, backend=backend, fullgraph=True)
    with dynamo_lite.config.patch(error_on_recompile=True):
        for x in (torch.arange(6.0).reshape(2, 3), torch.ones(2, 3)):
            assert same(compiled(x), function(x)) or backend != "eager"
            torch.testing.assert_close(compiled(x)[0], function(x)[0])


def test_gradients_of_an_associative_scan():
    def f(x, w):
        return associative_scan(lambda a, b: a * b + b, x * w, dim=0, combine_mode="generic").sum()

    x, w = torch.rand(5, 3), torch.rand(3, requires_grad=True)
    (want,) = torch.autograd.grad(f(x, w), w)
    (got,) = torch.autograd.grad(dynamo_lite.compile(f, fullgraph=True)(x, w), w)
    torch.testing.assert_close(got, want)


@pytest.mark.parametrize("backend", BACKENDS)
def test_loops(backend):
    def loop(x):
        return while_loop(lambda t: t.sum() < 100, lambda t: (t * 2 + 1,), (x,))

    def no_turn(x):
        return while_loop(lambda t: t.sum() > 1000, lambda t: (t * 2 + 1,), (x,))

    def counted(x):
        return while_loop(lambda i, t: i < 3, lambda i, t: (i + 1, t * 2), (torch.tensor(0), x))

    x = torch.arange(6.0).reshape(2, 3)
    want = x
    while want.sum() < 100:
        want = want * 2 + 1
    for _ in range(2):
        assert same(dynamo_lite.compile(loop, backend=backend)(x)[0], want)
        (made,) = dynamo_lite.compile(no_turn, backend=backend)(x)
        assert same(made, x) and made is not x
        assert same(dynamo_lite.compile(counted, backend=backend, fullgraph=True)(x), (torch.tensor(3), x * 8))


@pytest.mark.parametrize("backend", BACKENDS)
def test_maps_and_scans(backend):
    def maps(x):
        return torch_map(lambda t, y: {"a": t + y}, x, x[0]), scan(lambda c, t: (c + t, c * t), x[0], x)

    compiled = dynamo_lite.compile(maps, backend=backend, fullgraph=True)
    for x in (torch.arange(6.0).reshape(2, 3), torch.ones(2, 3)):
        mapped, (carry, scanned) = compiled(x)
        assert same(mapped, {"a": x + x[0]})
        assert same(carry, x[0] + x.sum(0)) and same(scanned, torch.stack([x[0] * x[0], (x[0] + x[0]) * x[1]]))


def test_a_break_does_not_call_torch_compile():
    code = (
        "import sys, torch, dynamo_lite\n"
        "f = dynamo_lite.compile(lambda x: torch.cond(x.sum() > 3, lambda: x[0], lambda: x), backend='eager')\n"
        "assert f(torch.ones(4)).shape == () and f(torch.zeros(4)).shape == (4,)\n"
        "assert 'torch._dynamo' not in sys.modules\n"
    )
    done = new_process.run(code)
    assert done.returncode == 0, done.stderr
