"""dynamo_lite: a just-in-time compiler for PyTorch programs.

Apply ``@dynamo_lite.compile`` to a function, or call ``dynamo_lite.compile(model)``. The other names are settings,
marks for functions and tensors, and tools for inspection.
"""
import sys as _sys

if "t" in getattr(_sys, "abiflags", ""):
    raise ImportError("dynamo_lite needs the global interpreter lock; free-threaded builds of Python are not supported")

import torch as _torch

from .torch_versions import refusal as _refusal

if _why := _refusal(_torch.__version__):
    raise ImportError(_why)

from .runtime.collector import importing as _importing

with _importing():
    from . import _guards, config, exc
    from .backends import list_backends, lookup_backend, register_backend
    from .backends.metrics import metrics, reset_metrics
    from .debug import ExplainOutput, ExportResult, explain, export, generated_code
    from .frame.eval_frame import compile, reset
    from .frame.marks import (
        allow_in_graph,
        assume_constant_result,
        disable,
        disallow_in_graph,
        graph_break,
        is_compiling,
        mark_dynamic,
        mark_static,
        mark_unbacked,
        maybe_mark_dynamic,
        run,
    )
    from .frame.stance import set_stance
    from .log import set_logs
    from .rules.table import RuleError
    from .rules.user import register_rule, remove_rule, rule

_guards.init_torch(_torch)

__version__ = "0.1.0"

__all__ = [
    "ExplainOutput", "ExportResult", "RuleError", "allow_in_graph", "assume_constant_result", "compile", "config",
    "disable", "disallow_in_graph", "exc", "explain", "export", "generated_code", "graph_break", "is_compiling",
    "list_backends", "lookup_backend", "mark_dynamic", "mark_static", "mark_unbacked", "maybe_mark_dynamic",
    "metrics", "register_backend", "register_rule", "remove_rule", "reset", "reset_metrics", "rule", "run", "set_logs",
    "set_stance",
]
