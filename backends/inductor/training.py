"""Graphs that take part in autograd: compiled as a forward and a backward pass, or in parts.

Invariant: a backward pass compiled later differentiates the forward pass that has run: both are of one recording, or of
two whose nodes have the same names.
"""
from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import torch
from torch.fx import GraphModule

from dynamo_lite import exc, log
from dynamo_lite.backends.aot.double_backward import double_backward_of
from dynamo_lite.backends.aot.functional import CannotCut, CannotFunctionalize
from dynamo_lite.backends.aot.graph import AtenGraph
from dynamo_lite.backends.aot.joint import record_joint
from dynamo_lite.backends.aot.partition import backward_graph, partition
from dynamo_lite.backends.aot.segments import (
    SegmentedGraph,
    compile_checkpoint,
    is_one_pointwise_call,
    segments_of,
)
from dynamo_lite.backends.aot.training import backward_checks, training_function
from dynamo_lite.backends.inductor import graph_cache
from dynamo_lite.backends.inductor.artifact import Call, Pair
from dynamo_lite.backends.inductor.target import Target, run_eager, start_kept


def run_in_parts(
    gm: GraphModule, example_inputs: list[Any], backend: Callable[..., Any]
) -> Callable[..., Any] | None:
    """The function of a graph that autograd has to see as several nodes; None for the others.

    Args:
        gm, example_inputs: the graph, which needs gradients.
        backend: what compiles parts of the graph.
    """
    checkpoint = compile_checkpoint(gm, backend)
    if checkpoint is not None:
        return checkpoint
    try:
        segments = segments_of(gm, example_inputs)
    except CannotCut as e:
        return run_eager(gm, f"an intermediate that requires grad leaves it and is used on in it, and {e}")
    if any(getattr(node.target, "recomputes", False) for node in gm.graph.nodes) and not segments:
        return run_eager(gm, "a checkpoint that writes to tensors is entered in another state of torch's")
    if segments:
        return SegmentedGraph(gm, segments, [backend(segment.module, segment.examples) for segment in segments])
    return None


def compile_training(gm: GraphModule, example_inputs: list[Any], target: Target, key: str | None) -> Call:
    """A graph that takes part in autograd: its forward pass compiled now, its backward pass when it first runs."""
    record_again = functools.partial(record_joint, gm, example_inputs, target.decompositions)
    pair: Pair | None = graph_cache.find(key)
    call = start_kept(pair.forward) if pair is not None else None
    backward: AtenGraph | None = None
    if pair is not None and call is not None:
        interface, saved, names = pair.interface, pair.saved, pair.names
    else:
        try:
            with log.phase("aot"):
                joint = record_again()
                if is_one_pointwise_call(gm, joint):
                    log.artifact("fallbacks").debug("a segment is one pointwise operation and runs as torch's call")
                    return gm.forward
                forward, saved = partition(joint)
                backward = backward_graph(joint, saved)
        except CannotFunctionalize as e:
            return run_eager(gm, str(e))
        except Exception as e:
            # Whatever it is, eager has it too, or is right where tracing is wrong.
            return run_eager(gm, f"its gradients can't be traced: {type(e).__name__}: {e}")
        if log.enabled("aot_graphs"):
            text = f"forward\n{forward.describe()}\nbackward\n{backward.describe()}"
            log.artifact("aot_graphs").info("%s", text)
        interface, names = joint.interface(), joint.forward_names()
        call, artifact = target.build(forward, {"no_autocast": torch.is_autocast_enabled("cpu")})
        pair = None if artifact is None else Pair(interface, saved, names, artifact, None)
        if pair is not None:
            graph_cache.keep(key, pair)
    grad = torch.is_grad_enabled()
    autocast, autocast_dtype = torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu")

    def compile_backward(given: tuple[bool, ...]) -> Call:
        everything = given == interface.differentiable
        kept = start_kept(pair.backward) if pair is not None and everything else None
        if kept is not None:
            return kept
        graph = backward if everything else None
        if graph is None:
            # The engine runs this without the state that the forward pass was traced in.
            casts = torch.autocast("cpu", autocast_dtype, enabled=autocast)
            with log.phase("aot"), torch.set_grad_enabled(grad), casts:
                joint = record_again(given)
                if joint.forward_names() != names:
                    raise exc.InternalError("a second recording of a graph differs from the first")
                graph = backward_graph(joint, saved)
        made, artifact = target.build(graph, {"boxed": True})
        if everything and artifact is not None and pair is not None:
            graph_cache.keep(key, dataclasses.replace(pair, backward=artifact))
        return made

    double_backward = double_backward_of(gm, interface, saved)
    run = training_function(interface, call, saved, compile_backward, backward_checks(gm), double_backward)
    return _Trained(run, call, interface.mutated, bool(interface.written))


class _Trained:
    """What ``inductor_lite`` returns of a graph that takes part in autograd."""

    def __init__(
        self, run: Callable[..., tuple[Any, ...]], forward: Any, mutated: tuple[int, ...], written: bool
    ) -> None:
        self._run = run
        self.generated_code = forward.generated_code
        self.mutated_inputs = mutated
        self.raises_before_writes = forward.raises_before_writes
        self.counts_writes = written  # by copies that autograd sees, behind the kernels

    def __call__(self, *inputs: Any) -> tuple[Any, ...]:
        return self._run(*inputs)
