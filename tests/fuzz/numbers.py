"""Programs that compute with sizes, ints and floats that change from call to call, and use the results in tensors: as
numbers, sizes, places and conditions.

Invariant: hardly any of them raises, so that most of a program is compiled as one graph: divisors are never 0, places
lie inside.
"""
from __future__ import annotations

import random

HEAD = '''
import math

import torch
import torch.nn.functional as F
import dynamo_lite

SEEN = ()
NUMBERS = {numbers}


def arguments(i):
    a, b, n, m, r = NUMBERS[i]
    return [torch.randn(a, b), torch.arange(float(a + b)), n, m, r]

'''
STEPS = 7
LEAVES = ["x.shape[0]", "x.shape[1]", "y.shape[0]", "n", "m", "n", "m", "1", "2", "3", "7", "-4", "x.numel()", "len(x)"]
INTS = [
    "({i} + {i})", "({i} - {i})", "({i} - {i})", "({i} * {i})", "(-{i})", "({i} // {d})", "({i} // {d})",
    "({i} % {d})", "({i} % {d})", "({i} // -{d})", "({i} % -{d})", "max({i}, {i})", "min({i}, {i})", "abs({i})",
    "({i} >> 1)", "({i} & 6)", "({i} ^ 5)", "(~{i})", "({i} << 1)", "math.gcd({i}, {i})", "divmod({i}, {d})[0]",
    "divmod({i}, {d})[1]", "({i} if {c} else {i})", "int({f})", "math.floor({f})", "math.ceil({f})", "round({f})",
    "int({c})", "math.trunc({f})", "pow({i}, 2)", "sum(({i}, {i}))", "math.isqrt(abs({i}))", "({i} % {d} * {d})",
    "[3, 1, 2][{i} % 3]", "(({i} + 3) // 4 * 4)", "(-(-({i}) // {d}))", "torch.sym_max({i}, {i})",
    "torch.sym_min({i}, 5)",
]
FLOATS = [
    "({i} / {d})", "({i} * 0.5)", "({i} + r)", "(r * {i})", "r", "math.sqrt(abs({i}))", "float({i})", "({i} - 0.5)",
    "(r ** 2)", "({f} * {f})", "({f} % 3)", "({f} // 2)", "min({f}, {i})", "math.exp(-abs({f}) / 50)", "(1 - r ** 2)",
]
CONDITIONS = ["{i} > {i}", "{i} == {i}", "{i} % {d} == 0", "{i} <= {d}", "{f} < {i}", "not {c}", "{c} and {c}",
              "{c} or {c}", "{i} != {i}", "2 < {i} < 9", "bool({i})", "x.shape[0] == x.shape[1]", "{i} in (2, 3, 5)"]
TENSORS = [
    "{t} + {i}", "{t} * {i}", "{t} - {i} * {t}", "{t} / {d}", "{i} - {t}", "{t} + {f}", "{t} * {f}", "{t}[{s} :]",
    "{t}[: {s} + 1]", "{t}[-({s} + 1) :]", "{t}[:: {k}]", "torch.cat([{t}, {t}[: {s}]])", "F.pad({t}, ({s}, {k}))",
    "F.pad({t}, (0, {i} % 3))", "{t}.roll({i}, 0)", "{t}.flatten().roll({i})", "{t}.tril({i} % 5 - 2)",
    "torch.full(({k}, 2), {i})", "torch.full(({k},), {f})", "torch.zeros({k}, {k}) + {i}",
    "torch.arange({s} + 4) * {i}", "torch.arange({i}, {i} + 5)", "torch.arange({i} % 4, 20, {k})",
    "{t}.new_ones({k}, {k}) * {i}", "{t}.repeat({k}, 1)", "{t}.expand({k}, *{t}.shape)",
    "torch.where({t} > {i}, {t}, {i})", "{t}.clamp(max={i})", "{t}.clamp(-{k}, {i} % 7)", "{t}.narrow(0, {s}, 1)",
    "{t}[{s}]", "{t}.select(-1, {s})", "{t}.chunk({k})[0]", "{t}.split({k})[-1]", "{t}.unfold(0, 2, {k})",
    "{t}.sum(0) * {i}", "{t}.sum() / {d}", "{t}.mean(-1) + {f}", "({t} > {i}).sum() + {i}", "({t} * 4).long() + {i}",
    "({t} * 4).long() // {d}", "({t} * 4).long() % -{d}", "({t} * 4).to(torch.int32) * ({i} % 100)", "{t} ** ({k})",
    "torch.add({t}, {t}, alpha={i})", "{t}.reshape(-1)[: {k}]", "{t}.view(-1, 1)", "{t}.t() if {c} else {t}",
    "{t}.masked_fill(torch.arange({t}.shape[-1]) < {i}, {i})", "{t}.cumsum(0) - {i}",
    "torch.linspace(0, {i}, {k} + 2)", "{t}.softmax(-1) * {i}", "F.leaky_relu({t}, {f})", "{t}.flip(0) + {i}",
    "torch.stack([{t}, {t} * {i}])", "{t} @ {t}.mT + {i}", "torch.eye({k}, {k} + 1) * {i}", "torch.tensor({i}) + {t}",
    "torch.fmod({t} * 9, {d})", "{t}.diagonal({i} % 2)", "torch.remainder({t} * 9, -{d})",
    "{t}.var(0, correction=0) + {i}", "{t}.addcmul({t}, {t}, value={i})",
]
TABLE = {"i": INTS, "f": FLOATS, "c": CONDITIONS}
# A divisor, a place inside of the first and the last dimension, a small number.
BOUNDED = {"d": "(abs({i}) % 7 + 1)", "s": "({i} % 2)", "k": "({i} % 3 + 1)"}


class _Maker:
    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.names: dict[str, list[str]] = {"i": [], "t": ["x", "x", "y"]}

    def filled(self, template: str, depth: int) -> str:
        out = ""
        while "{" in template:
            before, _, rest = template.partition("{")
            kind, _, template = rest.partition("}")
            out += before + self.expression(kind, depth - 1)
        return out + template

    def expression(self, kind: str, depth: int) -> str:
        if kind in BOUNDED:
            return self.filled(BOUNDED[kind], depth)
        if kind == "t" or depth <= 0 and kind == "i":
            known = self.names[kind]
            return self.rng.choice(known if kind == "t" or known and self.rng.random() < 0.5 else LEAVES)
        if depth <= 0:
            return self.filled({"f": "({i} / 4)", "c": "{i} > 4"}[kind], 0)
        return self.filled(self.rng.choice(TABLE[kind]), depth)


def program(seed: int) -> str:
    """The source of a program."""
    rng = random.Random(f"numbers {seed}")
    rows = []
    for _ in range(STEPS):
        row = [rng.choice([2, 3, 4, 5, 6, 7, 8, 9, 12, 16]) if rng.random() < 0.9 else 2 for _ in range(2)]
        row += [rng.randint(-9, 20) for _ in range(2)]
        row.append(rng.choice([0.5, 0.25, 1.5, -2.0, 3.0]))
        if rows and rng.random() < 0.5:  # some of them alone change
            row = [new if rng.random() < 0.4 else old for old, new in zip(rows[-1], row)]
        rows.append(tuple(row))
    maker = _Maker(rng)
    lines = ["def f(x, y, n, m, r):"]
    for at in range(rng.randint(1, 4)):
        lines.append(f"    i{at} = {maker.expression('i', 3)}")
        maker.names["i"].append(f"i{at}")
    for at in range(rng.randint(1, 5)):
        if rng.random() < 0.7:  # of the arguments: fewer operations that their results' sizes don't fit
            maker.names["t"] = ["x", "x", "y"]
        lines.append(f"    t{at} = {maker.filled(rng.choice(TENSORS), 2)}")
        maker.names["t"].append(f"t{at}")
    tensors = [line.split()[0] for line in lines if line.startswith("    t")]
    lines.append(f"    return {', '.join([*maker.names['i'], *tensors])}")
    return HEAD.format(numbers=rows) + "\n".join(lines) + "\n"
