"""Frames that ask the interpreter about its own objects run as they are; what they call is captured all the same, but
where all objects are counted."""
import gc
import inspect
import sys
import weakref
from gc import collect
from sys import getsizeof

import pytest
import torch

import dynamo_lite
from dynamo_lite import _eval_frame, log
from dynamo_lite.frame.introspection import reason_to_leave

X = torch.arange(3.0)


def collects():
    import gc

    gc.collect()


def size_of_a_dict(x):
    d = {}
    d["a"] = x
    before = sys.getsizeof(d)
    d.update((str(i), i) for i in range(100))
    return x + 1, before, getsizeof(d)


def references(x):
    y = [x]
    return sys.getrefcount(y)


def tracked(x):
    y = (x, 1)
    return x + 1, gc.is_tracked(y[1:])


def lifetime(x):
    class Thing:
        pass

    thing = Thing()
    watched = weakref.ref(thing), weakref.ref(Thing)
    del thing, Thing
    gc.collect()
    return x * 2, [ref() is None for ref in watched]


def lifetime_by_names(x):
    thing = type("Thing", (), {})
    watched = weakref.ref(thing)
    del thing
    collect()
    return watched() is None


def lifetime_by_a_helper(x):
    thing = type("Thing", (), {})
    watched = weakref.ref(thing)
    del thing
    collects()
    return watched() is None


def objects(x):
    return len(gc.get_objects()) > 100


LEFT = [size_of_a_dict, references, tracked, lifetime, lifetime_by_names, objects]


def collects_alone(x):
    gc.collect()
    return x.sin() + 1


def weak_alone(x):
    return weakref.ref(x)() + 1


def of_another_name(x, sys=3):
    getsizeof = sys + 1
    return x + getsizeof


def test_frames_that_are_left():
    for fn in LEFT:
        assert reason_to_leave(fn.__code__, fn.__globals__), fn
        compiled = dynamo_lite.compile(fn, backend="eager")
        for _ in range(3):
            got, want = compiled(X), fn(X)
            assert str(got) == str(want), fn
        assert not _eval_frame.entries(fn.__code__)
    assert log.counters()["skipped_frames"] >= len(LEFT)


def test_a_frame_whose_helper_collects_breaks_there():
    """Decided by the frame's own code: what it calls is not looked through."""
    assert reason_to_leave(lifetime_by_a_helper.__code__, lifetime_by_a_helper.__globals__) is None
    compiled = dynamo_lite.compile(lifetime_by_a_helper, backend="eager")
    assert [compiled(X) for _ in range(3)] == [lifetime_by_a_helper(X)] * 3 == [True] * 3


def test_frames_that_are_captured():
    for fn in (collects_alone, weak_alone, of_another_name):
        assert reason_to_leave(fn.__code__, fn.__globals__) is None
        before = log.counters().get("graphs", 0)
        assert torch.equal(dynamo_lite.compile(fn, backend="eager")(X), fn(X))
        assert log.counters()["graphs"] == before + 1


class Layer(torch.nn.Module):
    def forward(self, x):
        return x.cos() * 2


LAYER = Layer()


def calls_a_layer(x):
    return LAYER(x), sys.getsizeof(x.tolist())


def test_what_a_left_frame_calls_is_captured():
    got = dynamo_lite.compile(calls_a_layer, backend="eager")(X)
    assert torch.equal(got[0], X.cos() * 2) and got[1] == sys.getsizeof(X.tolist())
    assert log.counters()["graphs"] == 1


class Never:
    def __eq__(self, other):
        return False


def objects_between(layer):
    never = Never()
    before = len(gc.get_objects())
    for _ in range(3):
        never == never
    layer(X)
    return len(gc.get_objects()) - before


def test_nothing_is_compiled_while_objects_are_counted():
    layer, compiled_layer = Layer(), dynamo_lite.compile(Layer(), backend="eager")
    layer(X), compiled_layer(X)
    compiled = dynamo_lite.compile(objects_between, backend="eager")
    before = log.counters()["graphs"]
    assert [compiled(layer) for _ in range(3)] == [objects_between(layer)] * 3 == [0] * 3
    assert not _eval_frame.entries(Never.__eq__.__code__) and log.counters()["graphs"] == before
    assert compiled(compiled_layer) == 0  # what was compiled before stays so


def test_the_reason_is_logged(caplog):
    log.set_logs("skipped_frames")
    try:
        dynamo_lite.compile(references, backend="eager")(X)
    finally:
        log.set_logs("")
    reason = "for the size, the number, the holders or the collector's view of objects"
    assert any(reason in r.getMessage() for r in caplog.records)


def own_line(x):
    frame = sys._getframe()
    before = frame.f_lineno
    y = x + 1
    dynamo_lite.graph_break()
    return y, frame.f_lineno - before, frame.f_back is not None


def own_locals_through_the_frame(x):
    a = 1
    frame = sys._getframe()
    frame.f_locals["a"] = 7  # the local itself since PEP 667
    y = x + a
    a += 1
    return y, a, frame.f_locals["a"]


def locals_twice(x):
    a = 1
    first = locals()
    a = 5
    second = locals()
    dynamo_lite.graph_break()
    return first is second, first["a"], second["a"], x + 1


def locals_in_a_loop(x):
    seen = [locals() for i in range(1)]
    for i in range(3):
        seen.append(locals())
        x = x + i
    return [one.get("i") for one in seen], x


def names_made_by_exec(x):
    exec("b = 3")
    y = x + 1
    dynamo_lite.graph_break()
    try:
        return y, eval("b")
    except NameError:  # since PEP 667
        return y, None


KEPT_FRAMES = [own_line, own_locals_through_the_frame, locals_twice, locals_in_a_loop, names_made_by_exec]


@pytest.mark.parametrize("fn", KEPT_FRAMES, ids=lambda fn: fn.__name__)
def test_a_frame_that_is_looked_at_more_than_once_is_one_frame(fn):
    want = fn(X)
    compiled = dynamo_lite.compile(fn, backend="eager")
    for _ in range(2):
        assert [str(v) for v in compiled(X)] == [str(v) for v in want]


def test_locals_of_other_frames_are_captured_around():
    def options(x, a=1):
        y = x + 1
        names = dict(vars(LAYER), **locals())
        return vars(LAYER), eval("x + 1", {"x": y}), eval("x + 2", {"x": y}), "y" in names

    assert reason_to_leave(options.__code__, options.__globals__) is None
    got = dynamo_lite.compile(options, backend="eager")(X)
    assert torch.equal(got[1], X + 2) and torch.equal(got[2], X + 3) and got[3]
    assert log.counters()["graphs"] > 0


def local_of_caller(name, depth=1):
    return sys._getframe(depth).f_locals.get(name, "none")


def through_a_helper(name):
    there = name
    return local_of_caller(there, 2)


def by_inspect(name):
    return inspect.currentframe().f_back.f_locals.get(name, "none")


def looked_at_by_what_it_calls(x):
    word, count = "w", 3
    y = x * count
    before = y + 1
    first = local_of_caller("word"), through_a_helper("count"), by_inspect("before")
    word = "v"

    def inside(q):
        constant = 5
        return local_of_caller("constant"), by_inspect("q"), through_a_helper("count")

    second = inside(7), local_of_caller("word"), by_inspect("unknown")
    return y, first, second, by_inspect("count")


def test_frames_seen_by_what_they_call_have_all_their_locals():
    """Also those that nothing reads any more, constants among them."""
    compiled = dynamo_lite.compile(looked_at_by_what_it_calls, backend="eager")
    for _ in range(2):
        got, want = compiled(X), looked_at_by_what_it_calls(X)
        assert str(got) == str(want)
    assert str(got).count("none") == 2
