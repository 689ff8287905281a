"""export: the one graph of a function, with the function's own signature.

Invariant: the graph module takes what the function takes and gives what it gives; a break is an error.
"""
from __future__ import annotations

import dataclasses
import inspect
import types
from collections.abc import Callable
from typing import Any

import torch
import torch.utils._pytree as pytree

from .. import _eval_frame, exc
from ..convert_frame import Settings
from ..eval_frame import innermost, make_hook


@dataclasses.dataclass
class ExportResult:
    """A function as one graph.

    Attributes:
        graph_module: takes the function's arguments, returns what it returns.
        guards: what has to hold for the graph to be the function, in words.
    """

    graph_module: torch.fx.GraphModule
    guards: list[str]


class _Exported(torch.fx.GraphModule):
    """A graph module with the function's own inputs and outputs."""

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self._rebuild(*args, **kwargs)  # type: ignore[operator]


def export(fn: Callable[..., Any]) -> Callable[..., ExportResult]:
    """``export(fn)(*args)`` captures the function as one graph.

    Args:
        fn: a function or nn.Module whose inputs and outputs are made of tensors, constants and containers.

    Returns:
        a callable that takes example arguments and gives an :class:`ExportResult`.

    Raises:
        exc.Unsupported: when called, if the function can't be captured whole.
    """
    fn = innermost(fn)

    def run(*args: Any, **kwargs: Any) -> ExportResult:
        captured: list[torch.fx.GraphModule] = []
        guards: list[str] = []
        placeholders: list[list[Any]] = []

        def backend(graph: torch.fx.GraphModule, inputs: list[Any]) -> Callable[..., Any]:
            captured.append(graph)

            def call(*tensors: Any) -> Any:
                placeholders.append(list(tensors))
                return graph.forward(*tensors)

            return call

        settings = Settings(
            backend, fullgraph=True, on_entry=lambda artifact: guards.extend(g.text for g in artifact.guards)
        )
        target = types.MethodType(type(fn).__call__, fn) if isinstance(fn, torch.nn.Module) else fn
        result = _eval_frame.CompiledFunction(target, make_hook(settings))(*args, **kwargs)
        if len(captured) != 1:
            raise exc.Unsupported("unsupported_value", f"{len(captured)} graphs where export wants one")
        module = _graph_module(target, captured[0], placeholders[0], args, kwargs, result)
        return ExportResult(module, guards)

    return run


def _graph_module(
    fn: Callable[..., Any],
    graph: torch.fx.GraphModule,
    tensors: list[torch.Tensor],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    result: Any,
) -> torch.fx.GraphModule:
    """The graph rewritten to the function's signature: inputs flattened, outputs unflattened by their structure."""
    leaves, in_spec = pytree.tree_flatten((args, kwargs))
    outputs = graph.forward(*tensors)
    out_leaves, out_spec = pytree.tree_flatten(result)
    module = _Exported(graph, graph.graph)
    positions: list[tuple[str, Any]] = []
    for number, tensor in enumerate(tensors):
        found = next((i for i, leaf in enumerate(leaves) if leaf is tensor), None)
        if found is None:
            name = f"_lifted_{number}"
            if isinstance(tensor, torch.nn.Parameter):
                module.register_parameter(name, tensor)
            else:
                module.register_buffer(name, tensor)
            positions.append(("own", name))
        else:
            positions.append(("leaf", found))
    taken = _outputs_by_position(out_leaves, outputs, leaves)
    signature = inspect.signature(fn)
    code_forward = type(module).__mro__[1].forward if False else module._compiled_forward()

    def rebuild(*new_args: Any, **new_kwargs: Any) -> Any:
        bound = signature.bind(*new_args, **new_kwargs)
        new_leaves, new_spec = pytree.tree_flatten((bound.args, bound.kwargs))
        if new_spec != in_spec and len(new_leaves) != len(leaves):
            raise TypeError(f"the exported function takes inputs of the structure {in_spec}, not {new_spec}")
        values = [new_leaves[at] if kind == "leaf" else getattr(module, at) for kind, at in positions]
        flat = code_forward(*values)
        return pytree.tree_unflatten(
            [flat[at] if kind == "out" else (new_leaves[at] if kind == "leaf" else at) for kind, at in taken], out_spec
        )

    object.__setattr__(module, "_rebuild", rebuild)
    return module


def _outputs_by_position(out_leaves: list[Any], outputs: Any, leaves: list[Any]) -> list[tuple[str, Any]]:
    raise NotImplementedError
