"""Error texts: what, where, why, what to do."""
import ast
import pathlib
import pickle
import traceback

import pytest

from dynamo_lite import exc
from dynamo_lite.break_kinds import BREAK_KINDS


def frames():
    return [traceback.FrameSummary("model.py", 40, "forward", line="y = helper(x)"),
            traceback.FrameSummary("helper.py", 7, "helper", line="  if c < 0:")]


def test_unsupported_says_what_where_why_and_how():
    e = exc.Unsupported("data_dependent_branch", "`c < 0` is a tensor")
    assert e.where == "" and "hint" in str(e)
    e.user_stack = frames()
    text = str(e)
    assert e.where == "helper.py:7 in helper"
    assert text.splitlines()[:3] == ["data-dependent control flow: `c < 0` is a tensor  [data_dependent_branch]",
                                     "  at helper.py:7 in helper", "    if c < 0:"]
    assert "model.py:40 in forward" in text and "y = helper(x)" in text and "torch.where" in text
    assert e.hint in text and e.break_kind.why in text


def test_hint_can_be_given():
    assert "do this" in str(exc.Unsupported("call_skipped", "f", hint="do this"))


def test_unknown_kind_is_a_bug():
    with pytest.raises(AssertionError, match="no_such_kind"):
        exc.Unsupported("no_such_kind", "")


def test_errors_survive_pickling():
    for e in (exc.Unsupported("call_skipped", "f", user_stack=frames()), exc.InvalidBackend("x", ["b", "a"]),
              exc.CompilerMissing("g++", "not found"), exc.BackendCompilerFailed("b", ValueError("no luck")),
              exc.CacheError("full")):
        again = pickle.loads(pickle.dumps(e))
        assert type(again) is type(e) and str(again) == str(e) and isinstance(e, RuntimeError)


def test_backend_errors_name_the_backend():
    inner = ValueError("no luck")
    e = exc.BackendCompilerFailed("mine", inner)
    assert "mine" in str(e) and "ValueError: no luck" in str(e) and e.__cause__ is inner
    e = exc.InvalidBackend("nope", ["inductor_lite", "eager"])
    assert "'nope'" in str(e) and "eager, inductor_lite" in str(e)


def test_one_line():
    assert exc.one_line("a\n   b") == "a b" and len(exc.one_line("x" * 1000)) == 200


def test_break_kinds_are_complete():
    for id, kind in BREAK_KINDS.items():
        assert id == kind.id and id.isidentifier() and id == id.lower()
        for text in (kind.what, kind.why, kind.hint):
            assert len(text) > 10 and not text.endswith(".") and "\n" not in text
    assert "data-dependent" in BREAK_KINDS["data_dependent_branch"].what


def kinds_in_the_code():
    """The literal kinds given to Unsupported and to the functions that raise it, with where."""
    for path in sorted((pathlib.Path(__file__).resolve().parent.parent / "dynamo_lite").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and ast.unparse(node.func).split(".")[-1].lower() == "unsupported":
                for part in ast.walk(node.args[0]) if node.args else ():
                    if isinstance(part, ast.Constant) and isinstance(part.value, str):
                        yield f"{path.name}:{node.lineno}", part.value


def test_every_kind_that_is_raised_is_in_the_table():
    assert not [(at, kind) for at, kind in kinds_in_the_code() if kind not in BREAK_KINDS]
