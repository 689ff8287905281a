"""Generated programs in which a container is read or changed while an iterator, a key or a comparison is asked.

A program is one container, one operation on it and one hostile source, as text. It returns what came of the operation
or how it raised, what the container holds afterwards, and a log of all that the source saw: so the order in which
elements are taken and stored is compared too.
"""
from __future__ import annotations

import collections
import dataclasses
import functools
import itertools
import math
import operator
import random
import sys
import textwrap
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
from language_support import Raised, same

import dynamo_lite
from dynamo_lite import config


class Items(list):
    """A list of the user's."""


class Ring(collections.deque):
    """A deque of the user's."""


class Table(dict):
    """A dict of the user's."""


class Bag(set):
    """A set of the user's."""


class Stepper:
    """An iterator of the user's: it calls `step` for each element, StopIteration and all."""

    def __init__(self, step: Callable[[int], Any], log: list[Any], hint: int | None) -> None:
        self.step = step
        self.log = log
        self.hint = hint
        self.at = 0

    def __iter__(self) -> Stepper:
        self.log.append("iter")
        return self

    def __next__(self) -> Any:
        self.at += 1
        if self.at > 3:
            self.log.append("stop")
            raise StopIteration
        return self.step(self.at)

    def __length_hint__(self) -> int:
        self.log.append("hint")
        if self.hint is None:
            return NotImplemented
        return self.hint


class ByIndex:
    """Iterated by index."""

    def __init__(self, step: Callable[[int], Any]) -> None:
        self.step = step

    def __getitem__(self, index: int) -> Any:
        if index >= 3:
            raise IndexError
        return self.step(index + 1)


class Keyed:
    """A mapping as dict.update() takes it."""

    def __init__(self, step: Callable[[int], Any], log: list[Any]) -> None:
        self.step = step
        self.log = log

    def keys(self) -> Any:
        self.log.append("keys")
        return iter([21, 22, 1])

    def __getitem__(self, key: int) -> Any:
        self.log.append(("get", key))
        return self.step(key)[1]


class Asked:
    """An object that runs code when it is compared."""

    def __init__(self, ask: Callable[[Any], Any], same_as: Any) -> None:
        self.ask = ask
        self.same_as = same_as

    def __eq__(self, other: object) -> Any:
        self.ask(other)
        return other is self.same_as or type(other) is type(self.same_as) is int and other == self.same_as

    def __lt__(self, other: Any) -> bool:
        self.ask(other)
        return False

    def __repr__(self) -> str:
        return "asked"

    __hash__ = None


@dataclasses.dataclass(frozen=True)
class Container:
    """How programs make, read and change a container, as text."""

    make: str
    kind: str  # sequence, mapping, set
    reads: str
    grows: str
    shrinks: str
    clears: str = "c.clear()"
    swaps: str = "pass"


_SEQUENCE = {
    "kind": "sequence", "reads": "(len(c), show(c[-1]) if c else None)", "grows": "c.append(len(c) + 30)",
    "shrinks": "c.pop()", "swaps": "c[0] = c[-1]",
}
_MAPPING = {
    "kind": "mapping", "reads": "(len(c), [show(v) for v in c.values()])", "grows": "c[len(c) + 30] = x",
    "shrinks": "c.pop(next(iter(c)))", "swaps": "c[40] = c.pop(next(iter(c)))",
}
_SET = {
    "kind": "set", "reads": "(len(c), sorted(c))", "grows": "c.add(len(c) + 30)", "shrinks": "c.discard(max(c))",
    "swaps": "c.discard(99)",
}
CONTAINERS = {
    "list": Container("[x, 1, 2.5]", **_SEQUENCE),
    "list_subclass": Container("Items([x, 1, 2.5])", **_SEQUENCE),
    "deque": Container("deque([x, 1, 2.5])", **_SEQUENCE),
    "bounded_deque": Container("deque([x, 1, 2.5], 4)", **_SEQUENCE),
    "deque_subclass": Container("Ring([x, 1, 2.5])", **_SEQUENCE),
    "user_list": Container("UserList([x, 1, 2.5])", **_SEQUENCE),
    "dict": Container("{0: x, 1: 1, 2: 2.5}", **_MAPPING),
    "dict_subclass": Container("Table({0: x, 1: 1, 2: 2.5})", **_MAPPING),
    "ordered_dict": Container("OrderedDict({0: x, 1: 1, 2: 2.5})", **_MAPPING),
    "default_dict": Container("defaultdict(list, {0: x, 1: 1, 2: 2.5})", **_MAPPING),
    "counter": Container("Counter({0: 4, 1: 1, 2: 2})", **{**_MAPPING, "grows": "c[len(c) + 30] = 5"}),
    "set": Container("{0, 1, 2}", **_SET),
    "set_subclass": Container("Bag([0, 1, 2])", **_SET),
    "bytearray": Container("bytearray(b'abc')", **_SEQUENCE),
}

# What an iterator gives for 1, 2, 3.
_ELEMENTS = {"sequence": "x * v", "mapping": "(v + 20, x * v)", "set": "v + 20"}
_WHOLE = {"bytearray": "v + 20", "counter": "(v, v)"}

# A source of elements: statements that define it, and the expression.
_STEP = """\
    def step(v):
        log.append((show(v), {reads}))
        {does}
        return {element}
"""
# name: statement of a step
DOES = {
    "reads": "pass", "grows": "if len(c) < 9: {grows}", "shrinks": "{shrinks}", "clears": "{clears}",
    "swaps": "{swaps}", "raises": "1 // (v - 2)", "stops": "next(iter(())) if v == 2 else None",
}
SOURCES = {
    "expression": "(step(v) for v in (1, 2, 3))",
    "generator": "generated()",
    "map": "map(step, (1, 2, 3))",
    "stepper": "Stepper(step, log, 2)",
    "unknown_length": "Stepper(step, log, None)",
    "negative_length": "Stepper(step, log, -3)",
    "by_index": "ByIndex(step)",
    "itself": "c",
    "own_iterator": "islice(iter(c), 9)",
    "backwards": "reversed(c)",
    "enumerated": "islice(enumerate(c), 9)",
    "mapped": "map(lambda v: (grow(), v)[1], islice(c, 7))",
    "chained": "islice(chain(c, (step(v) for v in (1, 2))), 9)",
    "listed": "[step(v) for v in (1, 2, 3)]",
    "no_iterable": "5",
    "nothing": "None",
}
_GENERATED = """\
    def generated():
        for v in (1, 2, 3):
            yield step(v)
        log.append(("end", {reads}))
    def grow():
        if len(c) < 12:
            {grows}
"""

# Operations on c with a source `{s}`; each is a statement that may assign r.
ANY = [
    "r = list({s})", "r = tuple({s})", "r = [*c, *{s}]", "r = (*{s},)", "r = called(*{s})", "a, *r = {s}", "a, b = {s}",
    "a, b, d, = {s}", "r = any({s})", "r = all({s})", "r = deque({s})", "r = deque({s}, 2)", "r = list(zip(c, {s}))",
    "r = list(zip({s}, c))", "r = list(zip({s}, {s}, strict=True))", "r = list(enumerate({s}, 4))",
    "r = list(map(show, {s}))", "r = list(filter(None, {s}))", "r = list(islice({s}, 2))", "r = list(chain({s}, c))",
    "r = list(chain.from_iterable([c, {s}]))", "r = [show(v) for v in {s}]", "r = dict(enumerate({s}))",
    "r = list(itertools.zip_longest({s}, c, fillvalue=0))", "r = list(itertools.pairwise({s}))",
    "r = list(itertools.compress(c, {s}))", "r = list(itertools.takewhile(bool, {s}))",
    "r = list(itertools.dropwhile(bool, {s}))", "r = list(itertools.filterfalse(bool, {s}))",
    "r = list(itertools.product({s}, [1]))", "r = list(itertools.combinations({s}, 2))",
    "r = list(itertools.combinations_with_replacement({s}, 2))",
    "r = list(itertools.permutations({s}, 2))", "r = list(islice(itertools.cycle({s}), 5))",
    "r = [list(g) for _, g in itertools.groupby({s}, key=lambda v: (log.append(len(c)), 1)[1])]",
    "r = list(itertools.accumulate({s}, lambda a, b: (log.append(len(c)), b)[1]))",
    "r = functools.reduce(lambda a, b: (log.append(len(c)), b)[1], {s})",
    "a, b = itertools.tee({s}); r = [next(a), list(b), list(a)]",
    "r = list(itertools.starmap(show_all, {s}))", "for r in {s}: log.append(len(c))",
    "r = sorted({s}, key=lambda v: log.append(len(c)) or 0)", "r = min({s}, key=lambda v: log.append(len(c)) or 0)",
    "r = max({s}, key=lambda v: log.append(len(c)) or 0)", "r = max({s}, key=len, default=3)",
    "r = torch.stack(list({s}))", "r = list(reversed(list({s})))", "r = iter({s}); r = [next(r), next(r, 0)]",
    "r = operator.length_hint({s}, 9)", "r = '-'.join({s})", "r = '-'.join(str(len(c)) for v in {s})",
    "r = sum({s})", "r = sum({s}, [])", "r = math.prod({s})", "r = math.fsum({s})", "r = bytes({s})", "r = c == {s}",
    "r = c < {s}", "r = c + {s}", "r = 5 in {s}", "r = operator.countOf({s}, 21)", "r = operator.indexOf({s}, 22)",
    "r = frozenset({s})", "r = set({s})", "r = dict({s})", "r = Counter({s})", "r = dict.fromkeys({s}, 1)",
    "r = OrderedDict({s})", "r = defaultdict(list, {s})", "r = Items({s})", "r = Bag({s})", "r = Ring({s}, 2)",
    "r = Table({s})", "r = str.maketrans({s})", "r = namedtuple('P', 'a b d')._make({s})", "r = bytearray({s})",
    "c.__init__({s})",
]
OPERATIONS = {
    "sequence": [
        "c.extend({s})", "c += {s}", "c.extendleft({s})", "c[1:2] = {s}", "c[:] = {s}", "c[::2] = {s}", "c[5:] = {s}",
        "c[::-1] = {s}", "c[True:] = {s}", "c.__iadd__({s})", "c.__setitem__(slice(0, 1), {s})", "c.append({s})",
        "c *= {s}", "type(c).extend(c, {s})", "operator.iadd(c, {s})",
        "operator.setitem(c, slice(1, None), {s})", "for v in islice({s}, 9): c.append(v)",
        "for v in islice({s}, 9): c.insert(0, v)",
    ],
    "mapping": [
        "c.update({s})", "c |= {s}", "r = c | {s}", "c.update({s}, key=5)", "r = {{**c, **{s}}}", "r = called(**{s})",
        "c.__ior__({s})", "r = c.fromkeys({s}, 2)", "c.subtract({s})", "r = c - {s}", "r = c & {s}", "r = c + {s}",
        "r = c.keys() & {s}", "r = c.keys() | {s}", "r = c.keys() - {s}", "r = c.keys() ^ {s}", "c += {s}",
        "r = c.keys().isdisjoint({s})", "r = c.items() & {s}", "type(c).update(c, {s})", "dict.update(c, {s})",
        "r = c.keys() == {s}",
    ],
    "set": [
        "c.update({s})", "c |= {s}", "c.intersection_update({s})", "c.difference_update({s})", "c &= {s}", "c -= {s}",
        "c.symmetric_difference_update({s})", "c ^= {s}", "r = c.union({s})", "r = c.intersection({s})",
        "r = c.difference({s})", "r = c.symmetric_difference({s})", "r = c.issubset({s})", "r = c.issuperset({s})",
        "r = c.isdisjoint({s})", "c.update({s}, {s})", "r = c | {s}", "r = c.union([50], {s})", "r = {{*c, *{s}}}",
        "type(c).update(c, {s})", "set.update(c, {s})",
    ],
}
# Operations that ask an object with an __eq__ or __lt__ of the user's, e.
ASKED = {
    "sequence": [
        "c.remove(e)", "r = c.index(e)", "r = c.count(e)", "r = e in c", "r = c == [e, e, e]", "r = [e, e, e] == c",
        "r = c != [0, e]", "r = c.index(e, 1)", "r = operator.countOf(c, e)", "r = operator.indexOf(c, e)",
        "r = e in iter(c)", "r = c < type(c)([e])", "r = c == type(c)([e, e, e])", "r = (e, e) == tuple(c)[:2]",
        "r = e in tuple(c)", "r = tuple(c).index(e)", "c.append(e); c.sort()", "c[:] = [e, e]; c.sort()",
        "r = sorted([e, *c])", "r = min([e, *c])", "r = max([*c, e])", "r = c.index(e, -2, 9)",
        "c.extend([e, e]); r = c.count(5)",
    ],
    "mapping": ["r = e in c.values()", "r = c == {{0: e, 1: e, 2: e}}", "r = {{0: e, 1: e, 2: e}} == c", "r = c.get(e)",
                "r = (0, e) in c.items()", "r = operator.countOf(c.values(), e)", "r = e in list(c)", "r = e in c",
                "r = c.items() == {{0: e, 1: e, 2: e}}.items()"],
    "set": ["r = e in list(c)", "r = operator.countOf(c, e)", "r = e in iter(c)", "r = e in c"],
}
# Operations that call a function with what is in the container, k.
KEYS = [
    "c.sort(key=k)", "c.sort(key=k, reverse=True)", "r = sorted(c, key=k)", "r = sorted(c, key=k, reverse=True)",
    "r = min(c, key=k)", "r = max(c, key=k)", "r = list(map(k, c))", "r = list(filter(k, c))",
    "r = functools.reduce(lambda a, b: k(b), c)", "r = list(itertools.groupby(c, k))[0][0]",
    "r = list(itertools.takewhile(k, c))", "r = list(itertools.dropwhile(k, c))",
    "r = list(itertools.filterfalse(k, c))", "r = [k(v) for v in c]", "r = {{str(v): k(v) for v in c}}",
    "r = any(k(v) for v in c)", "r = sum(k(v) for v in c)", "r = '-'.join(str(k(v)) for v in c)",
    "for v in c: k(v)", "for v in reversed(c): k(v)", "for i, v in enumerate(c): k(v)",
    "for v, w in zip(c, c): k(v)", "it = iter(c); next(it); k(0); r = list(it)", "for v in islice(c, 2): k(v)",
    "it = iter(c); a = list(it); k(0); r = list(it)", "it = reversed(c); a = next(it); k(0); r = list(it)",
    "a, *b = (k(v) for v in c)", "r = next(iter(c)); k(r); r = next(iter(c))", "r = c.copy(); [k(v) for v in r]",
    "r = list(itertools.accumulate(c, lambda a, b: k(b)))", "r = list(itertools.starmap(k, zip(c)))",
    "it = iter(c); next(it); r = operator.length_hint(it), k(0), operator.length_hint(it)",
    "c[k(0)] = k(1)", "c[k(0):k(1)] = [k(2)]", "c.insert(k(0), k(1))", "c.rotate(k(2))",
]
MAPPING_KEYS = [
    "for v in c.values(): k(v)", "for v in c.items(): k(v[0])", "for v in c.keys(): k(v)",
    "for v in reversed(c.items()): k(v[0])", "for v in reversed(c.values()): k(v)",
    "r = [k(v) for v in c.values()]", "r = sorted(c.items(), key=k)", "c.setdefault(k(0), k(1))",
    "c.setdefault(9, k(1))", "r = c.pop(9, k(1))", "r = c.get(9, k(1))", "c.move_to_end(k(1))",
    "c.default_factory = lambda: k(1); r = c[77]", "c.default_factory = lambda: k(1); r = c[77], c[77]",
    "it = iter(c.items()); next(it); k(0); r = list(it)",
    "c.update((k(v), v) for v in c)", "c.update({{k(v): v for v in c}})", "r = c.most_common(k(1))",
    "r = list(c.elements()); k(0)", "for v in c.elements(): k(v)", "c.subtract(k(v) for v in c)",
]

_PROGRAM = """\
def program(x{given}):
    log = []
    r = None
    {make}
{step}{more}    try:
{operation}
        end = show(r)
    except Exception as error:
        end = type(error).__name__, str(error)
    return end, show(c), log, x + 1
"""


def show(value: Any) -> Any:
    """What a value is, in texts, numbers and tuples."""
    if isinstance(value, torch.Tensor):
        return value
    if isinstance(value, Asked):
        return "asked"
    if isinstance(value, (set, frozenset)):
        return type(value).__name__, sorted(map(str, value))
    if isinstance(value, dict):
        return type(value).__name__, [(show(k), show(v)) for k, v in value.items()]
    if isinstance(value, (list, tuple, collections.deque, collections.UserList)):
        return type(value).__name__, [show(v) for v in value]
    return type(value).__name__, str(value) if type(value) in _TEXTS or isinstance(value, bytearray) else None


_TEXTS = (int, float, bool, str, bytes, type(None))


def show_all(*values: Any) -> Any:
    return [show(value) for value in values]


def called(*args: Any, **kwargs: Any) -> Any:
    return show(args), show(kwargs)


@dataclasses.dataclass(frozen=True)
class Combination:
    """One program.

    Args:
        container: its name.
        operation: the statement, with ``{s}`` where the source stands.
        source: its name; empty for what asks an object or calls a function.
        does: what a step of the source does to the container.
    """

    container: str
    operation: str
    source: str
    does: str

    def text(self, outside: bool) -> str:
        """The program, where the container is made by it or given from outside."""
        made = CONTAINERS[self.container]
        names = {"reads": made.reads, "grows": made.grows, "element": _WHOLE.get(self.container, _ELEMENTS[made.kind])}
        does = DOES[self.does].format(**vars(made))
        return _PROGRAM.format(
            given=", c" if outside else "", make="" if outside else f"c = {made.make}",
            step=_STEP.format(does=does, **names), more=_GENERATED.format(**names),
            operation=textwrap.indent(self.operation.format(s=SOURCES.get(self.source, "")), " " * 8))

    def function(self, outside: bool) -> Callable[..., Any]:
        """The program, with a code object of its own."""
        names: dict[str, Any] = dict(NAMES)
        exec(compile(self.text(outside), f"<{self}>", "exec"), names)
        return names["program"]

    def arguments(self, outside: bool) -> list[Any]:
        """Of a call."""
        x = torch.arange(1.0, 3.0)
        return [x, eval(CONTAINERS[self.container].make, NAMES, {"x": x})] if outside else [x]


def combinations() -> Iterator[Combination]:
    """All combinations, those that differ in the source last side by side."""
    for name, container in CONTAINERS.items():
        kind = container.kind
        for operation in (*OPERATIONS[kind], *ANY):
            for source, does in PAIRS:
                if name == "bytearray" and (source not in _STEPPING or does not in ("reads", "raises")):
                    continue  # CPython may write behind its end
                if operation in ("c[::2] = {s}", "c[::-1] = {s}") and does in ("shrinks", "clears"):
                    continue  # and behind a list's
                if operation.startswith("c.__setitem__") and "deque" in name:
                    continue  # the method's message is another one than the statement's
                if operation.startswith("dict.update") and name == "ordered_dict":
                    continue  # it breaks an OrderedDict
                yield Combination(name, operation, source, does)
        for operation in ASKED[kind]:
            for does in DOES:
                yield Combination(name, "e = Asked(step, 2.5)\n" + operation, "", does)
        for operation in (*KEYS, *(MAPPING_KEYS if kind == "mapping" else ())):
            for does in DOES:
                yield Combination(name, "k = lambda v: (step(len(log)), len(log) % 3)[1]\n" + operation, "", does)


_STEPPING = ("expression", "generator", "map", "stepper")
PAIRS = [
    *((source, does) for source in _STEPPING for does in DOES),
    *((source, "grows") for source in SOURCES if source not in _STEPPING),
]
NAMES = {
    **{name: globals()[name] for name in (
        "Asked", "Bag", "ByIndex", "Items", "Keyed", "Ring", "Stepper", "Table", "called", "show",
        "show_all")},
    **{name: getattr(collections, name) for name in (
        "Counter", "OrderedDict", "UserList", "defaultdict", "deque", "namedtuple")},
    "chain": itertools.chain, "islice": itertools.islice, "functools": functools, "itertools": itertools,
    "math": math, "operator": operator, "torch": torch,
}


def difference(combination: Combination, outside: bool) -> str | None:
    """In words how a compiled program differs from the plain one; None if it does not."""
    want = _outcome(combination.function(outside), combination.arguments(outside))
    compiled = dynamo_lite.compile(combination.function(outside), backend="eager")
    with warnings.catch_warnings(), config.patch(recompile_limit=64):  # the helpers above are entered by all programs
        warnings.simplefilter("ignore")
        got = _outcome(compiled, combination.arguments(outside))
    if same(got, want):
        return None
    return f"{combination}\n{combination.text(outside)}\n  plain:    {want}\n  compiled: {got}"


def _outcome(function: Callable[..., Any], arguments: list[Any]) -> Any:
    try:
        return function(*arguments)
    except dynamo_lite.exc.DynamoLiteError:
        raise
    except Exception as error:
        return Raised(type(error), str(error))


def main(number: int, seed: int) -> int:
    """Runs combinations drawn at random; gives how many differ."""
    drawn = random.Random(seed)
    every = list(combinations())
    failed = 0
    for done in range(number):
        found = difference(drawn.choice(every), drawn.random() < 0.3)
        if found is not None:
            failed += 1
            print(found, end="\n\n", flush=True)
        if done % 100 == 99:
            dynamo_lite.reset()
    print(f"{number} of {len(every)} combinations, seed {seed}: {failed} differ")
    return failed


if __name__ == "__main__":
    sys.exit(bool(main(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0)))
