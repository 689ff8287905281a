"""Programs about sizes: arithmetic and comparisons of sizes, views, slices, cat, expand and pad, loops over sizes. They
are called with other sizes each time, 0 and 1 among them.

Invariant: the calls' sizes stand in the program, so that a seed decides them too.
"""
from __future__ import annotations

import random

from .harness import Options
from .maker import Maker, Scope
from .repair import repair

HEAD = '''
import math

import torch
import torch.nn.functional as F
import dynamo_lite

SEEN = ()
SIZES = {sizes}


def arguments(i):
    a, b, c = SIZES[i]
    x = {x}
    y = {y}
    z = {z}
    return [x, y, z, c, [a, b]]

'''
STEPS = 7
FIRST = ["torch.randn(a, b)"] * 4 + [
    "torch.randn(b, a).t()", "torch.randn(a, 2 * b)[:, ::2]", "torch.randn(a + 3, b)[2:-1]",
    "torch.randn(a, b, 2)[..., 1]",
    "torch.randn(1, b).expand(a, b)", "torch.randn(a, 1).expand(a, b)", "torch.randint(-3, 4, (a, b))",
    "torch.randn(a, b).double()", "torch.randn(a + 1, b + 2)[1:, 1:-1]", "torch.randn(a, 4)", "torch.randn(8, b)",
]
SECOND = ["torch.randn(a, b)", "torch.randn(b)", "torch.randn(c, b)", "torch.randn(a, 1)", "torch.randn(a, c)", "x[:c]",
          "torch.randn(b, a).t()", "x.t()", "torch.randn(2, a, b)", "torch.randn(a + b)"]
THIRD = ["torch.randn(c)", "torch.randn(b, c)", "torch.randn(a * b)", "torch.randn(c, a, b)", "torch.randn(2 * a, b)",
         "torch.randn(a)", "torch.arange(c)"]
FUNCTION = "def f(x, y, z, n, sizes):"
EXPRESSIONS: dict[str, list[str]] = {
    "t": [
        "{$t}", "{$t}", "({t} + {t0})", "({t} * {n})", "({t} + {n})", "({t} / ({n} + 7))", "torch.relu({t})",
        "({t0} + y)", "(x * {t0})", "{t}.reshape(-1)", "{t}.flatten()", "{t}.view(-1)", "{t0}.reshape({n}, -1)",
        "{t0}.view({t0}.shape[0], -1)", "{t0}.reshape(-1, {k})", "x.view(-1, {k})", "x.reshape({k}, -1)",
        "x.view(x.shape[1], x.shape[0])", "x.view(x.size())", "{t}.t()", "{t}.mT", "{t}.unsqueeze(0)", "{t}[None]",
        "{t}.unsqueeze(-1)", "{t}.squeeze()", "{t}.squeeze(0)", "{t}.transpose(0, 1)", "{t}.permute(1, 0)",
        "{t}.contiguous()", "{t}.clone()", "{t}[{n}:]", "{t}[:{n}]", "{t}[{n}:{n}]", "{t}[:, {n}:]", "{t}[..., :{n}]",
        "{t}[::{k}]", "{t}[-{n}:]", "{t}[:-1]", "{t}[1:]", "{t}[{i}]", "{t}[..., -1]", "{t}.narrow(0, {i}, {n})",
        "{t}.narrow(0, 1, {t0}.shape[0] - 1)", "{t}.select(0, {i})", "torch.cat([{t}, {t0}])",
        "torch.cat([{t0}, {t0}], -1)",
        "torch.cat([x, y])", "torch.cat([x, x[:{n}]])", "torch.stack([{t0}, {t0}])", "{t}.repeat(2, 1)",
        "{t}.repeat({k}, {k})", "{t}.repeat_interleave(2, 0)", "{t}.expand(3, *{t0}.shape)", "x.expand({k}, -1, -1)",
        "{t}.expand_as({t0})", "{t}.sum(0)", "{t}.sum(-1, keepdim=True)", "{t}.sum()", "{t0}.float().mean(0)",
        "{t0}.float().mean()", "{t0}.float().var(0)", "F.pad({t}, (1, {i}))", "F.pad({t}, ({i}, 0, 0, 2))",
        "F.pad({t}, (0, {n} % 3))", "torch.zeros({n}, 2)", "torch.ones({t0}.shape)", "torch.zeros_like({t})",
        "torch.full(({n},), 2.5)", "{t0}.new_zeros({t0}.shape[0], {n})", "{t0}.new_ones({n})",
        "torch.empty({n}, 3).fill_(1)",
        "torch.arange({n})", "torch.arange({t0}.shape[0])", "torch.arange(1, {n}, 2)", "torch.arange({n}) * {n}",
        "torch.eye(max({n} % 8, 1))", "torch.linspace(0, 1, {n} % 20 + 2)", "torch.softmax({t0}.float(), -1)",
        "F.layer_norm({t0}.float(), {t0}.shape[-1:])", "({t0}.float() @ {t0}.float().mT)",
        "(x.float() @ x.float().t())",
        "torch.einsum('ij,kj->ik', {t0}.float(), {t0}.float())", "{t0}.cumsum(0)", "{t}.flip(0)", "{t0}.roll(1, 0)",
        "{t0}.chunk(2, 0)[0]", "{t0}.chunk({k})[-1]", "{t0}.split({k})[0]", "{t0}.split({n})[-1]",
        "{t0}.tensor_split(2)[1]", "{t0}.unbind(0)[0]", "{t0}.unfold(0, 2, 1)", "{t0}.tril()", "{t0}.float().tril(1)",
        "torch.where(torch.arange({t0}.shape[-1]) < {n}, {t0}, 0)", "{t0}.masked_fill({t0} > 0, {n})",
        "{t0}.index_select(0, torch.arange({t0}.shape[0]) // 2)", "{t0}[torch.arange({t0}.shape[0] - 1, -1, -1)]",
        "{t0}.gather(-1, torch.zeros({t0}.shape, dtype=torch.long))", "{t0}.movedim(0, -1)", "{t0}.swapaxes(0, -1)",
        "{t0}.unflatten(0, (-1, {k}))", "{t0}.unflatten(-1, ({k}, -1))", "{t0}.diagonal()", "{t0}.amax(-1)",
        "({t} if {c} else {t0})", "{t0}.as_strided(({t0}.shape[0],), ({t0}.stride(0),))", "{t0}.nonzero()",
        "{t0}[{t0} > 0]", "torch.tensor([{n}, {n}])", "torch.tensor({n})", "{t0}.sort(-1)[0]", "{t0}.topk(1)[0]",
        "F.avg_pool1d({t0}.float()[None], 2)", "F.interpolate({t0}.float()[None], scale_factor=2)",
        "F.linear({t0}.float(), torch.ones(3, {t0}.shape[-1]))", "torch.meshgrid(z, z, indexing='ij')[0]",
        "torch.broadcast_to({t0}, (2, *{t0}.shape))", "{t0}.view(*{t0}.shape[:-1], {k}, -1)",
        "torch.vstack([{t0}, {t0}])",
        "torch.outer({t0}.flatten(), {t0}.flatten()[:2])", "{t0}.count_nonzero()", "torch.dstack([{t0}, {t0}])",
    ],
    "t0": ["{$t}", "{$t}", "{$t}", "x", "y", "z"],
    "n": [
        "{$n}", "{$n}", "n", "{i}", "{k}", "x.shape[0]", "x.shape[1]", "x.size(0)", "{$t}.shape[0]", "{$t}.shape[-1]",
        "{$t}.size(-1)", "{$t}.numel()", "{$t}.dim()", "len({$t})", "{$t}.stride(0)", "({n} + {n})", "({n} - {n})",
        "({n} * {n})", "({n} // {k})", "({n} % {k})", "({n} // ({n} + 1))", "({n} % ({n} + 1))", "max({n}, {n})",
        "min({n}, {n})", "abs({n} - {n})", "(-{n})", "({n} + 7) // 8 * 8", "math.ceil({n} / 2)", "math.floor({n} / 3)",
        "int({n} * 0.5)", "int({n} ** 0.5)", "round({n} / 2)", "sum({$t}.shape)", "math.prod({$t}.shape)",
        "len({$t}.shape)",
        "divmod({n}, {k})[1]", "({n} if {c} else {n})", "sizes[0]", "sizes[-1]", "sum(sizes)", "max(sizes)",
        "({n} >> 1)",
        "({n} & 3)", "({n} ** 2)", "{$t}.shape.numel()", "len(range({n}))", "int({c})", "x.storage_offset()",
        "torch.sym_max({n}, {n})", "torch.sym_min({n}, {k})", "[5, 6, 7][{n} % 3]", "{{2: 3, 4: 5}}.get({n}, 1)",
        "y.stride(-1)", "(x.shape[0] * x.shape[1])", "math.gcd({n}, 6)", "int(z.sum() * 0) + 2",
    ],
    "n0": ["{$n}", "n", "x.shape[0]", "{$t}.shape[-1]", "{i}", "{k}"],
    "i": ["0", "1", "2", "-1", "3"],
    "k": ["2", "3", "4", "8", "1"],
    "c": [
        "{n} > {n}", "{n} == {n}", "{n} != {k}", "{n} % {k} == 0", "{n} <= {k}", "{n} >= 2", "{n} < {n} * 2",
        "x.shape == y.shape", "{$t}.shape[0] == {$t}.shape[-1]", "{$t}.is_contiguous()", "{c} and {c}", "{c} or {c}",
        "not {c}", "1 < {n} < 6", "{n} in (2, 3, 5)", "bool({n})", "{$t}.shape[-1] in sizes", "{$t}.numel() == 0",
        "x.shape == (4, 3)", "{$t}.dim() == 2",
    ],
    "c0": ["{n} > {k}", "{n} == {n}", "x.shape[0] > 3", "{$t}.dim() == 2"],
}
for _kind in ("i", "k"):
    EXPRESSIONS[_kind + "0"] = EXPRESSIONS[_kind]
SIMPLE = [
    "{+t} = {t}", "{+t} = {t}", "{+t} = {t}", "{+n} = {n}", "{+n} = {n}", "{!t} = {t}", "{!n} = {n}",
    "sizes.append({n})",
    "{!n} += {n}", "x = x.clone()", "{$t}.add_(1)", "{$t}[{n}:].mul_(2)", "{$t}[..., :{n}] = {n}",
    "{+n}, {+n} = x.shape", "assert {c}", "torch._check({c})", "dynamo_lite.graph_break()", "sizes = [{n}, {n}]",
    "{!t} = {t0}[:{n}]", "x.resize_(x.shape[1], x.shape[0])" , "{$t}.t_()", "{!t} = torch.cat([{t0}, {t0}])",
]
COMPOUND = [
    "if {c}:\n    {@}\nelse:\n    {@}", "if {c}:\n    {@}", "for {=n} in range({n} % 6):\n    {@}",
    "for {=n} in range(min({$t}.shape[0], 4)):\n    {@}", "for {=t} in {t0}.split({k}):\n    {@}",
    "for {=t} in {t0}[:4]:\n    {@}", "for {=n} in {$t}.shape:\n    {@}",
    "try:\n    {@@}\nexcept (RuntimeError, IndexError, ValueError, TypeError) as e:\n"
    "    sizes.append(type(e).__name__)",
]
RESULTS = ["t", "t", "n", "t", "n"]


def program(seed: int) -> str:
    """The source of a program."""
    rng = random.Random(f"shapes {seed}")
    usual = [2, 3, 4, 5, 6, 8, 9, 16]
    sizes = []
    for _ in range(STEPS):
        row = [rng.choice(usual) if rng.random() < 0.85 else rng.choice([0, 1, 1]) for _ in range(3)]
        if rng.random() < 0.25:
            row[rng.choice([0, 1])] = row[2]
        if sizes and rng.random() < 0.5:  # one of them alone changes
            row = [new if k == rng.randrange(3) else old for k, (old, new) in enumerate(zip(sizes[-1], row))]
        sizes.append(tuple(row))
    head = HEAD.format(sizes=sizes, x=rng.choice(FIRST), y=rng.choice(SECOND), z=rng.choice(THIRD))
    simple = rng.sample(SIMPLE[8:], 6) + SIMPLE[:8]
    maker = Maker(rng, EXPRESSIONS, simple, COMPOUND)
    scope = Scope({"t": ["x", "y", "z"], "n": ["n"]}, {"x", "y", "z", "n"})
    body = maker.function(FUNCTION, scope, rng.randint(2, 6), RESULTS)
    body = body.replace("return ", "return sizes, ", 1) if body.count("return ") == 1 else body
    return head + repair(head, body, rng, Options())
