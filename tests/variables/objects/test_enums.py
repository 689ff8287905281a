"""Members of enums: what a program reads of them is guarded, as their attributes can be set."""
from __future__ import annotations

import enum

import pytest
import torch

import dynamo_lite
from dynamo_lite import log


class Kind(enum.Enum):
    A = 1
    B = 2

    def twice(self):
        return self.value * 2


class Number(enum.IntEnum):
    A = 1


class Flags(enum.Flag):
    A = 1
    B = 2


class Text(str, enum.Enum):
    A = "a"


READERS = {
    "value": lambda x: x * Kind.A.value,
    "_value_": lambda x: x * Kind.A._value_,
    "method": lambda x: x * Kind.A.twice(),
    "name": lambda x: x * len(Kind.A.name),
    "_name_": lambda x: x * len(Kind.A._name_),
    "getattr": lambda x: x * getattr(Kind.A, "value"),
    "call": lambda x: x * Kind(1)._value_,
    "each": lambda x: x * sum(member.value for member in Kind),
    "default": lambda x, kind=Kind.B: x * kind.value,
    "number": lambda x: x * Number.A.value,
    "text": lambda x: x * len(Text.A.value),
    "str": lambda x: x * len(str(Kind.A)),
    "repr": lambda x: x * len(repr(Kind.A)),
    "format": lambda x: x * len(f"{Kind.A}"),
    "flags": lambda x: x * (Flags.A | Flags.B).value,
    "truth": lambda x: x * (2 if Flags.A & Flags.B else 3),
    "contains": lambda x: x * (2 if Flags.B in Flags.A else 3),
}
SET = [(Kind.A, "_value_", 5), (Kind.B, "_value_", 77), (Number.A, "_value_", 9), (Flags.A, "_value_", 2),
       (Text.A, "_value_", "abc"), (Kind.A, "_name_", "AAAA")]


@pytest.mark.parametrize("name", READERS)
def test_what_was_read_of_a_member_is_guarded(name, monkeypatch):
    dynamo_lite.reset()
    reader, x = READERS[name], torch.ones(2)
    compiled = dynamo_lite.compile(reader, backend="eager", fullgraph=True)
    before = reader(x)
    assert torch.equal(compiled(x), before) and torch.equal(compiled(x), before) and log.counters()["graphs"] == 1
    with monkeypatch.context() as patch:
        for member, attribute, value in SET:
            patch.setattr(member, attribute, value)
        now = reader(x)
        assert not torch.equal(now, before) and torch.equal(compiled(x), now)
    assert torch.equal(compiled(x), before)


def test_a_member_of_which_nothing_was_read_is_not_guarded_further(monkeypatch):
    dynamo_lite.reset()
    compiled = dynamo_lite.compile(lambda x, kind: x * (2 if kind is Kind.A else 3), backend="eager")
    compiled(torch.ones(2), Kind.A)
    monkeypatch.setattr(Kind.A, "_value_", 5)
    compiled(torch.ones(2), Kind.A)
    assert log.counters()["graphs"] == 1
