"""explain: a report of the graphs that a call captures, of its graph breaks and their reasons.

Invariant: the function runs once, with its effects, through a hook of its own; nothing compiled here is used by others.
"""
from __future__ import annotations

import dataclasses
import types
from collections.abc import Callable
from typing import Any

import torch

from .. import _eval_frame, exc, log
from ..bytecode.code_map import CodeMap
from ..frame import callers, stance
from ..frame.eval_frame import innermost, make_hook
from ..frame.request import Settings


@dataclasses.dataclass
class ExplainOutput:
    """The graphs and graph breaks of one call. ``str()`` of it is a report.

    Attributes:
        graph_count: graphs compiled.
        graph_break_count: places at which the program left a graph.
        op_count: operations in all graphs.
        break_reasons: the breaks, each with its reason and the user's stack.
        graphs: the graphs.
        guards: the guards of each compiled frame, in words.
        compile_times: seconds by phase.
        result: what the call returned.
    """

    graph_count: int
    graph_break_count: int
    op_count: int
    break_reasons: list[exc.Unsupported]
    graphs: list[torch.fx.GraphModule]
    guards: list[str]
    compile_times: dict[str, float]
    result: Any

    def __str__(self) -> str:
        plain = stance.reason_for_plain()
        lines = [] if plain is None else [f"Everything runs in plain Python: {plain}"]
        lines += [
            f"Graphs: {self.graph_count}",
            f"Graph breaks: {self.graph_break_count}",
            f"Operations: {self.op_count}",
        ]
        for number, reason in enumerate(self.break_reasons, 1):
            lines.append(f"Break {number}:")
            lines.extend(f"  {line}" for line in str(reason).splitlines())
        for number, graph in enumerate(self.graphs, 1):
            nodes = [n for n in graph.graph.nodes if n.op.startswith("call")]
            names = ", ".join(_target(n) for n in nodes[:8]) + (", ..." if len(nodes) > 8 else "")
            lines.append(f"Graph {number}: {len(nodes)} operation{'' if len(nodes) == 1 else 's'}: {names}")
        lines.append(f"Guards: {len(self.guards)}")
        lines.extend(f"  {guard}" for guard in self.guards)
        lines.append("Compile seconds: " + ", ".join(f"{k} {v:.3f}" for k, v in self.compile_times.items()))
        return "\n".join(lines)


def _target(node: torch.fx.Node) -> str:
    return node.target if isinstance(node.target, str) else getattr(node.target, "__name__", str(node.target))


def explain(fn: Callable[..., Any]) -> Callable[..., ExplainOutput]:
    """``explain(fn)(*args)`` runs the function once and reports what was captured.

    Args:
        fn: a function or nn.Module.

    Returns:
        a callable that takes the function's arguments and gives an :class:`ExplainOutput`.

    Raises:
        TypeError: `fn` can't be called.
    """
    fn = innermost(fn)
    if not callable(fn):
        raise TypeError(f"explain takes a function or an nn.Module, not {fn!r}")

    def run(*args: Any, **kwargs: Any) -> ExplainOutput:
        graphs: list[torch.fx.GraphModule] = []
        breaks: list[exc.Unsupported] = []
        guards: list[str] = []
        settings = Settings(
            lambda graph, inputs: graph.forward,
            on_graph=graphs.append,
            on_break=breaks.append,
            on_entry=lambda record: guards.extend(g.text for g in record.guards),
            roots=CodeMap(),
        )
        target = callers.caller_of_callable(fn) if callers.has_no_frame(fn) else fn
        code = callers.code_of(target)
        if settings.roots is not None and code is not None:
            settings.roots.set(code, True)  # all else is looked at as compile does: helpers are left alone
        if isinstance(fn, torch.nn.Module):
            target = types.MethodType(type(fn).__call__, fn)
        with log.collect_phases() as times:
            result = _eval_frame.CompiledFunction(target, make_hook(settings))(*args, **kwargs)
        operations = sum(n.op.startswith("call") for g in graphs for n in g.graph.nodes)
        return ExplainOutput(len(graphs), len(breaks), operations, breaks, graphs, guards, dict(times), result)

    return run
