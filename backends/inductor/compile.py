"""The pipeline of ``inductor_lite``, from a captured graph to a Python function that runs it.

    record      the captured graph becomes a functional, decomposed aten graph    backends/aot
    lower       aten operations become loops, loops are fused into kernels, and
                kernels are written in C++; the result is a ``Program``           lowering/, scheduler/, codegen/cpp/
    write       the Python function and the C entries around the program          artifact, codegen/wrapper/
    start       the library is found in the cache or built, and loaded            artifact, codecache

If an earlier process has kept the artifact (``graph_cache``), only the last step is taken. Invariant: a graph that
cannot be compiled runs correctly all the same: one that lowering or the compiler can't handle runs by library calls,
one that the recorder can't handle runs in eager, and the log ``fallbacks`` says which and why.
"""
from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.fx import GraphModule

from dynamo_lite import config, exc, log
from dynamo_lite.backends import metrics
from dynamo_lite.backends.aot import ambient
from dynamo_lite.backends.aot.call_sizes import has_symbols
from dynamo_lite.backends.aot.decompositions import FOR_KERNELS, REQUIRED
from dynamo_lite.backends.aot.functional import CannotCut, CannotFunctionalize
from dynamo_lite.backends.aot.gradients import needs_gradients
from dynamo_lite.backends.aot.graph import AtenGraph, OutputAlias
from dynamo_lite.backends.aot.loss_pattern import with_chunked_losses
from dynamo_lite.backends.aot.record import record
from dynamo_lite.backends.inductor import device_random, gpu_info, graph_cache, kept_files
from dynamo_lite.backends.inductor.artifact import Artifact, Call, is_the_library_alone, start, write
from dynamo_lite.backends.inductor.codegen.wrapper import library_program
from dynamo_lite.backends.inductor.recurrent import with_recurrent_loops
from dynamo_lite.backends.inductor.route import Route, run_as_captured, run_eager, start_kept
from dynamo_lite.backends.inductor.scalar_split import (
    compile_scalar_split,
    enters_inference_mode,
    has_python_numbers,
    has_whole_calls,
)
from dynamo_lite.backends.registry import KeptFiles
from dynamo_lite.runtime import signal_handlers
from dynamo_lite.runtime.neutral_state import neutral_state

OPTIONS = {
    "lowering": ("native", "library"), "cpu_codegen": ("cpp", "triton"), "cuda_graphs": ("off", "on"),
    "random": ("library", "kernels"),
    "products": ("rule", "library", "template", "measured"), "blocks": ("rule", "measured")}
"""The options of this backend (``compile(..., options={...})``) and their values; the first is the default."""

_MEASURED = {"products": "measured", "blocks": "measured"}
MODES = {
    "reduce-overhead": {"cuda_graphs": "on"}, "max-autotune": {**_MEASURED, "cuda_graphs": "on"},
    "max-autotune-no-cudagraphs": _MEASURED}
"""The options that ``compile(..., mode=...)`` stands for; on a CPU only ``products`` has an effect."""


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
        (whether, if it raises, it has not written to any input yet).
    """
    chosen = _with_codegen(_checked(options))
    otherwise = run_otherwise(gm, example_inputs, functools.partial(inductor_lite, options=options))
    if otherwise is not None:
        return otherwise
    codegen = _codegen(gm, example_inputs, chosen)
    gpu = gpu_info.TYPICAL
    if codegen == "cuda":
        gpus = {device for device in _devices(gm, example_inputs) if device.type == "cuda"}
        gpu, chosen = gpu_info.of_devices(gpus), _with_random(gpus, chosen)
    training = needs_gradients(gm, example_inputs)
    decided = {**chosen, "training": training, "codegen": codegen, "gpu": gpu}
    key = graph_cache.key_of(gm, example_inputs, decided) if codegen is not None else None
    build = functools.partial(_build, codegen=codegen, chosen=chosen, gpu=gpu)
    route = Route(FOR_KERNELS if codegen is not None else REQUIRED, build)
    return compile_graph(gm, example_inputs, route, key)


inductor_lite.check_options = lambda options: _checked(options)  # type: ignore[attr-defined]
inductor_lite.modes = MODES  # type: ignore[attr-defined]
inductor_lite.kept_files = KeptFiles(kept_files.read_entry, kept_files.write_entry)  # type: ignore[attr-defined]


def run_otherwise(
    gm: GraphModule, example_inputs: list[Any], backend: Callable[..., Any]
) -> Callable[..., Any] | None:
    """The function of a graph that is not compiled as a whole; None for all other graphs.

    Args:
        gm, example_inputs: the graph and its inputs, as for ``inductor_lite``.
        backend: the backend that compiles parts of the graph.
    """
    if gm.meta.get("hidden_writes"):
        return run_eager(gm, "an input is written whose memory another input shares in a storage or dtype of its own")
    missing = [device for device in _devices(gm, example_inputs) if _is_missing(device)]
    if missing:
        return run_eager(gm, f"there is no device {missing[0]}, for which torch raises")
    if enters_inference_mode(gm) or has_python_numbers(gm) or has_whole_calls(gm):
        try:
            return compile_scalar_split(gm, backend)
        except CannotCut as e:
            if enters_inference_mode(gm):
                return run_eager(gm, f"torch.inference_mode() is entered inside the graph, and {e}")
            if has_python_numbers(gm):
                return run_eager(gm, f"a number or a size comes out of a tensor, and {e}")
            if has_symbols(example_inputs):
                return run_eager(gm, f"a recurrent network of symbolic sizes is called whole, and {e}")
            log.artifact("fallbacks").info("a recurrent network is taken apart into its steps: %s", e)
    if needs_gradients(gm, example_inputs):
        # Imported when first needed, here and below: a program without gradients saves the 0.05 s.
        from dynamo_lite.backends.inductor.training import run_in_parts

        return run_in_parts(gm, example_inputs, backend)
    return None


def compile_graph(gm: GraphModule, example_inputs: list[Any], route: Route, key: str | None = None) -> Call:
    """Records a captured graph, compiles it and returns the function.

    Args:
        route: the decompositions and the function that builds an aten graph.
        key: the key under which the artifact is kept in ``graph_cache``; None: it is not kept.
    """
    if needs_gradients(gm, example_inputs):
        from dynamo_lite.backends.inductor.training import compile_training

        return compile_training(gm, example_inputs, route, key)
    found = graph_cache.find(key)
    if _is_one_library_call(found):
        return run_as_captured(gm, "it is one call of the library")
    kept = start_kept(found)
    if kept is not None:
        return kept
    try:
        with log.phase("aot"):
            aten = record(with_recurrent_loops(with_chunked_losses(gm)), example_inputs, route.decompositions)
    except CannotFunctionalize as e:
        return run_eager(gm, str(e))
    except Exception as e:
        signal_handlers.pass_on(e)
        if config.raise_internal_errors:
            raise
        what = "it can't be recorded (a fault of dynamo_lite, please report it)"
        return run_eager(gm, f"{what}: {type(e).__name__}: {e}", fault=True)
    if log.enabled("aot_graphs"):
        log.artifact("aot_graphs").info("%s", aten.describe())
    if _views_inputs_alone(aten):
        return run_as_captured(gm, "its results are views of its inputs")
    scopes = {
        "no_grad": torch.is_grad_enabled() and any(_requires_grad(value) for value in example_inputs),
        "no_autocast": ambient.casts(),
        "inference": aten.inference,
    }
    call, artifact = route.build(aten, scopes)
    if artifact is not None:
        graph_cache.keep(key, artifact)
    if _is_one_library_call(artifact):
        return run_as_captured(gm, "it is one call of the library")
    return call


def _is_one_library_call(artifact: Artifact | None) -> bool:
    """Whether a graph without gradients is one of torch's operators, which the program calls as fast itself."""
    if artifact is None or not config.torch_for_single_operations or artifact.mutated or artifact.gpus:
        return False
    calls = artifact.library_calls
    return len(calls) == 1 and calls[0].startswith("aten.") and is_the_library_alone(artifact)


def _views_inputs_alone(aten: AtenGraph) -> bool:
    """Whether a graph computes nothing, and makes its results by view operations."""
    views = any(isinstance(result, OutputAlias) for result in aten.outputs)
    return views and not aten.mutated and not any(node.op in ("call_function", "get_attr") for node in aten.graph.nodes)


@neutral_state()
def _build(
    aten: AtenGraph, scopes: dict[str, bool], codegen: str | None, chosen: dict[str, Any], gpu: gpu_info.GpuInfo
) -> tuple[Call, Artifact | None]:
    """Compiles an aten graph: with kernels of a target where possible, and then returns the artifact, too; otherwise
    with library calls alone."""
    replays = chosen["cuda_graphs"] == "on"
    if codegen is not None:
        # Imported when first needed: a program whose graphs are all in the cache does not lower any, which saves 0.1 s.
        from dynamo_lite.backends.inductor.pipeline import Tuning, lower_and_schedule, target_named

        try:
            target = target_named(codegen, Tuning(chosen["products"], chosen["blocks"], chosen["random"]), gpu)
            artifact = write(aten, lower_and_schedule(aten.graph, aten.constants, target), scopes, replays)
            return start(artifact), artifact
        except (exc.CompilerMissing, exc.CacheError) as e:
            _report_library_run("kernels can't be built", type(e).__name__, e)
        except Exception as e:
            signal_handlers.pass_on(e)
            # An internal error, which must not break the user's program. The log shows it by default.
            if config.raise_internal_errors:
                raise
            what = "a graph can't be lowered (a fault of dynamo_lite, please report it)"
            _report_library_run(what, "lowering failed", e)
    return start(write(aten, library_program(aten), scopes, replays)), None


def _codegen(gm: GraphModule, example_inputs: list[Any], chosen: dict[str, Any]) -> str | None:
    """The target that a graph is compiled for, chosen by the devices of its tensors; None: library calls alone."""
    devices = _devices(gm, example_inputs)
    if chosen["lowering"] != "native" or not {device.type for device in devices} <= {"cpu", "cuda"}:
        return None
    gpus = {device.index or 0 for device in devices if device.type == "cuda"}
    if not gpus:
        return str(chosen["cpu_codegen"])
    # Imported only if there is a GPU.
    from dynamo_lite.backends.inductor.codegen.triton.launch import unavailable

    reason = unavailable(gpus)
    if reason is None:
        return "cuda"
    metrics.count_fallback("no Triton")
    if log.first_time("fallbacks", reason):
        log.artifact("fallbacks").warning("%s; graphs on GPUs run by library calls", reason)
    return None


def _with_random(gpus: set[torch.device], chosen: dict[str, Any]) -> dict[str, Any]:
    """The options, where ``random`` is "kernels" only if this torch draws the same numbers as the kernels do."""
    if chosen["random"] == "library":
        return chosen
    other = [device for device in gpus if not device_random.draws_as_kernels_do(device)]
    if not other:
        return chosen
    if log.first_time("fallbacks", ("random", other[0])):
        log.artifact("fallbacks").warning("torch draws otherwise than kernels on %s, so it draws itself", other[0])
    return {**chosen, "random": "library"}


def _devices(gm: GraphModule, example_inputs: list[Any]) -> set[torch.device]:
    """The devices of all tensors of a graph."""
    return {value.device for value in (*example_inputs, *_made(gm)) if isinstance(value, torch.Tensor)}


def _made(gm: GraphModule) -> Iterator[Any]:
    """The results of calls that name a device: only these can be on a device that no input is on."""
    for node in gm.graph.nodes:
        if "device" in node.kwargs or node.target in _MOVES:
            yield node.meta.get("example_value")


def _is_missing(device: torch.device) -> bool:
    """Whether a tensor of the device can be traced only: torch has no such GPU."""
    return device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count()


_MOVES = frozenset({"to", "cuda", "cpu", torch.Tensor.to, torch.Tensor.cuda})


def _with_codegen(chosen: dict[str, Any]) -> dict[str, Any]:
    """The options, with a language of kernels that can run here."""
    if chosen["cpu_codegen"] == "triton":
        # Imported when asked for, which takes 0.01 s; Triton itself is imported with the first kernel.
        from dynamo_lite.backends.inductor.codegen.triton.loading import unavailable

        reason = unavailable()
        if reason is not None:
            metrics.count_fallback("no Triton")
            if log.first_time("fallbacks", reason):
                log.artifact("fallbacks").warning("%s; kernels are written in C++ instead", reason)
            return {**chosen, "cpu_codegen": "cpp"}
    return chosen


def _report_library_run(what: str, kind: str, error: Exception) -> None:
    """Warns, once for each cause, that a graph runs by library calls instead of kernels."""
    metrics.count_fallback(kind)
    if log.first_time("fallbacks", (kind, getattr(error, "reason", str(error)))):
        log.artifact("fallbacks").warning("%s, so it runs by library calls: %s: %s", what, type(error).__name__, error)


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
