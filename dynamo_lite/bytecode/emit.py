"""The Emitter: builds code without knowing the Python version.

Names, constants and labels go in; ``assemble`` gives a code object. A local is addressed by name with ``*_fast``, a
variable that is a cell or free in the code being built with ``*_deref`` and ``load_closure``. Invariant: each method
appends the instructions for what its name says and nothing else, at the current positions (``set_line``) and under the
current handler (``covered``).

    e = Emitter()
    e.call_prepare(); e.load_const(len); e.load_fast("x"); e.call(1); e.ret()
    code = e.assemble(name="f", filename="<f>", firstlineno=1, argnames=["x"])
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import CodeType
from typing import Any

from dynamo_lite.bytecode.assembler import (
    ARGUMENT_KIND,
    CONST,
    FREE,
    GLOBAL,
    JUMP,
    LOCAL,
    NAME,
    PLAIN,
    HandlerRef,
    Label,
    Op,
    assemble,
)
from dynamo_lite.bytecode.facts import facts
from dynamo_lite.bytecode.instructions import Instruction
from dynamo_lite.bytecode.tables import NO_POSITIONS, RawPositions

_OP = facts.OPMAP
_BINARY = {symbol: i for i, symbol in enumerate(facts.BINARY_OPS)}
_COMPARE = {symbol: i for i, symbol in enumerate(facts.COMPARE_OPS)}
_MAKE_FUNCTION_CLOSURE = 8


class Emitter:
    """Code in the making: each method appends an instruction, at the line and under the handler that are set.

    Attributes:
        ops: what has been emitted.
        positions: the place in the source of what is emitted next.
        handler: what catches exceptions of what is emitted next, if anything does.
    """

    def __init__(self) -> None:
        self.ops: list[Op] = []
        self.positions: RawPositions = NO_POSITIONS
        self.handler: HandlerRef | None = None
        self._temporaries = 0

    def __len__(self) -> int:
        return len(self.ops)

    def _emit(self, opcode: int, kind: int = PLAIN, arg: Any = 0) -> None:
        self.ops.append(Op(opcode, kind, arg, self.positions, self.handler))

    def emit(self, opname: str, arg: Any = 0) -> None:
        """Any opcode by name; `arg` symbolic as in ``Op`` (a name, a constant, a Label, a number)."""
        opcode = _OP[opname]
        self._emit(opcode, ARGUMENT_KIND.get(opcode, PLAIN), arg)

    # Where it stands

    def set_line(self, positions: RawPositions | int | None) -> None:
        """Positions of what is emitted from now on: an instruction's ``positions``, a line, or None for none."""
        if positions is None:
            self.positions = NO_POSITIONS
        elif isinstance(positions, int):
            self.positions = (positions, positions, None, None)
        else:
            self.positions = tuple(positions)  # type: ignore[assignment]

    @contextmanager
    def covered(self, label: Label, depth: int, lasti: bool = False) -> Iterator[None]:
        """What is emitted inside goes to `label` on an exception, with the stack cut to `depth`."""
        outer, self.handler = self.handler, HandlerRef(label, depth, lasti)
        try:
            yield
        finally:
            self.handler = outer

    def label(self) -> Label:
        return Label()

    def place(self, label: Label) -> None:
        assert label.position is None, "a label is placed once"
        label.position = len(self.ops)

    def temporary(self, prefix: str = "___t") -> str:
        """A name for a local that this emitter has not handed out before."""
        self._temporaries += 1
        return f"{prefix}{self._temporaries}"

    def local_names(self) -> set[str]:
        """Names of all fast locals that were used so far."""
        return {op.arg for op in self.ops if op.kind == LOCAL}

    # Values

    def load_const(self, value: Any) -> None:
        """Any object: constants are pooled by identity and need not be marshallable."""
        if type(value) is str and facts.is_interned_in_code(value) and sys.intern(value) is not value:
            # Making the code object would put the interned string, another object, in its place.
            self._emit(_OP["LOAD_CONST"], CONST, [value])
            self._emit(_OP["LOAD_CONST"], CONST, 0)
            self.subscr()
            return
        self._emit(_OP["LOAD_CONST"], CONST, value)

    def load_fast(self, name: str) -> None:
        self._emit(_OP["LOAD_FAST"], LOCAL, name)

    def store_fast(self, name: str) -> None:
        self._emit(_OP["STORE_FAST"], LOCAL, name)

    def delete_fast(self, name: str) -> None:
        self._emit(_OP["DELETE_FAST"], LOCAL, name)

    def unbind_fast(self, name: str) -> None:
        """Leave the local without a value, whether or not it has one."""
        self.push_null()
        self.store_fast(name)

    def load_deref(self, name: str) -> None:
        self._emit(_OP["LOAD_DEREF"], FREE, name)

    def store_deref(self, name: str) -> None:
        self._emit(_OP["STORE_DEREF"], FREE, name)

    def delete_deref(self, name: str) -> None:
        self._emit(_OP["DELETE_DEREF"], FREE, name)

    def load_closure(self, name: str) -> None:
        """The cell object itself."""
        self._emit(_OP["LOAD_CLOSURE"], FREE, name)

    def load_global(self, name: str, *, push_null: bool = False) -> None:
        self._emit(_OP["LOAD_GLOBAL"], GLOBAL, (name, push_null))

    def store_global(self, name: str) -> None:
        self._emit(_OP["STORE_GLOBAL"], NAME, name)

    def load_attr(self, name: str) -> None:
        self._emit(_OP["LOAD_ATTR"], NAME, name)

    def store_attr(self, name: str) -> None:
        """[value, object] -> []"""
        self._emit(_OP["STORE_ATTR"], NAME, name)

    def delete_attr(self, name: str) -> None:
        self._emit(_OP["DELETE_ATTR"], NAME, name)

    def subscr(self) -> None:
        """[object, key] -> [object[key]]"""
        self._emit(_OP["BINARY_SUBSCR"])

    def store_subscr(self) -> None:
        """[value, object, key] -> []"""
        self._emit(_OP["STORE_SUBSCR"])

    def binary(self, symbol: str) -> None:
        """`symbol` as in the source: "+", "@", "+=", ..."""
        self._emit(_OP["BINARY_OP"], PLAIN, _BINARY[symbol])

    def compare(self, symbol: str) -> None:
        """<, <=, ==, !=, >, >=, is, is not, in, not in"""
        if symbol in _COMPARE:
            self._emit(_OP["COMPARE_OP"], PLAIN, _COMPARE[symbol])
        elif symbol in ("is", "is not"):
            self._emit(_OP["IS_OP"], PLAIN, int(symbol == "is not"))
        elif symbol in ("in", "not in"):
            self._emit(_OP["CONTAINS_OP"], PLAIN, int(symbol == "not in"))
        else:
            raise KeyError(symbol)

    def get_iter(self) -> None:
        self._emit(_OP["GET_ITER"])

    def build_tuple(self, n: int) -> None:
        self._emit(_OP["BUILD_TUPLE"], PLAIN, n)

    def build_list(self, n: int) -> None:
        self._emit(_OP["BUILD_LIST"], PLAIN, n)

    def build_set(self, n: int) -> None:
        self._emit(_OP["BUILD_SET"], PLAIN, n)

    def build_map(self, n: int) -> None:
        """[key1, value1, ...] -> [dict] of n pairs"""
        self._emit(_OP["BUILD_MAP"], PLAIN, n)

    def build_slice(self, n: int) -> None:
        self._emit(_OP["BUILD_SLICE"], PLAIN, n)

    def unpack(self, n: int) -> None:
        """[sequence] -> [item n-1, ..., item 0]: the first item is on top"""
        self._emit(_OP["UNPACK_SEQUENCE"], PLAIN, n)

    # Calls: call_prepare(), then the callable, then the arguments, then call()

    def push_null(self) -> None:
        self._emit(_OP["PUSH_NULL"])

    def call_prepare(self) -> None:
        """What must lie below the callable."""
        self._emit(_OP["PUSH_NULL"])

    def call(self, npos: int, kwnames: Sequence[str] = ()) -> None:
        """`npos` positional arguments are on the stack, then one for each of `kwnames`."""
        for opcode, arg in facts.call_sequence(npos, tuple(kwnames)):
            self._emit(opcode, ARGUMENT_KIND.get(opcode, PLAIN), arg)

    def call_ex(self, has_kwargs: bool) -> None:
        """[NULL, callable, tuple] or [NULL, callable, tuple, dict] -> [result]"""
        self._emit(_OP["CALL_FUNCTION_EX"], PLAIN, int(has_kwargs))

    def make_function(self, closure: bool = False) -> None:
        """[closure tuple if asked, code] -> [function] with the frame's globals."""
        self._emit(_OP["MAKE_FUNCTION"], PLAIN, _MAKE_FUNCTION_CLOSURE if closure else 0)

    # Stack

    def dup(self) -> None:
        self._emit(_OP["COPY"], PLAIN, 1)

    def copy(self, n: int) -> None:
        """Push the n-th value from the top (1 is the top)."""
        self._emit(_OP["COPY"], PLAIN, n)

    def swap(self, n: int) -> None:
        """Exchange the top with the n-th value from the top."""
        if n > 1:
            self._emit(_OP["SWAP"], PLAIN, n)

    def pop(self) -> None:
        self._emit(_OP["POP_TOP"])

    # Control

    def ret(self) -> None:
        self._emit(_OP["RETURN_VALUE"])

    def jump(self, label: Label) -> None:
        self._emit(facts.JUMP, JUMP, label)

    def jump_if_false(self, label: Label) -> None:
        self._emit(facts.JUMP_IF_FALSE, JUMP, label)

    # Exception state

    def push_exc_info(self) -> None:
        """[exc] -> [previous, exc], and exc becomes the exception being handled."""
        self._emit(_OP["PUSH_EXC_INFO"])

    def pop_except(self) -> None:
        """[previous] -> [], and previous becomes the exception being handled."""
        self._emit(_OP["POP_EXCEPT"])

    # Whole instructions and the end

    def raw(self, instruction: Instruction, target: Label | None = None) -> None:
        """An instruction of another code object, names and constants taken along; a jump goes to `target`.

        Neither its positions nor its handler are taken over.
        """
        opcode = instruction.opcode
        kind = ARGUMENT_KIND.get(opcode, PLAIN)
        if kind == PLAIN:
            arg: Any = instruction.arg
        elif kind == GLOBAL:
            arg = (instruction.argval, instruction.push_null)
        elif kind == JUMP:
            assert target is not None, "a jump needs its label"
            arg = target
        else:
            arg = instruction.argval
        self._emit(opcode, kind, arg)

    def assemble(
        self,
        *,
        name: str,
        filename: str,
        firstlineno: int,
        qualname: str | None = None,
        argnames: Sequence[str] = (),
        freevars: Sequence[str] = (),
        cellvars: Sequence[str] = (),
        flags: int = 0x3,
        stacksize: int | None = None,
        prologue_positions: RawPositions | None = None,
    ) -> CodeType:
        """The code object; all parameters positional. The frame's set-up (cells, RESUME) is put in front.

        `prologue_positions` are the set-up's, by default those of the first line.
        """
        return assemble(
            self.ops,
            name=name,
            qualname=qualname,
            filename=filename,
            firstlineno=firstlineno,
            argnames=argnames,
            freevars=freevars,
            cellvars=cellvars,
            flags=flags,
            stacksize=stacksize,
            prologue_positions=prologue_positions,
        )
