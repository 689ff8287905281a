"""What becomes of a Python function that the traced program calls: a graph node, inlined, or called in plain Python.

Three tables decide, in this order: functions marked by the user, functions by identity, modules by the longest
matching prefix. Anything not in a table is inlined. Users extend the tables with ``allow_in_graph``,
``disallow_in_graph``, ``disable`` and ``config.extra_inline_modules`` / ``extra_skip_modules``, or by torch's names for
the same (``torch_marks``).

Invariant: the decision depends on the function alone, so that it is the same at every call.
"""
from __future__ import annotations

import dataclasses
import enum
import logging
import os
import sys
import types
import weakref
from typing import Any

import torch
import torch.utils.checkpoint
from torch.jit._trace import _script_if_tracing
from torch.nn.modules.lazy import LazyModuleMixin

from . import config, torch_marks


class Rule(enum.Enum):
    """What a call of a function becomes."""

    GRAPH = "a graph node"
    INLINE = "inlined"
    SKIP = "called in plain Python"
    CONSTANT = "called once, while compiling"
    FOLD = "computed while compiling, from constants"
    LATER = "called after the graph, if its arguments are known"
    ASKED = "asked while compiling, and by a guard at every call"


@dataclasses.dataclass(frozen=True)
class Decision:
    """A rule, and for SKIP the kind of break and the reason."""

    rule: Rule
    kind: str = "call_skipped"
    reason: str = ""


# Functions that users marked. Weak, so that marking a function does not keep it.
_marked: weakref.WeakKeyDictionary[Any, Decision] = weakref.WeakKeyDictionary()

# What dynamo_lite.disable made -> what it was made of.
_disabled: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()

_INLINE = Decision(Rule.INLINE)
_GRAPH = Decision(Rule.GRAPH)


def _skip(kind: str, reason: str) -> Decision:
    return Decision(Rule.SKIP, kind, reason)


# Module prefix -> decision for its Python functions. The longest prefix wins.
MODULES: dict[str, Decision] = {
    # torch: what is made of tensor operations goes into the graph as the user wrote it ...
    "torch.nn.functional": _GRAPH,
    "torch.functional": _GRAPH,
    "torch._tensor": _GRAPH,
    "torch.special": _GRAPH,
    "torch.linalg": _GRAPH,
    "torch.fft": _GRAPH,
    "torch._VF": _GRAPH,
    "torch._ops": _GRAPH,
    # ... Python around it is inlined ...
    "torch": _INLINE,
    "torch.nn.modules": _INLINE,
    "torch.amp": _INLINE,
    "torch.autograd.grad_mode": _INLINE,
    "torch.autograd.forward_ad": _skip("functorch", "it acts on dual numbers"),
    "torch.autograd.function": _INLINE,
    # ... and what acts on torch itself is called.
    "torch.autograd": _skip("autograd_in_graph", "it belongs to the autograd engine"),
    "torch._functorch": _skip("functorch", "it runs under a functorch level"),
    "torch._functorch.functional_call": _INLINE,
    "torch.func": _skip("functorch", "it runs under a functorch level"),
    "torch._higher_order_ops": _skip("unsupported_torch_call", "a higher-order operator"),
    "torch._higher_order_ops.associative_scan": _INLINE,
    "torch._higher_order_ops.utils": _INLINE,
    "torch.distributed": _skip("distributed", "processes have to meet at it"),
    "torch.jit": _skip("unsupported_torch_call", "it acts on TorchScript"),
    "torch.fx": _skip("unsupported_torch_call", "it acts on graphs"),
    "torch._dynamo": _skip("call_skipped", "it belongs to torch.compile"),
    "torch._dynamo.external_utils": _INLINE,  # wrappers that call what they are given
    "torch._dynamo._trace_wrapped_higher_order_op": _INLINE,  # a torch function mode that models enter
    "torch._inductor": _skip("call_skipped", "it belongs to torch.compile"),
    "torch.compiler": _skip("call_skipped", "it belongs to torch.compile"),
    "torch.library": _skip("unsupported_torch_call", "it registers operators"),
    "torch._library": _skip("unsupported_torch_call", "it runs custom operators"),
    "torch._library.custom_ops": _INLINE,
    "torch.profiler": _skip("unsupported_torch_call", "it records the program while it runs"),
    "torch.utils.data": _skip("input_output", "it loads data"),
    "torch.utils.checkpoint": _INLINE,
    "torch.serialization": _skip("input_output", "it reads or writes files"),
    "torch.hub": _skip("input_output", "it reads or writes files"),
    "torch.random": _skip("rng_state", "it reads or sets generators"),
    "torch.cuda": _skip("unsupported_torch_call", "it acts on the device"),
    "torch._subclasses": _skip("tensor_subclass", "it acts on tensor subclasses"),
    "torch.nn.parallel": _skip("distributed", "it acts on several devices"),
    "torch.nn.parameter": _skip("unsupported_torch_call", "it makes parameters"),
    "torch.nn.utils.parametrize": _INLINE,
    # Captured, each turn of its search would be a graph of its own. What it calls is captured.
    "torch.optim.lbfgs": _skip("call_skipped", "it computes with numbers that are others each time"),
    # The standard library is Python like any other, except for what reaches beyond the program.
    "logging": _skip("print_or_log", "logging"),
    "warnings": _skip("print_or_log", "a warning"),
    "os": _skip("input_output", "it asks the operating system"),
    "posixpath": _skip("input_output", "it asks the operating system"),
    "genericpath": _skip("input_output", "it asks the operating system"),
    "pathlib": _skip("input_output", "it asks the operating system"),
    "shutil": _skip("input_output", "it asks the operating system"),
    "subprocess": _skip("process_control", "it starts processes"),
    "multiprocessing": _skip("process_control", "it starts processes"),
    "threading": _skip("process_control", "it acts on threads"),
    "concurrent": _skip("process_control", "it acts on threads"),
    "asyncio": _skip("process_control", "it acts on tasks"),
    "signal": _skip("process_control", "it acts on signals"),
    "socket": _skip("input_output", "it acts on sockets"),
    "importlib": _skip("import_statement", "it imports"),
    "random": _skip("rng_state", "Python's random numbers"),
    "pickle": _skip("input_output", "it serializes"),
    "json": _skip("input_output", "it serializes"),
    "re": Decision(Rule.FOLD),
    "traceback": _skip("process_control", "it acts on frames"),
    "inspect": _INLINE,
    "numpy": _skip("numpy_conversion", "NumPy"),
    "unittest": _skip("call_skipped", "a test framework"),
    "pytest": _skip("call_skipped", "a test framework"),
    "_pytest": _skip("call_skipped", "a test framework"),
    "dynamo_lite": _skip("call_skipped", "it belongs to the compiler"),
    "dynamo_lite.polyfills": _INLINE,
}

# Functions that put hooks into modules' tables.
_REGISTER_HOOKS = [
    value for space in (torch.nn.Module, torch.nn.modules.module) for name, value in vars(space).items()
    if name.startswith("register_") and name.endswith("_hook") and isinstance(value, types.FunctionType)
]

# What torch.distributed is asked for, without acting on processes; where torch was built without it, there is the first
# alone.
_ABOUT_PROCESSES = {
    function: Decision(Rule.ASKED, "distributed", "it asks torch.distributed")
    for function in (getattr(torch.distributed, name, None) for name in (
        "is_available", "is_initialized", "get_rank", "get_world_size", "is_torchelastic_launched", "is_nccl_available",
        "is_gloo_available", "is_mpi_available", "is_ucc_available", "is_xccl_available"))
    if function is not None}

# Functions by identity, where their module's row does not fit.
FUNCTIONS: dict[Any, Decision] = {
    torch.nn.functional.multi_head_attention_forward: _INLINE,
    # os.environ is a dict in disguise.
    type(os.environ).__getitem__: _INLINE,
    os.environ.encodekey: _INLINE,
    os.environ.decodevalue: _INLINE,
    os.getenv: _INLINE,
    torch.autograd.Function.apply.__func__: _GRAPH,  # type: ignore[attr-defined]
    torch.utils.checkpoint.checkpoint: _GRAPH,
    torch.compiler.is_compiling: _GRAPH,
    torch.compiler.is_dynamo_compiling: _GRAPH,
    torch.compiler.is_exporting: _GRAPH,
    torch.compiler.cudagraph_mark_step_begin: _GRAPH,
    torch.jit.is_scripting: _GRAPH,
    torch.jit.isinstance: _INLINE,
    torch.jit.is_tracing: _GRAPH,
    torch._jit_internal.is_scripting: _GRAPH,
    torch.overrides.has_torch_function: _GRAPH,
    torch.is_tensor: _GRAPH,
    torch.is_storage: _GRAPH,
    torch._assert: _GRAPH,
    torch._check: _GRAPH,
    torch._check_tensor_all_with: _GRAPH,
    torch.get_default_device: _GRAPH,
    torch.cuda.is_available: _GRAPH,
    torch.cuda.device_count: _GRAPH,
    torch.backends.mkldnn.is_available: _GRAPH,
    torch.amp.autocast_mode.is_autocast_available: _GRAPH,
    torch.are_deterministic_algorithms_enabled: _GRAPH,
    torch.is_deterministic_algorithms_warn_only_enabled: _GRAPH,
    torch.is_warn_always_enabled: _GRAPH,
    torch.set_default_dtype: _GRAPH,
    torch.use_deterministic_algorithms: _skip("torch_state", "it sets torch's state"),
    torch.random.manual_seed: _GRAPH,
    torch.save: _GRAPH,
    torch.load: _GRAPH,
    **dict.fromkeys((
        logging.Logger.debug, logging.Logger.info, logging.Logger.warning, logging.Logger.error,
        logging.Logger.critical, logging.Logger.log, logging.debug, logging.info, logging.warning, logging.error,
        logging.critical, logging.log,
    ), Decision(Rule.LATER, "print_or_log", "it logs")),
    **dict.fromkeys((
        logging.Logger.isEnabledFor, logging.Logger.getEffectiveLevel, logging.Logger.hasHandlers,
    ), Decision(Rule.ASKED, "print_or_log", "logging")),
    torch.nn.parameter.is_lazy: _INLINE,
    **dict.fromkeys(_REGISTER_HOOKS, _skip("call_skipped", "each hook gets a number of its own")),
    torch.utils.hooks.RemovableHandle.remove: _skip("call_skipped", "each hook has a number of its own"),
    LazyModuleMixin._infer_parameters: _skip("unsupported_torch_call", "it initializes parameters, once"),
    torch.vmap: _GRAPH,
    torch.autograd.forward_ad.unpack_dual: _INLINE,
    **dict.fromkeys((
        torch.func.grad, torch.func.grad_and_value, torch.func.jacrev, torch.func.jacfwd, torch.func.hessian,
        torch.func.jvp, torch.func.vjp, torch.func.linearize, torch.func.functionalize,
    ), _GRAPH),
    # ... and what counts its own calls: captured, each would be a graph of its own.
    **dict.fromkeys((
        value.__dict__["step"] for value in vars(torch.optim.lr_scheduler).values()
        if isinstance(value, type) and "step" in value.__dict__
    ), _skip("call_skipped", "a learning rate schedule computes with the number of its steps, without tensors")),
    **_ABOUT_PROCESSES,
    torch.set_default_device: _GRAPH,
    torch.set_float32_matmul_precision: _GRAPH,
    torch.set_default_tensor_type: _GRAPH,
}


# The wrapper that torch.jit.script_if_tracing makes anew for each function: outside of TorchScript it calls that.
_TRACED_CODES = frozenset(
    id(code) for code in _script_if_tracing.__code__.co_consts
    if isinstance(code, types.CodeType) and code.co_name == "wrapper")


def is_library(module: Any) -> bool:
    """Whether a module is torch's or Python's own, whose functions keep their code and whose classes keep their
    bases."""
    return isinstance(module, str) and module.partition(".")[0] in _LIBRARIES


_LIBRARIES = frozenset({"torch", "dynamo_lite", *sys.stdlib_module_names}) - {"__main__", "test"}


def mark(function: Any, decision: Decision) -> None:
    """Decides about one function, past the tables."""
    _marked[function] = decision


def mark_disabled(wrapper: Any, function: Any, reason: str) -> None:
    """Calls of `wrapper` break the graph; it is what the user has made of `function` for that."""
    mark(wrapper, _skip("disabled_function", reason))
    _disabled[wrapper] = function


def below_disabled(function: Any) -> Any:
    """What a function or module under ``disable``, dynamo_lite's or torch's, was made of; else None."""
    own = _disabled.get(function) if isinstance(function, types.FunctionType) else None
    return own or torch_marks.below_disabled(function)


def marked(function: Any) -> Decision | None:
    """What the user decided about a function, functions written in C included."""
    try:
        found = _marked.get(function)
    except TypeError:  # some callables can't be referenced weakly, so nobody can have marked them here
        found = None
    return found or _marked_for_torch(function)


def _marked_for_torch(function: Any) -> Decision | None:
    """What the user decided about a function by torch's names."""
    if torch_marks.is_disallowed(function):
        return _skip("disallowed_function", "torch._dynamo.disallow_in_graph")
    if torch_marks.is_allowed(function):
        return _GRAPH
    return None


def decide(function: types.FunctionType) -> Decision:
    """What a call of a Python function becomes."""
    by_user = _marked.get(function)
    if by_user is not None:
        return by_user
    listed = FUNCTIONS.get(function)
    if listed is None and id(function.__code__) in _TRACED_CODES:
        listed = _INLINE
    if listed is not None:
        return listed
    disabled = torch_marks.disabled(function)
    if disabled is not None:
        return _skip("disabled_function", disabled.reason)
    if getattr(function, torch_marks.FORBIDDEN, False):
        return _skip("disallowed_function", "torch._dynamo.forbid_in_graph")
    if getattr(function, torch_marks.CONSTANT, False):
        return Decision(Rule.CONSTANT)
    return _marked_for_torch(function) or decide_module(_home(function))


def _home(function: types.FunctionType) -> str:
    # functools.wraps copies __module__ from the function inside; what runs is the wrapper, whose globals tell its home.
    home = function.__globals__.get("__name__")
    return home if isinstance(home, str) else ""


def decide_module(name: str) -> Decision:
    """What functions of a module become."""
    best = ""
    decision = _INLINE
    extra = [(m, _INLINE) for m in config.extra_inline_modules]
    extra += [(m, _skip("call_skipped", "config.extra_skip_modules")) for m in config.extra_skip_modules]
    for prefix, rule in [*_candidates(name), *extra]:
        if len(prefix) >= len(best) and (name == prefix or name.startswith(prefix + ".")):
            best, decision = prefix, rule
    return decision


def _candidates(name: str) -> list[tuple[str, Decision]]:
    found = []
    parts = name.split(".")
    for end in range(1, len(parts) + 1):
        prefix = ".".join(parts[:end])
        if prefix in MODULES:
            found.append((prefix, MODULES[prefix]))
    return found


def runs_once(code: types.CodeType, module: str) -> bool:
    """Whether code is torch's own that prepares an object, so that nothing below it is worth to be captured."""
    return (module == "torch" or module.startswith("torch.")) and (
        code.co_name == "__init__" or code in _RUN_ONCE)


_RUN_ONCE = {f.__code__ for f in _REGISTER_HOOKS} | {LazyModuleMixin._infer_parameters.__code__}


# torch's own modules -> whether their frames are captured where a break has left the graph. The longest prefix wins.
# A learning rate schedule computes with the number of its steps: each of its frames would fit one step only.
_FRAMES_OF_TORCH = {"torch": False, "torch.nn": True, "torch.optim": True, "torch.optim.lr_scheduler": False}


def skip_frame_reason(module: str, asked: bool = False) -> str | None:
    """Why frames of a module's functions are never captured from the hook, or None.

    A frame is met by the hook when a captured function called it in plain Python. Libraries that are called rather than
    traced are left alone, as is code without a module of its own.

    Args:
        asked: whether somebody asked for this very function to be compiled, one of torch's own, too.
    """
    decision = decide_module(module)
    if decision.rule is Rule.SKIP:
        return f"functions of {module} are called, not captured: {decision.reason}"
    known = [prefix for prefix in _FRAMES_OF_TORCH if module == prefix or module.startswith(prefix + ".")]
    if known and not asked and not _FRAMES_OF_TORCH[max(known, key=len)]:
        return f"functions of {module} are torch's own"
    return None
