"""Operators of users' own: library calls, until a lowering or a decomposition is registered."""
import pytest
import torch

import dynamo_lite
from dynamo_lite.backends.aot.decompositions import FOR_KERNELS
from dynamo_lite.backends.inductor import formula, register_decomposition, register_lowering
from dynamo_lite.backends.inductor.lowering_registry import LOWERINGS


@torch.library.custom_op("dynamo_lite_tests::scaled", mutates_args=())
def scaled(x: torch.Tensor, by: float) -> torch.Tensor:
    return x * by


@scaled.register_fake
def _(x, by):
    return torch.empty_like(x)


scaled.register_autograd(
    lambda ctx, grad: (scaled(grad, ctx.by), None),
    setup_context=lambda ctx, inputs, output: setattr(ctx, "by", inputs[1]))


@pytest.fixture(autouse=True)
def _tables_restored():
    before = dict(LOWERINGS), dict(FOR_KERNELS)
    yield
    for table, old in zip((LOWERINGS, FOR_KERNELS), before):
        table.clear()
        table.update(old)


def program(x):
    return scaled(x.abs(), 2.0) + 1


def calls():
    x = torch.randn(5, 7)
    dynamo_lite.reset_metrics()
    assert torch.equal(dynamo_lite.compile(program)(x), program(x))
    return dynamo_lite.metrics()["library_calls"], dynamo_lite.metrics()["kernels"]


def test_as_it_is():
    assert calls() == ({"dynamo_lite_tests.scaled.default": 1}, 2)


def test_lowering():
    @register_lowering(scaled)
    def lower(g, x, by):
        return formula(g, lambda e: e * by, x)

    assert calls() == ({}, 1)


@pytest.mark.parametrize("target", [torch.ops.dynamo_lite_tests.scaled, torch.ops.dynamo_lite_tests.scaled.default])
def test_other_names_of_the_operator(target):
    register_lowering(target)(lambda g, x, by: formula(g, lambda e: e * by, x))
    assert calls() == ({}, 1)


def test_a_lowering_may_leave_a_case_to_the_operator():
    register_lowering(scaled)(lambda g, x, by: NotImplemented)
    assert calls() == ({"dynamo_lite_tests.scaled.default": 1}, 2)


def test_decomposition():
    @register_decomposition(scaled)
    def decompose(x, by):
        return x * by

    assert calls() == ({}, 1)


def test_training():
    register_lowering(scaled)(lambda g, x, by: formula(g, lambda e: e * by, x))
    x, y = torch.randn(4, requires_grad=True), torch.randn(4)
    y = x.detach().clone().requires_grad_()
    dynamo_lite.reset_metrics()
    dynamo_lite.compile(program)(x).sum().backward()
    program(y).sum().backward()
    assert torch.equal(x.grad, y.grad)
    assert not dynamo_lite.metrics()["library_calls"] and not dynamo_lite.metrics()["fallbacks"]


def test_wrong_parameters_are_refused():
    with pytest.raises(TypeError, match=r"takes \(x, factor\).*schema says \(x, by\)"):
        register_lowering(scaled)(lambda g, x, factor: x)
    with pytest.raises(TypeError, match="overloads"):
        register_lowering(torch.ops.aten.add)(lambda g, self, other: self)
    with pytest.raises(TypeError, match="OpOverload"):
        register_lowering(torch.add)(lambda g, self, other: self)
    with pytest.raises(TypeError, match="OpOverload"):
        register_decomposition(torch.add)


def test_a_wrong_result_is_found_and_does_no_harm():
    register_lowering(scaled)(lambda g, x, by: x.node)
    x = torch.randn(3)
    with dynamo_lite.config.patch(raise_internal_errors=False):
        assert torch.equal(dynamo_lite.compile(program)(x), program(x))
    assert dynamo_lite.metrics()["fallbacks"] == {"lowering failed": 1}
