"""The inputs of a compile's phases: the intercepted frame, the settings, and the request for a trace.

Invariant: none of these objects changes once it is made. A trace passes its findings to the next in a new request.
"""
from __future__ import annotations

import dataclasses
import itertools
import os
import sys
import threading
import types
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import torch

from .. import exc
from .._eval_frame import FrameHook, GuardedCode, entries
from ..backends.registry import KeptFiles
from ..bytecode.code_map import CodeMap
from ..bytecode.instructions import decode
from ..continuation.origins import is_resume_code
from ..variables.tensors.symbolic_sizes import SizesLearned

CompileGraph = Callable[[torch.fx.GraphModule, list[Any]], Callable[..., Any]]


@dataclasses.dataclass
class Settings:
    """The settings of a compile.

    Args:
        compile_graph: the backend, already bound to its options.
        fullgraph: whether a break is an error.
        dynamic: which sizes are symbolic. True: all; False: none; None: those that have changed between calls.
        kept_files: the folder in which the backend keeps files; None: it keeps none.
        roots: the functions that the user asked to compile; others are helpers, see ``decide``. None: all are roots.
        on_graph: told of every graph, for reports.
        on_break: told of every break.
        on_entry: told of every cache entry, with its EntryRecord.
        on_decision: told of every frame that no entry fits, with its code and why it runs in plain Python; "" if it
            is traced.
        break_at: whether to break before an instruction of the user's code where no break is necessary. Used to find a
            fault by bisection, and in tests.
    """

    compile_graph: CompileGraph
    fullgraph: bool = False
    roots: CodeMap[bool] | None = None
    on_graph: Callable[[Any], None] | None = None
    on_break: Callable[[exc.Unsupported], None] | None = None
    on_entry: Callable[[Any], None] | None = None
    on_decision: Callable[[types.CodeType, str], None] | None = None
    break_at: Callable[[types.CodeType, int], bool] | None = None
    dynamic: bool | None = None
    kept_files: KeptFiles | None = None


class Frame:
    """A frame that fits no cache entry.

    Attributes:
        code: the frame's code; after a break, that of a resume function.
        globals, builtins, closure: those of its function.
        args: its first locals, one per parameter, ``*args`` as a tuple, ``**kwargs`` as a dict.
        resumed: the origin of the resume function.
        user_code: the code that the user wrote.
        asked: whether the user asked to compile this function itself.
        helper: whether the user asked to compile other functions, but not this one.
        known: the cache entries of its code.
        called_from_handler: whether a caller is handling an exception.
    """

    __slots__ = (
        "args", "asked", "builtins", "called_from_handler", "closure", "code", "globals", "helper", "known", "resumed",
        "user_code")

    def __init__(
        self,
        settings: Settings,
        hook: FrameHook | None,
        code: types.CodeType,
        globals: dict[str, Any],
        builtins: dict[str, Any],
        closure: tuple[types.CellType, ...] | None,
        args: tuple[Any, ...],
    ) -> None:
        self.code = code
        self.globals = globals
        self.builtins = builtins
        self.closure = closure
        self.args = args
        self.resumed = is_resume_code(code)
        self.user_code = code if self.resumed is None else self.resumed.original
        roots = settings.roots
        self.asked = roots is not None and roots.get(self.user_code) is not None
        self.helper = roots is not None and not self.asked
        self.known: list[GuardedCode] = entries(code, hook)
        # No code between the hook and this line is handling an exception of its own.
        self.called_from_handler = sys.exception() is not None

    @property
    def values(self) -> tuple[Any, ...]:
        """The inputs of a guard program."""
        return self.args, self.closure, self.globals, self.builtins

    @property
    def parameters(self) -> tuple[str, ...]:
        """The names of its arguments."""
        return self.code.co_varnames[: len(self.args)]

    def origin(self, index: int) -> int:
        """The index in the user's code of the instruction from which instruction `index` of `code` was made; -1 in the
        prologue of a resume function."""
        return index if self.resumed is None else self.resumed.origins[index]

    def prologue(self) -> int:
        """Number of instructions that set the frame up, at which no break is possible."""
        if self.resumed is not None:
            return next(i for i, at in enumerate(self.resumed.origins) if at >= 0)
        return decode(self.code).first_index


class TraceRequest(NamedTuple):
    """The request for a trace of a frame.

    Attributes:
        dynamic: the paths of values that have been seen to change from call to call.
        learned: knowledge from earlier compiles that predicts which sizes of tensors they have not met will change.
        changed_names: the names of tensors in the user's code whose elements have been seen to change.
        kept: those paths of `dynamic` that hold floats which must not be guarded by value, however they are used.
        fits_all: whether no value of `dynamic` may be guarded by value any more.
        graphless: number of compiles of this code, if none of them has produced a graph.
        readers: the paths of tensors that are guarded by their elements from the start, and for each the functions
            that read its elements.
        break_visit: n, to break before the n-th instruction that the root executes; None: no such break; negative:
            nothing can be captured.
        error: the reason for this break.
        steps_back: by how many instructions the break has been moved back because the frame could not be left later.
        faults: how often the evaluator itself has failed.
        captures: whether numbers and sizes that depend on elements are kept in the graph, whatever the settings.
        selected_at: instructions of the root at which ``x[mask]`` is selected at once; None: everywhere.
    """

    frame: Frame
    dynamic: frozenset[Any] = frozenset()
    changed_names: frozenset[str] = frozenset()
    kept: frozenset[Any] = frozenset()
    fits_all: bool = False
    graphless: int = 0
    readers: Mapping[Any, frozenset[types.CodeType]] = types.MappingProxyType({})
    break_visit: int | None = None
    error: exc.Unsupported | None = None
    steps_back: int = 0
    faults: int = 0
    learned: SizesLearned = SizesLearned()
    captures: bool = False
    selected_at: frozenset[int] | None = frozenset()

    def before(self, visit: int | None, error: exc.Unsupported | None) -> TraceRequest:
        """The request with a break before instruction `visit`; None: nothing can be captured."""
        return self._replace(break_visit=-1 if visit is None else visit, error=error)


# ---------------------------------------------------------------- numbers for logs
# For each code object: the frame's number, and the numbers of its compiles.
_numbers: CodeMap[tuple[int, Iterator[int]]] = CodeMap()
_next_frame = itertools.count()
# Reentrant: a signal handler or finalizer that interrupts the holder may take it again.
_numbers_lock = threading.RLock()
# A fork may happen while another thread, which the child does not have, holds it.
os.register_at_fork(after_in_child=_numbers_lock._at_fork_reinit)  # type: ignore[attr-defined]


def frame_id(code: types.CodeType) -> str:
    """A name for a compile: ``3/1`` is the second compile of the fourth code object."""
    with _numbers_lock:
        known = _numbers.get(code)
        if known is None:
            known = next(_next_frame), itertools.count()
            _numbers.set(code, known)
        return f"{known[0]}/{next(known[1])}"


def reset_numbers() -> None:
    """Restarts the numbering of frames at zero."""
    global _next_frame
    with _numbers_lock:
        _numbers.clear()
        _next_frame = itertools.count()
