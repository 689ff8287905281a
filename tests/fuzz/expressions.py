"""Templates of expressions, by kind: tensors t, numbers n, strings s, lists of tensors l, lists of numbers m, dicts
of tensors d, functions of a tensor f, iterators of tensors g, objects o, conditions c; and statements that raise,
most of them. A kind with a 0 behind it is the end of a nest."""
from __future__ import annotations

EXPRESSIONS: dict[str, list[str]] = {
    "t": [
        "{$t}", "{$t}", "{$t}", "({t} + {t})", "({t} * {t0})", "({t} - {n})", "({t} / {n})", "({n} * {t})", "(-{t})",
        "({t} ** 2)", "torch.relu({t})", "torch.sin({t})", "torch.sigmoid({t})", "torch.tanh({t})", "{t}.abs()",
        "{t}.cos()", "{t}.clone()", "{t}.sum(-1, keepdim=True)", "{t}.mean(0)", "{t}.clamp(-1, 1)",
        "{t}.amax(-1, keepdim=True)", "torch.where({t} > 0, {t0}, {t0})", "torch.where({t0} > 0.5, {t0}, {n} * 1.0)",
        "torch.maximum({t0}, {t0})", "{t}.cumsum(-1)", "torch.softmax({t}, -1)",
        "F.layer_norm({t0}, {t0}.shape[-1:])", "({t0} @ {t0}.mT)", "torch.stack([{t0}, {t0}]).sum(0)",
        "torch.cat([{t0}, {t0}])[:3]", "{t}.unsqueeze(0)", "{t}.flip(-1)", "{t}.expand(3, 4)", "{t}.reshape(-1)[:4]",
        "{t}.t()", "{t}.mT", "{t}.unbind(0)[0]", "{t}.chunk(2, -1)[0]", "{t}[0]", "{t}[-1:]", "{t}[..., ::2]",
        "{t}[None]", "{t}[:, None].squeeze(1)", "{t}.view(-1)[:4]", "{t}.squeeze()", "{t}.detach()", "{t}.double()",
        "{t}.float()", "{t}.to(torch.float64)", "{t}.gt(0)", "{t}.int()", "{t}.long()",
        "{t}.argmax(-1, keepdim=True)", "{t}.bool().int()", "torch.rand_like({$t})", "F.dropout({t0}, 0.5)",
        "torch.randn(3, 4)", "torch.arange(4)", "torch.full((3, 1), {n} * 1.0)", "torch.zeros(3, 4)",
        "torch.randint(0, 3, (4,))", "torch.tensor([{n}, {n}, 1, 0])", "torch.tensor({n})", "torch.ones_like({t0})",
        "{t0}.new_zeros(4)", "{t0}.index_select(0, torch.tensor([0, {i}]))", "{t0}[torch.tensor([0, {i}])]",
        "{t0}.gather(-1, torch.tensor([[0, {i}]]))",
        "{t0}.scatter_add(-1, torch.zeros(3, 4, dtype=torch.long), {t0})", "{t0}.masked_fill({t0} > 0, {n})",
        "torch.einsum('...i,...i->...', {t0}, {t0})", "F.one_hot(torch.tensor([0, {i}]), 4).float()",
        "F.embedding(torch.tensor([0, {i}]), torch.ones(3, 4))", "{$l}[0]", "{$l}[-1]", "{$l}[{i}]", "{$d}['a']",
        "{$d}.get('b', {t0})", "{$f}({t})", "{$f}({t0})", "{$f}(a={t0})", "{$f}(*[{t0}])", "({t} if {c} else {t0})",
        "{$o}.t", "{$o}.twice", "{$o}({t})", "({$o} + {$o}).t", "{$o}.scaled({n})", "{$o}[{t0}]", "{$o}.lazy",
        "sum(v * {n} for v in ({t0}, {t0}))", "sum({$l})", "(lambda a, /, *, b={n}: a * b)({t})",
        "functools.reduce(lambda a, b: a + b, {$l})", "functools.partial(torch.add, {t0})({t0})", "F.gelu(input={t})",
        "F.softplus({t})", "F.elu({t0})", "next(iter({$l}))", "next({$g})", "next({$g}, {t0})",
        "max({$l}, key=lambda v: v.dim())", "operator.add({t0}, {t0})", "getattr({$o}, 't')",
        "getattr({$o}, 'extra', {t0})", "[*{$l}][0]", "(t0 := {t})", "torch.add({t0}, {t0}, out=torch.empty(0))",
        "globals()['WEIGHT'] * {t0}", "WEIGHT", "Box.shared", "copy.copy({t0})", "copy.deepcopy({$l})[0]",
        "({t0} % 3)", "({t0} // 2)", "({t0} > {t0}).float()", "{t0}.type_as({t0})", "{t0}.contiguous()",
        "torch.nn.functional.linear({t0}, torch.ones(4, 4))", "torch.addmm(torch.ones(3, 3), {t0}, {t0}.mT)",
        "{t0}.as_strided((2, 2), (1, 1))",
    ],
    "t0": [
        "{$t}", "{$t}", "{$t}", "x", "y", "({$t} + 1)", "{$t}.neg()",
    ],
    "n": [
        "{$n}", "{$n}", "{i}", "2", "3", "0.5", "-1", "{$t}.dim()", "len({$l})", "len({$m})", "({n} + {i})",
        "({$n} * 2)", "({n} - {n})", "({$n} // 2)", "({n} % 3)", "max({n}, 3)", "min([{n}, 2])", "int({c})",
        "len(f'{{{$n}}}-{{{$n}:>3}}')", "sum(range({i}))", "abs({n})", "round({n} / 3, 1)", "divmod({n}, 2)[1]",
        "math.floor({n} / 2)", "x.shape[-1]", "x.size(0)", "{$t}.numel()", "{$t}.ndim", "len({{{n}, 2, 3}})",
        "[5, 6, 7][{n} % 3]", "dict(a={n}).get('b', 4)", "x.stride(0)", "{$o}.k", "{$m}[{i}]", "{$m}[-1]",
        "sum({$m})", "{$m}.count(2)", "next(i for i in {$m} if i > 0)", "STATE['count']", "len({$d})", "len({s})",
        "max({$m}, default=1)", "sorted({$m})[0]", "{$o}.bump()", "len(vars({$o}))", "len(list({$g}))", "{$c}()",
        "(lambda: {$n})()", "bool({n}) + 1", "Box.made", "ord({s}[0])", "int('{i}')", "{$n}.bit_length()",
        "len({$t})", "random.randint(1, 3)", "hash({i})", "COUNT",
    ],
    "n0": [
        "{$n}", "{i}", "2",
    ],
    "i": [
        "0", "1", "2", "-1", "3", "1", "2",
    ],
    "i0": [
        "0", "1", "2", "-1", "3", "1", "2",
    ],
    "s": [
        "'a'", "str({n})", "f'{{{$n}}}'", "'-'.join(map(str, {$m}))", "repr({$m})", "type({$t}).__name__",
        "'%s' % {n}", "{s0}.upper()", "'{{}}'.format({n})", "str({$t}.shape)", "{$f}.__name__",
        "' '.join(sorted({$d}))",
    ],
    "s0": [
        "'a'", "'b'",
    ],
    "c": [
        "flag", "not flag", "{n} > 1", "{n} % 2 == 0", "x.shape[0] == 3 and y.dim() < 3",
        "isinstance({$t}, torch.Tensor)", "1 < {n} <= 4", "any(v > 2 for v in ({n}, {n}))", "{n} in (2, 4) and flag",
        "str({n}) == '2' or {n} is None", "all(map(bool, [{n}, {n}]))", "{$t}.dtype == torch.float32",
        "{$t}.is_contiguous()", "'b' in {$d}", "{$t} is {$t}", "{$l} == {$l}", "{$o} is {$o}",
        "hasattr({$o}, 'extra')", "{$t}.requires_grad", "torch.is_grad_enabled()", "{$l}[0] is {$t}",
        "{$m} == [1, 2]", "callable({$f})", "len({$l}) > {i}", "{$t} is not None", "{s} == 'a'", "{i} in {$m}",
        "{n} not in {$m}", "bool({$l})",
    ],
    "c0": [
        "flag", "n > 2", "True",
    ],
    "l": [
        "{$l}", "[{t}, {t0}]", "[{t0}, *{$l}]", "{$l}[::-1]", "{$l} + [{t0}]", "list({$g})", "list(map({$f}, {$l}))",
        "[v + 1 for v in {$l}]", "list({$d}.values())", "sorted({$l}, key=lambda v: v.dim())",
        "[v for v in {$l} if v.dim() > 0]", "[{$f}(v) for v in {$l}]", "list(reversed({$l}))", "{$l}.copy()",
        "[a for a, b in zip({$l}, {$m})]", "list(filter(lambda v: v.dim() == 2, {$l}))", "list(x)", "{$o}.held",
        "[*x.unbind(0)]",
    ],
    "l0": [
        "{$l}", "[{$t}]",
    ],
    "m": [
        "{$m}", "[{n}, {n}]", "[i * 2 for i in {$m}]", "list(range({i}))", "list(x.shape)",
        "[i for i, _ in enumerate({$l})]", "[len({$l}), *{$m}]", "{$m} * 2",
        "[i + j for i in {$m} for j in range(2)]", "sorted({{{n}, 1}})", "list(itertools.accumulate({$m}))",
    ],
    "m0": [
        "[1, 2]", "[3]",
    ],
    "d": [
        "{$d}", "{{'a': {t}}}", "dict(a={t0}, b={t0})", "{{**{$d}, 'b': {t0}}}",
        "{{k: v + 1 for k, v in {$d}.items()}}", "dict(zip('ab', {$l}))", "{$d} | {{'c': {t0}}}",
        "collections.OrderedDict(a={t0})", "collections.defaultdict(lambda: {t0}, a={t0})", "dict({$d})",
    ],
    "d0": [
        "{{'a': {$t}}}",
    ],
    "g": [
        "iter({$l})", "(v * {n} for v in {$l})", "map({$f}, {$l})", "zip_first({$l}, {$m})", "pairs({t0})",
        "itertools.chain({$l}, {$l})", "(v for v in {$l} if v.dim())", "reversed({$l})",
        "itertools.islice(pairs({t0}), 2)", "(v for _, v in sorted({$d}.items()))",
        "filter(lambda v: v is not None, {$l})",
    ],
    "g0": [
        "iter([{$t}])",
    ],
    "f": [
        "{$f}", "(lambda a: a + {t0})", "(lambda a, b={t0}: a * b)", "functools.partial(torch.mul, {t0})",
        "{$o}.scaled", "torch.sin", "Box(1.0, 2).plus", "(lambda a: {$f}(a) + {n})",
    ],
    "f0": [
        "torch.cos", "(lambda a: a)",
    ],
    "o": [
        "Box({t0}, {n})", "Deep({t0}, {n})", "Slotted({t0}, {n})", "{$o}",
        "dataclasses.replace(Pair({t0}, {n}), k={n})", "Pair({t0}, {n})", "({$o} + {$o})",
    ],
    "o0": [
        "Box({$t}, 2)",
    ],
    "raising": [
        "{$t}[torch.tensor([{i}, 7 * flag])]", "{$t}[5]", "{$t}.view(5, 5)", "F.one_hot(torch.tensor([{i}]), 2)",
        "torch.tensor([4, 2]) // torch.tensor([{i}, 1])", "{t0} @ {t0}", "raise ValueError({s})", "assert {c}, {s}",
        "{$d}['missing']", "{$m}[9]", "int('q')", "{$l}.nothing", "1 // {n}", "torch.ones(2) + torch.ones(3)",
        "{$t}.gather(-1, torch.tensor([[4 * flag]]))", "torch.linalg.cholesky(-torch.eye(2) + {n})", "{$t}.nothing",
        "{+t} = {$t}.item() * {t0}", "None + {$t}",
    ],
}
EXPRESSIONS["raising0"] = EXPRESSIONS["raising"]
