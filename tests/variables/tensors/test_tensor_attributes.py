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


def written(x, b, y, said):
    x.mul_(y)
    said += [x.is_leaf, b.is_leaf, x.grad_fn is None, b.grad_fn is None]
    with torch.no_grad():
        said.append(x.is_leaf)


def base_written(x, b, y, said):
    b[0] = y
    said += [x.is_leaf, x.grad_fn is None, b.is_leaf]


def written_unseen(x, b, y, said):
    with torch.no_grad():
        b.mul_(y)
    said += [x.is_leaf, b.is_leaf, b.retains_grad, x.retains_grad, x.grad_fn is None]


@pytest.mark.parametrize("backend", ["eager", "inductor_lite"])
@pytest.mark.parametrize("fn", [written, base_written, written_unseen])
def test_an_input_that_was_written_to_is_no_leaf(fn, backend):
    makers = (lambda: torch.ones(4), lambda: torch.ones(4, requires_grad=True),
              lambda: torch.ones(4, requires_grad=True) * 2)
    views = (lambda b: b[:4], torch.Tensor.detach, torch.clone, lambda b: b.view(2, 2).t())
    for make in makers:
        for view in views:
            dynamo_lite.reset()
            results = []
            for call in (fn, dynamo_lite.compile(fn, backend=backend)):
                base = make()
                x, said = view(base), []
                try:
                    call(x, base, torch.ones((), requires_grad=True), said)
                except RuntimeError as e:
                    said.append(str(e).partition("\n")[0])
                results.append([said, x.is_leaf, base.is_leaf, x.requires_grad, base.requires_grad])
            assert results[0] == results[1]
