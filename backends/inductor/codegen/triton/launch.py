"""The kernels of a file on a GPU: compiled ahead of time, each with a function that launches it.

Triton's own call examines every argument's type and alignment each time, to look up a compiled kernel. Here types are
known, and a kernel has at most four builds: they differ in whether all pointers, and all sizes, are multiples of 16,
which decides the width of loads. A launch is a test of these bits and one call of Triton's launcher.

Invariant: the build that runs is correct for the call's arguments; it runs on the current device, in the stream that it
is given.
"""
from __future__ import annotations

import functools
import importlib.util
import inspect
import os
import types
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch

from dynamo_lite.backends.inductor.codegen.triton.loading import load
from dynamo_lite.backends.inductor.codegen.triton.tuning import FORM, Chooser, Clock, CudaClock

ALIGNED = 16  # bytes of a vector load, and the divisor that Triton's attributes state
_WORKERS = 8  # threads that compile in parallel; most of the time is the assembler's, a process of its own


def load_for_gpu(source: str, device: int, clock: Clock | None = None) -> dict[str, Any]:
    """The functions that launch the kernels of a file on a device.

    Args:
        source: the text, see ``write_source``.
        device: the index of the device.
        clock: measures competing forms of a kernel; None: by events of the device.
    """
    namespace = load(source)
    kernels = {name: Builds(namespace[name], *(*described, device))
               for name, described in namespace["SIGNATURES"].items()}
    namespace.update({f"run_{name}": kernel.launcher() for name, kernel in kernels.items()})
    launches = launches_of(namespace, clock or CudaClock(device))
    wanted = [name for name in kernels if _is_wanted(name, launches)]
    _driver()  # compiles its own code, which otherwise each thread would do
    with ThreadPoolExecutor(min(_WORKERS, len(kernels) or 1)) as pool:
        # Compiled now rather than at the first launch, so that a failure is known while there is an alternative.
        made = [(name, pool.submit(kernels[name].prepare)) for name in wanted]
        for name, future in made:
            error = future.exception()
            if error is not None and FORM not in name:
                raise error  # when all forms are measured, others remain
    return launches


def _is_wanted(name: str, launches: Mapping[str, Any]) -> bool:
    """Whether a kernel belongs to a form that may run."""
    kernel = name.partition("_")[0]
    launch = launches[f"launch_{kernel}"]
    if not isinstance(launch, types.FunctionType):
        return True  # all forms have yet to be measured
    form = launch.__name__.removeprefix("launch_")
    return (name == form or name.startswith(f"{form}_")) and (FORM in form) is (FORM in name)


def launches_of(namespace: Mapping[str, Any], clock: Clock) -> dict[str, Any]:
    """The functions that launch the kernels of a file, each in its fastest form.

    Args:
        namespace: the names that the file defines, and those of functions that it calls.
        clock: measures the forms.
    """
    launches = {name: value for name, value in namespace.items() if name.startswith("launch_") and FORM not in name}
    for name, (digest, sizes, forms) in namespace.get("ALTERNATIVES", {}).items():
        given = list(inspect.signature(launches[name]).parameters)[1:]
        written = frozenset(at for at, parameter in enumerate(given) if parameter.startswith("out"))
        chooser = Chooser(digest, forms, [namespace[form] for form in forms], written, sizes, clock)
        launches[name] = chooser.launcher()
    return launches


class Builds:
    """A kernel's builds for one device.

    Args:
        kernel: Triton's function.
        types: the types of its parameters, in the notation of Triton's signatures.
        blocks: its compile-time constants.
        warps: number of warps per block.
        stages: number of pipeline stages for the loads of a loop.
        device: the index of the device.
    """

    def __init__(
        self, kernel: Any, types: Mapping[str, str], blocks: Mapping[str, Any], warps: int, stages: int,
        device: int,
    ) -> None:
        self._kernel, self._types, self._blocks = kernel, dict(types), dict(blocks)
        self._options: dict[str, Any] = {"num_warps": warps, "num_stages": stages, "enable_fp_fusion": False}
        self._device = device
        self._made: dict[int, Any] = {}
        if "device_assert" in kernel.src:
            # Assertions are compiled in, as eager's kernels have them. Overflow checks are not wanted.
            self._options |= {"debug": True, "sanitize_overflow": False}
        self._pointers = [name for name, kind in self._types.items() if kind.startswith("*")]
        # Numbers from the host differ from call to call, and are not sizes.
        self._sizes = [name for name, kind in self._types.items() if kind == "i64" and not name.startswith("host")]

    def compile(self, build: int) -> Any:
        """Compiles one of the builds.

        Args:
            build: 1: not all pointers are multiples of 16; 2: not all sizes are; 3: neither.
        """
        if build in self._made:
            return self._made[build]
        divisible = [["tt.divisibility", ALIGNED]]
        known = set(() if build & 1 else self._pointers) | set(() if build & 2 else self._sizes)
        attributes = {(at,): divisible for at, name in enumerate(self._types) if name in known}
        source = importlib.import_module("triton.compiler").ASTSource(
            fn=self._kernel, signature={**self._types, **dict.fromkeys(self._blocks, "constexpr")},
            constexprs=dict(self._blocks), attrs=attributes)
        made = self._made[build] = importlib.import_module("triton").compile(
            source, target=_target(self._device), options=dict(self._options))
        return made

    def prepare(self) -> None:
        """Compiles the build for aligned pointers and sizes, and its launcher.

        Up to Triton 3.6 a launcher is a C module for each signature, a quarter of a second of gcc. Triton keeps it on
        disk and finds it there when the kernel is loaded.
        """
        made = self.compile(0)
        _driver().launcher_cls(made.src, made.metadata)

    def loaded(self, build: int) -> tuple[Any, Any, Any]:
        """A build loaded on the current device: its launcher, its function and its metadata."""
        made = self.compile(build)
        launch = made.run  # this attribute loads the kernel
        self._made.pop(build)
        _keep(made)
        return launch, made.function, made.packed_metadata

    def launcher(self) -> Callable[..., None]:
        """A function that launches the kernel, given the number of programs, the stream and the kernel's arguments."""
        names = list(self._types)
        addresses = {name: f"p{at}" for at, name in enumerate(self._pointers)}
        lines = [f"def run({', '.join(['programs', 'stream', *names])}):"]
        lines += [f"    {address} = {name}.data_ptr()" for name, address in addresses.items()]
        tests = []
        if addresses:
            tests.append(f"(({' | '.join(addresses.values())}) & {ALIGNED - 1} != 0)")
        if self._sizes:
            tests.append(f"2 * (({' | '.join(self._sizes)}) & {ALIGNED - 1} != 0)")
        given = ", ".join([*(addresses.get(name, name) for name in names), *map(repr, self._blocks.values())])
        lines += [
            f"    build = {' + '.join(tests) or '0'}",
            "    found = builds[build]",
            "    if found is None:",
            "        found = builds[build] = loaded(build)",
            "    launch, function, metadata = found",
            f"    launch(programs, 1, 1, stream, function, metadata, None, None, None, {given})"]
        namespace: dict[str, Any] = {"builds": [None] * 4, "loaded": self.loaded}
        exec(compile("\n".join(lines), f"<launch of {self._kernel.__name__}>", "exec"), namespace)
        run: Callable[..., None] = namespace["run"]
        return run


_loaded: list[Any] = []


def _keep(made: Any) -> None:
    """Keeps a kernel loaded until the process ends. Newer versions of Triton unload it when its object is freed,
    whether its function is still called or not, for example by a CUDA graph that outlives all objects of this module.
    """
    made.asm.clear()  # a loaded kernel no longer needs its stages of compilation
    made.module = None  # prevents unloading at process exit, when the driver may be gone
    _loaded.append(made)


def _driver() -> Any:
    """The driver with which Triton loads and launches kernels."""
    return importlib.import_module("triton.runtime").driver.active


@functools.cache
def _target(device: int) -> Any:
    """Triton's compilation target for a device."""
    major, minor = torch.cuda.get_device_capability(device)
    return importlib.import_module("triton.backends.compiler").GPUTarget("cuda", major * 10 + minor, 32)


def unavailable(devices: set[int]) -> str | None:
    """The reason why kernels can't run on some GPUs; None if they can."""
    if torch.version.hip is not None:
        return "Triton kernels are written for CUDA, and this torch is built for ROCm"
    if importlib.util.find_spec("triton") is None:
        return "Triton is not installed: pip install triton"
    if os.environ.get("TRITON_INTERPRET") == "1":
        return "Triton's interpreter is on, which runs no kernels on GPUs: unset TRITON_INTERPRET"
    old = [torch.cuda.get_device_name(n) for n in devices if torch.cuda.get_device_capability(n) < OLDEST]
    return f"Triton has no code for {old[0]}: compute capability {OLDEST[0]}.{OLDEST[1]} is the least" if old else None


OLDEST = (7, 5)  # oldest compute capability that Triton 3.6 supports
