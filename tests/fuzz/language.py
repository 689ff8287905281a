"""Templates for Python's own constructs, by topic: generators, exceptions, ``match``, calls. ``topical`` says what a
topic is."""
from __future__ import annotations

from .topical import Topical, group

GENERATORS = group(
    "GENERATORS",
    simple='''
{+t} = next({$g})
{+t} = {$g}.send({t0})
{$g}.close()
{$g}.throw(ValueError({s}))
{$g}.throw(KeyError)
STATE['kept'] = {$g}
{+l} = [next({$g}, {t0}), next({$g}, {t0})]
said.append(next({$g}, None) is None)
{+t}, {+t} = {$g}
{+t}, *{+l} = {$g}
{+l} = list(zip({$g}, {$g}))
{+g} = iter({$g})
{+l} = list(STATE.pop('kept', ()))
{$l}.extend({$g})
{+g} = ((v, len({$l}))[0] for v in {$l} for _ in {$m})
{+g} = (lambda: v for v in {$l})
said.append({t0} in {$g})
''',
    compound='''
def {=f:p}({=t:a}):
    while True:
        try:
            got = yield {a}
            {@f}
            if got is None: break
            {a} = {a} + got
        except ValueError as e:
            said.append(('caught', str(e)))
            {a} = {a} * 2
        finally:
            said.append('turn')
    return {n}
{+g:made} = {p}({t0})
{+t} = next({made})
{+t} = {made}.throw(ValueError({s}))

def {=f:p}():
    r = yield from {g}
    said.append(r)
    return {n}
def {=f:q}():
    got = yield from {p}()
    said.append(got)
    {@f}
    yield {t0}
{+g} = {q}()

for {=t:v} in {$g}:
    {@}
    break

def {=f:p}({=t:a}):
    {@f}
    yield {a}
    {@f}
    return {n}
{=g:made} = {p}({t0})
try:
    while True:
        {=t} = next({made})
        {@}
except StopIteration as e:
    said.append(e.value)

def {=f:p}({=t:a}):
    yield {a}
    raise StopIteration(2)
{+l} = list({p}({t0}))

def {=f:p}({=t:a}):
    with Manager(said, {n}) as got:
        yield {a} * got
        {@f}
        yield {a}
{+g:made} = {p}({t0})
{+t} = next({made})

def {=f:p}({=t:a}):
    try:
        yield {a}
        yield {a} + 1
    except GeneratorExit:
        {@f}
        said.append('closed')
        raise
    else:
        yield {a} + 2
{+g:made} = {p}({t0})
{+t} = next({made})
{made}.close()

def {=f:p}({=t:a}, depth):
    if depth:
        yield {a}
        yield from {p}({a} + {t0}, depth - 1)
        {@f}
{+g} = {p}({t0}, {i})

def {=f:p}({=t:a}):
    nonlocal n
    for i in range(3):
        n += 1
        {@f}
        yield {a} * n
for {=t} in {p}({t0}):
    {@}
    if n > 4: break

class {=k:K}:
    def __init__(self, t): self.t, self.left = t, 3
    def __iter__(self): return self
    def __next__(self):
        self.left -= 1
        if self.left < 0: raise StopIteration
        {@f}
        return self.t * self.left
{+g} = {K}({t0})

def {=f:p}({=t:a}):
    sent = []
    try:
        while True:
            sent.append((yield {a} + len(sent)))
            {@f}
    finally:
        said.append(len(sent))
{+g:made} = {p}({t0})
next({made})
for {=t:v} in {l}:
    {=t} = {made}.send({v})
    {@}
{made}.close()

async def {=f:p}({=t:a}):
    {@f}
    return {a} + {n}
async def {=f:q}():
    {@f}
    return await {p}({t0}) * 2
try:
    {q}().send(None)
except StopIteration as e:
    {+t} = e.value

@contextlib.contextmanager
def {=f:p}({=t:a}):
    {@f}
    try:
        yield {a} + 1
    except ValueError:
        {@f}
        said.append('swallowed')
    finally:
        said.append('left')
with {p}({t0}) as {=t}:
    {@}
    {raising}

{=g:made} = iter({$l})
for {=t:v} in {made}:
    {=t} = next({made}, {t0})
    {@}
''')

EXCEPTIONS = group(
    "EXCEPTIONS",
    simple='''
raise Oops({s}, {n})
raise KeyError({s}) from None
raise ValueError({n}) from TypeError({s})
raise ExceptionGroup({s}, [ValueError({n}), TypeError({s})])
raise Oops
raise {$e}
raise {$e} from ValueError({s})
{+e} = Oops({s}, {n})
{+e} = RuntimeError({s}, {n})
said.append(repr({$e}))
said.append({$e}.args)
said.append(type({$e}.__context__).__name__)
said.append(type({$e}.__cause__).__name__)
{$e}.add_note({s})
said.append(getattr({$e}, '__notes__', None))
said.append(isinstance({$e}, LookupError))
said.append(sys.exc_info()[0])
assert {c}
assert {n} > 1, ({n}, {s})
said.append({$e}.__traceback__ is None)
{$e}.extra = {t0}
STATE['error'] = {$e}
''',
    compound='''
def {+f:p}({=t:a}):
    try:
        {@f}
        return {a}
    finally:
        {@f}
        return {a} + 1

def {+f:p}({=t:a}):
    for i in range(3):
        try:
            {@f}
            {raising}
        except Exception:
            if i: return {a} * i
        finally:
            {@f}
            if i == 1: break
            continue
    return {a}

{=n:i} = 0
while {i} < 3:
    {i} += 1
    try:
        {@}
        {raising}
    finally:
        if {i} == 2: break
        continue

try:
    {@}
    {raising}
except (ValueError, LookupError) as e:
    {@}
    {+e} = e
    said.append(str(e)[:20])
except ArithmeticError:
    {@}
    raise
else:
    {@}
finally:
    {@}

try:
    raise ExceptionGroup('g', [ValueError({n}), TypeError({s}), KeyError(1)])
except* ValueError as e:
    {@}
    said.append(len(e.exceptions))
except* (TypeError, KeyError) as e:
    {@}
    said.append([str(v) for v in e.exceptions])

try:
    try:
        {raising}
    except Exception as e:
        {@}
        {raising}
except Exception as e:
    said.append((type(e).__name__, type(e.__context__).__name__, e.__suppress_context__))
    {@}

try:
    try:
        {raising}
    except Exception as e:
        e.add_note({s})
        {@}
        raise Oops({s}, {n}) from e
except Oops as e:
    said.append((e.code, type(e.__cause__).__name__, e.__cause__.__notes__))
    {+e} = e
    {@}

def {=f:p}({=t:a}):
    try:
        {@f}
        {raising}
    except Oops as e:
        return {a} * e.code
    return {a}
try:
    {+t} = {p}({t0})
except Exception as e:
    said.append(type(e).__name__)
    {@}

def {=f:p}(depth):
    try:
        if depth == 0: raise Oops({s}, {n})
        {p}(depth - 1)
    except Oops as e:
        e.code += 1
        {@f}
        if depth < 2: raise
        return e.code
{+n} = {p}({i})

for {=n:i} in range(3):
    try:
        if {i} == 1: raise Oops({s}, {i})
        {@}
    except Oops:
        continue
    else:
        {@}
        if {i}: break
    finally:
        said.append({i})
else:
    {@}

with Manager(said, {n}) as {=n}:
    {@}
    1 // 0
{@}

with Swallow(Oops, ValueError) as {=q:w}:
    {@}
    {raising}
said.append(type({w}.caught).__name__)

with contextlib.ExitStack() as {=q:w}:
    {=t} = {w}.enter_context(entered(said, {t0}))
    {w}.push(lambda kind, e, tb: kind is not None)
    {@}
    {raising}

try:
    with Manager(said, 1), entered(said, 2), contextlib.suppress(KeyError):
        {@}
        {raising}
except Exception as e:
    said.append(type(e).__name__)
    {@}

try:
    {raising}
except Exception as e:
    kept = e
    {@}
try:
    said.append(str(e))
except NameError as late:
    said.append(type(late).__name__)

try:
    {@}
    {raising}
except {kinds} as e:
    {@}
    said.append(type(e).__mro__[1].__name__)
''',
    e="Oops({s}, {n})\nValueError({n})\nKeyError({s})\n{$e}",
    kinds="ValueError\n(KeyError, IndexError)\nException\nLookupError\n(TypeError, RuntimeError)\nOops\nERRORS",
    raising='''
raise Oops({s}, {n})
raise {e}
{$t}[9]
raise KeyError({s}) from ValueError(2)
math.sqrt(-1)
{$m}.pop(7)
next(iter(()))
[].pop()
{{}}[{n}]
(lambda: 0)({n})
int({s})
getattr({$o}, {s})
{+t}, {+t} = {$m}, {$l}, 1
"".join([1])
len({n})
{n}()
{$t}.reshape(7, 7)
torch.zeros(2)[{i}][{i}]
torch.cat([{$t}, torch.ones(7, 7)])
''')

MATCHES = group(
    "MATCHES",
    compound='''
match {$o}:
    case Deep(t=torch.Tensor() as {=t}, k=0 | 1 | 2):
        {@}
    case Box({=t}, int({=n})) if {c}:
        {@}
    case Pair(held=[]) | Slotted():
        {@}
    case _:
        {@}

match {$m}:
    case []:
        {@}
    case [{=n}]:
        {@}
    case [1, 2 | 3, *_]:
        {@}
    case [{=n}, *{=m}, {=n}]:
        {@}

match {{**{$w}, 'kind': {n}}}:
    case {{'kind': 1}}:
        {@}
    case {{'p': int({=n}), **{=w}}} if {c}:
        {@}
    case {{}}:
        {@}

match ({n}, {s}, {t0}):
    case (int() | float() as {=n}, str({=s}), {=t}) if {c}:
        {@}
    case (0, *{=q}):
        {@}
    case {=q}:
        {@}

match {$h}:
    case Point({=t}, 2):
        {@}
    case Point(b=0 | 1, a={=t}):
        {@}
    case ({=t}, {=n}):
        {@}

match Color({n} % 3):
    case Color.RED:
        {@}
    case Color.BLUE | Color.GREEN:
        {@}

match {$t}:
    case torch.Tensor(ndim=2, shape=({=n}, {=n})):
        {@}
    case torch.Tensor(ndim={=n}) if {c}:
        {@}

match {s}:
    case 'a' | 'b':
        {@}
    case str({=s}) if len({s}) > 1:
        {@}
    case _:
        {@}

match {n}:
    case -1 | 0:
        {@}
    case float():
        {@}
    case True:
        {@}
    case int({=n}) if {c}:
        {@}

match {$d}:
    case {{'a': {=t}, 'b': {=t}}}:
        {@}
    case {{'a': {=t}, **{=d}}} if not {c}:
        {@}

match {$r}:
    case Rich(k=2):
        {@}
    case object(t=torch.Tensor({=t:v})):
        {@}
    case [{=t}, *_]:
        {@}
''')

CALLS = group(
    "CALLS",
    simple='''
{+f} = functools.partial({$f}, **{{}})
{+t} = {$f}(*({t0},))
{+t} = {$f}(*[{t0}], **dict())
{+f} = functools.lru_cache(None)({$f})
{+f} = functools.wraps({$f})(lambda a: a + {n})
{+t} = functools.reduce({f2}, {$l}, {t0})
{+l} = list(map(lambda a, b: a * b, {$l}, {$m}))
{+t} = operator.itemgetter(0)({$l})
{+t} = operator.attrgetter('t')({$o})
{+t} = operator.methodcaller('mul', {n})({t0})
{+t} = {f2}({t0}, {t0})
said.append({$f}.__name__)
{+f} = {$f}.__get__
{+t} = bumped({t0})
{+t} = bumped({t0}, by={n})
{+n} = collecting({n})
{+n} = collecting({n}, [1])
{+t} = keyed({t0}, k={n})
{+t} = keyed({t0}, k={n}, z={t0})
{+t} = keyed({t0}, {n})
{+t} = many({t0}, {t0}, *{$l}, k={n})
{+t} = many(*{$l}, **{{'k': {n}}})
{+t} = counted({t0})
{+n} = counted.calls
{+f} = {o}.scaled
said.append(single({n})); said.append(single({s})); said.append(single({t0}))
''',
    compound='''
def {+f:h}({=t:a}, acc=[], /):
    acc.append({n})
    {@f}
    return {a} * len(acc)

def {+f:h}({=t:a}, b={t0}, *args, k={n}, **rest):
    {@f}
    return {a} + b * k + len(args) + len(rest)
{+t} = {h}({t0}, {t0}, 1, k={n}, z=2)

def {=f:deco}(fn):
    calls = 0
    @functools.wraps(fn)
    def inner(*args, **kwargs):
        nonlocal calls
        calls += 1
        {@f}
        return fn(*args, **kwargs) * calls
    return inner
@{deco}
def {+f:h}({=t:a}):
    {@f}
    return {a} + {n}
{+t} = {h}({t0})

def {=f:made}(k):
    total = {t0}
    def add(a):
        nonlocal total, k
        k += 1
        {@f}
        total = total + a * k
        return total
    def get(a): return total * a
    return add, get
{+f:h}, {+f} = {made}({n})
{+t} = {h}({t0})

def {=f:h}(k):
    return [lambda a: a * k + i for i in range(2)]
{+f}, {+f} = {h}({n})

@functools.lru_cache(maxsize=2)
def {+c:h}(k=2):
    said.append(('ran', k))
    return k + COUNT
{+n} = {h}({n})
{+n} = {h}({n})

@torch.no_grad()
def {+f:h}({=t:a}):
    {@f}
    return {a} * {n}
{+t} = {h}({t0})

def {+f:h}({=t:a}):
    global COUNT
    COUNT += 1
    {@f}
    return {a} * COUNT

def {=f:h}(k):
    if k <= 0: return {t0}
    {@f}
    return {h}(k - 1) + {h}(k - 2)
{+t} = {h}({i})

def {=f:h}(*, k, t={t0}):
    {@f}
    return t * k
{+t} = {h}(k={n})
{+f} = lambda a: {h}(t=a, k={n})

{=f:h} = lambda *a, k=[]: (k.append(len(a)), sum(a) + len(k))[1]
{+t} = {h}(*{$l})
{+f} = {h}

class {=k:K}:
    def __call__(self, a, k={n}):
        {@f}
        return a * k
    def __get__(self, o, c): return functools.partial(self, k=3)
class {=k:H}:
    h = {K}()
{+t} = {H}().h({t0})
{+f} = {H}.h

{+f} = (lambda *fs: lambda a: functools.reduce(lambda v, fn: fn(v), fs, a))({$f}, torch.neg)
''',
    f2="torch.add\noperator.mul\n(lambda a, b: a - b)\ntorch.maximum\noperator.sub")

LANGUAGE: dict[str, Topical] = {t.name: t for t in (GENERATORS, EXCEPTIONS, MATCHES, CALLS)}
