"""Generated small programs, compiled and in plain Python: results, layouts, exceptions and changed inputs are the same.

A program is made as source text, so that a failing one can be read, and pasted into a test of its own.
`DYNAMO_LITE_FUZZ=N` tries N random programs per test, instead of the fixed set of every other run.
"""
import linecache
import math
import os
import textwrap

import pytest
import torch
from hypothesis import HealthCheck, Phase, given, note, settings
from hypothesis import strategies as st

import dynamo_lite

FUZZ = int(os.environ.get("DYNAMO_LITE_FUZZ", "0"))


def bounded(examples):
    return settings(max_examples=FUZZ or examples, derandomize=not FUZZ, deadline=None, database=None,
                    suppress_health_check=list(HealthCheck), phases=(Phase.generate, Phase.shrink))


# ---------------------------------------------------------------- making programs
class Maker:
    """Writes statements over the names that are bound at each point. Tensors are 3 x 4, or broadcast to it."""

    def __init__(self, draw, breaks):
        self.draw = draw
        self.breaks = breaks
        self.count = 0

    def pick(self, options):
        return self.draw(st.sampled_from(list(options)))

    def chance(self, one_in):
        return self.draw(st.integers(0, one_in - 1)) == one_in - 1

    def fresh(self, prefix):
        self.count += 1
        return f"{prefix}{self.count}"

    # Expressions. A scope lists names: "t" tensors, "n" numbers, "l" lists and "d" dicts of tensors, "f" functions.
    def tensor(self, scope, depth=2):
        kind = self.draw(st.integers(0, 13)) if depth else 0
        if kind <= 3:
            return self.pick(scope["t"])
        inner = self.tensor(scope, depth - 1)
        if kind == 4:
            return f"({inner} {self.pick('+-*')} {self.tensor(scope, depth - 1)})"
        if kind == 5:
            return f"({inner} {self.pick('+-*/')} {self.number(scope)})"
        if kind == 6:
            return f"torch.{self.pick(['relu', 'sin', 'sigmoid', 'tanh', 'abs'])}({inner})"
        if kind == 7:
            methods = ["cos()", "clone()", "neg()", "sum(-1, keepdim=True)", "mean(0)", "clamp(-1, 1)"]
            return f"({inner}).{self.pick(methods)}"
        if kind == 8:
            return f"torch.where({inner} > 0, {inner}, {self.tensor(scope, 0)})"
        if kind == 9 and scope["l"]:
            return f"{self.pick(scope['l'])}[{self.pick(['0', '-1'])}]"
        if kind == 10 and scope["d"]:
            return f"{self.pick(scope['d'])}['a']"
        if kind == 11 and scope["f"]:
            name = self.pick(scope["f"])
            return self.pick([f"{name}({inner})", f"{name}(*[{inner}, {self.number(scope)}])",
                              f"{name}({inner}, k={self.number(scope)})"])
        if kind == 12:
            return f"({inner} if {self.condition(scope)} else {self.tensor(scope, 0)})"
        return f"({inner} + {self.number(scope)})"

    def number(self, scope):
        kind = self.draw(st.integers(0, 5))
        if kind <= 1:
            return str(self.pick([2, 3, 0.5, -1, 1.0]))
        if kind == 2:
            return f"{self.pick(scope['t'])}.dim()"
        if kind == 3 and scope["l"]:
            return f"len({self.pick(scope['l'])})"
        if kind == 4:
            return f"({self.pick(scope['n'])} {self.pick(['+', '*', '-', '//'])} {self.pick([2, 3])})"
        return self.pick(scope["n"])

    def condition(self, scope):
        options = ["flag", "not flag", f"{self.number(scope)} > 1", "n % 2 == 0", "x.shape[0] == 3 and y.dim() < 3",
                   f"isinstance({self.pick(scope['t'])}, torch.Tensor)", f"1 < {self.number(scope)} <= 4"]
        if scope["d"]:
            options.append(f"'b' in {self.pick(scope['d'])}")
        if self.breaks:
            options.append(f"{self.pick(scope['t'])}.sum() > 0")
        return self.pick(options)

    # Statements: a list of lines; what they bind is added to the scope.
    def block(self, scope, depth, most=3):
        scope = {kind: list(names) for kind, names in scope.items()}
        lines = []
        for _ in range(self.draw(st.integers(1, most))):
            lines += self.statement(scope, depth)
        return lines

    def statement(self, scope, depth):
        kinds = ["assign", "augment", "number", "list", "dict", "slice", "unpack", "list_method", "dict_method"]
        if depth:
            kinds = ["if", "for", "while", "try", "no_grad", "function", "comprehension", "for_list"] + kinds
        if self.breaks:
            kinds += ["break", "print"]
        return getattr(self, "do_" + self.pick(kinds))(scope, depth)

    def indented(self, head, lines):
        return [head, *("    " + line for line in lines)]

    def do_assign(self, scope, depth):
        # An own tensor each time: a view or an input would be changed by what comes after, which is do_slice's matter.
        name = self.fresh("t")
        line = f"{name} = {self.tensor(scope)}"
        scope["t"].append(name)
        return [line]

    def do_augment(self, scope, depth):
        name = self.pick(scope["t"])
        copy = [] if self.chance(3) else [f"{name} = {name} + 0"]
        return [*copy, f"{name} {self.pick('+-*')}= {self.number(scope)}"]

    def do_number(self, scope, depth):
        if self.chance(2):
            name = self.pick(scope["n"])
            return [f"{name} += {self.pick([1, 2])}"]
        name = self.fresh("n")
        line = f"{name} = {self.number(scope)}"
        scope["n"].append(name)
        return [line]

    def do_list(self, scope, depth):
        name = self.fresh("l")
        line = f"{name} = [{self.tensor(scope, 1)}, {self.tensor(scope, 1)}]"
        scope["l"].append(name)
        return [line]

    def do_dict(self, scope, depth):
        name = self.fresh("d")
        line = f"{name} = {{'a': {self.tensor(scope, 1)}}}"
        scope["d"].append(name)
        return [line]

    def do_list_method(self, scope, depth):
        if not scope["l"]:
            return self.do_list(scope, depth)
        name = self.pick(scope["l"])
        return [self.pick([f"{name}.append({self.tensor(scope, 1)})", f"{name}.reverse()", f"{name} += {name}[:1]",
                           f"{name}[0] = {self.tensor(scope, 1)}", f"{name}.insert(1, {self.tensor(scope, 0)})",
                           f"{name} = {name}[::-1] + [{self.tensor(scope, 0)}]"])]

    def do_dict_method(self, scope, depth):
        if not scope["d"]:
            return self.do_dict(scope, depth)
        name = self.pick(scope["d"])
        return [self.pick([f"{name}['b'] = {self.tensor(scope, 1)}", f"{name}.setdefault('c', {self.tensor(scope, 0)})",
                           f"{name}.update(b={self.tensor(scope, 0)})", f"{name}.pop('b', None)",
                           f"{name} = {{k: v + 1 for k, v in {name}.items()}}"])]

    def do_slice(self, scope, depth):
        name = self.pick(["x", "y", self.pick(scope["t"])])
        index = self.pick(["0", "-1", "1:", "::2", ":1"])
        if self.chance(2):
            return [f"{name}[{index}] = {self.pick([0, 1.5, 2])}"]
        return [f"{name}[{index}] {self.pick('+*')}= {self.pick([2, 0.5])}"]

    def do_unpack(self, scope, depth):
        first, rest = self.fresh("t"), self.fresh("l")
        line = f"{first}, *{rest} = {self.tensor(scope, 1)}, {self.tensor(scope, 1)}, {self.tensor(scope, 0)}"
        scope["t"].append(first)
        scope["l"].append(rest)
        return [line]

    def do_if(self, scope, depth):
        lines = self.indented(f"if {self.condition(scope)}:", self.block(scope, depth - 1))
        if self.chance(2):
            lines += self.indented("else:", self.block(scope, depth - 1))
        return lines

    def do_for(self, scope, depth):
        name = self.fresh("i")
        inner = {**scope, "n": scope["n"] + [name]}
        body = self.block(inner, depth - 1, 2) + self.carry(scope, inner)
        if self.chance(3):
            body += [f"if {name} == 1:", f"    {self.pick(['break', 'continue'])}"]
        lines = self.indented(f"for {name} in range({self.pick(['2', '3', 'y.dim() + 1'])}):", body)
        return lines + (self.indented("else:", self.block(scope, 0, 1)) if self.chance(4) else [])

    def do_for_list(self, scope, depth):
        if not scope["l"]:
            return self.do_for(scope, depth)
        item, index = self.fresh("t"), self.fresh("i")
        inner = {**scope, "t": scope["t"] + [item], "n": scope["n"] + [index]}
        body = self.block(inner, depth - 1, 2) + self.carry(scope, inner)
        return self.indented(f"for {index}, {item} in enumerate(list({self.pick(scope['l'])})):", body)

    def carry(self, scope, inner):
        """Something that goes on to the next turn of a loop."""
        name = self.pick(scope["t"])
        return [f"{name} = {name} * 0.5 + {self.tensor(inner, 1)}"]

    def do_while(self, scope, depth):
        name = self.fresh("n")
        body = self.block(scope, depth - 1, 2) + self.carry(scope, scope) + [f"{name} += 1"]
        scope["n"].append(name)
        return [f"{name} = 0", *self.indented(f"while {name} < 2:", body)]

    def do_try(self, scope, depth):
        fault = self.pick(["{}['missing']", "raise ValueError('v')", "[].pop()", "1 // 0", "x.nothing", "int('q')",
                           "pass"])
        kinds = self.pick(["Exception", "(KeyError, ValueError)", "LookupError", "ArithmeticError"])
        lines = self.indented("try:", self.block(scope, depth - 1, 2) + [fault])
        lines += self.indented(f"except {kinds} as e:", self.block(scope, depth - 1, 2) + ["n += len(e.args)"])
        if self.chance(3):
            lines += self.indented("else:", self.block(scope, depth - 1, 1))
        if self.chance(3):
            lines += self.indented("finally:", self.block(scope, depth - 1, 1))
        return lines

    def do_no_grad(self, scope, depth):
        manager = self.pick(["torch.no_grad()", "torch.enable_grad()", "torch.set_grad_enabled(flag)"])
        return self.indented(f"with {manager}:", self.block(scope, depth - 1))

    def do_function(self, scope, depth):
        name = self.fresh("f")
        # A closure over all that is bound here; its own names shadow nothing.
        inner = {**scope, "t": ["a"] + [t for t in scope["t"] if t not in ("x", "y")], "n": ["k", "n"]}
        inner = {key: list(value) for key, value in inner.items()}
        body = [f"return {self.tensor({**inner, 'f': []}, 2)} * k + sum(rest)"]
        lines = self.indented(f"def {name}(a, *rest, k={self.pick([2, 'n'])}):", body)
        scope["f"].append(name)
        return lines

    def do_comprehension(self, scope, depth):
        name, item = self.fresh("l"), self.fresh("t")
        source = self.pick(scope["l"]) if scope["l"] else f"[{self.tensor(scope, 1)}, {self.tensor(scope, 1)}]"
        inner = {**scope, "t": [item], "f": []}
        line = f"{name} = [{self.tensor(inner, 1)} for {item} in {source}]"
        scope["l"].append(name)
        return [line]

    def do_break(self, scope, depth):
        return ["dynamo_lite.graph_break()"]

    def do_print(self, scope, depth):
        return [f"said.append({self.pick(scope['t'])}.sum().item())"]


@st.composite
def programs(draw, breaks=False):
    """The source of `f(x, y, n, flag)`."""
    maker = Maker(draw, breaks)
    scope = {"t": ["x", "y"], "n": ["n", "m"], "l": [], "d": [], "f": []}
    lines = ["m = x.shape[1]"]
    for _ in range(8 - draw(st.integers(0, 5))):
        lines += maker.statement(scope, 2)
    results = [maker.pick(scope[kind]) for kind in "tnld" if scope[kind]]
    lines.append(f"return {', '.join(results)}, {maker.tensor(scope, 1)}")
    return "def f(x, y, n, flag):\n" + textwrap.indent("\n".join(lines), "    ") + "\n"


# ---------------------------------------------------------------- running and comparing
def load(source):
    name = f"<program {abs(hash(source))}>"
    linecache.cache[name] = (len(source), None, source.splitlines(True), name)
    said = []
    scope = {"torch": torch, "dynamo_lite": dynamo_lite, "said": said}
    exec(compile(source, name, "exec"), scope)
    return scope["f"], said


def inputs(seed):
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(3, 4, generator=g)
    y = torch.randn(4, 3, generator=g).t() if seed % 2 else torch.randn(4, generator=g)
    return [x, y, 2 + seed, seed % 2 == 0]


def outcome(f, said, seed):
    """All that can be seen of one call: the result or the exception, the inputs after it, what it said."""
    said.clear()
    args = inputs(seed)
    try:
        result = f(*args)
    except Exception as e:
        return ("raised", type(e).__name__), seen(args[:2], args), list(said)
    return seen(result, args), seen(args[:2], args), list(said)


def seen(value, args):
    """A value as plain data; a tensor with its layout, its data, and which input it is or shares memory with."""
    if isinstance(value, torch.Tensor):
        same = [value is a for a in args[:2]]
        shares = [value.untyped_storage().data_ptr() == a.untyped_storage().data_ptr() for a in args[:2]]
        return ("tensor", type(value), value.dtype, tuple(value.shape), value.stride(), value.requires_grad, same,
                shares, value.detach().clone())
    if isinstance(value, (list, tuple)):
        return (type(value).__name__, [seen(v, args) for v in value])
    if isinstance(value, dict):
        return (type(value).__name__, [(k, seen(v, args)) for k, v in value.items()])
    return (type(value).__name__, value)


def same(a, b, tolerance):
    if isinstance(a, torch.Tensor):
        return torch.allclose(a, b, rtol=tolerance, atol=tolerance, equal_nan=True)
    if isinstance(a, float) and isinstance(b, float):
        near = math.isclose(a, b, rel_tol=tolerance * 10, abs_tol=tolerance * 10)
        return near or (math.isnan(a) and math.isnan(b))
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        return len(a) == len(b) and all(same(p, q, tolerance) for p, q in zip(a, b))
    return a == b


def compare(source, tolerance=0.0, **options):
    f, said = load(source)
    with torch.random.fork_rng(devices=[]):
        wanted = {seed: outcome(f, said, seed) for seed in (0, 1)}
        dynamo_lite.reset()
        compiled = dynamo_lite.compile(f, **options)
        # Twice with the same arguments: what is compiled, and what is found again. The others need other guards.
        for seed in (0, 0, 1, 1, 0):
            got = outcome(compiled, said, seed)
            if not same(got, wanted[seed], tolerance):
                raise AssertionError(
                    f"inputs({seed}), {options}\n{source}\neager:    {wanted[seed]}\ncompiled: {got}")


@bounded(60)
@given(programs())
def test_programs_in_one_graph_or_more(source):
    note(source)
    compare(source, backend="eager")


@bounded(40)
@given(programs(breaks=True))
def test_programs_with_breaks(source):
    note(source)
    compare(source, backend="eager")


@bounded(12)
@given(programs())
def test_programs_through_the_default_backend(source):
    note(source)
    compare(source, tolerance=1e-4)


def test_the_maker_itself():
    """Programs run in plain Python, mostly without an exception, and the comparison sees a difference."""
    outcomes = []

    @bounded(80)
    @given(programs(breaks=True))
    def collect(source):
        f, said = load(source)
        outcomes.append(outcome(f, said, 0)[0][0])
        assert same(outcome(f, said, 0), outcome(f, said, 0), 0.0)

    collect()
    assert outcomes.count("raised") < len(outcomes) / 2 and outcomes.count("raised") > 0
    f, said = load("def f(x, y, n, flag):\n    x[0] = 0\n    return x\n")
    g, _ = load("def f(x, y, n, flag):\n    x = x.clone()\n    x[0] = 0\n    return x\n")
    assert not same(outcome(f, said, 0), outcome(g, said, 0), 1e-3)
    with pytest.raises(AssertionError, match="eager"):
        compare("def f(x, y, n, flag):\n    return x, dynamo_lite.is_compiling()\n", backend="eager")
