"""Generated programs over sets, each of whose members hash alike in every run: what order do the sets give them in?

The order depends on a set's whole history. A program makes sets, is given some that have one, does to them all that
sets can do, and shows what comes of it: lists made inside, and the sets themselves, of which the tables are compared
slot by slot.
`python tests/set_programs.py 5000 1` runs 5000 programs from seed 1.
"""
from __future__ import annotations

import collections
import copy
import itertools
import random
import re
import sys
import textwrap
import types
from typing import Any

import torch

import dynamo_lite
from dynamo_lite._guards import same_table


class Bag(set):
    """A set of the user's."""


class Seal(frozenset):
    """A frozenset of the user's."""


# Members of which many share a slot, in tables of various sizes.
NUMBERS = [0, 1, 2, 3, 5, 8, 16, 24, 32, 40, 64, 72, 96, 128, 160, 256, 512, 1024, -1, -2, -3, 2**61 - 1, 2**61]
WORDS = [*"abcdefgh", "", "one", "two", "three", "a longer text"]
PAIRS = [(1, 2), (2, 1), (), (0,), ("a", 1), (1, (2, 3)), (None, 8), (8, 16), (16, 8)]
MIXED = [*NUMBERS[:9], *WORDS[:6], *PAIRS[:4], None, 2.5, True, b"x", frozenset((1, 9)), 1j, ..., torch.float32]
KINDS = [NUMBERS, NUMBERS, list(range(40)), [8 * n for n in range(24)], WORDS, PAIRS, MIXED]



class Thing:
    """An object that hashes by its address."""


# Objects, which are the same in both runs; a program has no literal for them.
THINGS = [*(Thing() for _ in range(10)), *(torch.full((1,), float(n)) for n in range(3)), Thing, Bag, len]

# <s>, <t>: a set; <f>: a frozenset; <a>: any of these; <l>: a list; <d>: a dict; <e>: an element; <n>: a small number.
MAKE = [
    "<s> = set(<l>)", "<s> = {<e>, <e>, {e}}", "<s> = {<e>, {e}}", "<s> = set(<d>)", "<s> = set(<a>)",
    "<s> = <t>.copy()", "<s> = copy.copy(<t>)", "<s> = copy.deepcopy(<t>)", "<s> = {v for v in {a}}",
    "<s> = {*<a>, {e}}", "<s> = set(v for v in <l>)", "<s> = <t> | <a>", "<s> = <t> & <a>", "<s> = <t> - <a>",
    "<s> = <t> ^ <a>", "<s> = <t>.union(<a>, <l>)", "<s> = <t>.union(<l>)", "<s> = <t>.difference(<l>)",
    "<s> = <t>.difference(<a>, <l>)", "<s> = <t>.difference(<d>)", "<s> = <t>.intersection(<l>)",
    "<s> = <t>.intersection(<a>, <d>)", "<s> = <t>.symmetric_difference(<l>)", "<s> = <t>.symmetric_difference(<a>)",
    "<s> = <t>.symmetric_difference(<d>)", "<s> = <t>.union(<d>)", "<s> = <t>.union()", "<s> = set(<d>.keys())",
    "<s> = <d>.keys() | <a>", "<s> = <d>.keys() & <a>", "<s> = <d>.keys() - <a>", "<s> = <d>.keys() ^ <a>",
    "<s> = <d>.keys() & <l>", "<s> = <l> | <d>.keys()", "<s> = <t> & <d>.keys()", "<s> = <t> - <d>.keys()",
    "<s> = <d>.keys() & <d>.keys()", "<s> = <d>.items() ^ <d>.items()", "<s> = <d>.items() | <l>",
    "<s> = <d>.items() & <d>.items()", "<s> = set(range(<n>))", "<s> = Bag(<l>)", "<s> = Bag(<a>)",
    "<s> = Bag(<t> | <a>)", "<s> = set(filter(None, <a>))", "<s> = set(map(id and (lambda v: v), <a>))",
    "<f> = frozenset(<a>)", "<f> = frozenset(<l>)", "<f> = <f> | <a>", "<f> = <f> - <a>", "<f> = <f> & <a>",
    "<f> = <f> ^ <a>", "<f> = Seal(<a>)", "<f> = Seal(<l>)", "<f> = <f>.copy()", "<f> = <f>.union(<l>)",
    "<f> = frozenset(<d>)", "<s> = set(<f>)", "<s> = collections.OrderedDict.fromkeys(<l>).keys() | <a>",
]
CHANGE = [
    "<s>.add(<e>)", "<s>.add(<e>)", "<s>.discard(<e>)", "<s>.discard(<e>)", "<s>.remove(<E>) if <E> in <s> else None",
    "<s>.update(<l>)", "<s>.update(<a>)", "<s>.update(<d>)", "<s>.update(<a>, <l>)", "<s>.update(v for v in <l>)",
    "<s>.update(<d>.keys())", "<s> |= <a>", "<s> &= <a>", "<s> -= <a>", "<s> ^= <a>", "<s> |= <s>", "<s> &= <s>",
    "<s> ^= <s>", "<s>.difference_update(<s>)", "<s>.difference_update(<l>)", "<s>.difference_update(<a>)",
    "<s>.difference_update(v for v in <l>)", "<s>.intersection_update(<l>)", "<s>.intersection_update(<a>, <d>)",
    "<s>.symmetric_difference_update(<l>)", "<s>.symmetric_difference_update(<d>)",
    "<s>.symmetric_difference_update(<a>)", "<s>.clear()", "if <s>: r.append(<s>.pop())",
    "while len(<s>) > <n>: r.append(<s>.pop())", "for v in <l>: <s>.discard(v)", "for v in <l>: <s>.add(v)",
    "for v in range(<n>): <s>.add(v * 8)", "for v in range(<n>): <s>.discard(v * 8)",
    "if <s>:\n    v = <s>.pop()\n    <s>.add(v)", "for v in list(<a>): <s>.discard(v)",
    "for v in <a>:\n    if v in <s>: r.append(v)", "<s>.__init__(<l>)", "<s>.__ior__(<a>)",
]
SHOW = [
    "r.append(list(<a>))", "r.append(list(<a>))", "r.append([*<a>])", "r.append(tuple(<a>))",
    "r.append(next(iter(<a>), None))", "r.append(repr(<a>))", 'r.append(f"{<a>}")', "r.append('%s' % (<a>,))",
    "r.append(list(dict.fromkeys(<a>)))", "r.append(list(map(str, <a>)))",
    "r.append(list(zip(<a>, itertools.count())))", "r.append(list(enumerate(<a>)))",
    "r.append(max(<a>, key=lambda v: 0, default=None))", "r.append(min(<a>, key=lambda v: 1, default=None))",
    "r.append(sorted(<a>, key=lambda v: 0))", "r.append(list(collections.Counter(<a>)))",
    "r.append('-'.join(map(str, <a>)))", "for v in <a>: r.append(v)", "r.append([v for v in <a> if v])",
    "r.append(sum([hash(v) % 7 * 0.1 for v in <a> if type(v) in (int, str)], 0.0))", "r.append(<a> == <a>)",
    "r.append(len(<a>))", "r.append(<a> <= <a>)", "r.append([*filter(None, <a>)])", "r.append(<a>.copy())",
    "r.append([*itertools.chain(<a>, <a>)])", "r.append(random.Random(5).choice(list(<a>) or [0]))",
    "r.append(list(reversed(list(<a>))))", "if len(<a>) == 2: v, w = <a>; r.append((v, w))",
    "if <a>: v, *w = <a>; r.append((v, w))", "r.append(str(list(<a>)))",
    "it = iter(<a>); next(it, None); r.append(list(it))", "r.append([str(<a>), *<a>])",
]
OUTSIDE = ["G", "o.held", "d['k']", "p", "q"]


class Maker:
    """Makes the text of one program."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.universe = THINGS if rng.random() < 0.15 else rng.choice(KINDS)
        self.sets = rng.sample(OUTSIDE, rng.randint(0, 3)) + ["s", "t", "u"]
        self.frozen = ["f", "g"]
        self.outside_frozen = ["F"] if rng.random() < 0.4 else []

    def literal(self, value: Any) -> str:
        return f"K[{next(i for i, v in enumerate(THINGS) if v is value)}]" if self.universe is THINGS else repr(value)

    def elements(self, most: int) -> list[Any]:
        return [self.rng.choice(self.universe) for _ in range(self.rng.randint(0, most))]

    def hole(self, kind: str) -> str:
        rng = self.rng
        if kind in "st":
            return rng.choice(self.sets)
        if kind == "f":
            return rng.choice(self.frozen)
        if kind == "a":
            return rng.choice(self.sets + self.frozen + self.outside_frozen)
        if kind == "l":
            return "[" + ", ".join(map(self.literal, self.elements(14))) + "]"
        if kind == "d":
            return "{" + ", ".join(f"{self.literal(e)}: {rng.randint(0, 1)}" for e in self.elements(10)) + "}"
        if kind in "eE":
            return self.literal(rng.choice(self.universe))
        return str(rng.choice((0, 1, 2, 3, 5, 9, 20, 40)))

    def statement(self, template: str) -> str:
        chosen: dict[str, str] = {}
        if template.startswith("<s> = "):
            chosen["s"] = self.rng.choice(["s", "t", "u"])

        def fill(match: re.Match[str]) -> str:
            kind = match[1]
            return chosen.setdefault(kind, self.hole(kind)) if kind in "sE" else self.hole(kind)

        return re.sub("<([stfaldeEn])>", fill, template)

    def program(self) -> str:
        lines = [self.statement(t) for t in ("s = set(<l>)", "t = {<e>, <e>}", "u = set()", "f = frozenset(<l>)",
                                             "g = frozenset(<a>)")]
        for _ in range(self.rng.randint(2, 14)):
            group = self.rng.choices((MAKE, CHANGE, SHOW, ["dynamo_lite.graph_break()"]), (4, 6, 4, 0.4))[0]
            template = self.rng.choice(group)
            if "deepcopy" not in template or self.universe is not THINGS:  # other objects come of it each time
                lines.append(self.statement(template))
        body = textwrap.indent("\n".join(lines), "    ")
        held = ", ".join(["s", "t", "u", "f", "g"])
        return f"def program(x, p, q, o, d, r):\n{body}\n    return x + 1, r, {held}\n"


def history(rng: random.Random, universe: list[Any]) -> set[Any]:
    """A set that has been larger, or has lost members, or was popped from."""
    made: set[Any] = set()
    for _ in range(rng.randint(1, 3)):
        made.update(rng.choices(universe, k=rng.randint(0, 20)))
        if rng.random() < 0.3:
            made.update(range(1000, 1000 + rng.randint(0, 60)))
            made -= set(range(1000, 1060))
        for value in list(made):
            if rng.random() < 0.5:
                made.discard(value)
        if made and rng.random() < 0.3:
            made.add(made.pop())
    return made


def outside(seed: int, universe: list[Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Arguments and globals of a program; for the same seed with the same histories."""
    rng = random.Random(seed)
    sets = [history(rng, universe) for _ in range(5)]
    frozen = frozenset(history(rng, universe))
    wrap = rng.choice((set, set, set, Bag))
    held = types.SimpleNamespace(held=sets[2])
    space = {
        "G": sets[0], "F": frozen, "Bag": Bag, "Seal": Seal, "copy": copy, "collections": collections, "random": random,
        "itertools": itertools, "K": THINGS, "dynamo_lite": dynamo_lite, "torch": torch,
    }
    p = sets[3] if wrap is set else Bag(sets[3])
    return (torch.ones(2), p, sets[4], held, {"k": sets[1]}, []), space


def same(a: Any, b: Any) -> bool:
    if type(a) is not type(b):
        return False
    if isinstance(a, (set, frozenset)):
        return same_table(a, b) and list(a) == list(b) and sys.getsizeof(a) == sys.getsizeof(b)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, torch.Tensor):
        return torch.equal(a, b)
    return a is b or type(a).__eq__ is not object.__eq__ and bool(a == b)


def outcome(code: Any, seed: int, universe: list[Any], compiled: Any = None) -> Any:
    arguments, space = outside(seed, universe)
    if compiled is not None:
        # The same globals for all calls of a compiled function, with other sets in them.
        held, fn = compiled
        held.update({name: space[name] for name in ("G", "F")})
        space = held
    else:
        exec(code, space)
        fn = space["program"]
    try:
        result: Any = fn(*arguments)
    except Exception as error:
        result = (type(error), str(error))
    return result, arguments[1], arguments[2], arguments[3].held, arguments[4]["k"], space["G"], space["F"]


def difference(seed: int, backend: str = "eager") -> str | None:
    """What differs between a program compiled and plain, None if nothing does."""
    maker = Maker(random.Random(seed))
    text = maker.program()
    code = compile(text, f"<set program {seed}>", "exec")
    dynamo_lite.reset()
    space = outside(0, maker.universe)[1]
    exec(code, space)
    compiled = space, dynamo_lite.compile(space["program"], backend=backend)
    with dynamo_lite.config.patch(raise_internal_errors=True):
        for other in (seed, seed, seed + 1, seed):
            want = outcome(code, other, maker.universe)
            got = outcome(code, other, maker.universe, compiled)
            if not same(got, want):
                return f"seed {seed}, histories {other}\n{text}\ncompiled {got}\nplain    {want}"
    return None


def main() -> None:
    count, start = int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0
    failures = 0
    for seed in range(start, start + count):
        try:
            found = difference(seed)
        except Exception as error:
            found = f"seed {seed}: {type(error).__name__}: {error}\n{Maker(random.Random(seed)).program()}"
        if found:
            failures += 1
            print(found, "\n" + "-" * 80)
    print(f"{count} programs, {failures} differ; {dynamo_lite.log.counters()}")
    raise SystemExit(failures > 0)


if __name__ == "__main__":
    main()
