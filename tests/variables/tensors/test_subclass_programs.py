"""Programs with tensors of derived classes: values, classes, attributes, gradients and the calls that
``__torch_function__`` sees are eager's, in one graph and without recompiles."""
import enum

import pytest
import torch
from torch.nn import functional as F
from torch.nn.attention.bias import causal_lower_right, causal_upper_left

import dynamo_lite
from dynamo_lite import config, log

SEEN = []


class Plain(torch.Tensor):
    """No method of its own: results of torch's functions are of this class, too."""


class Seen(torch.Tensor):
    """Notes which functions are called."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        SEEN.append((getattr(func, "__name__", str(func)), tuple(t.__name__ for t in types)))
        return super().__torch_function__(func, types, args, kwargs)


class Derived(Seen):
    """Asked before the class that it derives from."""

    scale = 3

    def scaled(self):
        return self * self.scale

    @property
    def half(self):
        return self / 2

    @classmethod
    def of(cls, data):
        return data.as_subclass(cls)

    @staticmethod
    def plain(data):
        return data.as_subclass(torch.Tensor)


class Unit(enum.Enum):
    METRE = 1
    SECOND = 2


class Quantity(torch.Tensor):
    """Carries a unit, which some functions change."""

    def __new__(cls, data, unit):
        return torch.as_tensor(data).as_subclass(cls)

    def __init__(self, data, unit):
        super().__init__()
        self.unit = unit

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        made = super().__torch_function__(func, types, args, kwargs or {})
        units = [a.unit for a in args if isinstance(a, Quantity)]
        if func in (torch.add, torch.Tensor.add, torch.Tensor.__add__) and len(set(units)) > 1:
            raise TypeError("cannot add a length to a time")
        if isinstance(made, Quantity) and not hasattr(made, "unit"):
            made.unit = units[0]
        return made


class Named(torch.Tensor):
    @staticmethod
    def __new__(cls, data, name="", *args, **kwargs):
        return super().__new__(cls, data, *args, **kwargs)

    def __init__(self, data, name=""):
        self.name_of_it = name


class Made(torch.Tensor):
    def __new__(cls, data, requires_grad=False):
        return torch.Tensor._make_subclass(cls, data, requires_grad)


class Answers(torch.Tensor):
    """Its own operators, length and index."""

    def __add__(self, other):
        return torch.Tensor.__add__(self, other) * 10

    def __radd__(self, other):
        return torch.Tensor.__radd__(self, other) * 100

    def __neg__(self):
        return 7

    def __len__(self):
        return 99

    def __getitem__(self, key):
        return super().__getitem__(key) + 1000

    def sum(self, *args):
        return super().sum(*args) - 1


class NoOverride(torch.Tensor):
    __torch_function__ = torch._C._disabled_torch_function_impl


class Refuses(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        if func is torch.sin:
            return NotImplemented
        if func is F.relu:
            return "relu"
        return super().__torch_function__(func, types, args, kwargs)


class Declines(torch.Tensor):
    """The other operand's class is asked next."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return NotImplemented


class Accepts(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return [t.__name__ for t in types]


def results_keep_the_class(x, plain):
    y = x * 2 + plain
    return y, plain - y, y.sin().sum(), y[0], y[:, 1], y.shape, y.size(0), y.dtype, y.max(dim=0), y.chunk(2), len(y)


def functions(x, plain):
    return (
        torch.cat([x, plain]), torch.stack([plain, x]), F.softmax(x, -1), F.linear(x, plain),
        torch.where(x > 0, x, plain),
        F.layer_norm(x, x.shape[-1:]), torch.einsum("ij,kj->ik", x, plain), F.cross_entropy(x, plain.argmax(-1)),
        x @ plain.T, x.T, x.unsqueeze(0).squeeze(0), x.norm(), x.split(1), torch.meshgrid(x[0], x[1], indexing="ij"))


def mutations(x, plain):
    y = x.clone()
    y += 1
    y.mul_(plain)
    y[0] = 5
    y[1] += plain[1]
    x.add_(1)
    return y, x, y is y.add_(1), y.data.add_(1)


def iteration(x, plain):
    a, b, *_ = x
    return [row + 1 for row in x], a, b, list(reversed(x)), tuple(x.unbind(1))


def both_classes(x, plain):
    y = plain.as_subclass(Derived)
    return x + y, y + x, torch.add(plain, y), y.scaled(), y.half, Derived.of(plain) * 2, y.plain(y) * 2, y.scale


def attributes(x, plain):
    x.note = {"a": 1}
    y = x * 2
    y.note = [plain, 2]
    z = plain.as_subclass(type(x))
    z.again = z
    found = y.note, x.note["a"], getattr(y, "missing", None), hasattr(x, "note")
    return y, found, z.again is z, z, isinstance(z, Plain)


def back_to_plain(x, plain):
    y = x.as_subclass(torch.Tensor)
    with torch._C.DisableTorchFunctionSubclass():
        z = x + 1
        same = x.add_(1) is x
    return y * 2, type(y) is torch.Tensor, z, same, type(x) is type(y)


PROGRAMS = [
    results_keep_the_class, functions, mutations, iteration, both_classes, attributes, back_to_plain]


def same(a, b):
    if isinstance(a, torch.Tensor):
        if type(a) is not type(b):
            return False
        with torch._C.DisableTorchFunctionSubclass():
            noted = all(same(vars(a)[n], vars(b)[n]) for n in vars(b) if vars(b)[n] is not b)
            return torch.equal(a, b) and a.stride() == b.stride() and vars(a).keys() == vars(b).keys() and noted and (
                a.requires_grad == b.requires_grad)
    if isinstance(a, (tuple, list)):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    return type(a) is type(b) and a == b


def tensors_in(results):
    return [leaf for leaf in torch.utils._pytree.tree_leaves(results) if isinstance(leaf, torch.Tensor)]


def run(function, make, backend, calls=3):
    """What a few calls return and `__torch_function__` sees."""
    torch.manual_seed(0)
    dynamo_lite.reset()
    called = function if backend is None else dynamo_lite.compile(function, backend=backend, fullgraph=True)
    found, seen = [], []
    for attempt in range(calls):
        args = make()
        SEEN.clear()
        with config.patch(error_on_recompile=attempt > 0):
            found.append((called(*args), args))
        seen.append(list(SEEN))
    return found, seen


def check(function, make, backend="eager"):
    want, seen = run(function, make, None)
    got, seen_by_compiled = run(function, make, backend)
    assert seen_by_compiled == seen
    for ours, theirs in zip(got, want, strict=True):
        assert same(ours, theirs)


@pytest.mark.parametrize("cls", [Plain, Seen, Derived, NoOverride])
@pytest.mark.parametrize("function", PROGRAMS, ids=lambda f: f.__name__)
def test_programs(function, cls):
    if function is both_classes and cls is Plain:
        return  # eager raises: neither class derives from the other
    check(function, lambda: (torch.randn(4, 4).as_subclass(cls), torch.randn(4, 4)))


@pytest.mark.parametrize("function", [results_keep_the_class, functions, mutations], ids=lambda f: f.__name__)
def test_compiled_to_kernels(function):
    torch.manual_seed(0)
    want = function(torch.randn(4, 4).as_subclass(Seen), torch.randn(4, 4))
    torch.manual_seed(0)
    got = dynamo_lite.compile(function)(torch.randn(4, 4).as_subclass(Seen), torch.randn(4, 4))
    for a, b in zip(tensors_in(got), tensors_in(want), strict=True):
        assert type(a) is type(b)
        torch.testing.assert_close(a.as_subclass(torch.Tensor), b.as_subclass(torch.Tensor))


class Twice(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        SEEN.append(type(x).__name__)
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        return grad * 2


class Mode(torch.overrides.TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        SEEN.append("mode")
        return func(*args, **(kwargs or {}))


def written_through_an_alias(x, other):
    return x.add_(1), other * 2, other.mul_(3), x + 1, x is other


def across_a_break(x, other):
    y = x * 2
    y.tag = 5
    dynamo_lite.graph_break()
    return y + 1, y.tag, y


def without_gradients(x, other):
    with torch.no_grad():
        y = x * 2
    return y, x * 3, y.requires_grad


def inner_gradient(x, other):
    y = x.detach().requires_grad_()
    return torch.autograd.grad((y * y).sum(), y)


def in_a_transform(x, other):
    return torch.vmap(lambda row: row * 2)(x), torch.vmap(lambda row: row + x[0])(other)


def in_a_custom_function(x, other):
    return Twice.apply(x)


def under_a_mode(x, other):
    with Mode():
        return x + 1, torch.sin(x), other + 1


def by_values(x, other):
    return x * 2 if x.sum() > 0 else x * 3, x.sum().item(), x[x > 0], str(x)


def hooked(x, other):
    y = x * 1
    if y.requires_grad:
        y.register_hook(lambda grad: grad * 2)
    return y * 3


@pytest.mark.parametrize("function", [
    written_through_an_alias, across_a_break, without_gradients, inner_gradient, in_a_transform, in_a_custom_function,
    under_a_mode, by_values, hooked], ids=lambda f: f.__name__)
@pytest.mark.parametrize("as_it_is_given", ["apart", "same", "alias", "leaf"])
def test_where_it_may_break(function, as_it_is_given):
    """The compiled function is called with other tensors, with the same one twice, and with an alias of it."""
    def make():
        x = torch.randn(4, 4).as_subclass(Seen)
        others = {"same": x, "alias": x.as_subclass(torch.Tensor)}
        if as_it_is_given == "leaf" and function is not written_through_an_alias:
            x = x.requires_grad_()
        return x, others.get(as_it_is_given, torch.ones(4, 4))

    found = []
    for called in (function, dynamo_lite.compile(function, backend="eager")):
        torch.manual_seed(1)
        called(torch.randn(4, 4).as_subclass(Seen), torch.ones(4, 4))
        for _ in range(2):
            args = make()
            SEEN.clear()
            found.append((called(*args), args, list(SEEN)))
    for ours, theirs in zip(found[2:], found[:2], strict=True):
        assert ours[2] == theirs[2] and same(ours[:2], theirs[:2])
    assert not log.counters().get("internal_errors")


def quantities(plain):
    a, b = Quantity(plain, Unit.METRE), Quantity(plain * 2, Unit.METRE)
    c = (a + b).sin()
    try:
        a + Quantity(plain, Unit.SECOND)
    except TypeError as error:
        said = str(error)
    return a, b, c, c.unit, said


def constructors(plain):
    return Named(plain, "one"), Named(plain, name="two").name_of_it, Made(plain), Made(plain, True), Made(plain) * 2


def operators_of_its_own(plain):
    x = plain.as_subclass(Answers)
    return x + 1, 1 + x, plain + x, -x, len(x), x[0], x.sum(), x.sum(0), x - 1


def refused(plain):
    x = plain.as_subclass(Refuses)
    try:
        torch.sin(x)
    except TypeError as error:
        said = str(error)
    return said, F.relu(x), x.cos()


def declined(plain):
    a, b = plain.as_subclass(Declines), plain.as_subclass(Accepts)
    said = []
    for call in (lambda: a + 1, lambda: 1 - a, lambda: a @ plain, lambda: torch.add(a, a), lambda: a == 1):
        try:
            said.append(call())
        except TypeError as error:
            said.append(str(error))
    return said, a + b, b + a, torch.add(a, b), torch.cat([plain, a, b])


@pytest.mark.parametrize(
    "function", [quantities, constructors, operators_of_its_own, refused, declined], ids=lambda f: f.__name__)
def test_made_inside(function):
    check(function, lambda: (torch.randn(4, 4),))


def test_gradients():
    def function(x, w):
        y = (x @ w).relu()
        z = y.as_subclass(Seen)
        return z.sum() + (z * 2).as_subclass(torch.Tensor).sum()

    found = []
    for called in (function, dynamo_lite.compile(function, fullgraph=True)):
        torch.manual_seed(0)
        for _ in range(3):
            x = torch.randn(4, 4).as_subclass(Seen).requires_grad_()
            w = torch.randn(4, 4, requires_grad=True)
            loss = called(x, w)
            loss.backward()
            found.append((type(loss), loss.detach(), type(x.grad), x.grad, w.grad))
    for ours, theirs in zip(found[3:], found[:3], strict=True):
        assert ours[0] is theirs[0] and ours[2] is theirs[2]
        for a, b in zip((ours[1], ours[3], ours[4]), (theirs[1], theirs[3], theirs[4]), strict=True):
            torch.testing.assert_close(a.as_subclass(torch.Tensor), b.as_subclass(torch.Tensor))


@pytest.mark.parametrize("grad", [torch.no_grad, torch.enable_grad, torch.inference_mode])
def test_requires_grad_without_grad_mode(grad):
    def function(x):
        return x.requires_grad, x * 2

    x = torch.randn(3).as_subclass(Plain)
    for leaf in (x, x.clone().requires_grad_()):
        compiled = dynamo_lite.compile(function, backend="eager")
        with grad():
            for _ in range(2):
                assert same(compiled(leaf), function(leaf))


def attention(q, k, v, given):
    mask = causal_upper_left(q.shape[-2], k.shape[-2]) if given is None else given
    return F.scaled_dot_product_attention(q, k, v, mask) + 1


def heads():
    return torch.randn(2, 4, 5, 8), torch.randn(2, 4, 9, 8), torch.randn(2, 4, 9, 8)


@pytest.mark.parametrize("inside", [True, False])
def test_causal_bias(inside):
    compiled = dynamo_lite.compile(attention, fullgraph=True)
    for attempt in range(3):
        args = (*heads(), None if inside else causal_upper_left(5, 9))
        with config.patch(error_on_recompile=attempt > 0):
            torch.testing.assert_close(compiled(*args), attention(*args))


@pytest.mark.filterwarnings("ignore")
def test_a_causal_bias_that_warns():
    """Torch says why its fused kernels can't be used, at each call."""
    args = (*heads(), causal_lower_right(5, 9))
    torch.testing.assert_close(dynamo_lite.compile(attention)(*args), attention(*args))


def test_another_class_is_compiled_for_itself():
    def function(x):
        return x * 2

    compiled = dynamo_lite.compile(function, backend="eager")
    for cls in (torch.Tensor, Plain, Seen, Plain, torch.Tensor):
        assert type(compiled(torch.randn(3).as_subclass(cls))) is cls


def test_a_changed_torch_function_is_seen():
    class Changes(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            return 1

    compiled = dynamo_lite.compile(lambda x: torch.sin(x), backend="eager")
    x = torch.randn(3).as_subclass(Changes)
    assert compiled(x) == 1
    Changes.__torch_function__ = classmethod(lambda cls, func, types, args=(), kwargs=None: 2)
    assert compiled(x) == 2


@pytest.mark.parametrize("name, method", [
    ("__getattr__", lambda self, name: 5), ("__add__", lambda self, other: 7), ("__bool__", lambda self: False),
    ("foo", 3), ("__len__", lambda self: 8), ("__iter__", lambda self: iter([1]))], ids=lambda part: str(part)[:12])
def test_a_method_that_the_class_gets_later_is_seen(name, method):
    class Base(torch.Tensor):
        pass

    class Later(Base):
        pass

    def function(x):
        return getattr(x, "foo", None), bool(x[0] == x[0]), x + 1, len(x), [type(row).__name__ for row in x]

    compiled, x = dynamo_lite.compile(function, backend="eager"), torch.ones(3).as_subclass(Later)
    assert same(compiled(x), function(x))
    for owner in (Base, Later):
        setattr(owner, name, method)
        assert same(compiled(x), function(x))
        delattr(owner, name)
        assert same(compiled(x), function(x))


class Dispatches(torch.Tensor):
    @staticmethod
    def __new__(cls, inner):
        return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)

    def __init__(self, inner):
        self.inner = inner

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        return func(*[a.inner if isinstance(a, Dispatches) else a for a in args], **(kwargs or {}))


class WithSlots(torch.Tensor):
    __slots__ = ("extra",)


class Looks(torch.Tensor):
    def __getattr__(self, name):
        return name


@pytest.mark.parametrize("cls", [Dispatches, WithSlots, Looks])
def test_classes_that_are_left_to_eager(cls):
    def function(x, plain):
        return plain * 2 + 1, x + plain

    compiled, x, plain = dynamo_lite.compile(function, backend="eager"), torch.randn(3), torch.ones(3)
    x = cls(x) if cls is Dispatches else x.as_subclass(cls)
    before = log.counters().get("graph_breaks", 0)
    want = function(x, plain)
    got = compiled(x, plain)
    assert torch.equal(got[0], want[0]) and type(got[1]) is type(want[1])
    assert log.counters()["graph_breaks"] > before
