"""Where in its code a frame can be left, and what is on the stack there.

Invariant: places are instructions of the code that is asked about, which may be a resume function's; what is known of
them is known of the user's code.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import CodeType

from dynamo_lite.bytecode.analysis import analyse
from dynamo_lite.bytecode.stack import SAVED, StackKind
from dynamo_lite.continuation.resume import is_resume_code, origin


def closed_places(code: CodeType) -> frozenset[int]:
    """The instructions of `code` before which there can be no break: what is on the stack or in the locals there can't
    be brought there again."""
    info = is_resume_code(code)
    if info is None:
        return analyse(code).closed
    closed = analyse(info.original).closed
    return frozenset(index for index, place in enumerate(info.origins) if place in closed) if closed else closed


def slot_kinds(code: CodeType, index: int, kinds: Sequence[StackKind]) -> list[StackKind]:
    """The kinds of what is on the stack before an instruction: `kinds`, which say how each slot is filled, and which of
    these hold what an inlined comprehension has saved."""
    code, index = origin(code, index)
    stack = analyse(code).stacks[index]
    assert stack is not None
    return [SAVED if known is SAVED else kind for known, kind in zip(stack, kinds, strict=True)]
