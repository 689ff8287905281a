"""``flex_attention`` and block masks, against torch's dense formulas (its operator called directly, without
torch.compile), and gradients against attention written out."""
from __future__ import annotations

import math

import pytest
import torch
import torch.nn.attention.flex_attention as of_torch
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

import dynamo_lite

pytestmark = pytest.mark.by_turns(3)

BACKENDS = ["eager", "inductor_lite"]
SLOPES = torch.tensor([0.5, 0.25, 0.125, 0.0625])
PARTS = torch.tensor([0] * 20 + [1] * 30 + [2] * 14)
LONG_PARTS = torch.tensor([0] * 100 + [1] * 150 + [2] * 200 + [3] * 62)
BIAS = torch.randn(64, 64, generator=torch.Generator().manual_seed(0))


def causal(b, h, q, k):
    return q >= k


def within_parts(b, h, q, k):
    return (PARTS[q] == PARTS[k]) & (q >= k)


def but_for_the_first_rows(b, h, q, k):
    return (q >= k) & (q > 10)


def relative(score, b, h, q, k):
    return score + (q - k) * 0.1


def alibi(score, b, h, q, k):
    return score + SLOPES[h] * (k - q)


def capped(score, b, h, q, k):
    return torch.tanh(score / 2) * 2


def biased(score, b, h, q, k):
    return torch.where(b == 0, score + BIAS[q, k], score)


def block_mask(mod, length=64):
    return None if mod is None else create_block_mask(mod, None, None, length, length, device="cpu", BLOCK_SIZE=32)


def tensors(dtype=torch.float32, length=64, heads=4, **options):
    generator = torch.Generator().manual_seed(1)
    return [torch.randn(2, heads, length, 16, generator=generator).to(dtype).requires_grad_(bool(options))
            for _ in range(3)]


@pytest.fixture(autouse=True)
def dense(monkeypatch):
    """torch's own call does not compile, and gradients are not refused on a CPU."""
    monkeypatch.setattr(of_torch, "_FLEX_ATTENTION_DISABLE_COMPILE_DEBUG", True)
    monkeypatch.setattr(of_torch, "_validate_device", lambda *args: None)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("score_mod, mask_mod", [
    (None, None), (relative, None), (alibi, causal), (capped, within_parts), (biased, but_for_the_first_rows)])
def test_values(score_mod, mask_mod, backend):
    mask = block_mask(mask_mod)

    def function(q, k, v):
        return flex_attention(q, k, v, score_mod=score_mod, block_mask=mask, return_lse=True)

    compiled = dynamo_lite.compile(function, backend=backend, fullgraph=True)
    args = tensors()
    want = function(*args)
    with dynamo_lite.config.patch(error_on_recompile=True):
        for _ in range(2):
            torch.testing.assert_close(compiled(*args), want)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_dtypes_and_order_of_dimensions(dtype):
    mask = block_mask(causal)

    def function(q, k, v):
        q, k, v = (x.transpose(1, 2) for x in (q, k, v))
        return flex_attention(q, k[:, :2], v[:, :2], block_mask=mask, enable_gqa=True)

    args = [x.transpose(1, 2).contiguous() for x in tensors(dtype)]
    want, got = function(*args), dynamo_lite.compile(function, fullgraph=True)(*args)
    assert got.stride() == want.stride()
    # Weights are rounded to the dtype, on one side or the other of two values.
    torch.testing.assert_close(got, want, rtol=4 * torch.finfo(dtype).eps, atol=torch.finfo(dtype).eps)


def document(b, h, q, k):
    return (LONG_PARTS[q] == LONG_PARTS[k]) & (q >= k)


def near(b, h, q, k):
    return (q - k).abs() < 90


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("score_mod, mask_mod", [(alibi, None), (capped, causal), (None, document), (alibi, near),
                                                 (None, but_for_the_first_rows)])
def test_long_sequences_in_blocks_of_rows(score_mod, mask_mod, dtype):
    """Scores are never whole in memory, and those that the mask excludes are not computed."""
    mask = block_mask(mask_mod, 512)

    def function(q, k, v):
        return flex_attention(q, k[:, :2], v[:, :2], score_mod, mask, enable_gqa=True, return_lse=True)

    args = tensors(dtype, 512)
    compiled = dynamo_lite.compile(function, fullgraph=True)
    torch.testing.assert_close(compiled(*args), function(*args), rtol=max(4 * torch.finfo(dtype).eps, 1e-5), atol=1e-5)
    written = dynamo_lite.generated_code(compiled)
    assert "KERNEL blocks0" in written and ("columns_that_count(512" in written) == (mask_mod is not None)


def test_autocast():
    @torch.autocast("cpu", dtype=torch.bfloat16)
    def function(q, k, v):
        return flex_attention(q, k, v, score_mod=relative)

    want, got = function(*tensors()), dynamo_lite.compile(function, fullgraph=True)(*tensors())
    assert got.dtype == torch.bfloat16
    torch.testing.assert_close(got, want)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_mask_that_is_made_inside(backend):
    def function(q, k, v):
        mask = create_block_mask(causal, None, None, q.shape[-2], k.shape[-2], device="cpu", BLOCK_SIZE=32)
        return flex_attention(q, k, v, block_mask=mask), mask.kv_num_blocks, mask.full_kv_indices

    args = tensors()
    torch.testing.assert_close(
        dynamo_lite.compile(function, backend=backend, fullgraph=True)(*args), function(*args))


def test_lengths_that_change():
    function = dynamo_lite.compile(
        lambda q, k, v: flex_attention(q, k, v, score_mod=relative), fullgraph=True, dynamic=True)
    with dynamo_lite.config.patch(error_on_recompile=True):
        for length in (64, 96, 33, 200):
            args = tensors(length=length)
            torch.testing.assert_close(function(*args), flex_attention(*args, score_mod=relative))


def test_one_after_the_other_has_its_own_functions():
    """The functions are arguments: another one is another graph."""
    function = dynamo_lite.compile(lambda q, k, v, mod: flex_attention(q, k, v, score_mod=mod), fullgraph=True)
    args = tensors()
    for mod in (relative, capped, relative, None):
        torch.testing.assert_close(function(*args, mod), flex_attention(*args, score_mod=mod))


def test_a_captured_tensor_that_changes():
    table = torch.ones(64, 64)
    function = dynamo_lite.compile(
        lambda q, k, v: flex_attention(q, k, v, score_mod=lambda s, b, h, m, n: s * table[m, n]), fullgraph=True)
    args = tensors()
    for factor in (1.0, 0.5):
        table.mul_(factor)
        want = flex_attention(*args, score_mod=lambda s, b, h, m, n: s * table[m, n])
        torch.testing.assert_close(function(*args), want)


def written_out(q, k, v, bias, allowed):
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1]) + bias
    weights = torch.softmax(scores.masked_fill(~allowed, -math.inf), -1)
    return torch.where(allowed.any(-1, keepdim=True), weights, 0.0) @ v


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("mask_mod", [causal, but_for_the_first_rows])
def test_gradients(mask_mod, backend):
    """Of rows without any score they are zeros; a captured tensor has one, too."""
    mask = block_mask(mask_mod)
    at = torch.arange(64)
    allowed = mask_mod(0, 0, at[:, None], at)

    def function(q, k, v, bias):
        return flex_attention(q, k, v, score_mod=lambda s, b, h, m, n: s + bias[m, n], block_mask=mask)

    args = [*tensors(requires_grad=True), BIAS.clone().requires_grad_()]
    exact = [x.detach().double().requires_grad_() for x in args]
    got, want = dynamo_lite.compile(function, backend=backend, fullgraph=True)(*args), written_out(*exact, allowed)
    weights = torch.linspace(-1, 1, got.numel()).view_as(got)
    (got * weights).sum().backward()
    # Weights of a row without a score are NaN before they are replaced, and so is their gradient in double precision.
    (want * weights).sum().backward()
    for mine, its in zip(args, exact):
        torch.testing.assert_close(mine.grad, its.grad.nan_to_num().float(), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("call", [
    lambda q, k, v: flex_attention(q, k[:, :2], v[:, :2]),
    lambda q, k, v: flex_attention(q[:, :, :40], k, v, block_mask=block_mask(causal)),
    lambda q, k, v: flex_attention(q[0], k[0], v[0]),
])
def test_errors(call):
    # A mask of another size: a ValueError, from torch 2.15 on a RuntimeError.
    with pytest.raises((ValueError, RuntimeError, IndexError)) as want:
        call(*tensors())
    with pytest.raises(type(want.value)) as got:
        dynamo_lite.compile(call)(*tensors())
    assert str(got.value) == str(want.value)


@pytest.mark.parametrize("backend", BACKENDS)
def test_nested_regions_are_inlined(backend):
    @torch.compiler.nested_compile_region
    def region(x):
        return x.sin() * 2

    def function(x):
        return region(x) + region(x + 1)

    x = torch.randn(5)
    torch.testing.assert_close(dynamo_lite.compile(function, backend=backend, fullgraph=True)(x), function(x))
