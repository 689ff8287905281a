"""Rows of the table of calls (``rules``) that need no implementation here: which modules and functions of torch and
Python become graph nodes, are inlined, or are called in plain Python; and which frames are captured.

Users add to them with ``register_rule``, ``allow_in_graph``, ``disallow_in_graph``, ``disable`` and
``config.extra_inline_modules`` / ``extra_skip_modules``, or with torch's equivalents (``torch_marks``).

Invariant: the decision about a frame depends on its code and module alone.
"""
from __future__ import annotations

import logging
import os
import struct
import sys
import types
import weakref
from typing import Any

import torch
import torch.utils.checkpoint
from torch.jit._trace import _script_if_tracing
from torch.nn.modules.lazy import LazyModuleMixin

from . import torch_marks
from .table import Decision, Rule, breaks, decide, decide_module, mark, module, modules_break, row

__all__ = ["Decision", "Rule", "below_disabled", "decide", "decide_module", "is_library", "mark", "mark_disabled",
           "runs_once", "skip_frame_reason"]

# Functions made by dynamo_lite.disable -> the function that each was made from.
_disabled: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()

# ---------------------------------------------------------------- modules
# torch: functions made of tensor operations go into the graph as the user calls them ...
module(Rule.GRAPH, "torch.nn.functional", "torch.functional", "torch._tensor", "torch.special", "torch.linalg",
       "torch.fft", "torch._VF", "torch._ops", reason="it is made of tensor operations")
# ... Python code around tensor operations is inlined ...
module(Rule.INLINE, "torch", "torch.nn.modules", "torch.amp", "torch.autograd.grad_mode", "torch.autograd.function",
       "torch._functorch.functional_call", "torch._higher_order_ops.associative_scan", "torch._higher_order_ops.utils",
       "torch._library.custom_ops", "torch.utils.checkpoint", "torch.nn.utils.parametrize",
       reason="Python around tensor operations")
module(Rule.INLINE, "torch._dynamo.external_utils", reason="wrappers that call what they are given")
module(Rule.INLINE, "torch._dynamo._trace_wrapped_higher_order_op", reason="a torch function mode that models enter")
# ... and functions that act on torch itself are called in plain Python.
modules_break("functorch", ("torch.autograd.forward_ad", "it acts on dual numbers"),
    ("torch._functorch", "it runs under a functorch level"), ("torch.func", "it runs under a functorch level"))
modules_break("autograd_in_graph", ("torch.autograd", "it belongs to the autograd engine"))
modules_break("unsupported_torch_call", ("torch._higher_order_ops", "a higher-order operator"),
    ("torch.jit", "it acts on TorchScript"), ("torch.fx", "it acts on graphs"),
    ("torch.library", "it registers operators"), ("torch._library", "it runs custom operators"),
    ("torch.profiler", "it records the program while it runs"), ("torch.cuda", "it acts on the device"),
    ("torch.nn.parameter", "it makes parameters"))
modules_break("distributed", ("torch.distributed", "processes have to meet at it"),
    ("torch.nn.parallel", "it acts on several devices"))
modules_break("call_skipped", *((name, "it belongs to torch.compile") for name in (
    "torch._dynamo", "torch._inductor", "torch.compiler")),
    # If its step were captured, each iteration of its search would need a graph of its own. Its callees are captured.
    ("torch.optim.lbfgs", "it computes with numbers that are others each time"))
modules_break("input_output", ("torch.utils.data", "it loads data"),
    ("torch.serialization", "it reads or writes files"), ("torch.hub", "it reads or writes files"))
modules_break("rng_state", ("torch.random", "it reads or sets generators"))
modules_break("tensor_subclass", ("torch._subclasses", "it acts on tensor subclasses"))
# The standard library is Python like any other, except where it acts on something outside the program.
modules_break("print_or_log", ("logging", "logging"), ("warnings", "a warning"))
modules_break("input_output", *((name, "it asks the operating system") for name in (
    "os", "posixpath", "genericpath", "pathlib", "shutil")),
    ("socket", "it acts on sockets"), ("pickle", "it serializes"), ("json", "it serializes"))
modules_break("process_control", ("subprocess", "it starts processes"), ("multiprocessing", "it starts processes"),
    ("threading", "it acts on threads"), ("concurrent", "it acts on threads"), ("asyncio", "it acts on tasks"),
    ("signal", "it acts on signals"), ("traceback", "it acts on frames"))
modules_break("import_statement", ("importlib", "it imports"))
modules_break("rng_state", ("random", "Python's random numbers"))
modules_break("numpy_conversion", ("numpy", "NumPy"))
module(Rule.FOLD, "re", reason="a pattern depends on its text alone")
module(Rule.INLINE, "inspect", reason="it is written in Python")
modules_break("call_skipped", *((name, "a test framework") for name in ("unittest", "pytest", "_pytest")),
    ("dynamo_lite", "it belongs to the compiler"))
module(Rule.INLINE, "dynamo_lite.polyfills", reason="Python equivalents of what is written in C")

# ---------------------------------------------------------------- functions that differ from their module's row
row(Rule.INLINE, torch.nn.functional.multi_head_attention_forward, reason="Python around tensor operations")
row(Rule.INLINE, type(os.environ).__getitem__, os.environ.encodekey, os.environ.decodevalue, os.getenv,
    reason="os.environ is a dict in disguise")
row(Rule.INLINE, torch.jit.isinstance, torch.nn.parameter.is_lazy, torch.autograd.forward_ad.unpack_dual,
    reason="it asks about its arguments alone")
row(Rule.FOLD, os.path.join, os.path.basename, os.path.dirname, os.path.split, os.path.splitext, os.path.normpath,
    os.path.isabs, struct.pack, struct.unpack, struct.calcsize, reason="it depends on its arguments alone")
row(Rule.DEFERRED,
    logging.Logger.debug, logging.Logger.info, logging.Logger.warning, logging.Logger.error, logging.Logger.critical,
    logging.Logger.log, logging.debug, logging.info, logging.warning, logging.error, logging.critical, logging.log,
    kind="print_or_log", reason="it logs")
row(Rule.ASKED, logging.Logger.isEnabledFor, logging.Logger.getEffectiveLevel, logging.Logger.hasHandlers,
    kind="print_or_log", reason="logging")
# Queries of torch.distributed, which do not act on processes. If torch was built without it, only the first one exists.
row(Rule.ASKED, *(getattr(torch.distributed, name) for name in (
    "is_available", "is_initialized", "get_rank", "get_world_size", "is_torchelastic_launched", "is_nccl_available",
    "is_gloo_available", "is_mpi_available", "is_ucc_available", "is_xccl_available")
    if hasattr(torch.distributed, name)), kind="distributed", reason="it asks torch.distributed")
# Functions that add hooks to modules' tables; two of them are evaluated, see ``variables.torch_api.module_hooks``.
_REGISTER_HOOKS = [
    value for space in (torch.nn.Module, torch.nn.modules.module) for name, value in vars(space).items()
    if name.startswith("register_") and name.endswith("_hook") and isinstance(value, types.FunctionType)
]
_EVALUATED = (torch.nn.Module.register_forward_hook, torch.nn.Module.register_forward_pre_hook)
breaks("call_skipped", *(f for f in _REGISTER_HOOKS if f not in _EVALUATED),
       reason="each hook gets a number of its own")
breaks("call_skipped", torch.utils.hooks.RemovableHandle.remove, reason="each hook has a number of its own")
breaks("torch_state", torch.use_deterministic_algorithms, reason="it sets torch's state")
# Methods that count their own calls: if they were captured, each call would need a graph of its own.
breaks("call_skipped", *(
    value.__dict__["step"] for value in vars(torch.optim.lr_scheduler).values()
    if isinstance(value, type) and value.__module__ == "torch.optim.lr_scheduler" and "step" in value.__dict__
), reason="a learning rate schedule computes with the number of its steps, without tensors")
# The wrapper that torch.jit.script_if_tracing creates for each function; outside TorchScript it calls that function.
row(Rule.INLINE, *(code for code in _script_if_tracing.__code__.co_consts
                   if isinstance(code, types.CodeType) and code.co_name == "wrapper"),
    reason="outside of TorchScript it calls the function inside")


def is_library(module: Any) -> bool:
    """Whether a module belongs to torch, dynamo_lite or the standard library. Their functions keep their code, and
    their classes keep their bases."""
    return isinstance(module, str) and module.partition(".")[0] in _LIBRARIES


_LIBRARIES = frozenset({"torch", "dynamo_lite", *sys.stdlib_module_names}) - {"__main__", "test"}


def mark_disabled(wrapper: Any, function: Any, reason: str) -> None:
    """Makes calls of `wrapper` break the graph; it is the object that ``disable`` made from the user's `function`."""
    mark(wrapper, Decision(Rule.SKIP, "disabled_function", reason))
    _disabled[wrapper] = function


def below_disabled(function: Any) -> Any:
    """The function or module from which ``disable`` (dynamo_lite's or torch's) made `function`; None if it did not."""
    own = _disabled.get(function) if isinstance(function, types.FunctionType) else None
    return own or torch_marks.below_disabled(function)


def runs_once(code: types.CodeType, module: str) -> bool:
    """Whether code is torch's own initialization of an object, so that nothing that it calls is worth capturing."""
    return (module == "torch" or module.startswith("torch.")) and (
        code.co_name == "__init__" or code in _RUN_ONCE)


_RUN_ONCE = {f.__code__ for f in _REGISTER_HOOKS} | {LazyModuleMixin._infer_parameters.__code__}


# torch's own modules -> whether their frames are captured when a graph break has left them to plain Python. The longest
# prefix applies. A learning rate schedule computes with its number of steps: each of its frames would fit one step
# only.
_FRAMES_OF_TORCH = {"torch": False, "torch.nn": True, "torch.optim": True, "torch.optim.lr_scheduler": False}


def skip_frame_reason(module: str, asked: bool = False) -> str | None:
    """Why the hook never captures frames of a module's functions; None if it does.

    The hook sees a frame when a captured function has called it in plain Python. Libraries whose functions are called
    rather than traced are left alone, as is code without a module of its own.

    Args:
        asked: whether the program asked to compile this very function, which may be one of torch's own.
    """
    decision = decide_module(module)
    if decision.rule is Rule.SKIP:
        return f"functions of {module} are called, not captured: {decision.reason}"
    known = [prefix for prefix in _FRAMES_OF_TORCH if module == prefix or module.startswith(prefix + ".")]
    if known and not asked and not _FRAMES_OF_TORCH[max(known, key=len)]:
        return f"functions of {module} are torch's own"
    return None
