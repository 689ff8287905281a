"""Reductions along the rows of a matrix that is larger than the core's own cache: several rows at a time."""
import re

import pytest
import torch
import torch.nn.functional as F

import dynamo_lite

R = torch.randn
SMALL = {"l2": 1 << 17}


def compiled(fn, args, target, simd="auto"):
    """The results of a compiled function, and how many rows its kernels take at a time."""
    dynamo_lite.reset()
    with dynamo_lite.config.patch(target=target, cpp_simd=simd, cache_graphs=False), torch.no_grad():
        run = dynamo_lite.compile(fn)
        found = run(*args)
        code = dynamo_lite.generated_code(run)
    assert not dynamo_lite.metrics()["fallbacks"]
    return found, list(map(int, re.findall(r"for_rows<(\d+)>", code)))


PROGRAMS = {
    "one row of a linear layer": (lambda x, w, b: F.linear(x, w, b).relu(), R(1, 300), R(153, 300), R(153)),
    "matrix times vector": (lambda w, x: w @ x, R(150, 300), R(300)),
    "long rows": (lambda w: w.sum(-1), R(13, 5003)),
    "short rows": (lambda w: w.amax(1) * 2, R(1000, 65)),
    "several results": (lambda w: (w.sum(-1), (w * w).mean(-1), w.amin(-1)), R(161, 257)),
    "part of each row": (lambda w: w[:, 3:260].sum(-1), R(161, 300)),
    "batches": (lambda w, x: (w * x).sum(-1), R(5, 39, 200), R(200)),
    "bfloat16": (lambda w: w.sum(-1), R(361, 300).bfloat16()),
    "half": (lambda w, x: (w * x).float().sum(-1), R(361, 300).half(), R(300).half()),
    "int32": (lambda w: w.sum(-1, dtype=torch.int32), torch.randint(-9, 9, (161, 300), dtype=torch.int32)),
    "bool": (lambda w: ((w > 3).any(-1), (w < 3.5).all(-1)), R(199, 300)),
    "products": (lambda w: w.prod(-1), 1 + R(161, 300) / 100),
    "few rows": (lambda w: w.sum(-1), R(8, 9000)),
}


@pytest.mark.parametrize("simd", ["auto", "avx2", "scalar"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_values_are_those_of_rows_one_by_one(name, simd):
    fn, *args = PROGRAMS[name]
    together, rows = compiled(fn, args, SMALL, simd)
    alone, none = compiled(fn, args, {"l2": 1 << 30}, simd)
    assert not none
    several = isinstance(together, tuple) and simd != "auto"
    assert len(rows) == 1 or several, "the copies of several sums take all registers of narrow vectors"
    want = fn(*args)
    for t, a, w in zip(*(r if isinstance(r, tuple) else (r,) for r in (together, alone, want))):
        assert torch.equal(t, a), "the same operations in the same order"
        torch.testing.assert_close(t, w, rtol=1e-2 if w.dtype is torch.bfloat16 else 1e-4, atol=1e-3)


def test_threads_change_no_bit():
    fn, args = (lambda x, w: F.linear(x, w).relu()), (R(1, 1000), R(1003, 1000))
    before, results = torch.get_num_threads(), []
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            results.append(compiled(fn, args, SMALL)[0])
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(results[0], r) for r in results)


@pytest.mark.parametrize("fn, shape", [
    (lambda w: w.argmax(-1), (361, 300)),
    (lambda w: w.softmax(-1), (361, 300)),
    (lambda w: w.sum(0), (361, 300)),
    (lambda w: w.exp().sin().sum(-1), (361, 300)),
], ids=["positions", "several passes", "columns", "a long body"])
def test_other_kernels_keep_their_form(fn, shape):
    w = R(*shape)
    found, rows = compiled(fn, (w,), SMALL)
    torch.testing.assert_close(found, fn(w), rtol=1e-4, atol=1e-4)
    assert not rows
