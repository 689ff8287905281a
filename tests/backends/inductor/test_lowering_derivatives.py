"""Gradients of activations, losses and views, shifts and rarer functions: generated code against eager."""
import pytest
import torch
import torch.nn.functional as F

aten = torch.ops.aten


@pytest.fixture
def xs(data):
    torch.manual_seed(0)
    return torch.cat([data.special, torch.randn(40)]), torch.randn(56)


def test_activations(check_many, xs, data):
    x, d = xs
    grid = torch.randn(4, 6, 8)
    z = (-x.abs()).exp()
    unit = torch.rand(56)
    unit[:3] = torch.tensor([0.0, 1.0, 1.5])
    check_many([
        ("log_sigmoid", lambda x: aten.log_sigmoid_forward(x), [x]),
        ("log_sigmoid_backward", lambda d, x, z: aten.log_sigmoid_backward(d, x, z), [d, x, z]),
        ("glu_backward", lambda d, x: aten.glu_backward(d, x, 1), [torch.randn(4, 3, 8), grid]),
        ("hardshrink_backward", lambda d, x: aten.hardshrink_backward(d, x, 0.5), [d, x]),
        ("softshrink_backward", lambda d, x: aten.softshrink_backward(d, x, 0.5), [d, x]),
        ("hardsigmoid_backward of doubles", lambda d, x: aten.hardsigmoid_backward(d, x), [d.double(), x.double()]),
        ("prelu_backward", lambda d, x, w: aten._prelu_kernel_backward(d, x, w), [d, x, torch.randn(56)]),
        ("logit_backward", lambda d, x: aten.logit_backward(d, x), [d, unit]),
        ("logit_backward eps", lambda d, x: aten.logit_backward(d, x, 0.2), [d, unit]),
        ("sinc", lambda x: torch.sinc(x), [x]),
        ("entr", lambda x: torch.special.entr(x), [x]),
        ("entr of integers", lambda x: torch.special.entr(x), [torch.arange(-2, 3)]),
        ("deg2rad", lambda x: (torch.deg2rad(x), torch.rad2deg(x)), [x]),
        ("deg2rad of integers", lambda x: (torch.deg2rad(x), torch.rad2deg(x)), [torch.arange(5)]),
        ("nextafter", lambda x, y: torch.nextafter(x, y), [x, d]),
        ("pixel_unshuffle", lambda x: F.pixel_unshuffle(x, 2), [torch.randn(2, 3, 4, 6)]),
    ], data.CLOSE)


@pytest.mark.parametrize("reduction", [0, 1, 2])
def test_losses(check_many, data, reduction):
    torch.manual_seed(1)
    x, y = torch.randn(5, 7), torch.randn(5, 7)
    d = torch.randn(5, 7) if reduction == 0 else torch.randn(())
    label, weight = torch.rand(5, 7).round(), torch.rand(7)
    check_many([
        ("mse", lambda d, x, y: aten.mse_loss_backward(d, x, y, reduction), [d, x, y]),
        ("smooth_l1", lambda d, x, y: aten.smooth_l1_loss_backward(d, x, y, reduction, 0.7), [d, x, y]),
        ("huber", lambda d, x, y: aten.huber_loss_backward(d, x, y, reduction, 0.7), [d, x, y]),
        ("bce", lambda x, y: aten.binary_cross_entropy_with_logits(x, y, None, None, reduction), [x * 30, label]),
        ("bce weights", lambda x, y, w, p: aten.binary_cross_entropy_with_logits(x, y, w, p, reduction),
         [x, label, weight, weight + 1]),
        ("bce pos", lambda x, y, p: aten.binary_cross_entropy_with_logits(x, y, None, p, reduction),
         [x, label, weight + 1]),
        ("soft_margin", lambda x, y: aten.soft_margin_loss(x, y, reduction), [x, y.sign()]),
        ("soft_margin_backward", lambda d, x, y: aten.soft_margin_loss_backward(d, x, y, reduction), [d, x, y.sign()]),
    ], data.CLOSE)


def test_views(check_many):
    check_many([
        ("slice", lambda d: aten.slice_backward(d, [4, 9], 1, 2, 5, 1), [torch.randn(4, 3)]),
        ("slice all", lambda d: aten.slice_backward(d, [4, 3], 1, 0, 2**62, 1), [torch.randn(4, 3)]),
        ("select", lambda d: aten.select_backward(d, [4, 9], 0, -1), [torch.randn(9)]),
    ])


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8])
def test_shifts(check_many, dtype):
    torch.manual_seed(2)
    low = 0 if dtype is torch.uint8 else -128
    x = torch.randint(low, 127, (200,)).to(dtype)
    by = torch.randint(max(low, -3), 70, (200,)).to(dtype)
    check_many([
        ("left", lambda x, y: x << y, [x, by]), ("right", lambda x, y: x >> y, [x, by]),
        ("left 3", lambda x: x << 3, [x]), ("right 3", lambda x: x >> 3, [x]),
        ("left 70", lambda x: x << 70, [x]), ("right 70", lambda x: x >> 70, [x]),
    ])
