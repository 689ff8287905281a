"""Which of their cases tests try: by default a share, all with ``DYNAMO_LITE_TESTS=all``.

Where two properties of a case do not depend on each other, each value of both is tried, but not each pair. Invariant:
which ones are left out is the same in every run, and turns from one row of a table to the next.
"""
from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")

ALL = os.environ.get("DYNAMO_LITE_TESTS") == "all"


def share(cases: Sequence[T], turn: int, of: int = 2) -> Sequence[T]:
    """Every ``of``-th of the cases, the first at ``turn``: another row's number gives others; all of them if asked."""
    return cases if ALL else cases[turn % of :: of]
