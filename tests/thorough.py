"""Which of their cases tests try: by default a share, all with ``DYNAMO_LITE_TESTS=all``.

Where two properties of a case do not depend on each other, each value of both is tried, but not each pair. Invariant:
which ones are left out is the same in every run, and turns from one row of a table to the next.
"""
from __future__ import annotations

import collections
import itertools
import os
from collections.abc import Sequence
from typing import TypeVar

import pytest

T = TypeVar("T")

ALL = os.environ.get("DYNAMO_LITE_TESTS") == "all"


def share(cases: Sequence[T], turn: int, of: int = 2) -> Sequence[T]:
    """Every ``of``-th of the cases, the first at ``turn``: another row's number gives others; all of them if asked."""
    return cases if ALL else cases[turn % of :: of]


def left_out(items: Sequence[pytest.Item]) -> set[pytest.Item]:
    """The tests that are not tried of those that are marked ``by_turns(of)``, as all of a module may be: of the pairs
    that two or more ``parametrize`` make, every ``of``-th is tried, another one for the next value of either. A test
    with one ``parametrize`` or none is tried whole.
    """
    cases = collections.defaultdict(list)
    for item in [] if ALL else items:
        if item.get_closest_marker("by_turns") and isinstance(item, pytest.Function):
            cases[item.function].append(item)
    found = set()
    for tests in cases.values():
        parametrized = list(tests[0].iter_markers("parametrize"))
        if len(parametrized) > 1:
            # pytest makes all cases of a value before it takes the first parametrize's next one.
            places = list(itertools.product(*[range(len(mark.args[1])) for mark in parametrized]))
            assert len(places) == len(tests), tests[0]
            # No value of a parametrize is left out altogether: there are as many others to meet it with.
            lengths = sorted(len(mark.args[1]) for mark in parametrized)
            of = min(tests[0].get_closest_marker("by_turns").args[0], lengths[-2])
            found.update(test for test, place in zip(tests, places) if sum(place) % of != 0)
    return found
