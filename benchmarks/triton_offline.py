"""Compiles Triton kernels for GPUs that need not be there, and prints what the assembler says of each.

    python benchmarks/triton_offline.py --programs DIR    writes the kernels of sample programs, as for CUDA tensors
    python benchmarks/triton_offline.py --models DIR      those of the programs of gpu.py, of full width, few layers
    python benchmarks/triton_offline.py --tests DIR ...   those of tests, run by pytest with the arguments that follow
    python benchmarks/triton_offline.py DIR               compiles every distinct kernel of the files in DIR

A row is a kernel for one compute capability: registers of a thread, bytes spilled, shared memory of a block, and the
widest loads and stores. Exits with 1 if a kernel does not compile, or spills. Of a product, a few words are none: the
assembler keeps them in memory, outside the loop, for one more block on a multiprocessor. Kernels that differ in
nothing but their names are compiled once. For the tests, ``collect_kernels/sitecustomize.py`` keeps what they generate.
"""
from __future__ import annotations

import argparse
import hashlib
import importlib
import linecache
import math
import os
import pathlib
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from typing import Any

import gpu
import torch
import torch.nn as nn
import torch.nn.functional as F

import dynamo_lite
from dynamo_lite.backends.aot.decompositions import FOR_KERNELS
from dynamo_lite.backends.inductor.artifact import start, write
from dynamo_lite.backends.inductor.codegen.wrapper import library_program
from dynamo_lite.backends.inductor.compile import compile_graph
from dynamo_lite.backends.inductor.pipeline import lower_and_schedule, target_named
from dynamo_lite.backends.inductor.route import Route
from dynamo_lite.backends.inductor.target import Tuning

CAPABILITIES = (80, 90, 100)
ALL_KERNELS = Tuning(products="template", random="kernels")
LIBRARY = Tuning()
_WORDS = 32  # bytes


def programs() -> dict[str, tuple[Any, tuple[torch.Tensor, ...]]]:
    """Sample programs: chains, norms, softmax, cross-entropy, gathers, scatters, scans, transposes."""
    x, w, b = torch.randn(512, 768), torch.randn(768), torch.randn(768)
    ids = torch.randint(0, 512, (300,))
    model = nn.Sequential(nn.Linear(64, 96), nn.LayerNorm(96), nn.GELU(), nn.Linear(96, 10))

    def step(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(model(x), y)

    def norms(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> Any:
        return F.layer_norm(x, (768,), w, b), F.rms_norm(x, (768,), w), torch.softmax(x, -1)

    return {
        "chain": (lambda x, w: F.silu(x * w + 1) * torch.tanh(x), (x, w)),
        "norms": (norms, (x, w, b)),
        "long_rows": (lambda x: torch.log_softmax(x, -1), (torch.randn(4, 50_257),)),
        "columns": (lambda x: (x.sum(0), x.argmax(1), x.var(0)), (x,)),
        "half": (lambda x: F.gelu(x) + 1, (x.bfloat16(),)),
        "transpose": (lambda x, y: x.t() + y, (torch.randn(512, 512), torch.randn(512, 512))),
        "gather": (lambda x, i: x[i] * 2, (x, ids)),
        "scatter": (lambda x, i, s: x.index_add(0, i, s), (x, ids, torch.randn(300, 768))),
        "scan": (lambda x: x.cumsum(0), (torch.randn(64, 512),)),
        "windows": (lambda x: F.max_pool2d(x, 3, 2, 1), (torch.randn(2, 8, 32, 32),)),
        "uniform": (lambda x: torch.rand_like(x) * x, (x,)),
        "dropout": (lambda x: torch.native_dropout(x * 2, 0.1, True), (x.bfloat16(),)),
        "step": (step, (torch.randn(32, 64), torch.randint(0, 10, (32,)))),
        **products(),
        **attention(),
    }


def attention() -> dict[str, tuple[Any, tuple[torch.Tensor, ...]]]:
    """Attention written out, in three dtypes and for narrow and wide heads, and with masks: the causal one has so many
    tokens that columns are left out, by positions and by numbers in memory."""
    def causal(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        allowed = torch.arange(q.size(-2), device=q.device)[:, None] >= torch.arange(k.size(-2), device=q.device)
        scores = (q.float() @ k.float().transpose(-1, -2)) * q.size(-1) ** -0.5
        return torch.where(allowed, scores, -math.inf).softmax(-1).to(q.dtype) @ v

    def given(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, allowed: torch.Tensor) -> Any:
        scores = torch.where(allowed, (q @ k.transpose(-1, -2)).float(), -math.inf)
        return scores.softmax(-1).to(q.dtype) @ v, scores.logsumexp(-1)

    def biased(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        return ((q @ k.transpose(-1, -2)) * 0.125 + bias).softmax(-1) @ v

    out: dict[str, tuple[Any, tuple[torch.Tensor, ...]]] = {}
    for name, dtype in (("single", torch.float32), ("half", torch.float16), ("bfloat", torch.bfloat16)):
        for width in (64, 80, 128, 256):
            q, k, v = (torch.randn(2, 4, 1024, width, dtype=dtype) for _ in range(3))
            out[f"causal_{name}_{width}"] = causal, (q, k, v)
            out[f"given_{name}_{width}"] = given, (q, k, v, torch.ones(1024, 1024, dtype=torch.bool).tril())
            out[f"added_{name}_{width}"] = biased, (q, k, v, torch.randn(1024, 1024, dtype=dtype))
            q, k, v = (x[:, :3, :300].contiguous() for x in (q, k, v))
            out[f"biased_{name}_{width}"] = biased, (q, k, v, torch.randn(300, 300, dtype=dtype))
    return out


def products() -> dict[str, tuple[Any, tuple[torch.Tensor, ...]]]:
    """Matrix products with what is fused to them, in three dtypes: large, of odd sizes, of a few lines, batches."""
    out: dict[str, tuple[Any, tuple[torch.Tensor, ...]]] = {}
    for name, dtype in (("single", torch.float32), ("half", torch.float16), ("bfloat", torch.bfloat16)):
        def random(*sizes: int, dtype: torch.dtype = dtype) -> torch.Tensor:
            return torch.randn(sizes, dtype=dtype)

        large, weight, bias = random(2048, 1024), random(4096, 1024), random(4096)
        out |= {
            f"linear_{name}": (lambda x, w, b: F.gelu(F.linear(x, w, b)), (large, weight, bias)),
            f"product_{name}": (lambda x, w: x @ w, (random(512, 768), random(768, 256))),
            f"residual_{name}": (lambda x, w, y: x @ w * 0.5 + y, (random(64, 768), random(768, 768), random(64, 768))),
            f"odd_{name}": (lambda x, w: F.relu(x @ w), (random(333, 77), random(77, 555))),
            f"token_{name}": (lambda x, w: F.silu(F.linear(x, w)), (random(4, 1024), weight)),
            f"batch_{name}": (lambda x, y: torch.bmm(x, y), (random(96, 128, 64), random(96, 64, 128))),
        }
    return out


def models() -> dict[str, Callable[[], tuple[Any, tuple[torch.Tensor, ...]]]]:
    """The programs of ``gpu.py``: rows, weights and dtypes as there, fewer layers and smaller batches."""
    half = torch.bfloat16

    def llama(length: int) -> tuple[Any, tuple[torch.Tensor, ...]]:
        turns = torch.randn(length, 128, dtype=half)
        block = gpu.Block(4096, 32, 14_336).to(half).requires_grad_(False)
        return block, (torch.randn(1, length, 4096, dtype=half), turns.cos(), turns.sin())

    def words(causal: bool, trains: bool) -> tuple[Any, tuple[torch.Tensor, ...]]:
        model = gpu.Words(50_257 if causal else 30_522, 768, 2, causal).to(half)
        return model.train(trains).requires_grad_(trains), (torch.randint(0, 1000, (1, 32)),)

    def images(trains: bool) -> tuple[Any, tuple[torch.Tensor, ...]]:
        return gpu.ResNet50().train(trains).requires_grad_(trains), (torch.randn(1, 3, 224, 224),)

    def kernels(name: str) -> Callable[[], tuple[Any, tuple[torch.Tensor, ...]]]:
        return lambda: gpu.kernels("cpu", True)[name]()[0]

    found: dict[str, Callable[[], tuple[Any, tuple[torch.Tensor, ...]]]] = {
        "llama": lambda: llama(16), "llama_one_token": lambda: llama(1)}
    for name, causal in (("gpt2", True), ("bert", False)):
        for trains in (False, True):
            found[f"{name}_training" if trains else name] = lambda c=causal, t=trains: words(c, t)  # type: ignore[misc]
    found |= {"resnet50": lambda: images(False), "resnet50_training": lambda: images(True)}
    return found | {re.sub(r"\W", "_", name): kernels(name) for name in gpu.kernels("cpu", True)}


def write_sources(folder: pathlib.Path, name: str, fn: Any, args: tuple[torch.Tensor, ...]) -> None:
    """Writes the kernels of one program, with those of the library's products and, where they differ, of templates."""
    for kind, tuning in (("", ALL_KERNELS), ("_by_library", LIBRARY)):
        for k, source in enumerate(cuda_sources(fn, args, tuning)):
            (folder / f"{name}{kind}_{k}.py").write_text(source)


def cuda_source(fn: Any, args: tuple[torch.Tensor, ...], tuning: Tuning = ALL_KERNELS) -> str:
    """The kernels of a function of CPU tensors that is one graph, as for CUDA tensors."""
    with torch.no_grad():
        (source,) = cuda_sources(fn, args, tuning)
    return source


def cuda_sources(fn: Any, args: tuple[torch.Tensor, ...], tuning: Tuning = ALL_KERNELS) -> list[str]:
    """The kernels of each graph of a function of CPU tensors, of the backward pass too, as for CUDA tensors; it runs by
    library calls."""
    sources = []

    def backend(gm: torch.fx.GraphModule, examples: list[Any]) -> Any:
        def build(aten: Any, scopes: dict[str, bool]) -> tuple[Any, None]:
            call = start(write(aten, library_program(aten), scopes))
            _move(aten.graph, gm.meta["fake_mode"])
            sources.append(lower_and_schedule(aten.graph, aten.constants, target_named("cuda", tuning)).source)
            return call, None

        return compile_graph(gm, examples, Route(FOR_KERNELS, build))

    result = dynamo_lite.compile(fn, backend=backend)(*args)
    results = result if isinstance(result, (tuple, list)) else (result,)
    sum((r.float().sum() for r in results if r.requires_grad), torch.zeros((), requires_grad=True)).backward()
    return [source for source in sources if source]


def collect_from_tests(folder: pathlib.Path, arguments: list[str]) -> int:
    """Runs tests, which keep their kernels in the folder."""
    here = pathlib.Path(__file__).resolve().parent
    path = os.pathsep.join(filter(None, (str(here / "collect_kernels"), os.environ.get("PYTHONPATH"))))
    env = {**os.environ, "PYTHONPATH": path, "DYNAMO_LITE_COLLECT": str(folder.resolve()),
           "DYNAMO_LITE_CACHE_GRAPHS": "0"}
    return subprocess.run([sys.executable, "-m", "pytest", *arguments], env=env).returncode


def _move(graph: torch.fx.Graph, mode: Any) -> None:
    """A recorded graph as one of CUDA tensors: torch records none without a GPU."""
    def moved(value: Any) -> Any:
        if isinstance(value, torch.device):
            return torch.device("cuda:0")
        if not isinstance(value, torch.Tensor):
            return value
        with mode:
            return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device="cuda:0")

    for node in graph.nodes:
        node.args, node.kwargs = torch.fx.node.map_aggregate((node.args, node.kwargs), moved)
        if "val" in node.meta:
            node.meta["val"] = torch.fx.node.map_aggregate(node.meta["val"], moved)


def compile_file(path: pathlib.Path, seen: set[str]) -> Iterator[str]:
    """One row for each kernel of a file and each capability.

    Args:
        seen: digests of kernels that are compiled already.
    """
    triton = importlib.import_module("triton")
    compiler = importlib.import_module("triton.compiler")
    target = importlib.import_module("triton.backends.compiler").GPUTarget
    source = path.read_text()
    linecache.cache[str(path)] = (len(source), None, source.splitlines(keepends=True), str(path))
    namespace: dict[str, Any] = {"__name__": path.stem}
    exec(compile(source, str(path), "exec"), namespace)
    for name, (types, blocks, warps, stages) in namespace.get("SIGNATURES", {}).items():
        text = re.sub(rf"\b{name}\b", "kernel", namespace[name].src)
        digest = hashlib.sha256(repr((text, types, blocks, warps, stages)).encode()).hexdigest()
        if digest in seen:
            continue
        seen.add(digest)
        signature = {**types, **dict.fromkeys(blocks, "constexpr")}
        # As launched: assertions are compiled in, as those of eager's kernels are.
        checks = {"debug": True, "sanitize_overflow": False} if "device_assert" in namespace[name].src else {}
        # torch's allocator gives addresses that are multiples of 512.
        aligned = {(k,): [["tt.divisibility", 16]] for k, kind in enumerate(types.values()) if kind.startswith("*")}
        for capability in CAPABILITIES:
            made = triton.compile(
                compiler.ASTSource(fn=namespace[name], signature=signature, constexprs=blocks, attrs=aligned),
                target=target("cuda", capability, 32), options={
                    "num_warps": warps, "num_stages": stages, "enable_fp_fusion": False, **checks})
            kind = " product" if "tl.dot(" in namespace[name].src else ""
            yield _row(f"{path.stem}.{name}", capability, made) + kind


def _row(name: str, capability: int, made: Any) -> str:
    used = _resources(made.asm["cubin"])
    ptx = made.asm["ptx"]
    loads, stores = (_widest(ptx, word) for word in ("ld.global", "st.global"))
    copies = re.findall(r"cp\.async\.c[ag]\.shared\.global\s*\[[^\]]*\],\s*\[[^\]]*\],\s*(\w+)", ptx)
    if copies:
        loads += f", copies {8 * max(int(n, 0) for n in copies):>8} bits"
    return (f"{name:28} sm_{capability:<4} registers {used.get('REG', '?'):>4} spilled {_spilled(used):>5} "
            f"shared {made.metadata.shared:>6} loads {loads:>8} stores {stores:>8}")


def _resources(cubin: bytes) -> dict[str, str]:
    """What ``cuobjdump`` says of a kernel's use of a multiprocessor."""
    package = pathlib.Path(str(importlib.import_module("triton").__file__)).parent
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        shown = subprocess.run([package / "backends/nvidia/bin/cuobjdump", "-res-usage", file.name],
                               capture_output=True, text=True)
    return dict(re.findall(r"(\w+):(\d+)", shown.stdout))


def _spilled(used: dict[str, str]) -> int:
    return int(used.get("STACK", 0)) + int(used.get("LOCAL", 0))


def _widest(ptx: str, word: str) -> str:
    """The widest access of a kind, in bits."""
    found = [int(v or 1) * int(bits) for v, bits in re.findall(rf"{word}\S*?(?:\.v(\d))?\.[bfsu](\d+)", ptx)]
    return f"{max(found)} bits" if found else "none"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--programs", action="store_true", help="write the kernels of sample programs")
    parser.add_argument("--models", action="store_true", help="write the kernels of the programs of gpu.py")
    parser.add_argument("--tests", action="store_true", help="keep the kernels of tests")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="of pytest")
    options = parser.parse_args()
    folder = options.folder
    if options.programs or options.models or options.tests:
        folder.mkdir(parents=True, exist_ok=True)
    if options.tests:
        return collect_from_tests(folder, options.arguments)
    if options.programs:
        for name, (fn, args) in programs().items():
            (folder / f"{name}.py").write_text(cuda_source(fn, args))
    if options.models:
        for name, made in models().items():
            write_sources(folder, name, *made())
    return 0 if options.programs or options.models else compile_all(folder)


def compile_all(folder: pathlib.Path) -> int:
    """Compiles the kernels of a folder, and prints a row of each."""
    compiled, spilled, words, faults, seen = 0, 0, 0, 0, set[str]()
    for path in sorted(folder.glob("*.py")):
        try:
            for row in compile_file(path, seen):
                compiled += 1
                bytes_ = int(re.findall(r" spilled +(\d+) ", row)[0])
                allowed = _WORDS if " product" in row else 0
                spilled += bytes_ > allowed
                words += 0 < bytes_ <= allowed
                print(row, flush=True)
        except Exception as e:
            faults += 1
            print(f"{path.stem}: {type(e).__name__}: {str(e).strip().splitlines()[-1]}", flush=True)
    print(f"{len(seen)} kernels, {compiled} compiled, {spilled} that spill, {words} products with a few words in "
          f"memory, {faults} files with faults")
    return 1 if spilled or faults else 0


if __name__ == "__main__":
    sys.exit(main())
