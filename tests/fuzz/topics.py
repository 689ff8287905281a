"""What programs read of their surroundings and how that may change between two calls, topic by topic.

A topic is a setup, run once with the program's globals; reads, expressions or statements over the tensor ``x`` that
add to the list ``r``; and changes. Changes that raise are left out by the harness. Invariant: a topic changes nothing
that outlives the program's own module. """
from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class Topic:
    setup: str
    reads: tuple[str, ...]
    changes: tuple[str, ...]


TOPICS = {
    "numbers": Topic(
        "G = 2\nFL = 0.5\nFLAG = True\nNAME = 'a'\nNOTHING = None\nBIG = 10 ** 20\nPAIR = (1, 2)\n",
        (
            "x * G", "x + FL", "x + 1 if FLAG else x", "x * len(NAME)", "x if NOTHING is None else x + NOTHING",
            "x * float(BIG)", "x + sum(PAIR)", "x * PAIR[0]", "x + (G == 2)", "x + {'a': 1, 'b': 2}.get(NAME, 3)",
            "x * (1 / FL)", "x + (G is FLAG)", "x * isinstance(G, bool)", "x + math.copysign(1, FL)",
        ),
        (
            "global G; G = 3", "global G; G = True", "global G; G = 2.0", "global G; G += 1", "global FL; FL = -0.0",
            "global FL; FL = 0.0", "global FL; FL = math.nan", "global FL; FL = 1", "global FLAG; FLAG = not FLAG",
            "global FLAG; FLAG = 1", "global NAME; NAME = 'b'", "global NAME; NAME += 'a'",
            "global NOTHING; NOTHING = 2", "global BIG; BIG = 10 ** 21", "global PAIR; PAIR = (2, 2)",
            "global PAIR; PAIR = (1, 2, 3)", "global PAIR; PAIR = [1, 2]", "global G; del G", "globals()['G'] = 7",
            "global PAIR; PAIR = torch.Size((1, 2))",
        ),
    ),
    "tensors": Topic(
        "T = torch.arange(4.)\nALIAS = T\nPART = T[:2]\nP = torch.nn.Parameter(torch.ones(4))\n",
        (
            "x + T", "x * (ALIAS is T)", "x[..., :2] + PART", "x * T.shape[0]", "x + T.sum()", "x * P",
            "x + T.stride(0)", "x * (T.dtype == torch.float32)", "x + T.requires_grad", "x + (T + ALIAS)",
            "T.add_(1) + x", "x * T.is_contiguous()", "x + getattr(T, 'tag', 0)", "x + (P.grad is None)",
            "x * T.ndim", "x + T.is_leaf", "x + T.storage_offset()", "x * (PART._base is T)",
        ),
        (
            "T.add_(1)", "global T; T = torch.arange(4.)", "global T; T = T.double()", "T.resize_(2)",
            "T.requires_grad_()", "T.data = torch.ones(4)", "T.data = torch.ones(2, 4)", "T.tag = 3", "T.t_()",
            "global ALIAS; ALIAS = T.clone()", "global ALIAS; ALIAS = T[:]", "global PART; PART = T[2:]",
            "global PART; PART = torch.ones(2)", "P.data.mul_(2)", "P.grad = torch.ones(4)",
            "P.requires_grad_(False)", "global P; P = torch.nn.Parameter(torch.zeros(4))",
            "global T; T = T.expand(3, 4)", "global T; T = torch.ones(8)[::2]", "T.unsqueeze_(0)",
            "global T; T = T.view_as(T)", "T.data = T.data.int()", "global T; T = None", "global T; T = 2.5",
            "T.set_(torch.zeros(4))", "torch.set_default_dtype(torch.float32)", "global P; P = P.detach()",
            "T.as_strided_((4,), (0,))",
        ),
    ),
    "lists": Topic(
        "L = [1, 2]\nLT = [torch.ones(4), torch.zeros(4)]\nNEST = [[1], [2, [3]]]\nOTHER = L\n",
        (
            "x * L[0]", "x + sum(L)", "sum(LT, x)", "x * len(L)", "x + NEST[1][1][0]", "[x * v for v in L]",
            "x + (L is OTHER)", "x + LT[-1]", "x * (1 in L)", "x + (L == [1, 2])", "L.append(1) or x", "x + len(LT)",
            "x * max(L)", "x + sum(len(v) for v in NEST)", "LT.append(x) or LT[-2] + x", "x + L.index(2)",
            "x + bool(L)", "x * (LT[0] is LT[1])",
        ),
        (
            "L.append(3)", "L[0] = 5", "L.clear()", "L.reverse()", "global L; L = [1, 2]", "global L; L = (1, 2)",
            "LT[0].mul_(2)", "LT[0] = torch.ones(3, 1)", "LT.append(torch.ones(4))", "LT.reverse()", "LT[1] = LT[0]",
            "L[0] = True", "L[0] = 1.0", "NEST[1][1][0] = 4", "NEST[0] = NEST[1]", "NEST.append([])",
            "global OTHER; OTHER = list(L)", "del L[0]", "LT.pop()", "LT[0] = 3", "L.insert(0, None)",
            "NEST[1][1].append(1)", "L[:] = [2, 1]",
        ),
    ),
    "sets": Topic(
        "S = set(range(40)) - set(range(9, 40))\nW = {'relu', 'tanh', 'gelu'}\nF = frozenset(S) | {64}\n"
        "U = {8, 16, 3}\nU.discard(16)\nSAME = U\nQ = {'q': set('abcdef')}\n",
        (
            "x * list(S)[0]", "[x * n for n in S]", "x + len(list(S | {64, 16})[1:2])", "[n for n in S | {64, 16}]",
            "[w for w in W]", "[*F]", "[*(F - {3})]", "x * (8 in U)", "U.add(40) or [*U]", "U.discard(3) or list(U)",
            "x + (U is SAME)", "repr(S & F)", "[*S.copy()]", "U.update({24: 1, 32: 2}) or x", "x + len(sorted(W))",
            "x * U.pop() if len(U) > 1 else x", "[*{n * 8 for n in S}]", "Q['q'].add('z') or x",
            "[*Q['q'] ^ {'a', 'y'}]",
            "max(W, key=lambda w: 0)", "x * next(iter(F))", "S.difference_update(range(3)) or [*S]", "f'{F}'",
            "[a for a, _ in zip(W, range(2))]", "list(dict.fromkeys(S))", "S.copy() or x", "F | W and [*F.union(S)]",
        ),
        (
            "S.add(100)", "S.discard(4)", "S.add(S.pop())", "S.update(range(60)); S.difference_update(range(9, 60))",
            "global S; S = set(S)", "global S; S = set(sorted(S, reverse=True))", "global F; F = frozenset(list(F))",
            "global F; F = F | {7}", "U.add(16)", "U.clear(); U.update((3, 8))", "U.discard(8); U.add(8)",
            "global U; U = {8, 3}", "global SAME; SAME = set(U)", "W.add('silu')", "W.remove('tanh'); W.add('tanh')",
            "global W; W = {'a'}", "Q['q'].pop()", "Q['q'] = set('fedcba')", "Q['q'] -= {'a'}", "global F; F = set(F)",
            "global S; S = {True, 8, 0}", "global S; S = {1, 8, 0}", "U.update({96})",
        ),
    ),
    "dicts": Topic(
        "D = {'a': 1, 'b': {'c': 2}}\nDT = {'w': torch.ones(4)}\nOD = collections.OrderedDict(p=1, q=2)\n"
        "DD = collections.defaultdict(lambda: 4, k=1)\nMP = types.MappingProxyType(D)\n"
        "KEYED = {1: 'one', (1, 2): 2, None: 3}\n",
        (
            "x * D['a']", "x + D['b']['c']", "x + D.get('z', 9)", "x * len(D)", "x + DT['w']", "sum(DT.values()) + x",
            "[x * i for i, _ in enumerate(OD)]", "x + list(OD)[0].__len__()", "x * list(OD.values())[0]",
            "x + DD['k']", "x + DD['new']", "x + ('z' in D)", "x * MP['a']", "x + len(MP)", "x + len(KEYED[1])",
            "x + KEYED[(1, 2)]", "x + KEYED.get(None)", "x + sum(v for v in OD.values())", "[k for k in D]",
            "x + len(D.keys() & {'a', 'z'})", "D.setdefault('s', 1) * x", "D.update(u=1) or x",
        ),
        (
            "D['a'] = 3", "D['z'] = 4", "del D['a']", "D['b']['c'] = 5", "D['b'] = {'c': 2}", "D['a'] = 1.0",
            "D['a'] = True", "DT['w'].add_(1)", "DT['w'] = torch.zeros(4)", "DT['v'] = torch.ones(1)",
            "OD.move_to_end('p')", "OD['q'] = 7", "DD['k'] = 2", "DD.default_factory = None",
            "DD.default_factory = lambda: 6", "DD.pop('new', None)", "D.clear()", "global D; D = dict(D)",
            "global D; D = {**D, 'a': 8}", "KEYED[True] = 'two!'", "KEYED[(1, 2)] = 5", "KEYED[None] = 1",
            "D['a'], D['z'] = 2, 2", "global OD; OD = {'p': 1, 'q': 2}", "D.pop('s', None)",
            "a = D.pop('a', 1); D['a'] = a",
        ),
    ),
    "objects": Topic(
        "class Base:\n    j = 1\n    def scale(self, x): return x * self.k\nclass Thing(Base):\n    k = 2\n"
        "    def __init__(self): self.own = 3; self.t = torch.ones(4)\n    @property\n"
        "    def p(self): return self.own + 1\n    @staticmethod\n    def st(x): return x + 1\n    @classmethod\n"
        "    def cl(cls, x): return x * cls.k\nclass Other(Base):\n    k = 5\n    own = 7\n    p = 8\n"
        "    t = torch.zeros(4)\n    st = cl = staticmethod(lambda x: x - 1)\nthing = Thing()\nsecond = thing\n",
        (
            "x * thing.k", "x + thing.own", "thing.scale(x)", "x + thing.p", "thing.st(x)", "thing.cl(x)",
            "Thing.cl(x)", "x + thing.j", "x + thing.t", "x * hasattr(thing, 'late')",
            "x + getattr(thing, 'late', 1)", "x * isinstance(thing, Thing)", "x + (thing is second)",
            "x + len(vars(thing))", "x * (type(thing).__name__ == 'Thing')", "x + Thing.k",
            "x + ('own' in thing.__dict__)", "x + len(Thing.__mro__)", "thing.__dict__['own'] * x",
            "setattr(thing, 'own', thing.own + 1) or x", "x + bool(thing)", "x + callable(thing)",
            "x * (thing == second)", "x + issubclass(Thing, Base)", "x + len([n for n in vars(thing)])",
        ),
        (
            "thing.k = 4", "Thing.k = 6", "del thing.k", "del Thing.k", "thing.own += 1", "thing.own = 3.0",
            "vars(thing)['own'] = 9", "thing.scale = lambda x: x - 2", "Thing.scale = lambda self, x: x - 3",
            "Base.scale = lambda self, x: x / 2", "Thing.p = property(lambda self: 10)", "Thing.p = 11",
            "vars(thing)['p'] = 12", "Thing.st = staticmethod(lambda x: x * 9)", "thing.late = 2", "del thing.late",
            "Base.late = 5", "thing.__class__ = Other", "thing.__class__ = Thing", "Base.j = 2", "thing.j = 3",
            "Thing.j = 4", "thing.t.add_(1)", "thing.t = torch.ones(1)", "thing.t = 2",
            "global second; second = Thing()", "global thing; thing = Thing()",
            "thing.__dict__ = {'own': 1, 't': torch.zeros(4)}", "thing.__dict__.clear()",
            "Thing.__bool__ = lambda self: False", "Thing.__len__ = lambda self: 0",
            "Thing.__call__ = lambda self: 1", "Thing.__eq__ = lambda self, o: False",
            "Thing.__getattr__ = lambda self, n: 42",
            "Thing.__getattribute__ = lambda self, n: object.__getattribute__(self, n) if n != 'k' else 77",
            "Thing.__bases__ = (Other,)", "Base.__init_subclass__ = classmethod(lambda cls: None)",
            "Thing.__name__ = 'Renamed'", "Thing.own = property(lambda self: 33)",
            "Thing.cl = classmethod(lambda cls, x: x + 2)", "thing.__class__ = type('Late', (Thing,), {'k': 9})",
        ),
    ),
    "protocols": Topic(
        "class Bag:\n    def __init__(self): self.items = [1, 2]\n    def __len__(self): return len(self.items)\n"
        "    def __getitem__(self, i): return self.items[i]\n"
        "    def __contains__(self, v): return v in self.items\n    def __iter__(self): return iter(self.items)\n"
        "    def __call__(self, x): return x + len(self)\n    def __enter__(self): return 2\n"
        "    def __exit__(self, *a): return False\n    def __add__(self, o): return o + self.items[0]\n"
        "    def __hash__(self): return 1\nbag = Bag()\nclass Desc:\n    v = 1\n"
        "    def __get__(self, o, c): return self.v\n    def __set__(self, o, v): self.v = v\nclass Has:\n"
        "    d = Desc()\nhas = Has()\n",
        (
            "x * len(bag)", "x + bag[0]", "x + (1 in bag)", "x + sum(bag)", "bag(x)", "bag + x",
            "[x * v for v in bag]", "x + has.d", "setattr(has, 'd', 3) or x + has.d", "x + bool(bag)",
            "x + hash(bag)", "x + max(bag)", "x + Has.__dict__['d'].v", "x + len(list(bag))", "x + bag.items[-1]",
        ),
        (
            "bag.items.append(3)", "bag.items = [4]", "Bag.__len__ = lambda self: 7",
            "Bag.__getitem__ = lambda self, i: 8", "Bag.__contains__ = lambda self, v: False",
            "Bag.__iter__ = lambda self: iter((5,))", "Bag.__call__ = lambda self, x: x",
            "Bag.__bool__ = lambda self: False", "Bag.__hash__ = lambda self: 5", "Bag.__add__ = lambda s, o: o",
            "del Bag.__contains__", "del Bag.__len__", "has.d = 5", "Desc.v = 6", "Desc.__get__ = lambda s, o, c: 4",
            "del Desc.__set__", "vars(has)['d'] = 9", "Has.d = 2", "Has.d = Desc()", "del Has.d",
            "Desc.__delete__ = lambda s, o: None", "Bag.__iadd__ = lambda s, o: s",
        ),
    ),
    "functions": Topic(
        "def helper(x, k=2, *, m=1): return x * k + m\ndef spare(x, k=2, *, m=1): return x - k\ndef make(v):\n"
        "    def inner(x): return x + v\n    def put(n):\n        nonlocal v\n        v = n\n"
        "    return inner, put\ninner, put = make(3)\npart = functools.partial(helper, k=4)\n"
        "lam = lambda x: helper(x)\nhelper.note = 1\n@functools.lru_cache(None)\ndef cached(n): return n * G2\n"
        "G2 = 2\n@functools.singledispatch\ndef single(v, x): return x\n@single.register\n"
        "def _(v: int, x): return x + v\nFUNCS = {'f': helper}\n",
        (
            "helper(x)", "inner(x)", "part(x)", "lam(x)", "x + helper.note", "helper(x, 3)", "helper(x, m=2)",
            "x * helper.__defaults__[0]", "x + cached(2)", "single(2, x)", "FUNCS['f'](x)",
            "x + len(helper.__name__)", "part.func(x)", "x + inner.__closure__[0].cell_contents",
            "x + (helper is FUNCS['f'])", "helper.__wrapped__(x) if hasattr(helper, '__wrapped__') else x",
            "x + helper.__code__.co_argcount", "x + len(part.keywords)", "x + part.keywords['k']",
            "functools.partial(part, x)()", "x + len(helper.__annotations__)",
        ),
        (
            "helper.__defaults__ = (5,)", "helper.__kwdefaults__ = {'m': 7}", "helper.__kwdefaults__['m'] = 9",
            "helper.__code__ = spare.__code__", "helper.note = 4", "del helper.note", "put(8)", "put(torch.ones(4))",
            "inner.__closure__[0].cell_contents = 6", "global part; part = functools.partial(spare, k=1)",
            "part.keywords['k'] = 3", "global helper; helper = spare", "global lam; lam = lambda x: x",
            "cached.cache_clear()", "global G2; G2 = 5", "single.register(int, lambda v, x: x - v)",
            "FUNCS['f'] = spare", "FUNCS.pop('f')", "helper.__name__ = 'other_name'", "helper.__wrapped__ = spare",
            "helper.__annotations__['k'] = int", "global inner; inner = make(3)[0]",
            "helper.__defaults__ = (torch.ones(4),)", "helper.__defaults__ = None",
        ),
    ),
    "modules": Topic(
        "class Scale(torch.nn.Linear):\n    factor = 1\n"
        "    def forward(self, x): return super().forward(x) * self.factor\nclass Net(torch.nn.Module):\n"
        "    def __init__(self):\n        super().__init__()\n        self.lin = Scale(4, 4)\n"
        "        self.seq = torch.nn.Sequential(torch.nn.ReLU(), Scale(4, 4))\n"
        "        self.dict = torch.nn.ModuleDict({'a': torch.nn.Tanh()})\n"
        "        self.plist = torch.nn.ParameterList([torch.ones(4)])\n"
        "        self.register_buffer('buf', torch.ones(4))\n        self.drop = torch.nn.Dropout(0.5)\n"
        "        self.bn = torch.nn.BatchNorm1d(4)\n        self.k = 2\n        self.fn = torch.relu\n"
        "    def forward(self, x): return self.seq(self.lin(x)) * self.k\nnet = Net()\nshared = net.lin\n",
        (
            "net(x.float())", "net.lin(x.float())", "net.seq(x.float())", "x + net.buf", "net.drop(x.float())",
            "net.dict['a'](x)", "x + net.plist[0]", "x * net.training", "sum(p.sum() for p in net.parameters()) + x",
            "x + len(list(net.children()))", "net.bn(x.float().reshape(-1, 4))", "net.fn(x)", "x + len(net.seq)",
            "x * (shared is net.lin)", "x + len(net.state_dict())", "x + sum(1 for _ in net.named_modules())",
            "x + len(net._forward_hooks)", "x + net.lin.weight.requires_grad",
            "torch.nn.utils.parametrize.is_parametrized(net.lin) + x", "x + len(net._modules)",
            "net.lin.weight @ x.float()[..., :4].reshape(-1, 4).T", "x + (net.lin.bias is None)",
            "[m for m in net.seq][0](x)", "x + len(dict(net.named_buffers()))",
        ),
        (
            "net.k = 3", "net.lin.factor = 2", "Scale.factor = 3", "net.eval()", "net.train()",
            "net.lin.weight.data.mul_(2)", "net.lin.weight = torch.nn.Parameter(torch.ones(4, 4))",
            "net.lin = Scale(4, 4)", "net.seq.append(torch.nn.Tanh())", "net.seq[0] = torch.nn.Sigmoid()",
            "del net.seq[0]", "net.buf.add_(1)", "net.buf = torch.zeros(4)",
            "net.register_buffer('late', torch.ones(1))", "net.register_forward_hook(lambda m, a, o: o + 1)",
            "net.lin.register_forward_pre_hook(lambda m, a: (a[0] * 2,))", "net.drop.p = 0.1", "net.drop.eval()",
            "net.dict['a'] = torch.nn.ReLU()", "net.dict['b'] = torch.nn.ReLU()", "net.plist.append(torch.zeros(4))",
            "net.requires_grad_(False)", "net.lin.weight.requires_grad_(False)", "net.double().float()",
            "net.double()", "net.float()", "net.bn.momentum = 0.5", "net.bn.running_mean.add_(1)",
            "net.bn.track_running_stats = False", "net.fn = torch.sin", "Net.forward = lambda self, x: x - 1",
            "Scale.forward = lambda self, x: x - 2", "net.forward = lambda x: x + 100",
            "net.lin.forward = lambda x: x * 0", "global shared; shared = Scale(4, 4)", "net.lin.bias = None",
            "net._modules['lin'] = torch.nn.Identity()", "net._buffers['buf'] = torch.full((4,), 3.)",
            "net.__dict__['k'] = 5", "net.lin._parameters['weight'] = torch.nn.Parameter(torch.zeros(4, 4))",
            "net._forward_hooks.clear()", "net.lin.__class__ = torch.nn.Linear", "net.zero_grad()",
            "net.load_state_dict({k: v + 1 for k, v in net.state_dict().items()})",
            "net.lin.register_full_backward_hook(lambda m, a, b: None)", "net.extra = torch.nn.Linear(1, 1)",
            "del net.drop", "net.seq.insert(0, torch.nn.Tanh())",
        ),
    ),
    "library": Topic(
        "ns = types.SimpleNamespace(a=1, t=torch.ones(4))\nPoint = collections.namedtuple('Point', 'a b')\n"
        "point = Point(1, torch.ones(4))\ndq = collections.deque([1, 2], maxlen=3)\nst = {1, 2}\n"
        "fs = frozenset((1, 2))\ncnt = collections.Counter('aab')\nclass Color(enum.Enum):\n    RED = 1\n"
        "    BLUE = 2\ncolor = Color.RED\n@dataclasses.dataclass\nclass Data:\n    a: int = 1\n"
        "    t: torch.Tensor = None\ndata = Data(1, torch.ones(4))\nloc = threading.local()\nloc.v = 1\n"
        "var = contextvars.ContextVar('var', default=1)\nmod = types.ModuleType('mod')\nmod.v = 1\n"
        "mod.f = lambda x: x + mod.v\nwr = weakref.ref(data)\narr = np.arange(4.)\nbuf = bytearray(b'ab')\n"
        "rng = random.Random(3)\ncomplexity = 1 + 2j\nchain = collections.ChainMap({'a': 1}, {'b': 2})\n"
        "sl = slice(0, 2)\n",
        (
            "x + ns.a", "x * ns.t", "x + point.a", "x * point.b", "x + dq[0]", "x * len(dq)", "dq.append(3) or x",
            "x + (1 in st)", "x * len(st)", "x + sum(fs)", "x + cnt['a']", "x + cnt['zz']",
            "x * (color is Color.RED)", "x + color.value", "x + data.a", "x * data.t",
            "x + (data == Data(1, data.t))", "x + loc.v", "x + getattr(loc, 'w', 1)", "x + var.get()", "x + mod.v",
            "mod.f(x)", "x + wr().a", "x + torch.from_numpy(arr)", "x + arr.sum()", "x * arr.shape[0]", "x + buf[0]",
            "x + rng.random()", "x * abs(complexity)", "x + chain['b']", "x[..., sl]", "x + len(Color)",
            "x + dataclasses.asdict(data)['a']", "x + hasattr(mod, 'w')", "x + float(arr[0])", "x * (arr > 1).sum()",
        ),
        (
            "ns.a = 2", "ns.t = torch.zeros(4)", "ns.b = 1", "del ns.a", "global point; point = point._replace(a=3)",
            "point.b.add_(1)", "dq.append(5)", "dq.rotate(1)", "dq.clear()", "dq[0] = 7", "st.add(3)",
            "st.discard(1)", "global fs; fs = frozenset((5,))", "cnt['a'] = 9", "cnt.update('zz')",
            "global color; color = Color.BLUE", "data.a = 4", "data.t.mul_(2)", "data.t = torch.zeros(1)",
            "Data.a = 8", "loc.v = 5", "loc.w = 6", "del loc.v", "var.set(4)", "mod.v = 2", "mod.w = 1",
            "mod.f = lambda x: x - 1", "global data; data = Data(2, torch.ones(4))", "arr[0] = 5",
            "global arr; arr = np.ones(4)", "global arr; arr = np.ones(4, dtype=np.float32)", "buf[0] = 1",
            "rng.seed(1)", "rng.random()", "global complexity; complexity = 3j", "chain['b'] = 5",
            "chain.maps[1]['b'] = 7", "chain.maps.append({})", "global sl; sl = slice(1, 3)", "Color.RED._value_ = 5",
            "arr += 1", "del cnt['a']", "mod.__getattr__ = lambda n: 3",
            "mod.__class__ = type('M', (types.ModuleType,), {'v': property(lambda s: 9)})",
            "arr.resize(2, refcheck=False)", "arr.shape = (2, 2)", "arr.flags.writeable = False",
        ),
    ),
    "modes": Topic(
        "import torch.nn.functional as FN\nstate = {'grad': True}\n",
        (
            "(x * 1.0).requires_grad_().mul(2) if torch.is_grad_enabled() else x", "x + torch.is_grad_enabled()",
            "torch.zeros(4) + x", "x + torch.tensor(1.5)", "x + torch.is_inference_mode_enabled()",
            "x.float() @ torch.ones(4, 4)", "x + torch.is_autocast_enabled('cpu')", "torch.arange(4.) + x",
            "x + torch.are_deterministic_algorithms_enabled()", "torch.full((4,), 1.5) * x",
            "x + (torch.get_default_dtype() == torch.float32)", "torch.rand(4) + x", "torch.randn_like(x.float())",
            "FN.dropout(x.float(), 0.5)", "x + torch.get_rng_state().sum()",
            "x.float() * torch.nn.Parameter(torch.ones(4))",
        ),
        (
            "torch.set_grad_enabled(False)", "torch.set_grad_enabled(True)", "torch.set_default_dtype(torch.float64)",
            "torch.set_default_dtype(torch.float32)", "torch.use_deterministic_algorithms(True)",
            "torch.use_deterministic_algorithms(False)", "torch.set_autocast_enabled('cpu', True)",
            "torch.set_autocast_enabled('cpu', False)", "torch.manual_seed(5)", "torch.rand(3)",
            "torch.set_autocast_dtype('cpu', torch.bfloat16)",
        ),
    ),
}
