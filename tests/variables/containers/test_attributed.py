"""OrderedDicts with attributes, and what C makes of subclasses of OrderedDict and defaultdict."""
import collections
import copy

import pytest
import torch

import dynamo_lite


class Ordered(collections.OrderedDict):
    pass


class Default(collections.defaultdict):
    pass


class Plain(dict):
    pass


def asks(x, d):
    return x + 1, hasattr(d, "x"), getattr(d, "_metadata", None)


def reads(x, d):
    return x + 1, d.x


def copies(x, d):
    return x + 1, copy.copy(d).__dict__, copy.deepcopy(d).__dict__


def all_of_them(x, d):
    return x + 1, d.__dict__, vars(d), d.__reduce__()[2]


def writes(x, d):
    d.y = 2
    return x + 1, d.__dict__


def loaded(x, state):
    """As ``load_state_dict`` treats what it is given."""
    metadata = getattr(state, "_metadata", None)
    state = collections.OrderedDict(state)
    if metadata is not None:
        state._metadata = metadata
    return x + 1, list(state), getattr(state, "_metadata", None)


@pytest.mark.parametrize("fn", [asks, reads, copies, all_of_them, writes, loaded], ids=lambda f: f.__name__)
def test_attributes_of_an_ordered_dict(fn):
    compiled = dynamo_lite.compile(fn, backend="eager")
    for attributes in ({}, {"x": 1}, {}, {"x": 2, "_metadata": {"": 1}}, {"_metadata": None}):
        seen = []
        for f in (fn, compiled):
            given = collections.OrderedDict(a=1)
            vars(given).update(attributes)
            try:
                result = f(torch.ones(2), given)
            except AttributeError as error:
                result = str(error)
            seen.append(repr((result, vars(given), given)))
        assert seen[0] == seen[1], attributes


def test_reading_attributes_makes_one_graph():
    seen = []

    def backend(gm, inputs):
        seen.append(gm)
        return gm.forward

    compiled = dynamo_lite.compile(asks, backend=backend, fullgraph=True)
    for _ in range(2):
        assert compiled(torch.ones(2), collections.OrderedDict(a=1))[1:] == (False, None)
    assert len(seen) == 1


def made(x, cls, *factory):
    d, other = cls(*factory, {1: 2}), cls(*factory, {2: 3})
    return x + 1, [d | other, d | {5: 6}, {5: 6} | d, d.copy(), copy.copy(d), d.__or__(other), d.__ror__({7: 8}),
                   d.__or__(3)]


def given(x, d, other):
    d |= [(3, 4)]
    return x + 1, [d, d | other, d | {5: 6}, {5: 6} | d, d.copy(), copy.copy(d), copy.deepcopy(d)]


def shown(values):
    return [(type(v), repr(v), getattr(v, "default_factory", None)) for v in values]


@pytest.mark.parametrize("cls", [
    collections.OrderedDict, Ordered, dict, Plain, collections.defaultdict, Default], ids=lambda c: c.__name__)
def test_the_classes_of_unions_and_copies(cls):
    factory = (int,) if issubclass(cls, collections.defaultdict) else ()
    compiled = dynamo_lite.compile(made, backend="eager")
    assert shown(compiled(torch.ones(2), cls, *factory)[1]) == shown(made(torch.ones(2), cls, *factory)[1])
    compiled = dynamo_lite.compile(given, backend="eager")
    for _ in range(2):
        want, got = (f(torch.ones(2), cls(*factory, {1: 2}), cls(*factory, {2: 3}))[1] for f in (given, compiled))
        assert shown(got) == shown(want)


def ends_with_a_value(x):
    class Ends:
        def __iter__(self):
            return self

        def __next__(self):
            raise StopIteration(42)

    def delegates():
        got.append((yield from Ends()))
    got = []
    list(delegates())
    return x + 1, got


def test_an_iterator_of_the_users_own_ends_yield_from_with_a_value():
    compiled = dynamo_lite.compile(ends_with_a_value, backend="eager", fullgraph=True)
    assert compiled(torch.ones(2))[1] == [42]
