"""Finds cross-entropies of a linear layer's results in captured graphs, if their logits are large enough to be computed
in parts.

Between the layer and the loss there may be operations that leave each row of the logits as it is: slices and views of
other dimensions, a cast to float32. They are applied to the layer's input instead. Nothing else may read the logits.

Invariant: a graph is rewritten only where the loss and its gradients are the same except for rounding, and a call's
peak of memory falls by at least half of what the logits and their gradients take.
"""
from __future__ import annotations

import dataclasses
import inspect
import operator
import types
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch.fx import Graph, GraphModule, Node

from dynamo_lite import config, log
from dynamo_lite.backends.aot.chunked_loss import linear_cross_entropy, rows_at_once
from dynamo_lite.symbols.nodes import hint_of

LARGE = 32 << 20
"""Logits of fewer bytes are left whole: activations take much more memory, and caches hold most of the logits."""


@dataclasses.dataclass(slots=True)
class _Match:
    """A loss that can be computed in parts.

    Attributes:
        loss: the node of the loss.
        linear: the node of the layer.
        between: the nodes between the layer and the logits, in order.
        after: the nodes between the logits and the loss.
        target: the node of the classes, the ``target`` of ``linear_cross_entropy``.
        rest: the arguments of ``linear_cross_entropy`` that follow the target.
    """

    loss: Node
    linear: Node
    between: list[Node]
    after: list[Node]
    target: Node
    rest: tuple[Any, ...]


def with_chunked_losses(gm: GraphModule) -> GraphModule:
    """The graph with losses computed in parts; the graph itself if it has no such losses."""
    if not config.chunked_loss:
        return gm
    found = [match for node in gm.graph.nodes if _called(node) in _LOSSES for match in _matches(node)]
    if not found:
        return gm
    graph = Graph()
    env: dict[Node, Node] = {}
    by_loss = {match.loss: match for match in found}
    left_out = {node for match in found for node in (match.linear, *match.between, *match.after)}
    for node in gm.graph.nodes:
        if node in left_out:
            continue
        if node in by_loss:
            env[node] = _write(graph, by_loss[node], env)
            log.count("chunked_losses")
        else:
            env[node] = graph.node_copy(node, env.__getitem__)
    made = GraphModule(gm, graph)
    made.meta = dict(gm.meta)
    return made


def _write(graph: Graph, match: _Match, env: dict[Node, Node]) -> Node:
    """Writes the chunked loss to the new graph, with the nodes between layer and loss applied to the layer's input."""
    x, weight, bias = _linear_arguments(match.linear)
    outputs, inputs = weight.meta["example_value"].shape
    rows = env[x]
    for node in match.between:
        made = _BETWEEN[node.target](node, inputs)
        if made is not None:
            function, args = made
            rows = graph.call_function(function, (rows, *torch.fx.node.map_arg(args, env.__getitem__)))
            rows.meta = {key: value for key, value in node.meta.items() if key != "example_value"}
    given = (rows, env[weight], None if bias is None else env[bias], env[match.target], *match.rest)
    loss = graph.call_function(linear_cross_entropy, given)
    loss.meta = dict(match.loss.meta)
    return loss


# ---------------------------------------------------------------- losses
def _called(node: Node) -> Any:
    """The function or the name of the method that a node calls; None if it does not make a call."""
    return node.target if node.op in ("call_function", "call_method") else None


def _matches(node: Node) -> list[_Match]:
    """The loss at a node, as a list of one; an empty list if it can't be computed in parts."""
    asked = _LOSSES[node.target](node)
    value = node.meta.get("example_value")
    if asked is None or not isinstance(value, torch.Tensor):
        return []
    logits, target, ignore_index, smoothing, reduction = asked
    if reduction not in ("mean", "sum") or not isinstance(target, Node) or not isinstance(logits, Node):
        return []
    between: list[Node] = []
    at = logits
    while _called(at) not in _LINEAR:
        if _called(at) not in _BETWEEN or len(at.users) != 1 or not _keeps_rows(at):
            return []
        between.insert(0, at)
        at = at.args[0]  # type: ignore[assignment]
    if len(at.users) != 1 or len(_shape(logits)) != 2 or not _can_be_computed(at, logits, target):
        return []
    if not _only_reads(at, node):
        return []
    rest = (ignore_index, float(smoothing), reduction == "mean", at.meta["example_value"].dtype, value.dtype)
    after = [n for n in node.all_input_nodes if _called(n) in _LOG_SOFTMAX]
    return [_Match(node, at, between, after, target, rest)]


def _only_reads(start: Node, end: Node) -> bool:
    """Whether the nodes between two others write to nothing that the first has read, and set no mode."""
    node = start.next
    while node is not end:
        if node.op == "call_method":
            if str(node.target).endswith("_"):
                return False
        elif node.op != "call_function" or node.target not in _BETWEEN and not _is_functional(node):
            return False
        node = node.next
    return True


def _is_functional(node: Node) -> bool:
    function = node.target
    name, module = getattr(function, "__name__", "_"), getattr(function, "__module__", None) or ""
    if module == "_operator":
        return name in _OPERATORS
    if name.endswith("_") or name.startswith("_") or "out" in node.kwargs or module.partition(".")[0] not in (
            "torch", "builtins", ""):
        return False
    return not isinstance(function, types.FunctionType) or "inplace" not in inspect.signature(function).parameters


_OPERATORS = frozenset({"getitem", "add", "sub", "mul", "truediv", "floordiv", "neg", "eq", "ne", "lt", "gt", "and_"})


def _can_be_computed(linear: Node, logits: Node, target: Node) -> bool:
    """Whether ``linear_cross_entropy`` supports the types, and the logits are large enough."""
    x, weight, bias = _linear_arguments(linear)
    values: list[Any] = [node.meta.get("example_value") for node in (x, weight, target) if isinstance(node, Node)]
    if len(values) != 3 or not all(type(v.device) is torch.device for v in values):
        return False
    sizes = values[1].shape
    # float16 is left out, because gradients would underflow before they are scaled.
    return (
        linear.meta["example_value"].dtype in (torch.float32, torch.bfloat16) and values[1].dim() == 2
        and values[0].dim() >= 2 and all(type(n) is int for n in sizes) and values[2].dim() == 1
        and values[2].dtype is torch.int64 and len({v.device for v in values}) == 1
        and all(v.dtype in (torch.float32, torch.bfloat16) for v in values[:2])
        and is_worth_it(hint_of(_shape(logits)[0]), sizes[0], sizes[1], values[0].device.type,
                        values[1].requires_grad))


def is_worth_it(rows: int, outputs: int, inputs: int, device: str, trained: bool) -> bool:
    """Whether the logits are large, and parts save at least half of the memory that logits and their gradients take.

    Args:
        trained: whether the weight has a gradient, which is in memory from the loss on.
    """
    whole = 2 * rows * outputs
    part = min(rows_at_once(rows, outputs, inputs, device), rows) * outputs
    return 4 * rows * outputs >= LARGE and 2 * (part + rows * inputs + trained * outputs * inputs) <= whole


Asked = tuple[Any, Any, int, float, str] | None  # logits, target, ignore_index, label_smoothing, reduction


def _cross_entropy(node: Node) -> Asked:
    given = _bound(F.cross_entropy, node)
    if given["weight"] is not None or given["size_average"] is not None or given["reduce"] is not None:
        return None
    return given["input"], given["target"], given["ignore_index"], given["label_smoothing"], given["reduction"]


def _nll_loss(node: Node) -> Asked:
    given = _bound(F.nll_loss, node)
    if given["weight"] is not None or given["size_average"] is not None or given["reduce"] is not None:
        return None
    inner = given["input"]
    if not isinstance(inner, Node) or _called(inner) not in _LOG_SOFTMAX or not _keeps_rows(inner):
        return None
    of = _bound(_log_softmax, inner)
    if of["dim"] not in (1, -1) or len(inner.users) != 1:
        return None
    return of["input"], given["target"], given["ignore_index"], 0.0, given["reduction"]


def _log_softmax(input: Any, dim: Any = None, _stacklevel: int = 3, dtype: Any = None) -> None:
    """A signature for ``_bound``: the function's parameters, and nearly those of the method."""


def _bound(function: Callable[..., Any], node: Node) -> dict[str, Any]:
    bound = inspect.signature(function).bind(*node.args, **node.kwargs)
    bound.apply_defaults()
    return bound.arguments


_LOSSES: dict[Any, Callable[[Node], Asked]] = {F.cross_entropy: _cross_entropy, F.nll_loss: _nll_loss}
_LOG_SOFTMAX = frozenset({F.log_softmax, torch.log_softmax, "log_softmax"})
_LINEAR = frozenset({F.linear})


def _linear_arguments(node: Node) -> tuple[Node, Node, Node | None]:
    given = [*node.args, *[node.kwargs.get(name) for name in ("input", "weight", "bias")[len(node.args):]]]
    return given[0], given[1], given[2]  # type: ignore[return-value]


# ---------------------------------------------------------------- between layer and loss
def _shape(node: Node) -> tuple[Any, ...]:
    return tuple(node.meta["example_value"].shape)


def _keeps_rows(node: Node) -> bool:
    """Whether a node leaves each row as it is, though it may select or rearrange rows; its operand has to be its first
    positional argument."""
    value = node.meta.get("example_value")
    if not node.args or not isinstance(node.args[0], Node) or not isinstance(value, torch.Tensor):
        return False
    before, after = node.args[0].meta.get("example_value"), node.meta["example_value"]
    if not isinstance(before, torch.Tensor) or before.shape[-1] != after.shape[-1]:
        return False
    if before.dtype is not after.dtype and after.dtype is not torch.float32 or before.device != after.device:
        return False
    if _BETWEEN.get(node.target) is _view and node.kwargs:
        return False
    return node.target is not operator.getitem or _leaves_last(node.args[1], before.dim())


def _leaves_last(index: Any, dims: int) -> bool:
    """Whether an index takes all of the last dimension, and slices of other dimensions."""
    parts = index if isinstance(index, tuple) else (index,)
    if not all(part is Ellipsis or isinstance(part, slice) for part in parts):
        return False
    if parts[-1] is Ellipsis:
        return True
    return (Ellipsis not in parts and len(parts) < dims) or parts[-1] == slice(None)


Rewritten = tuple[Callable[..., Any], tuple[Any, ...]] | None


def _index(node: Node, inputs: int) -> Rewritten:
    return operator.getitem, (node.args[1],)


def _view(node: Node, inputs: int) -> Rewritten:
    sizes = node.args[1] if isinstance(node.args[1], (tuple, list, torch.Size)) else node.args[1:]
    return torch.reshape, ((*sizes[:-1], inputs),)


def _flatten(node: Node, inputs: int) -> Rewritten:
    given = {"start_dim": 0, "end_dim": -1, **dict(zip(("start_dim", "end_dim"), node.args[1:])), **node.kwargs}
    return torch.flatten, (given["start_dim"], given["end_dim"])


def _nothing(node: Node, inputs: int) -> Rewritten:
    return None


_BETWEEN: dict[Any, Callable[[Node, int], Rewritten]] = {
    operator.getitem: _index, "view": _view, "reshape": _view, torch.reshape: _view, "flatten": _flatten,
    torch.flatten: _flatten, "contiguous": _nothing, "float": _nothing, "to": _nothing}
