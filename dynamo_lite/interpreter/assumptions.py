"""Branches on a tensor of which one side only raises: ``if not valid.all(): raise ValueError(...)``, ``assert ok``.

The trace goes on along the other side, and the graph checks that this is where the program goes; where it is not, the
graph raises and the frame runs again in plain Python (``deoptimize``), which raises as the program says. Invariant: a
check stands only in graphs after which a frame can run again.
"""
from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from ..exc import Unsupported
from ..variables.base import VariableTracker
from ..variables.constant import ConstantVariable
from ..variables.numbers.running_sizes import take_for_granted
from ..variables.numbers.scalars import ScalarVariable
from ..variables.tensors.learned_elements import ValuesNeeded
from ..variables.tensors.tensor import TensorVariable, record

if TYPE_CHECKING:
    from ..variables.protocols import Tracer
    from .translator import Translator

# The opcodes allowed between a branch and its raise: they compute the exception and have no other effect.
_HARMLESS = frozenset({
    "LOAD_CONST", "LOAD_FAST", "LOAD_GLOBAL", "LOAD_DEREF", "LOAD_ATTR", "LOAD_METHOD", "LOAD_ASSERTION_ERROR",
    "PUSH_NULL", "PRECALL", "CALL", "CALL_KW", "KW_NAMES", "FORMAT_VALUE", "CONVERT_VALUE", "FORMAT_SIMPLE",
    "FORMAT_WITH_SPEC", "BUILD_STRING", "BUILD_TUPLE", "BUILD_LIST", "STORE_FAST", "UNARY_INVERT", "UNARY_NEGATIVE",
    "COMPARE_OP", "BINARY_OP", "BINARY_SUBSCR", "BINARY_SLICE", "SWAP", "COPY", "NOP", "NOT_TAKEN", "RESUME",
})
_MESSAGE = "a branch that raises was taken"


def branch(tx: Translator, value: VariableTracker, when_true: int, when_false: int) -> bool:
    """Whether the condition of a conditional jump is taken to be true.

    Args:
        value: the condition.
        when_true, when_false: the instructions at which the program goes on.
    """
    if isinstance(value, ScalarVariable) and value.origins is None:
        return _branch_on_number(tx, value, (_only_raises(tx, when_true), _only_raises(tx, when_false)))
    if not isinstance(value, TensorVariable):
        return tx.truth(value)
    raising = _only_raises(tx, when_true), _only_raises(tx, when_false)
    try:
        # Prefer a check in the graph to a guard on the tensor's elements.
        with tx.output.value_guards.none_learned(unless=raising[0] == raising[1]):
            return tx.truth(value)
    except Unsupported as error:
        if type(error) not in (Unsupported, ValuesNeeded) or error.kind != "data_dependent_branch":
            raise
        if value.fake.numel() != 1 or raising[0] == raising[1]:
            raise
    _assume(tx, value, raising[1])
    return raising[1]


def _branch_on_number(tx: Translator, value: ScalarVariable, raising: tuple[bool, bool]) -> bool:
    try:
        return tx.truth(value)
    except Unsupported as error:
        if type(error) is not Unsupported or error.kind != "data_dependent_branch":
            raise
        if value.cls is not bool or raising[0] == raising[1]:
            raise
    take_for_granted(tx, value, raising[1])
    return raising[1]


def _only_raises(tx: Translator, index: int) -> bool:
    instructions = tx.decoded.instructions
    while index < len(instructions) and instructions[index].opname in _HARMLESS:
        index += 1
    return index < len(instructions) and instructions[index].opname == "RAISE_VARARGS"


def _assume(tx: Tracer, value: TensorVariable, truth: bool) -> None:
    condition: VariableTracker = value
    if not truth:
        condition = record(tx, "call_function", torch.logical_not, [value], {})
    if condition.fake.dim():  # type: ignore[attr-defined]
        condition = record(tx, "call_method", "reshape", [condition, tx.values.new_tuple([])], {})
    tx.output.assume(tx.root_visit())
    record(tx, "call_function", torch._assert_async, [condition, ConstantVariable(_MESSAGE)], {})
