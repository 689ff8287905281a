"""Steps that read sizes and compare expressions over them."""
import operator
import random
import subprocess
import sys
import textwrap

import pytest
import torch
from guard_programs import holds

from dynamo_lite import _guards as G

LOADS = (("load_local", 0, 0), ("load_size", 1, 0, 0), ("load_size", 2, 0, 1))
PUSH, LOAD, ADD, MUL, FLOORDIV, MOD = range(6)
EQUAL, DIFFERENT, NOT_NEGATIVE = range(3)


def relation(*program, comparison=EQUAL, registers=(1, 2)):
    return ("relation", registers, program, comparison)


def test_sizes_and_strides_are_read():
    t = torch.empty(3, 5).t()
    for dim in range(2):
        assert holds(("load_local", 0, 0), ("load_size", 1, 0, dim), ("const", 1, t.shape[dim]), args=(t,))
        assert holds(("load_local", 0, 0), ("load_stride", 1, 0, dim), ("const", 1, t.stride(dim)), args=(t,))
    for step in (("load_size", 1, 0, 2), ("load_stride", 1, 0, 7), ("load_size", 1, 0, -1)):
        assert not holds(("load_local", 0, 0), step, args=(t,))
    for other in ("text", torch.empty(2, 2).to_sparse(), None):
        assert not holds(("load_local", 0, 0), ("load_size", 1, 0, 0), args=(other,))


@pytest.mark.parametrize("comparison, name", [(EQUAL, "eq"), (DIFFERENT, "ne"), (NOT_NEGATIVE, "ge")])
def test_comparisons(comparison, name):
    for n in (2, 3, 4):
        step = relation((LOAD, 0), (PUSH, -3), (ADD, 0), comparison=comparison)
        assert holds(*LOADS, step, args=(torch.empty(n, 1),)) == getattr(operator, name)(n - 3, 0)


def test_random_expressions():
    draw = random.Random(0)
    functions = {ADD: operator.add, MUL: operator.mul, FLOORDIV: operator.floordiv, MOD: operator.mod}
    for _ in range(300):
        sizes = [draw.randrange(1, 9) for _ in range(2)]
        program, stack = [], []
        for _ in range(draw.randrange(1, 12)):
            if len(stack) < 2 or draw.random() < 0.5:
                index = draw.randrange(3)
                number = draw.randrange(-9, 9)
                program.append((PUSH, number) if index == 2 else (LOAD, index))
                stack.append(number if index == 2 else sizes[index])
            else:
                code = draw.choice([*functions])
                b, a = stack.pop(), stack.pop()
                program.append((code, 0))
                stack.append(functions[code](a, b) if code in (ADD, MUL) or b > 0 else None)
                if stack[-1] is None:
                    break
        if stack[-1] is None:  # divided by less than one
            program += [(ADD, 0)] * (len(stack) - 1)
            assert not holds(*LOADS, relation(*program, comparison=NOT_NEGATIVE), args=(torch.empty(sizes),))
            continue
        value = sum(stack)
        program += [(ADD, 0)] * (len(stack) - 1)
        for wanted in (value, value + 1):
            step = relation(*program, (PUSH, -wanted), (ADD, 0))
            assert holds(*LOADS, step, args=(torch.empty(sizes),)) == (wanted == value), (program, sizes)


def test_overflow_does_not_hold():
    big = (1 << 62)
    for code, number in ((ADD, big), (MUL, 4)):
        step = relation((PUSH, big), (PUSH, number), (code, 0), comparison=DIFFERENT)
        assert not holds(*LOADS, step, args=(torch.empty(2, 2),))
    for value in (1 << 70, 2.0, True, "2"):
        assert not holds(("load_local", 0, 0), relation((LOAD, 0), comparison=DIFFERENT, registers=(0,)), args=(value,))


@pytest.mark.parametrize("step", [
    relation(), relation((ADD, 0)), relation((LOAD, 2)), relation((LOAD, 0), (LOAD, 1)), relation((9, 0)),
    relation((PUSH, 1), comparison=3), relation((PUSH, 1), registers=(1, 9)), relation(*[(PUSH, 1)] * 40),
    ("relation", (1,)), ("relation", [1], ((0, 1),), 0), ("relation", (7,), ((1, 0),), 0), relation((PUSH, "1")),
])
def test_malformed_relations_are_refused(step):
    if step[1:] == ((1, 9), ((PUSH, 1),), EQUAL):
        return  # registers that no code reads are not looked at
    with pytest.raises((ValueError, TypeError)):
        G.GuardProgram([*LOADS, step], 0, 4)


def test_strides_that_follow_from_sizes():
    spec = list(G.tensor_spec(torch.empty(3, 4, 5)))

    def fits(t, strides):
        step = ("tensor", 0, type(t), *spec[:4], (None, None, None), strides, None, 0)
        return holds(("load_local", 0, 0), step, args=(t,))

    dense, last = ((1,), (2,), 1), (1, (2,), (0,))
    for sizes in ((3, 4, 5), (7, 2, 9), (2, 2, 2)):
        assert fits(torch.empty(sizes), dense) and not fits(torch.empty(sizes).transpose(0, 1), dense)
        assert not fits(torch.empty(sizes), last)
        assert fits(torch.empty(sizes[::-1]).permute(2, 1, 0), (1, (0,), (1,)))
    assert not fits(torch.empty(3, 4, 6)[..., :5], dense)
    with pytest.raises(ValueError):
        fits(torch.empty(3, 4, 5), ((3,), 1, 1))


def test_sizes_are_read_only_where_torch_is_known():
    """A process that has not told the extension about torch gets an error in place of a program."""
    made = textwrap.dedent(f"""
        import importlib.machinery, importlib.util
        loader = importlib.machinery.ExtensionFileLoader("_guards", {G.__file__!r})
        G = importlib.util.module_from_spec(importlib.util.spec_from_loader("_guards", loader))
        loader.exec_module(G)
        for name in ("load_size", "load_stride"):
            try:
                G.GuardProgram((("load_local", 0, 0), (name, 1, 0, 0)), 0, 2)
            except RuntimeError as e:
                print(e)
        G.GuardProgram((("load_local", 0, 0), ("relation", (0,), ((1, 0),), 1)), 0, 1)
    """)
    done = subprocess.run([sys.executable, "-S", "-c", made], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("init_torch(torch) has not been called") == 2
