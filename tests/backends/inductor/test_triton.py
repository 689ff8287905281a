"""Kernels in Triton: results in its interpreter, what says that they can't run, and what a GPU's assembler takes.

Triton chooses its interpreter when it is imported, so each test is a process of its own.
"""
import functools
import os
import pathlib
import subprocess
import sys

from triton_process import interpreted, needs_triton

BENCHMARKS = pathlib.Path(__file__).resolve().parents[3] / "benchmarks"

HEAD = f"""
import sys
sys.path.insert(0, {str(pathlib.Path(__file__).parent)!r})
from same_results import same
import torch, torch.nn as nn, torch.nn.functional as F, dynamo_lite
from dynamo_lite import metrics
torch.manual_seed(0)

def check(fn, *args, tolerance=1e-5, **options):
    compiled = dynamo_lite.compile(fn, options={{"cpu_codegen": "triton"}}, **options)
    mine, theirs = [a.clone() for a in args], [a.clone() for a in args]
    with torch.no_grad():
        same(compiled(*mine), fn(*theirs), tolerance)
        for a, b in zip(mine, theirs):
            same(a, b, tolerance)
    assert "@triton.jit" in dynamo_lite.generated_code(compiled)
    return compiled
"""


run = functools.partial(interpreted, HEAD)


pytestmark = needs_triton


BLOCKS = """
x = torch.randn(33, 7, 5)
check(lambda x: torch.tanh(x) * 2 + x.exp().log1p(), x)
check(lambda x: x.transpose(0, 2) + x.permute(2, 1, 0).contiguous() * 2, x)
check(lambda x: x[::2, 1:, -1] - x[1::2, 1:, 0].sum(), x[:32])
check(lambda x: F.pad(x, (1, 2)) + 1, x)
for pads in (torch.ops.aten.reflection_pad2d_backward, torch.ops.aten.replication_pad2d_backward):
    check(lambda d, x: pads(d, x, (1, 2, 3, 0)) * 2, torch.randn(33, 10, 8), x)
check(lambda x: torch.cat([x, x * 2], 1), x)
check(lambda x, y: torch.slice_scatter(x, y, 0, 0, 33, 1), x, x + 1)
check(lambda x: F.avg_pool2d(x, 3, 1, 1) + F.max_pool2d(x, 3, 2, 1).sum(), torch.randn(1, 3, 9, 9))
for dtype in (torch.bfloat16, torch.float16, torch.float64):
    check(lambda x: F.gelu(x * 3) + x.sum(-1, keepdim=True), x.to(dtype), tolerance=2e-2)
for dtype in (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64):
    check(lambda x: (x // 3 + x % 5, x & 6, ~x, x.sum(0), x.float() / 7, x > 3), torch.arange(60).view(4, 15).to(dtype))
special = torch.tensor([0.0, -0.0, float("inf"), -float("inf"), float("nan"), 2.5, -3.5, 1e-30, 8.0])
check(lambda x: (x.neg().signbit(), x.round(), x.trunc(), x.relu(), x.sign(), x.clamp(-1, 1), x.int().bool()), special)
check(lambda x: (x.sinh(), x.asinh(), x.atan(), x.expm1(), x.log10(), x ** 3.5, torch.hypot(x, x)), special[5:])
check(lambda x: (x.bool() ^ (x > 0), x.bool().any(), (x > -5).all(), x.to(torch.uint8)), x.abs())
"""
REDUCTIONS = """
x = torch.randn(13, 37)
nan = x.clone()
nan[3, 5] = nan[4, 0] = nan[4, 9] = float("nan")
for t in (x, nan):
    check(lambda x: (x.amax(1), x.amin(0), x.argmax(1), x.argmin(0), x.max(), x.sum()), t)
check(lambda x: (x.prod(1), x.prod(), x.var(0), x.std(1), x.mean(), x.var(1, correction=0)), x)
check(lambda x: (x.sum(), x.sum(1), x.prod(1), (x > 0).all(1), x.mean(), x.sum(0)), torch.randn(3, 0))
check(lambda x: (x.cumsum(0), x.cumsum(1), x.cummax(1)[1], x.cumprod(0)), x)
check(lambda x: (torch.log_softmax(x, -1), x.argmax(-1), F.layer_norm(x, (5000,))), torch.randn(3, 5000))
check(lambda x: (x.sum(0), x.softmax(0)), torch.randn(5000, 3))
check(lambda x: x.sum((0, 2)) + x.amax((0, 2)), torch.randn(6, 5, 7))
check(lambda x: (x.int().sum(), x.int().amax(1), x.argmax()), x * 10)
"""
INDICES = """
x, i = torch.randn(9, 5), torch.tensor([0, 8, 3, 3, -1])
check(lambda x, i: (x[i], x.index_select(0, i.abs()), x[:, i[:3].clamp(0, 4)]), x, i)
check(lambda x, i: x.index_add(0, i.abs(), x[:5] * 2), x, i)
check(lambda x, i: x.index_put((i,), x[:5], accumulate=True), x, i)
check(lambda x, i: x.scatter_add(0, i.abs()[:, None].expand(5, 5), x[:5]), x, i)
check(lambda x, i: F.embedding(i.abs(), x), x, i)
def put(x, i):
    x[i] = 7
    return x * 2
check(put, x, i)
for fn in (lambda x, i: x[i] + 1, lambda x, i: x.index_put((i,), x[:5])):
    try:
        dynamo_lite.compile(fn, options={"cpu_codegen": "triton"})(x, i + 5)
    except IndexError as e:
        assert "13" in str(e), e
    else:
        raise AssertionError("no error")
"""
TRAINING = """
c = check(lambda x: (F.softmax(x, -1) + 1, x.sum(0)), torch.randn(4, 9), dynamic=True)
check(lambda x: x + (7 - x.shape[0]) // 3 + (7 - x.shape[0]) % 3, torch.randn(9), dynamic=True)
for n in (1, 3, 70):
    x = torch.randn(n + 2, n + 1)
    same(c(x), (F.softmax(x, -1) + 1, x.sum(0)))
assert "do_not_specialize" in dynamo_lite.generated_code(c)
m = nn.Sequential(nn.Linear(17, 21), nn.LayerNorm(21), nn.SiLU(), nn.Linear(21, 5))
x, y = torch.randn(7, 17), torch.randint(0, 5, (7,))
loss = lambda x, y: F.cross_entropy(m(x), y, label_smoothing=0.1)
want = torch.autograd.grad(loss(x, y), list(m.parameters()))
got = torch.autograd.grad(dynamo_lite.compile(loss, options={"cpu_codegen": "triton"})(x, y), list(m.parameters()))
same(got, want)
conv = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU()).eval()
check(lambda x: conv(x), torch.randn(2, 3, 8, 8))
"""


def test_results():
    """Of all kinds of kernels, in one process: to start one takes longer than to run the kernels."""
    run(BLOCKS + REDUCTIONS + INDICES + TRAINING)


def test_without_the_interpreter_kernels_are_in_cpp():
    said = run("""
    x = torch.randn(5)
    c = dynamo_lite.compile(lambda x: x + 1, options={"cpu_codegen": "triton"})
    d = dynamo_lite.compile(lambda x: x + 2, options={"cpu_codegen": "triton"})
    same(c(x), x + 1)
    same(d(x), x + 2)
    assert "@triton.jit" not in dynamo_lite.generated_code(c)
    import sys
    assert "triton" not in sys.modules
    """, TRITON_INTERPRET="0")
    assert said.count("set TRITON_INTERPRET=1") == 1


def test_kernels_of_tests_are_kept(tmp_path):
    """By ``triton_offline.py --tests``: in the form for a GPU, those of processes that a process starts, too."""
    code = """
    c = dynamo_lite.compile(lambda x, i: x.tanh()[i], options={"cpu_codegen": "triton"})
    c(torch.randn(8, 6), torch.tensor([1, 2]))
    d = dynamo_lite.compile(lambda x, i: x.scatter_reduce(0, i, x, "amax"), options={"cpu_codegen": "triton"})
    d(torch.randn(8), torch.zeros(8, dtype=torch.int64))
    """
    run(code, PYTHONPATH=str(BENCHMARKS / "collect_kernels"), DYNAMO_LITE_COLLECT=str(tmp_path))
    kept = [path.read_text() for path in tmp_path.glob("k*.py")]
    assert len(kept) == 1 and "libdevice.tanh" in kept[0] and "tl.device_assert" in kept[0], kept
    assert (tmp_path / "left_out").read_text() == "."


def test_kernels_compile_for_gpus(tmp_path):
    run(f"""
    import pathlib
    c = dynamo_lite.compile(lambda x: torch.softmax(x, -1) + x.cumsum(0), options={{"cpu_codegen": "triton"}})
    c(torch.randn(8, 256))
    source = dynamo_lite.generated_code(c).partition("def call(")[0]
    pathlib.Path({str(tmp_path)!r}, "sample.py").write_text(source)
    sys.path.insert(0, {str(BENCHMARKS)!r})
    from triton_offline import cuda_source
    source = cuda_source(lambda x, w, b: F.relu(F.linear(x, w, b)), tuple(torch.randn(s).bfloat16() for s in (
        (256, 128), (512, 128), (512,))))
    assert "tl.dot" in source
    pathlib.Path({str(tmp_path)!r}, "product.py").write_text(source)
    """)
    done = subprocess.run([sys.executable, BENCHMARKS / "triton_offline.py", tmp_path], capture_output=True, text=True,
                          timeout=240, env={**os.environ, "TRITON_INTERPRET": "0", "TRITON_CACHE_DIR": str(tmp_path)})
    assert done.returncode == 0, done.stdout + done.stderr
    assert "sm_100" in done.stdout and "product.kernel0" in done.stdout, done.stdout
