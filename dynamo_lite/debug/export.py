"""export: captures a function as a single graph that keeps the function's signature.

Invariant: the graph module takes what the function takes and gives what it gives; a break is an error.
"""
from __future__ import annotations

import contextlib
import dataclasses
import inspect
import types
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.utils._pytree as pytree

from .. import _eval_frame, exc
from ..backends import lookup_backend
from ..continuation.deoptimize import copies, put_back, random_state, set_random_state
from ..frame import callers, stance
from ..frame.entry_record import EntryRecord
from ..frame.eval_frame import innermost, make_hook
from ..frame.request import Settings
from ..runtime.graph_calls import Draw
from ..runtime.graph_modules import graph_module
from ..variables.constant import is_constant_value


@dataclasses.dataclass
class ExportResult:
    """A function that was captured as a single graph.

    Attributes:
        graph_module: takes the function's arguments and returns the function's results.
        guards: the conditions under which the graph is equivalent to the function, in words.
    """

    graph_module: torch.fx.GraphModule
    guards: list[str]


def export(fn: Callable[..., Any], *, aten_graph: bool = False) -> Callable[..., ExportResult]:
    """``export(fn)(*args)`` captures the function as one graph.

    The function runs once; its writes to tensors' elements and its use of random number generators are undone.

    Args:
        fn: a function or nn.Module whose inputs and outputs are made of tensors, constants and containers.
        aten_graph: record the graph's torch calls as aten operations without effects; writes to inputs come last, as
            ``aten.copy_``.

    Returns:
        a callable that takes example arguments and gives an :class:`ExportResult`.

    Raises:
        TypeError: `fn` can't be called.
        exc.Unsupported: when called, if the function can't be captured whole, or its graph not be written so.
    """
    fn = innermost(fn)
    if not callable(fn):
        raise TypeError(f"export takes a function or an nn.Module, not {fn!r}")

    def run(*args: Any, **kwargs: Any) -> ExportResult:
        if stance.reason_for_plain() is not None:
            raise exc.DynamoLiteError(f"export has nothing to capture: {stance.reason_for_plain()}")
        captured: list[tuple[torch.fx.GraphModule, Any, Any]] = []
        guards: list[str] = []

        def backend(graph: torch.fx.GraphModule, inputs: list[Any]) -> Callable[..., Any]:
            module = _as_aten(graph, inputs) if aten_graph else graph

            def call(*tensors: Any) -> Any:
                with _unchanged(graph, tensors):
                    outputs = module.forward(*tensors)
                captured.append((module, tensors, outputs))
                return outputs

            return call

        def note(record: EntryRecord) -> None:
            guards.extend(guard.text for guard in record.guards)
            if record.changed:
                names = ", ".join(record.changed)
                raise exc.Unsupported("side_effect_unsupported", f"export of a function that changes {names}")

        settings = Settings(backend, fullgraph=True, on_entry=note, on_decision=_refusing_plain_python())
        target = types.MethodType(type(fn).__call__, fn) if isinstance(fn, torch.nn.Module) else fn
        # The frame of a module's own call is torch's, which is not captured.
        called = target is not fn or callers.has_no_frame(fn)
        framed = callers.caller_of_callable(fn) if called else target
        result = _eval_frame.CompiledFunction(framed, make_hook(settings))(*args, **kwargs)
        # Without an operation on tensors there is no graph, and nothing to compute.
        graph, tensors, outputs = captured[0] if captured else (_empty_graph(), (), ())
        return ExportResult(_with_signature(target, graph, tensors, outputs, args, kwargs, result), guards)

    return run


def _refusing_plain_python() -> Callable[[types.CodeType, str], None]:
    """``Settings.on_decision`` of an export: a result computed in plain Python would be a constant of the graph."""
    first: list[types.CodeType] = []

    def refuse(code: types.CodeType, reason: str) -> None:
        first.append(code)
        # The other frames are those of functions that a function without any operation calls.
        if reason and code is first[0]:
            raise exc.Unsupported(
                "unsupported_torch_call", f"export of what would run in plain Python: {reason}",
                hint="call a lazy module once before, so that it has its parameters, and export outside of torch's "
                     "modes and transforms")

    return refuse


def _as_aten(graph: torch.fx.GraphModule, inputs: list[Any]) -> torch.fx.GraphModule:
    try:
        return lookup_backend("aot_eager").as_module(graph, inputs)
    except Exception as error:
        raise exc.Unsupported("unsupported_torch_call", f"export as aten operations: {error}") from error


@contextlib.contextmanager
def _unchanged(graph: torch.fx.GraphModule, tensors: tuple[Any, ...]) -> Iterator[None]:
    """Runs a graph for its results, then undoes its effects on its inputs and on random number generators."""
    random_from = [node.target.generator for node in graph.graph.nodes if isinstance(node.target, Draw)]
    random = random_state(generators=random_from)
    writes = any(node.meta.get("impure") and node.all_input_nodes for node in graph.graph.nodes)
    saved = copies(tensors, [i for i, t in enumerate(tensors) if isinstance(t, torch.Tensor)] if writes else [])
    try:
        yield
    finally:
        put_back([(tensor, value) for tensor, value in saved if not torch.equal(tensor, value)])
        set_random_state(random)


def _empty_graph() -> torch.fx.GraphModule:
    graph = torch.fx.Graph()
    graph.output(())
    return graph_module(graph)


def _with_signature(
    fn: Callable[..., Any],
    graph: torch.fx.GraphModule,
    tensors: tuple[Any, ...],
    outputs: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    result: Any,
) -> torch.fx.GraphModule:
    """The graph with one placeholder per leaf of the function's arguments, and the result's structure.

    What belongs to the call is told by identity: the tensors that the graph was called with and those that it returned.
    """
    leaves, in_spec = pytree.tree_flatten((args, kwargs))
    out_leaves, out_spec = pytree.tree_flatten(result)
    root = torch.nn.Module()
    new = torch.fx.Graph()
    inputs = [new.placeholder(f"arg_{i}") for i in range(len(leaves))]
    replaced: dict[torch.fx.Node, Any] = {}
    placeholders = [n for n in graph.graph.nodes if n.op == "placeholder"]
    for node, tensor in zip(placeholders, tensors):
        at = next((i for i, leaf in enumerate(leaves) if leaf is tensor), None)
        if at is not None:
            replaced[node] = inputs[at]
            inputs[at].meta.update(node.meta)
        else:
            name = f"lifted_{node.name}"
            if isinstance(tensor, torch.nn.Parameter):
                root.register_parameter(name, tensor)
            else:
                root.register_buffer(name, tensor)
            replaced[node] = new.get_attr(name)
            replaced[node].meta.update(node.meta)
    output_nodes: tuple[Any, ...] = ()
    for node in graph.graph.nodes:
        if node.op == "output":
            output_nodes = node.args[0]
        elif node.op == "get_attr":
            setattr(root, node.target, getattr(graph, node.target))
            replaced[node] = new.node_copy(node)
        elif node.op != "placeholder":
            replaced[node] = new.node_copy(node, lambda n: replaced[n])
    new.output([_output(leaf, outputs, output_nodes, replaced, leaves, inputs) for leaf in out_leaves])
    try:
        names = list(inspect.signature(fn).parameters)[: len(args)]
    except ValueError:  # functions in C have none
        names = []
    info = torch.fx.graph._PyTreeInfo(names if len(names) == len(args) else [f"arg{i}" for i in range(len(args))],
                                      in_spec if kwargs else pytree.tree_flatten(args)[1], out_spec)
    if not kwargs:
        new.set_codegen(torch.fx.graph._PyTreeCodeGen(info))
    else:
        info = torch.fx.graph._PyTreeInfo([*info.orig_args, *kwargs], in_spec, out_spec)
        new.set_codegen(torch.fx.graph._PyTreeCodeGen(info))
    return graph_module(new, root)


def _output(
    leaf: Any, outputs: Any, output_nodes: tuple[Any, ...], replaced: dict[Any, Any], leaves: list[Any],
    inputs: list[Any],
) -> Any:
    for tensor, node in zip(outputs, output_nodes):
        if leaf is tensor:
            return replaced[node]
    for candidate, node in zip(leaves, inputs):
        if leaf is candidate and isinstance(leaf, torch.Tensor):
            return node
    if isinstance(leaf, torch.Tensor):
        raise exc.Unsupported("unsupported_value", "an output that is a tensor from outside the function")
    if not is_constant_value(leaf) and type(leaf) not in (set, range, slice):
        raise exc.Unsupported(
            "unsupported_value", f"an output of type {type(leaf).__qualname__}",
            hint="return tensors, constants, and tuples, lists and dicts of them, or make the class known with "
                 "torch.utils._pytree.register_dataclass or register_pytree_node")
    return leaf
