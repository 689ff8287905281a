"""What the tests of lowering, scheduling and C++ share: a function's program, run and compared with eager and the
interpreter."""

from __future__ import annotations

import dataclasses
import os
import types
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch

from dynamo_lite.backends.aot.decompositions import FOR_KERNELS
from dynamo_lite.backends.aot.record import record
from dynamo_lite.backends.inductor import pipeline
from dynamo_lite.backends.inductor.artifact import start, write
from dynamo_lite.backends.inductor.compile import OPTIONS
from dynamo_lite.backends.inductor.ir.checker import check_nest
from dynamo_lite.backends.inductor.ir.interpreter import run_nests
from dynamo_lite.backends.inductor.ir.loops import LoopNest
from dynamo_lite.backends.inductor.lowering import LoweredGraph, lower
from dynamo_lite.backends.inductor.program import ExternCall, KernelCall, Program
from dynamo_lite.runtime.storage_extent import storage_extent

Case = tuple[str, Callable[..., Any], Sequence[torch.Tensor]]
# (relative, absolute). Exact unless a function or a sum is computed; then what two good implementations differ by.
CLOSE = {
    torch.float32: (3e-6, 2e-6),
    torch.float64: (1e-13, 1e-13),
    torch.bfloat16: (1e-2, 1e-4),
    torch.float16: (2e-3, 1e-4),
}
EXACT: dict[torch.dtype, tuple[float, float]] = {}
# The language of kernels that ``build`` writes: "cpp", or "triton" (with TRITON_INTERPRET=1).
KERNELS = os.environ.get("DYNAMO_LITE_TEST_KERNELS", "cpp")
# What Triton's interpreter lacks, so that the library computes it: on a GPU these are libdevice's.
BESIDE = {f"aten.{name}.default" for name in ("asin", "acos", "atan", "atan2", "erfc", "lgamma", "nextafter")} \
    if KERNELS == "triton" else set()
# Whatever these tests compile is in it.
OPTIONS["cpu_codegen"] = tuple(sorted(OPTIONS["cpu_codegen"], key=lambda name: name != KERNELS))


@dataclasses.dataclass
class Built:
    """A function's way through the backend."""

    lowered: LoweredGraph
    program: Program
    call: Callable[..., Any]

    @property
    def kernels(self) -> int:
        return sum(isinstance(step, KernelCall) for step in self.program.steps)

    @property
    def library(self) -> list[str]:
        return [str(step.target) for step in self.program.steps if isinstance(step, ExternCall)]


def tuple_of(result: Any) -> tuple[Any, ...]:
    return tuple(result) if isinstance(result, (tuple, list)) else (result,)


@pytest.fixture
def kernels():
    """The language of kernels that is tested."""
    return KERNELS


@pytest.fixture
def in_cpp():
    """For a test of the text of C++ kernels, or of what they alone can do."""
    if KERNELS != "cpp":
        pytest.skip(f"kernels are in {KERNELS}")


@pytest.fixture
def build(backend_check):
    """``build(fn, inputs)``: compiles with no way back to library calls; every nest is checked."""

    def run(fn: Callable[..., Any], inputs: Sequence[torch.Tensor]) -> Built:
        def flat(*args: torch.Tensor) -> tuple[Any, ...]:
            return tuple_of(fn(*args))

        with torch.no_grad():
            gm, fakes = backend_check.capture(flat, list(inputs))
            aten = record(gm, fakes, FOR_KERNELS)
            lowered = lower(aten.graph, aten.constants)
            for operation in lowered.operations:
                if isinstance(operation, LoopNest):
                    check_nest(operation)
            program = pipeline.lower_and_schedule(aten.graph, aten.constants, pipeline.target_named(KERNELS))
            scopes = {"no_grad": False, "no_autocast": False, "inference": False}
            return Built(lowered, program, start(write(aten, program, scopes)))

    return run


def interpret(lowered: LoweredGraph, inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """What the nests mean for these inputs. There must be no library call."""
    memory = {}
    for name, t in zip(lowered.inputs, inputs):
        memory[name] = t.as_strided((storage_extent(t.shape, t.stride()),), (1,))
    run_nests([op for op in lowered.operations if isinstance(op, LoopNest)], memory)
    out = []
    for name in lowered.outputs:
        buffer = lowered.buffers[name]
        out.append(memory[name].as_strided(buffer.size, buffer.stride))
    return out


def assert_same(
    what: str, got: torch.Tensor, want: torch.Tensor, tolerance: dict[torch.dtype, tuple[float, float]]
) -> None:
    assert got.dtype is want.dtype and got.shape == want.shape, what
    assert got.stride() == want.stride(), f"{what}: strides {want.stride()} became {got.stride()}"
    rtol, atol = tolerance.get(want.dtype, (0.0, 0.0))
    torch.testing.assert_close(got, want, rtol=rtol, atol=atol, equal_nan=True, msg=lambda m: f"{what}: {m}")


@pytest.fixture
def check_many(build):
    """``check_many(cases)``: all cases in one graph, each result compared with eager's. Returns what was built."""

    def run(
        cases: Sequence[Case],
        tolerance: dict[torch.dtype, tuple[float, float]] = EXACT,
        simd: str | None = None,
        library: Sequence[str] = (),
        interpreted: bool = False,
    ) -> Built:
        inputs = [t for _, _, args in cases for t in args]
        names: list[str] = []

        def everything(*args: torch.Tensor) -> list[Any]:
            names.clear()
            out: list[Any] = []
            at = 0
            for name, fn, mine in cases:
                results = tuple_of(fn(*args[at : at + len(mine)]))
                at += len(mine)
                out.extend(results)
                names.extend([name] * len(results))
            return out

        built = build(everything, inputs)
        assert sorted(set(built.library) - BESIDE) == sorted(set(library) - BESIDE)
        with torch.no_grad():
            want = everything(*inputs)
            got = built.call(*inputs)
        assert len(want) == len(got)
        for name, a, b in zip(names, got, want):
            assert_same(name, a, b, tolerance)
        if interpreted:
            for name, a, b in zip(names, interpret(built.lowered, inputs), want):
                rtol, atol = CLOSE.get(b.dtype, (0.0, 0.0))
                torch.testing.assert_close(
                    a.reshape(b.shape),
                    b,
                    rtol=rtol,
                    atol=atol,
                    equal_nan=True,
                    msg=lambda m, name=name: f"interpreter, {name}: {m}",
                )
        return built

    return run


@pytest.fixture
def data():
    """Random tensors and special values."""

    def random(*shape: int, dtype: torch.dtype = torch.float32, scale: float = 3.0) -> torch.Tensor:
        generator = torch.Generator().manual_seed(sum(shape) + 1)
        x = torch.randn(shape, generator=generator) * scale
        if dtype.is_floating_point:
            return x.to(dtype)
        if dtype is torch.bool:
            return x > 0
        return (x * 5).abs().to(dtype) if dtype is torch.uint8 else (x * 5).to(dtype)

    special = torch.tensor(
        [0.0, -0.0, 1, -1, torch.inf, -torch.inf, torch.nan, 0.5, 1.5, 2.5, -2.5, 1e-40, 3e38, -3e38, 100, -100]
    )
    if KERNELS == "triton":
        # Its interpreter takes bfloat16 numbers that are not normal for 0: neither they nor what they are quotients of.
        special = torch.where(special == 1e-40, 1e-30, special.clamp(-1e37, 1e37).where(special.isfinite(), special))
    return types.SimpleNamespace(random=random, special=special, CLOSE=CLOSE, EXACT=EXACT)
