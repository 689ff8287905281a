"""Sizes that only the running graph knows: eager's values, layouts, gradients and errors, by one graph."""
import logging

import pytest
import torch
import torch.utils.checkpoint
from torch.utils import _pytree as pytree

import dynamo_lite
from dynamo_lite import config, exc
from dynamo_lite.backends import lookup_backend

pytestmark = pytest.mark.by_turns(3)

BACKENDS = ("eager", "aot_eager", "inductor_lite")


@pytest.fixture(autouse=True)
def _captured():
    with config.patch(
            capture_dynamic_output_shape_ops=True, capture_scalar_outputs=True, raise_internal_errors=True):
        yield


class Counting:
    """A backend by name that counts the graphs it gets from captures."""

    def __init__(self, name):
        self.graphs = []
        self.backend = lookup_backend(name)

    def __call__(self, gm, inputs):
        self.graphs.append(gm)
        return self.backend(gm, inputs)


def outcome(fn, *args):
    try:
        return fn(*args)
    except Exception as error:
        return type(error), str(error)


def agree(want, got):
    for a, b in zip(pytree.tree_leaves(want), pytree.tree_leaves(got), strict=True):
        if isinstance(a, torch.Tensor):
            torch.testing.assert_close(b, a, equal_nan=True)
            assert a.shape == b.shape and a.stride() == b.stride()
        else:
            assert type(a) is type(b) and a == b


def compare(fn, calls, backend, graphs=1, **options):
    """Compares the calls of a function, compiled whole, with eager's, and the number of graphs."""
    counting = Counting(backend)
    compiled = dynamo_lite.compile(fn, backend=counting, fullgraph=True, **options)
    for args in calls:
        agree(outcome(fn, *args), outcome(compiled, *args))
    assert len(counting.graphs) == graphs


def with_positive(counts, rows=6, columns=4):
    """Matrices with so many positive elements each, in places that differ."""
    for count in counts:
        x = -torch.rand(rows, columns) - 0.1
        x.view(-1)[torch.randperm(x.numel())[:count]] *= -1
        yield (x,)


def _boxes(x):
    kept = (x[:, 0] > -0.7).nonzero().squeeze(1)
    return x.index_select(0, kept) * 2, kept.numel(), len(kept) + 1


def _attention(x):
    rows = x[x[:, 1] > -0.8]
    scores = (rows @ rows.t()).softmax(-1)
    return scores @ rows, torch.zeros(rows.shape[0]) + rows[:, 0], rows.mean(0)


def _empty_is_apart(x):
    y = x[x > 0]
    if y.numel() == 0:
        return x
    return y * torch.arange(y.numel()), torch.cat([y, y]), torch.stack([y, y])


def _written(x):
    x = x * 1
    x[x > 0] = 7.0
    y = x[x < 0]
    y.mul_(2).add_(1)
    return x, y


PROGRAMS = {
    "nonzero": lambda x: torch.nonzero(x > 0) * 2 + 1,
    "nonzero as a tuple": lambda x: x[torch.nonzero(x > 0, as_tuple=True)] + 1,
    "argwhere": lambda x: torch.argwhere(x > 0).float().sum(1),
    "mask": lambda x: (x[x > 0].exp(), x[x > 0].sum()),
    "mask of rows": lambda x: x[x[:, 0] > -0.6] * 2,
    "mask of columns": lambda x: x[:, x[0] < 5].t() + 1,
    "mask and numbers": lambda x: x[x[:, 0] < 0, 1] - 1,
    "where": lambda x: x[torch.where(x > 0)].relu(),
    "masked_select": lambda x: torch.masked_select(x, x > 0).view(1, -1) * 2,
    "unique": lambda x: torch.unique(x.sign() * torch.arange(4)) * 2,
    "unique with places": lambda x: torch.unique(x.round(), return_inverse=True, return_counts=True),
    "unique rows": lambda x: torch.unique(x.sign(), dim=0).sum(1),
    "unique consecutive": lambda x: x.sign().unique_consecutive() + 1,
    "repeat_interleave": lambda x: x.repeat_interleave((x[:, 0] > 0).long() + 1, dim=0) * 2,
    "bincount": lambda x: torch.bincount((x > 0).sum(1)) * 2,
    "sizes as results": lambda x: (x[x > 0].shape[0], x[x > 0].numel() * 2 + 1, tuple(x[x > 0].shape)),
    "boxes": _boxes,
    "attention": _attention,
    "a branch on emptiness": _empty_is_apart,
    "written": _written,
    "flipped": lambda x: x[x > 0].flip(0).cumsum(0),
    "neighbours": lambda x: (lambda y: y[1:] - y[:-1])(x[x > 0]),
}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_one_graph_for_all_sizes(name, backend):
    torch.manual_seed(0)
    compare(PROGRAMS[name], [*with_positive((5, 9, 2, 14, 1, 0, 24))], backend)


@pytest.mark.parametrize("backend", BACKENDS)
def test_beside_sizes_that_change(backend):
    def fn(x):
        y = x[x > 0]
        return y * x.shape[0], torch.cat([y, x[:, 0]]), x.sum(0) + y.sum()

    calls = [args for rows in (6, 7, 9) for args in with_positive((5, 8), rows)]
    compare(fn, calls, backend, graphs=2)
    compare(fn, calls, backend, dynamic=True)


@pytest.mark.parametrize("backend", BACKENDS)
def test_gradients(backend):
    def fn(x, w):
        rows = x.tanh()[x[:, 0] > -0.6]
        return (rows @ w).relu().sum(), torch.masked_select(x * w[0, 0], x > 0).exp().mean()

    compiled = dynamo_lite.compile(fn, backend=backend, fullgraph=True)
    torch.manual_seed(0)
    for (x,) in with_positive((5, 9, 3, 1)):
        grads = []
        for call in (fn, compiled):
            a, w = x.clone().requires_grad_(), torch.full((4, 3), 0.5, requires_grad=True)
            first, second = call(a, w)
            (first + second).backward()
            grads.append((first.detach(), second.detach(), a.grad, w.grad))
        agree(*grads)


def test_graphs_are_compiled_around_the_operation():
    compiled = dynamo_lite.compile(lambda x: (x.exp() * 2)[x > 0] * 3 + 1, fullgraph=True)
    ((x,),) = [*with_positive((7,))]
    dynamo_lite.reset_metrics()
    compiled(x)
    assert dynamo_lite.metrics()["kernels"] >= 2


# ---------------------------------------------------------------- numbers out of tensors
def _item_slice(x, n):
    n = n.item()
    torch._check(n >= 0)
    torch._check(n <= x.shape[0])
    return x[:n] * 2


def _item_made(x, n):
    n = n.item()
    return torch.zeros(n, 3) + 1, x.new_ones(n), torch.arange(n), torch.full((n,), 2.0).exp(), n


def _item_checked(x, n):
    n = n.item()
    torch._check_is_size(n)
    return torch.arange(n + 1) * 2, torch.zeros(2 * n).view(2, n).cos()


def _item_refused(x, n):
    n = n.item()
    if n > x.shape[0]:
        raise ValueError(f"{n} is too many")
    return x.new_zeros(n, 4).sum(0)


def _item_message(x, n):
    n = n.item()
    torch._check(n < 9, lambda: f"{n} is not below 9")
    return torch.ones(n) * 2


ITEMS = [_item_slice, _item_made, _item_checked, _item_refused, _item_message]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("fn", ITEMS, ids=lambda fn: fn.__name__)
def test_numbers_out_of_tensors(fn, backend):
    compare(fn, [(torch.randn(6, 4), torch.tensor(n)) for n in (3, 5, 2, 6, 1, 0, -1, 7, 12)], backend)


@pytest.mark.parametrize("backend", BACKENDS)
def test_lists_of_sizes(backend):
    def fn(x, sizes):
        a, b = sizes.tolist()
        torch._check(a + b == x.shape[0])
        first, second = x.split([a, b])
        return first * 2, second + 1

    compare(fn, [(torch.randn(9, 4), torch.tensor([a, 9 - a])) for a in (3, 5, 2, 8, 9)], backend)


# ---------------------------------------------------------------- what can't be known
def test_decisions_name_the_line():
    def fn(x):
        y = x[x > 0]
        return y + 1 if y.shape[0] > 5 else y - 1

    calls = [*with_positive((3, 8))]
    with pytest.raises(exc.Unsupported, match=r"y.shape\[0\] > 5"):
        dynamo_lite.compile(fn, backend="eager", fullgraph=True)(*calls[0])
    compiled = dynamo_lite.compile(fn, backend="eager")
    for args in calls:
        agree(fn(*args), compiled(*args))

    def added(x):
        return x[x > 0] + x[0]

    with pytest.raises(exc.Unsupported, match=r"x\[x > 0\] \+ x\[0\]"):
        dynamo_lite.compile(added, backend="eager", fullgraph=True)(*calls[0])


def test_without_the_setting_the_graph_breaks():
    with config.patch(capture_dynamic_output_shape_ops=False, capture_with_fullgraph=False):
        ((x,),) = [*with_positive((7,))]
        with pytest.raises(exc.Unsupported, match="dynamic_output_shape"):
            dynamo_lite.compile(lambda x: x[x > 0] + 1, backend="eager", fullgraph=True)(x)


def test_a_size_that_the_graph_is_not_made_for_is_logged(caplog):
    compiled = dynamo_lite.compile(lambda x: x[x > 0] + 1, backend="eager", fullgraph=True)
    dynamo_lite.set_logs("fallbacks")
    calls = [*with_positive((7, 1, 1))]
    with caplog.at_level(logging.INFO, logger="dynamo_lite"):
        for args in calls:
            compiled(*args)
    told = [r.getMessage() for r in caplog.records if "a size that elements decide is 1" in r.getMessage()]
    assert len(told) == 1


def test_writes_before_a_size_is_known_are_undone():
    def fn(x):
        x.mul_(2)
        return x[x > 0] + 1

    for backend in BACKENDS:
        compiled = dynamo_lite.compile(fn, backend=backend, fullgraph=True)
        for (x,) in with_positive((5, 9, 1, 0)):
            a, b = x.clone(), x.clone()
            agree(fn(a), compiled(b))
            agree(a, b)


# ---------------------------------------------------------------- mark_unbacked
def test_marked_sizes_are_not_decided_about():
    def fn(x):
        return x * 2 if x.shape[0] > 5 else x

    def general(x):
        return x.relu().sum(1) + x.shape[0], x.t() @ x

    def said(x):
        torch._check(x.shape[0] > 3)
        return x * 2 if x.shape[0] > 3 else x

    import torch._dynamo

    for mark in (dynamo_lite.mark_unbacked, torch._dynamo.decorators.mark_unbacked):
        x = torch.randn(6, 4)
        mark(x, 0)
        with pytest.raises(exc.Unsupported, match=r"x.shape\[0\] > 5"):
            dynamo_lite.compile(fn, backend="eager", fullgraph=True)(x)
        for backend in BACKENDS:
            for function in (general, said):
                counting = Counting(backend)
                compiled = dynamo_lite.compile(function, backend=counting, fullgraph=True)
                for n in (6, 9, 4):
                    x = torch.randn(n, 4)
                    mark(x, 0)
                    agree(function(x), compiled(x))
                assert len(counting.graphs) == 1


# ---------------------------------------------------------------- beside other parts of programs
def _scattered(x):
    rows, columns = torch.where(x > 0)
    out = torch.zeros(x.shape[0])
    return out.scatter_add(0, rows, x[rows, columns]), out.index_add(0, rows, torch.ones_like(rows, dtype=x.dtype))


def _picked(x):
    y = x[x > 0]
    return y[:2] * 2, y[1:] + 1, y[-1], y[0] * y.shape[0], y.numel() / 2, y.sort().values, y.topk(2).values, y.argmin()


def _distances(x):
    y = x[x > 0]
    apart = (y[:, None] - y[None, :]).abs()
    return apart.sum(1), torch.triu(apart, 1), apart.amin(0), y.expand(3, -1).mean(0)


def _random(x):
    y = x[x > 0]
    return y + torch.randn(y.shape[0]), torch.rand_like(y), torch.nn.functional.dropout(y, 0.5)


class _Double(torch.autograd.Function):
    @staticmethod
    def forward(ctx, a):
        ctx.save_for_backward(a)
        return a * 2

    @staticmethod
    def backward(ctx, grad):
        (a,) = ctx.saved_tensors
        return grad * a


def _functions(x):
    y = x[x > 0]
    again = torch.utils.checkpoint.checkpoint(lambda t: t.view(-1, 1) * t.shape[0], y, use_reentrant=False)
    return again, _Double.apply(y) * y.shape[0], torch.vmap(lambda t: t * 2)(y)


def _masked_twice(x):
    for i in range(3):
        x = x[x[:, i] > -1.0]
    return x * 2, x.shape[0]


BESIDE = [_scattered, _picked, _distances, _random, _functions, _masked_twice]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("fn", BESIDE, ids=lambda fn: fn.__name__)
def test_beside_other_parts(fn, backend):
    compiled = dynamo_lite.compile(fn, backend=backend, fullgraph=True)
    torch.manual_seed(0)
    for gradients in (False, True):
        for (x,) in with_positive((5, 9, 14, 1)):
            results = []
            for call in (fn, compiled):
                given = x.clone().requires_grad_(gradients)
                torch.manual_seed(1)
                made = outcome(call, given)
                leaves = [t for t in pytree.tree_leaves(made) if isinstance(t, torch.Tensor) and t.requires_grad]
                loss = sum(((t * t).sum() for t in leaves), torch.zeros(()))
                results.append((made, torch.autograd.grad(loss, given) if leaves else ()))
            agree(*results)


@pytest.mark.parametrize("fn", [
    lambda x: x[x > 0] + 1, lambda x: x * x.sum().item(), lambda x: torch.nonzero(x > 0).float().mean(),
    lambda x: torch.unique(x > 0), lambda x: torch.bincount((x > 0).flatten().long()),
    lambda x: torch.tensor(x.tolist()),
    lambda x: torch.masked_select(x, x > 0).sum() + x[x > 0].mean().item()])
def test_fullgraph_needs_no_setting(fn):
    """As with torch.compile: what would be a break is a node."""
    with config.patch(capture_dynamic_output_shape_ops=False, capture_scalar_outputs=False):
        compiled = dynamo_lite.compile(fn, backend="eager", fullgraph=True)
        with config.patch(error_on_recompile=True):
            for args in with_positive((7, 9, 7)):
                torch.testing.assert_close(compiled(*args), fn(*args))
