"""Guard programs as a whole: every step is known, malformed ones are refused, nothing leaks."""
import gc
import sys
import weakref
from pathlib import Path

import pytest
import torch
from guard_programs import Plain, program

from dynamo_lite import _guards as G


def test_every_step_is_documented_and_tested():
    text = "".join(path.read_text() for path in Path(__file__).parent.glob("test_*.py"))
    stub = open(G.__file__.rsplit("/", 1)[0] + "/_guards.pyi").read()
    for op in G.OPS:
        assert f'"{op}"' in text, op
        assert f'("{op}"' in stub, op


# ---------------------------------------------------------------- making programs
@pytest.mark.parametrize(
    "steps, n_inputs, n_registers, message",
    [
        ([("nonsense", 0)], 0, 1, "unknown operation"),
        ([()], 0, 1, "non-empty tuple"),
        ([["load_local", 0, 0]], 0, 1, "non-empty tuple"),
        ([("load_local", 1, 0)], 0, 1, "out of range"),
        ([("load_local", -1, 0)], 0, 1, "out of range"),
        ([("type_is", 0, int)], 0, 1, "not written before"),
        ([("load_local", 0, 0), ("load_local", 0, 0)], 0, 1, "written twice"),
        ([("load_local", 0)], 0, 1, "number of operands"),
        ([("load_local", 0, 0, 0)], 0, 1, "number of operands"),
        ([("load_local", 0, 0), ("type_is", 0, 5)], 0, 1, "expected a type"),
        ([("load_local", 0, 0), ("collect", 0, 1)], 1, 1, "malformed"),
        ([("load_local", 0, 0), ("collect", 0, 0), ("collect", 0, 0)], 1, 1, "malformed"),
        ([("load_local", 0, 0)], 1, 1, "no step collects input 0"),
        ([("load_local", 0, 0), ("not_same", [1])], 0, 2, "not written before"),
        ([("load_builtin", 0, 5)], 0, 1, "expected a name"),
        ([("callable_eq", 5, (), 1)], 0, 1, "callable"),
        ([("global_state", 1, 2)], 0, 1, "current_global_state"),
        ([], -1, 0, "not negative"),
    ],
)
def test_malformed_programs_are_refused(steps, n_inputs, n_registers, message):
    with pytest.raises(ValueError, match=message):
        G.GuardProgram(steps, n_inputs, n_registers)


def test_wrong_operand_types():
    for step in [("load_local", "x", 0), ("load_local", 0, "x")]:
        with pytest.raises(TypeError):
            G.GuardProgram([step], 0, 1)
    for step in [("tensor", 0, 5), ("class_version", 0, [5])]:
        with pytest.raises(TypeError):
            G.GuardProgram([("load_local", 0, 0), step], 0, 1)
    with pytest.raises(TypeError):
        program().check([], None, {}, {})


def test_attributes():
    steps = [("load_local", 0, 0), ("collect", 0, 0)]
    p = G.GuardProgram(steps, 1, 1)
    assert p.steps == tuple(steps) and p.n_inputs == 1 and p.n_registers == 1 and "2 steps" in repr(p)


def test_many_registers():
    n = 500
    p = program(*(("load_local", i, i) for i in range(n)), *(("collect", i, n - 1 - i) for i in range(n)), inputs=n)
    assert p.check(tuple(range(n)), None, {}, {}) == (True, tuple(reversed(range(n))))
    assert p.check(tuple(range(n - 1)), None, {}, {}) == (False, n - 1)


# ---------------------------------------------------------------- leaks
def all_kinds_of_steps(o, t):
    return [
        ("load_local", 0, 0),
        ("load_instance_dict", 1, 0),
        ("load_dict_item", 2, 1, "x"),
        ("load_const", 3, o),
        ("load_const", 4, type(o)),
        ("is", 0, o),
        ("dict_keys", 1, ("x", "me")),
        ("set_items", 2, frozenset({o})),
        ("no_hooks", 0, ("none",)),
        ("callable_eq", len, ((o,),), 1),
        ("class_version", 4, [("x", G.MISSING)]),
        ("not_same", [0, 1]),
        ("load_local", 5, 1),
        ("tensor", 5, type(t), *G.tensor_spec(t), False, 7),
        ("global_state", G.current_global_state()),
        ("callable_eq", type, (o,), type(o)),
        ("collect", 0, 0),
        ("collect", 5, 1),
    ]


def test_programs_in_cycles_are_collected():
    class Local(Plain):
        pass

    o = Local()
    o.x = {o}
    t = torch.ones(2)
    o.me = G.GuardProgram(all_kinds_of_steps(o, t), 2, 6)
    assert o.me.check((o, t), None, {}, {}) == (True, (o, t))
    ref, class_ref = weakref.ref(o), weakref.ref(Local)
    del o, Local
    gc.collect()
    assert ref() is None and class_ref() is None


def test_checks_leave_reference_counts_as_they_were():
    class Local(Plain):
        pass

    o = Local()
    o.x, o.me = {o}, None
    t = torch.ones(2)
    p = G.GuardProgram(all_kinds_of_steps(o, t), 2, 6)
    watched = [o, t, Local, o.x, o.__dict__, p]

    def run():
        for _ in range(50):
            assert p.check((o, t), None, {}, {})[0]
            assert not p.check((t, o), None, {}, {})[0]
            assert not p.check((o, o), None, {}, {})[0]
            assert not p.check((), None, {}, {})[0]

    run()
    before = [sys.getrefcount(w) for w in watched]
    run()
    assert [sys.getrefcount(w) for w in watched] == before


def test_malformed_programs_do_not_leak():
    o = Plain()
    steps = [("load_const", 0, o)]
    count = sys.getrefcount(o)
    for i in range(100):
        with pytest.raises((ValueError, TypeError)):
            G.GuardProgram([*steps, ("tensor", 0, torch.Tensor, o)], 0, 2)
        with pytest.raises(ValueError):
            G.GuardProgram([*steps, ("nonsense", o)], 0, 2)
    del i
    assert sys.getrefcount(o) == count
