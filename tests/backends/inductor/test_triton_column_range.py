"""Columns of scores that Triton kernels of attention leave out: values as eager's, which blocks are computed, and the
tests of whole blocks."""
import functools

import thorough
from triton_process import interpreted, needs_triton

HEAD = """
import math, re
import dynamo_lite, torch
from torch.nn.attention.flex_attention import create_block_mask, flex_attention
import torch.nn.attention.flex_attention as of_torch
from triton.runtime import interpreter
from dynamo_lite.backends.inductor.scheduler import bounded_operands
of_torch._FLEX_ATTENTION_DISABLE_COMPILE_DEBUG = True
bounded_operands.LEAST_PRODUCTS.update({2: 0, 4: 0})
torch.manual_seed(0)
products = 0
plain = interpreter.InterpreterBuilder.create_dot

def counted(*args):
    global products
    products += 1
    return plain(*args)

interpreter.InterpreterBuilder.create_dot = counted

def R(*sizes, dtype=torch.float32):
    return torch.randn(sizes).to(dtype)

def qkv(*size, keys=None, width=None, dtype=torch.float32):
    *batch, rows, depth = size
    keys = keys or rows
    return R(*size, dtype=dtype), R(*batch, keys, depth, dtype=dtype), R(*batch, keys, width or depth, dtype=dtype)

def attends(fn, *args, share=None, tolerance=1e-5):
    \"\"\"``share``: the part of all products that are computed; None if no column may be left out.\"\"\"
    global products
    dynamo_lite.reset()
    compiled = dynamo_lite.compile(fn, options={"cpu_codegen": "triton"}, fullgraph=True)
    with torch.no_grad():
        want = fn(*args)
        products = 0
        got = compiled(*args)
    torch.testing.assert_close(got, want, atol=tolerance, rtol=tolerance, equal_nan=True)
    text = dynamo_lite.generated_code(compiled)
    assert text.count("tl.dot(") == 2, text
    assert ("begin, last + XBLOCK" in text) == (share is not None), text
    if share is not None:
        rows, columns = (int(n) for n in re.search(r"YBLOCK=(\\d+), XBLOCK=(\\d+), DBLOCK", text).groups())
        (*batch, queries, _), keys = args[0].shape, args[1].shape[-2]
        blocks = math.prod(batch) * -(-queries // rows) * -(-keys // columns)
        assert abs(products / 2 / blocks - share) < 0.005, (products / 2, blocks, products / 2 / blocks)
    return compiled

def causal(q, k, v):
    i, j = torch.arange(q.size(-2))[:, None], torch.arange(k.size(-2))
    return torch.where(i >= j, q @ k.transpose(-1, -2) * 0.3, -math.inf).softmax(-1) @ v

def given(q, k, v, allowed):
    return (q @ k.transpose(-1, -2)).masked_fill(~allowed, -math.inf).softmax(-1) @ v

def safe(q, k, v, allowed):
    scores = torch.where(allowed, q @ k.transpose(-1, -2), -math.inf)
    return torch.where((scores == -math.inf).all(-1, keepdim=True), 0.0, scores.softmax(-1)) @ v

def triangle(q, k, v):
    mask = torch.full((q.size(-2), k.size(-2)), -math.inf, dtype=q.dtype).triu(1)
    return ((q @ k.transpose(-1, -2)) / math.sqrt(q.size(-1)) + mask).softmax(-1) @ v
"""
run = functools.partial(interpreted, HEAD)


@needs_triton
def test_positions():
    """Conditions of positions alone: odd sizes, windows, prefixes, lengths from memory, symbolic sizes, strides."""
    run("""
    attends(causal, *qkv(2, 256, 16), share=0.625)
    attends(causal, *qkv(2, 3, 205, 20, width=24), share=19 / 28)
    attends(causal, *qkv(3, 70, 16, keys=300), share=6 / 20)
    attends(causal, *qkv(3, 300, 16, keys=70), share=14 / 15)
    dynamo_lite.reset()
    compiled = dynamo_lite.compile(causal, options={"cpu_codegen": "triton"})
    with torch.no_grad():
        for rows, keys in ((256, 256), (31, 32), (3, 100), (300, 70), (100, 300)):
            args = qkv(2, rows, 16, keys=keys)
            torch.testing.assert_close(compiled(*args), causal(*args), atol=1e-5, rtol=1e-5)
    text = dynamo_lite.generated_code(compiled)
    assert "begin, last + XBLOCK" in text and "range(0, s" in text, text
    strided = [x.transpose(-1, -2) for x in qkv(2, 16, 256)]
    attends(causal, *strided, share=0.625)
    def flex(mask_mod, rows, keys, batch=1):
        mask = create_block_mask(mask_mod, batch, 1, rows, keys, device="cpu")
        return lambda q, k, v: flex_attention(q, k, v, None, mask)
    def window(b, h, q, k):
        return (q >= k) & (q - k < 40)
    def prefix(b, h, q, k):
        return (k <= q) | (k < 50)
    lengths = torch.tensor([33, 128])
    def padded(b, h, q, k):
        return k < lengths[b]
    attends(flex(window, 256, 256), *qkv(1, 2, 256, 16), share=14 / 32)
    attends(flex(prefix, 256, 256), *qkv(1, 2, 256, 16), share=0.625)
    attends(flex(padded, 256, 256, 2), *qkv(2, 1, 256, 16), share=0.375)
    """)


@needs_triton
def test_masks_of_positions_are_never_in_memory():
    """Though the batch shares them: the only other kernel is that of the operands' bounds."""
    run("""
    def window(q, k, v):
        i, j = torch.arange(q.size(-2))[:, None], torch.arange(k.size(-2))
        return torch.where((i - j).abs() < 20, q @ k.transpose(-1, -2) * 0.3, -math.inf).softmax(-1) @ v
    lengths = torch.tensor([33, 100])
    def padded(q, k, v, lengths):
        i, j = torch.arange(q.size(-2))[:, None], torch.arange(k.size(-2))
        allowed = ((i - j).abs() < 90) & (j < lengths[:, None, None])
        return torch.where(allowed[:, None], q @ k.transpose(-1, -2), -math.inf).softmax(-1) @ v
    def returned(q, k, v):
        i, j = torch.arange(q.size(-2))[:, None], torch.arange(k.size(-2))
        allowed = (i - j).abs() < 20
        return torch.where(allowed, q @ k.transpose(-1, -2) * 0.3, -math.inf).softmax(-1) @ v, allowed
    for fn, args, share, kernels in ((window, qkv(2, 200, 16), 13 / 28, 2), (triangle, qkv(2, 200, 16), 19 / 28, 2),
                                     (padded, (*qkv(2, 3, 200, 16), lengths), 18 / 56, 2),
                                     (returned, qkv(2, 200, 16), 13 / 28, 3)):
        text = dynamo_lite.generated_code(attends(fn, *args, share=share)).rpartition("import triton\\n")[2]
        assert text.count("= tl.program_id") == kernels, text
    """)


@needs_triton
def test_masks_in_memory():
    run("""
    allowed = torch.ones(200, 200, dtype=torch.bool).tril(-3)  # three rows are empty, and NaN
    attends(given, *qkv(2, 200, 16), allowed, share=19 / 28)
    attends(safe, *qkv(2, 200, 16), allowed, share=19 / 28)
    attends(given, *qkv(2, 200, 16), torch.zeros_like(allowed), share=4 / 28)
    attends(safe, *qkv(2, 200, 16), torch.zeros_like(allowed), share=4 / 28)
    attends(given, *qkv(2, 200, 16), torch.rand(200, 200) < 0.5, share=1)
    attends(triangle, *qkv(2, 200, 16), share=19 / 28)
    parts = torch.tensor([0] * 20 + [1] * 100 + [2] * 80)
    attends(lambda q, k, v, parts: given(q, k, v, parts[:, None] == parts), *qkv(2, 200, 16), parts, share=19 / 28)
    """)


@needs_triton
def test_16_bit_floats():
    """A mask added to scores of float16 excludes nothing: one above 65,504 is infinite, and its sum NaN."""
    run("""
    for dtype, tolerance in ((torch.bfloat16, 2e-2), (torch.float16, 2e-3)):
        args = qkv(2, 256, 16, dtype=dtype)
        attends(causal, *args, share=0.75, tolerance=tolerance)
        attends(given, *args, torch.ones(256, 256, dtype=torch.bool).tril(-3), share=0.75, tolerance=tolerance)
        attends(triangle, *args, share=0.75 if dtype is torch.bfloat16 else None, tolerance=tolerance)
    q, k, v = qkv(2, 256, 16, dtype=torch.float16)
    k[:, 200] = q[:, 3] = 300.0
    attends(triangle, q, k, v, share=None, tolerance=2e-3)
    """)


@needs_triton
def test_special_values_where_no_score_counts():
    """Eager multiplies values by weights of 0, too, and adds minus infinity to whatever score there is."""
    cases = [(bad, which, mask) for turn, bad in enumerate(("inf", "nan", "-3e38")) for which in range(3)
             for mask in thorough.share(("causal", "given", "triangle"), turn + which, 3)]
    run(f"""
    for bad, which, mask in {cases}:
        bad, args = float(bad), list(qkv(2, 256, 16))
        args[which][1, 250, 3] = bad
        values = 0.8125 if which == 2 and bad != -3e38 else 0.625
        if mask == "causal":
            attends(causal, *args, share=values)
        elif mask == "given":
            attends(given, *args, torch.ones(256, 256, dtype=torch.bool).tril(-3), share=values)
        else:
            # A query that is too large concerns its own block alone.
            attends(triangle, *args, share=values if which == 2 else 0.625 if which == 0 else 0.8125)
    """)


@needs_triton
def test_what_is_left_out_only_where_it_does_not_matter():
    run("""
    def counted_too(q, k, v, allowed):
        scores = torch.where(allowed, q @ k.transpose(-1, -2), -1e9)
        return scores.softmax(-1) @ v
    def clamped(q, k, v, allowed):
        return torch.where(allowed, q @ k.transpose(-1, -2), -math.inf).clamp(min=-4).softmax(-1) @ v
    for fn in (counted_too, clamped):
        attends(fn, *qkv(2, 200, 16), torch.ones(200, 200, dtype=torch.bool).tril(), share=None)
    bounded_operands.LEAST_PRODUCTS.update({2: 1 << 30, 4: 1 << 27})
    attends(causal, *qkv(2, 200, 16), share=None)
    """)
