"""Attention as one Triton kernel: values in Triton's interpreter, what is such a chain, block sizes.

Triton chooses its interpreter when it is imported, so tests of values are processes of their own.
"""
import functools
import pathlib

import torch
from triton_process import interpreted, needs_triton

from dynamo_lite.backends.inductor.codegen.triton.row_blocks import by_rule
from dynamo_lite.backends.inductor.gpu_info import GpuInfo
from dynamo_lite.backends.inductor.lowering.attention import attention_products

aten = torch.ops.aten
BENCHMARKS = pathlib.Path(__file__).resolve().parents[3] / "benchmarks"

HEAD = """
import math
import dynamo_lite, torch
from torch.nn.attention.flex_attention import create_block_mask, flex_attention
import torch.nn.attention.flex_attention as of_torch
of_torch._FLEX_ATTENTION_DISABLE_COMPILE_DEBUG = True
torch.manual_seed(0)

def attends(fn, *args, kernels=1, fused=True, tolerance=1e-5, **options):
    given = {"cpu_codegen": "triton", **options}
    compiled = dynamo_lite.compile(type(fn)(fn.__code__.replace(), fn.__globals__, "fn", None, fn.__closure__),
                                   options=given, fullgraph=True)
    with torch.no_grad():
        torch.testing.assert_close(compiled(*args), fn(*args), atol=tolerance, rtol=tolerance, equal_nan=True)
    text = dynamo_lite.generated_code(compiled).rpartition("import triton\\n")[2]
    assert ("for first_column in" in text) == fused, text
    assert not fused or text.count("tl.dot") == 2 and text.count("= tl.program_id") == kernels, text
    return compiled

def R(*sizes, dtype=torch.float32):
    return torch.randn(sizes).to(dtype)

def plain(q, k, v):
    return (q @ k.transpose(-1, -2) * q.size(-1) ** -0.5).softmax(-1) @ v

def given_mask(q, k, v, allowed):
    return (q @ k.transpose(-1, -2)).masked_fill(~allowed, -math.inf).softmax(-1) @ v * 2 + v.sum()
"""


run = functools.partial(interpreted, HEAD)


@needs_triton
def test_values():
    """Odd sizes, heads, masks, rows without scores; scores are never in memory."""
    run("""
    attends(plain, R(2, 3, 33, 20), R(2, 3, 47, 20), R(2, 3, 47, 24))
    attends(plain, R(70, 32), R(70, 32), R(70, 8))
    attends(plain, R(2, 1, 5, 64), R(2, 1, 100, 64), R(2, 1, 100, 64))
    attends(plain, *(R(2, 40, 3, 16).transpose(1, 2) for _ in range(3)), kernels=3)  # eager's matmul copies, too
    allowed = torch.rand(40, 50) < 0.2
    allowed[3] = False
    attends(given_mask, R(2, 40, 16), R(2, 50, 16), R(2, 50, 16), allowed)  # the sum is a kernel of one program
    attends(lambda q, k, v, b: (q @ k.transpose(-1, -2) + b).softmax(-1) @ v, R(2, 33, 16), R(2, 33, 16), R(2, 33, 16),
            R(33, 33))
    bad = R(2, 33, 16)
    bad[1, 5, 2] = math.nan
    attends(plain, bad, R(2, 33, 16), R(2, 33, 16))
    """)


@needs_triton
def test_flex_attention():
    """With score functions, block masks, shared heads, 16-bit floats."""
    run("""
    slopes = torch.tensor([0.5, 0.25, 0.125, 0.0625])
    parts = torch.tensor([0] * 20 + [1] * 30 + [2] * 14)
    def causal(b, h, q, k):
        return q >= k
    def document(b, h, q, k):
        return (parts[q] == parts[k]) & (q > 5)
    def alibi(score, b, h, q, k):
        return score + slopes[h] * (k - q)
    for dtype, tolerance in ((torch.float32, 1e-5), (torch.bfloat16, 2e-2), (torch.float16, 2e-3)):
        q, k, v = R(2, 4, 64, 16, dtype=dtype), R(2, 2, 64, 16, dtype=dtype), R(2, 2, 64, 24, dtype=dtype)
        for score_mod, mask_mod in ((None, None), (alibi, causal), (None, document)):
            mask = None if mask_mod is None else create_block_mask(mask_mod, 1, 1, 64, 64, device="cpu")
            # Keys and values are repeated for all heads.
            attends(lambda q, k, v: flex_attention(q, k, v, score_mod, mask, enable_gqa=True), q, k, v, kernels=3,
                    tolerance=tolerance)
    """)


@needs_triton
def test_logarithms_of_sums_beside_the_result():
    """In rows of finite scores, of none, and of special values."""
    run("""
    def causal(b, h, q, k):
        return q >= k
    def late(b, h, q, k):
        return (q >= k) & (q > 5)
    def some(q, k, v, allowed):
        scores = torch.where(allowed, q @ k.transpose(-1, -2), -math.inf)
        return scores.softmax(-1) @ v, scores.logsumexp(-1), scores.amax(-1)
    def beside(q, k, v):
        return plain(q, k, v), (q @ k.transpose(-1, -2) * q.size(-1) ** -0.5).logsumexp(-1)
    for dtype, tolerance in ((torch.float32, 1e-5), (torch.bfloat16, 2e-2), (torch.float16, 2e-3)):
        for mask_mod in (None, causal, late):
            mask = None if mask_mod is None else create_block_mask(mask_mod, 1, 1, 40, 70, device="cpu")
            q, k, v = R(2, 2, 40, 16, dtype=dtype), R(2, 2, 70, 16, dtype=dtype), R(2, 2, 70, 16, dtype=dtype)
            attends(lambda q, k, v: flex_attention(q, k, v, None, mask, return_lse=True), q, k, v, tolerance=tolerance)
    for bad in (math.inf, -math.inf, math.nan, 3e38):
        for which in range(3):
            args = [R(2, 40, 16) for _ in range(3)]
            args[which][1, 5, 2] = bad
            allowed = torch.rand(40, 40) < 0.3
            allowed[7] = False
            dynamo_lite.reset()
            attends(some, *args, allowed)
            attends(beside, *args)
    """)


@needs_triton
def test_lengths_that_change():
    run("""
    compiled = dynamo_lite.compile(plain, options={"cpu_codegen": "triton"})
    with torch.no_grad():
        for length in (30, 31, 64, 7):
            args = [R(2, length, 16) for _ in range(3)]
            torch.testing.assert_close(compiled(*args), plain(*args), atol=1e-5, rtol=1e-5)
    assert "for first_column in range(0, s" in dynamo_lite.generated_code(compiled)
    """)


@needs_triton
def test_what_is_no_such_chain():
    """Weights or scores that are used elsewhere, other functions of rows, wide heads."""
    run("""
    def weights_too(q, k, v):
        w = (q @ k.transpose(-1, -2)).softmax(-1)
        return w @ v, w
    def normalized_twice(q, k, v):
        w = (q @ k.transpose(-1, -2)).softmax(-1)
        return (w / w.norm(dim=-1, keepdim=True)) @ v
    def not_normalized(q, k, v):
        scores = q @ k.transpose(-1, -2)
        weights = (scores - scores.amax(-1, keepdim=True)).exp()
        return weights @ v, weights.sum(-1)
    def right_operand(q, k, v):
        return v.transpose(-1, -2) @ (q @ k.transpose(-1, -2)).softmax(-1)
    q = R(2, 33, 16)
    attends(not_normalized, q, R(2, 33, 16), R(2, 33, 16), fused=False, products="template")
    for fn in (weights_too, normalized_twice, right_operand):
        attends(fn, q, R(2, 33, 16), R(2, 33, 16), fused=False)
    attends(plain, R(2, 33, 300), R(2, 33, 300), R(2, 33, 300), fused=False)
    """)


@needs_triton
def test_each_product_has_the_precision_of_its_operands(monkeypatch):
    """On a GPU, tl.dot would compute products of float32 in TF32."""
    monkeypatch.syspath_prepend(BENCHMARKS)
    from triton_offline import LIBRARY, cuda_source

    def mixed(q, k, v):
        return (q.float() @ k.float().transpose(-1, -2)).softmax(-1) @ v

    q, k = (torch.randn(2, 64, 32, dtype=torch.bfloat16) for _ in range(2))
    source = cuda_source(mixed, (q, k, torch.randn(2, 64, 32)), LIBRARY)
    dots = [line for line in source.splitlines() if "tl.dot" in line]
    assert ["ieee" in line for line in dots] == [False, True], dots


def test_blocks_fit_the_shared_memory():
    for itemsize in (2, 4):
        for width in (16, 64, 128, 256):
            for beside in (0, 2, 4):
                for shared in (99 << 10, 163 << 10, 227 << 10):
                    sizes = by_rule(4096, width, width, itemsize, beside, GpuInfo(shared=shared))
                    assert sizes.shared(width, width, itemsize, beside) <= shared
    assert by_rule(4096, 128, 128, 2, 2, GpuInfo(shared=227 << 10)).columns > by_rule(
        4096, 128, 128, 2, 2, GpuInfo(shared=99 << 10)).columns
    assert by_rule(5, 64, 64, 2, 0, GpuInfo()).rows == 16


def test_products_of_attention_are_found():
    graph = torch.fx.Graph()

    def node(target, args, *size):
        made = graph.call_function(target, args)
        made.meta["val"] = torch.empty(size, device="meta")
        return made

    q, k, v = (graph.placeholder(n) for n in "qkv")
    for operand, size in ((q, (2, 40, 16)), (k, (2, 16, 50)), (v, (2, 50, 24))):
        operand.meta["val"] = torch.empty(size, device="meta")
    scores = node(aten.bmm.default, (q, k), 2, 40, 50)
    scaled = node(aten.mul.Scalar, (scores, 0.5), 2, 40, 50)
    weights = node(aten._softmax.default, (scaled, -1, False), 2, 40, 50)
    out = node(aten.bmm.default, (weights, v), 2, 40, 24)
    other = node(aten.bmm.default, (q, k), 2, 40, 50)
    result = graph.output((out, other))
    assert attention_products(graph, lambda n: True) == {scores, out}
    assert attention_products(graph, lambda n: n is not scaled) == set()
    result.args = ((out, other, weights),)
    assert attention_products(graph, lambda n: True) == set()
