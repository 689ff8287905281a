"""Which frames are compiled, and what is said of those that are not.

A frame that the hook meets is compiled unless a rule says that nothing is to be won by it. Invariant: whatever is not
compiled is counted, and said in the log with the function's place and the reason.
"""
from __future__ import annotations

import os
import re
import sysconfig
import types
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.utils._device import DeviceContext

from .. import exc, log
from .._eval_frame import KEEP_ENTRIES, RUN_ORIGINAL, SKIP, SKIP_RECURSIVE, GuardedCode, skip, unskip
from .._guards import GuardProgram
from ..bytecode.code_map import CodeMap
from ..bytecode.instructions import decode
from ..bytecode.roles import STORES_NAME
from ..continuation.resume import is_resume_code
from ..guards import Guard, build_program
from ..guards.failures import Frame, Miss, explain_miss
from ..guards.source import LocalSource, TypeAttrSource
from ..rules import torch_marks, trace_rules
from ..rules.torch_marks import setting
from . import changed_values, introspection, stance


def place(code: types.CodeType) -> str:
    """The function in words: its name, file and line."""
    return f"{code.co_qualname} ({code.co_filename}:{code.co_firstlineno})"


_POLYFILLS = "dynamo_lite.polyfills"  # whose `call_module` is the frame of a compiled module


def where(code: types.CodeType, frame: Frame) -> str:
    """The same for a frame's code: for a resume function with the line where it goes on, for a module its class."""
    info = is_resume_code(code)
    if info is not None:
        line = decode(info.original).instructions[info.index].positions[0]
        return place(info.original) + (f", going on at line {line} after a graph break," if line else "")
    if frame[2].get("__name__") == _POLYFILLS and code.co_name == "call_module":
        module = frame[0][0]
        forward = getattr(getattr(type(module), "forward", None), "__code__", None)
        if forward is not None:
            return f"{type(module).__qualname__}.forward ({forward.co_filename}:{forward.co_firstlineno})"
    return place(code)


def _in_users_words(text: str, code: types.CodeType) -> str:
    """A miss in which values that a break has left on the stack are named after what the program does with them."""
    info = is_resume_code(code)
    if info is None:
        return text
    first = decode(info.original).instructions[info.index]
    for slot in range(len(info.stack)):
        stored = slot == len(info.stack) - 1 and first.roles & STORES_NAME
        name = first.argval if stored else f"<a value of line {first.positions[0]}>"
        text = re.sub(rf"\bintermediate_{slot}\b", name, text)
    return text


# ---------------------------------------------------------------- left alone
# A compiled graph, and the compiler at work while the program runs, as for the backward pass of a graph that a captured
# function differentiates: neither they nor what they call are the program's.
_BACKENDS = "dynamo_lite.backends."
_TORCH_COMPILE = ("torch._dynamo.", "torch._inductor.", "torch._functorch._aot_autograd.")
_CALLED_BY_TORCH = ("__torch_function__", "__torch_dispatch__")


def decide(
    code: types.CodeType, user_code: types.CodeType, globals: dict[str, Any], asked: bool, fullgraph: bool
) -> Any:
    """The decision about a frame that is not to be compiled whatever its arguments are; None for the others.

    Args:
        code: the frame's code, resume code included.
        user_code: the code that the user wrote.
        asked: whether it was asked for by itself.
        fullgraph: whether a frame that is not captured is an error, which the trace then finds.
    """
    module = str(globals.get("__name__", ""))
    if module.startswith(_BACKENDS):
        return SKIP_RECURSIVE
    if module.startswith(_TORCH_COMPILE):
        skipped(user_code, "torch.compile at work; what it compiles and what it disables is left to it")
        return SKIP_RECURSIVE
    if trace_rules.runs_once(user_code, module) and not asked:
        skipped(user_code, "it prepares an object, and so does what it calls")
        return SKIP_RECURSIVE
    if user_code.co_name in _CALLED_BY_TORCH and not asked:
        return skipped(user_code, "torch calls it, with another of its functions each time")
    reason = trace_rules.skip_frame_reason(module, asked)
    if reason is not None and is_resume_code(code) is None:
        return skipped(user_code, reason)
    reason = introspection.reason_to_leave(user_code, globals)
    if reason is not None and not fullgraph:
        if introspection.counts_objects(user_code, globals):
            note_skipped(user_code, f"{reason}, and what it calls runs as it is, too: compiling that would make some")
            return SKIP_RECURSIVE
        note_skipped(user_code, reason)
        return SKIP
    if torch._C._functorch.peek_interpreter_stack() is not None:
        return run_plainly(user_code, "it runs under a functorch transform")
    if torch.autograd.forward_ad._current_level >= 0:
        return run_plainly(user_code, "it runs under forward-mode differentiation")
    if torch._C._len_torch_dispatch_stack() or not _only_default_devices():
        return run_plainly(user_code, "it runs under a torch function or dispatch mode")
    return None


def decide_disabled(function: types.FunctionType, roots: CodeMap[bool] | None) -> Any:
    """The decision about a frame of a function under ``torch.compiler.disable``; None for the others.

    What runs first is torch's wrapper, whose code all of these functions share.
    """
    found = torch_marks.disabled(function)
    if found is None:
        return None
    if found.recursive:
        return SKIP_RECURSIVE
    inner = getattr(found.wrapped, "__code__", None)
    if found.wrapped is None:
        return skipped(function.__code__, found.reason)
    if inner is not None and (roots is None or roots.get(inner) is None):
        disable_code(inner)
    return RUN_ORIGINAL


_disabled: CodeMap[bool] = CodeMap()


def disable_code(code: types.CodeType) -> None:
    """The user does not want this code compiled, what it calls left aside."""
    _disabled.set(code, True)
    skip(code, None, False)


def enable_code(code: types.CodeType) -> None:
    """The user does want it compiled: of two decorators the outer one counts."""
    if _disabled.get(code) is not None:
        _disabled.pop(code)
        unskip(code, None)


def _only_default_devices() -> bool:
    """Whether all torch function modes that are on are default devices, which guards compare."""
    at = torch._C._get_function_stack_at
    return all(isinstance(at(i), DeviceContext) for i in range(torch._C._len_torch_function_stack()))


def skipped(code: types.CodeType, reason: str) -> Any:
    """Never asked about again; what it calls still is."""
    log.count("skipped_frames")
    log.artifact("skipped_frames").debug("%s: %s", place(code), reason)
    return SKIP


def run_plainly(code: types.CodeType, reason: str) -> Any:
    """Not now."""
    note_skipped(code, reason)
    return RUN_ORIGINAL


def note_skipped(code: types.CodeType, reason: str) -> None:
    """Counts and logs a frame that runs in plain Python, the latter once for each reason."""
    log.count("skipped_frames")
    if log.first_time("skipped_frames", (code, reason)):
        log.artifact("skipped_frames").info("%s: %s", place(code), reason)


# ---------------------------------------------------------------- helpers
_PLAIN_TYPES = frozenset({int, float, complex, bool, str, bytes, type(None)})
_STANDARD_LIBRARY = tuple({
    os.path.normpath(sysconfig.get_paths()[name]) + os.sep for name in ("stdlib", "platstdlib")
})
# After so many compiles of a helper that found nothing to compile, no more are tried.
EMPTY_LIMIT = 2


def decide_helper(
    code: types.CodeType, known: list[GuardedCode], closure: tuple[types.CellType, ...] | None, globals: dict[str, Any],
    args: tuple[Any, ...],
) -> Any:
    """The decision about a function that nobody asked to compile, called in plain Python after a break; None: compile.

    What holds no tensor would be traced in vain: the standard library, and functions of numbers and texts that do not
    name torch. What they call is looked up all the same.
    """
    if _in_standard_library(code.co_filename):
        return skipped(code, "the standard library, called where a break has left the graph")
    if len(known) >= EMPTY_LIMIT and all(entry.code is None for entry in known):
        note_skipped(code, f"{len(known)} compiles of it have found nothing to compile")
        return KEEP_ENTRIES
    if all(_is_plain(value) for value in args) and not _names_torch(code, closure, globals):
        note_skipped(code, "a function of plain values, called where a break has left the graph")
        return _plain_entry(code, args)
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
    """Whether a tensor, a module or torch itself is in reach by a name of the function."""
    for name in code.co_names:
        if _is_torch(globals.get(name)):
            return True
    for cell in closure or ():
        try:
            value = cell.cell_contents
        except ValueError:
            continue
        harmless = _is_plain(value) or isinstance(value, (type, types.FunctionType, types.ModuleType))
        if not harmless or _is_torch(value):
            return True
    return any(isinstance(c, types.CodeType) and _names_torch(c, None, globals) for c in code.co_consts)


def _is_torch(value: Any) -> bool:
    if isinstance(value, (torch.Tensor, torch.nn.Module, list, tuple, dict)):
        return bool(isinstance(value, (torch.Tensor, torch.nn.Module))) or bool(value)
    home = value.__name__ if isinstance(value, types.ModuleType) else getattr(value, "__module__", None)
    return isinstance(home, str) and (home == "torch" or home.startswith("torch."))


def _plain_entry(code: types.CodeType, args: tuple[Any, ...]) -> GuardedCode:
    """An entry that says: with arguments of these types the frame runs as it is."""
    guards = []
    for index, value in enumerate(args):
        source = LocalSource(code.co_varnames[index], index)
        guards.append(Guard(source, "type_is", (type(value),)))
        if type(value) in (tuple, dict):
            guards.append(Guard(source, "len", (0,)))
    program, texts = build_program(guards, None, [])
    return GuardedCode(program, None, True, extra=Artifact(guards, texts, None, ""))


class Artifact:
    """What a cache entry remembers: its guards, the words for each step of its program, its graph, what it changes
    outside of the function, and for the next compile the paths of values that have changed, and for tensors guarded by
    their elements the functions that read them.
    """

    def __init__(
        self, guards: list[Guard], texts: Sequence[str], graph: torch.fx.GraphModule | None, frame_id: str,
        changing: frozenset[Any] = frozenset(), changed: Sequence[str] = (),
        readers: Mapping[Any, frozenset[types.CodeType]] | None = None,
    ) -> None:
        self.guards = guards
        self.texts = texts
        self.graph = graph
        self.frame_id = frame_id
        self.changing = changing
        self.changed = changed
        self.readers = readers or {}


# ---------------------------------------------------------------- compiled again
_STEPS_TO_LOOK_AT = 200_000  # of guard programs, made anew for each value that has changed


def changing_values(code: types.CodeType, known: list[GuardedCode], frame: Frame) -> frozenset[Any]:
    """The paths of the numbers, lists, objects and tensors' elements whose change kept these entries of a function from
    fitting, now or before."""
    found: set[Any] = set()
    for entry in known:
        found |= entry.extra.changing
        found |= _changed_class_data(entry.extra.guards)
        changed = list(_changed_values(entry, frame))
        by_text = _by_text(entry.extra.guards) if changed else {}
        for text in changed:
            for guard in by_text.get(text, ()):
                found.add(guard.source.key)
                if guard.kind == "tensor_data":
                    changed_values.note(code, guard.source.name, entry.extra.readers.get(guard.source.key, ()))
    return frozenset(found)


def _changed_class_data(guards: Iterable[Guard]) -> set[Any]:
    """The paths of attributes of classes that are others than when these guards were made."""
    found: set[Any] = set()
    for guard in guards:
        if guard.kind == "class_version":
            cls = guard.source.value  # type: ignore[attr-defined]
            now = {name: next((b.__dict__[name] for b in cls.__mro__ if name in b.__dict__), None)
                   for name, _ in guard.expected[0]}
            found.update(TypeAttrSource(guard.source, name).key for name, before in guard.expected[0]
                         if now[name] is not before)
    return found


def _by_text(guards: Iterable[Guard]) -> dict[str, list[Guard]]:
    found: dict[str, list[Guard]] = {}
    for guard in guards:
        found.setdefault(guard.text, []).append(guard)
    return found


def _changed_values(entry: GuardedCode, frame: Frame) -> Iterator[str]:
    """The guards on numbers, lengths and identities that do not hold, up to the first of another kind; of many, as in a
    list of thousands, the first."""
    steps, places = list(entry.program.steps), list(range(len(entry.program.steps)))
    program = entry.program
    for _ in range(max(16, _STEPS_TO_LOOK_AT // len(steps)) if steps else 1):
        held, at = program.check(*frame)
        if held or steps[at][0] not in ("is", "const", "len", "tensor_data"):
            return
        yield entry.extra.texts[places[at]]
        if steps[at][0] == "is":
            return  # of another object, more may differ than what changes
        del steps[at], places[at]
        program = GuardProgram(steps, program.n_inputs, program.n_registers)


def misses(known: list[GuardedCode], frame: Frame) -> list[Miss]:
    """Why each of these entries does not fit, each reason once, the broadest entry first, and the last used."""
    found: dict[str, Miss] = {}
    for entry in sorted(known, key=lambda entry: -entry.breadth):
        miss = explain_miss(entry.program, entry.extra.texts, frame)
        if miss is not None:
            found.setdefault(miss.change, miss)
    return list(found.values())


def limit_reached(code: types.CodeType, known: list[GuardedCode], frame: Frame) -> Any:
    """There are as many entries as config allows: what fits none runs in plain Python."""
    log.count("recompile_limit")
    if log.first_time("recompiles", code) or setting("error_on_recompile"):
        reasons = "; ".join(_in_users_words(str(m), code) for m in misses(known, frame)[:1])
        if setting("error_on_recompile"):
            raise exc.RecompileLimitExceeded(f"{where(code, frame)}: {reasons}")
        log.artifact("recompiles").warning(
            "%s has been compiled config.recompile_limit = %d times; calls that fit none of these run in plain Python. "
            "Last: %s", where(code, frame), setting("recompile_limit"), reasons,
        )
    info = is_resume_code(code)
    note_skipped(code if info is None else info.original, "config.recompile_limit is reached")
    return KEEP_ENTRIES


def note_compile(code: types.CodeType, known: list[GuardedCode], frame: Frame) -> None:
    """Says why a function is compiled, if it has been before.

    Raises:
        exc.RecompileLimitExceeded: with config.error_on_recompile, and under the stance fail_on_recompile.
    """
    if stance.current().name == "fail_on_recompile":
        reasons = "".join(f"; {_in_users_words(str(miss), code)}" for miss in misses(known, frame)[:1])
        raise exc.RecompileLimitExceeded(
            f"{where(code, frame)} would be compiled, and the stance is fail_on_recompile{reasons}")
    if not known:
        return
    log.count("recompiles")
    if not log.enabled("recompiles") and not setting("error_on_recompile"):
        return
    found = misses(known, frame)
    if setting("error_on_recompile"):
        raise exc.RecompileLimitExceeded(f"{where(code, frame)} would be compiled again: {'; '.join(map(str, found))}")
    shown = found if log.enabled("recompiles", 10) else found[:1]
    reasons = "; ".join(_in_users_words(str(miss), code) for miss in shown)
    log.artifact("recompiles").info("%s is compiled again: %s", where(code, frame), reasons)
