"""Programs for CUDA tensors, on a machine without a GPU: results of their kernels in Triton's interpreter, what the
wrapper does around them, and the launcher with a driver that only writes down what it is asked for.

What runs on a GPU only is in ``test_cuda.py``.
"""
import collections
import dataclasses
import functools
import gc
import pathlib

import torch
from triton_process import interpreted, needs_triton

from dynamo_lite.backends.aot.decompositions.normalization import cudnn_batch_norm, cudnn_batch_norm_backward
from dynamo_lite.backends.inductor import gpu_info
from dynamo_lite.backends.inductor.codegen.triton.launch import Builds
from dynamo_lite.backends.inductor.gpu_info import TYPICAL
from dynamo_lite.backends.inductor.lowering.splitting import pieces

HERE = pathlib.Path(__file__).resolve().parent

HEAD = f"""
import sys
sys.path[:0] = [{str(HERE)!r}, {str(HERE.parents[1])!r}]
import torch, torch.nn as nn, torch.nn.functional as F
from gpu_programs import *
torch.manual_seed(0)
"""


run = functools.partial(interpreted, HEAD)


@needs_triton
def test_results():
    """In one process: to start one takes longer than to run the kernels."""
    run("""
    x, i = torch.randn(33, 40), torch.tensor([0, 8, 3, 3, 1])
    # Functions of libdevice, in blocks and in the scalars that reductions leave.
    gpu = check(lambda x: (x.erfc() + x.lgamma(), x.atan2(x + 1), x.double().asin(), x.round(), x.sum().tanh(),
                           torch.nextafter(x, x.sum()), x.bfloat16().expm1().log1p()), x)
    assert not gpu.artifacts[0].library_calls
    for place in (None, lambda name: "cuda:0"):
        gpu = check(lambda x: torch.tanh(x) * 2 + x.exp().sum(-1, keepdim=True), x, backend=Gpu(place))
        assert gpu.launches and gpu.artifacts[0].gpus == (0,) and not gpu.artifacts[0].library_calls
    text = gpu.artifacts[0].wrapper.python
    assert "device=device_cuda0" in text and "restore_device(device_before)" in text, text
    gpu = check(lambda x, i: x[i] + x.new_ones(40) + torch.arange(40), x, i)
    assert "tl.device_assert" in gpu.artifacts[0].source and "fault" not in gpu.artifacts[0].wrapper.python
    def put(x, y):
        x.add_(y)
        return x * 2
    check(put, x, x + 1)
    m = nn.Sequential(nn.Linear(17, 21), nn.LayerNorm(21), nn.SiLU(), nn.Linear(21, 5))
    y = torch.randint(0, 5, (7,))
    gpu = check(lambda x: F.cross_entropy(m(x), y), torch.randn(7, 17, requires_grad=True), grad=True)
    assert len(gpu.artifacts) == 2 and all(made.gpus == (0,) for made in gpu.artifacts)
    """)


@needs_triton
def test_writes_by_index_in_any_order():
    """Sums by atomic additions, one for each iteration; where an order is asked for, the library's."""
    run("""
    x, i = torch.randn(33, 40), torch.tensor([0, 8, 3, 3, 1])
    gpu = check(lambda x, i: x.index_add(0, i, x[:5] * 2), x, i)
    assert "tl.atomic_add" in gpu.artifacts[0].source and not gpu.artifacts[0].library_calls
    check(lambda x, i: x.index_add(0, i * 0 + 3, torch.ones(5, 1).expand(5, 40)), x, i)
    check(lambda x, i: x.scatter_add(0, i[:, None].expand(5, 5), x[:5]), x, i)
    def put(x, i):
        x[2:4] = 7
        x[i[:1]] = 3
        return x * 2
    check(put, x, i)
    e = nn.Embedding(10, 7)
    gpu = check(lambda i: e(i).tanh(), i, grad=True)
    assert "tl.atomic_add" in gpu.artifacts[-1].source
    gpu = check(lambda x, i: x.scatter_reduce(0, i[:, None].expand(5, 5), x[:5], "amax"), x, i)
    assert gpu.artifacts[0].library_calls
    torch.use_deterministic_algorithms(True)
    gpu = check(lambda x, i: x.index_add(0, i, x[:5] * 2), x, i)
    assert gpu.artifacts[0].library_calls == ("aten.index_add.default",)
    """)


@needs_triton
def test_gradients_of_dropout_are_rounded_once():
    """As eager's kernel on a GPU rounds 16-bit floats; the processor's rounds the scale first."""
    run("""
    mask = torch.rand(33, 41) < 0.7
    for dtype in (torch.bfloat16, torch.float16, torch.float32):
        d = torch.randn(33, 41).to(dtype)
        gpu = Gpu()
        fn = lambda d, mask: torch.ops.aten.native_dropout_backward(d, mask, 1 / 0.7)
        got = dynamo_lite.compile(fn, backend=gpu)(d, mask)
        want = (mask.float() * d.float() * torch.tensor(1 / 0.7)).to(dtype)
        assert torch.equal(got, want) and not gpu.artifacts[0].library_calls
    """)


@needs_triton
def test_few_rows_are_reduced_in_pieces():
    run("""
    gpu = check(lambda x: (x.sum(), x.amax(), x.mean(), (x > -9).all(), x.argmax()), torch.randn(100, 1000),
                tolerance=1e-4)
    assert len(gpu.launches) < 8, gpu.launches
    check(lambda x: (x.sum(0), x.amin(0, keepdim=True), x.var(0)), torch.randn(1003, 33), tolerance=1e-4)
    check(lambda x: (x.sum((0, 2, 3), keepdim=True), x.prod(1)), torch.randn(7, 3, 40, 40), tolerance=1e-4)
    check(lambda x: (x.int().sum(), x.amax(), (x > 3).any()), torch.randn(9991), tolerance=1e-4)
    """)
    sizes = [((1 << 20,), (0,)), ((9_999_991,), (0,)), ((8192, 768), (0,)), ((32, 64, 56, 56), (0, 2, 3))]
    for shape, dims in sizes:
        cut, count = pieces(shape, "sum", dims, TYPICAL)
        assert cut in dims and 2 <= count <= 528, (shape, cut, count)
    for shape, dims in (((4096, 768), (1,)), ((8, 512), (1,)), ((8192, 8192), (0,))):
        assert pieces(shape, "sum", dims, TYPICAL) is None, shape
    assert pieces((1 << 20,), "argmax", (0,), TYPICAL) is None and pieces((1 << 20,), "sum", (0,), None) is None
    # A device of a tenth of the multiprocessors is busy with a tenth of the pieces.
    small = dataclasses.replace(TYPICAL, processors=13)
    assert pieces((1 << 22,), "sum", (0,), small)[1] <= 52 < pieces((1 << 22,), "sum", (0,), TYPICAL)[1]


def test_a_device_describes_itself(monkeypatch):
    """Of several the least of each; what is not told is the same for all."""
    found = {0: ("A100", 108, 163 << 10), 3: ("L4", 58, 99 << 10)}
    Properties = collections.namedtuple("Properties", "name multi_processor_count shared_memory_per_block_optin")
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: Properties(*found[index]))
    monkeypatch.setattr(gpu_info, "_of_indices", gpu_info._of_indices.__wrapped__)
    one = gpu_info.of_devices({torch.device("cuda", 0)})
    assert (one.name, one.processors, one.shared, one.programs) == ("A100", 108, 163 << 10, 216)
    both = gpu_info.of_devices({torch.device("cuda", 0), torch.device("cuda", 3)})
    assert both == dataclasses.replace(TYPICAL, name="A100, L4", processors=58, shared=99 << 10)
    assert "processors = 58" in both.describe() and "programs = 116" in both.describe()


@needs_triton
def test_scans_in_blocks():
    """Rows that a block holds, and those that it goes through piece by piece; of few long rows the library's."""
    run("""
    from dynamo_lite.backends.inductor.codegen.triton import blocks, target
    x = torch.randn(5, 200)
    x[1, 64] = x[1].max()  # the same at two places, in two pieces
    x[2, 70], x[3, 100] = float("nan"), float("inf")
    def scans(x):
        return (x.cumsum(1), x.cummax(1), x.cummin(1)[1], x.logcumsumexp(1), x[:2].int().cumsum(1),
                (x * 2).cumsum(1).relu())
    gpu = check(scans, x, tolerance=1e-4)
    source = gpu.artifacts[0].source
    assert "tl.associative_scan" in source and "for start in range" not in source
    check(lambda x: (x.cumsum(0), x.cumprod(0), x.cummax(0)), torch.randn(200, 3), tolerance=1e-4)
    object.__setattr__(blocks.BY_RULE, "row", 64)
    gpu = check(lambda x: (scans(x), x.cummin(0)), x, tolerance=1e-4)
    assert "for start in range" in gpu.artifacts[0].source and not gpu.artifacts[0].library_calls
    check(lambda x: (x.cumsum(0), x.cumprod(0), x.cummax(0)), torch.randn(200, 3), tolerance=1e-4)
    gpu = check(lambda x: x.cumsum(1) + 1, torch.randn(2, 5000), tolerance=1e-3)
    assert gpu.artifacts[0].library_calls == ("aten.cumsum.default",)
    """)


@needs_triton
def test_devices():
    """Kernels run where their tensors are; what moves from one device to another is the library's."""
    run("""
    x, y = torch.randn(5, 8), torch.randn(5, 8)
    gpu = check(lambda x, y: (x * 2 + 1, y * 3 - 1), x, y, backend=Gpu(
        lambda name: "cuda:0" if "x" in name else "cuda:1"))
    (made,) = gpu.artifacts
    assert made.gpus == (0, 1) and {device for _, device in gpu.launches} == {0, 1}, (made.gpus, gpu.launches)
    gpu = check(lambda x, y: (x * 2 + 1, y * 3 - 1), x, y, backend=Gpu(
        lambda name: "cuda:0" if "x" in name else "cpu"))
    (made,) = gpu.artifacts
    assert made.gpus == (0,) and "aten.mul.Tensor" in made.library_calls, made.library_calls
    """)


@needs_triton
def test_calls_that_are_recorded():
    """``mode="reduce-overhead"`` with a recorder that works here: kernels in the interpreter and library calls."""
    run("""
    from recorder_on_cpu import RecorderOnCpu
    from dynamo_lite import metrics
    m = nn.Sequential(nn.Linear(17, 21), nn.LayerNorm(21), nn.SiLU(), nn.Linear(21, 5))
    with torch.no_grad():
        gpu = Gpu(recorder=RecorderOnCpu())
        compiled = dynamo_lite.compile(m, backend=gpu)
        for n in range(4):
            x = torch.randn(7, 17)
            same(compiled(x), m(x), 1e-5)
            for p in m.parameters():
                p.mul_(0.9)
    assert (gpu.recorder.recorded, gpu.recorder.replays) == (1, 3), vars(gpu.recorder)
    assert gpu.artifacts[0].replay.fixed and gpu.artifacts[0].replay.copied
    before = len(gpu.launches)
    with torch.no_grad():
        compiled(x)
    assert len(gpu.launches) == before  # of Python's there are none

    other = nn.Sequential(nn.Linear(17, 21), nn.LayerNorm(21), nn.SiLU(), nn.Linear(21, 5))
    other.load_state_dict(m.state_dict())
    gpu = Gpu(recorder=RecorderOnCpu())
    compiled, y = dynamo_lite.compile(m, backend=gpu), torch.randint(0, 5, (7,))
    optimizers = [torch.optim.SGD(model.parameters(), 0.1, momentum=0.9) for model in (m, other)]
    for n in range(5):
        x = torch.randn(7, 17)
        losses = []
        for run, optimizer in zip((compiled, other), optimizers):
            optimizer.zero_grad()
            losses.append(F.cross_entropy(run(x), y))
            losses[-1].backward()
            optimizer.step()
        same(*losses, 1e-5)
        for p, q in zip(m.parameters(), other.parameters()):
            same(p, q, 1e-5)
    assert gpu.recorder.recorded == 2 and gpu.recorder.replays == 8, vars(gpu.recorder)

    cache, want = torch.zeros(3, 4), torch.zeros(3, 4)
    def step(cache, x, i):
        cache.index_copy_(0, i, x)
        return cache.sum(0)
    gpu = Gpu(recorder=RecorderOnCpu())
    compiled = dynamo_lite.compile(step, backend=gpu)
    for n in range(5):
        x, i = torch.randn(1, 4), torch.tensor([n % 3])
        same(compiled(cache, x, i), step(want, x, i), 1e-6)
        same(cache, want, 0.0)
    assert gpu.recorder.replays == 4

    gpu = Gpu(lambda name: "cuda:0" if "x" in name else "cpu", RecorderOnCpu())
    check(lambda x, y: (x * 2 + 1, y * 3 - 1), x, x + 1, backend=gpu)
    assert gpu.artifacts[0].replay.refusal == "its tensors are on cpu, cuda:0"
    gpu = Gpu(recorder=RecorderOnCpu())
    check(lambda x: torch.linalg.inv(x @ x.t() + torch.eye(3)), torch.randn(3, 3), backend=gpu)
    assert "waits for the GPU" in gpu.artifacts[0].replay.refusal, gpu.artifacts[0].replay
    assert any("no CUDA graph" in name for name in metrics()["fallbacks"])
    """)


class Pointer:
    def __init__(self, address):
        self.address = address

    def data_ptr(self):
        return self.address


class Kernel:
    """Stands for Triton's function."""

    def __init__(self, src=""):
        self.src = src
        self.__name__ = "kernel0"


def test_a_launch_is_one_call_with_addresses():
    types = {"in0": "*fp32", "out0": "*fp32", "n": "i64"}
    builds, calls, loads = Builds(Kernel(), types, {"XBLOCK": 128}, 4, 1, 0), [], []

    def loaded(build):
        loads.append(build)
        return (lambda *args: calls.append(args)), f"function{build}", f"metadata{build}"

    builds.loaded = loaded
    launch = builds.launcher()
    for a, b, n, build in ((64, 128, 32, 0), (64, 132, 32, 1), (64, 128, 33, 2), (8, 128, 33, 3), (0, 0, 0, 0)):
        launch(7, 55, Pointer(a), Pointer(b), n)
        assert calls[-1] == (7, 1, 1, 55, f"function{build}", f"metadata{build}", None, None, None, a, b, n, 128)
    assert loads == [0, 1, 2, 3]  # each is loaded once


def test_a_launch_without_sizes_has_two_builds():
    builds = Builds(Kernel(), {"out0": "*i64"}, {}, 1, 1, 0)
    builds.loaded = lambda build: (lambda *args: seen.append((build, args[-1])), None, None)
    seen = []
    launch = builds.launcher()
    launch(1, 0, Pointer(16))
    launch(1, 0, Pointer(24))
    assert seen == [(0, 16), (1, 24)]


def test_what_is_loaded_stays_loaded():
    """Newer versions of Triton unload a kernel when the object that ``triton.compile`` gave is gone."""
    class Made:
        module, function, packed_metadata, run = 1, 2, 3, print

        def __init__(self):
            self.asm = {"ptx": "text"}

        def __del__(self):
            if self.module is not None:
                unloaded.append(self.function)

    unloaded, builds = [], Builds(Kernel(), {"out0": "*i64"}, {}, 1, 1, 0)
    builds._made[0] = Made()
    assert builds.loaded(0) == (print, 2, 3)
    del builds
    gc.collect()
    assert not unloaded


@needs_triton
def test_builds_compile(tmp_path):
    """Each by Triton for a device that is not there, in the interpreter's absence."""
    source = run("""
    gpu = check(lambda x, i: x[i].erfc().tanh() + 1, torch.randn(64, 64), torch.tensor([1, 2, 3]))
    print(gpu.artifacts[0].source)
    """)
    (tmp_path / "source.txt").write_text(source)
    out = run(f"""
    import os
    os.environ["TRITON_CACHE_DIR"] = {str(tmp_path)!r}
    from dynamo_lite.backends.inductor.codegen.triton import launch
    from triton.backends.compiler import GPUTarget
    launch._target = lambda device: GPUTarget("cuda", 90, 32)
    names = load(open({str(tmp_path / "source.txt")!r}).read())
    ((name, described),) = names["SIGNATURES"].items()
    builds = launch.Builds(names[name], *described, 0)
    for build in (0, 1):
        ptx = builds.compile(build).asm["ptx"]
        print(build, "trap" in ptx or "assertfail" in ptx, "ld.global.v4" in ptx or ".v4.b32" in ptx)
    """, interpret="0")
    assert out.split() == ["0", "True", "True", "1", "True", "False"], out


@needs_triton
def test_launchers_are_made_with_the_kernels(tmp_path):
    """Each is made beside the others, not when its kernel is first launched: Triton may compile it."""
    source = run("""
    gpu = check(lambda x: (x.erfc().tanh() + 1, x.exp().softmax(-1)), torch.randn(64, 64))
    print(gpu.artifacts[0].source)
    """)
    (tmp_path / "source.txt").write_text(source)
    out = run(f"""
    import os
    os.environ["TRITON_CACHE_DIR"] = {str(tmp_path)!r}
    import triton
    from dynamo_lite.backends.inductor.codegen.triton import launch
    from triton.backends.compiler import GPUTarget
    class Driver:
        made = []
        def launcher_cls(self, src, metadata):
            self.made.append((src.fn.__name__, metadata.num_warps))
    triton.runtime.driver.set_active(Driver())
    launch._target = lambda device: GPUTarget("cuda", 90, 32)
    launches = launch.load_for_gpu(open({str(tmp_path / "source.txt")!r}).read(), 0)
    names = [name for name, _ in Driver.made]
    print(len(names) > 0, sorted(name.replace("launch_", "") for name in launches) == sorted(names))
    """, interpret="0")
    assert out.split() == ["True", "True"], out


def test_batch_norm_of_cudnn_writes_its_statistics():
    """As the graph has it: by the operator whose schema says so, with the same gradients."""
    x, weight, bias = (torch.randn(s) for s in ((6, 3, 4), (3,), (3,)))
    mean, var = torch.zeros(3), torch.ones(3)
    mine, theirs = (mean.clone(), var.clone()), (mean.clone(), var.clone())
    got = cudnn_batch_norm(x, weight, bias, *mine, True, 0.1, 1e-5)
    want = torch.ops.aten.native_batch_norm(x, weight, bias, *theirs, True, 0.1, 1e-5)
    torch.testing.assert_close((got[:3], mine), (want, theirs))
    assert got[3].dtype is torch.uint8 and not torch.equal(mine[0], mean)
    grads = cudnn_batch_norm_backward(x, x, weight, *mine, *got[1:3], 1e-5, got[3])
    torch.testing.assert_close(grads, torch.ops.aten.native_batch_norm_backward(
        x, x, weight, *theirs, *want[1:3], True, 1e-5, [True] * 3))
    schema = torch.ops.aten.cudnn_batch_norm.default._schema
    assert [a.name for a in schema.arguments][5:] == ["training", "exponential_average_factor", "epsilon"]
