"""Compiles Triton kernels for GPUs that need not be there, and prints what the assembler says of each.

    python benchmarks/triton_offline.py --programs DIR    writes the kernels of sample programs, as for CUDA tensors
    python benchmarks/triton_offline.py DIR               compiles every kernel of the files in DIR

A row is a kernel for one compute capability: registers of a thread, bytes spilled, shared memory of a block, and the
widest loads and stores. Exits with 1 if a kernel does not compile, or one that has no loop in order spills.
"""
from __future__ import annotations

import argparse
import importlib
import linecache
import pathlib
import re
import subprocess
import sys
import tempfile
from typing import Any

import torch
import torch.nn as nn
import torch.nn.functional as F

import dynamo_lite
from dynamo_lite.backends.aot.decompositions import FOR_KERNELS
from dynamo_lite.backends.aot.record import record
from dynamo_lite.backends.inductor.pipeline import lower_and_schedule, target_named
from dynamo_lite.backends.inductor.target import Tuning

CAPABILITIES = (80, 90, 100)
ALL_KERNELS = Tuning(products="template", random="kernels")


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
    }


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


def write_programs(folder: pathlib.Path, tuning: Tuning = ALL_KERNELS) -> None:
    """Writes the kernels of sample programs."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, (fn, args) in programs().items():
        (folder / f"{name}.py").write_text(cuda_source(fn, args, tuning))
    print(f"{len(programs())} programs are in {folder}")


def cuda_source(fn: Any, args: tuple[torch.Tensor, ...], tuning: Tuning = ALL_KERNELS) -> str:
    """The kernels of a function of CPU tensors as for CUDA tensors; it runs by the captured graphs."""
    sources = []

    def backend(gm: torch.fx.GraphModule, examples: list[Any]) -> Any:
        aten = record(gm, examples, FOR_KERNELS)
        _move(aten.graph, gm.meta["fake_mode"])
        sources.append(lower_and_schedule(aten.graph, aten.constants, target_named("cuda", tuning)).source)
        return gm.forward

    with torch.no_grad():
        dynamo_lite.compile(fn, backend=backend, fullgraph=True)(*args)
    (source,) = sources
    return source


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


def compile_file(path: pathlib.Path) -> list[str]:
    """One row for each kernel of a file and each capability."""
    triton = importlib.import_module("triton")
    compiler = importlib.import_module("triton.compiler")
    target = importlib.import_module("triton.backends.compiler").GPUTarget
    source = path.read_text()
    linecache.cache[str(path)] = (len(source), None, source.splitlines(keepends=True), str(path))
    namespace: dict[str, Any] = {"__name__": path.stem}
    exec(compile(source, str(path), "exec"), namespace)
    rows = []
    for name, (types, blocks, warps, stages) in namespace.get("SIGNATURES", {}).items():
        signature = {**types, **dict.fromkeys(blocks, "constexpr")}
        # torch's allocator gives addresses that are multiples of 512.
        aligned = {(k,): [["tt.divisibility", 16]] for k, kind in enumerate(types.values()) if kind.startswith("*")}
        for capability in CAPABILITIES:
            made = triton.compile(
                compiler.ASTSource(fn=namespace[name], signature=signature, constexprs=blocks, attrs=aligned),
                target=target("cuda", capability, 32), options={
                    "num_warps": warps, "num_stages": stages, "enable_fp_fusion": False})
            rows.append(_row(f"{path.stem}.{name}", capability, made))
    return rows


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
    options = parser.parse_args()
    if options.programs:
        write_programs(options.folder)
        return 0
    failed, kernels = 0, 0
    for path in sorted(options.folder.glob("*.py")):
        try:
            rows = compile_file(path)
        except Exception as e:
            failed += 1
            print(f"{path.stem}: {type(e).__name__}: {str(e).strip().splitlines()[-1]}")
            continue
        kernels += len(rows)
        failed += sum(" spilled     0 " not in row for row in rows)
        print("\n".join(rows))
    print(f"{kernels} compiled, {failed} with faults")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
