"""More of what programs read of their surroundings: hierarchies of classes, classes of special kinds, names that shadow
builtins, closures, tensors' layouts, weak references. The form is that of ``topics``, and so is the invariant. """
from __future__ import annotations

from .topics import Topic

MORE_TOPICS = {
    "hierarchies": Topic(
        "class Meta(type):\n    m = 1\n    def __call__(cls, *a, **k): return super().__call__(*a, **k)\n"
        "    def __instancecheck__(cls, o): return type.__instancecheck__(cls, o)\nclass Root(metaclass=Meta):\n"
        "    k = 1\n    made = 0\n    def __init__(self, n=2): self.n = n\n    def act(self, x): return x + self.k\n"
        "    def __getitem__(self, i): return self.n + i\nclass Left(Root):\n"
        "    def act(self, x): return super().act(x) * 2\nclass Right(Root):\n    k = 3\n"
        "    def act(self, x): return super().act(x) - 1\nclass Both(Left, Right):\n"
        "    def act(self, x): return super().act(x) + 0.5\nclass Free:\n    k = 9\n    n = 4\n"
        "    def act(self, x): return x * 7\nboth = Both()\nleft = Left(3)\nkinds = [Left, Right]\nbound = both.act\n",
        (
            "both.act(x)", "left.act(x)", "bound(x)", "x + both.k", "x + len(Both.__mro__)",
            "x * isinstance(both, Left)", "x + issubclass(Both, Right)", "x + Both(5).n", "x + Root.m",
            "Right().act(x)", "x + both[1]", "x * (type(left) is Left)", "x + (left.__class__ is Left)",
            "[k(1).act(x) for k in kinds]", "Left.act(both, x)", "x + hasattr(both, '__len__')",
            "x + len(Root.__subclasses__())", "x * (bound.__self__ is both)", "super(Left, both).act(x)",
            "x + getattr(Both, 'late', 1)", "x + callable(left)", "x + Both.__base__.k",
            "setattr(Root, 'made', Root.made + 1) or x + Root.made",
        ),
        (
            "Left.__bases__ = (Right,)", "Both.__bases__ = (Right, Left)", "Both.__bases__ = (Left,)",
            "Left.__bases__ = (Root,)", "left.__class__ = Right", "left.__class__ = Both", "both.__class__ = Left",
            "both.__class__ = Free", "Left.act = lambda self, x: x - 9", "del Left.act", "del Right.act",
            "Right.k = 5", "del Right.k", "Root.k = 6", "Meta.m = 2", "Meta.late = 3", "Root.late = 4",
            "Both.late = 5", "Meta.__call__ = lambda cls, *a: Free()", "del Meta.__call__",
            "Meta.__instancecheck__ = lambda cls, o: False", "Meta.__subclasscheck__ = lambda cls, c: False",
            "Root.__new__ = staticmethod(lambda cls, *a: object.__new__(Right))",
            "Root.__init__ = lambda self, n=8: None", "Root.__getattr__ = lambda self, n: 5",
            "Right.__getattr__ = lambda self, n: 6", "both.n = 7", "del both.n", "both.act = lambda x: x",
            "vars(both).pop('act', None)", "global bound; bound = left.act", "global both; both = Both(6)",
            "kinds.reverse()", "kinds[0] = Both", "Left.__len__ = lambda self: 3",
            "Left.__getitem__ = lambda self, i: 0", "Both.__getitem__ = None", "Left.__call__ = lambda self: 1",
            "global Left; Left = Right", "Root.act = Right.act", "globals()['later'] = type('Later', (Root,), {})",
            "Left.__slots__ = ()", "Root.__class_getitem__ = classmethod(lambda c, i: 1)",
            "Left.__setattr__ = lambda self, n, v: None", "Both.__mro_entries__ = 1",
            "Left.n = property(lambda self: 11)", "Free.act = Root.act",
        ),
    ),
    "kinds": Topic(
        "class Missing(dict):\n    def __missing__(self, k): return 7\nclass Slots:\n"
        "    __slots__ = ('a', 'b', 't')\n    def total(self): return self.a + 1\nclass Level(enum.IntEnum):\n"
        "    LOW = 1\n    HIGH = 2\nclass Perm(enum.Flag):\n    R = 1\n    W = 2\nclass Rich(enum.Enum):\n"
        "    ONE = (1, 'a')\n    TWO = (2, 'b')\n    @property\n    def first(self): return self.value[0]\n"
        "@dataclasses.dataclass\nclass Conf:\n    k: int = 1\n    name: str = 'a'\n"
        "    items: list = dataclasses.field(default_factory=list)\n@dataclasses.dataclass(frozen=True)\n"
        "class Frozen:\n    k: int = 2\n    t: object = None\nclass Tup(tuple):\n    scale = 2\nclass Num(int):\n"
        "    extra = 1\n    def __add__(self, o): return o + 5\n    __radd__ = __add__\nclass Text(str):\n    pass\n"
        "class Lst(list):\n    pass\nmis = Missing(a=1)\nslots = Slots()\nslots.a, slots.t = 2, torch.ones(4)\n"
        "level = Level.LOW\nperm = Perm.R\nrich = Rich.ONE\nconf = Conf()\nfrozen = Frozen(3, torch.ones(4))\n"
        "tup = Tup((1, 2))\nnum = Num(3)\ntext = Text('ab')\nlst = Lst([1, 2])\n"
        "once = functools.cached_property(lambda self: 4)\n",
        (
            "x + mis['a']", "x + mis['new']", "x + mis.get('new', 2)", "x + len(mis)", "x * ('new' in mis)",
            "x + slots.a", "x + slots.total()", "x * slots.t", "x + hasattr(slots, 'b')",
            "x + getattr(slots, 'b', 4)", "setattr(slots, 'a', slots.a + 1) or x", "x + level", "x * level.value",
            "x + (level is Level.LOW)", "x + (level < Level.HIGH)", "x + (Perm.R in perm)", "x + perm.value",
            "x + rich.first", "x + len(rich.value[1])", "x + Level(2)", "x + Level['LOW']", "x + len(list(Rich))",
            "x + conf.k", "x + len(conf.name)", "x + len(conf.items)", "x + (conf == Conf())",
            "x + dataclasses.replace(conf, k=4).k", "x + Conf(8).k", "x + len(dataclasses.fields(conf))",
            "x * frozen.t + frozen.k", "x + len(tup) * tup.scale", "x + sum(tup)", "x + num", "num + x",
            "x * num.extra", "x + len(text)", "x + (text == 'ab')", "x + sum(lst)", "x + lst[0]",
            "x + hash(frozen.k)", "[x * v for v in lst]", "conf.items.append(1) or x", "x + len(repr(level))",
        ),
        (
            "mis['new'] = 3", "del mis['a']", "Missing.__missing__ = lambda self, k: 9", "del Missing.__missing__",
            "Missing.__getitem__ = lambda self, k: 11", "Missing.get = lambda self, k, d=None: 13", "mis.clear()",
            "Missing.__contains__ = lambda self, k: True", "Missing.__len__ = lambda self: 20", "slots.a = 5",
            "slots.b = 6", "del slots.b", "del slots.a", "slots.t = torch.zeros(4)", "slots.t.add_(1)",
            "Slots.total = lambda self: 0", "Slots.a = 8", "Slots.b = property(lambda self: 3)",
            "global level; level = Level.HIGH", "global level; level = 1", "Level.LOW.extra = 1",
            "global perm; perm = Perm.R | Perm.W", "global perm; perm = Perm(0)", "global rich; rich = Rich.TWO",
            "Rich.first = property(lambda s: 5)", "Rich.ONE._value_ = (7, 'abc')",
            "Level.__add__ = lambda self, o: o * 3", "conf.k = 4", "conf.k = 1.5", "conf.name = 'abc'",
            "conf.items = (1, 2)", "conf.items.append(2)", "Conf.k = 6", "del conf.k",
            "Conf.__eq__ = lambda s, o: False", "Conf.__post_init__ = lambda s: setattr(s, 'k', 12)",
            "Conf.__init__.__defaults__ = (5, 'b', list)", "Conf.__dataclass_fields__.pop('name')",
            "object.__setattr__(frozen, 'k', 9)", "object.__setattr__(frozen, 't', torch.zeros(4))",
            "global frozen; frozen = Frozen(1, torch.ones(4))", "Tup.scale = 3", "tup.scale = 5",
            "global tup; tup = Tup((3,))", "global tup; tup = (1, 2)", "Tup.__len__ = lambda s: 9",
            "Tup.__iter__ = lambda s: iter((9,))", "global num; num = Num(4)", "global num; num = 3", "Num.extra = 4",
            "num.extra = 6", "Num.__add__ = lambda s, o: o - 1", "del Num.__add__", "del Num.__radd__",
            "global text; text = Text('abc')", "Text.__len__ = lambda s: 12", "Text.__eq__ = lambda s, o: False",
            "lst.append(5)", "lst[0] = 9", "Lst.__getitem__ = lambda s, i: 4", "Lst.__iter__ = lambda s: iter((6,))",
            "lst.clear()", "global lst; lst = [1, 2]",
        ),
    ),
    "names": Topic(
        "lib = types.ModuleType('lib')\nlib.v = 2\nlib.sub = types.ModuleType('lib.sub')\nlib.sub.w = 3\n"
        "lib.fn = lambda x: x + lib.v\nK1 = 1\ndef outer(x): return deep(x) + K1\ndef deep(x): return abs(x) + K1\n"
        "class Space:\n    K1 = 5\n    def go(self, x): return x + K1 + self.K1\nspace = Space()\nhelp_k = {'k': 1}\n",
        (
            "x + len([1, 2])", "sum([x, x])", "x + abs(-2)", "x * isinstance(x, torch.Tensor)", "x + max(1, 2)",
            "outer(x)", "space.go(x)", "x + lib.v", "x + lib.sub.w", "lib.fn(x)", "x + getattr(lib, 'late', 5)",
            "x + hasattr(lib, 'v')", "x + math.pi", "torch.sin(x.float())", "x + float('2')", "x + int(True)",
            "[x * i for i in range(2)]", "x + len(list(zip([1], [2])))", "x + K1", "x + bool(lib)",
            "x + len(vars(lib.sub))", "x + (K1 == 1)", "x + globals()['K1']", "x + globals().get('K2', 3)",
            "x + len(str(K1))", "x + ('K2' in globals())", "x + sorted([2, 1])[0]", "x + any([K1 > 3])",
        ),
        (
            "global len; len = lambda v: 40", "global len; del len", "global sum; sum = lambda v: v[0] * 3",
            "global sum; del sum", "global abs; abs = lambda v: v", "global abs; del abs", "global max; max = min",
            "global max; del max", "global isinstance; isinstance = lambda a, b: False",
            "global isinstance; del isinstance", "global range; range = lambda n: [5]", "global range; del range",
            "global float; float = int", "global float; del float", "global deep; deep = lambda x: x",
            "global deep; del deep", "global K1; K1 = 4", "global K1; del K1", "global K2; K2 = 2",
            "globals().pop('K2', None)", "global math; math = types.SimpleNamespace(pi=3)",
            "global math; import math",
            "global torch; torch = types.SimpleNamespace(sin=lambda x: x, Tensor=torch.Tensor, "
            "randn=torch.randn, randint=torch.randint, nn=torch.nn, ones=torch.ones)", "global torch; import torch",
            "lib.v = 5", "del lib.v", "lib.sub.w = 6", "del lib.sub", "lib.sub = types.SimpleNamespace(w=9)",
            "lib.__getattr__ = lambda n: 21", "del lib.__getattr__", "lib.late = 7", "lib.fn = lambda x: x * 2",
            "global lib; lib = types.SimpleNamespace(v=4, sub=lib.sub, fn=lib.fn)", "Space.K1 = 6", "space.K1 = 7",
            "global str; str = repr", "globals()['K1'] = 12", "global sorted; sorted = list", "global any; any = all",
            "lib.__class__ = type('LibType', (types.ModuleType,), {'__getattr__': lambda s, n: 13})",
            "vars(lib)['v'] = 15", "vars(lib).clear()", "global Space; del Space",
        ),
    ),
    "closures": Topic(
        "def maker(v, w):\n    def add(x): return x + v\n"
        "    def mul(x, by=w, *rest, k=1, **more): return x * by * v * k\n"
        "    def rec(x, n=2): return x if n == 0 else rec(x + v, n - 1)\n    def gen():\n        yield v\n"
        "        yield w\n    def step(x):\n        nonlocal v\n        v = v + 1\n        return x + v\n"
        "    return add, mul, rec, gen, step\nadd, mul, rec, gen, step = maker(2, 3)\nother = maker(5, 7)\n"
        "def deco(fn):\n    @functools.wraps(fn)\n    def wrapper(*a, **k): return fn(*a, **k) + 1\n"
        "    return wrapper\n@deco\ndef wrapped(x, s=2): return x * s\nclass Host:\n    t = 2\n"
        "    def meth(self, x, d=1): return x + d + self.t\n    stat = staticmethod(lambda x, s=3: x * s)\n"
        "host = Host()\nmeth = host.meth\ndef lists(x, acc=[]):\n    acc.append(1)\n    return x + len(acc)\n"
        "def kwonly(x, *, a=1, b=2): return x + a * b\nadder = functools.partial(kwonly, a=3)\n"
        "foreign = types.FunctionType(compile('def q(x): return x + Z', 'q', 'exec').co_consts[0], {'Z': 4})\n"
        "call = [add, mul]\n",
        (
            "add(x)", "mul(x)", "mul(x, 2, k=3)", "rec(x)", "x + sum(gen())", "step(x)", "wrapped(x)",
            "wrapped.__wrapped__(x)", "host.meth(x)", "meth(x)", "Host.stat(x)", "lists(x)", "kwonly(x)",
            "kwonly(x, b=5)", "adder(x)", "foreign(x)", "[fn(x) for fn in call]", "other[0](x)",
            "x + add.__closure__[0].cell_contents", "x + mul.__defaults__[0]", "x + kwonly.__kwdefaults__['b']",
            "x + add.__code__.co_argcount", "x + len(mul.__code__.co_freevars)", "x * (meth.__self__ is host)",
            "x + len(meth.__func__.__defaults__)", "rec(x, 1)", "x + next(gen())",
        ),
        (
            "add.__closure__[0].cell_contents = 11", "add.__closure__[0].cell_contents = torch.ones(4)",
            "del add.__closure__[0].cell_contents", "mul.__defaults__ = (9,)", "mul.__defaults__ = None",
            "mul.__kwdefaults__ = None", "mul.__kwdefaults__ = {'k': 4}", "mul.__kwdefaults__['k'] = torch.ones(4)",
            "add.__code__ = other[0].__code__", "add.__code__ = (lambda v: lambda x: x - v)(1).__code__",
            "mul.__code__ = mul.__code__.replace(co_name='renamed')", "step.__code__ = step.__code__.replace()",
            "rec.__closure__[0].cell_contents = lambda x, n: x * 0", "global add; add = other[0]",
            "step(torch.ones(4))", "other[4](torch.ones(4))", "wrapped.__wrapped__ = lambda x, s=2: x - s",
            "wrapped.__closure__[0].cell_contents = add", "wrapped.__closure__[0].cell_contents.__defaults__ = (6,)",
            "Host.meth.__defaults__ = (4,)", "host.t = 5", "Host.t = 6", "host.meth = lambda x: x", "del host.meth",
            "Host.meth = lambda self, x, d=1: x - d", "Host.stat.__defaults__ = (8,)",
            "Host.stat = lambda self, x: x", "lists.__defaults__[0].clear()", "lists.__defaults__ = ([1, 1, 1],)",
            "kwonly.__kwdefaults__ = {'a': 5, 'b': 6}", "kwonly.__kwdefaults__['b'] = 7",
            "del kwonly.__kwdefaults__['a']", "adder.keywords['a'] = 8", "adder.keywords['b'] = 9",
            "global adder; adder = functools.partial(adder, b=4)", "foreign.__globals__['Z'] = 6",
            "del foreign.__globals__['Z']", "foreign.__globals__['__builtins__'] = {'Z': 2}", "call.append(rec)",
            "call[0] = other[0]", "global meth; meth = Host().meth", "global meth; meth = types.MethodType(add, 1)",
            "global meth; meth = types.MethodType(Host.meth, Host)",
            "gen.__code__ = (lambda v, w: lambda: [v, w])(1, 2).__code__", "add.__globals__['deep_late'] = 1",
            "mul.__closure__[0].cell_contents = 2.5",
        ),
    ),
    "layouts": Topic(
        "A = torch.arange(12.).view(3, 4)\nV = A[1:]\nW = torch.ones(4, requires_grad=True)\n"
        "I = torch.tensor([0, 2])\nB = torch.tensor([True, False, True])\nN = torch.tensor(3)\n"
        "C = torch.ones(4, dtype=torch.complex64)\nQ = torch.nn.Parameter(torch.ones(4))\nE = torch.empty(0, 4)\n"
        "class Sub(torch.Tensor):\n    pass\n",
        (
            "x + A", "x + V[0]", "x * W", "A[I] + x[..., :1][..., :1].sum()", "x + A.sum(0)", "x + N",
            "x * A.stride(0)", "x + A.is_contiguous()", "x + (A.dtype == torch.float32)", "x + A.requires_grad",
            "x + W.is_leaf", "x + C.real", "x * Q", "x + (Q.grad is None)", "x + isinstance(Q, torch.nn.Parameter)",
            "x + (type(A) is torch.Tensor)", "x + A.device.type.__len__()", "x + V.storage_offset()",
            "x + (V._base is A)", "x + A.is_sparse", "x + E.sum()", "A.mul_(1.5) + x", "x + A.view(-1)[:4]",
            "x + (A.layout == torch.strided)", "x + A.is_conj()", "x + I.sum()", "A[B].shape[0] + x", "x + A.numel()",
            "A.t() @ x.float().sum().expand(3)", "x + int(A.data_ptr() == V.data_ptr())",
            "x + len(W._backward_hooks or ())", "x + A._version", "x + A.is_inference()", "(x + Q).requires_grad",
        ),
        (
            "A.t_()", "global A; A = A.t().contiguous().t()", "global A; A = A.double()", "A.data = A.data.half()",
            "A.data = torch.ones(3, 4).t().contiguous().t()", "A.requires_grad_()", "global A; A = A.detach()",
            "global A; A = A.to('meta')", "global A; A = A.to_sparse()", "A.resize_(1, 4)", "A.data = torch.ones(4)",
            "A.as_strided_((3, 4), (0, 1))", "global A; A = Sub(A)", "A.__class__ = Sub",
            "global A; A = A.as_subclass(Sub)", "global V; V = A[1:].clone()", "global V; V = A[:2]",
            "V.data = torch.zeros(2, 4)", "global V; V = A.detach()[1:]", "W.requires_grad_(False)",
            "W.grad = torch.ones(4)", "global W; W = W * 2", "global W; W = W.detach()",
            "W.register_hook(lambda g: g * 2)", "global I; I = I.int()", "I.fill_(1)",
            "global I; I = torch.tensor([0, 1, 2])", "B.fill_(True)",
            "global B; B = torch.tensor([False, True, False])", "N.add_(1)", "global N; N = 3",
            "global N; N = torch.tensor(3.5)", "global N; N = torch.tensor(3, dtype=torch.int8)",
            "global C; C = C.conj()", "global C; C = C.real", "Q.requires_grad_(False)", "Q.data = torch.zeros(4)",
            "Q.grad = torch.zeros(4)", "global Q; Q = Q.data", "Q.data = Q.data.double()",
            "global E; E = torch.ones(1, 4)", "global A; A = A.expand(2, 3, 4)",
            "with torch.inference_mode():\n        global A\n        A = torch.ones(3, 4)", "A.copy_(A.flip(0))",
            "A.zero_()", "global A; A = torch.nn.Parameter(A)", "A.unsqueeze_(0)", "Sub.__add__ = lambda s, o: o",
            "Sub.__torch_function__ = torch._C._disabled_torch_function_impl", "A.swapaxes_(0, 1)", "W.retain_grad()",
        ),
    ),
    "weak": Topic(
        "class Node:\n    def __init__(self, v): self.v = v\n    def f(self, x): return x + self.v\none = Node(1)\n"
        "two = Node(2)\nref = weakref.ref(one)\nvals = weakref.WeakValueDictionary(a=one, b=two)\n"
        "keys = weakref.WeakKeyDictionary()\nkeys[one] = 5\nwset = weakref.WeakSet([one, two])\n"
        "proxy = weakref.proxy(two)\nwmeth = weakref.WeakMethod(two.f)\ntens = torch.ones(4)\n"
        "tref = weakref.ref(tens)\nkeep = [one]\n",
        (
            "x + (ref() is None)", "x if ref() is None else x + ref().v", "x + len(vals)", "x + ('a' in vals)",
            "x + (vals['b'].v if 'b' in vals else 9)", "x + len(keys)", "x + keys.get(one, 4)", "x + len(wset)",
            "x + (one in wset)", "x + proxy.v", "wmeth()(x) if wmeth() is not None else x", "x + (tref() is tens)",
            "x if tref() is None else x + tref()", "x + weakref.getweakrefcount(tens)", "x + (ref() is keep[0])",
            "x + sum(n.v for n in vals.values())",
        ),
        (
            "global one; one = None; keep.clear()", "global one; one = Node(7)", "keep.clear()", "one.v = 4",
            "global two; two = None", "global two; two = Node(8)", "two.v = 6", "global ref; ref = weakref.ref(two)",
            "vals['c'] = two", "del vals['a']", "keys[two] = 3", "keys.clear()", "wset.discard(one)", "wset.add(two)",
            "global proxy; proxy = weakref.proxy(one)", "global tens; tens = torch.zeros(4)", "tens.add_(1)",
            "global tref; tref = weakref.ref(tens)", "keep.append(one)", "Node.f = lambda self, x: x",
            "global tens; tens = None", "vals['b'] = one", "keep[0] = two",
        ),
    ),
}
