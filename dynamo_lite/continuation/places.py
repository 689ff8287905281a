"""Where in its code a frame can be left.

Invariant: places are instructions of the code that is asked about, which may be a resume function's; what is known of
them is known of the user's code.
"""

from __future__ import annotations

from types import CodeType

from dynamo_lite.bytecode.analysis import analyse
from dynamo_lite.continuation.resume import is_resume_code


def closed_places(code: CodeType) -> frozenset[int]:
    """The instructions of `code` before which there can be no break: what is on the stack or in the locals there can't
    be brought there again."""
    info = is_resume_code(code)
    if info is None:
        return analyse(code).closed
    closed = analyse(info.original).closed
    return frozenset(index for index, place in enumerate(info.origins) if place in closed) if closed else closed
