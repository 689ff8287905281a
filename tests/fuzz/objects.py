"""Templates for classes and their protocols, the standard library, and comprehensions, by topic."""
from __future__ import annotations

from .topical import Topical, group

CLASSES = group(
    "CLASSES",
    simple='''
{+t} = {$r}.t
{+n} = len({$r})
{+l} = list({$r})
{+t} = {$r}[{i}]
{$r}[{i}] = {t}
del {$r}[{i}]
said.append({n} in {$r})
said.append({$r} == {$r})
said.append({$r} < {$r})
said.append(hash({$r}) == hash({$r}))
if {$r}: said.append('true')
{!r} += {n}
{+r} = {$r} + {n}
{+r} = {n} + {$r}
{+t} = {t0} * {$r}
{+t} = {$r} @ {t0}
{+r} = -{$r}
{+n} = int({$r})
said.append(f'{{{$r}!s}}|{{{$r}:>{{3}}}}')
said.append(str({$r}))
{+t} = {$r}.missing
{+n} = {$r}.count
{$r}.k = {n}
del {$r}.k
{+l} = sorted([{$r}, {r}])
{+r} = max({$r}, {r})
{+w} = {{{$r}: 1, {r}: 2}}
said.append(len({{{$r}, {r}}}))
{+t}, *{+l} = {$r}
{+t} = {$r}({t0})
{+l} = [*reversed({$r})]
{+r} = copy.copy({$r})
{+r} = copy.deepcopy({$r})
{+h} = {$h}._replace(b={n})
{+t}, {+n} = {$h}
said.append({$h}._fields)
said.append({$h} == {$h}[:1])
{+d} = {$h}._asdict()
{+h} = Point(*{$h})
{+h} = Point(b={n}, a={t0})
said.append({color})
said.append({color}.name)
said.append([c.value for c in Color])
said.append({color} is Color.RED)
said.append(Flag.A | Flag({n} % 4))
{+n} = {color}.value
{+x} = Frozen({n}, {s})
said.append({$x} == Frozen({n}, 'a'))
said.append(hash({$x}) == hash(Frozen({n}, 'a')))
{$x}.a = 3
said.append(dataclasses.asdict({$x}))
said.append(repr({$x}))
said.append(sorted([{x}, {x}]))
{+x} = dataclasses.replace({$x}, a={n})
said.append([f.name for f in dataclasses.fields({$x})])
said.append(isinstance({$r}, Odd)); said.append(isinstance({n}, Odd))
said.append(issubclass(Deep, Box))
said.append(Registered.known)
{+r} = type({$r})({t0}, {n})
{$o}.__class__ = Deep
said.append(type({$o}).__mro__[1].__name__)
said.append(hasattr({$o}, 'k')); said.append(hasattr({$r}, 'missing'))
said.append(sorted(vars({$r})))
{+n} = getattr({$o}, 'none', {n})
Box.plus = lambda self, a: a - self.k
said.append(Meta.made)
{+n} = Tracked(n).v
''',
    compound='''
class {=k:K}(Rich):
    def __len__(self): return {n}
    def __getitem__(self, i): return super().__getitem__(i) + {t0}
{+r} = {K}({t0}, {n})

class {=k:K}(Base):
    def __init__(self, t):
        {@f}
        self._t = t
    @property
    def t(self):
        {@f}
        return self._t
    @t.setter
    def t(self, v):
        said.append('set')
        self._t = v
    @t.deleter
    def t(self): del self._t
{=k:made} = {K}({t0})
{made}.t = {made}.t + {n}
{+t} = {made}.t
{+t} = {made}.twice

class {=k:K}(Box):
    k = 7
    def __new__(cls, *args):
        said.append(cls.__name__)
        return super().__new__(cls)
    @classmethod
    def of(cls, t): return cls(t, {n})
    @staticmethod
    def by(a): return a * {n}
{+o:made} = {K}.of({t0})
{+t} = {made}.by({t0})

@dataclasses.dataclass
class {=k:K}(Pair):
    late: int = {n}
    def __post_init__(self): self.k += self.late
{+o:made} = {K}({t0}, late={n})
said.append({made} == {K}({made}.t, {n}))

class {=k:K}(list):
    def append(self, v):
        said.append('append')
        {@f}
        super().append(v)
{+l:made} = {K}([{t0}])
{made}.append({t})
{+t} = sum({made})

class {=k:K}(dict):
    def __missing__(self, k):
        {@f}
        self[k] = v = {t0} * len(self)
        return v
{+d:made} = {K}(a={t0})
{+t} = {made}['z']

@functools.total_ordering
class {=k:K}:
    def __init__(self, k): self.k = k
    def __eq__(self, o): return self.k == o.k
    def __lt__(self, o): return self.k < o.k
said.append([v.k for v in sorted([{K}({n}), {K}({n}), {K}(2)])])
said.append({K}({n}) >= {K}(2))

class {=k:K}(Registered, tag={s}):
    pass
said.append({K}.tag)

class {=k:K}:
    t = {t0}
    ks = [k for k in range(3)]
    def __getattr__(self, name):
        if name == 'soft': return self.t * 2
        raise AttributeError(name)
    def __setattr__(self, name, v):
        said.append(name)
        object.__setattr__(self, name, v)
{=k:made} = {K}()
{made}.t = {made}.soft
{+t} = {made}.t

class {=k:K}(Rich):
    def __eq__(self, o): return True
    __hash__ = None
    def __bool__(self): return {c}
{=k:made} = {K}({t0}, 1)
if {made}:
    {@}
said.append({made} in [{t0}.dim(), {n}])
''',
    r="Rich({t0}, {n})\n{$r}",
    x="Frozen({n}, {s})\n{$x}",
    h="Point({t0}, {n})\n{$h}",
    color="Color({i})\nColor.RED\nColor['BLUE']\nColor({n})")

LIBRARY = group(
    "LIBRARY",
    simple='''
{+l} = list(itertools.islice({$l}, 1, None))
{+l} = list(itertools.starmap(torch.add, zip({$l}, {$l})))
said.append([(k, len(list(v))) for k, v in itertools.groupby({$m}, lambda i: i % 2)])
{+g}, {+g} = itertools.tee({$l})
said.append(list(itertools.zip_longest({$m}, 'ab', fillvalue={n})))
{+m} = list(itertools.takewhile(lambda v: v < 3, {$m}))
{+m} = list(itertools.dropwhile(lambda v: v < 2, {$m}))
{+l} = list(itertools.compress({$l}, {$m}))
said.append(list(itertools.pairwise({$m})))
{+l} = list(itertools.accumulate({$l}, lambda a, b: a + b))
said.append(list(itertools.permutations({$m}, 2))[:3])
{+l} = list(itertools.chain.from_iterable([{$l}, {$l}]))
{+g} = itertools.cycle({$l})
{+g} = itertools.repeat({t0}, 2)
{+g:k} = itertools.count({n}); said.append((next({k}), next({k})))
{+m} = list(itertools.filterfalse(lambda v: v % 2, {$m}))
{+m} = sorted({$m}, key=lambda v: -v, reverse={c})
{+m} = sorted({$m}, key=functools.cmp_to_key(lambda a, b: b - a))
{+m} = [*{{*{$m}}}]
{+n} = max({$m}, key=lambda v: (v % 2, v), default=0)
{+n} = min({$m}) if {$m} else {n}
{+z} = set({$m})
{+z} = {$z} | {{{n}}}
{+z} = {$z} ^ {z}
{+z} = {$z} - {z}
{$z}.add({n})
{$z}.discard({n})
{$z}.remove({n})
{$z}.update({$m})
{!z} &= {z}
said.append(sorted({$z}))
said.append({z} <= {z})
said.append(frozenset({$m}) == {$z})
{+w} = dict.fromkeys({s}, {n})
{+w} = {{**{$w}, {s}: {n}}}
{$w}[{s}] = {n}
{$w}[{s}] += {n}
{$w}.setdefault({s}, {n})
said.append(list({$w}.items()))
said.append({$w}.pop({s}, None))
{+w} = {{k: v + 1 for k, v in {$w}.items() if v}}
{+w} = collections.Counter({s})
{+w} = collections.OrderedDict(sorted({$w}.items())); {$w}.popitem()
said.append({$w} == {w})
said.append(sorted({$w}, key={$w}.get))
{+v} = collections.deque({$m}, maxlen=2)
{$v}.append({n})
{$v}.appendleft({n})
{$v}.rotate({i})
{+n} = {$v}.popleft()
{+n} = {$v}[{i}]
said.append(list({$v}))
said.append(list(collections.ChainMap({$w}, {{'q': 3}}).items()))
said.append(heapq.nsmallest(2, {$m})); heapq.heapify({$m}); heapq.heappush({$m}, {n})
said.append(bisect.bisect(sorted({$m}), {n}))
said.append({s}.split('a')); said.append({s}.partition('1'))
said.append(f'{{{n}!r:>4}}{{{s}:<3}}{{{n} / 3:.2f}}')
said.append('%d-%s' % (int({n}), {s}))
said.append({s}.replace('a', {s}).title())
said.append({s}.startswith(('a', '1'))); said.append({s}.zfill(4))
said.append('{{0}}:{{k}}'.format({n}, k={s}))
said.append({s} * 2 > {s}); said.append({s}.encode().hex())
said.append({s}[::-1]); said.append({s}.find('a')); said.append({s}.join('xy'))
said.append(re.sub('[0-9]', '_', {s}))
said.append(re.findall('[a-z]', {s}))
said.append(json.dumps({{'n': {n}, 's': {s}}}))
{+n} = int({s}, 16)
said.append(divmod({n}, 3)); said.append(pow({i}, 2, 5) if {i} >= 0 else 0)
said.append(bin({i})); said.append(hex(255)); said.append(round({n} * 1.55, 1)); said.append(math.isclose({n}, 2))
said.append(1 << 70 >> {i}) if {i} >= 0 else None
said.append(({n}, {s}) < (2, 'a'))
said.append(bytes([1, 2])[{i}]); said.append(bytearray(b'ab').decode())
said.append(slice(1, {n}).indices(5))
said.append(range(10)[{i}:8:2]); said.append({i} in range(1, 3))
said.append(complex({n}, 1).conjugate())
said.append(str(types.SimpleNamespace(a={n})))
said.append(operator.index({i}) + operator.countOf({$m}, 2))
said.append(copy.copy({$m}) is {$m}); said.append({m} < {m})
{+l:k} = copy.deepcopy([{$l}, {$l}]); said.append({k}[0] is {k}[1])
said.append(isinstance({n}, (int, str))); said.append(type({n}) is int)
said.append(id({$t}) == id({$t}))
said.append(any(v for v in {$m})); said.append(all([])); said.append([*map(bool, {$m})])
said.append(list(enumerate({s}, {i}))); said.append(list(zip({$m}, {s}, strict=False)))
said.append(list(zip({$m}, {$l}, strict=True))[0][0])
print({n}, {s}, sep='|')
print(f'{{{n}}}', end='')
''',
    compound='''
for {=s} in list({$w}):
    {@}
    {$w}.pop({s}, None)

for {=s}, {=n} in {$w}.items():
    {@}
    {$w}[{s}] = {n} + 1

for {=s:k} in {$w}:
    {@}
    {$w}[{k} + 'q'] = {n}
    if len({$w}) > 4: break

for {=n} in sorted({$z}):
    {@}
    {$z}.discard({n})

for {=n:i}, ({=t}, {=n}) in enumerate(zip({$l}, {$m})):
    {@}
    if {i} > 1: break

while {$v}:
    {=n} = {$v}.popleft()
    {@}

for {=n:k} in {$m}:
    {@}
    if {k} in {$m}[1:]: {$m}.remove({k})

while len({$m}) > 1:
    {=n} = {$m}.pop()
    {@}

for {=n:i} in range(len({$l}) - 1, -1, -1):
    {@}
    if {c}: del {$l}[{i}]

with contextlib.redirect_stdout(io.StringIO()) as {=q:out}:
    print({n}, {s})
    {@}
said.append({out}.getvalue())
''',
    z="set({$m})\n{{1, {n}}}\n{$z}",
    w="{$w}\n{{'p': {n}, 'q': 2}}\ndict(zip({s}, {$m}))",
    n="{$w}['p']\n{$w}.get({s}, 3)\nsum({$w}.values())\nlen({$z})\nsum({$z})\n{$v}[0]\nlen({$v})",
    s="'ab1'\nmin({$w}, default='e')\n{s0} + {s0}\nrepr({n})\n'x' * {i}\nstr({$w})\nf'{{{n}:03}}'")

COMPREHENSIONS = group(
    "COMPREHENSIONS",
    simple='''
{+l} = [({+t:q} := v + {n}) for v in {$l}]
{+l} = [w for v in {$l} if (w := v * {n}).dim() < 3]
{+l} = [a * b for a in {$l} for b in {$m} if b]
{+l} = [[a + b for a in {$l}] for b in {$m}][0]
{+l} = [(lambda b: b * a)({t0}) for a in {$l}]
{+l} = [f({t0}) for f in [lambda a, k=k: a * k for k in {$m}]]
{+l} = [f({t0}) for f in [lambda a: a * k for k in {$m}]]
{+d} = {{str(i): v for i, v in enumerate({$l})}}
{+d} = {{k: [a for a in (v, {t0})][-1] for k, v in {$d}.items()}}
{+m} = [i for i in range({i}) if i != 1 for _ in range(i)]
{+m} = [len([j for j in {$m} if j < i]) for i in {$m}]
{+m} = list({{i % 2 for i in {$m}}})
{+l} = [*(v for v in {$l}), *{$l}]
{+l} = [v if v.dim() else v + 1 for v in {$l}]
{+l} = [{$l}.pop() for _ in range(2)]
{+l} = [{$l}.append(v) or v for v in list({$l})]
{+t} = sum((v for v in {$l}), start={t0})
{+l} = [v for v in {$g}]
{+g} = (a * n for a in {$l} if (n := n + 1))
{+g} = ((yielded := v) for v in {$l})
{+n} = sum(1 for v in {$l} if torch.is_tensor(v))
said.append([a for a, *b in [(1, 2, 3), (4,)] if b])
said.append({{a: b for a, b in zip({$m}, {s})}})
said.append([[i, j] for i in {$m} if i for j in range(i) if j][:5])
{+t} = torch.stack([v.sum() for v in {$l}])
{+t} = torch.tensor([float(i) for i in {$m}])
{+t} = max((v.sum() for v in {$l}), key=lambda v: v.dim())
{+l} = list(map(lambda v: [v * i for i in {$m}][-1], {$l}))
STATE['made'] = [v for v in {$l}]
''',
    compound='''
if any(({=n:q} := v) > 1 for v in {$m}):
    {@}

while ({=n:q} := len({$l})) and {q} > 1:
    {=t} = {$l}.pop()
    {@}

class {=k:K}:
    k = {n}
    ks = [i * 2 for i in {$m}]
    ts = [v for v in {$l}]
{+l} = {K}.ts
{+m} = {K}.ks

def {=f:h}({=t:a}):
    return [{a} * i for i in range(3)], (lambda: [{a} + v for v in {$l}])
{+l}, {=c:k} = {h}({t0})
{+l} = {k}()
''')

OBJECTS: dict[str, Topical] = {t.name: t for t in (CLASSES, LIBRARY, COMPREHENSIONS)}
