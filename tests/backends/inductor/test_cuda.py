"""CUDA tensors on a GPU: results, gradients, launches, streams, devices, random numbers. Skipped where there is none.

What can be shown without a GPU is in ``test_cuda_programs.py``.
"""
import threading

import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F

import dynamo_lite
from dynamo_lite.backends import metrics

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
GPU = "cuda"


@pytest.fixture(autouse=True)
def raise_faults():
    with dynamo_lite.config.patch(raise_internal_errors=True):
        yield


def check(fn, *args, tolerance=1e-4, kernels=True):
    compiled = dynamo_lite.compile(fn)
    mine, theirs = ([a.clone() if isinstance(a, torch.Tensor) else a for a in args] for _ in range(2))
    with torch.no_grad():
        torch.testing.assert_close(compiled(*mine), fn(*theirs), rtol=tolerance, atol=tolerance, equal_nan=True)
    for a, b in zip(mine, theirs):
        if isinstance(a, torch.Tensor):
            torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance, equal_nan=True)
    assert ("@triton.jit" in dynamo_lite.generated_code(compiled)) is kernels
    return compiled


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_floats(dtype):
    x = torch.randn(333, 517, device=GPU, dtype=dtype)
    tolerance = 1e-4 if dtype.itemsize > 2 else 2e-2
    check(lambda x: F.gelu(x * 2) + torch.tanh(x) - x.exp().log1p(), x, tolerance=tolerance)
    check(lambda x: (x.softmax(-1), x.softmax(0), x.amax(1), x.argmax(0)), x, tolerance=tolerance)
    check(lambda x: (F.layer_norm(x, (517,)), x.float().var(0)), x, tolerance=tolerance)
    check(lambda x: (x.t() + x.t().contiguous(), x[::2, 1:].cumsum(1)), x, tolerance=2 * tolerance)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64])
def test_integers(dtype):
    x = torch.arange(60, device=GPU).view(4, 15).to(dtype)
    check(lambda x: (x // 3 + x % 5, x & 6, ~x, x.sum(0), x.float() / 7, x > 3), x)


@pytest.mark.parametrize("rows,columns", [(1, 1), (3, 1023), (2, 100_003), (1000, 33), (70_000, 8)])
def test_reductions(rows, columns):
    x = torch.randn(rows, columns, device=GPU)
    check(lambda x: (x.sum(), x.sum(0), x.sum(1), x.mean(), x.amax(), x.amin(0), x.logsumexp(1)), x, tolerance=1e-3)
    check(lambda x: ((x > 3).any(), x.argmax(1), torch.log_softmax(x, -1)), x)


def test_indices():
    x, i = torch.randn(90, 50, device=GPU), torch.tensor([0, 8, 3, 3, -1], device=GPU)
    check(lambda x, i: (x[i], x.index_select(0, i.abs()), F.embedding(i.abs(), x)), x, i)
    check(lambda x, i: x.index_add(0, i.abs(), x[:5] * 2), x, i)
    check(lambda x, i: x.index_put((i,), x[:5], accumulate=True), x, i)

    def put(x, i):
        x[i] = 7
        return x * 2

    check(put, x, i)


def test_memory_that_is_not_aligned():
    base = torch.randn(1025, device=GPU)
    compiled = check(lambda x: x * 2 + 1, base[:1024])
    torch.testing.assert_close(compiled(base[1:]), base[1:] * 2 + 1)


def test_symbolic_sizes():
    compiled = dynamo_lite.compile(lambda x: torch.softmax(x, -1) + x.sum(0), dynamic=True)
    for n in (5, 16, 48, 1000):
        x = torch.randn(n + 2, n, device=GPU)
        torch.testing.assert_close(compiled(x), torch.softmax(x, -1) + x.sum(0), rtol=1e-4, atol=1e-4)


def models():
    norm = nn.Sequential(nn.Linear(64, 96), nn.LayerNorm(96), nn.GELU(), nn.Linear(96, 10))
    conv = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
                         nn.Linear(8 * 15 * 15, 10))
    words = nn.Sequential(nn.Embedding(100, 32), nn.TransformerEncoderLayer(32, 4, 64, 0.0, batch_first=True),
                          nn.Linear(32, 10))
    return {"norm": (norm, torch.randn(32, 64)), "conv": (conv, torch.randn(4, 3, 32, 32)),
            "words": (words, torch.randint(0, 100, (4, 16)))}


@pytest.mark.parametrize("name", ["norm", "conv", "words"])
def test_training(name):
    torch.manual_seed(0)
    model, x = models()[name]
    model, x = model.to(GPU), x.to(GPU)
    state = {key: value.clone() for key, value in model.state_dict().items()}
    found = []
    for run in (model, dynamo_lite.compile(model)):
        model.load_state_dict(state)
        model.zero_grad(set_to_none=True)
        loss = run(x).float().square().mean()
        loss.backward()
        gradients = [p.grad.clone() for p in model.parameters()]
        found.append((loss.detach(), gradients, [b.clone() for b in model.buffers()]))
    torch.testing.assert_close(found[1], found[0], rtol=2e-3, atol=2e-4)


def test_autocast():
    model, x = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.LayerNorm(64)).to(GPU), torch.randn(8, 64, device=GPU)
    compiled = dynamo_lite.compile(model)
    with torch.autocast(GPU, torch.bfloat16):
        got, want = compiled(x), model(x)
        assert got.dtype is want.dtype
        torch.testing.assert_close(got, want, rtol=2e-2, atol=2e-2)
    torch.testing.assert_close(compiled(x), model(x), rtol=1e-4, atol=1e-4)


def test_random_numbers_are_eagers():
    x = torch.randn(1000, device=GPU)
    for fn in (lambda x: F.dropout(x, 0.3, training=True) * 2, lambda x: torch.rand_like(x) + x,
               lambda x: torch.bernoulli(x.sigmoid())):
        torch.manual_seed(5)
        want = fn(x), torch.cuda.get_rng_state()
        torch.manual_seed(5)
        got = dynamo_lite.compile(fn)(x), torch.cuda.get_rng_state()
        assert torch.equal(got[0], want[0]) and torch.equal(got[1], want[1])


def test_kernels_go_to_the_current_stream():
    x = torch.zeros(1 << 22, device=GPU)
    compiled = check(lambda x: x + 1, x)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        torch.cuda._sleep(20_000_000)
        x.add_(1)
        y = compiled(x)
    stream.synchronize()
    assert y.eq(2).all()


def test_from_other_threads():
    x = torch.randn(100, device=GPU)
    compiled, results = check(lambda x: x.sin() + 1, x), []
    threads = [threading.Thread(target=lambda: results.append(compiled(x))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 4 and all(torch.allclose(r, x.sin() + 1) for r in results)


def graphs():
    return metrics.metrics().get("cuda_graphs", 0)


def test_reduce_overhead_replays():
    dynamo_lite.reset_metrics()
    model = nn.Sequential(nn.Linear(64, 64), nn.LayerNorm(64), nn.GELU(), nn.Linear(64, 8)).to(GPU)
    compiled = dynamo_lite.compile(model, mode="reduce-overhead")
    found = []
    with torch.no_grad():
        for n in range(6):
            x = torch.randn(16, 64, device=GPU)
            found.append((compiled(x), model(x)))
            model[0].weight.mul_(0.9)
    assert graphs() == 1
    for got, want in found:
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)
    with torch.no_grad(), torch.cuda.stream(torch.cuda.Stream()):
        for _ in range(3):
            torch.testing.assert_close(compiled(x), model(x), rtol=1e-4, atol=1e-5)
    assert graphs() == 2


def test_reduce_overhead_keeps_large_results():
    compiled = dynamo_lite.compile(lambda x: x.sin() * 2, mode="reduce-overhead")
    x = torch.randn(1 << 20, device=GPU)
    held = [compiled(x + n) for n in range(8)]
    for n, y in enumerate(held):
        torch.testing.assert_close(y, (x + n).sin() * 2)


@pytest.mark.parametrize("name", ["norm", "conv", "words"])
def test_reduce_overhead_trains(name):
    torch.manual_seed(0)
    model, x = models()[name]
    model, x = model.to(GPU), x.to(GPU)
    state = {key: value.clone() for key, value in model.state_dict().items()}
    found = []
    for run in (model, dynamo_lite.compile(model, mode="reduce-overhead")):
        model.load_state_dict(state)
        optimizer, losses = torch.optim.SGD(model.parameters(), 0.01), []
        for _ in range(5):
            optimizer.zero_grad()
            loss = run(x).float().square().mean()
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
        found.append((losses, [p.detach().clone() for p in model.parameters()]))
    torch.testing.assert_close(found[1], found[0], rtol=2e-3, atol=2e-4)


def test_reduce_overhead_draws_eagers_numbers():
    fn = lambda x: F.dropout(x, 0.3, training=True) * 2
    compiled, x = dynamo_lite.compile(fn, mode="reduce-overhead"), torch.randn(1000, device=GPU)
    found = []
    for run in (fn, compiled):
        torch.manual_seed(5)
        found.append([run(x) for _ in range(5)] + [torch.rand(3, device=GPU)])
    assert all(map(torch.equal, *found))


def test_reduce_overhead_after_a_recording_that_failed():
    """What waits for the GPU, and is not known to, ends a recording; afterwards all is as before."""
    from dynamo_lite.backends.inductor.device_graphs import CudaRecorder

    x = torch.randn(1000, device=GPU)
    recorder = CudaRecorder(0)
    with pytest.raises(RuntimeError):
        recorder.record(lambda: (x.nonzero(), torch.rand(3, device=GPU)))
    torch.rand(3, device=GPU)
    stream = torch.cuda.Stream()
    x.record_stream(stream)
    replay, (y,) = recorder.record(lambda: (x + 1,))
    replay()
    assert torch.equal(y, x + 1)


def test_cpu_and_gpu_in_one_graph():
    def fn(x, y):
        return x * 2 + 1, (y * 3).sum(), (x * 2).cpu() + y, x * y.sum()

    check(fn, torch.randn(8, 8, device=GPU), torch.randn(8, 8))


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="there is one GPU")
def test_two_gpus():
    compiled = dynamo_lite.compile(lambda x, y: (x * 2 + 1, y.softmax(-1)))
    for a, b in ((0, 1), (1, 0), (1, 1)):
        x, y = torch.randn(9, 9, device=f"cuda:{a}"), torch.randn(9, 9, device=f"cuda:{b}")
        torch.testing.assert_close(compiled(x, y), (x * 2 + 1, y.softmax(-1)))
        assert torch.cuda.current_device() == 0


def test_calls_after_the_first_compile_nothing():
    x = torch.randn(64, 64, device=GPU)
    compiled = check(lambda x: (x @ x).relu() + 1, x)
    before = metrics.metrics()["kernels"]
    with torch.no_grad():
        for _ in range(3):
            compiled(x)
    assert metrics.metrics()["kernels"] == before
