"""The decision which frames are compiled, and the log messages about those that are not.

A frame that the hook meets is compiled unless a rule says that compiling gains nothing. Invariant: every frame that is
not compiled is counted, and reported in the log with the function's place and the reason.
"""
from __future__ import annotations

import logging
import os
import sysconfig
import types
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch.utils._device import DeviceContext

from .. import exc, log
from .._eval_frame import KEEP_ENTRIES, RUN_ORIGINAL, SKIP, SKIP_RECURSIVE, skip, unskip
from ..bytecode.code_map import CodeMap
from ..bytecode.hidden import two_cells
from ..guards import Guard
from ..guards.source import LocalSource
from ..rules import torch_marks, trace_rules
from ..rules.torch_marks import setting
from ..runtime import in_flight
from ..runtime.function_modes import modes_around
from . import introspection, recompiles, stance
from .descriptions import place
from .entry_record import plain_entry
from .limits import counted_entries
from .request import Frame, Settings, frame_id


class Decision(NamedTuple):
    """The decision about a frame that no cache entry fits.

    Attributes:
        answer: the hook's result: a decision of ``_eval_frame``, or a cache entry. None: the frame is traced.
        reason: why the frame is not traced.
        said: the log level of the reason: INFO logs it once for a function, DEBUG every time, 0 never.
    """

    answer: Any
    reason: str = ""
    said: int = logging.INFO


TRACE = Decision(None, said=0)


def decide(settings: Settings, frame: Frame, function: types.FunctionType) -> Decision:
    """The decision about a frame, taken by the first rule that applies; if none does, the frame is traced. Rules that
    look at the function alone come before those that look at its arguments and at earlier compiles.

    Args:
        function: the function that the frame executes.

    Raises:
        exc.RecompileLimitExceeded: with config.error_on_recompile.
        exc.Unsupported: with fullgraph, for code that can't be compiled.
    """
    for rule in _RULES:
        decision = rule(settings, frame, function)
        if decision is not None:
            if decision.said == logging.INFO:
                note_skipped(frame.user_code, decision.reason)
            elif decision.said:
                log.count("skipped_frames")
                log.artifact("skipped_frames").debug("%s: %s", place(frame.user_code), decision.reason)
            break
    else:
        decision = TRACE
    if settings.on_decision is not None:
        settings.on_decision(frame.user_code, decision.reason)
    return decision


def note_skipped(code: types.CodeType, reason: str) -> None:
    """Counts a frame that runs in plain Python, and logs it once for each reason."""
    log.count("skipped_frames")
    if log.first_time("skipped_frames", (code, reason)):
        log.artifact("skipped_frames").info("%s: %s", place(code), reason)


# ---------------------------------------------------------------- nothing is compiled now
def _compiles_nothing(settings: Settings, frame: Frame, function: types.FunctionType) -> Decision | None:
    if stance.may_compile() and in_flight.may_begin():
        return None
    return Decision(RUN_ORIGINAL, "nothing is compiled now", said=0)


# ---------------------------------------------------------------- disabled by the user
def _is_disabled(settings: Settings, frame: Frame, function: types.FunctionType) -> Decision | None:
    """A function under ``torch.compiler.disable``. The intercepted frame is torch's wrapper; all wrappers share its
    code."""
    found = torch_marks.disabled(function)
    if found is None:
        return None
    if found.recursive:
        return Decision(SKIP_RECURSIVE, found.reason, said=0)
    inner = getattr(found.wrapped, "__code__", None)
    if found.wrapped is None:
        return Decision(SKIP, found.reason, said=logging.DEBUG)
    if inner is not None and (settings.roots is None or settings.roots.get(inner) is None):
        disable_code(inner)
    return Decision(RUN_ORIGINAL, found.reason, said=0)


_disabled: CodeMap[bool] = CodeMap()


def disable_code(code: types.CodeType) -> None:
    """The user has disabled this code, but not the functions that it calls."""
    _disabled.set(code, True)
    skip(code, None, False)


def enable_code(code: types.CodeType) -> None:
    """The user has compiled this code: of two nested decorators the outer one takes effect."""
    if _disabled.get(code) is not None:
        _disabled.pop(code)
        unskip(code, None)


# ---------------------------------------------------------------- code that can't be compiled
def _has_two_cells_of_one_name(settings: Settings, frame: Frame, function: types.FunctionType) -> Decision | None:
    """A comprehension of Python 3.12 and later may make a cell with the name of a free variable of its function."""
    twice = {*frame.user_code.co_cellvars}.intersection(frame.user_code.co_freevars)
    if not twice:
        return None
    reason = two_cells(min(twice))
    if settings.fullgraph:
        raise exc.Unsupported("unsupported_opcode", reason)
    return Decision(SKIP, reason)


# ---------------------------------------------------------------- code that is left alone
# Compiled graphs, and the compiler itself when it works while the program runs, for example on the backward pass of a
# graph that a captured function differentiates. Neither they nor the functions they call belong to the program.
_BACKENDS = "dynamo_lite.backends."
_TORCH_COMPILE = ("torch._dynamo.", "torch._inductor.", "torch._functorch._aot_autograd.")
_CALLED_BY_TORCH = ("__torch_function__", "__torch_dispatch__")


def _is_not_the_programs(settings: Settings, frame: Frame, function: types.FunctionType) -> Decision | None:
    """Code that belongs to a compiler, sets up objects, or is excluded by the rules for modules, as torch is."""
    module, code = str(frame.globals.get("__name__", "")), frame.user_code
    if module.startswith(_BACKENDS):
        return Decision(SKIP_RECURSIVE, "a compiled graph", said=0)
    if module.startswith(_TORCH_COMPILE):
        reason = "torch.compile at work; what it compiles and what it disables is left to it"
        return Decision(SKIP_RECURSIVE, reason, said=logging.DEBUG)
    if not frame.asked and trace_rules.runs_once(code, module):
        return Decision(SKIP_RECURSIVE, "it prepares an object, and so does what it calls", said=logging.DEBUG)
    if not frame.asked and code.co_name in _CALLED_BY_TORCH:
        return Decision(SKIP, "torch calls it, with another of its functions each time", said=logging.DEBUG)
    rule = trace_rules.skip_frame_reason(module, frame.asked)
    if rule is not None and frame.resumed is None:
        return Decision(SKIP, rule, said=logging.DEBUG)
    return None


def _asks_the_interpreter(settings: Settings, frame: Frame, function: types.FunctionType) -> Decision | None:
    """Code that examines the interpreter's own objects. With fullgraph, the trace reports it instead."""
    code, globals = frame.user_code, frame.globals
    reason = introspection.reason_to_leave(code, globals)
    if reason is None or settings.fullgraph:
        return None
    if introspection.counts_objects(code, globals):
        reason = f"{reason}, and what it calls runs as it is, too: compiling that would make some"
        return Decision(SKIP_RECURSIVE, reason)
    return Decision(SKIP, reason)


def _runs_under_modes(settings: Settings, frame: Frame, function: types.FunctionType) -> Decision | None:
    """The frame runs in plain Python this time: a mode of torch's is active that a trace would miss."""
    if torch._C._functorch.peek_interpreter_stack() is not None:
        return Decision(RUN_ORIGINAL, "it runs under a functorch transform")
    if torch._C._get_tracing_state() is not None:
        return Decision(RUN_ORIGINAL, "torch.jit.trace is at work")
    if torch.autograd.forward_ad._current_level >= 0:
        return Decision(RUN_ORIGINAL, "it runs under forward-mode differentiation")
    if torch._C._len_torch_dispatch_stack():
        return Decision(RUN_ORIGINAL, "it runs under a torch dispatch mode")
    devices = sum(isinstance(mode, DeviceContext) for mode in modes_around())
    if devices and devices != torch._C._len_torch_function_stack():
        return Decision(RUN_ORIGINAL, "it runs under a torch function mode and with a default device")
    if len(modes_around()) > devices and not torch._C._is_torch_function_enabled():
        return Decision(RUN_ORIGINAL, "it runs under a torch function mode, and where no __torch_function__ is called")
    return None


# ---------------------------------------------------------------- helpers
_PLAIN_TYPES = frozenset({int, float, complex, bool, str, bytes, type(None)})
_STANDARD_LIBRARY = tuple({
    os.path.normpath(sysconfig.get_paths()[name]) + os.sep for name in ("stdlib", "platstdlib")
})
# A helper that has been compiled this often without an operation to compile is not compiled again.
EMPTY_LIMIT = 2


def _is_tensorless_helper(settings: Settings, frame: Frame, function: types.FunctionType) -> Decision | None:
    """A function that nobody asked to compile, called in plain Python after a break.

    Code that holds no tensor would be traced in vain: the standard library, and functions of numbers and strings that
    do not name torch. Frames of functions that they call are still intercepted.
    """
    if not frame.helper or settings.fullgraph or frame.resumed is not None:
        return None
    code, known = frame.code, frame.known
    if _in_standard_library(code.co_filename):
        return Decision(SKIP, "the standard library, called where a break has left the graph", said=logging.DEBUG)
    if len(known) >= EMPTY_LIMIT and all(entry.code is None for entry in known):
        return Decision(KEEP_ENTRIES, f"{len(known)} compiles of it have found nothing to compile")
    if all(_is_plain(value) for value in frame.args) and not _names_torch(code, frame.closure, frame.globals):
        return Decision(_entry_by_types(frame), "a function of plain values, called where a break has left the graph")
    return None


def _in_standard_library(filename: str) -> bool:
    if filename.startswith("<frozen "):
        return True
    return filename.startswith(_STANDARD_LIBRARY) and "site-packages" not in filename


def _is_plain(value: Any) -> bool:
    return type(value) in _PLAIN_TYPES or (type(value) in (tuple, dict) and not value)


def _names_torch(
    code: types.CodeType, closure: tuple[types.CellType, ...] | None, globals: dict[str, Any]
) -> bool:
    """Whether a name in the function refers to a tensor, a module or torch itself."""
    for name in code.co_names:
        if _is_torch(globals.get(name)):
            return True
    for cell in closure or ():
        try:
            value = cell.cell_contents
        except ValueError:
            continue
        harmless = _is_plain(value) or issubclass(type(value), (type, types.FunctionType, types.ModuleType))
        if not harmless or _is_torch(value):
            return True
    return any(isinstance(c, types.CodeType) and _names_torch(c, None, globals) for c in code.co_consts)


# Types whose instances have a ``__module__`` of their own.
_NAMING_THEIR_MODULE = (type, types.FunctionType, types.BuiltinFunctionType)


def _is_torch(value: Any) -> bool:
    cls = type(value)  # isinstance() and getattr() might run code of the user's objects
    if issubclass(cls, (torch.Tensor, torch.nn.Module)):
        return True
    for kind in (list, tuple, dict):
        if issubclass(cls, kind):
            return kind.__len__(value) > 0
    if issubclass(cls, types.ModuleType):
        home = object.__getattribute__(value, "__dict__").get("__name__")
    else:
        home = value.__module__ if cls in _NAMING_THEIR_MODULE else cls.__module__
    return type(home) is str and (home == "torch" or home.startswith("torch."))


def _entry_by_types(frame: Frame) -> Any:
    """An entry that runs the frame in plain Python if its arguments have these types."""
    guards = []
    for index, value in enumerate(frame.args):
        source = LocalSource(frame.code.co_varnames[index], index)
        guards.append(Guard(source, "type_is", (type(value),)))
        if type(value) in (tuple, dict):
            guards.append(Guard(source, "len", (0,)))
    return plain_entry(guards, None)


# ---------------------------------------------------------------- recompile limit
def _is_at_the_limit(settings: Settings, frame: Frame, function: types.FunctionType) -> Decision | None:
    """The function has as many entries as config allows: a frame that fits none runs in plain Python."""
    if counted_entries(frame) < setting("recompile_limit"):
        return None
    with log.frame(frame_id(frame.code)):
        recompiles.note_limit(frame)
        note_skipped(frame.user_code, _LIMIT)
    return Decision(KEEP_ENTRIES, _LIMIT, said=0)


_LIMIT = "config.recompile_limit is reached"
_Rule = Callable[[Settings, Frame, types.FunctionType], Decision | None]
_RULES: tuple[_Rule, ...] = (
    _compiles_nothing, _is_disabled, _is_not_the_programs, _has_two_cells_of_one_name, _asks_the_interpreter,
    _runs_under_modes, _is_tensorless_helper, _is_at_the_limit,
)
