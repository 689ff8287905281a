"""The pipeline of ``inductor_lite``: a captured graph in, a Python function that runs it out.

    record      the captured graph as a functional aten graph, decomposed            backends/aot
    lower       aten as loops; fuse them; write C++; a ``Program``                    lowering/, scheduler/,
    codegen/cpp/ wrap        the Python function and the C entries around the program              codegen/wrapper/
    build       the C++ source as a shared library, from the cache or built now      codecache load        the
    library's entries as callables, the wrapper's source executed    here

Invariant: whatever cannot be compiled runs correctly: a graph that lowering or the compiler can't serve runs by
library calls, one that the recorder can't serve runs in eager, and the log ``fallbacks`` says which and why.
"""
from __future__ import annotations

import ctypes
import functools
import itertools
import linecache
import logging
import types
import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch.autograd.grad_mode import _enter_inference_mode
from torch.fx import GraphModule

from dynamo_lite import config, exc, log
from dynamo_lite.backends import metrics
from dynamo_lite.backends.aot.decompositions import FOR_KERNELS, REQUIRED
from dynamo_lite.backends.aot.functional import CannotFunctionalize
from dynamo_lite.backends.aot.gradients import needs_gradients
from dynamo_lite.backends.aot.graph import AtenGraph
from dynamo_lite.backends.aot.joint import record_joint
from dynamo_lite.backends.aot.partition import backward_graph, partition
from dynamo_lite.backends.aot.record import record
from dynamo_lite.backends.aot.training import backward_checks, training_function
from dynamo_lite.backends.aot.twice import second_run
from dynamo_lite.backends.inductor import _runtime, codecache
from dynamo_lite.backends.inductor.codegen.cpp import header, without_comments
from dynamo_lite.backends.inductor.codegen.wrapper import WrapperSource, library_program, write_wrapper
from dynamo_lite.backends.inductor.codegen.wrapper.mutation import written_in_place
from dynamo_lite.backends.inductor.pieces import CannotCut, compile_pieces, has_numbers
from dynamo_lite.backends.inductor.pipeline import lower_and_schedule
from dynamo_lite.backends.inductor.program import ExternCall, KernelCall, Program, step_writes

_runtime.use_tensor_type(torch.Tensor)
_numbers = itertools.count()

_HEADER_LEFT_OUT = "// vec.h stands here; DYNAMO_LITE_LOGS=+output_code shows it\n"

OPTIONS = {"lowering": ("native", "library")}
"""What ``compile(..., options={...})`` may say to this backend, and the values; the first is the default."""


def inductor_lite(
    gm: GraphModule, example_inputs: list[Any], *, options: dict[str, Any] | None = None
) -> Callable[..., tuple[Any, ...]]:
    """Compiles a captured graph.

    Args:
        gm: the graph; its output is a flat tuple.
        example_inputs: a fake tensor (or a number) for each placeholder.
        options: see ``OPTIONS``.

    Returns:
        a function of the graph's inputs that returns its results as a tuple. It has attributes ``generated_code`` (a
        tuple of sources), ``mutated_inputs`` (indices of the inputs that it writes) and ``raises_before_writes``
        (that it has written nothing yet when it raises).
    """
    chosen = _checked(options)
    if any(node.target is _enter_inference_mode for node in gm.graph.nodes):
        # Only some of the results are inference tensors then.
        return _run_eager(gm, "torch.inference_mode() is entered inside the graph")
    if has_numbers(gm):
        try:
            return compile_pieces(gm, functools.partial(inductor_lite, options=options))
        except CannotCut as e:
            return _run_eager(gm, f"a number comes out of a tensor, and {e}")
    native = chosen["lowering"] == "native" and all(_on_cpu(value) for value in example_inputs)
    if needs_gradients(gm, example_inputs):
        return _compile_training(gm, example_inputs, native)
    try:
        with log.phase("aot"):
            aten = record(gm, example_inputs, FOR_KERNELS if native else REQUIRED)
    except CannotFunctionalize as e:
        return _run_eager(gm, str(e))
    except Exception as e:
        what = "it can't be recorded (a fault of dynamo_lite, please report it)"
        return _run_eager(gm, f"{what}: {type(e).__name__}: {e}", fault=True)
    if log.enabled("aot_graphs"):
        log.artifact("aot_graphs").info("%s", aten.describe())
    scopes = {
        "no_grad": torch.is_grad_enabled() and any(_requires_grad(value) for value in example_inputs),
        "no_autocast": torch.is_autocast_enabled("cpu"),
        "inference": aten.inference,
    }
    return _build(aten, native, scopes)


def _build(aten: AtenGraph, native: bool, scopes: dict[str, bool]) -> Callable[..., tuple[Any, ...]]:
    """A compiled aten graph: by kernels if it can be, otherwise by library calls."""
    if native:
        try:
            return _compile(aten, lower_and_schedule(aten.graph, aten.constants, codecache.simd()), scopes)
        except (exc.CompilerMissing, exc.CacheError) as e:
            _report_library_run("kernels can't be built", type(e).__name__, e)
        except Exception as e:
            # A fault of ours; the program must not suffer for it. The log shows it by default.
            if config.raise_internal_errors:
                raise
            what = "a graph can't be lowered (a fault of dynamo_lite, please report it)"
            _report_library_run(what, "lowering failed", e)
    return _compile(aten, library_program(aten), scopes)


def _compile_training(gm: GraphModule, example_inputs: list[Any], native: bool) -> Callable[..., tuple[Any, ...]]:
    """A graph that takes part in autograd: its forward pass compiled now, its backward pass when it first runs."""
    decompositions = FOR_KERNELS if native else REQUIRED
    try:
        with log.phase("aot"):
            joint = record_joint(gm, example_inputs, decompositions)
            forward, saved = partition(joint)
            backward = backward_graph(joint, saved)
    except CannotFunctionalize as e:
        return _run_eager(gm, str(e))
    except Exception as e:
        # Whatever it is, eager has it too, or is right where tracing is wrong.
        return _run_eager(gm, f"its gradients can't be traced: {type(e).__name__}: {e}")
    if log.enabled("aot_graphs"):
        text = f"forward\n{forward.describe()}\nbackward\n{backward.describe()}"
        log.artifact("aot_graphs").info("%s", text)
    everything = tuple(joint.differentiable)

    def compile_backward(given: tuple[bool, ...]) -> Callable[..., tuple[Any, ...]]:
        graph = backward
        if given != everything:
            # The engine runs this without the state that the forward pass was traced in.
            casts = torch.autocast("cpu", autocast_dtype, enabled=autocast)
            with log.phase("aot"), torch.set_grad_enabled(grad), casts:
                graph = backward_graph(record_joint(gm, example_inputs, decompositions, given), saved)
        return _build(graph, native, {"boxed": True})

    grad = torch.is_grad_enabled()
    autocast, autocast_dtype = torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu")
    scopes = {"no_autocast": autocast}
    call = _build(forward, native, scopes)
    again = second_run(gm, joint, saved)
    run = training_function(joint, call, saved, compile_backward, backward_checks(gm), again)
    return _Trained(run, call, joint.mutated)


class _Trained:
    """What ``inductor_lite`` returns of a graph that takes part in autograd."""

    def __init__(self, run: Callable[..., tuple[Any, ...]], forward: Any, mutated: tuple[int, ...]) -> None:
        self._run = run
        self.generated_code = forward.generated_code
        self.mutated_inputs = mutated
        self.raises_before_writes = forward.raises_before_writes

    def __call__(self, *inputs: Any) -> tuple[Any, ...]:
        return self._run(*inputs)


def _report_library_run(what: str, kind: str, error: Exception) -> None:
    """Says, once for each cause, that a graph runs by library calls instead of kernels."""
    metrics.count_fallback(kind)
    if log.first_time("fallbacks", (kind, str(error))):
        log.artifact("fallbacks").warning("%s, so it runs by library calls: %s: %s", what, type(error).__name__, error)


def _compile(aten: AtenGraph, program: Program, scopes: dict[str, bool]) -> Callable[..., tuple[Any, ...]]:
    with log.phase("codegen"):
        wrapper = write_wrapper(program, aten.outputs, allocate=_runtime.can_allocate(), **scopes)
    source = program.source + wrapper.entries
    library = None
    if wrapper.entry_specs:
        *needed, library = codecache.build_all([*program.libraries, without_comments(source)])
        for path in needed:
            # Its symbols are for the graph's own library, which is loaded next.
            ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)
    with log.phase("load"):
        call = _load(wrapper, library)
    shown = source.replace(header(), _HEADER_LEFT_OUT)
    if log.enabled("output_code"):
        whole = log.enabled("output_code", logging.DEBUG)
        log.artifact("output_code").info("%s\n%s", source if whole else shown, wrapper.python)
    _count(written_in_place(program))
    call.generated_code = (shown, wrapper.python) if source else (wrapper.python,)  # type: ignore[attr-defined]
    call.mutated_inputs = aten.mutated  # type: ignore[attr-defined]
    call.raises_before_writes = _raises_before_writes(program)  # type: ignore[attr-defined]
    return call


def _raises_before_writes(program: Program) -> bool:
    """Whether all that may raise, library calls and kernels that take indices from memory, comes before the first step
    that writes to an input."""
    inputs = frozenset(program.inputs)
    writes = [n for n, step in enumerate(program.steps) if not inputs.isdisjoint(step_writes(step))]
    calls = [n for n, step in enumerate(program.steps)
             if isinstance(step, ExternCall) or isinstance(step, KernelCall) and step.faults]
    return not writes or not calls or max(calls) <= min(writes)


def _load(wrapper: WrapperSource, library: Any) -> Callable[..., tuple[Any, ...]]:
    """The wrapper's function, its entries bound to the library's."""
    # The module it is of says that it is a part of the backend, which is never captured itself.
    namespace = {**wrapper.namespace, "__name__": "dynamo_lite.backends.inductor.generated"}
    if library is not None:
        handle = _runtime.load(str(library))
        for spec in wrapper.entry_specs:
            namespace[spec.symbol] = _runtime.entry(
                handle, spec.symbol, spec.tensors, spec.sizes, spec.layouts, spec.release_gil, spec.kept,
                spec.faults)
        if wrapper.direct:
            return namespace[wrapper.entry_specs[0].symbol]
    filename = f"<dynamo_lite wrapper {next(_numbers)}>"
    # Tracebacks through the wrapper show its lines.
    linecache.cache[filename] = (len(wrapper.python), None, wrapper.python.splitlines(keepends=True), filename)
    exec(compile(wrapper.python, filename, "exec"), namespace)
    # Taken out, so that the function and its globals are no cycle and go as soon as nobody needs them.
    call = namespace.pop("call")
    weakref.finalize(call, linecache.cache.pop, filename, None)
    return call


def _run_eager(gm: GraphModule, reason: str, fault: bool = False) -> Callable[..., Any]:
    if log.first_time("fallbacks", reason):
        log.artifact("fallbacks").log(logging.WARNING if fault else logging.INFO, "a graph runs in eager: %s", reason)
    metrics.count_fallback(reason)
    return gm.forward


def _count(program: Program) -> None:
    kernels = 0
    moved = 0
    for step in program.steps:
        if isinstance(step, KernelCall):
            kernels += 1
            moved += _moved(program, step)
        elif isinstance(step, ExternCall):
            named = isinstance(step.target, types.FunctionType)
            metrics.count_library_call(step.target.__name__ if named else str(step.target))
    metrics.count_kernels(kernels, moved)


def _moved(program: Program, step: KernelCall) -> int:
    """How many bytes a kernel reads and writes."""
    if step.part is not None and len(set(step.args)) < len(step.args):
        return step.part + sum(_nbytes(program, name) for name in step.args if name not in step.outputs)
    return sum(_nbytes(program, name) for name in step.args)


def _nbytes(program: Program, name: str) -> int:
    spec = program.buffers[name]
    count = spec.dtype.itemsize
    for n in spec.size:
        count *= n if isinstance(n, int) else 1
    return count


def _on_cpu(value: Any) -> bool:
    return not isinstance(value, torch.Tensor) or value.device.type == "cpu"


def _requires_grad(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.requires_grad


def _checked(options: dict[str, Any] | None) -> dict[str, Any]:
    chosen = {name: values[0] for name, values in OPTIONS.items()}
    for name, value in (options or {}).items():
        if name not in OPTIONS:
            raise ValueError(f"inductor_lite has no option {name!r}; it has {', '.join(OPTIONS)}")
        if value not in OPTIONS[name]:
            raise ValueError(f"option {name!r} is one of {', '.join(OPTIONS[name])}, not {value!r}")
        chosen[name] = value
    return chosen
