"""The way from a captured graph to a function, and the fallbacks where it can't be taken.

Invariant: for each graph that runs in eager, the log ``fallbacks`` says why.
"""
from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable
from typing import Any

from torch.fx import GraphModule

from dynamo_lite import exc, log
from dynamo_lite.backends import metrics
from dynamo_lite.backends.aot.graph import AtenGraph
from dynamo_lite.backends.inductor.artifact import Artifact, Call, start
from dynamo_lite.runtime.neutral_state import neutral_state


@dataclasses.dataclass(frozen=True, slots=True)
class Route:
    """How captured graphs are compiled.

    Attributes:
        decompositions: see ``record``.
        build: compiles an aten graph; its second argument is the scopes in which the graph runs (see
            ``write_wrapper``). Returns the function as ``inductor_lite`` describes it, and the artifact to keep, if
            there is one.
    """

    decompositions: dict[Any, Callable[..., Any]]
    build: Callable[[AtenGraph, dict[str, bool]], tuple[Call, Artifact | None]]


@neutral_state()
def start_kept(artifact: Artifact | None) -> Call | None:
    """The function of a kept artifact; None if there is none, or if its library can be neither found nor built."""
    if artifact is None:
        return None
    try:
        return start(artifact)
    except (exc.CompilerMissing, exc.CacheError) as e:
        log.artifact("cache").info("a kept graph is of no use: %s", e)
        return None


def run_eager(gm: GraphModule, reason: str, fault: bool = False) -> Callable[..., Any]:
    """Runs the graph itself, in eager; logs why, once for each reason."""
    if log.first_time("fallbacks", reason):
        log.artifact("fallbacks").log(logging.WARNING if fault else logging.INFO, "a graph runs in eager: %s", reason)
    metrics.count_fallback(reason)
    return gm.forward


def run_as_captured(gm: GraphModule, reason: str) -> Callable[..., Any]:
    """Runs the graph itself, by choice: torch's own calls are at least as fast as compiled code. A front end that finds
    ``gm.meta["as_captured"]``, the reason, may run the program's own bytecode in place of the graph."""
    log.artifact("fallbacks").debug("a graph runs as torch's calls: %s", reason)
    gm.meta["as_captured"] = reason
    return gm.forward
