"""The modules that are named for a version say the same things, each for its own."""

from __future__ import annotations

import importlib
from typing import Any

import pytest

from dynamo_lite.bytecode import py311

VERSIONS = ["py311", "py312", "py313", "py314", "py315"]


def public(module: Any) -> dict[str, Any]:
    return {name: value for name, value in vars(module).items() if not name.startswith("_") and name != "annotations"}


@pytest.mark.parametrize("name", VERSIONS)
def test_the_same_names_of_the_same_types(name: str) -> None:
    ours, theirs = public(py311), public(importlib.import_module(f"dynamo_lite.bytecode.{name}"))
    assert set(ours) - {"Any", "Sequence"} == set(theirs) - {"Any", "Sequence"}
    for key in ours.keys() & theirs.keys():
        value = ours[key]
        # A function of CPython's own may be one of C.
        same = callable(theirs[key]) if callable(value) else type(theirs[key]) is type(value)
        assert same, key


@pytest.mark.parametrize("name", VERSIONS)
def test_sequences_are_lists_of_names_and_arguments(name: str) -> None:
    facts = importlib.import_module(f"dynamo_lite.bytecode.{name}")
    sequences = [facts.SUBSCRIPT, facts.jump_if_false(), *(facts.call_spread(k) for k in (False, True))]
    sequences += [facts.call(2, ("a",)), facts.call(0, ()), facts.make_function(True), facts.make_function(False)]
    assert all(isinstance(opname, str) for sequence in sequences for opname, _ in sequence)
    assert facts.directed("JUMP_FORWARD", True) == "JUMP_BACKWARD" and facts.directed("FOR_ITER", True) is None
