"""Programs: a prelude that all find among their globals, arguments that may share memory, and a random ``f``."""
from __future__ import annotations

import random

from .effects import EFFECTS
from .expressions import EXPRESSIONS
from .harness import Options
from .language import LANGUAGE
from .maker import Maker, Scope
from .memory import TENSORS
from .objects import OBJECTS
from .parts import TOPICS as PARTS
from .prelude import PRELUDE
from .repair import repair
from .statements import COMPOUND, RESULTS, simple
from .topical import Topical

TOPICS = {**LANGUAGE, **OBJECTS, **TENSORS, **EFFECTS}
X = [
    "torch.randn(3, 4)", "torch.randn(3, 4)", "torch.randn(4, 3).t()", "torch.randn(3, 8)[:, ::2]",
    "torch.randn(3, 4).double()", "torch.randint(-3, 4, (3, 4))",
]
Y = [
    "torch.randn(4)", "torch.randn(3, 4)", "torch.randn(4, 3).t()", "torch.randn(3, 1)",
    "torch.randn(1, 4).expand(3, 4)", "torch.randn(4).double()", "torch.randn(())", "torch.randn(1, 3, 4)",
]
# Of other types, with nothing in them, with one element, behind an offset; not for all, as most operations refuse some.
ODD = [
    "torch.randn(3, 4).bfloat16()", "torch.randn(3, 4).half()", "torch.randn(3, 4) > 0",
    "torch.randint(0, 255, (3, 4), dtype=torch.uint8)", "torch.randint(-9, 9, (3, 4), dtype=torch.int8)",
    "torch.randint(-9, 9, (4,), dtype=torch.int32)", "torch.randn(3, 4, dtype=torch.complex64)", "torch.randn(0, 4)",
    "torch.randn(3, 0)", "torch.tensor(2)", "torch.tensor(True)", "torch.randn(1)", "torch.randn(2, 3, 4)[1]",
    "torch.randn(12).as_strided((3, 4), (1, 3))", "torch.randn(5, 6)[1:4, 1:5]", "torch.randn(3, 4).flip(0)",
    "torch.tensor([[float('nan'), 1.0, float('inf'), -0.0]] * 3)", "torch.randint(0, 3, (3, 4)).short()",
]
# Where the second argument and those in the list lie in the first one's memory.
SHARED = ["x[0]", "x", "x.t()", "x.reshape(3, 4)", "x.detach()", "x[:, 1:]", "x.view_as(x)", "x[1:]"]
ARGUMENTS = '''

import dynamo_lite


def arguments(i):
    x = {x}
    y = {y}
    items = [{first}, torch.ones(4) * (i + 1)]
    box = {box}
    return [x, y, {n} + i, i % 2 == 0, items, {{"a": {table}}}, box, Rich(y, {n}), Point(x, i), {{"p": {n}, "q": i}}]

'''
HEAD = "def f(x, y, n, flag, items, table, box, rich, point, words):\n    sizes = [n, 2]"
NAMES = {"t": ["x", "y"], "n": ["n"], "l": ["items"], "d": ["table"], "o": ["box"], "m": ["sizes"], "r": ["rich"],
         "h": ["point"], "w": ["words"]}
OUTSIDE = {"t": ["WEIGHT"], "o": ["GLOBAL_BOX"], "l": ["HELD"], "f": ["helper", "NET"], "c": ["bump_count"]}


def _drawn(rng: random.Random) -> list[Topical]:
    if rng.random() < 0.8:
        return rng.sample(list(TOPICS.values()), rng.choice([1, 2, 2, 3]))
    return []


def _of_memory(rng: random.Random) -> list[Topical]:
    """Topics of programs that write to parts of tensors, most of all."""
    others = [PARTS["ARRAYS"], PARTS["HOOKS"], *TENSORS.values(), EFFECTS["AUTOGRAD"]]
    return [PARTS["PARTS"], *rng.sample(others, rng.choice([0, 1, 1, 2]))]


def tables(rng: random.Random, breaks: bool,
           chosen: list[Topical]) -> tuple[dict[str, list[str]], list[str], list[str]]:
    """The templates of one program: the common ones alone, or part of them with some topics."""
    expressions = {kind: list(found) for kind, found in EXPRESSIONS.items()}
    calm, compound = simple(breaks), COMPOUND
    if chosen:
        calm, compound = rng.sample(calm, len(calm) // 4), rng.sample(compound, len(compound) // 3)
    for topic in (TOPICS | PARTS).values():
        # All kinds have expressions; only a topic of the program adds to those that all know.
        for kind, found in topic.expressions.items():
            if topic in chosen:
                expressions[kind] = expressions.get(kind, []) + list(found) * (2 if kind in EXPRESSIONS else 1)
            elif kind not in EXPRESSIONS:
                expressions.setdefault(kind, list(found))
    for topic in chosen:
        calm = calm + list(topic.simple)
        compound = compound + list(topic.compound) * 2
    for kind in [kind for kind in expressions if kind[-1] != "0"]:
        expressions.setdefault(kind + "0", expressions[kind])
    return expressions, calm, compound


def _keeping(body: str, names: list[str], rng: random.Random) -> str:
    """A function that gives some of its tensors as well. Each is a statement, which ``repair`` can take out."""
    before, _, results = body.rpartition("    return ")
    lines = [f"    kept.append({name})\n" for name in rng.sample(names, min(len(names), rng.randint(0, 6)))]
    return f"{before}    kept = []\n{''.join(lines)}    return kept, {results}"


def program(seed: int, breaks: bool, grad: bool, memory: bool = False) -> str:
    """The source of a program; of one that writes to parts of tensors, if ``memory`` is set."""
    rng = random.Random(f"memory {seed}" if memory else f"{seed} {breaks}")
    own = rng.random() < 0.7
    first = rng.choice(["torch.randn(3, 4)", "x", "y", "x[1]"])
    x, y = (rng.choice(ODD if rng.random() < 0.12 else usual) for usual in (X, Y if own or grad else SHARED))
    arguments = ARGUMENTS.format(
        x=x, y=y, first=first, n=rng.choice([0, 1, 2]),
        box=rng.choice(["Box(torch.ones(4) * i, 2)"] * 4 + ["Deep(y, i)", "Slotted(x, 2)", "Pair(y, 2)"]),
        table=rng.choice(["torch.ones(3, 4)", "items[0]", "y", "x.reshape(-1)[:4]"]))
    maker = Maker(rng, *tables(rng, breaks, _of_memory(rng) if memory else _drawn(rng)))
    names = {kind: list(found) for kind, found in NAMES.items()}
    if rng.random() < 0.3:
        for kind, found in OUTSIDE.items():
            names.setdefault(kind, []).extend(found)
    scope = Scope(names, {"x", "y", "n", "sizes", "rich"})
    body = maker.function(HEAD, scope, rng.randint(2, 9), RESULTS)
    if memory:
        body = _keeping(body, scope.names["t"], rng)
    return PRELUDE + arguments + repair(PRELUDE + arguments, body, rng, Options(grad=grad))
