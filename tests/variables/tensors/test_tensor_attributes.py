"""Attributes that a program gives to tensors: those of tensors that the graph computes go out with them."""
import pytest
import torch

import dynamo_lite
from dynamo_lite import log


def plain(x):
    y = x * 2
    y.tag = "t"
    return y


def several(x):
    y = x * 2
    y.shapes, y.source = {"x": x.shape}, x
    z = y + 1
    z.made_of = y
    return [y, z, y]


def changed(x):
    y = x * 2
    y.tags = [1]
    y.gone = 2
    y.tags.append(y.gone)
    del y.gone
    return y, y.tags


def stored(x, box={}):
    box["y"] = x + 1
    box["y"].tag = box
    return box["y"].view(-1)


def over_a_break(x):
    y = x * 2
    y.tag = "t"
    y.list = [y.tag]
    dynamo_lite.graph_break()
    y.list.append(hasattr(y, "tag"))
    return y


def of_an_input(x):
    x.tag = x * 2
    x.tag.tag = "inner"
    return x.tag


def not_returned(x):
    y = x * 2
    y.tag = 3
    return x + y.tag


def seen(value, depth=0):
    if isinstance(value, torch.Tensor):
        return value.tolist(), {k: seen(v, depth + 1) for k, v in vars(value).items()} if depth < 4 else None
    if isinstance(value, (list, tuple)):
        return [seen(v, depth + 1) for v in value]
    if isinstance(value, dict):
        return {k: seen(v, depth + 1) for k, v in value.items()} if depth < 4 else None
    return value


@pytest.mark.parametrize("backend", ["eager", "inductor_lite"])
@pytest.mark.parametrize("function", [plain, several, changed, stored, over_a_break, of_an_input, not_returned])
def test_attributes_go_out_with_the_tensor(function, backend):
    compiled = dynamo_lite.compile(function, backend=backend)
    before = log.counters().get("graphs", 0)
    for n in range(3):
        x, y = torch.full((2,), float(n)), torch.full((2,), float(n))
        want, got = function(x), compiled(y)
        assert seen(got) == seen(want) and seen(y) == seen(x)
        if function is several:
            assert got[0] is got[2] and got[1].made_of is got[0] and got[0].source is y
        if function is changed:
            assert got[0].tags is got[1]
    assert log.counters().get("graphs", 0) - before == 1
