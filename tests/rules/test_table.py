"""The table of calls: who decides, what is refused, what users add, and how it is printed."""
import builtins
import os
import random
import subprocess
import sys
import types

import pytest
import torch

import dynamo_lite
from dynamo_lite import config
from dynamo_lite.debug import rules as printed
from dynamo_lite.rules import table as rules
from dynamo_lite.rules.table import Decision, Level, Rule, RuleError, decide


@pytest.fixture
def library():
    """A module of somebody's, imported; its rules are taken back."""
    module = types.ModuleType("rules_library")
    exec("import torch\n\ndef double(x):\n    return x * 2\n\ndef both(x):\n    return double(x) + 1\n\n"
         "class Box:\n    def __init__(self, x):\n        self.x = x\n", module.__dict__)
    sys.modules["rules_library"] = module
    dynamo_lite.reset()
    yield module
    for subject in (module.double, module.both, module.Box, "rules_library", "rules_library:later"):
        try:
            dynamo_lite.remove_rule(subject)
        except RuleError:
            pass
    del sys.modules["rules_library"]
    dynamo_lite.reset()


@pytest.fixture
def table(monkeypatch):
    """The table, whose rows are as before when the test has ended."""
    for name in ("_rows", "_modules", "_instances", "_waiting", "_by_module"):
        monkeypatch.setattr(rules, name, dict(getattr(rules, name)))


def captured(function, *args):
    """The result, and the break that fullgraph says; None if there is none."""
    dynamo_lite.reset()
    want = function(*args)
    try:
        got = dynamo_lite.compile(function, backend="eager", fullgraph=True)(*args)
    except dynamo_lite.exc.Unsupported as error:
        dynamo_lite.reset()
        assert torch.equal(dynamo_lite.compile(function, backend="eager")(*args), want)
        return error
    assert torch.equal(got, want)
    return None


# ---------------------------------------------------------------- who decides
@pytest.mark.parametrize("function, rule, level", [
    (torch.save, Rule.SKIP, Level.CALLABLE),
    (torch.utils.checkpoint.checkpoint, Rule.HANDLED, Level.CALLABLE),
    (random.random, Rule.RANDOM, Level.METHOD),
    (random.Random(1).getrandbits, Rule.RANDOM, Level.METHOD),
    (int.__subclasses__, Rule.HANDLED, Level.METHOD),
    (dict.fromkeys, Rule.REPLACED, Level.CALLABLE),
    (torch.nn.functional.softmax, Rule.GRAPH, Level.MODULE),
    (torch.nn.Linear.forward, Rule.INLINE, Level.MODULE),
    (torch.nn.Linear(1, 1).forward, Rule.INLINE, Level.MODULE),
    (torch.sin, Rule.GRAPH, Level.DEFAULT),
    (torch._C._set_deterministic_fill_uninitialized_memory
     if hasattr(torch._C, "_set_deterministic_fill_uninitialized_memory") else torch._C._set_warnAlways,
     Rule.SKIP, Level.DEFAULT),
    ([].append, Rule.RECEIVER, Level.DEFAULT),
    (range, Rule.HANDLED, Level.CALLABLE),
    (torch.nn.Linear, Rule.CONSTRUCTED, Level.DEFAULT),
    (lambda: 1, Rule.INLINE, Level.DEFAULT),
])
def test_the_most_particular_row_decides(function, rule, level):
    decision = decide(function)
    assert (decision.rule, decision.level) == (rule, level)


def test_users_come_first_then_the_callable_its_class_and_its_module(table, library):
    assert decide(library.double).level is Level.DEFAULT
    rules.module(Rule.GRAPH, "rules_library", reason="of the module")
    assert (decide(library.double).rule, decide(library.double).level) == (Rule.GRAPH, Level.MODULE)
    rules.breaks("input_output", library.double)
    assert decide(library.double).kind == "input_output" and decide(library.both).rule is Rule.GRAPH
    dynamo_lite.register_rule("rules_library", "inline")
    assert decide(library.both).rule is Rule.INLINE and decide(library.double).rule is Rule.SKIP
    dynamo_lite.register_rule(library.double, "constant")
    assert (decide(library.double).rule, decide(library.double).level) == (Rule.CONSTANT, Level.USER)
    dynamo_lite.remove_rule(library.double)
    dynamo_lite.remove_rule("rules_library")
    assert decide(library.double).kind == "input_output" and decide(library.both).rule is Rule.GRAPH


def test_the_row_of_a_class_is_for_its_instances(table):
    class Unhashable:
        __hash__ = None

        def __call__(self):
            return 1

    value = Unhashable()
    assert decide(value).rule is Rule.RECEIVER
    rules.instances(Rule.SKIP, Unhashable, kind="input_output")
    assert (decide(value).level, decide(value).kind) == (Level.CLASS, "input_output")
    rules.row(Rule.FOLD, value)
    assert decide(value).rule is Rule.FOLD and decide(Unhashable()).rule is Rule.SKIP


def test_asking_runs_nothing_of_the_program():
    class Loud:
        def __getattribute__(self, name):
            raise AssertionError(name)

        def __eq__(self, other):
            raise AssertionError("compared")

    class Meta(type):
        def __eq__(cls, other):
            raise AssertionError("compared")

        __hash__ = None

    assert decide(Loud()).rule is Rule.RECEIVER
    assert decide(Meta("Made", (), {})).rule is Rule.CONSTRUCTED


# ---------------------------------------------------------------- what is refused
def test_a_second_row_is_refused(table):
    with pytest.raises(RuleError, match=r"len is registered twice: at .*builtins.py:\d+ and .*test_table.py:\d+"):
        rules.handles(len)(decide(len).calls)
    with pytest.raises(RuleError, match=r"len has contradictory rules: HANDLED at .*builtins.py:\d+, SKIP at "):
        rules.breaks("input_output", len)
    with pytest.raises(RuleError, match="dict.fromkeys has contradictory"):  # made anew each time that it is read
        rules.row(Rule.FOLD, dict.fromkeys)
    with pytest.raises(RuleError, match="torch.nn.functional"):
        rules.module(Rule.INLINE, "torch.nn.functional")
    with pytest.raises(RuleError, match="numpy.random:RandomState.rand|RandomState.rand"):
        rules.row(Rule.FOLD, "numpy.random:RandomState.rand")
        decide(lambda: 1)


@pytest.mark.parametrize("add, said", [
    (lambda: rules.breaks("no_such_kind", test_a_second_row_is_refused), "no kind of break 'no_such_kind'"),
    (lambda: rules.row(Rule.HANDLED, test_a_second_row_is_refused), "HANDLED needs a function|needs function"),
    (lambda: rules.row(Rule.GRAPH, test_a_second_row_is_refused, calls=len), "GRAPH takes no function"),
    (lambda: rules.row(Rule.GRAPH, "package.name"), "with a colon"),
])
def test_a_row_that_can_not_be_is_refused(table, add, said):
    with pytest.raises(RuleError, match=said):
        add()


def test_every_rows_callable_exists():
    decide(len)
    for decision in rules.all_rows():
        assert isinstance(decision.rule, Rule) and decision.place is not None and os.path.exists(decision.place[0])
        if decision.level is Level.MODULE:
            assert decision.subject.replace("_", "").replace(".", "").isalnum()
        elif isinstance(decision.subject, str):
            home = decision.subject.partition(":")[0]
            assert home not in sys.modules, f"{decision.subject} is not found in its module"
        elif not isinstance(decision.subject, types.CodeType):
            assert callable(decision.subject)


def test_a_name_is_found_when_its_module_comes(table):
    rules.breaks("input_output", "rules_late_library:inner.write", reason="it writes")
    late = types.ModuleType("rules_late_library")
    late.inner = types.SimpleNamespace(write=lambda x: x)
    assert decide(late.inner.write).rule is Rule.INLINE
    sys.modules["rules_late_library"] = late
    try:
        assert (decide(late.inner.write).kind, decide(late.inner.write).reason) == ("input_output", "it writes")
    finally:
        del sys.modules["rules_late_library"]


# ---------------------------------------------------------------- what users say
def test_rules_of_users(library):
    def function(x):
        return library.both(x) * 3

    x = torch.ones(2)
    assert captured(function, x) is None
    dynamo_lite.register_rule(library.double, "break", kind="input_output", reason="it talks to the device")
    error = captured(function, x)
    assert error.kind == "input_output" and "it talks to the device" in error.detail
    with pytest.raises(RuleError, match="rules_library.double has contradictory rules: SKIP at .*, GRAPH at "):
        dynamo_lite.register_rule(library.double, "graph")
    dynamo_lite.remove_rule(library.double)
    with pytest.raises(RuleError, match="no rule of the user's"):
        dynamo_lite.remove_rule(library.double)
    dynamo_lite.register_rule("rules_library:double", "graph")
    assert captured(function, x) is None
    dynamo_lite.remove_rule("rules_library:double")
    dynamo_lite.register_rule("rules_library", "break", reason="a library of mine")
    assert "a library of mine" in captured(function, x).detail
    with config.patch(extra_inline_modules=("rules_library",)):
        assert captured(function, x) is None
    dynamo_lite.remove_rule("rules_library")
    assert captured(function, x) is None


def test_a_function_is_replaced(library):
    calls = []

    @dynamo_lite.rule("replace", library.double)
    def plain(x):
        calls.append("traced")
        return x + x

    def function(x):
        return library.double(x) + 1

    assert captured(function, torch.ones(2)) is None and calls == ["traced"]


def test_functions_of_c_and_classes_have_rules_of_users(library):
    def sine(x):
        return torch.sin(x) + 1

    def boxed(x):
        return library.Box(x).x + 1

    x = torch.ones(2)
    assert captured(sine, x) is None and captured(boxed, x) is None
    dynamo_lite.register_rule(torch.sin, "break", reason="to look at it")
    try:
        assert "to look at it" in captured(sine, x).detail
    finally:
        dynamo_lite.remove_rule(torch.sin)
    dynamo_lite.register_rule(library.Box, "break", kind="input_output", reason="it opens a file")
    assert "it opens a file" in captured(boxed, x).detail


def test_a_decorated_function():
    @dynamo_lite.rule("break", reason="it waits")
    def wait(x):
        return x + 1

    error = captured(lambda x: wait(x) * 2, torch.ones(2))
    assert error.kind == "call_skipped" and "it waits" in error.detail


@pytest.mark.parametrize("arguments, error, said", [
    ((3, "graph"), TypeError, "not for 3"),
    ((len, "grpah"), RuleError, "no rule 'grpah'; the rules are graph, inline"),
    (("package", "constant"), RuleError, "the rules for a module are"),
    ((dict, "graph"), RuleError, "the rules for a class are"),
    (("sys:no_such_function", "graph"), RuleError, "no such callable in sys"),
    ((len, "replace"), RuleError, "needs"),
])
def test_rules_that_users_can_not_give(arguments, error, said):
    with pytest.raises(error, match=said):
        dynamo_lite.register_rule(*arguments)


def test_a_rule_does_not_keep_its_function():
    import weakref

    def function(x):
        return x

    dynamo_lite.register_rule(function, "break")
    gone = weakref.ref(function)
    count = len(rules._of_users)
    del function
    assert gone() is None and len(rules._of_users) == count - 1


# ---------------------------------------------------------------- printed
def test_what_is_printed():
    text = printed.show("torch.save")
    assert "breaks the graph" in text and "input_output" in text and "it reads or writes files" in text
    assert "a row of its own, at dynamo_lite/variables/torch_api/torch_functions.py:" in text
    assert "the row of the module torch.nn.functional, at dynamo_lite/rules/trace_rules.py:" in (
        printed.show("torch.nn.functional.softmax"))
    assert "dynamo_lite.variables.functions.builtins._len" in printed.show("len")
    assert "chain" in printed.show("itertools:chain") and "inlined" in printed.show("torch.optim")
    assert "_random.Random.random" in printed.show("random.random")
    lines = printed.show_all().splitlines()
    assert len(lines) > 400 and lines == sorted(lines, key=str.lower)
    assert any(line.startswith("torch.serialization.save: SKIP [input_output]") for line in lines)


@pytest.mark.parametrize("name, said", [
    ("torch.sav", "torch has no 'sav'; did you mean save"), ("no_such_thing", "no no_such_thing"),
    ("torch.pi", "torch.pi is no module and can't be called"), ("", "there is no "),
])
def test_an_unknown_name(name, said):
    with pytest.raises(printed.UnknownName, match=said):
        printed.show(name)


def test_the_command():
    def run(*arguments):
        command = [sys.executable, "-m", "dynamo_lite", "rules", *arguments]
        return subprocess.run(command, capture_output=True, text=True)

    done = run("torch.save")
    assert done.returncode == 0 and "input_output" in done.stdout, done.stderr
    done = run("torch.sav")
    assert done.returncode == 2 and "did you mean save" in done.stderr and not done.stdout


def test_builtin_functions_that_nothing_is_said_of():
    """What has no row breaks, and says so."""
    assert decide(builtins.aiter).rule is Rule.RECEIVER
    assert Decision(Rule.INLINE).where() == "the defaults of rules.table"
