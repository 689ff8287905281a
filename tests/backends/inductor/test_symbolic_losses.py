"""Gradients of losses that are weighted by numbers and sizes that change: values, graphs, recompiles."""
import re

import pytest
import torch
import torch.nn.functional as F

import dynamo_lite
from dynamo_lite import log


def by_an_int(x, w, n):
    return (x @ w).square().mean() * n


def by_a_size(x, w, n):
    return (x @ w).relu().sum() * x.shape[0]


def by_a_quotient(x, w, n):
    return (x @ w).sum() * (n / x.shape[0])


@pytest.mark.parametrize("loss", [by_an_int, by_a_size, by_a_quotient])
def test_a_weighted_loss_is_compiled_twice(loss):
    compiled = dynamo_lite.compile(loss)
    for rows, n in ((3, 2), (5, 4), (9, 7), (4, 11), (6, 5)):
        x = torch.randn(rows, 4)
        w = torch.randn(4, 2, requires_grad=True)
        v = w.detach().clone().requires_grad_()
        got, want = compiled(x, w, n), loss(x, v, n)
        got.backward()
        want.backward()
        torch.testing.assert_close(got, want)
        torch.testing.assert_close(w.grad, v.grad)
    assert (log.counters()["graphs"], log.counters()["recompiles"]) == (2, 1)


@pytest.mark.parametrize("criterion", [
    F.mse_loss, F.smooth_l1_loss, F.huber_loss, lambda x, y: F.soft_margin_loss(x, y.sign()),
    lambda x, y: F.binary_cross_entropy(x.sigmoid(), y.sigmoid()),
])
def test_means_over_sizes_that_change_have_kernels(criterion):
    def loss(x, y):
        return criterion(x * 2, y)

    compiled = dynamo_lite.compile(loss)
    for rows in (3, 5, 9):
        x, y = torch.randn(rows, 4, requires_grad=True), torch.randn(rows, 4)
        got, want = compiled(x, y), loss(x, y)
        torch.testing.assert_close(got, want)
        torch.testing.assert_close(torch.autograd.grad(got, x), torch.autograd.grad(want, x))
    assert (log.counters()["graphs"], log.counters()["recompiles"]) == (2, 1)
    assert not re.search(r"(loss|entropy)\w*\(", re.sub("//.*", "", dynamo_lite.generated_code(compiled)))
