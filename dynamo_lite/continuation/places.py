"""The places in a code object at which its frame can be left.

Invariant: places refer to the user's code, from which resume functions are made, never to a resume function's code.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import CodeType
from typing import NamedTuple

from dynamo_lite.bytecode import roles
from dynamo_lite.bytecode.analysis import Analysis, analyse
from dynamo_lite.bytecode.instructions import Instruction
from dynamo_lite.continuation.origins import ResumeInfo, origin


class BreakSite(NamedTuple):
    """A place to leave a frame: before the first of the instructions that run as a unit.

    Attributes:
        code: the user's code.
        start: index of that instruction in `code`; the stack must be in its state before it.
        analysis: the flow analysis of `code`.
        behind: number of instructions from `start` to the requested one, if the stack differs there; else 0.
    """

    code: CodeType
    start: int
    analysis: Analysis
    behind: int = 0

    @property
    def unit(self) -> list[Instruction]:
        """The instructions that run as a unit: for a call, its preparation and the call itself."""
        end = self.start
        while self.analysis.instructions[end].roles & roles.PREFIX:
            end += 1
        return list(self.analysis.instructions[self.start : end + 1])

    @property
    def needed(self) -> frozenset[str]:
        """Fast locals that may be read from here on: the bound ones must be stored before the break.

        Judged by the user's code: resume code no longer shows that, say, ``locals`` was loaded before the break.
        """
        return self.analysis.live(self.start).intersection(self.analysis.locals)


def break_site(code: CodeType, index: int) -> BreakSite:
    """The place of a break "at" an instruction, which may be any part of a call; `code` may be a resume function's."""
    original, index = origin(code, index)
    analysis = analyse(original)
    asked = index
    while not starts_unit(analysis.instructions, index):
        index -= 1
    half_made = any(i.roles & roles.HALF_MADE for i in analysis.instructions[index:asked])
    return BreakSite(original, index, analysis, asked - index if half_made else 0)


def starts_unit(instructions: Sequence[Instruction], index: int) -> bool:
    """Whether an instruction is the first one of its unit."""
    return not (index and instructions[index - 1].roles & roles.PREFIX)


def unbreakable_places(user_code: CodeType, resumed: ResumeInfo | None) -> frozenset[int]:
    """The instructions before which there can be no break, because the stack or the locals can't be restored there.

    Args:
        resumed: the resume function, made from `user_code`, whose instructions are meant.
    """
    unbreakable = analyse(user_code).unbreakable
    if resumed is None or not unbreakable:
        return unbreakable
    return frozenset(index for index, place in enumerate(resumed.origins) if place in unbreakable)
