"""The Emitter: builds code without knowing the Python version.

Names, constants and labels go in; ``assemble`` gives a code object. A local is addressed by name with ``*_fast``, a
variable that is a cell or free in the code being built with ``*_deref`` and ``load_closure``. Invariant: each method
appends the instructions for what its name says and nothing else, at the current positions (``set_line``) and under the
current handler (``covered``).

    e = Emitter()
    e.load_function(len); e.load_fast("x"); e.call(1); e.ret()
    code = e.assemble(name="f", filename="<f>", firstlineno=1, argnames=["x"])
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import CodeType
from typing import Any

from dynamo_lite.bytecode import library
from dynamo_lite.bytecode.assembler import HandlerRef, Label, Op, assemble
from dynamo_lite.bytecode.facts import facts
from dynamo_lite.bytecode.instructions import Instruction
from dynamo_lite.bytecode.library import CELL, JUMP, KINDS, LOCAL, NO_POSITIONS, SLOT, RawPositions

_BINARY = {symbol: i for i, symbol in enumerate(library.BINARY_SYMBOLS)}


class Emitter:
    """Code in the making: each method appends an instruction, at the line and under the handler that are set.

    Attributes:
        ops: the operations emitted so far.
        positions: the source positions of the next instructions.
        handler: the exception handler that covers the next instructions, or None.
    """

    def __init__(self) -> None:
        self.ops: list[Op] = []
        self.positions: RawPositions = NO_POSITIONS
        self.handler: HandlerRef | None = None
        self._temporaries = 0

    def __len__(self) -> int:
        return len(self.ops)

    def _emit(self, name: str, arg: Any = None) -> None:
        self.ops.append(Op(name, KINDS[name], arg, self.positions, self.handler))

    def _emit_all(self, sequence: Sequence[tuple[str, Any]]) -> None:
        for name, arg in sequence:
            self._emit(name, arg)

    # Where it stands

    def set_line(self, positions: RawPositions | int | None) -> None:
        """Sets the positions of the next instructions: an instruction's ``positions``, a line, or None for none."""
        if positions is None:
            self.positions = NO_POSITIONS
        elif isinstance(positions, int):
            self.positions = (positions, positions, None, None)
        else:
            self.positions = tuple(positions)  # type: ignore[assignment]

    @contextmanager
    def covered(self, label: Label, depth: int, lasti: bool = False) -> Iterator[None]:
        """Covers the instructions emitted inside: an exception goes to `label`, with the stack cut to `depth`."""
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
        return {op.arg for op in self.ops if op.kind in (LOCAL, SLOT)}

    # Values

    def load_const(self, value: Any) -> None:
        """Any object: constants are pooled by identity and need not be marshallable."""
        interned = type(value) is str and _is_interned_in_code(value) and sys.intern(value) is not value
        if interned or type(value) is frozenset:
            # Making the code object would replace it with the interned string, or a new frozenset of interned strings.
            self._emit("LOAD_CONST", [value])
            self._emit("LOAD_CONST", 0)
            self.subscr()
            return
        self._emit("LOAD_CONST", value)

    def load_fast(self, name: str) -> None:
        self._emit(facts.LOAD_LOCAL, name)

    def store_fast(self, name: str) -> None:
        self._emit("STORE_FAST", name)

    def delete_fast(self, name: str) -> None:
        self._emit("DELETE_FAST", name)

    def unbind_fast(self, name: str) -> None:
        """Leave the local without a value, whether or not it has one."""
        self.push_null()
        self.store_fast(name)

    def unbind_if(self, name: str, marker: Any) -> None:
        """Unbind the local if its value is `marker`."""
        other = self.label()
        self.load_fast(name)
        self.load_const(marker)
        self.compare("is")
        self.jump_if_false(other)
        self.delete_fast(name)
        self.place(other)

    def take_fast(self, name: str) -> None:
        """The local's value, or NULL if it has none; the local has none afterwards. Not in Python 3.11."""
        self._emit("LOAD_FAST_AND_CLEAR", name)

    def load_deref(self, name: str) -> None:
        self._emit("LOAD_DEREF", name)

    def store_deref(self, name: str) -> None:
        self._emit("STORE_DEREF", name)

    def delete_deref(self, name: str) -> None:
        self._emit("DELETE_DEREF", name)

    def load_closure(self, name: str) -> None:
        """The cell object itself."""
        self.ops.append(Op(facts.LOAD_CELL, CELL, name, self.positions, self.handler))

    def replace_cell(self, name: str) -> None:
        """Makes the cell on top of the stack the one of a cell or free variable of the code being built."""
        self.ops.append(Op("STORE_FAST", SLOT, name, self.positions, self.handler))

    def load_global(self, name: str) -> None:
        self._emit("LOAD_GLOBAL", (False, name))

    def store_global(self, name: str) -> None:
        self._emit("STORE_GLOBAL", name)

    def load_attr(self, name: str) -> None:
        self._emit("LOAD_ATTR", (False, name) if facts.METHOD_BIT else name)

    def store_attr(self, name: str) -> None:
        """[value, object] -> []"""
        self._emit("STORE_ATTR", name)

    def delete_attr(self, name: str) -> None:
        self._emit("DELETE_ATTR", name)

    def subscr(self) -> None:
        """[object, key] -> [object[key]]"""
        self._emit_all(facts.SUBSCRIPT)

    def store_subscr(self) -> None:
        """[value, object, key] -> []"""
        self._emit("STORE_SUBSCR")

    def binary(self, symbol: str) -> None:
        """`symbol` as in the source: "+", "@", "+=", ..."""
        self._emit("BINARY_OP", _BINARY[symbol])

    def compare(self, symbol: str) -> None:
        """<, <=, ==, !=, >, >=, is, is not, in, not in"""
        if symbol in library.COMPARISONS:
            self._emit("COMPARE_OP", library.COMPARISONS[symbol])
        elif symbol in ("is", "is not"):
            self._emit("IS_OP", int(symbol == "is not"))
        elif symbol in ("in", "not in"):
            self._emit("CONTAINS_OP", int(symbol == "not in"))
        else:
            raise KeyError(symbol)

    def get_iter(self) -> None:
        if facts.ITERATOR_SLOTS == 1:
            self._emit("GET_ITER", 0)
        else:
            self.load_function(iter)
            self.swap(2)
            self.swap(3)
            self.call(1)

    def loop_over(self) -> None:
        """[iterable] -> [iterator, ready for a loop]; the iterator is the one iter() makes, so all state is in it."""
        self.get_iter()
        if facts.ITERATOR_SLOTS > 1:
            self.push_null()

    def build_tuple(self, n: int) -> None:
        self._emit("BUILD_TUPLE", n)

    def build_list(self, n: int) -> None:
        self._emit("BUILD_LIST", n)

    def build_set(self, n: int) -> None:
        self._emit("BUILD_SET", n)

    def build_map(self, n: int) -> None:
        """[key1, value1, ...] -> [dict] of n pairs"""
        self._emit("BUILD_MAP", n)

    def build_slice(self, n: int) -> None:
        self._emit("BUILD_SLICE", n)

    def list_extend(self) -> None:
        """[list, iterable] -> [list]"""
        self._emit("LIST_EXTEND", 1)

    def unpack(self, n: int) -> None:
        """[sequence] -> [item n-1, ..., item 0]: the first item is on top"""
        self._emit("UNPACK_SEQUENCE", n)

    # Calls: load_function() or a callable and ready_to_call(), then the arguments, then call()

    def push_null(self) -> None:
        self._emit("PUSH_NULL")

    def load_function(self, function: Any) -> None:
        """A constant that is to be called, ready for its arguments."""
        if facts.NULL_FIRST:
            self.push_null()
            self.load_const(function)
        else:
            self.load_const(function)
            self.push_null()

    def ready_to_call(self) -> None:
        """[callable] -> the callable, ready for its arguments"""
        self.push_null()
        if facts.NULL_FIRST:
            self.swap(2)

    def call(self, npos: int, kwnames: Sequence[str] = ()) -> None:
        """`npos` positional arguments are on the stack, then one for each of `kwnames`."""
        self._emit_all(facts.call(npos, tuple(kwnames)))

    def call_ex(self, has_kwargs: bool) -> None:
        """[callable, ready for its arguments, tuple, perhaps a dict] -> [result]"""
        self._emit_all(facts.call_spread(has_kwargs))

    def make_function(self, closure: bool = False) -> None:
        """[closure tuple if asked, code] -> [function] with the frame's globals."""
        self._emit_all(facts.make_function(closure))

    # Stack

    def dup(self) -> None:
        self._emit("COPY", 1)

    def copy(self, n: int) -> None:
        """Push the n-th value from the top (1 is the top)."""
        self._emit("COPY", n)

    def swap(self, n: int) -> None:
        """Exchange the top with the n-th value from the top."""
        if n > 1:
            self._emit("SWAP", n)

    def pop(self) -> None:
        self._emit("POP_TOP")

    def begin_range(self) -> int:
        """Emits what must precede the first instruction that a handler covers; returns the number of instructions."""
        if not facts.LATE_RANGES:
            return 0
        self._emit("NOP")
        return 1

    # Control

    def ret(self) -> None:
        self._emit("RETURN_VALUE")

    def jump(self, label: Label) -> None:
        self._emit("JUMP_FORWARD", label)

    def jump_if_false(self, label: Label) -> None:
        """[value] -> []; `label` is to be placed later."""
        assert label.position is None, "jumps on a condition go forward"
        *before, (name, _) = facts.jump_if_false()
        self._emit_all(before)
        self._emit(name, label)

    # Exception state

    def push_exc_info(self) -> None:
        """[exc] -> [previous, exc], and exc becomes the exception being handled."""
        self._emit("PUSH_EXC_INFO")

    def pop_except(self) -> None:
        """[previous] -> [], and previous becomes the exception being handled."""
        self._emit("POP_EXCEPT")

    def reraise(self) -> None:
        """[exc] -> raises exc without adding a line to its traceback."""
        self._emit("RERAISE", 0)

    # Whole instructions and the end

    def raw(self, instruction: Instruction, target: Label | None = None, bound: bool = False) -> None:
        """Copies an instruction of another code object with its names and constants; a jump goes to `target`.

        Neither its positions nor its handler are taken over. With `bound`, a method of super() is loaded as NULL and a
        bound method; unchanged, the instruction loads a function and its object once the interpreter specializes it.
        """
        name = library.OPNAME[instruction.opcode]
        kind = KINDS[name]
        if kind == JUMP:
            assert target is not None, "a jump needs its label"
            arg: Any = target
        else:
            method = bound and name == "LOAD_SUPER_ATTR" and instruction.arg & 1  # type: ignore[operator]
            number = instruction.arg & ~1 if method else instruction.arg  # type: ignore[operator]
            arg = None if number is None else library.operand(name, number, instruction.argval)
            if kind == LOCAL:
                kind = SLOT
            if method:
                self.ops.append(Op(name, kind, arg, self.positions, self.handler))
                return self.ready_to_call()
        self.ops.append(Op(name, kind, arg, self.positions, self.handler))

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


def _is_interned_in_code(text: str) -> bool:
    """Whether a code object interns a text among its constants (Objects/codeobject.c, all_name_chars)."""
    return text.isascii() and text.replace("_", "a").isalnum()


def in_order(*steps: Callable[[], None]) -> Callable[[], None]:
    """A function that runs several emission steps one after another."""

    def run() -> None:
        for step in steps:
            step()

    return run
