"""Frames that ask the interpreter about its own objects run as they are; what they call is captured all the same, but
where all objects are counted."""
import gc
import sys
import weakref
from gc import collect
from sys import getsizeof

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


LEFT = [size_of_a_dict, references, lifetime, lifetime_by_names, lifetime_by_a_helper, objects]


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
    assert any("for the size, the number or the holders of objects" in r.getMessage() for r in caplog.records)
