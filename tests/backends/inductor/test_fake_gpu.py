"""Launches, streams, devices and recordings on a GPU that computes nothing (``tests/fake_gpu``): torch's own build for
CUDA, Triton's own launcher and its real kernels. Skipped where torch is not built for CUDA 13, or there is a GPU.

What kernels compute is in ``test_cuda_programs.py`` and ``test_cuda.py``.
"""
import functools
import importlib.util
import os
import pathlib
import sys
import tempfile
import textwrap

import new_process
import pytest
import torch

ROOT = pathlib.Path(__file__).resolve().parents[2]
FAKE = ROOT / "fake_gpu"
pytestmark = pytest.mark.skipif(
    not (torch.version.cuda or "").startswith("13.") or torch.cuda.is_available() or importlib.util.find_spec(
        "triton") is None, reason="this torch is not built for CUDA 13, or there is a GPU, or no Triton")
HEAD = f"""
import sys
sys.path[:0] = [{str(FAKE)!r}, {str(ROOT)!r}]
import torch, torch.nn as nn, torch.nn.functional as F
import dynamo_lite
import gpu_log
dynamo_lite.config.raise_internal_errors = True
"""


@functools.cache
def fake_gpu() -> dict[str, str]:
    sys.path.insert(0, str(FAKE))
    import build

    return build.build(pathlib.Path(tempfile.mkdtemp()))


def run(code: str, tmp_path: pathlib.Path, **env: str) -> None:
    environment = {**os.environ, **fake_gpu(), "DYNAMO_LITE_CACHE_DIR": str(tmp_path / "ours"), **env}
    environment.pop("TRITON_INTERPRET", None)
    done = new_process.run(HEAD + textwrap.dedent(code), timeout=240, env=environment, warnings=("ignore",))
    assert done.returncode == 0, done.stderr[-4000:]
    assert "runs again in plain Python" not in done.stderr, done.stderr[-4000:]


def test_launches(tmp_path):
    """A kernel gets its pointers; one that is loaded stays so; for pointers that are not aligned there is another."""
    run("""
    import gc
    x, w = torch.empty(64, 1000, device="cuda"), torch.empty(1000, device="cuda")
    f = dynamo_lite.compile(lambda x, w: F.gelu(F.layer_norm(x, (1000,), w)) + 1)
    base = torch.empty(64 * 1000 + 1, device="cuda")
    with torch.no_grad():
        for given, loads in ((x, 1), (x, 0), (base[1:].view(64, 1000), 1), (x, 0)):
            gpu_log.take()
            y = f(given, w)
            gc.collect()
            entries = gpu_log.take()
            assert [e.kind for e in entries] == ["load"] * loads + ["launch"], entries
            launch = entries[-1]
            # Behind them what Triton adds: two places in memory for it alone, here none.
            assert launch.parameters == [given.data_ptr(), w.data_ptr(), y.data_ptr(), 0, 0], launch
            assert launch.of["grid"] == "64,1,1" and launch.of["attributes"] == "0" and launch.stream == 0
    """, tmp_path)


def test_symbolic_sizes(tmp_path):
    run("""
    f = dynamo_lite.compile(lambda x: x.sin() + 1, dynamic=True)
    for n, build in ((48, "load"), (37, "load"), (80, None), (35, None)):
        x = torch.empty(n, 64, device="cuda")
        gpu_log.take()
        f(x)
        entries = gpu_log.take()
        assert [e.kind for e in entries] == [*([build] if build else []), "launch"], entries
        assert n in entries[-1].parameters, entries[-1]
    """, tmp_path)


def test_streams_and_devices(tmp_path):
    """Kernels of forward and backward passes run where their tensors are, in the forward pass's stream."""
    run("""
    import threading
    f = dynamo_lite.compile(lambda x: (x.sin() * 2).softmax(-1))
    for device in (0, 1):
        x = torch.empty(64, 100, device=f"cuda:{device}", requires_grad=True)
        stream = torch.cuda.Stream(device=device)
        for _ in range(2):
            with torch.cuda.stream(stream):
                y = f(x)
            y.sum().backward()  # in autograd's thread
            launches = gpu_log.take("launch")
            assert len(launches) == 2
            for launch in launches:
                assert launch.stream == stream.cuda_stream and launch.of["device"] == str(device), launches
        assert torch.cuda.current_device() == 0

        def from_another_device():
            torch.cuda.set_device(1 - device)
            with torch.no_grad():
                f(x)
            assert torch.cuda.current_device() == 1 - device
            done.append(gpu_log.take("launch"))

        done = []
        thread = threading.Thread(target=from_another_device)
        thread.start()
        thread.join()
        ((launch,),) = done
        assert launch.stream == 0 and launch.of["device"] == str(device)
    """, tmp_path, FAKE_GPUS="2")


def test_recordings(tmp_path):
    """The second call is recorded in a stream of its own, later ones are replayed in the caller's."""
    run("""
    model = nn.Sequential(nn.LayerNorm(64), nn.GELU()).to("cuda:1")
    compiled = dynamo_lite.compile(model, mode="reduce-overhead")
    stream = torch.cuda.Stream(device=1)
    for n in range(4):
        x = torch.empty(16, 64, device="cuda:1")
        gpu_log.take()
        with torch.cuda.stream(stream):
            compiled(x).sum().backward()
        kinds = [e for e in gpu_log.take() if e.kind in ("record", "launch", "replay")]
        assert (n < 2) is any(e.kind == "launch" for e in kinds), kinds
        for e in kinds:
            if e.kind == "replay":
                assert e.stream == stream.cuda_stream and e.of["device"] == "1"
            if e.kind == "launch":
                assert (e.stream != stream.cuda_stream and e.of["recorded"] == "1") if n else (
                    e.stream == stream.cuda_stream)
        assert sum(e.kind == "replay" for e in kinds) == (2 if n else 0), kinds
        assert sum(e.kind == "record" for e in kinds) == (2 if n == 1 else 0), kinds
    """, tmp_path, FAKE_GPUS="2")


def test_what_waits_and_copies_is_what_eager_does(tmp_path):
    """No program waits for the GPU, or copies from or to the host, where eager does not."""
    run("""
    def counts(fn, *args):
        fn(*args)
        fn(*args)
        gpu_log.take()
        fn(*args)
        found = gpu_log.take()
        moves = [e for e in found if e.kind == "copy" and "-1" in (e.of["to"], e.of["from"])]
        return len(moves), sum(e.kind == "wait" for e in found)

    def autocast(x):
        with torch.autocast("cuda", torch.bfloat16):
            return (x @ x.t()).relu()

    def train(x):
        layer.zero_grad()
        loss = layer(x).relu().square().sum()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(layer.parameters(), 1.0)
        optimizer.step()
        return loss.detach()

    layer = nn.Linear(100, 100).cuda()
    optimizer = torch.optim.AdamW(layer.parameters())
    x, on_host = torch.zeros(64, 100, device="cuda"), torch.randn(64, 100)
    programs = {
        "a number on the host": (lambda x, s: x * s + s.sin(), x, torch.tensor(2.0)),
        "to the device": (lambda x, y: x + y.to("cuda", non_blocking=True), x, on_host.pin_memory()),
        "to the host": (lambda x: (x * 2).cpu(), x),
        "item": (lambda x: x * x.sum().item(), x),
        "where": (lambda x: torch.where(x > 0, x, torch.tensor(1.0, device=x.device)), x),
        "mask": (lambda x: x[x > 0.5].sum(), x),
        "dropout": (lambda x: F.dropout(x, 0.5) * 2, x),
        "embedding": (lambda x: F.embedding(torch.zeros(5, dtype=torch.long, device="cuda"), x).sum(0), x),
        "loss": (lambda x: F.cross_entropy(x, torch.zeros(64, dtype=torch.long, device="cuda")), x),
        "autocast": (autocast, x), "train": (train, x),
    }
    for name, (fn, *args) in programs.items():
        theirs, ours = counts(fn, *args), counts(dynamo_lite.compile(fn), *args)
        assert all(a <= b for a, b in zip(ours, theirs)), (name, ours, theirs)
    """, tmp_path)


def test_forks(tmp_path):
    """A process that has forked after CUDA was used, as a data loader's workers are, compiles for the CPU."""
    run("""
    import os
    f = dynamo_lite.compile(lambda x: x.sin() * 2)
    f(torch.empty(5, device="cuda"))
    child = os.fork()
    if child == 0:
        x = torch.randn(5)
        other = dynamo_lite.compile(lambda x: x.cos() + 1)
        ok = torch.allclose(f(x), x.sin() * 2) and torch.allclose(other(x), x.cos() + 1)
        os._exit(0 if ok else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    """, tmp_path)
