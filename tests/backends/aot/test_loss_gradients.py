"""Losses and masked softmax: values, gradients and errors as in eager, the gradients in generated kernels."""
import pytest
import torch
import torch.nn.functional as F

import dynamo_lite

pytestmark = pytest.mark.by_turns(3)


def both(fn, *inputs):
    dynamo_lite.reset()
    results = []
    for f in (fn, dynamo_lite.compile(fn)):
        own = [x.detach().clone().requires_grad_(x.requires_grad) for x in inputs]
        out = f(*own)
        (out * torch.arange(1.0, out.numel() + 1).view(out.shape)).sum().backward()
        results.append([out.detach(), *(x.grad for x in own if x.requires_grad)])
    for want, got in zip(*results):
        torch.testing.assert_close(got, want, equal_nan=True)


SHAPES = {"rows": ((6, 5), (6,)), "images": ((2, 5, 3, 4), (2, 3, 4)), "sequences": ((2, 5, 7), (2, 7))}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("options", [{}, {"ignore_index": 2}, {"label_smoothing": 0.1}])
def test_cross_entropy(shape, reduction, options):
    scores, target = SHAPES[shape]
    torch.manual_seed(0)
    labels = torch.randint(0, 5, target)
    both(lambda x: F.cross_entropy(x, labels, reduction=reduction, **options), torch.randn(scores, requires_grad=True))


def test_weighted_cross_entropy():
    weight, labels = torch.rand(5), torch.randint(0, 5, (6,))
    both(lambda x: F.cross_entropy(x, labels, weight), torch.randn(6, 5, requires_grad=True))


def test_nothing_but_ignored_targets():
    labels = torch.full((4,), -100)
    for reduction in ("mean", "sum"):
        both(lambda x: F.cross_entropy(x, labels, reduction=reduction), torch.randn(4, 3, requires_grad=True))


@pytest.mark.parametrize("bad", [7, -1])
def test_target_out_of_range(bad):
    c = dynamo_lite.compile(lambda x, y: F.cross_entropy(x, y))
    with pytest.raises(IndexError, match="out of bounds"):
        c(torch.randn(3, 5, requires_grad=True), torch.tensor([0, bad, 1]))


def test_the_gradient_of_a_loss_is_no_library_call():
    dynamo_lite.reset()
    x, y = torch.randn(6, 5, requires_grad=True), torch.randint(0, 5, (6,))
    dynamo_lite.compile(F.cross_entropy)(x, y).backward()
    assert "aten.nll_loss_backward.default" not in dynamo_lite.metrics()["library_calls"]


@pytest.mark.parametrize("rows", [[], [1]])
def test_attention_with_rows_that_see_nothing(rows):
    torch.manual_seed(0)
    mask = torch.ones(4, 4, dtype=torch.bool).tril()
    mask[rows] = False

    def f(q, k, v):
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=0.0)

    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        both(f, *(torch.randn(1, 2, 4, 3, requires_grad=True) for _ in range(3)))
