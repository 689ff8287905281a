"""The inputs of a compile's phases: the intercepted frame, the settings, and the request for a trace.

Invariant: none of these changes once it is made. The findings of a trace reach the next one in a new request.
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
    """What a compile of a frame is asked for.

    Args:
        compile_graph: the backend, already bound to its options.
        fullgraph: whether a break is an error.
        dynamic: whether sizes are symbols: None: those that have changed between calls.
        kept_files: where the backend keeps files, if it does.
        roots: the functions that were asked to be compiled; others are helpers, see ``decide``. None: all were.
        on_graph: told of every graph, for reports.
        on_break: told of every break.
        on_entry: told of every cache entry, by its EntryRecord.
        break_at: whether to break before an instruction of the user's code, besides where it is necessary. To find a
            fault by halves, and for tests.
    """

    compile_graph: CompileGraph
    fullgraph: bool = False
    roots: CodeMap[bool] | None = None
    on_graph: Callable[[Any], None] | None = None
    on_break: Callable[[exc.Unsupported], None] | None = None
    on_entry: Callable[[Any], None] | None = None
    break_at: Callable[[types.CodeType, int], bool] | None = None
    dynamic: bool | None = None
    kept_files: KeptFiles | None = None


class Frame:
    """A frame that no cache entry fits.

    Attributes:
        code: its code; that of a resume function, if it goes on after a break.
        globals, builtins, closure: of its function.
        args: its first locals, one per parameter, ``*args`` as a tuple, ``**kwargs`` as a dict.
        resumed: what the resume function was made from.
        user_code: the code that the user wrote.
        asked: whether it was asked for by itself.
        helper: whether others were asked for, and not this one.
        known: the entries of its code.
        called_from_handler: whether a caller handles an exception.
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
        # Nothing between the hook and here handles one of its own.
        self.called_from_handler = sys.exception() is not None

    @property
    def values(self) -> tuple[Any, ...]:
        """What a guard program is given."""
        return self.args, self.closure, self.globals, self.builtins

    @property
    def parameters(self) -> tuple[str, ...]:
        """The names of its arguments."""
        return self.code.co_varnames[: len(self.args)]

    def origin(self, index: int) -> int:
        """The instruction of the user's code that one of its code was made from; -1 in the prologue of a resume
        function."""
        return index if self.resumed is None else self.resumed.origins[index]

    def prologue(self) -> int:
        """How many instructions set it up, where there is no state to break at."""
        if self.resumed is not None:
            return next(i for i, at in enumerate(self.resumed.origins) if at >= 0)
        return decode(self.code).first_index


class TraceRequest(NamedTuple):
    """What a frame is traced for.

    Attributes:
        dynamic: the paths of values that have been seen to change from call to call.
        learned: of sizes of tensors that earlier compiles have not met.
        changed_names: the names of tensors in the user's code whose elements have been seen to change.
        kept: of `dynamic`, floats that are not to be guarded by value whatever is done with them.
        fits_all: whether none of them may be guarded by value any more.
        graphless: the compiles of this code, if none has given a graph.
        readers: the paths of tensors that are guarded by their elements from the beginning, and the functions that
            asked for these.
        break_visit: the instruction that the root runs as the n-th, before which to break; None: none, and below 0
            nothing can be captured.
        error: why it breaks there.
        steps_back: by how many instructions a break has been made earlier for want of a way to leave the frame.
        faults: how often the evaluator itself has failed.
        captures: whether numbers and sizes that elements decide are kept in the graph, whatever the settings.
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

    def before(self, visit: int | None, error: exc.Unsupported | None) -> TraceRequest:
        """The same, with a break before an instruction; None: there is none."""
        return self._replace(break_visit=-1 if visit is None else visit, error=error)


# ---------------------------------------------------------------- numbers for logs
# By code object: the frame's number, and those of its compiles.
_numbers: CodeMap[tuple[int, Iterator[int]]] = CodeMap()
_next_frame = itertools.count()
# Taken again by what a signal's handler or a finalizer runs in the middle of its holder.
_numbers_lock = threading.RLock()
# A fork may happen while another thread, which the child does not have, holds it.
os.register_at_fork(after_in_child=_numbers_lock._at_fork_reinit)  # type: ignore[attr-defined]


def frame_id(code: types.CodeType) -> str:
    """A name for a compile: ``3/1`` is the second of the fourth code object."""
    with _numbers_lock:
        known = _numbers.get(code)
        if known is None:
            known = next(_next_frame), itertools.count()
            _numbers.set(code, known)
        return f"{known[0]}/{next(known[1])}"


def reset_numbers() -> None:
    """Frames are numbered from zero again."""
    global _next_frame
    with _numbers_lock:
        _numbers.clear()
        _next_frame = itertools.count()
