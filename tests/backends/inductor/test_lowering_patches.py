"""``unfold`` and ``fold`` of images and their gradients: generated code against eager."""
import pytest
import torch
import torch.nn.functional as F

import dynamo_lite

pytestmark = pytest.mark.by_turns(3)

WINDOWS = [  # image, kernel, dilation, padding, stride
    ((2, 3, 7, 9), (3, 3), (1, 1), (1, 1), (1, 1)), ((3, 7, 9), (2, 3), (1, 2), (0, 2), (2, 1)),
    ((2, 3, 8, 8), (4, 4), (1, 1), (0, 0), (4, 4)), ((2, 3, 9, 9), (3, 3), (2, 2), (2, 2), (2, 3)),
    ((1, 2, 5, 5), (5, 5), (1, 1), (0, 0), (1, 1)), ((1, 2, 5, 6), (1, 1), (1, 1), (0, 0), (1, 1)),
    ((2, 1, 11, 13), (3, 5), (1, 1), (1, 2), (3, 2)), ((1, 1, 6, 6), (3, 3), (1, 1), (2, 2), (5, 4)),
    ((2, 3, 4, 4), (2, 2), (3, 3), (0, 0), (1, 1)), ((2, 2, 10, 10), (7, 7), (1, 1), (3, 3), (1, 1)),
]
LEFT = [((1, 1, 20, 40), (1, 3), (1, 1), (0, 1), (17, 1)), ((1, 1, 4, 40), (1, 17), (1, 1), (0, 0), (1, 1))]
CLOSE = {torch.float32: {}, torch.float64: {}, torch.bfloat16: {"rtol": 2e-2, "atol": 2e-2}}


def compared(fn, x):
    compiled = dynamo_lite.compile(fn)

    def check(x):
        x.requires_grad_()
        got, want = compiled(x), fn(x)
        torch.testing.assert_close(got, want, **CLOSE[x.dtype])
        d = torch.randn_like(want)
        (ours,), (eagers,) = torch.autograd.grad(got, x, d), torch.autograd.grad(want, x, d)
        torch.testing.assert_close(ours, eagers, **CLOSE[x.dtype])
        assert got.stride() == want.stride() and ours.stride() == eagers.stride()

    check(x)
    check(torch.randn(x.shape[0] + 1, *x.shape[1:], dtype=x.dtype))


@pytest.mark.parametrize("dtype", list(CLOSE))
@pytest.mark.parametrize("shape, kernel, dilation, padding, stride", WINDOWS + LEFT)
def test_unfold(shape, kernel, dilation, padding, stride, dtype):
    compared(lambda x: F.unfold(x * 1.5, kernel, dilation, padding, stride).sin(), torch.randn(shape, dtype=dtype))


@pytest.mark.parametrize("dtype", list(CLOSE))
@pytest.mark.parametrize("shape, kernel, dilation, padding, stride", [w for w in WINDOWS if len(w[0]) == 4] + LEFT)
def test_fold(shape, kernel, dilation, padding, stride, dtype):
    columns = F.unfold(torch.randn(shape), kernel, dilation, padding, stride)
    compared(lambda x: F.fold(x * 1.5, shape[-2:], kernel, dilation, padding, stride).sin(),
             torch.randn(columns.shape, dtype=dtype))


@pytest.mark.parametrize("window", WINDOWS)
def test_both_have_kernels(window):
    shape, *windows = window

    def there_and_back(x):
        return F.fold(F.unfold(x, *windows) * 2, x.shape[-2:], *windows)

    dynamo_lite.reset_metrics()
    x = torch.randn(shape)
    torch.testing.assert_close(dynamo_lite.compile(there_and_back)(x), there_and_back(x))
    assert not dynamo_lite.metrics()["library_calls"]


@pytest.mark.parametrize("windows", [(9, 1, 0, 1), (3, 1, 0, 0), (3, -1, 0, 1)])
def test_windows_that_eager_refuses(windows):
    def fn(x):
        return F.unfold(x, *windows)

    with pytest.raises(RuntimeError) as want:
        fn(torch.randn(1, 2, 5, 5))
    with pytest.raises(RuntimeError) as got:
        dynamo_lite.compile(fn)(torch.randn(1, 2, 5, 5))
    assert str(got.value) == str(want.value)
