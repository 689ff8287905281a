"""Templates of statements: simple ones, and compound ones, which hold blocks. ``maker`` says what the holes mean."""
from __future__ import annotations

ASSIGN = [
    "{+t} = {t}", "{+t} = {t}", "{+t} = {t}", "{+n} = {n}", "{+l} = {l}", "{+l} = {l}", "{+d} = {d}", "{+m} = {m}",
    "{+g} = {g}", "{+f} = {f}", "{+o} = {o}", "{+t}, *{+l} = {t}, {t0}, {t0}", "{+t}, {+n} = {t}, {n}",
    "{+t} = {+t} = {t}", "({+t}, [{+t}, {+n}]) = {t0}, ({t}, {n})", "{!t} = {t}", "{!n} = {n}",
    "{+t}: torch.Tensor = {t}",
]

AUGMENT = [
    "{!t} += {t0}", "{!t} *= {n}", "{!t} -= {n}", "{!n} += {i}", "{!l} += [{t0}]", "{!m} += [{n}]", "{!l} += {g}",
    "{!m} *= 2", "{!d} |= {{'c': {t0}}}", "{!t} = {!t} + {n}", "{!t} /= 2", "{!n} -= 1", "{$o}.k += {i}",
    "{$o}.t += {t0}", "{$l}[0] += 1", "{$d}['a'] *= 2", "{$o}.t = {t}", "{$o}.extra = {t}",
]

CONTAINERS = [
    "{$l}.append({t})", "{$l}.reverse()", "{!l} += {$l}[:1]", "{$l}[0] = {t}", "{$l}.insert({i}, {t0})",
    "{$l}.extend({g})", "{$l}.extend(v * {$l}[-1] for v in (2, {n}))",
    "{$l}.extend(map(lambda v: v * len({$l}), list({$l})))", "{$l}[1:] = {l}", "{$l}[:0] = {g}", "del {$l}[0]",
    "{$l}.pop()", "{$l}.clear()", "{$l}.sort(key=lambda v: v.dim())", "{$d}['b'] = {t}", "{$d}.setdefault('c', {t0})",
    "{$d}.update(b={t0})", "{$d}.pop('b', None)", "{$d}.update((k, v) for k, v in list({$d}.items()))",
    "del {$d}['a']", "{$m}.append({n})", "{$m}.extend(i + len({$m}) for i in range(2))", "{$m}.remove(2)",
    "{$m}.index({n})", "{+t} = {$l}.pop(0)", "{+t} = {$d}.popitem()[1]", "{$m}[{i}] = {n}", "{$m}.sort(reverse=True)",
    "{+q:q1} = set({$m}); {q1}.update(len({q1}) + i for i in range(2))", "{$o}.held.append({t0})",
    "{+q:q2} = {{8, 16, {i}, {n}}}; {q2}.discard(16); {q2}.add(24); {+m} = list({q2})",
    "{+q:q3} = set(range(40)); {q3} -= set(range({i}, 38)); {q3} |= {{64, {i}}}; {+m} = [*{q3}]",
    "{+q:q4} = set({$m}) ^ {{1, 8, {i}}}; {+n} = {q4}.pop() if {q4} else 0; said.append(list({q4}))",
    "{$l}.append({$f}({t0}))",
]

INPLACE = [
    "{$t}.add_(1)", "{$t}.mul_({n})", "{$t}.t().add_(0.5)", "{$t}.view(-1)[::2].mul_(2)", "{$t}.clamp_(-1, 1)",
    "{$t}.copy_({$t}.flip(0))", "{$t}[1:].zero_()", "torch.relu_({$t})", "{$t}.sub_({t0})", "{$t}[0] = {n}",
    "{$t}[{i}] = {t0}", "{$t}[1:] += {n}", "{$t}[..., ::2] *= 2", "{$t}[{$t} > 0] = 0.5", "{$t}.pow_({t0})",
    "{$t}.div_({t0})", "{$t}.fill_({n})", "{$t}.index_add_(0, torch.tensor([{i}]), torch.ones(1, 4))",
    "{$t}.masked_fill_({t0} > 0, 1)", "torch.add({t0}, {t0}, out={$t})", "{$t}.transpose_(0, 1)", "{$t}.squeeze_()",
    "{$t}.normal_()", "{$t}.copy_({t0})", "{$t}.diagonal().add_(1)", "{$t}.expand(3, 4)[0].add_(1)",
    "{+t} = {$t}[0]; {$t}.add_(1)", "{$t}.detach().mul_(2)", "{$t}.requires_grad_()", "{$t}.tag = {n}",
    "{$t}.scatter_(-1, torch.tensor([[0], [{i}], [1]]), {n})", "{$t}.put_(torch.tensor([0, {i}]), torch.ones(2))",
]

EFFECTS = [
    "STATE['count'] += 1", "STATE['last'] = {n}", "STATE['t'] = {t}", "STATE.setdefault('list', []).append({n})",
    "said.append({n})", "said.append({s})", "STATE['f'] = {f}", "{!n} += hasattr({$o}, 'extra')", "{$o}.grow({n})",
    "setattr({$o}, 'k', {n})", "{$o}.twice = {t0}", "del {$o}.extra", "Box.made = {n}", "Box.shared = {t0}",
    "{+n} = {$o}.bump()", "globals()['COUNT'] = {n}", "vars({$o})['k'] = {n}", "{$o}.__dict__['late'] = {t0}",
    "{+d} = vars({$o})", "random.seed({i})", "{+n} = random.random()", "torch.manual_seed({i})",
]

BREAKS = [
    "dynamo_lite.graph_break()", "said.append(round({$t}.double().sum().item(), 3))",
    "{+n} = round(float({$t}.double().sum()), 2)", "print_nothing({t0})", "{+m} = {$t}.flatten().int().tolist()[:2]",
    "{+t} = {$t}[{$t} > 0]", "{+t} = torch.nonzero({$t})", "{+t} = torch.unique({t0})",
]

ENDS = [
    "if {c} and n > 3: return {t}, n", "if {c}: {!n} = {n}", "if {c}: {!t} = {t}", "{=t:gone} = {t}; del {gone}",
    "pass", "said.append(bump_count())",
]

LOOPS = [
    "for {=n} in range({i}):\n    {@}", "for {=n}, {=t} in enumerate({l}):\n    {@}", "for {=t} in {l}:\n    {@}",
    "{=k:k} = 0\nfor {=t} in {$l}:\n    {k} += 1\n    {@}\n    if {k} > 3: break\n    {$l}.append({t0})",
    "for {=n:i} in range(3):\n    {@}\n    if {i} == 1: break\nelse:\n    {@@}",
    "for {=n:i} in range(3):\n    if {i} == 1: continue\n    {@}",
    "{=k:k} = 0\nwhile {k} < 2:\n    {k} += 1\n    {@}",
    "{=k:k} = 0\nwhile True:\n    {k} += 1\n    {@}\n    if {k} > 1: break", "for {=t} in {g}:\n    {@}",
    "for {=n}, {=t} in zip(range(1, 9), x):\n    {@}", "for {=s}, {=t} in {$d}.items():\n    {@}",
    "for {=n}, {=t} in itertools.product([1, 2], [{t0}]):\n    {@}",
    "{=k:k} = 0\nfor {=n} in {$m}:\n    {k} += 1\n    {@}\n    if {k} < 4: {$m}.append({n0})",
    "for {=s} in {$d}:\n    {@}", "for {=n} in sorted(set({$m})):\n    {@}",
]

BRANCHES = [
    "if {c}:\n    {@}", "if {c}:\n    {@}\nelse:\n    {@}", "if {c}:\n    {@}\nelif {c}:\n    {@}\nelse:\n    {@}",
    "if ({+n:q} := {n}) > 1:\n    {@}",
    "match {n}:\n    case 1 | 2:\n        {@}\n    case int():\n        {@}\n    case _:\n        {@}",
    "match {$l}:\n    case [{=t}, *{=l}]:\n        {@}\n    case []:\n        {@}",
    "match {$d}:\n    case {{'a': {=t}, **{=d}}}:\n        {@}\n    case _:\n        {@}",
    "match {$o}:\n    case Box(t={=t}, k={=n}) if {c}:\n        {@}\n    case Pair({=t}, 2):\n        {@}\n"
    "    case object(k={=n}):\n        {@}",
    "match ({n}, {t0}):\n    case (2, {=t}):\n        {@}\n    case ({=n}, _):\n        {@}",
    "if {$t}.sum() > 0:\n    {@}\nelse:\n    {@}",
]

HANDLERS = [
    "try:\n    {@}\n    {raising}\nexcept Exception as e:\n    {@}\n    said.append(type(e).__name__)",
    "try:\n    {@}\n    {raising}\nexcept (KeyError, ValueError):\n    {@}\nelse:\n    {@}",
    "try:\n    {@}\nfinally:\n    {@}",
    "try:\n    {@}\n    {raising}\nexcept LookupError as e:\n    {@}\n    raise RuntimeError('again') from e\n"
    "finally:\n    {@}",
    "try:\n    {raising}\nexcept IndexError:\n    {@}\nexcept RuntimeError as e:\n    said.append(str(e)[:9])\n"
    "    {@}\nexcept TypeError:\n    {@}",
    "for {=n:i} in range(2):\n    try:\n        {@}\n        if {i}: continue\n    finally:\n        {@}",
    "try:\n    try:\n        {raising}\n    finally:\n        {@}\nexcept Exception as e:\n"
    "    said.append(type(e.__context__).__name__)",
]

MANAGERS = [
    "with torch.no_grad():\n    {@}", "with torch.enable_grad():\n    {@}",
    "with torch.set_grad_enabled({c}):\n    {@}", "with Manager(said, {n}) as {=n}:\n    {@}",
    "with entered(said, {n}) as {=n}:\n    {@}", "with contextlib.nullcontext({t0}) as {=t}:\n    {@}",
    "with contextlib.suppress(ValueError, IndexError), Manager(said, 2):\n    {@}\n    {raising}",
    "with Manager(said, 1) as {=n}, entered(said, {n}):\n    {@}\n    {raising}",
    "with torch.autograd.profiler.record_function('r'):\n    {@}",
    "with contextlib.ExitStack() as stack:\n    stack.callback(said.append, {n})\n    {@}",
]

FUNCTIONS = [
    "def {+f:h}({=t:a}):\n    {@f}\n    return {a} * {n}",
    "def {+f:h}({=t:a}, *rest, k={n}):\n    {@f}\n    return {a} * k + sum(rest)",
    "def {+c:h}():\n    nonlocal n\n    n += {i}\n    return n",
    "def {+f:h}({=t:a}):\n    {a} = {a} + 1\n    return (lambda b: {a} + b)(x)",
    "def {+f:h}({=t:a}, k=2):\n    if k == 0: return {a}\n    return {h}({a} + {t0}, k - 1)",
    "{+t:v} = {t}\ndef {+f:h}({=t:a}):\n    nonlocal {v}\n    {v} = {v} + {a}\n    return {v}",
    "{+t:v} = {t}\n{+f} = lambda a: a + {v}\n{v} = {t}",
    "{+l:hs} = [lambda a, i=i: a * i for i in range(2)]\n{+t} = {hs}[1]({t0}); {hs}.clear(); {hs}.append({t0})",
    "def {=f:p}({=t:a}, k):\n    for i in range(k):\n        {=t:v} = {a} * i + {n}\n        yield {v}\n"
    "{+l} = list({p}({t0}, 2))",
    "def {=f:p}({=t:a}):\n    got = yield {a}\n    {@f}\n    yield {a} if got is None else got * 2\n"
    "{+g:made} = {p}({t0})\n{+t} = next({made})\n{+t} = {made}.send({t0})",
    "def {=f:p}({=t:a}):\n    try:\n        yield {a}\n        {@f}\n        yield {a} + 1\n    finally:\n"
    "        said.append('closed')\n{+g:made} = {p}({t0})\n{+t} = next({made})\n{made}.close()",
    "def {=f:p}({=t:a}):\n    r = yield from [{a}, {t0}]\n    return 3\n{+l} = [v for v in {p}({t0})]",
    "{+l} = [v * {n} for v in {$l}]",
    "class {=k:K}(Box):\n    def scaled(self, by):\n        return super().scaled(by) + {t0}\n{+o} = {K}({t0}, 3)",
    "class {=k:K}:\n    k = {n}\n    def __init__(self, t): self.t = t\n"
    "    def __call__(self, a): return a + self.t + {t0}\n    twice = property(lambda self: self.t * {n})\n"
    "{+f} = {K}({t0})",
    "@functools.wraps(torch.sin)\ndef {+f:h}({=t:a}):\n    {@f}\n    return {a}",
    "def {=f:outer}():\n    {=t:v} = {t}\n    def inner(a):\n        nonlocal {v}\n        {v} = {v} * 2\n"
    "        return {v} + a\n    return inner\n{+f} = {outer}()",
]

RESULTS = "tnldmfgorhwxzvea"

def simple(breaks: bool) -> list[str]:
    """Statements without blocks; with those that break the graph where `breaks` is set."""
    calm = ASSIGN * 3 + AUGMENT + CONTAINERS + INPLACE + EFFECTS + ENDS + ["{raising}"]
    return calm + BREAKS * 2 if breaks else calm


COMPOUND = LOOPS + BRANCHES + HANDLERS + MANAGERS + FUNCTIONS * 2
