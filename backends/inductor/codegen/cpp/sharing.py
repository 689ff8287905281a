"""Kernel deduplication: kernels that differ in sizes only are compiled once.

A convolution network has the same few kernels at many sizes, and compiling is what a first call spends most of its time
on. Texts that are equal but for whole numbers become one function with the numbers that differ as arguments; each
kernel's own name then calls it with its numbers. Numbers that are the same everywhere stay in the text.

Invariant: a kernel computes the same whether it shares its function or not.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

# An argument of a template is part of the name before it.
_TOKEN = re.compile(
    r"[A-Za-z_]\w*<(?:L, )?\d+>|[A-Za-z_]\w*|0x\w+|\d+\.\d*(?:e[+-]?\d+)?\w*|\d+e[+-]?\d+\w*|\d+\w+|\d+")
# Lines whose numbers are part of a type.
_FIXED = ("constexpr", "alignas")
_HOLE = "\0"
# Where a function that hands its arguments on in a struct declares, reads and fills in those that it gets by sharing.
EXTRA_FIELDS, EXTRA_COPIES, EXTRA_VALUES = "/*fields*/", "/*copies*/", "/*values*/"
_COPIES = re.compile(rf"^( *){re.escape(EXTRA_COPIES)}\n", re.MULTILINE)


def _skeleton(text: str) -> tuple[str, tuple[str, ...]]:
    """The text with its whole numbers taken out, and the numbers."""
    numbers: list[str] = []

    def take(match: re.Match[str]) -> str:
        token = match.group()
        if not token.isdigit():
            return token
        numbers.append(token)
        return _HOLE

    lines = [line if line.lstrip().startswith(_FIXED) else _TOKEN.sub(take, line) for line in text.split("\n")]
    return "\n".join(lines), tuple(numbers)


def _fill(skeleton: str, numbers: Sequence[str]) -> str:
    rest = iter(numbers)
    return re.sub(_HOLE, lambda _: next(rest), skeleton)


def _with_extra(text: str, names: Sequence[str]) -> str:
    """The text of a function whose struct of arguments has these numbers, too."""
    text = text.replace(EXTRA_FIELDS, "".join(f" i64 {n};" for n in names))
    # A line of its own, which goes where there are none.
    text = _COPIES.sub(lambda m: "".join(f"{m[1]}const i64 {n} = own.{n};\n" for n in names), text)
    return text.replace(EXTRA_VALUES, "".join(f", {n}" for n in names))


def share(texts: Sequence[str]) -> list[str]:
    """The functions' texts with common ones factored out.

    Args:
        texts: each one function, ``KERNEL <name>(parameters) { ... }``.
    """
    groups: dict[str, list[int]] = {}
    numbers: list[tuple[str, ...]] = []
    for at, text in enumerate(texts):
        skeleton, mine = _skeleton(text)
        numbers.append(mine)
        groups.setdefault(skeleton, []).append(at)
    out = list(texts)
    shared = 0
    for skeleton, members in groups.items():
        if len(members) < 2:
            continue
        varying = [k for k in range(len(numbers[members[0]])) if len({numbers[m][k] for m in members}) > 1]
        # Equal columns are one argument.
        columns = {k: tuple(numbers[m][k] for m in members) for k in varying}
        names = {column: f"n{i}" for i, column in enumerate(dict.fromkeys(columns.values()))}
        body = list(numbers[members[0]])
        for k in varying:
            body[k] = names[columns[k]]
        function = f"shared{shared}"
        shared += 1
        head, _, rest = _fill(skeleton, body).partition("(")
        parameters, _, code = rest.partition(")")
        extra = "".join(f", const i64 {n}" for n in names.values())
        code = _with_extra(code, list(names.values()))
        definition = f"static NOINLINE_ONCE void {function}({parameters}{extra}){code}"
        pointers = ", ".join(p.split()[-1] for p in parameters.split(","))
        for position, member in enumerate(members):
            values = "".join(f", {column[position]}" for column in names)
            call = f"{head}({parameters}) {{ {function}({pointers}{values}); }}\n"
            out[member] = definition + call if position == 0 else call
    return [_with_extra(text, ()) for text in out]
