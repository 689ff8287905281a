"""Recurrent networks (``lstm``, ``gru``, ``rnn_tanh``, ``rnn_relu``) as products over all steps and loops over time.

The product of a layer's inputs with their weights is one matrix product for all steps, and so are the gradients of the
weights. What is left is a recurrence: for each step the product of the hidden state with the recurrent weights, and the
cell. An operator of ours computes it for all steps of one layer in one direction, forward or backward
(``codegen/cpp/recurrent.cpp``), so that one graph serves all lengths.

Invariant: results have eager's values up to rounding, eager's layouts, and eager's random numbers in the dropout
between layers. A network that is not of this kind stays a single call of torch's (``scalar_split``).
"""
from __future__ import annotations

import ctypes
import functools
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch.fx import Graph, GraphModule, Node

from dynamo_lite import exc, log
from dynamo_lite.backends.inductor import _runtime, codecache, processor, target_info
from dynamo_lite.backends.inductor.codegen.cpp.libraries import library_source, library_symbol
from dynamo_lite.runtime.sized_operators import NAMESPACE
from dynamo_lite.runtime.whole_calls import RECURRENT, is_whole

FORWARD, BACKWARD = "recurrent_layer", "recurrent_layer_backward"
_FORWARD_SCHEMA = (
    f"{FORWARD}(Tensor gates, Tensor weight, Tensor? bias, Tensor h, Tensor? c, int kind, bool reverse, "
    "bool keep, str simd, int grain, int few, int deep) -> (Tensor, Tensor, Tensor)")
_BACKWARD_SCHEMA = (
    f"{BACKWARD}(Tensor grad_y, Tensor? grad_c, Tensor weight, Tensor h, Tensor? c, Tensor y, Tensor all_c, "
    "Tensor saved, int kind, bool reverse, str simd, int grain, int few, int deep) -> (Tensor, Tensor, Tensor, Tensor)")
_MOST_COLUMNS = 64
"""A multiple of the columns of a panel in ``recurrent.cpp``, whatever the vector instructions."""
Decided = tuple[str, int, int, int]
_functions = torch._C._VariableFunctions
_KINDS: dict[Any, int] = {_functions.lstm: 0, _functions.gru: 1, _functions.rnn_tanh: 2, _functions.rnn_relu: 3}
_LSTM, _GRU = 0, 1
_GATES = (4, 3, 1, 1)
_SAVED = (4, 4, 0, 0)
"""By kind: the number of gates, and of values that are saved of each element for the backward pass."""


# ---------------------------------------------------------------- which calls
def is_ours(node: Node) -> bool:
    """Whether a call of a recurrent network is computed by loops of ours: of float32 tensors on the CPU, not packed and
    without projections.

    The library keeps networks of fewer rows than threads whose recurrent weights do not fit a core's own cache: rows
    are all that our threads share out. It keeps an LSTM without gradients, too, unless the overhead of oneDNN's call
    counts: oneDNN computes one as fast as our loops do.
    """
    if not is_whole(node.target) or node.kwargs or len(node.args) != 9 or not isinstance(node.args[3], bool):
        return False
    given: Any = node.args
    x, hidden, weights, biases, layers, _dropout, _train, bidirectional, batch_first = given
    states = hidden if isinstance(hidden, (tuple, list)) else [hidden]
    values: list[Any] = [n.meta.get("example_value") if isinstance(n, Node) else None for n in (x, *states, *weights)]
    projected = len(weights) != layers * (4 if biases else 2) * (2 if bidirectional else 1)
    if projected or not all(map(_is_plain, values)):
        return False
    shape, weight = values[0].shape, values[len(states) + 2].shape
    steps, rows = (shape[1], shape[0]) if batch_first else (shape[0], shape[1])
    if not _are_numbers(weight):
        return False
    return (not _are_numbers((steps, rows)) or _pays(node, rows, steps * rows * weight[0] * (weight[1] + shape[2]),
                                                     4 * weight[0] * weight[1])) and _is_there()


def _is_plain(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.dtype is torch.float32 and value.device.type == "cpu"


def _are_numbers(sizes: Sequence[Any]) -> bool:
    return all(type(n) is int for n in sizes)


def _pays(node: Node, rows: int, products: int, recurrent: int) -> bool:
    """Whether loops of ours are expected to be faster than the library.

    Args:
        rows: of a batch.
        products: number of products of one layer, in one direction.
        recurrent: size in bytes of its recurrent weights.
    """
    info, results = target_info.current(), node.meta.get("example_value") or (None,)
    for_gradients = getattr(results[0], "requires_grad", True)
    if node.target is _functions.lstm and not for_gradients and info.outweighs_a_call(products):
        return False
    return recurrent <= info.own_cache or rows >= min(torch.get_num_threads(), info.processor.cores)


def _is_there() -> bool:
    try:
        return _entry(processor.simd()) is not None
    except (exc.CompilerMissing, exc.CacheError, OSError, AttributeError) as error:
        if log.first_time("fallbacks", "recurrent"):
            log.artifact("fallbacks").info("recurrent networks are torch's calls, as our loops can't be had: %s", error)
        return False


def with_recurrent_loops(gm: GraphModule) -> GraphModule:
    """The graph with a call of ``recurrent_network`` for each call of a network that is ours."""
    ours = {node for node in gm.graph.nodes if is_ours(node)}
    if not ours:
        return gm
    graph, env = Graph(), dict[Node, Node]()
    for node in gm.graph.nodes:
        made = graph.node_copy(node, env.__getitem__)
        if node in ours:
            made.args = (_KINDS[node.target], _decided(), *made.args)
            made.target = recurrent_network
            log.count("recurrent_networks")
        env[node] = made
    changed = GraphModule(gm, graph)
    changed.meta = dict(gm.meta)
    return changed


def _decided() -> Decided:
    """Decisions by which the loops run on this machine.

    Returns:
        the vector instructions; the least number of products of a thread; the number of products per element of the
        weights below which packing does not pay; the size of a single row's hidden state from which on it does not pay
        in the forward pass. Sums along lines of unpacked weights take two loads for each product, so twice the time,
        where several rows could share a load. A single row loads each weight once in any case, and what is left is that
        lanes are added up at the end of each sum, which eight vectors of products outweigh.
    """
    info = target_info.current()
    return (info.simd, info.product_grain(True), round(max(info.costs.pack_columns, info.costs.pack_lines)),
            8 * info.lanes)


# ---------------------------------------------------------------- a network
def recurrent_network(
    kind: int, decided: Decided, x: torch.Tensor, hidden: Any, weights: Sequence[torch.Tensor], has_biases: bool,
    layers: int, dropout: float, train: bool, bidirectional: bool, batch_first: bool,
) -> tuple[torch.Tensor, ...]:
    """Computes a network, as torch's function of the same arguments does.

    Args:
        kind: the function, by ``_KINDS``.
        decided: by ``_decided``.
        x: (steps, batch, features), or (batch, steps, features) if ``batch_first``.
        hidden: the first states of all layers and directions, (layers * directions, batch, hidden); of an LSTM two.
        weights: for each layer and direction those of the inputs, of the hidden state, and their biases.

    Returns:
        the hidden states of the last layer at all steps, then the last states of all layers and directions.
    """
    if batch_first:
        x = x.transpose(0, 1)
    first = hidden if kind == _LSTM else (hidden,)
    last: list[list[torch.Tensor]] = [[] for _ in first]
    directions, each = 2 if bidirectional else 1, 4 if has_biases else 2
    for layer in range(layers):
        made = []
        for direction in range(directions):
            at = layer * directions + direction
            own = weights[at * each:(at + 1) * each]
            y, *ends = _layer(kind, decided, x, [s[at] for s in first], own, direction == 1)
            made.append(y)
            for states, end in zip(last, ends):
                states.append(end)
        x = made[0] if directions == 1 else torch.cat(made, -1)
        if dropout and train and layer < layers - 1:
            x = F.dropout(x, dropout, True)
    return (x.transpose(0, 1) if batch_first else x, *(torch.stack(states) for states in last))


def _layer(
    kind: int, decided: Decided, x: torch.Tensor, first: Sequence[torch.Tensor], weights: Sequence[torch.Tensor],
    reverse: bool,
) -> tuple[torch.Tensor, ...]:
    """One layer in one direction: the hidden states at all steps, and the last states."""
    w_input, w_hidden, *biases = weights
    bias: torch.Tensor | None = None
    own: torch.Tensor | None = None
    if biases and kind == _GRU:  # the reset gate multiplies the new gate's recurrent part with its bias
        bias, own = biases
    elif biases:
        bias = biases[0] + biases[1]
    gates = F.linear(x, w_input, bias)
    h, c = first[0], first[1] if kind == _LSTM else None
    given = (gates, w_hidden, own, h, c)
    if torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in given):
        y, end = _Layer.apply(*given, kind, reverse, decided)
    else:
        y, end, _ = operators()[0](*given, kind, reverse, False, *decided)
    return (y, y[0 if reverse else -1], end)


class _Layer(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, gates: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, h: torch.Tensor,
        c: torch.Tensor | None, kind: int, reverse: bool, decided: Decided,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        y, all_c, saved = operators()[0](gates, weight, bias, h, c, kind, reverse, True, *decided)
        ctx.save_for_backward(weight, h, c, y, all_c, saved)
        ctx.kind, ctx.reverse, ctx.decided, ctx.biased = kind, reverse, decided, bias is not None
        return y, all_c[0 if reverse else -1].clone() if kind == _LSTM else all_c

    @staticmethod
    def backward(ctx: Any, grad_y: torch.Tensor, grad_c: torch.Tensor) -> Any:
        weight, h, c, y, all_c, saved = ctx.saved_tensors
        kind, reverse = ctx.kind, ctx.reverse
        grad_gates, grad_recurrent, grad_h, grad_c0 = operators()[1](
            grad_y, grad_c if kind == _LSTM else None, weight, h, c, y, all_c, saved, kind, reverse, *ctx.decided)
        if kind != _GRU:
            grad_recurrent = grad_gates
        before = torch.cat([y[1:], h.unsqueeze(0)] if reverse else [h.unsqueeze(0), y[:-1]])
        rows = grad_recurrent.flatten(0, 1)
        grad_weight = rows.t() @ before.flatten(0, 1) if ctx.needs_input_grad[1] else None
        grad_bias = rows.sum(0) if ctx.biased else None
        return grad_gates, grad_weight, grad_bias, grad_h, grad_c0 if kind == _LSTM else None, None, None, None


# ---------------------------------------------------------------- the operators
@functools.cache
def operators() -> tuple[Any, Any]:
    """The forward and the backward operator of one layer in one direction, defined by the first call.

    The forward operator returns the hidden states (steps, batch, hidden); the cell states of an LSTM, of all steps if
    ``keep`` is set, else of the last one; the gates that the backward operator needs, if ``keep`` is set. The backward
    operator returns the gradients of the gates' inputs, those of the recurrent products (of a GRU alone, since they are
    the same otherwise), and those of the first hidden and cell states. Results that do not exist have no elements.
    """
    library = _library()
    library.define(_FORWARD_SCHEMA)
    library.define(_BACKWARD_SCHEMA)
    library.impl(FORWARD, _forward, "CPU")
    library.impl(BACKWARD, _backward, "CPU")
    torch.library.register_fake(f"{NAMESPACE}::{FORWARD}", _like_forward, lib=library)
    torch.library.register_fake(f"{NAMESPACE}::{BACKWARD}", _like_backward, lib=library)
    own = getattr(torch.ops, NAMESPACE)
    return getattr(own, FORWARD).default, getattr(own, BACKWARD).default


@functools.cache
def _library() -> torch.library.Library:
    """The library object, which keeps its operators for as long as it lives."""
    return torch.library.Library(NAMESPACE, "FRAGMENT")


def _like_forward(
    gates: torch.Tensor, weight: torch.Tensor, bias: Any, h: torch.Tensor, c: Any, kind: int, reverse: bool, keep: bool,
    *_decided: Any,
) -> tuple[torch.Tensor, ...]:
    (steps, batch, _), hidden = gates.shape, weight.shape[1]
    shape = (0,) if kind != _LSTM else (steps, batch, hidden) if keep else (batch, hidden)
    saved = (steps, batch, _SAVED[kind] * hidden) if keep and _SAVED[kind] else (0,)
    return gates.new_empty((steps, batch, hidden)), gates.new_empty(shape), gates.new_empty(saved)


def _like_backward(
    grad_y: torch.Tensor, grad_c: Any, weight: torch.Tensor, h: torch.Tensor, c: Any, y: torch.Tensor,
    all_c: torch.Tensor, saved: torch.Tensor, kind: int, reverse: bool, *_decided: Any,
) -> tuple[torch.Tensor, ...]:
    steps, batch, hidden = y.shape
    gates = (steps, batch, _GATES[kind] * hidden)
    return (y.new_empty(gates), y.new_empty(gates if kind == _GRU else (0,)), y.new_empty((batch, hidden)),
            y.new_empty((batch, hidden) if kind == _LSTM else (0,)))


def _forward(
    gates: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, h: torch.Tensor, c: torch.Tensor | None,
    kind: int, reverse: bool, keep: bool, *decided: Any,
) -> tuple[torch.Tensor, ...]:
    made = _like_forward(gates, weight, bias, h, c, kind, reverse, keep)
    y, all_c, saved = made
    given = [None if t is None else t.contiguous() for t in (gates, weight, bias, h, c)]
    _run([*given, y, all_c, saved if keep else None, *[None] * 6], (kind, y, reverse, False), decided)
    return made


def _backward(
    grad_y: torch.Tensor, grad_c: torch.Tensor | None, weight: torch.Tensor, h: torch.Tensor, c: torch.Tensor | None,
    y: torch.Tensor, all_c: torch.Tensor, saved: torch.Tensor, kind: int, reverse: bool, *decided: Any,
) -> tuple[torch.Tensor, ...]:
    made = _like_backward(grad_y, grad_c, weight, h, c, y, all_c, saved, kind, reverse)
    gates, recurrent, grad_h, grad_c0 = made
    given = [None if t is None else t.contiguous() for t in (weight, h, c, y, all_c, saved, grad_y, grad_c)]
    own, first, first_c, *rest = given
    _run([None, own, None, first, first_c, *rest, gates, recurrent if kind == _GRU else gates, grad_h,
          grad_c0], (kind, y, reverse, True), decided)
    return made


def _run(tensors: Sequence[torch.Tensor | None], about: tuple[int, torch.Tensor, bool, bool], decided: Any) -> None:
    """Calls the loops.

    Args:
        tensors: contiguous ones, in the order of ``Layer`` in ``recurrent.cpp``, but for the workspace.
        about: kind, hidden states at all steps (of which only sizes are read), whether steps are taken from the last to
            the first, whether the backward pass is computed.
        decided: by ``_decided``.
    """
    (kind, y, reverse, backward), (simd, grain, few, deep) = about, decided
    steps, batch, hidden = y.shape
    if y.numel() == 0:
        return
    gates = _GATES[kind] * hidden
    # Each element of the weights takes part in one product for each step and row.
    in_place = steps * batch < few or (not backward and batch == 1 and hidden >= deep)
    columns, depth = (hidden, gates) if backward else (gates, hidden)
    packed = 0 if in_place else -(-columns // _MOST_COLUMNS) * _MOST_COLUMNS * depth
    workspace = torch.empty(packed + batch * columns, dtype=torch.float32, device="cpu")
    pointers = (ctypes.c_void_p * 15)(*[None if t is None else t.data_ptr() for t in (*tensors, workspace)])
    _entry(simd)((ctypes.c_int64 * 8)(kind, steps, batch, hidden, reverse, in_place, backward, grain), pointers)


@functools.cache
def _entry(simd: str) -> Any:
    """The function of the library for a kind of vector instructions.

    Raises:
        exc.CompilerMissing, exc.CacheError, OSError, AttributeError: it was not built, and can't be.
    """
    path = str(codecache.shared_library(library_source("recurrent", simd)))
    entry = getattr(ctypes.CDLL(path, handle=_runtime.load(path)), library_symbol("recurrent", simd))
    entry.restype = None
    return entry


assert _KINDS.keys() == RECURRENT.keys()
