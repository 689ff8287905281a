"""Artifacts: compiled graphs as data, with their sources, how their entries are called and how results are made.

    write       produces the wrapper of a program                               codegen/wrapper/
    start       finds the C++ source's shared library in the cache, or builds it; makes its entries callable; executes
                the wrapper's source                                            codecache, _runtime

Invariant: apart from the program's constants, an artifact holds nothing of the process that made it, so that another
process can start it.
"""
from __future__ import annotations

import ctypes
import dataclasses
import itertools
import linecache
import logging
import types
import weakref
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from dynamo_lite import log
from dynamo_lite.backends import metrics
from dynamo_lite.backends.aot.graph import AtenGraph
from dynamo_lite.backends.aot.interface import Interface, Saved
from dynamo_lite.backends.aot.tangent_layouts import Strides
from dynamo_lite.backends.inductor import _runtime, codecache, kept_memory
from dynamo_lite.backends.inductor.codegen.cpp.text import header, without_comments
from dynamo_lite.backends.inductor.codegen.wrapper import WrapperSource, write_wrapper
from dynamo_lite.backends.inductor.codegen.wrapper.launches import gpus_of, launcher_of, on_device
from dynamo_lite.backends.inductor.codegen.wrapper.mutation import written_in_place
from dynamo_lite.backends.inductor.device_graphs import CudaRecorder
from dynamo_lite.backends.inductor.program import ExternCall, KernelCall, Program, step_writes
from dynamo_lite.backends.inductor.replay import replayed, report_refusal
from dynamo_lite.backends.inductor.replay_plan import ReplayPlan, plan_replay
from dynamo_lite.runtime.sized_operators import NAMESPACE

_runtime.use_tensor_type(torch.Tensor)
_runtime.use_profiler(vars(torch.autograd.profiler), "_is_profiler_enabled", torch._C._profiler._RecordFunctionFast)
kept_memory.follow_settings()
_numbers = itertools.count()

NO_LAUNCHERS: Mapping[str, Any] = types.MappingProxyType({})
_HEADER_LEFT_OUT = "// vec.h, lanes.h and threads.h stand here; DYNAMO_LITE_LOGS=+output_code shows them\n"

Call = Callable[..., tuple[Any, ...]]


@dataclasses.dataclass(slots=True)
class Artifact:
    """A compiled graph.

    Attributes:
        wrapper: the Python wrapper, see ``codegen.wrapper``.
        source: source of its kernels, in C++ with entries, or in Python if it ``launches`` them; "" if there are none.
        libraries: C++ sources of libraries that ``source`` calls into.
        mutated: indices of the inputs that it writes.
        raises_before_writes: whether, if it raises, it has not written to any input yet.
        kernels, moved: number of kernels, and number of bytes that they read and write in a call.
        library_calls: names of the library operations that it calls.
        launches: whether kernels are launched from Python, see ``Target``.
        gpus: indices of the devices on which its kernels run, if these are GPUs.
        replay: how its calls are recorded as CUDA graphs and replayed; None: they are not.
    """

    wrapper: WrapperSource
    source: str
    libraries: tuple[str, ...]
    mutated: tuple[int, ...]
    raises_before_writes: bool
    kernels: int
    moved: int
    library_calls: tuple[str, ...]
    launches: bool = False
    gpus: tuple[int, ...] = ()
    replay: ReplayPlan | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Pair:
    """The artifacts of a graph that takes part in autograd.

    ``names`` is a digest of the names of the forward pass's nodes: another recording is usable only if its names agree.
    ``backward`` are the backward passes that have run, each with the layouts that it takes (``tangent_layouts``).
    """

    interface: Interface
    saved: Saved
    names: str
    forward: Artifact
    backward: tuple[tuple[Strides | None, Artifact], ...] = ()


def write(aten: AtenGraph, program: Program, scopes: dict[str, bool], replays: bool = False) -> Artifact:
    """The artifact of an aten graph.

    Args:
        program: the program that the graph was lowered to.
        scopes: the scopes that it runs in, see ``write_wrapper``.
        replays: whether its calls are to be recorded as CUDA graphs where that is possible.
    """
    program = dataclasses.replace(program, versions=aten.versions)
    with log.phase("codegen"):
        wrapper = write_wrapper(program, aten.outputs, allocate=_runtime.can_allocate(), **scopes)
    counted = written_in_place(program)
    kernels = [step for step in counted.steps if isinstance(step, KernelCall)]
    calls = [step for step in counted.steps if isinstance(step, ExternCall)]
    return Artifact(
        wrapper, program.source + wrapper.entries, program.libraries, aten.mutated,
        _raises_before_writes(program), len(kernels), sum(_moved(counted, step) for step in kernels),
        tuple(_operation(step.target) for step in calls), program.launches, gpus_of(program),
        plan_replay(aten, counted, scopes) if replays else None)


def is_the_library_alone(artifact: Artifact) -> bool:
    """Whether a graph is torch's operators and nothing else. In a forward pass, autograd records each of them then: its
    own backward pass calls what a compiled one would call, without the overhead of a custom autograd function."""
    calls = artifact.library_calls
    alone = not artifact.kernels and bool(calls) and artifact.replay is None
    return alone and not any(name.startswith(f"{NAMESPACE}.") for name in calls)


def start(artifact: Artifact) -> Call:
    """The function that an artifact describes.

    Returns:
        the function, with the attributes ``generated_code``, ``mutated_inputs`` and ``raises_before_writes`` that
        ``inductor_lite`` describes.

    Raises:
        exc.CompilerMissing, exc.CacheError: its library can be neither found nor built.
    """
    wrapper, source = artifact.wrapper, artifact.source
    try:
        library = _library(artifact)
        with log.phase("load"):
            call = _load(wrapper, library, _launchers(artifact))
    except codecache.Unloadable as error:
        # The library may have been built on a machine with other system libraries.
        if not codecache.give_up(error):
            raise
        log.artifact("cache").info("%s; it is built again", error)
        return start(artifact)
    shown = source.replace(header(), _HEADER_LEFT_OUT)
    if log.enabled("output_code"):
        whole = log.enabled("output_code", logging.DEBUG)
        log.artifact("output_code").info("%s\n%s", source if whole else shown, wrapper.python)
    metrics.count_kernels(artifact.kernels, artifact.moved)
    for operation in artifact.library_calls:
        metrics.count_library_call(operation)
    if artifact.replay is not None:
        call = _replayed(call, artifact.replay)
    call.generated_code = (shown, wrapper.python) if source else (wrapper.python,)  # type: ignore[attr-defined]
    call.mutated_inputs = artifact.mutated  # type: ignore[attr-defined]
    call.raises_before_writes = artifact.raises_before_writes  # type: ignore[attr-defined]
    return call


def _replayed(call: Call, plan: ReplayPlan) -> Call:
    """The function, recorded and replayed where that is possible."""
    if plan.refusal:
        report_refusal(plan.refusal)
        return call
    return replayed(call, plan, CudaRecorder(plan.device))


def _library(artifact: Artifact) -> Path | None:
    """Path of the graph's own library; None if it has none. The libraries that it calls into are loaded here."""
    if not artifact.wrapper.entry_specs:
        return None
    *needed, library = codecache.build_all([*artifact.libraries, without_comments(artifact.source)])
    for path in needed:
        # RTLD_GLOBAL: the graph's own library, which is loaded next, needs the symbols.
        codecache.load(path, lambda name: ctypes.CDLL(name, mode=ctypes.RTLD_GLOBAL))
    return library


def _launchers(artifact: Artifact) -> dict[str, Any]:
    """The functions that launch its kernels, if these are launched from Python."""
    if not artifact.launches or not artifact.source:
        return {}
    # Imported only if there are such kernels, since these modules import Triton.
    if artifact.gpus:
        from dynamo_lite.backends.inductor.codegen.triton.launch import load_for_gpu

        found = dict(on_device())
        for index in artifact.gpus:
            found |= {launcher_of(name, index): value for name, value in load_for_gpu(artifact.source, index).items()}
        return found
    from dynamo_lite.backends.inductor.codegen.triton.loading import load

    return {name: value for name, value in load(artifact.source).items() if name.startswith("launch_")}


def _load(wrapper: WrapperSource, library: Path | None, launchers: Mapping[str, Any] = NO_LAUNCHERS) -> Call:
    """The wrapper's function, with its entries bound to those of the library."""
    # ``__name__`` marks it as a part of the backend, which is never captured itself.
    namespace = {**wrapper.namespace, **launchers, "__name__": "dynamo_lite.backends.inductor.generated"}
    if library is not None:
        handle = codecache.load(library, _runtime.load)
        for spec in wrapper.entry_specs:
            try:
                namespace[spec.symbol] = _runtime.entry(
                    handle, spec.symbol, spec.tensors, spec.sizes, spec.layouts, spec.release_gil, spec.kept,
                    spec.faults, spec.label or spec.symbol)
            except OSError as error:  # the library lacks the symbol
                raise codecache.Unloadable(library, error) from error
        if wrapper.direct:
            return namespace[wrapper.entry_specs[0].symbol]
    filename = f"<dynamo_lite wrapper {next(_numbers)}>"
    # Makes the wrapper's lines available to tracebacks.
    linecache.cache[filename] = (len(wrapper.python), None, wrapper.python.splitlines(keepends=True), filename)
    exec(compile(wrapper.python, filename, "exec"), namespace)
    # Popped, so that the function and its globals form no reference cycle and are freed as soon as nobody needs them.
    call = namespace.pop("call")
    weakref.finalize(call, linecache.cache.pop, filename, None)
    return call


def _raises_before_writes(program: Program) -> bool:
    """Whether everything that may raise (library calls, and kernels that take indices from memory) comes before the
    first step that writes to an input."""
    inputs = frozenset(program.inputs)
    writes = [n for n, step in enumerate(program.steps) if not inputs.isdisjoint(step_writes(step))]
    calls = [n for n, step in enumerate(program.steps)
             if isinstance(step, ExternCall) or isinstance(step, KernelCall) and step.faults]
    return not writes or not calls or max(calls) <= min(writes)


def _operation(target: Any) -> str:
    return target.__name__ if isinstance(target, types.FunctionType) else str(target)


def _moved(program: Program, step: KernelCall) -> int:
    """Number of bytes that a kernel reads and writes."""
    if step.part is not None and len(set(step.args)) < len(step.args):
        return step.part + sum(_nbytes(program, name) for name in step.args if name not in step.outputs)
    return sum(_nbytes(program, name) for name in step.args)


def _nbytes(program: Program, name: str) -> int:
    spec = program.buffers[name]
    count = spec.dtype.itemsize
    for n in spec.size:
        count *= n if isinstance(n, int) else 1
    return count
