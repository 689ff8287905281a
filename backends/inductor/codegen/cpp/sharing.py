"""Kernel deduplication: kernels that differ only in sizes are compiled once.

A convolutional network has the same few kernels at many sizes, and a first call spends most of its time on compiling.
Kernels whose texts are equal but for integer literals become one function, which takes the numbers that differ as
arguments; the function of each kernel's name calls it with that kernel's numbers. Numbers that are the same in all of
them stay in the text.

Invariant: a kernel computes the same whether it shares its function or not.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

# Tokens in which digits are looked for. Template arguments are part of the name before them, and are not taken out.
_TOKEN = re.compile(
    r"[A-Za-z_]\w*<(?:L, )?\d+>|[A-Za-z_]\w*|0x\w+|\d+\.\d*(?:e[+-]?\d+)?\w*|\d+e[+-]?\d+\w*|\d+\w+|\d+")
# Beginnings of lines whose numbers are part of a type or have to be constants.
_FIXED = ("constexpr", "alignas")
_HOLE = "\0"
# Markers in a kernel that hands its arguments on in a struct (``CppKernel.open_function``): where the struct declares,
# the inner function reads, and the kernel fills in the arguments that are added by sharing.
EXTRA_FIELDS, EXTRA_COPIES, EXTRA_VALUES = "/*fields*/", "/*copies*/", "/*values*/"
_COPIES = re.compile(rf"^( *){re.escape(EXTRA_COPIES)}\n", re.MULTILINE)


def _skeleton(text: str) -> tuple[str, tuple[str, ...]]:
    """The text with a hole in place of each integer literal, and the literals."""
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
    """The inverse of ``_skeleton``."""
    rest = iter(numbers)
    return re.sub(_HOLE, lambda _: next(rest), skeleton)


def _with_extra(text: str, names: Sequence[str]) -> str:
    """The text of a kernel whose struct of arguments also has these names as fields; the markers are gone."""
    text = text.replace(EXTRA_FIELDS, "".join(f" i64 {n};" for n in names))
    # This marker is a line of its own, which disappears if there are no names.
    text = _COPIES.sub(lambda m: "".join(f"{m[1]}const i64 {n} = own.{n};\n" for n in names), text)
    return text.replace(EXTRA_VALUES, "".join(f", {n}" for n in names))


def without_markers(text: str) -> str:
    """The text of a kernel that shares its function with no other."""
    return _with_extra(text, ())


def share(texts: Sequence[str]) -> list[str]:
    """Factors out functions that kernels have in common.

    Args:
        texts: of kernels, each one function ``KERNEL <name>(parameters) { ... }``.

    Returns:
        The texts of the same kernels in the same order. The first one of a group that shares a function is preceded by
        that function's definition.
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
        # Numbers that are equal to each other in every kernel are one argument.
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
    return [without_markers(text) for text in out]
