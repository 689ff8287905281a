"""Class methods written in C that have a row: read from a class, an object, super() and from outside."""
import datetime

import pytest
import torch

import dynamo_lite
from dynamo_lite.rules import table
from dynamo_lite.rules.table import Rule


class Plain(datetime.date):
    pass


class Other(datetime.date):
    pass


class Calling(datetime.date):
    @classmethod
    def made(cls, x):
        return super().fromordinal(x)


DESCRIPTOR = datetime.date.__dict__["fromordinal"]
BOUND = Plain.fromordinal
NUMBERS = {Plain: 1, Other: 2, Calling: 3}


@pytest.fixture(autouse=True)
def _row():
    """fromordinal(x) is x plus a number of the class that it is called on."""
    def handler(tx, cls, x):
        seen.append(cls.value)
        number = tx.values.from_result(NUMBERS[cls.value], "a number")
        return tx.call_method(x, "add", [number], {})

    seen: list = []
    dynamo_lite.reset()
    table.row(Rule.HANDLED, DESCRIPTOR, calls=handler)
    yield seen
    del table._rows[table._key(DESCRIPTOR)]
    dynamo_lite.reset()


def run(f, *args):
    graphs = []

    def backend(gm, inputs):
        graphs.append(gm)
        return gm.forward

    return dynamo_lite.compile(f, backend=backend, fullgraph=True)(*args), graphs


@pytest.mark.parametrize("f, owner", [
    (lambda x: Plain.fromordinal(x), Plain),
    (lambda x: Other.fromordinal(x), Other),
    (lambda x: Calling.made(x), Calling),
    (lambda x: BOUND(x), Plain),
    (lambda x: (lambda g=Other.fromordinal: g(x))(), Other),
    (lambda x: getattr(Plain, "fromordinal")(x), Plain),
    (lambda x: [c.fromordinal(x) for c in (Plain, Other)][1], Other),
], ids=["class", "another class", "super", "from outside", "default", "getattr", "loop"])
def test_the_handler_gets_the_class(f, owner, _row):
    made, graphs = run(f, torch.zeros(2))
    assert made.tolist() == [NUMBERS[owner]] * 2
    assert len(graphs) == 1 and _row[-1] is owner


def test_a_bound_one_from_outside_is_guarded_by_its_class(_row):
    compiled = dynamo_lite.compile(lambda x, g: g(x), backend="eager", fullgraph=True)
    x = torch.zeros(1)
    assert [compiled(x, g).item() for g in (Plain.fromordinal, Other.fromordinal, Plain.fromordinal)] == [1, 2, 1]
    assert len(_row) == 2


def test_a_bound_one_that_leaves_the_frame(_row):
    def f(x):
        g = Other.fromordinal
        return x + 1, g

    (value, g), graphs = run(f, torch.zeros(1))
    assert value.item() == 1 and len(graphs) == 1
    assert g == Other.fromordinal and g(1) == Other(1, 1, 1) and type(g(1)) is Other
