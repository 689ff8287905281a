"""Variables of inlined comprehensions that share a name with a cell or free variable of their function.

Such a comprehension (PEP 709) puts the cell aside, keeps plain values in its slot and gives the cell back afterwards;
or the code has two slots of one name. Decoded instructions show neither: the comprehension's variable gets a name and a
slot of its own, and the cell stays in its slot. A comprehension whose variable is itself a cell creates that cell in
the shared slot, and is decoded unchanged.

Invariant: each name of a decoded code object is either that of a plain local or that of a cell, everywhere.
"""

from __future__ import annotations

import dis
from collections.abc import Collection, Sequence
from typing import Any

# Suffix that makes a name which no program can contain.
_MARK = "'"

# Per stack slot with a saved local: the name under which it was saved, and the names that were hidden at that time.
_Stack = tuple[tuple[str, frozenset[str]] | None, ...]


def hidden_name(name: str) -> str:
    """The name of a comprehension's variable that would hide a cell."""
    return name + _MARK


def said_name(name: str) -> str:
    """The name as it is written in the program."""
    return name.removesuffix(_MARK)


def two_cells(name: str) -> str:
    """Why code with a cell named like a free variable is not captured."""
    return f"a comprehension puts a cell of its own in place of the free variable {name!r}, and leaves it there"


def own_slots(varnames: tuple[str, ...], freevars: tuple[str, ...]) -> tuple[str, ...]:
    """The names of locals; one that is also a free variable's is a comprehension's variable and is renamed."""
    shared = {*varnames}.intersection(freevars) if freevars else ()
    return tuple(hidden_name(n) if n in shared else n for n in varnames) if shared else varnames


def name_hidden(instructions: Sequence[Any], closed: Collection[str]) -> tuple[str, ...]:
    """Renames variables of comprehensions that use slots of the cells and free variables `closed`; returns the names.

    Args:
        instructions: those of a code object, handlers and targets attached.
    """
    if not any(i.opname == "LOAD_FAST_AND_CLEAR" and i.argval in closed for i in instructions):
        return ()
    names: dict[str, None] = {}
    seen: set[int] = set()
    pending: list[tuple[int, _Stack, frozenset[str]]] = [(0, (), frozenset())]
    while pending:
        index, stack, hidden = pending.pop()
        while index < len(instructions) and index not in seen:
            seen.add(index)
            instruction = instructions[index]
            handler = instruction.handler
            if handler is not None:
                above = 2 if handler.lasti else 1
                pending.append((handler.target, (*stack[: handler.depth], *[None] * above), hidden))
            if instruction.target is not None:
                pending.append((instruction.target, _after(instruction, stack, True), hidden))
            if instruction.opname in _LEAVES:
                break
            following = instructions[index + 1] if index + 1 < len(instructions) else None
            stack, hidden = _step(instruction, following, stack, hidden, closed, names)
            index += 1
    return tuple(names)


_LEAVES = frozenset({
    "JUMP_FORWARD", "JUMP_BACKWARD", "JUMP_BACKWARD_NO_INTERRUPT", "RETURN_VALUE", "RAISE_VARARGS", "RERAISE",
})  # fmt: skip


def _step(
    instruction: Any, following: Any, stack: _Stack, hidden: frozenset[str], closed: Collection[str],
    names: dict[str, None],
) -> tuple[_Stack, frozenset[str]]:
    """What is on the stack, and hidden, after an instruction, which is renamed if that is due."""
    name, put_aside = instruction.argval, None
    before = stack
    stack = _after(instruction, stack, False)
    if instruction.opname == "LOAD_FAST_AND_CLEAR" and name in closed:
        put_aside, before_it = name, hidden
        if following.opname == "MAKE_CELL":
            hidden = hidden - {name}
        else:
            put_aside, hidden = hidden_name(name), hidden | {name}
        instruction.argval = put_aside
        stack = (*stack[:-1], (put_aside, before_it))
    elif instruction.opname == "STORE_FAST" and before and before[-1] is not None:
        instruction.argval, hidden = before[-1]
        put_aside = instruction.argval
    elif instruction.opname in ("LOAD_FAST", "STORE_FAST", "DELETE_FAST") and name in hidden:
        instruction.argval = put_aside = hidden_name(name)
    if put_aside is not None and put_aside not in closed:
        names[put_aside] = None
    return stack, hidden


def _after(instruction: Any, stack: _Stack, jumps: bool) -> _Stack:
    if instruction.opname == "SWAP":
        changed = list(stack)
        changed[-1], changed[-instruction.arg] = changed[-instruction.arg], changed[-1]
        return tuple(changed)
    size = len(stack) + dis.stack_effect(instruction.opcode, instruction.arg, jump=jumps)
    return stack[:size] if size <= len(stack) else stack + (None,) * (size - len(stack))
