"""Hooks of modules and of tensors: what they do is done in eager's order, inside a graph or around its breaks."""
import collections

import pytest
import torch
from torch import nn
from torch.nn.modules import module as global_hooks

import dynamo_lite
from dynamo_lite import config, log


class Scaled(nn.Module):
    def forward(self, x, *, scale=1):
        return x * scale


class Fails(nn.Module):
    def forward(self, x):
        raise ValueError("no")


def run(make, backend, calls=3):
    """What a few calls give; the gradients; what the hooks have noted; graphs and breaks of each call."""
    torch.manual_seed(0)
    dynamo_lite.reset()
    noted = []
    handles = []
    function = make(noted.append, handles.append)
    called = function if backend is None else dynamo_lite.compile(function, backend=backend)
    found, counted = [], []
    try:
        for _ in range(calls):
            before = collections.Counter(log.counters())
            x = torch.randn(4, 3, requires_grad=True)
            result = called(x)
            result.sum().backward()
            found += [result, x.grad]
            after = collections.Counter(log.counters())
            counted.append(tuple(after[k] - before[k] for k in ("graphs", "graph_breaks", "recompiles")))
    finally:
        for handle in handles:
            handle.remove()
    return found, noted, counted


CAPTURED = {}
BREAKS = {}


def captured(make):
    CAPTURED[make.__name__] = make


def breaks(make):
    BREAKS[make.__name__] = make


@captured
def forward_hook(note, keep):
    model = nn.Linear(3, 3)
    model.register_forward_hook(lambda module, args, out: out * 2)
    return lambda x: model(x) + 1


@captured
def forward_hooks_in_order(note, keep):
    model = nn.Linear(3, 3)
    model.register_forward_hook(lambda module, args, out: note("second"))
    model.register_forward_hook(lambda module, args, out: note("first"), prepend=True)
    model.register_forward_pre_hook(lambda module, args: note("before"))
    return lambda x: model(x) + 1


@captured
def hooks_with_kwargs(note, keep):
    model = Scaled()
    model.register_forward_pre_hook(lambda m, a, k: (a, {**k, "scale": k.get("scale", 1) + 1}), with_kwargs=True)
    model.register_forward_hook(lambda m, a, k, out: out * k["scale"], with_kwargs=True)
    return lambda x: model(x, scale=3) + model(x)


@captured
def pre_hook_that_changes_arguments(note, keep):
    model = nn.Linear(3, 3)
    model.register_forward_pre_hook(lambda module, args: (args[0] * 2,))
    return lambda x: model(x)


@captured
def global_forward_hooks(note, keep):
    model = nn.Sequential(nn.Linear(3, 3), nn.Tanh())
    keep(global_hooks.register_module_forward_hook(lambda m, args, out: note(type(m).__name__)))
    keep(global_hooks.register_module_forward_pre_hook(lambda m, args: (args[0] * 2,)))
    return lambda x: model(x)


@captured
def hook_that_was_removed(note, keep):
    model = nn.Linear(3, 3)
    model.register_forward_hook(lambda module, args, out: out * 2).remove()
    return lambda x: model(x) + 1


@captured
def hook_that_always_runs(note, keep):
    model = Fails()
    model.register_forward_hook(lambda module, args, out: note(out is None), always_call=True)
    model.register_forward_hook(lambda module, args, out: note("never"))

    def function(x):
        try:
            return model(x)
        except ValueError as error:
            return x + len(str(error))

    return function


@captured
def hook_that_always_runs_after_another_that_raises(note, keep):
    model = nn.Linear(3, 3)

    def fail(module, args, out):
        raise ValueError("no")

    model.register_forward_hook(fail)
    model.register_forward_hook(lambda module, args, out: note(out.shape), always_call=True)

    def function(x):
        try:
            return model(x)
        except ValueError:
            return x + 1

    return function


@breaks
def full_backward_hook(note, keep):
    model = nn.Linear(3, 3)
    model.register_full_backward_hook(lambda module, grad_in, grad_out: note(grad_out[0].sum().item()))
    return lambda x: model(x) + 1


@breaks
def full_backward_hook_that_changes_gradients(note, keep):
    model = nn.Linear(3, 3)
    model.register_full_backward_hook(lambda module, grad_in, grad_out: (grad_in[0] * 3,))
    model.register_full_backward_pre_hook(lambda module, grad_out: (grad_out[0] * 2,))
    return lambda x: model(x.sin()) + 1


@breaks
def global_backward_hooks(note, keep):
    model = nn.Linear(3, 3)
    keep(global_hooks.register_module_full_backward_hook(lambda m, gi, go: note(go[0].sum().item())))
    keep(global_hooks.register_module_full_backward_pre_hook(lambda m, go: (go[0] * 2,)))
    return lambda x: model(x.sin()) + 1


@captured
def tensor_hook(note, keep):
    def function(x):
        y = x * 2
        y.register_hook(lambda grad: grad * 3)
        return y.sin()

    return function


@captured
def tensor_hook_that_is_removed(note, keep):
    def function(x):
        y = x * 2
        handle = y.register_hook(lambda grad: grad * 3)
        z = y.sin()
        handle.remove()
        return z

    return function


@breaks
def hook_on_a_parameter(note, keep):
    model = nn.Linear(3, 3)

    def function(x):
        handle = model.weight.register_hook(lambda grad: grad * 3)
        torch.autograd.backward(model(x).sum())
        handle.remove()
        grad = model.weight.grad
        model.zero_grad()
        return x @ grad

    return function


@breaks
def hook_after_accumulation(note, keep):
    model = nn.Linear(3, 3)
    keep(model.weight.register_post_accumulate_grad_hook(lambda p: note(p.grad.sum().item())))

    def function(x):
        model.zero_grad()
        model(x).sum().backward()
        return x * 2

    return function


@breaks
def retained_gradient(note, keep):
    def function(x):
        y = x * 2
        y.retain_grad()
        y.sin().sum().backward(retain_graph=True)
        return x * y.grad

    return function


@captured
def forward_hooks_of_one_call(note, keep):
    model = nn.Linear(3, 3)

    def function(x):
        with model.register_forward_hook(lambda module, args, out: out * 2):
            y = model(x)
        return y + model(x)

    return function


def same(a, b):
    pairs = list(zip(a, b, strict=True))
    return all(torch.allclose(x, y, atol=1e-5) and x.requires_grad == y.requires_grad for x, y in pairs)


def _close(a, b):
    return a == pytest.approx(b, rel=1e-4) if isinstance(a, float) else a == b


@pytest.mark.parametrize("backend", ["eager", "inductor_lite"])
@pytest.mark.parametrize("name", CAPTURED)
def test_hooks_in_one_graph(name, backend):
    want, said, _ = run(CAPTURED[name], None)
    got, heard, counted = run(CAPTURED[name], backend)
    assert same(got, want) and heard == said
    assert counted[0][:2] == (1, 0) and counted[2] == (0, 0, 0)
    assert counted[1] == ((1, 0, 1) if said else (0, 0, 0))  # the list that the hook changes has another length


@pytest.mark.parametrize("backend", ["eager", "inductor_lite"])
@pytest.mark.parametrize("name", BREAKS)
def test_hooks_that_break(name, backend):
    want, said, _ = run(BREAKS[name], None)
    got, heard, counted = run(BREAKS[name], backend)
    assert same(got, want) and len(heard) == len(said) and all(map(_close, heard, said))
    assert counted[0][1] > 0
    assert counted[1][2] <= 3 and counted[2] == (0, 0, 0)


def test_hooks_that_come_and_go_between_calls():
    """A hook is what it does; the number that it has in its table is another each time."""
    model = nn.Sequential(nn.Linear(3, 3), nn.Tanh())
    compiled = dynamo_lite.compile(model, backend="eager", fullgraph=True)
    x = torch.randn(2, 3)
    for attempt in range(3):
        with config.patch(error_on_recompile=attempt > 0):
            assert torch.equal(compiled(x), model(x))
            found = []
            handle = model[0].register_forward_hook(lambda m, args, out: found.append(out))
            y = compiled(x)
            handle.remove()
            assert torch.equal(y, model(x)) and torch.equal(found[0], model[0](x))
            with model[0].register_forward_pre_hook(lambda m, args: (args[0] * 2,)):
                assert torch.equal(compiled(x), model(x)) and not torch.equal(y, compiled(x))


def test_what_hooks_are_is_guarded():
    model = nn.Linear(3, 3)
    compiled = dynamo_lite.compile(model, backend="eager", fullgraph=True)
    x = torch.randn(2, 3)

    def times(factor):
        return lambda module, args, out: out * factor

    def plus(module, args, out):
        return out + 1

    class Bound:
        def __init__(self, factor):
            self.factor = factor

        def hook(self, module, args, out):
            return out - self.factor

    handles = []
    for hook, prepend in ((times(2), False), (times(3), False), (plus, False), (plus, True), (Bound(2).hook, False),
                          (Bound(3).hook, True)):
        handles.append(model.register_forward_hook(hook, prepend=prepend))
        for _ in range(2):
            assert torch.equal(compiled(x), model(x))
    handles.append(model.register_forward_hook(lambda m, a, k, out: out * len(k), with_kwargs=True))
    assert torch.equal(compiled(x), model(x)) and not compiled(x).any()
    handles[-1].remove()
    handles[-1] = model.register_forward_pre_hook(lambda m, a: a[0] + 1)
    while handles:
        assert torch.equal(compiled(x), model(x))
        handles.pop(0).remove()
    first, second = model.register_forward_hook(times(2)), model.register_forward_hook(plus)
    assert torch.equal(compiled(x), model(x))
    model._forward_hooks.move_to_end(first.id)
    assert torch.equal(compiled(x), model(x))
    keep = global_hooks.register_module_forward_hook(plus)
    try:
        assert torch.equal(compiled(x), model(x))
    finally:
        keep.remove()
    assert torch.equal(compiled(x), model(x)) and second.id != first.id
