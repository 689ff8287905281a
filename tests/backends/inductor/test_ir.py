"""Index arithmetic, nodes, the checker, the interpreter."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dynamo_lite.backends.inductor.ir import index as ix
from dynamo_lite.backends.inductor.ir.checker import MalformedIR, check_nest
from dynamo_lite.backends.inductor.ir.interpreter import run_nest
from dynamo_lite.backends.inductor.ir.loops import Buffer, LoopNest
from dynamo_lite.backends.inductor.ir.nodes import Builder, walk, widens
from dynamo_lite.backends.inductor.ir.ops import HALF, OPS
from dynamo_lite.backends.inductor.ir.substitution import evaluate_index, substitute
from dynamo_lite.backends.inductor.ir.symbolic import index_of
from dynamo_lite.symbols.environment import Environment
from dynamo_lite.symbols.nodes import IntNode

SIZES = (2, 3, 4, 6, 12)
VARS = [ix.Var(f"i{k}", n) for k, n in enumerate(SIZES)]


@st.composite
def indices(draw, depth=3):
    """A non-negative index and a function of the variables' values that computes it by Python's own arithmetic."""
    kind = (
        draw(st.sampled_from(["var", "const", "add", "mul", "div", "mod"]))
        if depth
        else draw(st.sampled_from(["var", "const"]))
    )
    if kind == "var":
        v = draw(st.sampled_from(VARS))
        return ix.atom(v), lambda env: env[v]
    if kind == "const":
        k = draw(st.integers(0, 30))
        return k, lambda env: k
    a, fa = draw(indices(depth - 1))
    if kind == "add":
        b, fb = draw(indices(depth - 1))
        return ix.add(a, b), lambda env: fa(env) + fb(env)
    k = draw(st.sampled_from([1, 2, 3, 4, 6, 12]))
    if kind == "mul":
        return ix.mul(a, k), lambda env: fa(env) * k
    if kind == "div":
        return ix.floordiv(a, k), lambda env: fa(env) // k
    return ix.mod(a, k), lambda env: fa(env) % k


@settings(max_examples=300, deadline=None)
@given(indices(), st.data())
def test_index_arithmetic_is_pythons(made, data):
    index, fn = made
    env = {v: data.draw(st.integers(0, v.size - 1)) for v in VARS}
    assert evaluate_index(index, env) == fn(env)
    bounds = ix.value_range(index)
    if bounds is not None:
        assert bounds[0] <= fn(env) <= bounds[1]


@settings(max_examples=100, deadline=None)
@given(indices(), indices(2), st.data())
def test_substitution(made, other, data):
    index, fn = made
    new, new_fn = other
    v = data.draw(st.sampled_from(VARS))
    env = {w: data.draw(st.integers(0, w.size - 1)) for w in VARS}
    # What replaces a variable stays in its range.
    new, value = ix.mod(new, v.size), new_fn(env) % v.size
    assert evaluate_index(substitute(index, {v: new}), env) == fn({**env, v: value})


def test_reshapes_leave_no_division():
    i, j = ix.var("i", 6), ix.var("j", 10)
    flat = ix.dot((i, j), ix.contiguous_strides((6, 10)))
    there = ix.unflatten(flat, (2, 3, 10))
    back = ix.unflatten(ix.dot(there, (30, 10, 1)), (6, 10))
    assert back == (i, j)
    assert ix.unflatten(flat, (6, 10)) == (i, j)


def test_symbolic_sizes():
    s = ix.atom(ix.Sym("s0"))
    i, j = ix.var("i", s), ix.var("j", 64)
    flat = ix.dot((i, j), ix.contiguous_strides((s, 64)))
    assert ix.unflatten(flat, (s, 64)) == (i, j)
    merged = ix.dot((j, i), ix.contiguous_strides((64, s)))
    assert ix.unflatten(merged, (64, s)) == (j, i)


def test_torchs_symbolic_sizes_are_indices():
    env = Environment()
    n = torch.SymInt(IntNode(env, env.new("s0", 5, 2)))
    s = ix.atom(ix.Sym("s0"))
    assert index_of(n) == s and index_of(n * n + 1) == ix.add(ix.mul(s, s), 1) and index_of(n // 3) == ix.floordiv(s, 3)
    assert index_of(7) == 7 and type(index_of(torch.Size([7])[0])) is int
    with pytest.raises(NotImplementedError, match="only the running graph"):
        index_of(torch.SymInt(object()))


def test_coefficient_and_affine_terms():
    i, j = ix.Var("i", 4), ix.Var("j", 5)
    index = ix.add(ix.mul(ix.atom(i), 5), ix.add(ix.atom(j), 7))
    assert ix.coefficient(index, i) == 5 and ix.coefficient(index, j) == 1
    assert ix.affine_terms(index) == ({i: 5, j: 1}, 7)
    assert ix.coefficient(ix.floordiv(index, 3), i) is None
    assert ix.affine_terms(ix.mod(index, 3)) is None


def test_equal_nodes_are_one_node():
    b = Builder()
    x, y = b.load("x", ix.var("i", 4), torch.float32), b.load("y", 0, torch.float32)
    assert b.op("add", x, y) is b.op("add", x, y) and b.op("add", x, y) is not b.op("add", y, x)
    assert b.const(0.0, torch.float32) is not b.const(-0.0, torch.float32)
    assert b.const(1, torch.int64) is not b.const(1, torch.int32)
    assert b.const(float("nan"), torch.float32) is b.const(float("nan"), torch.float32)
    node = b.op("mul", b.op("add", x, y), x)
    assert [n.op for n in walk((node,))] == ["load", "load", "add", "mul"]
    moved = b.substitute(node, {ix.Var("i", 4): 2})
    assert moved.args[1].attr == ("x", 2) and not moved.vars


def test_casts_fold_only_where_nothing_is_lost():
    b = Builder()
    x = b.load("x", 0, torch.bfloat16)
    assert b.cast(b.cast(x, torch.float32), torch.bfloat16) is x
    y = b.load("y", 0, torch.float32)
    assert b.cast(b.cast(y, torch.bfloat16), torch.float32) is not y
    for narrow in HALF:
        assert widens(narrow, torch.float32) and not widens(torch.float32, narrow)
    assert (
        not widens(torch.int64, torch.float64)
        and widens(torch.int32, torch.float64)
        and not widens(torch.uint8, torch.int8)
    )


def test_choices_are_made_in_16_bits_only_of_numbers_that_were_widened():
    b = Builder()
    x, mask = b.load("x", 0, torch.float16), b.load("m", 0, torch.bool)
    wide = b.op("where", mask, b.cast(x, torch.float32), b.const(7.0, torch.float32))
    assert b.cast(wide, torch.float16).op == "where"
    whole = b.op("where", mask, b.cast(x, torch.int8), b.const(7, torch.int8))
    assert b.cast(whole, torch.float16).op == "cast"  # 1.5 has become 1
    truth = b.op("where", mask, b.load("n", 0, torch.bool), b.const(True, torch.bool))
    assert b.cast(truth, torch.float16).dtype is torch.float16


def nest(value, dims, index, **rest):
    return LoopNest(Buffer("out", tuple(v.size for v in dims), (), value.dtype), dims, value, index, **rest)


def test_the_checker_finds_faults_and_quotes_the_nest():
    b = Builder()
    i, j = ix.Var("i", 4), ix.Var("j", 5)
    x = b.load("x", ix.atom(i), torch.float32)
    check_nest(nest(x, (i,), ix.atom(i)))
    with pytest.raises(MalformedIR, match="variable of no loop"):
        check_nest(nest(x, (j,), ix.atom(j)))
    with pytest.raises(MalformedIR, match="isn't kept"):
        check_nest(nest(x, (i,), ix.atom(i), kind="sum", reduced=(i,)))
    mixed = b._node("add", torch.float32, (x, b.const(1, torch.int64)))
    with pytest.raises(MalformedIR, match=r"mixes dtypes[\s\S]*for i<4"):
        check_nest(nest(mixed, (i,), ix.atom(i)))
    half = b.load("h", ix.atom(i), torch.bfloat16)
    with pytest.raises(MalformedIR, match="can't be computed"):
        check_nest(nest(b._node("add", torch.bfloat16, (half, half)), (i,), ix.atom(i)))
    with pytest.raises(MalformedIR, match="no reduction"):
        check_nest(nest(x, (i,), 0, kind="median", reduced=(i,)))


def test_the_interpreter():
    b = Builder()
    i, j = ix.Var("i", 3), ix.Var("j", 4)
    x = torch.arange(12.0)
    load = b.load("x", ix.add(ix.mul(ix.atom(i), 4), ix.atom(j)), torch.float32)
    memory = {"x": x}
    run_nest(LoopNest(Buffer("s", (3,), (1,), torch.float32), (i, j), load, ix.atom(i), "sum", (j,)), memory)
    run_nest(
        LoopNest(Buffer("a", (4,), (1,), torch.int64), (i, j), load, ix.atom(j), "argmax", (i,), ix.atom(i)), memory
    )
    guarded = b.op(
        "where",
        b.inside(ix.atom(j), 1, 3),
        b.load("x", ix.add(ix.atom(j), 100), torch.float32),
        b.const(7, torch.float32),
    )
    run_nest(LoopNest(Buffer("g", (4,), (1,), torch.float32), (j,), guarded, ix.atom(j)), memory)
    assert (
        memory["s"].tolist() == [6, 22, 38]
        and memory["a"].tolist() == [2] * 4
        and memory["g"].tolist() == [7, 11, 11, 7]
    )


def test_every_operation_has_a_reference_that_keeps_the_dtype():
    for info in OPS.values():
        for dtype in info.dtypes:
            args = [torch.ones(2, dtype=dtype) for _ in range(info.arity)]
            if info.name == "where":
                args[0] = args[0].bool()
            assert info.reference(*args).dtype is (torch.bool if info.result == "bool" else dtype), info.name
