"""A special method of torch's tensors that a program replaces, before or after a compile, is called as in eager."""
import pytest
import torch

import dynamo_lite


class Weight(torch.nn.Parameter):
    pass


def function(x):
    row = x[0] if x.dim() else x
    kept = x.clone()
    kept[0] = 3
    return (getattr(x, "foo", None), x + 1, 1 + x, x * x, len(x), -x, row, [str(r) for r in x], x == 1, kept,
            bool(x[0] == x[0]))


REPLACED = {
    "__getattr__": lambda self, name: 5, "__add__": lambda self, other: 7, "__radd__": lambda self, other: 8,
    "__neg__": lambda self: 3, "__len__": lambda self: 77, "__getitem__": lambda self, key: 9,
    "__iter__": lambda self: iter([1]), "__eq__": lambda self, other: True, "__bool__": lambda self: False,
    "__setitem__": lambda self, key, value: None, "__mul__": lambda self, other: "mul",
}


def texts(found):
    return [str(part) for part in found]


@pytest.mark.parametrize("before", [True, False])
@pytest.mark.parametrize("cls", [torch.Tensor, torch.nn.Parameter, Weight])
@pytest.mark.parametrize("name", REPLACED)
def test_replaced(monkeypatch, name, cls, before):
    if cls is torch.Tensor and name in ("__getattr__", "__eq__", "__bool__", "__getitem__", "__iter__"):
        return  # torch's own code would not work
    x = torch.ones(3) if cls is torch.Tensor else cls(torch.ones(3), requires_grad=False)
    want = texts(function(x))
    compiled = dynamo_lite.compile(function)
    if not before:
        assert texts(compiled(x)) == want
    with monkeypatch.context() as replacing:
        replacing.setattr(cls, name, REPLACED[name], raising=False)
        assert texts(compiled(x)) == texts(function(x))
    assert texts(compiled(x)) == want
