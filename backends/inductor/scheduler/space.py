"""Iteration spaces: when the loops of two nests can be fused.

A space is the ordered list of a nest's loop sizes. Two spaces of equal volume can share loops if one list of sizes
refines both: (512, 768) and (4, 128, 768) are both refined by (4, 128, 768). Both nests then become loops over that
list, and each nest's own variables are combinations of the variables of the refined loops.

Invariant: two nests share a space only if each iteration of either corresponds to exactly one point of it.
"""

from __future__ import annotations

from collections.abc import Sequence

from dynamo_lite.backends.inductor.ir import index as ix

Sizes = tuple[ix.Index, ...]


def refine(a: Sequence[ix.Index], b: Sequence[ix.Index]) -> Sizes | None:
    """The coarsest common refinement: the shortest list of sizes that both lists can be split into. None if there is
    none, or if symbolic sizes leave it unknown."""
    if tuple(a) == tuple(b):
        return tuple(a)
    out: list[ix.Index] = []
    left, right = list(a), list(b)
    while left and right:
        x, y = left.pop(), right.pop()
        if x == y:
            out.append(x)
            continue
        rest = _quotient(y, x)
        if rest is None:
            x, y = y, x
            left, right = right, left
            rest = _quotient(y, x)
        if rest is None:
            return None
        out.append(x)
        right.append(rest)
    if any(not (isinstance(n, int) and n == 1) for n in left or right):
        return None
    return tuple(reversed(out))


def _quotient(size: ix.Index, part: ix.Index) -> ix.Index | None:
    """``size / part``, or None if ``size`` is not a multiple of ``part`` for all values of the symbols."""
    if isinstance(part, int) and isinstance(size, int):
        return None if not part or not size or size % part else size // part
    if isinstance(size, int) or isinstance(part, int) and not part:
        return None
    quotient = ix.floordiv(size, part)
    return quotient if ix.mul(quotient, part) == size else None


def blocks(coarse: Sequence[ix.Index], fine: Sequence[ix.Index]) -> list[list[int]] | None:
    """For each size of ``coarse``, the positions of the sizes in ``fine`` that it is split into; None if ``fine`` does
    not refine ``coarse``."""
    out: list[list[int]] = []
    at = len(fine) - 1
    for size in reversed(coarse):
        block: list[int] = []
        volume: ix.Index = 1
        while volume != size:
            if at < 0:
                return None
            volume = ix.mul(volume, fine[at])
            block.append(at)
            at -= 1
            if isinstance(volume, int) and isinstance(size, int) and volume > size:
                return None
        out.append(block[::-1])
    return out[::-1] if at < 0 else None


def combine(variables: Sequence[ix.Index], sizes: Sequence[ix.Index]) -> ix.Index:
    """The index of the collapsed loop: the row-major combination of loop variables of these sizes."""
    return ix.dot(variables, ix.contiguous_strides(sizes))
