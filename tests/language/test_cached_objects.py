"""Functions under ``functools.lru_cache`` that keep objects for objects of the program: asked again at each call."""
import functools
import gc
import weakref

import pytest
import torch
from torch import nn

import dynamo_lite
from dynamo_lite import exc, log


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Conv1d(1, 2, 3)
        self.rest = nn.Sequential(nn.Conv1d(2, 2, 3), nn.ReLU(), nn.Conv1d(2, 1, 2))
        self.calls = 0

    @functools.lru_cache
    def convolutions(self, module, *, kind=nn.Conv1d):
        return tuple(child for child in module.modules() if isinstance(child, kind))

    def forward(self, x):
        self.calls = self.calls + 1
        length = x.shape[-1]
        for layer in (*self.convolutions(self), *self.convolutions(self.rest, kind=nn.Conv1d)):
            length = length - layer.kernel_size[0] + 1
        assert self.convolutions(self) is self.convolutions(self)
        return self.rest(self.first(x)) * length


def compiled(fn, **options):
    dynamo_lite.reset()
    log.reset()
    return dynamo_lite.compile(fn, backend="eager", **options)


def graphs():
    return log.counters().get("graphs", 0)


def test_one_graph():
    net = Net()
    fn = compiled(net, fullgraph=True)
    for _ in range(3):
        x = torch.randn(1, 1, 12)
        torch.testing.assert_close(fn(x), net(x))
    assert graphs() <= 2 and net.calls == 6  # the number of calls changes


def test_each_object_has_a_result_of_its_own():
    one, two = Net(), Net()
    two.rest = nn.Sequential(nn.Conv1d(2, 1, 2))
    fn = compiled(lambda net, x: net(x))
    for net in (one, two, one, two):
        x = torch.randn(1, 1, 12)
        torch.testing.assert_close(fn(net, x), net(x))


def test_what_the_cache_keeps_is_eagers_though_it_is_old():
    net = Net()
    fn = compiled(net)
    x = torch.randn(1, 1, 12)
    torch.testing.assert_close(fn(x), net(x))
    net.rest = nn.Sequential(nn.Conv1d(2, 1, 4))
    torch.testing.assert_close(fn(x), net(x))  # still counts the three that there were
    Net.convolutions.cache_clear()
    torch.testing.assert_close(fn(x), net(x))
    net.rest = nn.Sequential(nn.Conv1d(2, 1, 4), nn.Conv1d(1, 1, 2))
    compiled_now = compiled(net)
    torch.testing.assert_close(compiled_now(x), net(x))


def test_the_cache_alone_keeps_objects():
    net = Net()
    fn, x = compiled(lambda net, x: net(x)), torch.randn(1, 1, 12)
    fn(net, x)
    end = weakref.ref(net)
    Net.convolutions.cache_clear()
    del net
    gc.collect()
    assert end() is None
    other = Net()
    torch.testing.assert_close(fn(other, x), other(x))


class Equal:
    def __init__(self, k):
        self.k = k

    def __eq__(self, other):
        return isinstance(other, Equal)

    def __hash__(self):
        return 1


@functools.lru_cache
def pair(value):
    return (value, value.k)


@functools.lru_cache
def noted(value):
    value.seen = True
    return (value,)


@functools.lru_cache
def made(value):
    return [value.k]


class Plain:
    k = 2


def test_what_is_found_by_another_equality_or_changes_something_breaks():
    for function, value in ((pair, Equal(3)), (noted, Plain())):
        f = lambda x, value: x * len(function(value))
        with pytest.raises(exc.Unsupported):
            compiled(f, fullgraph=True)(torch.ones(2), value)
        fn = compiled(f)
        for given in (value, type(value)(4) if isinstance(value, Equal) else Plain()):
            assert torch.equal(fn(torch.ones(2), given), f(torch.ones(2), given))
    fn = compiled(lambda x, value: x * pair(value)[1], fullgraph=True)
    assert torch.equal(fn(torch.ones(2), Plain()), torch.ones(2) * 2)


class Recipe:
    def __init__(self, pattern):
        self.names = pattern.split()
        self.order = list(range(len(self.names)))[::-1]


@functools.lru_cache(4)
def recipe(pattern):
    return Recipe(pattern)


class Plan:
    def __init__(self, sizes, order):
        self.sizes = sizes
        self.order = order


@functools.lru_cache
def steps(given, shape, extra=()):
    """As einops has it: of an object that a cache keeps, a shape and pairs, several containers."""
    known = dict(extra)
    sizes = [known.get(name, size) for name, size in zip(given.names, shape)]
    return sizes, given.order, {len(shape): -1}, {1, 2}, Plan(tuple(sizes), given.order), None


def rearranged(x, pattern="a b"):
    sizes, order, added, both, plan, nothing = steps(recipe(pattern), tuple(x.shape))
    assert nothing is None and plan.order is order is recipe(pattern).order and 1 in both
    return x.reshape(sizes).permute(order).unsqueeze(added[2]) * plan.sizes[0]


def test_of_a_cached_object_and_a_shape():
    fn = compiled(rearranged, fullgraph=True)
    x = torch.randn(2, 3)
    torch.testing.assert_close(fn(x), rearranged(x))
    torch.testing.assert_close(fn(x + 1), rearranged(x + 1))
    assert graphs() == 1
    torch.testing.assert_close(fn(x.T), rearranged(x.T))  # another shape
    assert graphs() == 2
    recipe.cache_clear()  # another object, like the one before
    torch.testing.assert_close(fn(x), rearranged(x))
    assert graphs() == 2
    recipe("a b").order = [0, 1]
    steps.cache_clear()
    torch.testing.assert_close(fn(x), rearranged(x))
    assert graphs() == 3
    recipe.cache_clear()


@functools.lru_cache
def number(value):
    return value.k


def test_a_kept_number_that_is_no_longer_what_the_function_gives():
    value = Plain()
    assert number(value) == 2
    value.k = 5
    fn = compiled(lambda x, value: x * number(value))
    for given, want in ((value, 2), (Plain(), 2), (value, 2)):
        assert torch.equal(fn(torch.ones(2), given), torch.ones(2) * want)


def test_one_graph_for_objects_of_a_kind():
    fn = compiled(lambda x, value: x * number(value), fullgraph=True)
    for _ in range(4):
        assert torch.equal(fn(torch.ones(2), Plain()), torch.ones(2) * 2)
    assert graphs() == 1
    other = Plain()
    other.k = 7
    assert torch.equal(fn(torch.ones(2), other), torch.ones(2) * 7)


def test_with_pairs_and_sizes():
    fn = compiled(lambda x, n: x * steps(recipe("a b"), x.shape, (("b", n),))[0][1], fullgraph=True)
    for n in (5, 6, 5):
        assert torch.equal(fn(torch.ones(2, 3), n), torch.ones(2, 3) * n)


def test_kept_lists_are_the_same_each_time_and_break_once_they_are_changed():
    def f(x, value):
        kept = made(value)
        kept.append(len(kept))
        return x * len(made(value)), kept

    value, twin = Plain(), Plain()
    fn = compiled(f)
    for _ in range(3):
        got, want = fn(torch.ones(2), value), f(torch.ones(2), twin)
        assert torch.equal(got[0], want[0]) and got[1] == want[1] and got[1] is made(value)
    made(value).clear()
    made(twin).clear()
    assert fn(torch.ones(2), value)[1] == f(torch.ones(2), twin)[1] == [0]


def test_an_object_that_changed_before_breaks():
    def f(x, value):
        value.k = x.shape[0]
        return x * made(value)[0]

    for n in (2, 3):
        value, twin = Plain(), Plain()
        torch.testing.assert_close(compiled(f)(torch.ones(n), value), f(torch.ones(n), twin))


@functools.lru_cache
def looped(value):
    plan = Plan((1,), [])
    plan.order.append(plan)
    return plan


def test_a_kept_object_that_holds_itself():
    fn = compiled(lambda x, value: x * looped(value).order[0].sizes[0], fullgraph=True)
    assert torch.equal(fn(torch.ones(2), Plain()), torch.ones(2))


scaled = functools.lru_cache(functools.partial(lambda factor, value: [value.k * factor], 3))


def test_a_cached_partial():
    value = Plain()
    fn = compiled(lambda x, value: x * scaled(value)[0], fullgraph=True)
    for _ in range(2):
        assert torch.equal(fn(torch.ones(2), value), torch.ones(2) * 6)
    assert graphs() == 1


def test_einops():
    einops = pytest.importorskip("einops")
    layers = pytest.importorskip("einops.layers.torch")
    flat, most = layers.Rearrange("b c h w -> b (h w) c"), layers.Reduce("b n c -> b c", "max")
    mixed = nn.Sequential(flat, nn.Linear(8, 4), most)

    def f(x):
        tokens = einops.rearrange(x, "b (g c) (h h2) w -> (b g) (h w) (c h2)", g=2, h2=2)
        scores = einops.einsum(tokens, tokens, "b i d, b j d -> b i j").softmax(-1)
        packed, sizes = einops.pack([scores, scores.mean(-1)], "b i *")
        first, second = einops.unpack(packed * 2, sizes, "b i *")
        return first, einops.repeat(second, "b i -> b i n", n=3), einops.reduce(x, "b c h w -> c", "mean"), mixed(x)

    x = torch.randn(2, 8, 4, 6)
    wanted = f(x)  # it notes which classes of tensors it has met
    fn = compiled(f, fullgraph=True)
    for _ in range(2):
        for got, want in zip(fn(x), wanted):
            torch.testing.assert_close(got, want)
            assert got.stride() == want.stride()
    assert graphs() == 1
