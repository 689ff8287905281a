"""Which guards hang on one dict alone."""
import pytest
import torch

import dynamo_lite
from dynamo_lite import log
from dynamo_lite.guards.blocks import split_blocks
from dynamo_lite.guards.guard import Guard
from dynamo_lite.guards.program import build_program
from dynamo_lite.guards.source import DictItemSource, InstanceDictSource, LocalSource, SequenceItemSource

SELF = LocalSource("self", 0)
DICT = InstanceDictSource(SELF)
A, B, LIST = (DictItemSource(DICT, name) for name in ("a", "b", "list"))
FIRST, DEFERRED = SequenceItemSource(A, 0, False), SequenceItemSource(LIST, 0, True)
LACKS = Guard(DICT, "dict_lacks", ("other",))


def kept(*guards, collect=()):
    """The guards of the blocks that are made beside one that always is in a block."""
    every, blocks = split_blocks([LACKS, Guard(DICT, "dict_lacks", ("c",)), *guards], collect)
    assert len(every) + sum(len(group) for _, group in blocks) == len(guards) + 2
    assert [source for source, _ in blocks] == [DICT]
    return [g for g in blocks[0][1] if g in guards]


SETTLED = [
    [Guard(A, "const", (3,))],
    [Guard(A, "const", ((1, (2.0, None), frozenset({"a"})),))],
    [Guard(A, "is", (torch.nn.functional.conv2d,))],
    [Guard(A, "type_is", (tuple,)), Guard(A, "len", (2,)), Guard(FIRST, "const", (1,))],
    [Guard(A, "type_is", (int,)), Guard(A, "int_range", (2, 9, ""))],
]
CHANGING = [
    [Guard(A, "type_is", (torch.nn.Linear,))],  # __class__ may be set
    [Guard(A, "type_is", (list,)), Guard(A, "len", (2,))],
    [Guard(A, "len", (2,))],  # of what, is not said
    [Guard(DEFERRED, "const", (1,))],
    [Guard(A, "const", (torch.ones(1),))],
    [Guard(A, "const", ((1, [2]),))],
    [Guard(A, "code_is", ((lambda: 0).__code__,))],
    [Guard(SELF, "is_not", (None,))],
]


@pytest.mark.parametrize("guards", SETTLED)
def test_what_can_not_change_is_in_a_block(guards):
    assert kept(*guards) == guards


@pytest.mark.parametrize("guards", CHANGING)
def test_what_may_change_is_checked_every_time(guards):
    assert kept(*guards) == []


def test_what_is_read_outside_is_loaded_outside():
    number = Guard(A, "const", (3,))
    assert kept(number, collect=[A]) == []
    assert kept(number, Guard(FIRST, "type_is", (list,))) == []
    assert kept(number, Guard(SELF, "not_same", (A,))) == []
    assert kept(number, Guard(B, "not_same", (LIST,)), collect=[B]) == [number]


def test_one_guard_makes_no_block():
    assert split_blocks([LACKS], []) == ([LACKS], [])


def test_a_program_with_blocks():
    class Thing:
        pass

    thing = Thing()
    thing.a, thing.b = (1, 2), torch.ones(2)
    guards = [g for group in SETTLED[3:4] for g in group]
    program, texts = build_program([LACKS, *guards], None, [B])
    assert [s[0] for s in program.steps].count("begin_same") == 1 and len(texts) == len(program.steps)
    for _ in range(3):
        assert program.check((thing,), None, {}, {}) == (True, (thing.b,))
    thing.a = (2, 2)
    held, at = program.check((thing,), None, {}, {})
    assert not held and texts[at] == "self.a[0] == 1"


def test_tuples_of_which_a_part_may_change():
    class Sizes(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.sizes = ((1, [2]), (3, 4), 5)

        def forward(self, x):
            (a, steps), (b, c), d = self.sizes
            return x * a * b * c * d * steps[0]

    dynamo_lite.reset()
    log.reset()
    model, x = Sizes(), torch.ones(2)
    fn = dynamo_lite.compile(model, backend="eager", fullgraph=True)
    for sizes in (((1, [2]), (3, 4), 5), ((1, [7]), (3, 4), 5), ((1, [7]), (3, 6), 5)):
        model.sizes = sizes
        assert torch.equal(fn(x), model(x)) and torch.equal(fn(x), model(x))
    model.sizes[0][1][0] = 8
    assert torch.equal(fn(x), model(x)) and log.counters()["graphs"] <= 4 and "internal_errors" not in log.counters()
