"""Classes derived from containers that define methods of their own: which of them run, and how often, is eager's."""
from __future__ import annotations

import collections

import pytest
import torch

import dynamo_lite
from dynamo_lite.guards.guard import KINDS

BASES = (list, tuple, set, frozenset, collections.deque, dict, collections.OrderedDict, collections.defaultdict)
NAMES = ("__iter__", "__reversed__", "__getitem__", "__setitem__", "__contains__", "__len__", "keys", "values", "items")


def logging(base, log):
    """A class with methods that take a note and call those of the base."""
    def logged(name):
        def method(self, *args):
            log.append(name)
            return getattr(base, name)(self, *args)
        return method

    return type("Logging", (base,), {name: logged(name) for name in NAMES if hasattr(base, name)})


def instance(base, log):
    cls = logging(base, log)
    if not issubclass(base, dict):
        made = cls([1, 3, 2])
    elif base is collections.defaultdict:
        made = cls(int, {1: 2, 3: 1})
    else:
        made = cls({1: 2, 3: 1})
    log.clear()
    return made


def begun(given):
    iterator = iter(given)
    return next(iterator), iterator


ASKED = {
    "iter": iter, "reversed": reversed, "begun": begun, "enumerate": enumerate, "map": lambda given: map(str, given),
    "keys": lambda given: given.keys(), "values": lambda given: given.values(), "items": lambda given: given.items(),
}


def outcomes(op, make, see):
    """What eager and compiled code give, each twice, with the notes taken."""
    both = []
    for wrap in (lambda fn: fn, lambda fn: dynamo_lite.compile(fn, backend="eager")):
        dynamo_lite.reset()
        log, seen = [], []
        run = wrap(lambda x, given: (op(given), x + 1))
        for _ in range(2):
            given = make(log)
            result = run(torch.ones(1), given)[0]
            seen.append((list(log), see(result), see(given)))
        both.append(seen)
    return both


def elements(value):
    if isinstance(value, tuple) and len(value) == 2:
        return value[0], elements(value[1])
    if isinstance(value, (int, type(None))):
        return value
    return type(value).__name__, [repr(element) for element in value]


@pytest.mark.parametrize("asked", ASKED)
@pytest.mark.parametrize("base", BASES)
def test_an_iterator_or_view_that_leaves_is_the_one_of_the_base(base, asked):
    dictionary = asked in ("keys", "values", "items")
    if dictionary and not issubclass(base, dict) or asked == "reversed" and not hasattr(base, "__reversed__"):
        pytest.skip("no such method")
    eager, compiled = outcomes(ASKED[asked], lambda log: instance(base, log), elements)
    assert compiled == eager


def test_elements_are_changed_once():
    """``__iter__`` gives an object that asks for the base's iterator again, where it is rebuilt after the graph."""
    class Doubled(list):
        def __iter__(self):
            return map(lambda n: n * 2, super().__iter__())

    compiled = dynamo_lite.compile(lambda x, given: (iter(given), x + 1), backend="eager")
    assert list(compiled(torch.ones(1), Doubled([1, 2]))[0]) == [2, 4]


@pytest.mark.parametrize("op", [
    lambda d: d.setdefault("q", 1), lambda d: d.setdefault("a", 1), lambda d: d.setdefault("q"),
    lambda d: d.update(z=1), lambda d: d.update({"b": 3}, n=1), lambda d: d.copy(), lambda d: type(d)({"u": 1}, w=2),
])
def test_methods_of_ordered_dicts_ask_those_of_the_class(op):
    def make(log):
        made = logging(collections.OrderedDict, log)()
        dict.update(made, {})
        made["a"], made["b"] = 1, 2
        log.clear()
        return made

    eager, compiled = outcomes(op, make, lambda value: value if isinstance(value, (int, type(None))) else [
        *collections.OrderedDict.items(value)])
    assert compiled == eager


def test_a_bounded_cache():
    class Bounded(collections.OrderedDict):
        def __getitem__(self, key):
            value = super().__getitem__(key)
            self.move_to_end(key)
            return value

        def __setitem__(self, key, value):
            super().__setitem__(key, value)
            while len(self) > 2:
                self.popitem(last=False)

    def fn(cache, key, x):
        return cache.setdefault(key, x * 2) + 1, list(cache)

    compiled, cache, expected = dynamo_lite.compile(fn, backend="eager"), Bounded(), Bounded()
    for key in "aabacb":
        assert compiled(cache, key, torch.ones(2))[1] == fn(expected, key, torch.ones(2))[1]
        assert [*cache] == [*expected]


@pytest.mark.parametrize("base", [dict, collections.defaultdict])
def test_popitem_takes_no_argument(base):
    compiled, given = dynamo_lite.compile(lambda d, x: (d.popitem(last=False), x + 1), backend="eager"), base()
    given["a"] = 1
    with pytest.raises(TypeError, match="takes no keyword arguments"):
        compiled(given, torch.ones(1))
    assert given == {"a": 1}


class Loud:
    def __repr__(self):
        raise AssertionError("called")

    def method(self):
        pass


class Derived(list):
    __iter__ = __len__ = __repr__ = Loud.__repr__


class Ordered(collections.OrderedDict):
    items = Loud.__repr__


def test_words_for_a_guard_run_no_code_of_the_program():
    mine, ordered = Loud(), Ordered(a=1)
    values = {
        "a Derived": Derived([mine]), "a Ordered": ordered, "a defaultdict": collections.defaultdict(int, a=mine),
        "a ValueError": ValueError(mine), "[a Ordered]": [ordered], "{'a': a Loud}": {"a": mine},
        "<bound method Loud.method of a Loud>": mine.method}
    for words, value in values.items():
        assert KINDS["is"].words(value) == f"is {words}"
