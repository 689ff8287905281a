"""``torch.utils.checkpoint``: values, gradients, random numbers and memory as in eager."""
from __future__ import annotations

import types
import warnings

import pytest
import torch
import torch.nn.functional as F
from gradient_checks import check, check_one_graph
from torch import nn
from torch.utils.checkpoint import checkpoint, checkpoint_sequential

import dynamo_lite

pytestmark = pytest.mark.by_turns(3)

BACKENDS = ["eager", "inductor_lite"]
torch.manual_seed(0)
FIRST, SECOND = nn.Linear(3, 8), nn.Linear(8, 3)
SEQUENCE = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 3), nn.Tanh())
NORM = nn.BatchNorm1d(3)
LOG: list = []
STATE = types.SimpleNamespace(inside=False, count=0)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.dropout = nn.Dropout(0.3)

    def forward(self, x, mask=None):
        return self.dropout(self.linear(x)).relu() if mask is None else self.linear(x) * mask


BLOCK = Block()
MODULES = [FIRST, SECOND, SEQUENCE, NORM, BLOCK]


def layer(v):
    return SECOND(torch.relu(FIRST(v)))


def structured(v, *, scale=1.0, name=None):
    return {"a": layer(v) * scale, "b": (name, v)}


def random_layer(v):
    return F.dropout(layer(v), 0.5, True)


def logging_layer(v):
    LOG.append(1)
    return layer(v)


def without_grad(x):
    with torch.no_grad():
        y = checkpoint(layer, x, use_reentrant=False)
    return y + x


def with_keywords(x):
    out = checkpoint(structured, x, scale=2.0, name="q", use_reentrant=False)
    return out["a"] + out["b"][1] + len(out["b"][0])


def over_closure(x):
    y = x.sin()
    return checkpoint(lambda v: v * y, x * 2, use_reentrant=False)


def counts(v):
    NORM.num_batches_tracked.add_(3)
    return layer(v)


def counts_at_the_end(v):
    y = layer(v).sum()
    NORM.num_batches_tracked.add_(3)
    return y


def counts_in_python(v):
    STATE.count += 1
    return layer(v)


def sets_and_resets(v):
    STATE.inside = True
    y = layer(v)
    STATE.inside = False
    return y.tanh() if not STATE.inside else y


def resets_too_late(v):
    STATE.inside = True
    y = layer(v).tanh()
    STATE.inside = False  # the second run does not come here
    return y * 2


PROGRAMS = {
    "statistics": lambda x: checkpoint(NORM, x, use_reentrant=False),
    "statistics_reentrant": lambda x: checkpoint(NORM, x * 1, use_reentrant=True),
    "statistics_among_others": lambda x: checkpoint(
        lambda v: layer(NORM(F.dropout(v, 0.5))), x.sin() * 2, use_reentrant=False).tanh() + torch.rand(3) * x,
    "statistics_twice": lambda x: checkpoint(NORM, checkpoint(NORM, x, use_reentrant=False), use_reentrant=False),
    "statistics_read_later": lambda x: checkpoint(NORM, x, use_reentrant=False) * NORM.running_mean
    + NORM.num_batches_tracked,
    "a_write": lambda x: checkpoint(counts, x, use_reentrant=False),
    "set_and_reset": lambda x: checkpoint(sets_and_resets, x, use_reentrant=False),
    "not_reentrant": lambda x: checkpoint(layer, x, use_reentrant=False) * 2,
    "reentrant": lambda x: checkpoint(layer, x * 1, use_reentrant=True) * 2,
    "keywords": with_keywords,
    "random": lambda x: checkpoint(random_layer, x, use_reentrant=False) + torch.rand(3),
    "random_twice": lambda x: checkpoint(random_layer, x, use_reentrant=False, preserve_rng_state=True).sum()
    + checkpoint(random_layer, x, use_reentrant=True).sum(),
    "module": lambda x: checkpoint(BLOCK, x, use_reentrant=False)
    + checkpoint(BLOCK.__call__, x, x.detach(), use_reentrant=False),
    "sequential": lambda x: checkpoint_sequential(SEQUENCE, 2, x, use_reentrant=False),
    "nested": lambda x: checkpoint(
        lambda v: checkpoint(layer, v, use_reentrant=False) * 2, x, use_reentrant=False),
    "closure": over_closure,
    "no_grad": without_grad,
    "no_gradient_needed": lambda x: checkpoint(torch.sin, x.detach(), use_reentrant=False) * x,
}
BREAKING = {
    "unsaid": (lambda x: checkpoint(layer, x), "warns"),
    "no_input_needs_grad": (lambda x: checkpoint(layer, x.detach(), use_reentrant=True) * x, "warns"),
    "effect": (lambda x: checkpoint(logging_layer, x, use_reentrant=False), "changes list"),
    "late_write": (
        lambda x: checkpoint(counts_at_the_end, x, use_reentrant=False), "after all that its gradients need"),
    "nested_writes": (lambda x: checkpoint(
        lambda v: NORM(checkpoint(NORM, v, use_reentrant=False)), x, use_reentrant=False), "a checkpoint that writes"),
    "reset_too_late": (lambda x: checkpoint(resets_too_late, x, use_reentrant=False), "changes"),
    "attribute": (lambda x: checkpoint(counts_in_python, x, use_reentrant=False), "changes"),
    "print": (lambda x: checkpoint(lambda v: (print(end=""), layer(v))[1], x, use_reentrant=False), "print"),
}


def run(function):
    torch.manual_seed(0)
    x = torch.randn(4, 3, requires_grad=True)
    LOG.clear()
    STATE.count, STATE.inside = 0, False
    NORM.reset_running_stats()
    for module in MODULES:
        module.zero_grad()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        y = function(x)
    y.sum().backward()
    grads = [p.grad for module in MODULES for p in module.parameters()]
    buffers = [b.clone() for b in NORM.buffers()]
    return [y.detach(), x.grad, *grads, *buffers, torch.rand(2), torch.tensor(LOG),
            torch.tensor([STATE.count, STATE.inside])]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_one_graph(name, backend):
    check_one_graph(run, PROGRAMS[name], backend)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", BREAKING)
def test_breaks_with_a_reason(name, backend):
    program, reason = BREAKING[name]

    def function(x):
        return program(x) + 1

    with pytest.raises(dynamo_lite.exc.Unsupported, match=reason):
        run(dynamo_lite.compile(function, backend=backend, fullgraph=True))
    compiled = dynamo_lite.compile(function, backend=backend)
    check(run, function, compiled)
    check(run, function, compiled)


LAYERS = nn.ModuleList(
    [nn.Sequential(nn.Linear(32, 128), nn.GELU(), nn.Linear(128, 32), nn.Dropout(0.1)) for _ in range(4)])


def saved_bytes(function, x):
    """What autograd keeps of a call, parameters left out."""
    parameters = {p.untyped_storage().data_ptr() for p in LAYERS.parameters()}
    kept: dict[int, int] = {}

    def pack(t):
        storage = t.untyped_storage()
        if storage.data_ptr() not in parameters:
            kept[storage.data_ptr()] = storage.nbytes()
        return t

    function(x)
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        y = function(x)
    y.sum().backward()
    return sum(kept.values())


@pytest.mark.parametrize("backend", BACKENDS)
def test_memory_is_that_of_the_inputs(backend):
    def net(x, checkpointed):
        for part in LAYERS:
            x = checkpoint(part, x, use_reentrant=False) if checkpointed else part(x)
        return x

    x = torch.randn(64, 32, requires_grad=True)
    compiled = dynamo_lite.compile(net, backend=backend, fullgraph=True)
    usual = saved_bytes(lambda v: compiled(v, False), x)
    assert saved_bytes(lambda v: compiled(v, True), x) < usual / 4


@pytest.mark.parametrize("backend", BACKENDS)
def test_first_call_under_hooks_on_saved_tensors(backend):
    """The trace must not show its fake tensors to the program's hooks."""
    seen = []

    def pack(t):
        seen.append(type(t))
        return t

    x = torch.randn(4, 3, requires_grad=True)
    compiled = dynamo_lite.compile(layer, backend=backend, fullgraph=True)
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        y = compiled(x)
    y.sum().backward()
    assert set(seen) <= {torch.Tensor, nn.Parameter}
    torch.testing.assert_close(x.grad, torch.autograd.grad(layer(x).sum(), x)[0])


def test_a_list_of_the_frame_that_is_changed_twice():
    weight = torch.ones(3, requires_grad=True)

    def f(x):
        seen = []

        def part(t):
            seen.append(1)
            return (t * weight).sin()

        return checkpoint(part, x, use_reentrant=False), seen

    compiled = dynamo_lite.compile(f, backend="eager")
    for function in (f, compiled, compiled):
        made, seen = function(torch.ones(3))
        made.sum().backward()
        assert seen == [1, 1]


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_second_run_that_draws_other_numbers_breaks(backend):
    def function(x):
        return checkpoint(random_layer, x, use_reentrant=False, preserve_rng_state=False)

    def gradients(run):
        torch.manual_seed(0)
        x = torch.ones(5, 3, requires_grad=True)
        run(x).sum().backward()
        return x.grad, torch.rand(1)

    with pytest.raises(dynamo_lite.exc.Unsupported, match="preserve_rng_state=False"):
        dynamo_lite.compile(function, backend=backend, fullgraph=True)(torch.ones(5, 3, requires_grad=True))
    torch.testing.assert_close(gradients(dynamo_lite.compile(function, backend=backend)), gradients(function))
    same = dynamo_lite.compile(
        lambda x: checkpoint(layer, x, use_reentrant=False, preserve_rng_state=False), backend=backend, fullgraph=True)
    same(torch.ones(5, 3, requires_grad=True))
