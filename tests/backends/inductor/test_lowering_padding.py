"""Padding by reflection and replication, and its gradients: generated code against eager, in eager's layout."""
import pytest
import thorough
import torch
import torch.nn.functional as F

import dynamo_lite

pytestmark = pytest.mark.by_turns(3)


def image(*shape, channels_last=False):
    x = torch.randn(shape)
    return x.to(memory_format=torch.channels_last) if channels_last else x


def test_pads(check_many):
    cases = []
    for mode in ("reflect", "replicate", "circular"):
        for pad in ((2, 3), (0, 1), (4, 0), (0, 0)):
            cases.append((f"{mode} {pad}", lambda x, m=mode, p=pad: F.pad(x, p, mode=m), [image(2, 3, 9)]))
        for pad in ((1, 2, 3, 0), (0, 0, 2, 2), (5, 5, 5, 5)):
            for last in (False, True):
                x = image(2, 3, 6, 7, channels_last=last)
                cases.append((f"{mode} {pad} {last}", lambda x, m=mode, p=pad: F.pad(x, p, mode=m) * 2, [x]))
    check_many(cases)


def test_pads_of_one_element(check_many):
    x = image(1, 1, 1, 5)
    check_many([("replicate", lambda x: F.pad(x, (1, 1, 2, 2), mode="replicate"), [x])])


@pytest.mark.parametrize("mode", ["reflect", "replicate"])
@pytest.mark.parametrize("shape, pad", [
    ((2, 3, 9), (1, 2)), ((2, 3, 9), (0, 3)), ((2, 3, 5, 7), (1, 2, 3, 0)), ((2, 3, 5, 7), (0, 0, 1, 1)),
    ((2, 3, 5, 7), (1, 1, 4, 4)), ((5, 7, 3), (1, 1, 2, 2)), ((1, 2, 4, 5, 6), (1, 2, 3, 1, 2, 2)),
    ((3, 130, 50), (5, 7)),
    ((2, 40, 70), (1, 1, 1, 1)), ((2, 3, 1, 5), (2, 1, 0, 0))])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64])
def test_pads_are_one_kernel(mode, shape, pad, dtype):
    """Edges of one element too, where what lies beside them is no loop."""
    x = (torch.randn(shape) * 9).to(dtype)
    dynamo_lite.reset_metrics()
    got = dynamo_lite.compile(lambda x: F.pad(x, pad, mode=mode) + 1, dynamic=False)(x)
    want = F.pad(x, pad, mode=mode) + 1
    assert torch.equal(got, want) and got.stride() == want.stride()
    assert dynamo_lite.metrics()["kernels"] == 1


# ---------------------------------------------------------------- gradients
PADDED = [
    ((2, 3, 7), (2, 1)), ((3, 7), (6, 6)), ((2, 2, 2), (1, 1)), ((3, 5, 7), (1, 1, 1, 1)),
    ((2, 3, 5, 7), (1, 2, 3, 4)), ((2, 3, 5, 7), (0, 2, 0, 4)), ((2, 3, 5, 7), (0, 0, 1, 0)),
    ((2, 3, 20, 33), (1, 1, 1, 1)), ((2, 3, 5, 7), (0, 0, 0, 0)), ((1, 2, 4, 5, 6), (1, 2, 0, 1, 3, 3)),
]


def gradients(padding, mode, options=None):
    def padded(x):
        return F.pad(x * 1.5, padding, mode=mode).sin()

    compiled = dynamo_lite.compile(padded, options=options)

    def check(x):
        x.requires_grad_()
        got, want = compiled(x), padded(x)
        torch.testing.assert_close(got, want)
        d = torch.randn_like(want)
        (ours,), (eagers,) = torch.autograd.grad(got, x, d), torch.autograd.grad(want, x, d)
        torch.testing.assert_close(ours, eagers)
        assert ours.stride() == eagers.stride()

    return check


@pytest.mark.parametrize("mode", ["reflect", "replicate"])
@pytest.mark.parametrize("shape, padding", PADDED)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_gradients(shape, padding, mode, dtype):
    check = gradients(padding, mode)
    layouts = [torch.contiguous_format, torch.channels_last] if len(shape) == 4 else [torch.contiguous_format]
    turn = PADDED.index((shape, padding)) + (mode == "reflect") if len(layouts) > 1 else 0
    for rows in (shape[0], shape[0] + 1):
        for layout in thorough.share(layouts, turn):
            check(torch.randn(rows, *shape[1:], dtype=dtype).contiguous(memory_format=layout))
    if dtype is not torch.bfloat16:
        assert not [name for name in dynamo_lite.metrics()["library_calls"] if "pad" in name]


def test_wide_replication_is_left_to_the_library():
    check = gradients((17, 0), "replicate")
    check(torch.randn(2, 3, 7))


def test_gradients_that_are_zero_have_no_sign():
    def padded(x):
        return F.pad(x, (1, 1), mode="reflect")

    x = torch.ones(2, 5, requires_grad=True)
    d = torch.full((2, 7), -0.0)
    (got,), (want,) = (torch.autograd.grad(f(x), x, d) for f in (dynamo_lite.compile(padded), padded))
    assert got.signbit().equal(want.signbit())
