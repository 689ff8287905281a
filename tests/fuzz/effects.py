"""Templates for what lies outside of a function's values, by topic: random numbers, NumPy, autograd, globals."""
from __future__ import annotations

from .topical import Topical, group

RANDOM = group(
    "RANDOM",
    simple='''
{+t} = torch.rand(3, 4)
{+t} = torch.randn_like({t0})
{+t} = torch.randperm(4)
{+t} = {t0}[torch.randperm(3)]
{+t} = torch.bernoulli(torch.full((4,), 0.5))
{+t} = torch.randint(0, 5, (3, 4))
{+t} = torch.randint_like({t0}, 3)
{+t} = torch.normal(0.0, 1.0, (4,))
{+t} = torch.normal({t0}, 1.0)
{+t} = torch.multinomial(torch.ones(4), 2)
{+t} = torch.poisson(torch.ones(4))
{+t} = F.dropout({t0}, 0.5)
{+t} = F.dropout({t0}, {c} * 0.5, training={c})
{+t} = F.alpha_dropout({t0}, 0.5, True)
{+t} = F.rrelu({t0}, training=True)
{+t} = F.gumbel_softmax({t0})
{+t} = torch.nn.Dropout(0.5)({t0})
{$t}.normal_()
{$t}.uniform_(0, {n})
{$t}.bernoulli_(0.5)
{$t}.random_(4)
{$t}.exponential_()
{$t}.cauchy_()
{$t}.geometric_(0.5)
{$t}.log_normal_()
torch.manual_seed({i} + 3)
torch.seed; torch.manual_seed(int({n}) % 7)
said.append(torch.initial_seed())
{+t} = torch.rand(4, generator=torch.Generator().manual_seed({i} + 5))
{+k:k} = torch.Generator(); {k}.manual_seed(2); {+t} = torch.randn(4, generator={k}) + torch.rand(4, generator={k})
{+q} = torch.get_rng_state()
torch.set_rng_state({$q})
{+n} = random.random()
{+n} = random.randint(0, 3)
{+n} = random.choice({$m})
{+m} = random.sample({$m}, 1)
random.shuffle({$m})
random.shuffle({$l})
{+n} = random.uniform(0, {n})
{+n} = random.gauss(0, 1)
{+n} = random.randrange(1, 4)
{+l} = random.choices({$l}, k=2)
{+n} = random.Random({i}).random()
random.seed({i})
{+k} = random.getstate()
random.setstate({$k})
{+n} = numpy.random.rand()
{+n} = float(numpy.random.default_rng({i} + 1).random())
numpy.random.seed(abs({i}))
{+t} = torch.from_numpy(numpy.random.randn(4))
{+t} = torch.tensor(random.random()) * {t0}
{+t} = {t0} * random.random() + torch.rand(())
{+t} = torch.rand(4).sort()[0]
{+n} = torch.rand(()).item()
{+t} = torch.rand({i} + 1, 1)
''',
    compound='''
with torch.random.fork_rng(devices=[]):
    torch.manual_seed({i} + 1)
    {@}

if random.random() < 0.5:
    {@}
else:
    {@}

if torch.rand(()) < 0.5:
    {@}

for {=n} in random.sample(range(3), 2):
    {+t} = torch.rand(4)
    {@}
''',
    t="torch.rand_like({t0})\nF.dropout({t0}, 0.3)\ntorch.rand(4)\n{t0} + torch.randn(3, 4)",
    n="random.random()\nrandom.randint(1, 4)")

NUMPY = group(
    "NUMPY",
    simple='''
{+a} = {t0}.numpy()
{+a} = {t0}.detach().numpy()
{+a} = numpy.asarray({t0}.detach())
{+a} = numpy.array({m})
{+a} = numpy.ones((3, 4), dtype=numpy.float32)
{+a} = numpy.arange(4)
{+a} = {$a}.copy()
{+a} = {$a} * 2
{+a} = {$a} + {$a}
{+a} = {$a}[0]
{+a} = {$a}[..., 1:]
{+a} = {$a}.T
{+a} = {$a}.reshape(-1)
{+a} = {$a}.astype(numpy.int64)
{+a} = numpy.where({$a} > 0, {$a}, 0)
{+a} = numpy.concatenate([{$a}, {$a}])
{+a} = numpy.stack([{$a}, {$a}]).sum(0)
{+a} = {$a} > {n}
{$a}[0] = {n}
{$a} += 1
{$a}[{$a} > 0] = 2
{$a}.fill({n})
{$a}.sort()
numpy.add({$a}, 1, out={$a})
{+t} = torch.from_numpy({$a})
{+t} = torch.from_numpy({$a}.copy())
{+t} = torch.tensor({$a})
{+t} = torch.as_tensor({$a})
{+t} = torch.from_numpy({$a}) * {t0}
{+t:v} = torch.from_numpy({$a}); {v}.add_(1)
{$t}.copy_(torch.from_numpy({$a}))
{+t} = {t0} * {$a}.shape[0]
{+t} = {t0} * float({$a}.sum())
{+t} = {t0} + {$a}.mean()
{+n} = int({$a}.size)
{+n} = float({$a}.flat[0])
{+n} = {$a}.sum().item()
{+n} = {$a}.argmax()
{+m} = {$a}.ravel().astype(int).tolist()[:2]
said.append({$a}.dtype.name)
said.append({$a}.shape)
said.append({$a}.strides)
said.append(numpy.array_equal({$a}, {$a}))
said.append(numpy.float32({n}) * 2)
said.append(numpy.int64({i}) + 1)
said.append(str({$a}.dtype))
{+t} = {t0} * numpy.float32({n})
{+t} = {t0} * numpy.int64({i})
{+t} = numpy.float32({n}) * {t0}
{+t} = {t0} + {$a}
{+t} = torch.zeros(numpy.int64(3))
{+l} = [torch.from_numpy(v) for v in [{$a}]]
STATE['array'] = {$a}
''',
    compound='''
for {=a} in {$a}:
    {@}

if ({$a} > 0).any():
    {@}

if {$a}.sum() > {n}:
    {@}
''')

AUTOGRAD = group(
    "AUTOGRAD",
    simple='''
{+t} = {t0}.requires_grad_()
{+t} = {t0}.detach().requires_grad_()
{+t:v} = {t0}.detach().clone().requires_grad_(); ({v} * {t0}).sum().backward(); {+t} = {v}.grad
{+t:v} = {t0}.float().detach().clone().requires_grad_(); ({v} ** 2).sum().backward()
{+t}, = torch.autograd.grad(({$t} * 2).sum(), {$t}, allow_unused=True)
{+t:v} = {t0} * 2; {v}.retain_grad()
{+t:v} = {t0} * 2; {v}.register_hook(lambda g: g * 2)
{$t}.register_hook(lambda g: said.append('hook'))
({t0}.sum() * 2).backward(retain_graph=True)
{t0}.sum().backward()
{+t} = {$t}.grad
{$t}.grad = None
{$t}.grad = torch.ones_like({$t})
said.append({$t}.grad is None)
said.append({$t}.grad_fn is None)
said.append(({$t}.requires_grad, {$t}.is_leaf))
said.append(type({$t}.grad_fn).__name__)
torch.set_grad_enabled({c})
{+t} = Twice.apply({t0})
{+t} = Clamped.apply({t0}, {n})
{+t} = torch.utils.checkpoint.checkpoint(lambda a: torch.sin(a) * {t0}, {t0}, use_reentrant=False)
{+t} = {t0}.detach_()
{+t} = {t0}.data * 2
{$t}.data.mul_(0.5)
with torch.no_grad(): {$t}.mul_(0.5)
{+t} = torch.nn.Parameter({t0}.detach().float())
{+t} = torch.func.grad(lambda a: (a * a).sum())({t0})
{+t} = torch.vmap(lambda a: a * 2)({t0})
{+t} = torch.autograd.functional.jvp(lambda a: a * 2, {t0}, {t0})[1]
{$t}.requires_grad = {c}
{$t}.requires_grad_(False)
said.append(torch.is_inference({$t}))
''',
    compound='''
with torch.inference_mode():
    {@}

with torch.inference_mode({c}):
    {+t} = {t}
    {@}

with torch.no_grad(), torch.enable_grad():
    {@}

with torch.enable_grad():
    {=t:v} = {t0}.detach().clone().float().requires_grad_()
    {@}
    {+t:w} = (({v} * {v}).sum() * {n})
{w}.backward()
said.append({v}.grad is None)

@torch.enable_grad()
def {=f:h}({=t:a}):
    {@f}
    return {a} * {n}
{+t} = {h}({t0})

@torch.inference_mode()
def {=f:h}({=t:a}):
    {@f}
    return {a} * 2
{+t} = {h}({t0})

with torch.autocast('cpu', torch.bfloat16, enabled={c}):
    {+t} = {t0}.float() @ torch.ones(4, 4)
    {@}

with torch.autograd.graph.saved_tensors_hooks(lambda a: a, lambda a: a):
    {@}

with torch.set_grad_enabled(flag) as {=q}:
    {@}
    torch.set_grad_enabled(not flag)
    {@}

torch.set_grad_enabled(False)
try:
    {@}
finally:
    torch.set_grad_enabled(True)
''')

GLOBALS = group(
    "GLOBALS",
    simple='''
STATE['count'] += {i}
STATE['seen'] = {t}
STATE.update(last={n}, t={t0})
STATE.pop('last', None)
del STATE['seen']
STATE['n'] = STATE.get('n', 0) + 1
said.append(len(STATE))
said.append(sorted(k for k in STATE))
said.insert(0, {n})
said.extend([{n}, {s}])
said.append(said[-1:])
globals()['COUNT'] = {n}
globals().update(COUNT={n})
globals()['LATE'] = {t0}
{+t} = globals().get('LATE', {t0})
said.append('LATE' in globals())
{+n} = bump_count()
{+n} = COUNT
Box.made += 1
Box.shared.add_(1)
Box.shared = Box.shared + {n}
setattr(Box, 'late', {n}); {+n} = Box.late
{+n} = getattr(Box, 'late', 3)
Base.k = {n}
del Base.k
Base.late = property(lambda self: self.k)
Deep.scaled = Box.scaled
helper.calls += 1
helper.note = {n}
helper.__defaults__ = ({n},)
{+t} = helper({t0})
{+t} = HELD.pop() if HELD else {t0}
HELD.append({t0})
HELD[-1:] = [{t0}]
{+l} = HELD[:2]
GLOBAL_BOX.t = GLOBAL_BOX.t + {n}
GLOBAL_BOX.k += 1
{+t} = GLOBAL_BOX.t * GLOBAL_BOX.k
{+t} = GLOBAL_BOX.lazy
GLOBAL_BOX.held.append({n})
GLOBAL_BOX.__dict__.pop('lazy', None)
{+o} = GLOBAL_BOX
{+t} = NET({t0})
NET.weight.data.mul_(2)
NET.bias = torch.nn.Parameter(torch.ones(4))
NET.training = {c}
NET.eval()
NET.late = {n}
{+n} = getattr(NET, 'late', 2)
{+t} = NET.weight
NET.register_buffer('late', torch.ones(4))
{+t} = BN({t0})
said.append(int(BN.num_batches_tracked))
{+n} = next(COUNTER)
{+n} = CACHED({i})
CACHED.cache_clear()
VAR.set({n}); {+n} = VAR.get()
LOCAL.n = {n}; {+n} = LOCAL.n
{+t} = STATE.setdefault('t', {t0})
sizes.append(len(said))
''',
    compound='''
def {+f:h}({=t:a}):
    global COUNT, LATE
    COUNT = {n}
    LATE = {a} * COUNT
    {@f}
    return LATE

for {=s} in list(STATE):
    {@}
    STATE[{s}] = {n}

if COUNT > 3:
    {@}
else:
    COUNT_BEFORE = COUNT
    {@}

if 'seen' in STATE:
    {=t} = STATE['seen']
    {@}

old, Box.k = Box.k, {n}
try:
    {@}
finally:
    Box.k = old
''')

EFFECTS: dict[str, Topical] = {t.name: t for t in (RANDOM, NUMPY, AUTOGRAD, GLOBALS)}
