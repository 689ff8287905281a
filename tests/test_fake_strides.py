"""Strides of dimensions that have no second element: fake tensors promise what eager gives."""
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dynamo_lite import fake_strides
from dynamo_lite.fake_mode import TraceFakeMode


@st.composite
def views(draw):
    """A tensor with odd strides where they are free, and a shape of as many elements."""
    parts = draw(st.lists(st.sampled_from([1, 1, 2, 3]), min_size=1, max_size=5))
    cut = draw(st.integers(0, len(parts)))
    joined = [parts[0] if cut else 1]
    for n in parts[1:]:
        if draw(st.booleans()):
            joined[-1] *= n
        else:
            joined.append(n)
    x = torch.zeros(parts)
    x = x.as_strided(parts, [draw(st.integers(0, 9)) if n == 1 else s for n, s in zip(parts, x.stride())])
    numel = x.numel()
    shape = joined if torch.Size(joined).numel() == numel else [numel]
    return x, shape + [1] * draw(st.integers(0, 2))


@settings(deadline=None, max_examples=300)
@given(views())
def test_view(case):
    x, shape = case
    try:
        want = x.view(shape).stride()
    except RuntimeError:
        return
    assert tuple(fake_strides.view_strides(x.shape, x.stride(), shape)) == want


ODD = torch.zeros(1, 3, 4).as_strided((1, 3, 4), (4, 4, 1))
NOTHING = torch.zeros(5, 0, 20)[:, :, ::2]


@pytest.mark.parametrize("x", [ODD, NOTHING, torch.zeros(4)[:1].as_strided((1,), (2,))], ids=["one", "none", "vector"])
@pytest.mark.parametrize("fn", [
    torch.empty_like, torch.zeros_like, torch.ones_like, torch.rand_like, lambda x: torch.full_like(x, 2),
    lambda x: torch.randint_like(x, 2, 5), lambda x: x.flip(0), lambda x: x.sort(0)[0], lambda x: x.sort(0)[1],
    lambda x: x.view(x.shape), lambda x: x.view(*x.shape, 1), lambda x: torch.layer_norm(x, x.shape[-1:]),
    lambda x: torch.empty_like(x, memory_format=torch.contiguous_format),
])
def test_operations(fn, x):
    want = fn(x)
    mode = TraceFakeMode()
    with mode:
        got = fn(mode.from_tensor(x))
    assert got.stride() == want.stride() and got.shape == want.shape and got.dtype is want.dtype


def test_a_view_with_another_stride_is_still_a_view():
    mode = TraceFakeMode()
    with mode:
        x = mode.from_tensor(ODD)
        y = x.view(1, 3, 4, 1)
        assert y.untyped_storage()._cdata == x.untyped_storage()._cdata
