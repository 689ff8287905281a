"""Compiling again: what the log says about it, values that change from call to call, and when it stops."""
from __future__ import annotations

import enum
import logging
import re

import pytest
import torch

import dynamo_lite
from dynamo_lite import config, exc, log
from dynamo_lite._eval_frame import entries


def texts(caplog, name):
    return [r.getMessage() for r in caplog.records if r.name == f"dynamo_lite.{name}"]


def same(fn, *calls):
    """Each call as in plain Python; the number of graphs compiled."""
    compiled = dynamo_lite.compile(fn, backend="eager")
    for args in calls:
        assert repr(compiled(*args)) == repr(fn(*args)), args
    return log.counters().get("graphs", 0)


# ---------------------------------------------------------------- counters and growing lists
def branches(x, n):
    if n < 5:
        return x + 1
    if n == 7:
        return x + 2
    return x - 1 if n else x


def test_a_number_that_is_only_compared_costs_a_graph_for_each_outcome():
    x = torch.ones(3)
    assert same(branches, *[(x, n) for n in (3, 4, 5, 6, 7, 8, 2, 0, -5, 9, 7, 5, 1000, True, 2.5)]) <= 8


def uses(x, n):
    return (x + 1, n + 1, n - 2, 1 + n, 1 - n, n > 3, n != 4, [n][0], {n: 1}.get(4), -n, n * 2, n // 2, n is n, bool(n),
            [10, 20, 30][n % 3], x[:n], isinstance(n, int), type(n), str(n))


def test_every_other_use_fixes_the_number():
    with config.patch(recompile_limit=40):
        assert same(uses, *[(torch.ones(3), n) for n in (3, 4, 5, -1, 0, True, 3, 4)]) > 4


def test_counters_and_lists_in_a_loop_of_breaks_compile_once_more():
    def f(x, n):
        k, seen = 0, []
        while x.sum() < n:
            x = x + 1
            k += 1
            seen.append(x.sum().item())
        return x, k, seen

    same(f, (torch.zeros(2), 200))
    assert log.counters()["recompiles"] <= 3 and "recompile_limit" not in log.counters()


class Counting(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.step = 0
        self.history = []

    def forward(self, x):
        self.step += 1
        self.history.append(self.step)
        return x * 2


def test_a_module_that_counts_its_calls():
    module = Counting()
    compiled = dynamo_lite.compile(module, backend="eager", fullgraph=True)
    for _ in range(20):
        compiled(torch.ones(2))
    assert module.step == 20 and module.history == list(range(1, 21)) and log.counters()["graphs"] <= 3


# ---------------------------------------------------------------- what the log says
class Color(enum.Enum):
    RED = 1
    BLUE = 2


def shared():
    x = torch.ones(3)
    return x[:2], x[1:]


CHANGES = [
    (lambda x, k: x * k, (torch.ones(2), 1), (torch.ones(2).double(), 1),
     "x.dtype was torch.float32, is torch.float64"),
    (lambda x, k: x * k, (torch.ones(2), 1), (torch.ones(3), 1), "x.shape was [2], is [3]"),
    (lambda x, k: x * k, (torch.ones(2, 3), 1), (torch.ones(3, 2).t(), 1), "x.stride() was (3, 1), is (1, 2)"),
    (lambda x, k: x * k, (torch.ones(2), 1), (torch.ones(2).requires_grad_(), 1), "x.requires_grad was False, is True"),
    (lambda x, k: x * k, (torch.ones(2), 1), (torch.ones(2), 7), "k was 1, is 7"),
    (lambda x, k: x * k, (torch.ones(2), 1), (torch.ones(2), 1.0), "k was 1, is 1.0"),
    (lambda x, k: x * len(k), (torch.ones(2), [1]), (torch.ones(2), [1, 2]), "k had 1 element, has 2"),
    (lambda x, k: x * k["a"], (torch.ones(2), {"a": 1}), (torch.ones(2), {"b": 1, "a": 2}), "k"),
    (lambda x, k: k(x), (torch.ones(2), abs), (torch.ones(2), torch.neg), "k was"),
    (lambda x, k: x * k, (torch.ones(2), 1), (torch.ones(2, device="meta"), 1), "x.device was cpu, is meta"),
    (lambda x, k: x + 1 if k is Color.RED else x, (torch.ones(2), Color.RED), (torch.ones(2), Color.BLUE),
     "k was Color.RED, is Color.BLUE"),
    (lambda x, k: x + 1 if k else x, (torch.ones(2), True), (torch.ones(2), False), "k was True, is False"),
    (lambda x, k: k(x), (torch.ones(2), torch.relu), (torch.ones(2), torch.sin), "k was torch.relu, is torch.sin"),
    (lambda x, k: x + sum(k.values()), (torch.ones(2), {"a": 1}), (torch.ones(2), {"b": 1}),
     "k had the keys ['a'], has ['b']"),
    (lambda x, k: x + sum(k.values()), (torch.ones(2), dict.fromkeys("abcdef", 1)),
     (torch.ones(2), dict.fromkeys("abcdeg", 1)), "k had 6 keys, has 6: it has lost 'f' and gained 'g'"),
    (lambda x, k: x + sum(k.values()), (torch.ones(2), {"a": 1}), (torch.ones(2), {torch.ones(3): 1}),
     "k had the keys ['a'], has [a tensor of torch.float32, shape [3]]"),
    (lambda x, k: x + ("a" in k), (torch.ones(2), {"a": 1}), (torch.ones(2), {}), "k had the key 'a', has it no more"),
    (lambda x, k: x + k.get("a", 0), (torch.ones(2), {}), (torch.ones(2), {"a": 1}), "k had no 'a', has 1"),
    (lambda x, k: x + sum(k), (torch.ones(2), range(3)), (torch.ones(2), range(4)), "k was range(0, 3), is range("),
    (lambda x, k: x.add_(1) + k, (torch.ones(2), torch.ones(2)), shared(), "x, k shared no memory, now some do"),
    (lambda x, k: x * k, (torch.ones(2), torch.ones(2)), (torch.ones(2), "a"[:0] or 3), "k was of type torch.Tensor"),
]


@pytest.mark.parametrize("fn, before, after, said", CHANGES)
def test_what_was_and_what_is(fn, before, after, said, caplog):
    caplog.set_level(logging.INFO, "dynamo_lite.recompiles")
    compiled = dynamo_lite.compile(fn, backend="eager")
    compiled(*before)
    compiled(*after)
    (text,) = texts(caplog, "recompiles")
    assert said in text and "test_recompiles.py" in text and "<lambda>" in text
    (record,) = [r for r in caplog.records if r.name == "dynamo_lite.recompiles"]
    assert record.frame_id == "0/1"


def test_state_of_torch(caplog):
    caplog.set_level(logging.INFO, "dynamo_lite.recompiles")
    compiled = dynamo_lite.compile(lambda x: x * 2, backend="eager")
    compiled(torch.ones(2))
    with torch.no_grad():
        compiled(torch.ones(2))
    (text,) = texts(caplog, "recompiles")
    assert "grad mode was on, is off" in text and "to avoid it" in text


def test_the_limit_is_said_once_and_counted(caplog):
    compiled = dynamo_lite.compile(lambda x, k: x * int(k), backend="eager")
    with config.patch(recompile_limit=3):
        for k in range(10):
            assert compiled(torch.ones(1), str(k)) == k
    (text,) = texts(caplog, "recompiles")
    assert "recompile_limit = 3" in text and "k was '2', is '3'" in text
    assert log.counters()["graphs"] == 3


def test_an_error_instead():
    compiled = dynamo_lite.compile(lambda x: x * 2, backend="eager")
    compiled(torch.ones(2))
    with config.patch(error_on_recompile=True), pytest.raises(exc.RecompileLimitExceeded, match="shape was"):
        compiled(torch.ones(3))


# ---------------------------------------------------------------- helpers without tensors
def helper(a, b=2):
    return f"{a}{b}"


def test_helpers_of_plain_values_are_not_traced(caplog):
    caplog.set_level(logging.INFO, "dynamo_lite.skipped_frames")

    def f(x):
        text = re.sub("a", lambda match: helper(match.start()), "banana")
        return x + 1, text

    same(f, (torch.ones(2),))
    assert any("helper" in t and "plain values" in t for t in texts(caplog, "skipped_frames"))
    assert log.counters()["graphs"] == 1


def test_the_entry_that_fits_all_does_not_stand_in_for_the_others():
    def layer(x, n):
        return x * 2 + len([0] * n)

    with config.patch(recompile_limit=4):
        fn, x = dynamo_lite.compile(layer, backend="eager"), torch.ones(8)
        for n in range(6):
            assert torch.equal(fn(x, n), layer(x, n))
        before = {k: log.counters().get(k, 0) for k in ("graphs", "recompiles", "graph_breaks")}
        for _ in range(3):
            for n in range(6):
                assert torch.equal(fn(x, n), layer(x, n))
        assert {k: log.counters().get(k, 0) for k in before} == before
        assert [entry.hits for entry in entries(layer.__code__)] == [3, 3, 3, 11]


def test_the_last_entry_fits_all_numbers():
    def f(x):
        for i in range(30):
            x = x + 1
            print(helper(i), end="")
        return x

    same(f, (torch.ones(2),))
    assert log.counters()["graphs"] <= 12 and "recompile_limit" not in log.counters()


# ---------------------------------------------------------------- numbers that only take part in arithmetic
def graphs_of(fn, *calls, backend="eager"):
    compiled = dynamo_lite.compile(fn, backend=backend)
    for args in calls:
        torch.testing.assert_close(compiled(*args), fn(*args))
    counters = log.counters()
    return counters.get("graphs", 0), counters.get("recompiles", 0)


@pytest.mark.parametrize("backend", ["eager", "inductor_lite"])
@pytest.mark.parametrize("fn", [
    lambda x, lr, n: x * lr + 1,
    lambda x, lr, n: x * n - n,
    lambda x, lr, n: x * (n * lr) + (n + 1),
    lambda x, lr, n: torch.add(x, x, alpha=-lr) / (1 + lr ** 2),
    lambda x, lr, n: torch.full((2,), lr) + x[0],
])
def test_arithmetic_with_changing_numbers_compiles_once_more(fn, backend):
    x = torch.randn(4)
    assert graphs_of(fn, *[(x, 0.1 * k + 0.05, k) for k in range(12)], backend=backend) == (2, 1)


def test_a_changing_float_that_is_returned_or_stored():
    def fn(x, lr, seen):
        seen.append(lr)
        return x * lr, lr

    compiled = dynamo_lite.compile(fn, backend="eager")
    seen = []
    for k in range(6):
        lr = 0.5 * k
        out, same_lr = compiled(torch.ones(2), lr, seen)
        assert same_lr is lr and seen[-1] is lr and out[0] == lr
    assert log.counters()["recompiles"] <= 2


def test_a_float_that_decides_is_guarded_by_the_outcome():
    fn = lambda x, p: x * p if p > 0.5 else x - p
    assert graphs_of(fn, *[(torch.ones(3), k / 20) for k in range(20)]) == (3, 2)
    assert "graph_breaks" not in log.counters()


def test_a_number_out_of_a_tensor_is_no_constant_after_a_break():
    def fn(x):
        s = x.sum().item()
        if s > 0:
            return x * s
        return x - s

    calls = [(torch.randn(4),) for _ in range(12)]
    with config.patch(capture_scalar_outputs=True):
        assert graphs_of(fn, *calls) == (3, 0)
    dynamo_lite.reset()
    log.reset_counters()
    assert graphs_of(fn, *calls)[1] <= 3


def test_an_int_that_is_used_as_a_size_is_a_symbol():
    graphs, recompiles = graphs_of(lambda x, n: torch.zeros(n) + x, *[(torch.ones(1), n) for n in (1, 2, 3, 1, 9, 3)])
    assert (graphs, recompiles) == (2, 1)


def test_a_method_of_a_list_that_was_read_before_a_break():
    def fn(x, items):
        append = items.append
        dynamo_lite.graph_break()
        append(x + 1)
        return x * 2

    compiled = dynamo_lite.compile(fn, backend="eager")
    items = []
    for k in range(12):
        assert compiled(torch.ones(1) * k, items) == 2 * k
    assert [int(t) for t in items] == list(range(1, 13))
    assert log.counters()["recompiles"] <= 2


class Scaled(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.drop = torch.nn.Dropout()

    def forward(self, x):
        return self.drop(x)


def test_modules_are_named_by_their_class(caplog):
    caplog.set_level(logging.INFO, "dynamo_lite.recompiles")
    model = Scaled()
    compiled = dynamo_lite.compile(model, backend="eager")
    compiled(torch.ones(2))
    model.eval()
    compiled(torch.ones(2))
    model.register_forward_hook(lambda *a: None)
    compiled(torch.ones(2))
    first, second = texts(caplog, "recompiles")
    assert first.startswith("Scaled.forward (") and "module.drop.training was True, is False" in first
    assert "module had no hooks, has some" in second


def test_values_on_the_stack_have_the_names_that_the_program_gives_them(caplog):
    caplog.set_level(logging.INFO, "dynamo_lite.recompiles")

    def fn(x, items):
        for item in items:
            x = x + len(item)
        return x

    dynamo_lite.compile(fn, backend="eager")(torch.ones(1), (t for t in ("a", "bb")))
    assert any("going on at line" in t and "item was 'a', is 'bb'" in t for t in texts(caplog, "recompiles"))


def test_a_class_that_has_changed(caplog):
    caplog.set_level(logging.INFO, "dynamo_lite.recompiles")

    class Thing:
        size = 2

    compiled = dynamo_lite.compile(lambda x, t: x.new_zeros(t.size), backend="eager")
    compiled(torch.ones(1), Thing())
    Thing.size = 3
    assert compiled(torch.ones(1), Thing()).shape == (3,)
    (text,) = texts(caplog, "recompiles")
    assert "Thing.size" in text


def with_default(x, by=3):
    return x * by


def calls_what_has_a_default(x):
    try:
        return with_default(x)
    except TypeError:
        return x


def test_the_reason_where_a_value_is_of_another_type(caplog, monkeypatch):
    caplog.set_level(logging.INFO, "dynamo_lite.recompiles")
    compiled = dynamo_lite.compile(calls_what_has_a_default, backend="eager")
    compiled(torch.ones(2))
    monkeypatch.setattr(with_default, "__defaults__", None)
    torch.testing.assert_close(compiled(torch.ones(2)), torch.ones(2))
    (record,) = [r for r in caplog.records if r.name == "dynamo_lite.recompiles"]
    said = "with_default.__defaults__ is None; it was that with_default.__defaults__ has length 1"
    assert said in record.getMessage()


# ---------------------------------------------------------------- sizes that change together
class Cache:
    def __init__(self):
        self.keys = None

    def update(self, x):
        self.keys = x if self.keys is None else torch.cat([self.keys, x], 1)
        return self.keys


def decodes(x, cache):
    """A prompt, then a row at a time."""
    keys = cache.update(x * 2)
    return torch.softmax(x @ keys.transpose(1, 2), -1) @ keys


def _generated(fn, batch, length):
    torch.manual_seed(length)
    cache, found = Cache(), []
    for n in (length, 1, 1, 1):
        found.append(fn(torch.randn(batch, n, 16), cache))
    return found


def test_a_cache_is_learned_with_the_prompt_that_filled_it():
    compiled = dynamo_lite.compile(decodes, backend="eager")
    graphs = []
    for batch, length in ((1, 8), (1, 13), (1, 5), (4, 8), (4, 7)):
        for found, expected in zip(_generated(compiled, batch, length), _generated(decodes, batch, length)):
            assert torch.equal(found, expected)
        graphs.append(log.counters()["graphs"])
    assert graphs == [2, 3, 3, 5, 5]


def test_a_new_tensor_with_two_sizes_that_equal_a_changed_one_or_none_that_does():
    def f(x, parts):
        return sum((part.sum() for part in parts.values()), x.sum())

    compiled = dynamo_lite.compile(f, backend="eager")
    calls = [({}, 8), ({"a": torch.ones(8, 8)}, 9), ({"a": torch.ones(8, 8)}, 7), ({"a": torch.ones(9, 9)}, 8),
             ({"a": torch.ones(7, 9)}, 8), ({"a": torch.ones(7, 9), "b": torch.ones(4, 3)}, 4)]
    for parts, n in calls:
        assert torch.equal(compiled(torch.ones(n), parts), f(torch.ones(n), parts))
    assert log.counters()["graphs"] <= len(calls)


class Window:
    """The last seven rows, and how many there have been."""

    def __init__(self):
        self.keys, self.seen = None, 0

    def update(self, x):
        self.seen += x.shape[1]
        full = x if self.keys is None else torch.cat([self.keys, x], 1)
        self.keys = full[:, -7:]
        return full


def decodes_in_a_window(x, cache):
    before = max(cache.seen - 7, 0)
    keys = cache.update(x * 2)
    return (torch.softmax(x @ keys.transpose(1, 2), -1) @ keys) * (before + 1), cache.seen


def test_a_window_is_learned_with_its_strides_and_its_counter():
    def generated(fn, length):
        torch.manual_seed(length)
        cache, found = Window(), []
        for n in (length, *[1] * 8):
            found += fn(torch.randn(2, n, 16), cache)
        return found

    compiled = dynamo_lite.compile(decodes_in_a_window, backend="eager")
    graphs = []
    for length in (3, 4, 5, 9, 12, 2, 11):
        for found, expected in zip(generated(compiled, length), generated(decodes_in_a_window, length)):
            assert torch.equal(torch.as_tensor(found), torch.as_tensor(expected))
        graphs.append(log.counters()["graphs"])
    assert graphs[-1] <= 7, graphs


def test_sizes_that_were_equal_and_are_not_any_more_share_no_symbol_later():
    """Of three that were equal, two still are: the next compile does not ask that of any of them."""
    def fn(x, y, z):
        return x.sum() * 2, y.sum() + 1, z.sum() - 1

    calls = [tuple(torch.ones(n) for n in sizes) for sizes in ((3, 3, 3), (4, 4, 4), (5, 5, 6), (5, 6, 6), (7, 8, 9))]
    assert same(fn, *calls) == 3


def test_the_border_between_two_graphs_is_no_reason_to_give_up():
    def window(x, c):
        if c >= 8:
            return x * (c - 7)
        return x + c if c + 1 >= 8 else x - c

    compiled = dynamo_lite.compile(window, backend="eager")
    x = torch.randn(3)
    with config.patch(recompile_limit=2, cache_sizes=False):
        for c in (3, 4, 5, 7, 9, 20, 6, 7, 8):
            assert torch.equal(compiled(x, c), window(x, c)), c
    assert log.counters()["graphs"] == 4 and "recompile_limit" not in log.counters()


# ---------------------------------------------------------------- numbers that change along with a flag
class CacheOfKeys:
    """What it holds begins empty, as static caches of language models do."""

    def __init__(self):
        self.is_ready = False
        self.length = 0


def shifted_by_length(x, cache):
    y = x + cache.length
    return y * 2 if cache.is_ready else y


def test_a_number_that_changes_along_with_a_flag_is_seen_to_change():
    cache, x = CacheOfKeys(), torch.ones(3)
    compiled = dynamo_lite.compile(shifted_by_length, backend="eager", fullgraph=True)
    before = log.counters().get("graphs", 0)
    for length in (0, 5, 6, 7, 8):
        cache.length = length
        cache.is_ready = length > 0
        assert torch.equal(compiled(x, cache), shifted_by_length(x, cache))
    assert log.counters()["graphs"] - before == 2
