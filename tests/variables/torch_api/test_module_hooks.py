"""Hooks of modules that the compiled function itself registers and removes."""
import collections
import copy

import pytest
import torch
from torch import nn
from torch.nn.modules import module as global_hooks
from torch.utils.hooks import RemovableHandle

import dynamo_lite
from dynamo_lite import log


class State:
    def __init__(self):
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 3))
        self.handle = None

    def hooks(self):
        """What is registered, and in which order."""
        tables = [t for m in self.model.modules() for t in (m._forward_pre_hooks, m._forward_hooks)]
        return [(len(t), list(t) == sorted(t)) for t in tables]


def double(module, args, out):
    return out * 2


def more(module, args):
    return (args[0] + 1,)


CAPTURED = {}
BREAKS = {}


def captured(program):
    CAPTURED[program.__name__] = program


def breaks(program):
    BREAKS[program.__name__] = program


@captured
def one_of_each(state, x):
    before, after = state.model[0].register_forward_pre_hook(more), state.model[0].register_forward_hook(double)
    y = state.model(x)
    before.remove()
    z = state.model(x)
    after.remove()
    return y, z, state.model(x)


@captured
def activations_by_name(state, x):
    seen = {}

    def note(name):
        def hook(module, args, out):
            seen[name] = out.detach()
        return hook

    handles = [layer.register_forward_hook(note(name)) for name, layer in state.model.named_modules()]
    y = state.model(x)
    for handle in handles:
        handle.remove()
    return y, seen


@captured
def the_same_hook_twice(state, x):
    first, second = (state.model[0].register_forward_hook(double) for _ in range(2))
    y = state.model(x)
    first.remove()
    z = state.model(x)
    first.remove()
    w = state.model(x)
    second.remove()
    return y, z, w


@captured
def in_a_with_block_that_raises(state, x):
    try:
        with state.model[2].register_forward_hook(lambda module, args, out: out - 1):
            y = state.model(x)
            raise ValueError
    except ValueError:
        return y, state.model(x)


@captured
def for_a_checkpoint(state, x):
    handle = state.model[0].register_forward_hook(double)
    y = torch.utils.checkpoint.checkpoint(state.model, x, use_reentrant=False)
    handle.remove()
    return y


@captured
def options_that_are_off(state, x):
    with state.model[0].register_forward_hook(double, prepend=False, with_kwargs=False):
        return state.model(x)


@breaks
def asked_for(state, x):
    handle = state.model[0].register_forward_hook(double)
    y = state.model(x) * len(state.model[0]._forward_hooks)
    handle.remove()
    return y


@breaks
def asked_for_before(state, x):
    n = len(state.model[0]._forward_hooks)
    with state.model[0].register_forward_hook(double):
        return state.model(x) * (n + 1)


@breaks
def dicts_replaced(state, x):
    handle = state.model[0].register_forward_hook(double)
    state.model[0]._forward_hooks = collections.OrderedDict()
    y = state.model(x)
    handle.remove()
    return y


@breaks
def dicts_replaced_in_vars(state, x):
    handle = state.model[0].register_forward_hook(double)
    vars(state.model[0])["_forward_hooks"] = collections.OrderedDict()
    y = state.model(x)
    handle.remove()
    return y


@breaks
def numbers_of_handles(state, x):
    before = RemovableHandle.next_id
    with state.model[0].register_forward_hook(double) as handle:
        return x + (handle.id - before), x + (RemovableHandle.next_id - before)


@breaks
def a_break_in_between(state, x):
    with state.model[0].register_forward_hook(double):
        y = state.model(x)
        dynamo_lite.graph_break()
        z = state.model(x)
    return y, z, state.model(x)


@breaks
def a_hook_that_removes_itself(state, x):
    def hook(module, args, out):
        handle.remove()
        return out * 5

    handle = state.model[0].register_forward_hook(hook)
    return state.model(x), state.model(x)


@breaks
def a_hook_that_registers_another(state, x):
    def hook(module, args):
        state.handle = module.register_forward_hook(double)

    with state.model[0].register_forward_pre_hook(hook):
        y = state.model(x)
    state.handle.remove()
    return y, state.model(x)


@breaks
def copied(state, x):
    with state.model[0].register_forward_hook(double):
        other = copy.deepcopy(state.model[0])
    return other(x)


@breaks
def in_front(state, x):
    with state.model[0].register_forward_hook(double), state.model[0].register_forward_hook(
            lambda module, args, out: out + 1, prepend=True):
        return state.model(x)


@breaks
def beside_a_global_hook(state, x):
    handle = global_hooks.register_module_forward_hook(lambda module, args, out: out + 0.5)
    with state.model[0].register_forward_hook(double):
        y = state.model(x)
    handle.remove()
    return y


def run(program, backend):
    """For each of some calls: result, gradients, hooks that are left and how far hooks are numbered; and what has been
    counted in it."""
    dynamo_lite.reset()
    state, found, counted = State(), [], []
    called = program if backend is None else dynamo_lite.compile(program, backend=backend)
    for _ in range(3):
        before, number = collections.Counter(log.counters()), RemovableHandle.next_id
        x = torch.randn(2, 3, requires_grad=True)
        result = called(state, x)
        leaves = [t for t in torch.utils._pytree.tree_leaves(result) if isinstance(t, torch.Tensor)]
        sum(t.sum() for t in leaves).backward()
        found.append(([t.detach() for t in leaves], [x.grad], state.hooks(), RemovableHandle.next_id - number))
        after = collections.Counter(log.counters())
        counted.append(tuple(after[k] - before[k] for k in ("graphs", "graph_breaks", "recompiles")))
    return found, counted


@pytest.mark.parametrize("backend", ["eager", "inductor_lite"])
@pytest.mark.parametrize("name", [*CAPTURED, *BREAKS])
def test_hooks_as_in_eager(name, backend):
    program = {**CAPTURED, **BREAKS}[name]
    expected, _ = run(program, None)
    found, counted = run(program, backend)
    for (want, gradients, *rest), (got, made, *others) in zip(expected, found):
        assert rest == others
        torch.testing.assert_close([*got, *made], [*want, *gradients], rtol=1e-4, atol=1e-5)
    if name in CAPTURED:
        assert counted == [(1, 0, 0), (0, 0, 0), (0, 0, 0)]
    else:
        assert counted[0][1] > 0


def test_a_hook_that_stays():
    """The handle is real behind the call, and later calls find one hook more."""
    model, x = nn.Linear(3, 3), torch.randn(2, 3)
    model.requires_grad_(False)
    plain = model(x)

    @dynamo_lite.compile(backend="eager", fullgraph=True)
    def program():
        return model(x), model.register_forward_hook(double), model(x)

    for n in range(3):
        before, handle, after = program()
        assert type(handle) is RemovableHandle and len(model._forward_hooks) == n + 1
        assert torch.equal(before, plain * 2 ** n) and torch.equal(after, plain * 2 ** (n + 1))
    handle.remove()
    assert len(model._forward_hooks) == 2
