"""The ``ctx`` of autograd functions: which gradients are needed, in captured functions and in frames of their own."""
from __future__ import annotations

import warnings

import pytest
import torch
from torch import nn
from torch.autograd import Function

import dynamo_lite
from dynamo_lite import log

NOTES: list = []


class Scaled(Function):
    """Asks in both passes, in the ways that programs do."""

    @staticmethod
    def forward(ctx, x, w, bias):
        need_x, need_w, _ = ctx.needs_input_grad
        ctx.save_for_backward(x if need_w else None, w if need_x else None)
        ctx.asked = sum(ctx.needs_input_grad)
        return x * w + bias

    @staticmethod
    def backward(ctx, g):
        x, w = ctx.saved_tensors
        gx = g * w if ctx.needs_input_grad[0] else None
        gw = (g * x).sum(0) if ctx.needs_input_grad[1] else None
        return gx, gw, g.sum(0) * ctx.asked if any(ctx.needs_input_grad[2:]) else None


class Watched(Function):
    """Which breaks in its forward pass, so that torch calls that as a frame of its own."""

    @staticmethod
    def forward(ctx, x, w):
        dynamo_lite.graph_break()
        needs = ctx.needs_input_grad
        y = x * w
        NOTES.append(needs)
        ctx.save_for_backward(x, w, y)
        ctx.set_materialize_grads(False)
        ctx.shape = x.shape
        extra = (y > 0).float()
        ctx.mark_non_differentiable(extra)
        return y, extra

    @staticmethod
    def backward(ctx, g, _):
        x, w, y = ctx.saved_tensors
        assert _ is None and x.shape == ctx.shape
        return g * w if ctx.needs_input_grad[0] else None, (g * x).sum(0) if ctx.needs_input_grad[1] else None


class Doubled(Function):
    @staticmethod
    def forward(ctx, x):
        dynamo_lite.graph_break()
        x.mul_(2)
        ctx.mark_dirty(x)
        return x

    @staticmethod
    def backward(ctx, g):
        return g * 2


def compiled(fn, backend="eager", **options):
    dynamo_lite.reset()
    log.reset()
    return dynamo_lite.compile(fn, backend=backend, **options)


def leaves(*needs):
    torch.manual_seed(0)
    shapes = (4, 3), (3,), (3,)
    return [torch.randn(shape).requires_grad_(need) for shape, need in zip(shapes, needs)]


def gradients(fn, args):
    out = fn(*args)
    if out.requires_grad:
        (out * torch.linspace(0, 1, out.numel()).reshape(out.shape)).sum().backward()
    return [out.detach(), *(a.grad for a in args)]


def same(got, want):
    assert [g is None for g in got] == [w is None for w in want]
    for g, w in zip(got, want):
        if w is not None:
            torch.testing.assert_close(g, w)


@pytest.mark.parametrize("backend", ["eager", "inductor_lite"])
@pytest.mark.parametrize("needs", [(True, True, True), (True, False, False), (False, True, True), (False,) * 3])
def test_needs_in_both_passes(backend, needs):
    f = lambda x, w, b: Scaled.apply(x, w, b) * 2
    fn = compiled(f, backend, fullgraph=True)
    for _ in range(2):
        same(gradients(fn, leaves(*needs)), gradients(f, leaves(*needs)))
    assert log.counters()["graphs"] == 1


@pytest.mark.parametrize("backend", ["eager", "inductor_lite"])
@pytest.mark.parametrize("needs", [(True, True), (True, False), (False, True)])
def test_a_frame_that_torch_calls_has_no_other_breaks(backend, needs):
    def f(x, w):
        y, extra = Watched.apply(x + 0, w)
        return y.sin() + extra

    NOTES.clear()
    want = gradients(f, leaves(*needs))
    fn = compiled(f, backend)
    for _ in range(2):
        same(gradients(fn, leaves(*needs)), want)
    assert NOTES == [needs] * 3
    kinds = {reason.kind for reason in dynamo_lite.explain(f)(*leaves(*needs)).break_reasons}
    assert kinds == {"explicit_break"}


def test_an_argument_that_is_changed_in_place():
    f = lambda x: Doubled.apply(x * 1).exp()
    same(gradients(compiled(f), leaves(True)), gradients(f, leaves(True)))
    assert {reason.kind for reason in dynamo_lite.explain(f)(*leaves(True)).break_reasons} == {"explicit_break"}


class Layer(nn.Module):
    def __init__(self, apply):
        super().__init__()
        self.apply_it = apply
        self.w = nn.Parameter(torch.ones(3))

    def forward(self, x):
        return self.apply_it(x, self.w, x[0])


def test_functions_that_modules_hold():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        instance = Scaled()
    for apply in (Scaled.apply, instance.apply):
        layer, twin = Layer(apply), Layer(apply)
        (x,) = leaves(True)
        fn = compiled(layer, fullgraph=True)
        same([*gradients(fn, [x]), layer.w.grad], [*gradients(twin, leaves(True)), twin.w.grad])


def test_calling_an_instance_raises_as_in_eager():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        instance = Scaled()

    def f(x):
        try:
            return instance(x, x, x)
        except RuntimeError as error:
            return str(error)

    assert compiled(f)(torch.ones(2)) == f(torch.ones(2))
