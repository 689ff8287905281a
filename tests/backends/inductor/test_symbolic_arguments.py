"""Operators whose whole-number arguments are symbols while the sizes of their inputs are fixed, or are symbols, too:
values, strides and gradients as in eager."""
import pytest
import thorough
import torch
import torch.nn.functional as F

import dynamo_lite


def every_kth_set(x, k):
    y = x.clone()
    y[:, ::k] = 0.5
    return y


def every_kth_row_doubled(x, k):
    y = x + 1
    y[::k] *= 2
    return y


def placed(x, k):
    y = x.new_zeros(2 * x.shape[0], 2 * x.shape[1])
    y[k : k + x.shape[0], k : k + x.shape[1]] = x
    return y


OPERATORS = {
    "slice step": lambda x, k: x[:, ::k] * 2,
    "slice from and step": lambda x, k: x[k::k] + 1,
    "slice between numbers": lambda x, k: x[1:-1:k].sin(),
    "slice all": lambda x, k: x[:, k : k * 5 : k] + 1,
    "set a slice": every_kth_set,
    "change a slice": every_kth_row_doubled,
    "set a part": placed,
    "slice_scatter": lambda x, k: torch.slice_scatter(x, x[:, ::k].cos(), 1, 0, None, k),
    "select_scatter": lambda x, k: torch.select_scatter(x, x[0] * 2, 0, k),
    "diagonal_scatter": lambda x, k: torch.diagonal_scatter(x, x.diagonal(k) * 2, k),
    "diagonal": lambda x, k: x.diagonal(k) * 2,
    "diag_embed": lambda x, k: torch.diag_embed(x, k) + 1,
    "tril": lambda x, k: x.tril(k) * 2,
    "triu": lambda x, k: x.triu(-k) * 2,
    "roll": lambda x, k: x.roll((k, -k), (0, 1)) + 1,
    "unfold": lambda x, k: x.unfold(1, k, k) + 1,
    "as_strided": lambda x, k: x.as_strided((3, k), (k, 1), k) + 1,
    "narrow": lambda x, k: x.narrow(1, k, k) + 1,
    "select": lambda x, k: x[-k] + 1,
    "repeat": lambda x, k: x.repeat(k, 1) + 1,
    "repeat_interleave": lambda x, k: x.repeat_interleave(k, 1) + 1,
    "pad": lambda x, k: F.pad(x, (-k, k)) + 1,
    "pad by reflection": lambda x, k: F.pad(x[None], (k, k), mode="reflect") + 1,
    "split": lambda x, k: x.split(k * 3, 1)[0] + 1,
    "chunk": lambda x, k: x.chunk(k, 1)[0] + 1,
    "tensor_split": lambda x, k: x.tensor_split([k, k + 2], 1)[1] + 1,
    "expand": lambda x, k: x[None].expand(k, -1, -1) + 1,
    "topk": lambda x, k: x.topk(k)[0] + 1,
    "max_pool2d": lambda x, k: F.max_pool2d(x[None], k) + 1,
    "avg_pool2d": lambda x, k: F.avg_pool2d(x[None], k) + 1,
    "conv2d": lambda x, k: F.conv2d(x[None, None], x.new_ones(1, 1, 2, 2), stride=k) + 1,
    "im2col": lambda x, k: F.unfold(x[None, None], 2, stride=k) + 1,
    "arange": lambda x, k: torch.arange(0, 20, k) + x[0, 0],
    "index": lambda x, k: x[torch.arange(x.shape[0] - 1, -1, -k)] + 1,
    "add": lambda x, k: torch.add(x, x, alpha=k),
    "clamp": lambda x, k: x.clamp(-k, k),
}


# Gradients need the values, too.
@pytest.mark.parametrize("grad", thorough.share([False, True], 1))
@pytest.mark.parametrize("number, name", [
    pytest.param(number, name, id=name) for number, name in enumerate(OPERATORS)
    if thorough.ALL or number % 10 in (0, 5)])
def test_an_argument_is_a_symbol(number, name, grad):
    fixed = grad == number % 2  # sizes that are numbers with gradients or without, by turns

    def fn(x, y):
        return OPERATORS[name](x, y.shape[0] % 3 + 1)

    compiled = dynamo_lite.compile(fn)
    for i, n in enumerate((5, 9, 8, 13, 15, 10)):
        x = torch.randn((8, 26) if fixed else (8 + i, 30 - i), requires_grad=grad)
        same = x.detach().clone().requires_grad_(grad)
        want, got = fn(x, torch.ones(n)), compiled(same, torch.ones(n))
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5, check_stride=True)
        assert got.requires_grad == want.requires_grad
        if grad:
            d = torch.randn_like(want)
            want.backward(d)
            got.backward(d)
            torch.testing.assert_close(same.grad, x.grad, rtol=1e-4, atol=1e-5)
