"""What resume functions were made from: the user's code, and which of its instructions each of theirs stands for.

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
    """What a resume code object was made from.

    The original is not kept alive: it owns the cache entries whose guarded code holds the resume code.
    """

    original_ref: weakref.ref[CodeType]
    # where it goes on: an instruction of `original`
    index: int
    # what the prologue pushes, bottom first; VALUE, PREV_EXC and SAVED slots have a parameter each
    stack: Stack
    # fast locals that come as parameters (first in the signature, in the original's order); others start unbound
    carried: tuple[str, ...]
    # those of `carried` for which UNBOUND may be passed
    uncertain: frozenset[str]
    # cells that are held for the sake of what they hold, though no instruction names them
    kept_cells: frozenset[str]
    # all parameters of the resume code
    parameters: tuple[str, ...]
    # instruction index in the resume code -> index in `original`; -1 in the prologue
    origins: tuple[int, ...]
    # parameters that hold numbers which differ from call to call, as far as is known (``note_numbers``)
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
    """`code` is a resume function's."""
    _infos.set(code, info)


def is_resume_code(code: CodeType) -> ResumeInfo | None:
    """What a code object was made from, if it is a resume function's, and that still exists; without it, a resume
    function is one like others."""
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
