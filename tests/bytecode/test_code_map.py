"""Data about code objects: by identity, and for as long as they live."""
from __future__ import annotations

import types

from dynamo_lite.bytecode.code_map import CodeMap


def code_of(source: str = "def f(x): return x + 1") -> types.CodeType:
    space: dict = {}
    exec(source, space)
    return space.pop("f").__code__


def test_equal_code_objects_are_told_apart():
    known: CodeMap[str] = CodeMap()
    first, second = code_of(), code_of()
    assert first == second
    known.set(first, "first")
    assert known.get(first) == "first" and known.get(second) is None
    known.pop(first)
    assert known.get(first) is None


def test_an_entry_goes_with_its_code():
    known: CodeMap[str] = CodeMap()
    code = code_of()
    known.set(code, "data")
    assert len(known) == 1
    del code
    assert len(known) == 0


def test_a_callback_that_could_not_run_leaves_nothing_behind():
    """At the limit of recursion the callback of a weak reference raises, which Python ignores: another code object at
    the same address was taken for the dead one, and ran its instructions."""
    known: CodeMap[str] = CodeMap()
    held = [code_of()]
    known.set(held[0], "dead")
    place = id(held[0])

    def deeper() -> None:
        try:
            deeper()
        except RecursionError:
            held.clear()

    deeper()
    others = []
    for _ in range(1000):
        others.append(code_of())
        assert known.get(others[-1]) is None
        if id(others[-1]) == place:
            break
    else:
        return  # the memory has gone to something else
    assert len(known) == 0
