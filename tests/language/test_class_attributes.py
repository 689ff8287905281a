"""Attributes of classes that are set by the program: inside of compiled functions, and between calls."""
import pytest
import torch

import dynamo_lite
from dynamo_lite import log

X = torch.ones(2)


def counters(*names):
    return [log.counters().get(name, 0) for name in names]


def check(program, calls=12, compiles=2, breaks=0, backend="eager"):
    """Runs a program of (make a class, use it) both ways, each call's result and the class's attributes compared."""
    make, use = program
    results = []
    for compiled in (False, True):
        cls = make()
        fn = dynamo_lite.compile(use, backend=backend) if compiled else use
        seen = []
        for turn in range(calls):
            got = fn(cls, X * turn)
            seen.append((got.tolist() if isinstance(got, torch.Tensor) else [
                g.tolist() if isinstance(g, torch.Tensor) else g for g in got],
                {k: v for k, v in vars(cls).items() if not k.startswith("_") and not callable(v)}))
        results.append(str(seen))
    assert results[0] == results[1]
    assert counters("graph_breaks")[0] == breaks or breaks is None
    assert counters("recompiles", "recompile_limit") <= [compiles - 1, 0]


def make_counted():
    class Counted:
        calls = 0
        last = None
        names = ()

        def count(self):
            type(self).calls += 1
            return self.calls

    return Counted


def test_a_counter():
    def use(cls, x):
        cls.calls += 1
        return x * 2 + cls.calls

    check((make_counted, use))


def test_a_counter_by_an_instance():
    def use(cls, x):
        return x * cls().count() + cls.calls

    check((make_counted, use))


def test_a_counter_of_a_subclass_reads_that_of_its_base():
    def make():
        class Derived(make_counted()):
            pass

        return Derived

    def use(cls, x):
        cls.calls += 1  # its own from now on
        cls.__bases__[0].calls += 10
        return x + cls.calls, cls().calls, cls.__bases__[0].calls

    check((make, use), compiles=4)


def test_values_of_other_kinds():
    def use(cls, x):
        before = cls.last
        cls.last = {"x": x + 1, "n": [1, 2]}
        cls.names = (*cls.names[:2], "a")
        cls.new = cls.last["x"].shape
        return x * 2, before is None, cls().last["n"], hasattr(cls, "new"), cls.new

    check((make_counted, use), compiles=6)


def test_tensors_stay_with_the_class():
    def use(cls, x):
        if cls.last is not None:
            x = x + cls.last
        cls.last = x * 2
        return x.sin()

    check((make_counted, use), compiles=3)


def test_set_before_a_break_and_in_a_loop():
    def use(cls, x):
        for i in range(3):
            cls.calls += i
            x = x + cls.calls
        dynamo_lite.graph_break()
        cls.calls -= 1
        return x + cls.calls

    check((make_counted, use), compiles=4, breaks=None)


def test_an_instance_has_its_own():
    def use(cls, x):
        one = cls()
        one.calls = 5
        cls.calls += 1
        return x + one.calls, cls().calls

    check((make_counted, use))


def test_super_and_class_methods():
    def make():
        class Base(make_counted()):
            @classmethod
            def step(cls):
                cls.calls += 2
                return cls.calls

        class Derived(Base):
            def doubled(self):
                return self.step() * 2 + type(self).step()

        return Derived

    def use(cls, x):
        return x + cls().doubled(), cls.calls

    check((make, use))


def test_a_module_that_counts_its_calls():
    class Net(torch.nn.Module):
        calls = 0

        def __init__(self):
            super().__init__()
            self.linear = torch.nn.Linear(2, 2)

        def forward(self, x):
            Net.calls += 1
            return self.linear(x)

    net = Net()
    compiled = dynamo_lite.compile(net, fullgraph=True, backend="eager")
    for turn in range(20):
        assert torch.equal(compiled(X * turn), net.linear(X * turn))
    assert Net.calls == 20
    assert counters("recompiles", "recompile_limit") == [1, 0]


def test_an_exception_keeps_what_was_set_before_it():
    def use(cls, x):
        cls.calls += 1
        if cls.calls % 2:
            raise ValueError(cls.calls)
        return x + 1

    cls = make_counted()
    compiled = dynamo_lite.compile(use, backend="eager")
    for turn in range(1, 7):
        if turn % 2:
            with pytest.raises(ValueError, match=str(turn)):
                compiled(cls, X)
        else:
            assert torch.equal(compiled(cls, X), X + 1)
        assert cls.calls == turn


# ---------------------------------------------------------------- what Python sets by itself
def test_methods_and_descriptors_that_are_set_break():
    def use(cls, x):
        cls.doubled = lambda self, y: y * 2
        cls.size = property(lambda self: 7)
        return cls().doubled(x) + cls().size

    compiled = dynamo_lite.compile(use, backend="eager")
    for _ in range(3):
        assert torch.equal(compiled(make_counted(), X), X * 2 + 7)
    assert counters("graph_breaks")[0]


def test_a_special_method_that_is_replaced_by_a_value_is_seen():
    class Thing:
        scale = 2

        def __call__(self, x):
            return x * self.scale

    def use(cls, x):
        cls.scale = 3
        y = cls()(x)
        cls.forward = None
        return y, getattr(cls(), "forward", 1)

    compiled = dynamo_lite.compile(use, backend="eager")
    for _ in range(3):
        got = compiled(Thing, X)
        assert torch.equal(got[0], X * 3) and got[1] is None
        Thing.scale = 2


def test_a_method_overwritten_with_a_value():
    class Thing:
        def size(self):
            return 3

    def use(cls, x):
        before = cls().size()
        cls.size = 4
        try:
            cls().size()
        except TypeError:
            return x + before + cls.size

    size = Thing.size
    compiled = dynamo_lite.compile(use, backend="eager")
    for _ in range(3):
        Thing.size = size
        assert torch.equal(compiled(Thing, X), X + 7)
        assert Thing.size == 4


def test_a_metaclass_that_decides():
    class Meta(type):
        def __setattr__(cls, name, value):
            type.__setattr__(cls, name, value + 100)

    class Thing(metaclass=Meta):
        n = 0

    def use(x):
        Thing.n = 1
        return x + Thing.n

    compiled = dynamo_lite.compile(use, backend="eager")
    for _ in range(3):
        assert torch.equal(compiled(X), X + 101)


# ---------------------------------------------------------------- what changes between calls
def test_what_is_set_between_calls_is_seen():
    class Base:
        scale = 1

    class Thing(Base):
        pass

    thing = Thing()

    def use(x):
        return x * thing.scale + Thing.scale

    compiled = dynamo_lite.compile(use, backend="eager")

    def same():
        assert torch.equal(compiled(X), use(X))

    for n in range(2, 14):
        Base.scale = n
        same()
    assert counters("recompile_limit") == [0]
    Base.scale = 2.5
    same()
    Base.scale = True
    same()
    Thing.scale = 20
    same()
    thing.scale = 30
    same()
    Thing.scale = 21
    same()
    del thing.scale
    same()
    del Thing.scale
    same()
    Base.scale = torch.ones(2) * 4
    same()
    Thing.scale = property(lambda self: 50)
    with pytest.raises(TypeError):
        use(X)
    with pytest.raises(TypeError):
        compiled(X)
    Thing.scale = 3
    same()
    del Thing.scale, Base.scale
    with pytest.raises(AttributeError):
        compiled(X)


def test_a_value_that_becomes_a_descriptor():
    class Thing:
        scale = 1

    thing = Thing()

    def use(x):
        return x * thing.scale

    compiled = dynamo_lite.compile(use, backend="eager")
    for n in range(4):
        Thing.scale = n
        assert torch.equal(compiled(X), X * n)
    Thing.scale = property(lambda self: 9)
    assert torch.equal(compiled(X), X * 9)
    Thing.scale = 5
    assert torch.equal(compiled(X), X * 5)
    thing.__dict__["scale"] = 6
    assert torch.equal(compiled(X), X * 6)
    Thing.scale = property(lambda self: 10)
    assert torch.equal(compiled(X), X * 10)
    Thing.scale = 7
    assert torch.equal(compiled(X), X * 6)


def test_lists_and_texts_of_classes():
    class Thing:
        sizes = [1]
        mode = "a"

    def use(x):
        Thing.sizes.append(len(Thing.sizes))
        return x + sum(Thing.sizes[:2]) if Thing.mode == "a" else x * len(Thing.mode)

    def same(n):
        for fn in (use, compiled):
            Thing.sizes = list(range(n))
            results.append((fn(X).tolist(), list(Thing.sizes)))
        assert results[-1] == results[-2]

    results = []
    compiled = dynamo_lite.compile(use, backend="eager")
    for n in (1, 2, 5, 3):
        same(n)
    for mode in ("bb", "ccc", "a"):
        Thing.mode = mode
        same(4)


def test_a_function_that_is_set_between_calls():
    class Thing:
        act = staticmethod(torch.sin)

    def use(x):
        return Thing.act(x)

    compiled = dynamo_lite.compile(use, backend="eager")
    for function in (torch.sin, torch.cos, torch.exp, torch.sin):
        Thing.act = staticmethod(function)
        assert torch.equal(compiled(X), function(X))
