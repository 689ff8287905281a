"""The origin of each resume function: the user's code, and the instruction of it that each instruction stands for.

Invariant: nothing here keeps the user's code alive, which owns the cache entries that hold the resume functions.
"""
from __future__ import annotations

import weakref
from dataclasses import dataclass, field
from types import CodeType

from dynamo_lite.bytecode.code_map import CodeMap
from dynamo_lite.bytecode.instructions import decode
from dynamo_lite.bytecode.stack import Stack


@dataclass(frozen=True, eq=False)
class ResumeInfo:
    """The origin of a resume code object.

    The original is not kept alive: it owns the cache entries whose guarded code holds the resume code.
    """

    original_ref: weakref.ref[CodeType]
    # the index of the instruction of `original` at which it resumes
    index: int
    # the stack that the prologue pushes, bottom first; each VALUE, PREV_EXC and SAVED slot has a parameter
    stack: Stack
    # locals passed as parameters (first in the signature, in the original's order); other locals start unbound
    carried: tuple[str, ...]
    # those of `carried` for which UNBOUND may be passed
    uncertain: frozenset[str]
    # cells that are kept alive for their contents, though no instruction names them
    kept_cells: frozenset[str]
    # all parameters of the resume code
    parameters: tuple[str, ...]
    # instruction index in the resume code -> index in `original`; -1 in the prologue
    origins: tuple[int, ...]
    # parameters that are known to hold numbers which differ from call to call (``note_numbers``)
    numbers: set[str] = field(default_factory=set)

    @property
    def original(self) -> CodeType:
        """The user's code."""
        code = self.original_ref()
        assert code is not None, "a resume function runs in calls of its original only"
        return code

    @property
    def label(self) -> str:
        """Its name in logs."""
        offset = decode(self.original).instructions[self.index].offset
        return f"__resume_at_{offset}_{self.original.co_name}"


_infos: CodeMap[ResumeInfo] = CodeMap()


def note_origin(code: CodeType, info: ResumeInfo) -> None:
    """Records that `code` belongs to a resume function."""
    _infos.set(code, info)


def is_resume_code(code: CodeType) -> ResumeInfo | None:
    """The origin of a resume function's code, or None. A resume function whose original no longer exists counts as an
    ordinary function."""
    info = _infos.get(code)
    return info if info is not None and info.original_ref() is not None else None


def resume_label(code: CodeType) -> str:
    """A name for logs: ``__resume_at_<offset>_<function>``; ordinary code has its own name."""
    info = is_resume_code(code)
    return code.co_name if info is None else info.label


def origin(code: CodeType, index: int) -> tuple[CodeType, int]:
    """The user's code object and instruction for an instruction of `code`, which may be resume code."""
    info = is_resume_code(code)
    if info is None:
        return code, index
    original_index = info.origins[index]
    assert original_index >= 0, "the prologue of a resume function is no place for a break"
    return info.original, original_index
