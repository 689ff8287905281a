"""Programs on a GPU: dynamo_lite against eager and torch.compile, and against the bandwidth of a copy in the same run.

    python benchmarks/gpu.py                       the whole table, at most 9 minutes; --json FILE keeps the numbers
    python benchmarks/gpu.py --quick               at most 4 minutes: shorter measurements, no training
    python benchmarks/gpu.py --device cpu --tiny   the same program on small tensors of a machine without a GPU

Each system runs in a process of its own with empty caches, so that first calls are compared, too. A system whose share
of the time is over leaves the rest out, and the table says so. A program that ends its process, or leaves the device
unusable, costs its own row: another process goes on with the next one. Every result is compared with eager's.
"""
from __future__ import annotations

import argparse
import dataclasses
import functools
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn as nn
import torch.nn.functional as F
from convnets import ResNet50

SYSTEMS = ("eager", "dynamo_lite", "torch.compile")
SECONDS = 150  # of each system
LONGEST = 20  # seconds that a system may take longer for the program that it is at
Program = tuple[Callable[..., Any], tuple[torch.Tensor, ...]]


def rms_norm(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return F.rms_norm(x, weight.shape, weight)


def layer_norm(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return F.layer_norm(x, weight.shape, weight, weight)


def softmax(x: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x, -1)


class Block(nn.Module):
    """A block of Llama: RMS norm, rotary attention, a gated network."""

    def __init__(self, width: int, heads: int, hidden: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        self.gate, self.up = nn.Linear(width, hidden, bias=False), nn.Linear(width, hidden, bias=False)
        self.down = nn.Linear(hidden, width, bias=False)
        self.first, self.second = nn.Parameter(torch.ones(width)), nn.Parameter(torch.ones(width))

    def norm(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        wide = x.float()
        return weight * (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)).to(x.dtype)

    def rotate(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        a, b = x.chunk(2, -1)
        return x * cos + torch.cat((-b, a), -1) * sin

    def forward(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        q, k, v = (t.view(batch, length, self.heads, -1).transpose(1, 2)
                   for t in self.qkv(self.norm(x, self.first)).chunk(3, -1))
        q, k = self.rotate(q, cos, sin), self.rotate(k, cos, sin)
        seen = F.scaled_dot_product_attention(q, k, v, is_causal=length > 1)
        x = x + self.out(seen.transpose(1, 2).reshape(batch, length, width))
        h = self.norm(x, self.second)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


class Words(nn.Module):
    """A transformer over words: BERT's layers, or GPT-2's if it is causal."""

    def __init__(self, words: int, width: int, layers: int, causal: bool) -> None:
        super().__init__()
        self.embedding, self.places = nn.Embedding(words, width), nn.Embedding(1024, width)
        self.blocks = nn.ModuleList(nn.TransformerEncoderLayer(
            width, width // 64, 4 * width, 0.0, "gelu", batch_first=True, norm_first=causal) for _ in range(layers))
        self.norm, self.head, self.causal = nn.LayerNorm(width), nn.Linear(width, words, bias=False), causal

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.embedding(ids) + self.places.weight[: ids.shape[1]]
        mask = None
        if self.causal:
            mask = torch.full((ids.shape[1], ids.shape[1]), -math.inf, device=x.device, dtype=x.dtype).triu(1)
        for block in self.blocks:
            x = block(x, src_mask=mask)
        return self.head(self.norm(x))


# ---------------------------------------------------------------- kernels: what they must move, in bytes
def kernels(device: str, tiny: bool) -> dict[str, Callable[[], tuple[Program, int]]]:
    size = (1 << 14) if tiny else 1 << 27
    made: dict[str, Callable[[], tuple[Program, int]]] = {}

    def values(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        return torch.randn(shape, device=device, dtype=dtype)

    def chain(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return F.silu(x * y + 0.5) * torch.tanh(x)

    def chained(dtype: torch.dtype) -> tuple[Program, int]:
        return (chain, (values(size, dtype=dtype), values(size, dtype=dtype))), 3 * size * dtype.itemsize

    def rows(fn: Callable[..., Any], columns: int, weight: bool) -> tuple[Program, int]:
        x = values(max(size // columns, 1), columns, dtype=torch.bfloat16)
        return (fn, (x, values(columns, dtype=torch.bfloat16)) if weight else (x,)), 2 * x.nbytes

    def losses(backward: bool) -> tuple[Program, int]:
        x = values(max(size // 50_257 // 4, 2), 50_257).requires_grad_(backward)
        target = torch.randint(0, 50_257, (x.shape[0],), device=device)
        loss = (lambda x, t: torch.autograd.grad(F.cross_entropy(x, t), x)) if backward else F.cross_entropy
        return (loss, (x, target)), (3 if backward else 1) * x.nbytes

    part = functools.partial
    for dtype in (torch.float32, torch.bfloat16):
        made[f"chain {str(dtype)[6:]}"] = part(chained, dtype)
    for columns in (1024, 8192, 65_536, 262_144):
        made[f"softmax {columns}"] = part(rows, softmax, columns, False)
        if columns <= 8192:
            made[f"rms_norm {columns}"] = part(rows, rms_norm, columns, True)
            made[f"layer_norm {columns}"] = part(rows, layer_norm, columns, True)
    made["cross_entropy"] = lambda: losses(False)
    made["cross_entropy backward"] = lambda: losses(True)
    made["sum"] = lambda: ((lambda x: x.sum(), (values(size),)), 4 * size)
    made["sum of columns"] = lambda: ((lambda x: x.view(-1, 1024).sum(0), (values(size),)), 4 * size)
    return made


# ---------------------------------------------------------------- models
def models(device: str, tiny: bool) -> dict[str, Callable[[], tuple[Program, bool]]]:
    """Each builds a program, and says whether it trains."""
    half = torch.bfloat16

    def words(causal: bool, trains: bool) -> tuple[Program, bool]:
        model = Words(*((1000, 64, 2) if tiny else (50_257 if causal else 30_522, 768, 12)), causal)
        ids = torch.randint(0, 1000, (1, 16) if tiny else (8, 512))
        return (model.to(device, half).train(trains), (ids.to(device),)), trains

    def llama(length: int) -> tuple[Program, bool]:
        width, heads, hidden = (64, 2, 128) if tiny else (4096, 32, 14_336)
        shape = (1, length, width)
        turns = torch.randn(length, width // heads, device=device, dtype=half)
        return (Block(width, heads, hidden).to(device, half).eval(), (
            torch.randn(shape, device=device, dtype=half), turns.cos(), turns.sin())), False

    def images(trains: bool) -> tuple[Program, bool]:
        x = torch.randn(*((2, 3, 64, 64) if tiny else (32, 3, 224, 224)), device=device)
        return (ResNet50().to(device).train(trains), (x,)), trains

    return {
        "llama block, prefill 2048": lambda: llama(16 if tiny else 2048), "llama block, one token": lambda: llama(1),
        "gpt2": lambda: words(True, False), "bert": lambda: words(False, False), "resnet50": lambda: images(False),
        "gpt2 training": lambda: words(True, True), "bert training": lambda: words(False, True),
        "resnet50 training": lambda: images(True),
    }


def training_step(run: Callable[..., Any], args: tuple[torch.Tensor, ...]) -> Any:
    loss = run(*args).float().square().mean()
    loss.backward()
    return loss.detach()


# ---------------------------------------------------------------- one system
def compiled(system: str, fn: Callable[..., Any]) -> Callable[..., Any]:
    if system == "eager":
        return fn
    if system == "dynamo_lite":
        import dynamo_lite

        return dynamo_lite.compile(fn)
    return torch.compile(fn)


def seconds_of(call: Callable[[], Any], device: str, budget: float) -> float:
    """The median time of a call."""
    for _ in range(3):
        call()
    _wait(device)
    start = time.perf_counter()
    call()
    _wait(device)
    count = max(5, min(200, int(budget / max(time.perf_counter() - start, 1e-6))))
    if device == "cpu":
        return statistics.median(_timed(call) for _ in range(count))
    times = [(torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)) for _ in range(count)]
    for first, last in times:
        first.record()
        call()
        last.record()
    _wait(device)
    return statistics.median(first.elapsed_time(last) for first, last in times) / 1000


def _timed(call: Callable[[], Any]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def _wait(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def measured(system: str, program: Program, trains: bool, device: str, budget: float) -> dict[str, Any]:
    """First call, calls after it, and how far results are from eager's, relative to their size."""
    fn, args = program
    run = compiled(system, fn)
    gradients = trains or any(a.requires_grad for a in args)
    with torch.set_grad_enabled(gradients):
        def call() -> Any:
            return training_step(run, args) if trains else run(*args)

        want = training_step(fn, args) if trains else fn(*args)
        _wait(device)
        start = time.perf_counter()
        got = call()
        _wait(device)
        first = time.perf_counter() - start
        (a,), (b,) = (v if isinstance(v, tuple) else (v,) for v in (got, want))
        error = ((a.float() - b.float()).norm() / (b.float().norm() + 1e-12)).item()
        del got, want, a, b
        return {"first": first, "seconds": seconds_of(call, device, budget), "error": error}


@dataclasses.dataclass(frozen=True)
class Run:
    """How a system is measured.

    Attributes:
        device: "cuda" or "cpu".
        tiny: small tensors.
        quick: shorter measurements, no training.
        seconds: how long it may take.
    """

    device: str
    tiny: bool
    quick: bool
    seconds: float

    @property
    def budget(self) -> float:
        """Seconds that calls of a program are measured."""
        return 0.02 if self.tiny else 0.2 if self.quick else 0.5

    def names(self) -> list[str]:
        """The rows, in order."""
        found = ["copy", *kernels(self.device, self.tiny), *models(self.device, self.tiny)]
        return [name for name in found if not (self.quick and name.endswith(" training"))]


def worker(system: str, run: Run, names: list[str]) -> None:
    """Measures programs; a line of JSON for each, before it is begun and after it."""
    end = time.perf_counter() + run.seconds
    for name in names:
        if time.perf_counter() > end:
            print(json.dumps([name, {"left out": "time"}]), flush=True)
            continue
        print(json.dumps([name, {"failed": "its process has ended"}]), flush=True)
        torch.manual_seed(0)
        try:
            print(json.dumps([name, row_of(name, system, run)]), flush=True)
        except Exception as e:
            print(json.dumps([name, {"failed": f"{type(e).__name__}: {' '.join(str(e).split())[:200]}"}]), flush=True)
            if run.device == "cuda" and not _is_usable():
                os._exit(3)  # every other call would fail, too


def row_of(name: str, system: str, run: Run) -> dict[str, Any]:
    """The numbers of one program."""
    if name == "copy":
        if system != "eager":
            return {}
        x = torch.randn((1 << 16) if run.tiny else 1 << 28, device=run.device)
        y = torch.empty_like(x)
        return {"bandwidth": 2 * x.nbytes / seconds_of(lambda: y.copy_(x), run.device, run.budget)}
    builders = kernels(run.device, run.tiny)
    if name in builders:
        program, moved = builders[name]()
        return {**measured(system, program, False, run.device, run.budget), "bytes": moved}
    program, trains = models(run.device, run.tiny)[name]()
    return {**measured(system, program, trains, run.device, run.budget), "bytes": 0}


def _is_usable() -> bool:
    """Whether the device computes: after a failed assertion or access it does no more in this process."""
    try:
        torch.cuda.synchronize()
        return bool((torch.ones(2, device="cuda") + 1).sum().item() == 4)
    except RuntimeError:
        return False


# ---------------------------------------------------------------- the table
def start(system: str, run: Run) -> dict[str, dict[str, Any]]:
    """The rows of a system."""
    left, found, end = run.names(), dict[str, dict[str, Any]](), time.perf_counter() + run.seconds
    with tempfile.TemporaryDirectory() as cache:
        folders = {name: os.path.join(cache, name) for name in (
            "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "DYNAMO_LITE_CACHE_DIR")}
        while left:
            seconds = max(end - time.perf_counter(), 0)
            command = [sys.executable, __file__, "--system", system, "--device", run.device, "--seconds", str(seconds),
                       "--rows", json.dumps(left), *["--tiny"] * run.tiny, *["--quick"] * run.quick]
            before = len(left)
            for name, row in lines_of(command, {**os.environ, **folders}, seconds + LONGEST):
                found[name] = row
                left = [other for other in left if other != name]
            if len(left) == before:
                print(f"{system} can't be started", file=sys.stderr)
                break
    return found


def lines_of(command: list[str], environment: dict[str, str], seconds: float) -> Iterator[tuple[str, dict[str, Any]]]:
    """The lines of JSON that a process prints, until it ends or its time is over."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    clock = threading.Timer(seconds, process.kill)
    clock.start()
    try:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("["):
                name, row = json.loads(line)
                yield str(name), row
    finally:
        clock.cancel()
        process.kill()
        process.wait()


def table(found: dict[str, dict[str, dict[str, Any]]]) -> list[str]:
    copy = found["eager"].get("copy", {}).get("bandwidth", math.nan)
    lines = [f"copy: {copy / 1e9:.0f} GB/s", f"{'':28}" + "".join(f"{s:>16}" for s in found) +
             "   of copy  against torch.compile  first calls  error"]
    ratios = []
    for name in found["eager"]:
        if name == "copy":
            continue
        rows = {system: found[system].get(name, {"failed": "no result"}) for system in found}
        cells = [f"{r['seconds'] * 1e6:13.1f} us" if "seconds" in r else f"{next(iter(r)):>16}" for r in rows.values()]
        ours, theirs = rows.get("dynamo_lite", {}), rows.get("torch.compile", {})
        rest = ""
        if "seconds" in ours:
            share = f"{ours['bytes'] / ours['seconds'] / copy:8.0%}" if ours["bytes"] else " " * 8
            rest = f"  {share}"
            if "seconds" in theirs:
                ratios.append(theirs["seconds"] / ours["seconds"])
                rest += f"{ratios[-1]:20.2f}x{ours['first'] / theirs['first']:13.2f}x"
            rest += f"  {ours['error']:.1e}"
        lines.append(f"{name:28}" + "".join(f"{c:>16}" for c in cells) + rest)
        lines += [f"    {s}: {r['failed']}" for s, r in rows.items() if "failed" in r]
    if ratios:
        lines.append(f"geometric mean against torch.compile: {statistics.geometric_mean(ratios):.2f}x")
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--tiny", action="store_true", help="small tensors, to try the program out")
    parser.add_argument("--quick", action="store_true", help="shorter measurements, no training")
    parser.add_argument("--seconds", type=float, help="of each system")
    parser.add_argument("--json", help="a file for the numbers, written after each system")
    parser.add_argument("--rows", help="programs to measure, as JSON, with --system")
    parser.add_argument("--system", choices=SYSTEMS, help="one system alone, as lines of JSON")
    parser.add_argument("--systems", default=",".join(SYSTEMS), help="which to compare; eager is needed")
    options = parser.parse_args()
    seconds = (SECONDS / 2.5 if options.quick else SECONDS) if options.seconds is None else options.seconds
    run = Run(options.device, options.tiny, options.quick, seconds)
    if options.system:
        worker(options.system, run, json.loads(options.rows) if options.rows else run.names())
        return 0
    if options.device == "cuda" and not torch.cuda.is_available():
        parser.error("there is no GPU; --device cpu --tiny tries the program out")
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for system in options.systems.split(","):
        found[system] = start(system, run)
        if options.json:
            with open(options.json, "w") as file:
                json.dump(found, file, indent=1)
    print(f"{device_name(options.device)}, torch {torch.__version__}, {time.strftime('%Y-%m-%d')}")
    print("\n".join(table(found)))
    return 0


def device_name(device: str) -> str:
    return torch.cuda.get_device_name() if device == "cuda" else "CPU"


if __name__ == "__main__":
    sys.exit(main())
