"""Blocks of steps that are left out while their dict is as it was; objects that a large program fetches ahead."""
import collections

import pytest
import torch
from guard_programs import program

from dynamo_lite import _guards as G

ATTRIBUTES = [
    ("load_local", 0, 0),
    ("load_instance_dict", 1, 0),
    ("begin_same", 1),
    ("dict_lacks", 1, "other"),
    ("load_dict_item", 2, 1, "size"),
    ("type_is", 2, tuple),
    ("len", 2, 2),
    ("load_tuple_item", 3, 2, 1),
    ("const", 3, 5),
    ("end_same", 1),
    ("is_not", 0, None),
]


class Thing:
    def __init__(self, **attributes):
        self.__dict__.update(attributes)


def holds(made, *args):
    return made.check(args, None, {}, {})[0]


@pytest.mark.parametrize(
    "change, expected",
    [
        (lambda t: setattr(t, "size", (3, 5)), True),
        (lambda t: setattr(t, "size", (3, 6)), False),
        (lambda t: setattr(t, "size", [4, 5]), False),
        (lambda t: setattr(t, "unrelated", 1), True),
        (lambda t: setattr(t, "other", 1), False),
        (lambda t: delattr(t, "size"), False),
        (lambda t: t.__dict__.update(size=(4, True)), False),
        (lambda t: t.__dict__.clear(), False),
        (lambda t: t.__dict__.pop("size"), False),
        (lambda t: setattr(t, "__dict__", {"size": (0, 0)}), False),
        (lambda t: setattr(t, "__dict__", {"size": (0, 5)}), True),
        (lambda t: t.__dict__.setdefault("other", 1), False),
        (lambda t: t.__dict__.__ior__({"size": 0}), False),
    ],
)
def test_every_change_of_the_dict_is_seen(change, expected):
    made, thing = program(*ATTRIBUTES), Thing(size=(4, 5))
    assert [holds(made, thing) for _ in range(4)] == [True] * 4
    change(thing)
    assert [holds(made, thing) for _ in range(4)] == [expected] * 4
    thing.__dict__ = {"size": (4, 5)}
    assert holds(made, thing)


def test_objects_that_take_turns():
    made = program(*ATTRIBUTES)
    things = [Thing(size=(1, 5)), Thing(size=(1, 6)), Thing(size=(2, 5)), Thing(size=(1, 5), other=0)]
    for _ in range(3):
        assert [holds(made, t) for t in things] == [True, False, True, False]


def test_a_dict_in_the_place_of_one_that_is_gone():
    made = program(*ATTRIBUTES)
    for i in range(200):  # freed dicts and objects are taken again at once
        assert holds(made, Thing(size=(4, 5))) and not holds(made, Thing(size=(4, i + 6)))


def test_the_failing_step_is_named_inside_a_block():
    made = program(*ATTRIBUTES)
    assert made.check((Thing(size=(4, 5)),), None, {}, {}) == (True, ())
    assert made.check((Thing(size=(4, 7)),), None, {}, {}) == (False, 8)
    assert made.check((Thing(size=(4, 5), other=1),), None, {}, {}) == (False, 3)


def test_a_block_of_something_else_than_a_dict_does_not_hold():
    made = program(("load_local", 0, 0), ("begin_same", 0), ("dict_lacks", 0, "a"), ("end_same", 0))
    assert holds(made, {}) and holds(made, collections.OrderedDict())
    assert not holds(made, []) and not holds(made, {"a": 1})


@pytest.mark.parametrize("kind", [dict, collections.OrderedDict, collections.defaultdict])
def test_items_of_dicts(kind):
    steps = [("load_local", 0, 0), ("load_dict_item", 1, 0, "a"), ("collect", 1, 0)]
    made, d = program(*steps, inputs=1), kind()
    first, second = object(), object()
    for value in (first, second, first):
        d["a"] = value
        for _ in range(2):
            (found,) = made.check((d,), None, {}, {})[1]
            assert found is value
    del d["a"]
    assert not holds(made, d)


class Equal:
    """A key equal to "a" that changes the dict when it is asked."""

    def __init__(self, change):
        self.change = change

    def __hash__(self):
        return hash("a")

    def __eq__(self, other):
        self.change()
        return False


def test_a_dict_that_changes_while_it_is_looked_at():
    d = {}
    d[Equal(lambda: d.__setitem__("b", d.get("b", 0) + 1))] = 0
    d["a"], d["b"] = 1, 0
    made = program(("load_local", 0, 0), ("begin_same", 0), ("load_dict_item", 1, 0, "a"), ("const", 1, 1),
                   ("end_same", 0))
    assert holds(made, d) and holds(made, d)
    d["a"] = 2
    assert not holds(made, d)


@pytest.mark.parametrize("empty", [dict, collections.OrderedDict])
def test_hooks_are_asked_for_every_time(empty):
    thing = Thing(_hooks=empty(), _others=None)
    made = program(("load_local", 0, 0), ("no_hooks", 0, ("_hooks", "_others", "_missing")))
    assert [holds(made, thing) for _ in range(3)] == [True] * 3
    thing._hooks["one"] = 1
    assert not holds(made, thing)
    del thing._hooks["one"]
    assert holds(made, thing)
    thing._others = [1]
    assert not holds(made, thing)
    thing._others = []
    assert [holds(made, thing) for _ in range(3)] == [True] * 3
    thing._others.append(1)  # a list: its size is looked up as before
    assert not holds(made, thing)
    thing._others, thing._missing = None, {"a": 1}
    assert not holds(made, thing)


@pytest.mark.parametrize(
    "steps, message",
    [
        ([("begin_same", 0)], "without an end"),
        ([("end_same", 0)], "ends no block"),
        ([("begin_same", 0), ("begin_same", 0)], "inside a block"),
        ([("load_local", 1, 0), ("begin_same", 0), ("end_same", 1)], "ends no block"),
        ([("begin_same", 0), ("collect", 0, 0), ("end_same", 0)], "may be left out"),
        ([("begin_same", 0), ("load_dict_item", 1, 0, "a"), ("end_same", 0), ("is", 1, None)], "not written before"),
        ([("begin_same", 0), ("load_dict_item", 1, 0, "a"), ("end_same", 0), ("load_local", 1, 0)], "written twice"),
        ([("begin_same", 0), ("load_dict_item", 1, 0, "a"), ("end_same", 0), ("not_same", [0, 1])], "not written"),
    ],
)
def test_malformed_blocks_are_refused(steps, message):
    with pytest.raises(ValueError, match=message):
        G.GuardProgram([("load_local", 0, 0), *steps], 1, 2)


def test_many_objects_fetched_ahead():
    """More than enough for the program to remember what it visited; objects come and go, and take turns."""
    n = 200
    steps = [("load_local", 0, 0)]
    for i in range(n):
        steps += [("load_list_item", 1 + 2 * i, 0, i), ("load_instance_dict", 2 + 2 * i, 1 + 2 * i),
                  ("begin_same", 2 + 2 * i), ("dict_lacks", 2 + 2 * i, "b"), ("end_same", 2 + 2 * i),
                  ("no_hooks", 1 + 2 * i, ("_hooks",))]
    made = program(*steps)

    def things():
        return [torch.nn.Parameter(torch.ones(2)) if i % 3 == 0 else Thing(a=i, _hooks={}) for i in range(n)]

    kept = things()
    for turn in range(300):
        assert holds(made, kept)
        if turn % 2:
            assert holds(made, things())
    kept[7].b = 1
    assert not holds(made, kept)
    del kept[7].b
    assert holds(made, kept)
    kept[n - 1]._hooks["x"] = 1
    assert not holds(made, kept)


@pytest.mark.skipif(not (program() and G.dict_states()), reason="no dict watcher is to be had")
def test_unchanged_blocks_are_left_out():
    asked = []

    class Name(str):
        __slots__ = ()
        __hash__ = str.__hash__

        def __eq__(self, other):
            asked.append(other)
            return False

    d = {Name("a"): 0}
    made = program(("load_local", 0, 0), ("begin_same", 0), ("dict_lacks", 0, "a"), ("end_same", 0))
    assert holds(made, d) and asked
    del asked[1:]  # a search may come by the same entry twice: the hash says so
    assert holds(made, d) and len(asked) == 1
    d["c"] = 1
    assert holds(made, d) and len(asked) > 1
