"""Functions of the standard library, taken apart and put together again: the same instructions, and the same results.

A sample of files; with DYNAMO_LITE_WHOLE_STDLIB=1 in the environment all of them, which takes minutes.
"""

from __future__ import annotations

import ast
import functools
import glob
import os
import random
import types
import warnings
from types import CodeType
from typing import Any

import pytest
from code_objects import check_stacks, reassembled

from dynamo_lite.bytecode.instructions import Instruction, decode

STDLIB = os.path.dirname(os.__file__)
FILES = sorted(
    path
    for folder in ("", "*/", "*/*/")
    for path in glob.glob(f"{STDLIB}/{folder}*.py")
    if not any(part in path for part in ("site-packages", "lib2to3", "/bad", "badsyntax", "__phello__"))
)
if os.environ.get("DYNAMO_LITE_WHOLE_STDLIB") != "1":
    FILES = random.Random(0).sample(FILES, 25)
GENERATOR = 0x2A0


def is_function(code: CodeType) -> bool:
    # From 3.12 on, the variable of an inlined comprehension may have the name of a free variable: two slots, one name.
    shadowed = {*code.co_cellvars, *code.co_varnames}.intersection(code.co_freevars)
    return bool(code.co_flags & 1) and not code.co_flags & GENERATOR and not shadowed


def codes(code: CodeType) -> list[CodeType]:
    found = [code]
    for const in code.co_consts:
        if isinstance(const, CodeType):
            found.extend(codes(const))
    return found


def compiled(path: str) -> CodeType | None:
    with open(path, "rb") as file, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return compile(file.read(), path, "exec")
        except (SyntaxError, UnicodeDecodeError, ValueError):
            return None  # a test of the parser


# Arguments that are numbers of something in the code object.
INDEXED = ("LOAD_CONST", "LOAD_FAST", "STORE_FAST", "DELETE_FAST", "LOAD_FAST_AND_CLEAR", "LOAD_GLOBAL", "LOAD_CLOSURE")
NAMED = ("_DEREF", "_ATTR", "_NAME", "_NAMES", "_GLOBAL", "_METHOD", "_CELL", "_FROM")


def argument(i: Instruction) -> Any:
    if i.opname in INDEXED or i.opname.endswith(NAMED):
        flags = i.arg & 3 if i.opname == "LOAD_SUPER_ATTR" and i.arg is not None else None
        return i.argval, flags
    return i.arg


def check_same(code: CodeType, made: CodeType) -> None:
    before, after_ = decode(code), decode(made)
    old, new = before.instructions[before.first_index :], after_.instructions[after_.first_index :]
    shift = after_.first_index - before.first_index
    assert len(old) == len(new)
    for a, b in zip(old, new):
        assert (a.opcode, a.opname, a.positions, a.push_null) == (b.opcode, b.opname, b.positions, b.push_null)
        if a.target is not None:
            assert b.target == a.target + shift
        else:
            assert argument(a) == argument(b) or repr(argument(a)) == repr(argument(b))
        wanted = None if a.handler is None else (a.handler.target + shift, *a.handler[1:])
        assert b.handler == wanted
    lines: list[Any] = [[line for _, _, line in c.co_lines() if line is not None] for c in (code, made)]
    # The frame's set-up stands on the first line here, and whole runs of a line are one entry.
    assert set(lines[0]) <= set(lines[1]) | {code.co_firstlineno} and set(lines[1]) <= {*lines[0], code.co_firstlineno}


@pytest.mark.parametrize("path", FILES, ids=lambda path: os.path.relpath(path, STDLIB))
def test_functions_of_the_standard_library(path: str) -> None:
    module = compiled(path)
    for code in codes(module) if module is not None else ():
        decode(code)
        if is_function(code):
            check_stacks(code)
            check_same(code, reassembled(code))


def rebuilt(code: CodeType) -> CodeType:
    """The code with all functions in it put together again."""

    def constant(value: Any) -> Any:
        return rebuilt(value) if isinstance(value, CodeType) else value

    if is_function(code):
        return reassembled(code, constant)
    return code.replace(co_consts=tuple(map(constant, code.co_consts)))


@functools.cache
def rebuilt_module(name: str) -> types.ModuleType:
    path = f"{STDLIB}/{name.replace('.', '/')}.py"
    if not os.path.exists(path):
        path = f"{STDLIB}/{name.replace('.', '/')}/__init__.py"
    code = compiled(path)
    assert code is not None
    module = types.ModuleType(name)
    module.__file__, module.__package__ = path, name.rpartition(".")[0] or name
    exec(rebuilt(code), vars(module))
    return module


def decimals(m: Any) -> Any:
    m.getcontext().prec = 30
    x = m.Decimal("1.5") ** m.Decimal("2.25") / 7
    results = [str(x), str(x.sqrt()), str(x.ln()), format(x, "12.4e"), str(m.Decimal(10).exp()), hash(x)]
    for wrong in ("1/0", "x"):
        try:
            m.Decimal(wrong)
        except ArithmeticError as error:
            results.append((type(error).__name__, str(error)))
    return results


def differences(m: Any) -> Any:
    a, b = "one two three four five".split(), "one too three fore five six".split()
    return list(m.unified_diff(a, b)), list(m.ndiff(a, b)), m.get_close_matches("two", b), m.HtmlDiff().make_table(a, b)


def arguments(m: Any) -> Any:
    parser = m.ArgumentParser(prog="p", description="d", exit_on_error=False)
    parser.add_argument("--n", type=int, default=3, choices=range(9), help="number")
    group = parser.add_mutually_exclusive_group()
    group.add_argument("-a", action="store_true")
    group.add_argument("-b", nargs="*")
    sub = parser.add_subparsers()
    sub.add_parser("run").add_argument("what", nargs="+")
    found: list[Any] = [parser.format_help(), vars(parser.parse_args(["--n", "4", "-a", "run", "x", "y"]))]
    for wrong in (["--n", "x"], ["--n", "99"]):
        try:
            parser.parse_args(wrong)
        except m.ArgumentError as error:
            found.append(str(error))
    return found


def syntax_trees(m: Any) -> Any:
    with open(f"{STDLIB}/contextlib.py") as file:
        tree = ast.parse(file.read())
    return m.unparse(tree), m.dump(tree, indent=1)[:5000], m.literal_eval("[1, {'a': (2, -3j)}]")


USES = {
    "_pydecimal": decimals,
    "difflib": differences,
    "argparse": arguments,
    "ast": syntax_trees,
    "fractions": lambda m: [str(m.Fraction("3/7") ** 3 * 2 - m.Fraction(1.25)), m.Fraction(7, 3) // 1],
    "statistics": lambda m: [m.stdev([1, 2, 4]), m.median([3, 1, 2]), str(m.NormalDist(1, 2) + 3)],
    "textwrap": lambda m: [m.fill("a long text " * 20, 30), m.dedent("  a\n   b\n"), m.shorten("one two three", 9)],
    "copy": lambda m: m.deepcopy({"a": [1, (2, {3})], "b": ValueError("x").args}),
    "pprint": lambda m: m.pformat({"a" * 30: list(range(40)), "b": {"c": ("d" * 50, {1, 2})}}, width=50),
    "string": lambda m: [m.Template("$a ${b}").safe_substitute(a=1), m.Formatter().format("{0!r:>{w}}", "x", w=9)],
    "heapq": lambda m: [m.nsmallest(3, [5, 1, 4, 2], key=lambda x: -x), m.nlargest(2, "hello")],
    "shlex": lambda m: [m.split("a 'b c' \"d\\\"e\" # f", comments=True), m.quote("a b")],
    "json.encoder": lambda m: m.JSONEncoder(indent=2, sort_keys=True).encode({"a": [1, 2.5, None], "b": {"c": "x"}}),
    "random": lambda m: (lambda r: [r.shuffle(x := list(range(9))), x, r.gauss(), r.sample(range(99), 5)])(m.Random(1)),
    "configparser": lambda m: (lambda c: [c.read_string("[a]\nx=1\ny=%(x)s2"), c["a"]["y"]])(m.ConfigParser()),
}  # fmt: skip


@pytest.mark.parametrize("name", USES)
def test_modules_whose_functions_were_put_together_again_do_the_same(name: str) -> None:
    original = types.ModuleType(name)
    module = rebuilt_module(name)
    original.__file__, original.__package__ = module.__file__, module.__package__
    code = compiled(str(module.__file__))
    assert code is not None
    exec(code, vars(original))
    assert repr(USES[name](module)) == repr(USES[name](original))
