"""Compiles graphs that take part in autograd: as a forward and a backward pass, or in parts.

Invariant: a backward pass that is compiled later differentiates the forward pass that has run: both come from one
recording, or from two recordings whose nodes have the same names.
"""
from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.fx import GraphModule

from dynamo_lite import exc, log
from dynamo_lite.backends.aot import ambient
from dynamo_lite.backends.aot.call_sizes import fix, has_symbols
from dynamo_lite.backends.aot.decompositions import FOR_KERNELS
from dynamo_lite.backends.aot.double_backward import CompileGradients, double_backward_of
from dynamo_lite.backends.aot.functional import CannotCut, CannotFunctionalize
from dynamo_lite.backends.aot.gradient_graph import Differentiate, gradient_graph
from dynamo_lite.backends.aot.gradients import static_twins
from dynamo_lite.backends.aot.graph import AtenGraph
from dynamo_lite.backends.aot.interface import Interface, Saved
from dynamo_lite.backends.aot.joint import JointGraph, record_joint
from dynamo_lite.backends.aot.loss_pattern import with_chunked_losses
from dynamo_lite.backends.aot.partition import backward_graph, partition
from dynamo_lite.backends.aot.record import fake_mode_of
from dynamo_lite.backends.aot.segments import (
    SegmentedGraph,
    compile_checkpoint,
    is_one_pointwise_call,
    segments_of,
)
from dynamo_lite.backends.aot.single_operation import is_left_to_autograd
from dynamo_lite.backends.aot.tangent_layouts import Strides, read_as_they_come
from dynamo_lite.backends.aot.training import backward_checks, training_function
from dynamo_lite.backends.inductor import graph_cache
from dynamo_lite.backends.inductor.artifact import Call, Pair, is_the_library_alone
from dynamo_lite.backends.inductor.images_in_planes import put_in_planes
from dynamo_lite.backends.inductor.recurrent import with_recurrent_loops
from dynamo_lite.backends.inductor.route import Route, run_as_captured, run_eager, start_kept
from dynamo_lite.runtime import signal_handlers
from dynamo_lite.symbols.environment import Frozen


def run_in_parts(
    gm: GraphModule, example_inputs: list[Any], backend: Callable[..., Any]
) -> Callable[..., Any] | None:
    """The function of a graph that autograd has to see as several nodes; None for all other graphs.

    Args:
        gm, example_inputs: the graph, which needs gradients, and its example inputs.
        backend: the backend that compiles parts of the graph.
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


def compile_training(gm: GraphModule, example_inputs: list[Any], route: Route, key: str | None) -> Call:
    """Compiles a graph that takes part in autograd: its forward pass now, its backward pass when it first runs."""
    recording = _Recording(gm, example_inputs, route)
    pair: Pair | None = graph_cache.find(key)
    call = start_kept(pair.forward) if pair is not None else None
    backward: AtenGraph | None = None
    if pair is not None and call is not None:
        interface, saved, names = pair.interface, pair.saved, pair.names
    else:
        try:
            with log.phase("aot"):
                joint = recording.first()
                reason = _reason_for_autograd(gm, joint)
                if reason:
                    return run_as_captured(gm, reason)
                forward, saved = partition(joint)
                backward = backward_graph(joint, saved)
        except CannotFunctionalize as e:
            return run_eager(gm, str(e))
        except Exception as e:
            signal_handlers.pass_on(e)
            # If the program is at fault, eager raises the same error; if tracing is at fault, eager is right.
            return run_eager(gm, f"its gradients can't be traced: {type(e).__name__}: {e}")
        if log.enabled("aot_graphs"):
            log.artifact("aot_graphs").info("forward\n%s\nbackward\n%s", forward.describe(), backward.describe())
        interface, names = joint.interface(), joint.forward_names()
        call, artifact = route.build(forward, {"no_autocast": ambient.casts()})
        pair = None if artifact is None else Pair(interface, saved, names, artifact)
        if pair is not None:
            graph_cache.keep(key, pair)
    if pair is not None and is_the_library_alone(pair.forward):
        return run_as_captured(gm, "autograd records its library calls itself")
    passes = _BackwardPasses(recording, route, (interface, saved, names), pair, key, backward)
    if interface.sizes and any(interface.differentiable):
        # Compiled now, because decisions about symbols have to be guarded.
        passes.compile_ahead()
    gradients = recording.gradients_by(route) if not interface.sizes and not backward_checks(gm) else None
    double_backward = double_backward_of(gm, interface, saved, gradients)
    run = training_function(interface, call, saved, passes.compile, backward_checks(gm), double_backward)
    return _with_attributes(run, call, interface.mutated, bool(interface.written))


class _BackwardPasses:
    """Compiles the backward passes of a graph.

    Args:
        recording: the graph's recording, which is repeated where there is no graph of a backward pass any more.
        route: how graphs are compiled.
        made: the interface, the saved values and the names of the forward pass.
        pair, key: the artifacts that are kept, and their key.
        backward: the graph of the backward pass for gradients of all results.
    """

    def __init__(
        self, recording: _Recording, route: Route, made: tuple[Interface, Saved, str], pair: Pair | None,
        key: str | None, backward: AtenGraph | None,
    ) -> None:
        self._recording, self._route, self._made, self._pair, self._key = recording, route, made, pair, key
        self._unchanged = backward
        self._ready: Call | None = None

    def compile_ahead(self) -> None:
        """Compiles the backward pass for gradients of all results, in the layouts that were recorded."""
        self._ready = self.compile(self._made[0].differentiable, None)

    def compile(self, given: tuple[bool, ...], strides: Strides | None) -> Call | None:
        """The backward pass for the gradients of some results, in some layouts (see ``training_function``)."""
        everything, pair = given == self._made[0].differentiable, self._pair
        if everything and self._ready is not None:
            ready, self._ready = self._ready, None
            return ready
        kept = start_kept(dict(pair.backward).get(strides)) if pair is not None and everything else None
        if kept is not None:
            return kept
        graph = self._graph(given, everything)
        if graph is None:
            return None
        if strides is not None:
            read_as_they_come(graph, strides, given)
        made, artifact = self._route.build(graph, {"boxed": True})
        if everything and artifact is not None and pair is not None:
            self._pair = dataclasses.replace(pair, backward=(*pair.backward, (strides, artifact)))
            graph_cache.keep(self._key, self._pair)
        return made

    def _graph(self, given: tuple[bool, ...], everything: bool) -> AtenGraph | None:
        """The graph, which may be changed: the first one, or one that is recorded again."""
        graph = self._unchanged if everything else None
        if graph is not None:
            self._unchanged = None
            return graph
        with log.phase("aot"):
            return self._recording.again(given, *self._made)


def _reason_for_autograd(gm: GraphModule, joint: JointGraph) -> str:
    """Why torch's own calls are at least as fast as compiled code, if they are; else an empty text."""
    if is_one_pointwise_call(gm, joint):
        return "a segment that is one pointwise operation fuses nothing"
    return "it is one operation on few elements, or views alone" if is_left_to_autograd(joint) else ""


class _Recording:
    """Records the joint graph of a captured graph, and records it again for the gradients of only some results."""

    def __init__(self, gm: GraphModule, example_inputs: list[Any], route: Route) -> None:
        self._gm, self._examples = with_recurrent_loops(with_chunked_losses(gm)), example_inputs
        self._decompositions = route.decompositions
        self._grad = torch.is_grad_enabled()
        self._casting = ambient.casting()

    def _record(self, given: tuple[bool, ...] | None = None) -> JointGraph:
        joint = record_joint(self._gm, self._examples, self._decompositions, given)
        if self._decompositions is FOR_KERNELS:
            with fake_mode_of(self._gm, self._examples):
                put_in_planes(joint)
        return joint

    def first(self) -> JointGraph:
        """The joint graph; symbolic sizes are specialized if some gradient has no rule for symbols."""
        try:
            return self._record()
        except (CannotFunctionalize, Frozen):
            raise
        except Exception as e:
            signal_handlers.pass_on(e)
            if not has_symbols(self._examples):
                raise
            self._examples = _with_sizes_fixed(self._gm, self._examples, e)
            return self._record()

    def gradients_by(self, route: Route) -> CompileGradients:
        """A function that compiles gradients in such a way that they can be differentiated again."""

        def compile_gradients(
            differentiate: Differentiate, grads: Sequence[Any], wanted: tuple[int, ...]
        ) -> Call | None:
            with torch.set_grad_enabled(self._grad), ambient.casting_as(self._casting):
                try:
                    graph, examples = gradient_graph(self._gm, self._examples, differentiate, grads, wanted)
                    return compile_training(graph, examples, route, None)
                except Exception as e:
                    signal_handlers.pass_on(e)
                    reason = f"{type(e).__name__}: {str(e).partition(chr(10))[0]}"
                    log.artifact("fallbacks").info("differentiable gradients are computed in eager: %s", reason)
                    return None

        return compile_gradients

    def again(self, given: tuple[bool, ...], interface: Interface, saved: Saved, names: str) -> AtenGraph | None:
        """The backward graph for the gradients of some results; None if it would be valid only for sizes that the
        graph's guards do not ensure.
        """
        # Autograd's engine calls this without the state that the forward pass was traced in.
        with torch.set_grad_enabled(self._grad), ambient.casting_as(self._casting):
            try:
                joint = self._record(given)
            except Frozen as e:
                log.artifact("fallbacks").info("gradients of some results are computed in eager: they hang on %s", e)
                return None
            joint.sizes = interface.sizes
            if joint.forward_names() != names:
                raise exc.InternalError("a second recording of a graph differs from the first")
            return backward_graph(joint, saved)


def _with_sizes_fixed(gm: GraphModule, example_inputs: list[Any], error: Exception) -> list[Any]:
    """The examples with symbolic sizes specialized to those of the traced call, as some gradient has no rule for
    symbols."""
    reason = f"gradients with symbolic sizes: {type(error).__name__}: {str(error).partition(chr(10))[0]}"
    log.artifact("fallbacks").info("the sizes of a graph are fixed: %s", reason)
    fix(example_inputs, reason)
    return static_twins(fake_mode_of(gm, example_inputs), example_inputs)


def _with_attributes(
    run: Callable[..., tuple[Any, ...]], forward: Any, mutated: tuple[int, ...], written: bool
) -> Callable[..., tuple[Any, ...]]:
    """The function that ``inductor_lite`` returns for a graph that takes part in autograd."""
    trained: Any = functools.partial(run)  # it has attributes, and costs a call no Python frame
    trained.generated_code = forward.generated_code
    trained.mutated_inputs = mutated
    trained.raises_before_writes = forward.raises_before_writes
    trained.counts_writes = written  # written inputs are copied behind the kernels, by copies that autograd sees
    return trained
