"""Texts of errors that Python's own code raises, as the running Python has them: many differ by version."""
import collections

import pytest
import torch

import dynamo_lite


class NoBool:
    __bool__ = None


class Plain:
    pass


class Hashed:
    def __hash__(self):
        raise TypeError("own words")


class Outer:
    class Inner:
        __hash__ = None
        __bool__ = None


FAILING = [
    lambda: bool(NoBool()),
    lambda: not NoBool(),
    lambda: [1].index(5),
    lambda: collections.deque([1]).index(5),
    lambda: (1,).index(5),
    lambda: range(3).index(9),
    lambda: "a".index("z"),
    lambda: [1].remove(3),
    lambda: collections.deque([1]).remove(9),
    lambda: b"".join([1]),
    lambda: dict([1]),
    lambda: dict([(1,2),3]),
    lambda: dict([(1,2,3)]),
    lambda: collections.defaultdict(list, [3]),
    lambda: {}.update([1]),
    lambda: {}.update([(1,)]),
    lambda: (lambda a,b,c:1)(),
    lambda: (lambda a,b=1:1)(1,2,3),
    lambda: (lambda a:1)(a=1,b=2),
    lambda: (lambda *,a:1)(),
    lambda: (lambda **k: 1)(**3),
    lambda: (lambda *k: 1)(*3),
    lambda: (lambda **k: 1)(**{1:2}),
    lambda: (lambda a, **k: 1)(1, **{'a':2}),
    lambda: [1]+(2,),
    lambda: (1,)+[2],
    lambda: b"a"+[1],
    lambda: "a"+1,
    lambda: 1+"a",
    lambda: (lambda: [1 for a,b in [(1,2,3)]])(),
    lambda: [1 for a,b in [(1,)]],
    lambda: [1 for a,b in [3]],
    lambda: [1 for a,*b,c in [(1,)]],
    lambda: [1 for a,b in [[1,2,3]]],
    lambda: [1 for a,b in [{1:1,2:2,3:3}]],
    lambda: {1}[0],
    lambda: int("1")["a"],
    lambda: list("1")["a"],
    lambda: tuple("1")["a"],
    lambda: str("a")["a"],
    lambda: [1][3],
    lambda: (1,)[4],
    lambda: {}["k"],
    lambda: range(3)[7],
    lambda: {[1]},
    lambda: hash([]),
    lambda: {[]:1},
    lambda: {}[[]],
    lambda: [] in {},
    lambda: {}.get([]),
    lambda: {1}.add([]),
    lambda: [] in {1},
    lambda: {}.pop([]),
    lambda: {}.setdefault([]),
    lambda: collections.Counter(3),
    lambda: iter(3),
    lambda: next(3),
    lambda: len(3),
    lambda: list(zip([1],[1,2],strict=True)),
    lambda: max([]),
    lambda: sum(["a"]),
    lambda: int("x"),
    lambda: int([]),
    lambda: float("x"),
    lambda: float([]),
    lambda: round("a"),
    lambda: abs("a"),
    lambda: isinstance(1, 3),
    lambda: pow("a",2),
    lambda: divmod(1,0),
    lambda: 1//0,
    lambda: 1/0,
    lambda: 1%0,
    lambda: 1.0//0,
    lambda: 1.0%0,
    lambda: 0**-1,
    lambda: 1.0/0,
    lambda: divmod(1.0,0),
    lambda: 1<"a",
    lambda: [] < (),
    lambda: 1 in 3,
    lambda: (3).foo,
    lambda: Plain().foo,
    lambda: Plain.foo,
    lambda: setattr(3,"a",1),
    lambda: delattr(Plain(),"a"),
    lambda: exec("raise 3"),
    lambda: object(1),
    lambda: Plain(1),
    lambda: chr(-1),
    lambda: ord("ab"),
    lambda: format(1,"z"),
    lambda: "%d".__mod__("a"),
    lambda: "%d %d".__mod__(1),
    lambda: "%d".__mod__((1, 2)),
    lambda: "a".split(""),
    lambda: ",".join([1]),
    lambda: "é".encode("ascii"),
    lambda: sorted([1,"a"]),
    lambda: range(1,2,0),
    lambda: range("a"),
    lambda: [1][slice(1,2,0)],
    lambda: [].__setitem__(slice(0,4,2),[1]),
    lambda: [].pop(),
    lambda: {}.popitem(),
    lambda: set().pop(),
    lambda: collections.deque().pop(),
    lambda: [1].pop(9),
    lambda: [].insert("a",1),
    lambda: [1]*"a",
    lambda: [1]*2.0,
    lambda: -"a",
    lambda: ~1.0,
    lambda: {Hashed()},
    lambda: {Hashed(): 1},
    lambda: {Outer.Inner(): 1},
    lambda: Outer.Inner() in {1, 2},
    lambda: not Outer.Inner(),
    lambda: {collections.deque(): 1},
    lambda: {1: 2}.pop([]),
]


@pytest.mark.parametrize("number", range(len(FAILING)))
def test_words(number):
    fn = FAILING[number]

    def program(x):
        try:
            fn()
        except Exception as error:
            return x + 1, type(error), str(error), getattr(error, "__notes__", None)
        return x + 2

    want, got = program(torch.ones(2)), dynamo_lite.compile(program, backend="eager")(torch.ones(2))
    assert str(got) == str(want)
