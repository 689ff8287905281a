"""Programs about what numbers become: elementwise operators that are exact, casts between all dtypes, reductions and
moves of what they give, over zeros of both signs, NaN, infinities, and numbers at and beyond the borders of dtypes.

Invariant: every operator has one right result, which eager gives in vectors as in single elements, so that results are
compared to the last bit. What eager itself leaves open (MKL's square roots, remainders of denormal divisors, which of
two zeros is the larger, the sign of NaN, whether `alpha` times a 16-bit float is rounded before it is added) is not
among them. """
from __future__ import annotations

import random
from typing import Any

import torch

HEAD = '''
import math
import random

import torch
import dynamo_lite

SEEN = ()
FLOATS = [0.0, -0.0, math.nan, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, -2.5, math.inf, -math.inf, 3.0, 7.0, -7.3, 100.6, 255.0,
          256.0, -200.7, 3e4, 7e4, 3e9, -3e9, 1e19, 1e30, -1e30, 1e300]
WHOLE = [0, 1, -1, 2, 3, 7, -7, 100, 127, 128, -128, 255, 256, -129, 32767, -32768, 65535, 2**31 - 1, -2**31, 2**31,
         2**53 + 1, 2**62, -2**63, 2**63 - 1]


def numbers(seed, count, dtype):
    rng = random.Random(seed)
    if dtype.is_floating_point:
        drawn = [rng.choice(FLOATS) if rng.random() < 0.6 else rng.uniform(-10, 10) for _ in range(count)]
        return torch.tensor(drawn, dtype=torch.float64).to(dtype)
    if dtype is torch.bool:
        return torch.tensor([rng.random() < 0.5 for _ in range(count)])
    drawn = [rng.choice(WHOLE) if rng.random() < 0.6 else rng.randrange(-20, 20) for _ in range(count)]
    return torch.tensor(drawn).to(dtype)

'''
ARGUMENTS = '''
SIZES = {sizes}


def arguments(i):
    m, n = SIZES[i]
    a = {a}
    b = {b}
    c = {c}
    return [a, b, c]

'''
STEPS = 3
DTYPES = ["float32", "float32", "float64", "bfloat16", "float16", "int64", "int32", "int16", "int8", "uint8", "bool"]
LAYOUTS = ["numbers({s}, m * n, {d}).view(m, n)"] * 3 + [
    "numbers({s}, m * n, {d}).view(n, m).t()", "numbers({s}, n, {d})", "numbers({s}, m, {d}).view(m, 1)",
    "numbers({s}, m * n * 2, {d}).view(m, 2 * n)[:, ::2]", "numbers({s}, 1, {d})[0]"]
NUMBERS = ["0", "1", "-1", "2", "3", "7", "255", "-3", "0.5", "-1.5", "2.0", "100", "True", "2**31"]
INFIX = ["+", "-", "*", "/", "//", "%", "&", "|", "^", "<", "<=", "==", "!=", ">", ">=", "<<", ">>"]
ONE = ["-{t}", "~{t}"] + ["{t}." + name + "()" for name in (
    "abs", "neg", "sign", "floor", "ceil", "round", "trunc", "relu", "isnan", "nan_to_num().signbit", "logical_not",
    "square", "isfinite", "frac", "reciprocal", "isinf", "clone", "sgn", "bool", "int", "half", "float",
    "nan_to_num", "positive")]
TWO = ["torch." + name for name in (
    "maximum({t}, {o})", "minimum({t}, {o})", "fmax({t}, {o})", "fmin({t}, {o})", "copysign({t}, {n})",
    "copysign({t}, {t}.nan_to_num())", "logical_and({t}, {o})", "logical_xor({t}, {o})", "eq({t}, {o})",
    "fmod({t}, {o})", "remainder({t}, {o})",
    "div({t}, {o}, rounding_mode='trunc')", "div({t}, {o}, rounding_mode='floor')", "heaviside({t}, {o})",
    "clamp_min({t}, {o})", "nextafter({t}, {o})", "floor_divide({t}, {o})", "add({t}, {o}, alpha=2)",
    "sub({t}, {o}, alpha=2)")]
MORE = ["torch.where({t} < {n}, {t}, {o})", "torch.where({t} == {n}, {t}, {o})", "torch.where({t} >= {n}, {n}, {o})",
        "{t}.clamp({n}, {n})", "torch.lerp({t}, {t}, 0.5)", "{t}.masked_fill({t} > 1, {n})", "{t}.type_as({t})",
        "torch.addcmul({t}, {t}, {t}, value=2)"]
MOVED = ["{t}." + text for text in (
    "amax({d}, keepdim={k})", "amin({d}, keepdim={k})", "max({d}, keepdim={k})[0]", "max({d}, keepdim={k})[1]",
    "min({d}, keepdim={k})[0]", "argmax({d}, keepdim={k})", "argmin({d}, keepdim={k})", "any({d}, keepdim={k})",
    "all({d}, keepdim={k})", "bool().sum({d}, keepdim={k})", "long().sum({d}, keepdim={k})",
    "int().prod({d}, keepdim={k})", "count_nonzero()", "amax()", "aminmax()[0]", "long().cumsum({d})",
    "cummax({d})[0]", "cummax({d})[1]", "cummin({d})[0]", "int().cumsum({d})", "flip({d})", "roll(1, {d})",
    "narrow({d}, 0, 1)", "unsqueeze({d})", "transpose(0, -1)", "reshape(-1)", "repeat(2, 1)",
    "expand(3, -1, -1)", "t().contiguous().t()", "tril()", "diff(dim={d})", "unfold({d}, 2, 1).amax(-1)", "all()",
    "gather({d}, {t}.argmax({d}, keepdim=True))", "index_select({d}, torch.tensor([0]))", "argmax()", "max()",
    "isclose({t})", "sum({d}, dtype=torch.int64)", "sort({d})[0]")] + [
    "torch.cat([{t}, {t}], {d})", "torch.stack([{t}, {t}])", "{t}[..., ::2]", "torch.nn.functional.pad({t}, (1, 2))",
    "torch.nn.functional.pad({t}, (1, 2), value={n})"]


class _Maker:
    """Fills in templates, and knows what each variable is where the program runs by its first arguments."""

    def __init__(self, rng: random.Random, known: dict[str, Any], moves: bool) -> None:
        self.rng, self.known, self.moves = rng, known, moves

    def tensor(self) -> str:
        names = list(self.known)
        return self.rng.choice(names[-4:] if self.rng.random() < 0.6 else names)

    def part(self, kind: str) -> str:
        rng = self.rng
        if kind == "o":
            kind = "t" if rng.random() < 0.65 else "n"
        choices = {"n": NUMBERS, "d": ["0", "-1", "-1"], "k": ["True", "True", "False"]}
        return self.tensor() if kind == "t" else rng.choice(choices[kind])

    def expression(self) -> str:
        rng = self.rng
        if self.moves and rng.random() < 0.3:
            template = rng.choice(MOVED)
        elif (r := rng.random()) < 0.25:
            template = f"{{t}}.to(torch.{rng.choice(DTYPES)})"
        elif r < 0.5:
            left, right = rng.choice([("{t}", "{o}"), ("{t}", "{o}"), ("{o}", "{t}")])
            template = f"{left} {rng.choice(INFIX)} {right}"
        else:
            template = rng.choice(ONE if r < 0.7 else TWO if r < 0.87 else MORE)
        out = ""
        while "{" in template:
            before, _, rest = template.partition("{")
            kind, _, template = rest.partition("}")
            out += before + self.part(kind)
        return out + template


def program(seed: int) -> str:
    """The source of a program."""
    rng = random.Random(f"values {seed}")
    sizes = [(rng.choice([1, 1, 2, 3, 9]), rng.choice([1, 3, 8, 17, 45, 64])) for _ in range(STEPS)]
    made = [rng.choice(LAYOUTS).format(s=f"{10 * seed + at} + 3 * i", d=f"torch.{rng.choice(DTYPES)}")
            for at in range(3)]
    head = HEAD + ARGUMENTS.format(sizes=sizes, a=made[0], b=made[1], c=made[2])
    space: dict[str, Any] = {}
    exec(head, space)  # what fits is tried
    maker = _Maker(rng, dict(zip("abc", space["arguments"](0))), moves=rng.random() < 0.6)
    lines: list[str] = []
    length = rng.choice([4, 6, 8, 10])
    while len(lines) < length:
        text = maker.expression()
        try:
            value = eval(text, {"torch": torch}, dict(maker.known))
        except (RuntimeError, IndexError, TypeError, NotImplementedError):
            continue  # what does not fit or is not defined for a dtype
        if value.is_complex() or value.numel() > 4000:
            continue
        name = f"v{len(lines)}"
        maker.known[name] = value
        lines.append(f"    {name} = {text}")
    read = "\n".join(lines)
    results = [name for name in maker.known if name[0] == "v" and read.count(name) == 1]
    # Zeros tell their signs, unless eager's depend on layouts.
    if not maker.moves and not any(name in read for name in ("imum(", "torch.fm", "clamp")):
        results += [f"({name} == 0) & {name}.signbit()" for name in results if maker.known[name].is_floating_point()]
    return f"{head}def f(a, b, c):\n{read}\n    return [{', '.join(results)}]\n"
