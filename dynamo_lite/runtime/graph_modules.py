"""Creates the graph modules of captured graphs.

For tracebacks, torch.fx keeps the source of each module that it generates as long as the process runs.
Invariant: a source is dropped together with the code object that was compiled from it.
"""
from __future__ import annotations

import linecache
import weakref

import torch
from torch import fx
from torch.fx import graph_module as generated


def graph_module(graph: fx.Graph, root: torch.nn.Module | None = None) -> fx.GraphModule:
    """A module that runs the graph, with those attributes of `root` that the graph reads."""
    module = fx.GraphModule(torch.nn.Module() if root is None else root, graph)
    code = module.forward.__code__
    weakref.finalize(code, _forget, code.co_filename).atexit = False
    return module


def _forget(name: str) -> None:
    generated._loader.eval_cache.pop(name, None)
    linecache.cache.pop(name, None)
