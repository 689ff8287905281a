"""Kernels of a file on a GPU: compiled ahead, each with a function that launches it.

Triton's own call looks at every argument's type and alignment each time, and looks a compiled kernel up by them. Types
are known here, and a kernel has at most four builds: whether all pointers, and all sizes, are multiples of 16, which
decides how wide loads are. A launch is a look at these bits and one call into Triton's launcher.

Invariant: the build that runs is right for the call's arguments; it runs on the device that is current, in the stream
that it is given.
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

ALIGNED = 16  # bytes of a vector load, and what Triton knows divisibility of
_WORKERS = 8  # what compiles beside one another; most of a kernel's time is the assembler's, a process of its own


def load_for_gpu(source: str, device: int, clock: Clock | None = None) -> dict[str, Any]:
    """The functions that launch the kernels of a file on a device.

    Args:
        source: see ``write_source``.
        device: its index.
        clock: what measures where several forms of a kernel compete; None: the device's events.
    """
    namespace = load(source)
    kernels = {name: Builds(namespace[name], *(*described, device))
               for name, described in namespace["SIGNATURES"].items()}
    namespace.update({f"run_{name}": kernel.launcher() for name, kernel in kernels.items()})
    launches = launches_of(namespace, clock or CudaClock(device))
    wanted = [name for name in kernels if _is_wanted(name, launches)]
    _driver()  # compiles its own code, which each of the threads would do
    with ThreadPoolExecutor(min(_WORKERS, len(kernels) or 1)) as pool:
        # Now, and not at the first launch, so that what cannot be compiled is known while there is another way.
        made = [(name, pool.submit(kernels[name].prepare)) for name in wanted]
        for name, future in made:
            error = future.exception()
            if error is not None and FORM not in name:
                raise error  # others are left out when all are measured
    return launches


def _is_wanted(name: str, launches: Mapping[str, Any]) -> bool:
    """Whether a kernel is of a form that may run."""
    kernel = name.partition("_")[0]
    launch = launches[f"launch_{kernel}"]
    if not isinstance(launch, types.FunctionType):
        return True  # all forms are measured yet
    form = launch.__name__.removeprefix("launch_")
    return (name == form or name.startswith(f"{form}_")) and (FORM in form) is (FORM in name)


def launches_of(namespace: Mapping[str, Any], clock: Clock) -> dict[str, Any]:
    """The functions that launch the kernels of a file, each in the form that is the fastest.

    Args:
        namespace: what the file defines, and what it calls.
        clock: what measures.
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
        types: of its parameters, as Triton's signatures have them.
        blocks: its compile-time constants.
        warps: how many run a block.
        stages: in how many stages loads of a loop are under way.
        device: index of the device.
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
            # Assertions are compiled in then, as those of eager's kernels are; checks of overflow are not wanted.
            self._options |= {"debug": True, "sanitize_overflow": False}
        self._pointers = [name for name, kind in self._types.items() if kind.startswith("*")]
        # Numbers from the host are other ones at each call, and no sizes.
        self._sizes = [name for name, kind in self._types.items() if kind == "i64" and not name.startswith("host")]

    def compile(self, build: int) -> Any:
        """One of the builds.

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
        """Compiles the build for aligned pointers and sizes, and what launches it.

        Up to Triton 3.6 a launcher is a C module for each signature, a quarter of a second of gcc. Triton keeps it on
        disk and finds it there when the kernel is loaded.
        """
        made = self.compile(0)
        _driver().launcher_cls(made.src, made.metadata)

    def loaded(self, build: int) -> tuple[Any, Any, Any]:
        """A build on its device: what launches it, with which function and metadata. The device is current."""
        made = self.compile(build)
        launch = made.run  # loads it
        self._made.pop(build)
        _keep(made)
        return launch, made.function, made.packed_metadata

    def launcher(self) -> Callable[..., None]:
        """A function of the number of programs, the stream and the kernel's arguments."""
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
    """Keeps a kernel loaded until the process ends: newer versions of Triton unload it when its object goes, whether
    its function is still called or not. A CUDA graph that somebody has recorded may call it when all of ours is gone.
    """
    made.asm.clear()  # what is loaded needs its stages of compilation no more
    made.module = None  # so that nothing is unloaded at the end, when the driver may have gone before
    _loaded.append(made)


def _driver() -> Any:
    """What Triton loads and launches kernels with."""
    return importlib.import_module("triton.runtime").driver.active


@functools.cache
def _target(device: int) -> Any:
    """What Triton compiles for on a device."""
    major, minor = torch.cuda.get_device_capability(device)
    return importlib.import_module("triton.backends.compiler").GPUTarget("cuda", major * 10 + minor, 32)


def unavailable(devices: set[int]) -> str | None:
    """Why kernels can't run on some GPUs; None if they can."""
    if torch.version.hip is not None:
        return "Triton kernels are written for CUDA, and this torch is built for ROCm"
    if importlib.util.find_spec("triton") is None:
        return "Triton is not installed: pip install triton"
    if os.environ.get("TRITON_INTERPRET") == "1":
        return "Triton's interpreter is on, which runs no kernels on GPUs: unset TRITON_INTERPRET"
    old = [torch.cuda.get_device_name(n) for n in devices if torch.cuda.get_device_capability(n) < OLDEST]
    return f"Triton has no code for {old[0]}: compute capability {OLDEST[0]}.{OLDEST[1]} is the least" if old else None


OLDEST = (7, 5)  # what Triton 3.6 compiles for
