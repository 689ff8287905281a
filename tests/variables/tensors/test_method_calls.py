"""Methods of tensors as rows of the table of calls: each form of a call has the row's meaning, and users add theirs."""
import copy

import pytest
import torch

import dynamo_lite
from dynamo_lite.rules.table import Level, Rule, decide

X = torch.arange(6.0).reshape(2, 3)


def outcome(function, *args):
    """The result of one whole graph, or the kind and the words of the break; alone it gives what eager gives."""
    want = function(*copy.deepcopy(args))
    dynamo_lite.reset()
    got = dynamo_lite.compile(function, backend="eager")(*copy.deepcopy(args))
    torch.testing.assert_close(got, want, rtol=0, atol=0)
    dynamo_lite.reset()
    try:
        dynamo_lite.compile(function, backend="eager", fullgraph=True)(*copy.deepcopy(args))
    except dynamo_lite.exc.Unsupported as error:
        return error.kind, error.detail
    return None


@pytest.fixture
def rules_of_users():
    said = []

    def say(subject, *args, **kwargs):
        dynamo_lite.register_rule(subject, *args, **kwargs)
        said.append(subject)

    yield say
    for subject in said:
        dynamo_lite.remove_rule(subject)


@pytest.mark.parametrize("method, rule, kind", [
    (torch.Tensor.item, Rule.HANDLED, None), (torch.Tensor.add_, Rule.HANDLED, None),
    (torch.Tensor.backward, Rule.SKIP, "autograd_in_graph"), (torch.Tensor.data_ptr, Rule.SKIP, "data_ptr"),
    (torch.nn.Parameter.__repr__, Rule.SKIP, "tensor_formatting"),
    (torch.Tensor.nonzero, Rule.ELEMENTS, "dynamic_output_shape"), (torch.Tensor.t_, Rule.HANDLED, None),
    (torch.Tensor.view, Rule.GRAPH, None),
])
def test_a_method_has_one_row(method, rule, kind):
    decision = decide(method)
    assert decision.rule is rule and decision.kind == (kind or "call_skipped")
    assert decision.level is (Level.DEFAULT if method is torch.Tensor.view else Level.CALLABLE)


FORMS = {
    "size": (lambda x: x + len(x.size()), lambda x: x + len(torch.Tensor.size(x))),
    "size_of": (lambda x: x + x.size(-1), lambda x: x + torch.Tensor.size(x, dim=-1)),
    "stride": (lambda x: x + x.stride(0), lambda x: x + torch.Tensor.stride(x)[0]),
    "length": (lambda x: x + x.__len__(), lambda x: x + torch.Tensor.__len__(x)),
    "item": (lambda x: x + torch.tensor([3]).item(), lambda x: x + torch.Tensor.item(torch.tensor([3]))),
    "getitem": (lambda x: x.__getitem__(0), lambda x: torch.Tensor.__getitem__(x, 0)),
    "alpha": (lambda x: x.add(x, alpha=2), lambda x: torch.Tensor.add(x, x, alpha=2)),
    "own_metadata": (lambda x: x.clone().t_(), lambda x: torch.Tensor.t_(x.clone())),
    "new": (lambda x: x + x.new([1.0]), lambda x: x + torch.Tensor.new(x, [1.0])),
    "requires_grad": (lambda x: x.requires_grad_(False), lambda x: torch.Tensor.requires_grad_(x, False)),
    "equal": (lambda x: x + x.equal(x), lambda x: x + torch.Tensor.equal(x, x)),
    "copied": (lambda x: copy.deepcopy(x) + 1, lambda x: torch.Tensor.__deepcopy__(x, {}) + 1),
    "attribute": (lambda x: x + x.__getattribute__("ndim"), lambda x: x + object.__getattribute__(x, "ndim")),
}


@pytest.mark.parametrize("name", FORMS)
def test_both_forms_are_captured(name):
    for form in FORMS[name]:
        assert outcome(form, X) is None


BREAKS = {
    "data_ptr": (lambda x: x + x.data_ptr() * 0, lambda x: x + torch.Tensor.data_ptr(x) * 0),
    "input_mutation": (lambda x: x.t_(), lambda x: torch.Tensor.t_(x)),
    "tensor_formatting": (lambda x: x + len(x.__repr__()), lambda x: x + len(x.__str__())),
    "numpy_conversion": (lambda x: x + x.numpy().sum(), lambda x: x + torch.Tensor.numpy(x).sum()),
    "unsupported_method": (lambda x: x + x._is_view(), lambda x: x + torch.Tensor._is_view(x)),
    "side_effect_unsupported": (lambda x: x.__setattr__("label", 1) or x + 1,
                                lambda x: object.__setattr__(x, "label", 1) or x + 1),
}


@pytest.mark.parametrize("kind", BREAKS)
def test_both_forms_break(kind):
    for form in BREAKS[kind]:
        assert outcome(form, X)[0] == kind


def test_an_argument_too_many_is_eagers_to_refuse():
    def function(x):
        try:
            return x.sum().item(3)
        except TypeError as error:
            return str(error)

    assert "takes no arguments (1 given)" in dynamo_lite.compile(function, backend="eager")(X)


class Mode(torch.overrides.TorchFunctionMode):
    def __torch_function__(self, function, types, args=(), kwargs=None):
        if function in (torch.Tensor.size, torch.Tensor.equal, torch.equal):
            return 7
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize("ask", [
    lambda x: x.size(0), lambda x: torch.Tensor.size(x, 0), lambda x: x.equal(x), lambda x: torch.equal(x, x)])
def test_modes_are_asked_first(ask):
    def function(x):
        with Mode():
            return x + ask(x)

    assert torch.equal(dynamo_lite.compile(function, backend="eager")(X), X + 7)


class Override:
    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        return torch.ones(2)


@pytest.mark.parametrize("ask", [lambda x, o: x.add(o), lambda x, o: torch.Tensor.add(x, o), lambda x, o: x.equal(o)])
def test_overrides_are_asked_first(ask):
    def function(x):
        return ask(x, Override()) + 1

    assert torch.equal(dynamo_lite.compile(function, backend="eager")(X), torch.full((2,), 2.0))


@pytest.mark.parametrize("call", [lambda x: x.sum(), lambda x: torch.Tensor.sum(x)])
def test_rules_of_users(rules_of_users, call):
    rules_of_users(torch.Tensor.sum, "break", kind="input_output", reason="it talks to the device")
    kind, detail = outcome(lambda x: call(x) + 1, X)
    assert kind == "input_output" and "it talks to the device" in detail
    dynamo_lite.remove_rule(torch.Tensor.sum)
    dynamo_lite.register_rule(torch.Tensor.sum, "replace", calls=lambda x: x.mean())
    dynamo_lite.reset()
    assert dynamo_lite.compile(lambda x: call(x), backend="eager", fullgraph=True)(X) == X.mean()


def test_a_users_rule_for_a_method_that_has_a_row(rules_of_users):
    rules_of_users(torch.Tensor.data_ptr, "constant")
    assert outcome(lambda x: x + x.data_ptr() * 0, X) is None


@pytest.mark.parametrize("call", [lambda x: x.is_pinned(), lambda x: torch.Tensor.is_pinned(x)])
def test_a_method_that_breaks_may_be_allowed_in_the_graph(rules_of_users, call):
    rules_of_users(torch.Tensor.is_pinned, "graph")
    assert decide(torch.Tensor.is_pinned).level is Level.USER
    assert outcome(lambda x: x + call(x), X) is None
    dynamo_lite.remove_rule(torch.Tensor.is_pinned)
    dynamo_lite.register_rule(torch.Tensor.size, "graph")
    assert decide(torch.Tensor.size).rule is Rule.HANDLED
    dynamo_lite.remove_rule(torch.Tensor.size)
    dynamo_lite.register_rule(torch.Tensor.is_pinned, "graph")


def test_a_parameters_own_method_is_not_tensors():
    class Named(torch.nn.Parameter):
        def item_count(self):
            return self.numel()

    assert outcome(lambda p: p * p.item_count(), Named(X)) is None
