"""Loop transforms of a kernel: splitting of loops at divisions (strip mining) and at bounds tests (index set
splitting), choice of the vectorized loop, collapsing of adjacent loops, tiling of transposed accesses.

Invariant: every transform preserves the set of iterations and changes no value.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence

import torch

from dynamo_lite.backends.inductor.ir import index as ix
from dynamo_lite.backends.inductor.ir.nodes import Builder, Node, walk
from dynamo_lite.backends.inductor.ir.ops import DEAR, OPS
from dynamo_lite.backends.inductor.ir.substitution import substitute
from dynamo_lite.backends.inductor.scheduler.guards import Limit, bounds_of, edges_of
from dynamo_lite.backends.inductor.scheduler.kernel import Accumulate, Kernel, Stage, Statement, Store
from dynamo_lite.backends.inductor.scheduler.narrowing import narrow_integers
from dynamo_lite.backends.inductor.scheduler.short_loops import is_interleaved, may_write_out, write_out_short_loops

# A loop is split, to remove a division from an index, if the inner part has at least this many iterations, or is short
# enough to be unrolled.
MIN_SPLIT = 4
# A loop with fewer iterations makes a bad vector loop.
MIN_VECTOR = 4
# Iterations of a scan that cost at least this much are worth vectorizing across rows, even if lanes are stored one by
# one.
MIN_SCATTERED_COST = 2 * DEAR
# Loops are tiled if they have at least this many iterations.
MIN_TILED = 8


def transform_loops(builder: Builder, kernel: Kernel) -> Kernel:
    """The kernel with its loops in their final order and form, for a target with vectors."""
    _split_divisions(builder, kernel, 2 if may_write_out(kernel) else MIN_SPLIT)
    # Loops are collapsed before the vector loop is chosen, so that short loops over contiguous memory, such as those of
    # a convolution's weight, are judged as the one long loop that they form; and once more in the order after it.
    _collapse(builder, kernel)
    _choose_vector(kernel)
    _collapse(builder, kernel)
    if write_out_short_loops(builder, kernel):
        _collapse(builder, kernel)
    _split_guards(builder, kernel)
    _choose_tiles(kernel)
    narrow_integers(builder, kernel)
    kernel.inplace = _takeovers(kernel)
    return kernel


def flatten_loops(builder: Builder, kernel: Kernel) -> Kernel:
    """The kernel with as few loops as its indices allow, for targets that run blocks of iterations in parallel and
    evaluate guards and loop bounds as masks. No output reuses an input's memory, as the iterations of a block have no
    order."""
    _split_divisions(builder, kernel)
    _collapse(builder, kernel)
    return kernel


def transform_scan_loops(builder: Builder, kernel: Kernel) -> Kernel:
    """The same as ``transform_loops`` for a scan, which carries values along its inner loop: only the other loops are
    rearranged."""
    _split_divisions(builder, kernel)
    _collapse(builder, kernel)
    scores = {v: score(kernel, v) for v in kernel.outer}
    best = max(kernel.outer, key=lambda v: scores[v], default=None)
    contiguous = any(isinstance(s, Store) and ix.coefficient(s.index, best) == 1 for s in kernel.statements() if best)
    long = best is not None and (not isinstance(best.size, int) or best.size >= MIN_VECTOR)
    cost = sum(OPS[n.op].cost for n in walk([s.value for s in kernel.statements()]) if n.op in OPS)
    tiled = best is not None and not contiguous and _goes_in_tiles(kernel, best)
    if best is not None and (contiguous or tiled or long and cost >= MIN_SCATTERED_COST):
        kernel.outer = (*(v for v in kernel.outer if v is not best), best)
        kernel.vector_outer = True
        kernel.stages[0].tiled = tiled
    kernel.inplace = _takeovers(kernel)
    return kernel


def _goes_in_tiles(kernel: Kernel, rows: ix.Var) -> bool:
    """Whether a kernel is a single scan along contiguous rows of memory, several of which (the loop ``rows``) can be
    scanned at once: rows are read and written in tiles, and a column of a tile is the vector of one iteration."""
    if len(kernel.stages) != 1 or len(kernel.stages[0].inner) != 1 or kernel.scratch:
        return False
    (stage,) = kernel.stages
    (v,) = stage.inner
    if any(isinstance(w.size, int) and w.size < MIN_TILED for w in (rows, v)):
        return False
    for s in stage.statements:
        if isinstance(s, Store) and not (
            s.buffer and s.value.op != "update" and s.value.dtype is not torch.bool and _is_line(s.index, v, rows)):
            return False
    loads = [n for n in walk([s.value for s in stage.statements]) if n.op == "load"]
    return all(is_transposed(n, v, rows) or v not in n.vars and not n.args for n in loads)


def _is_line(index: ix.Index, u: ix.Var, v: ix.Var) -> bool:
    """Whether an access has stride 1 along ``u`` and a stride other than 0 and 1 along ``v``."""
    return ix.coefficient(index, u) == 1 and ix.coefficient(index, v) not in (0, 1, None)


def indices_of(statements: Sequence[Statement]) -> list[ix.Index]:
    """All distinct indices in the statements."""
    out: dict[ix.Index, None] = {}
    for s in statements:
        if isinstance(s, Store):
            out[s.index] = None
        elif isinstance(s, Accumulate):
            out[s.position] = None
    for n in walk([s.value for s in statements]):
        if n.op == "load":
            out[n.attr[1]] = None
        elif n.op == "index":
            out[n.attr] = None
        elif n.op in ("inside", "update"):
            out[n.attr[0]] = None
    return list(out)


def rewrite(
    builder: Builder, kernel: Kernel, mapping: Mapping[ix.Var, ix.Index], replaced: Mapping[ix.Var, tuple[ix.Var, ...]]
) -> None:
    """Replaces loop variables of a kernel.

    Args:
        mapping: the indices that replace variables in expressions.
        replaced: the loops that replace the variables' loops.
    """
    statements = kernel.statements()
    # The elements of scans are nodes of the values, and have to remain so.
    scans = [s for s in statements if isinstance(s, Accumulate) and s.element is not None]
    roots = [s.value for s in statements] + [s.element for s in scans if s.element is not None]
    values = builder.substitute_all(roots, mapping)
    renamed = {}
    for old in walk([s.value for s in statements]):
        if old.op == "acc" and any(v in mapping for v in old.vars):
            renamed[old] = builder.acc(old.attr, old.dtype, frozenset(_replace(old.vars, replaced)))
    if renamed:
        values = builder.substitute_all(values, {}, renamed)
    for scan, element in zip(scans, values[len(statements):]):
        scan.element = element
    for s, value in zip(statements, values):
        s.value = value
        if isinstance(s, Store):
            s.index = substitute(s.index, mapping)
        else:
            s.position = substitute(s.position, mapping)
    kernel.outer = tuple(_replace(kernel.outer, replaced))
    for stage in kernel.stages:
        stage.inner = tuple(_replace(stage.inner, replaced))


def _replace(loops: Iterable[ix.Var], replaced: Mapping[ix.Var, tuple[ix.Var, ...]]) -> list[ix.Var]:
    """The loops with each one in ``replaced`` exchanged for its replacements."""
    return [w for v in loops for w in replaced.get(v, (v,))]


# ---------------------------------------------------------------- divisions
def _split_divisions(builder: Builder, kernel: Kernel, least: int = MIN_SPLIT) -> None:
    """Splits loops whose variable is divided in an index in two, so that the division disappears.

    Args:
        least: the smallest divisor, which is the size of the inner loop, that a loop is split at.
    """
    for _ in range(8):
        found = _division(kernel, least)
        if found is None:
            return
        v, divisor = found
        assert isinstance(v.size, int)
        high = ix.var(f"{v.name}h", v.size // divisor)
        low = ix.var(f"{v.name}l", divisor)
        parts = (*_atom(high), *_atom(low))
        rewrite(builder, kernel, {v: ix.add(ix.mul(high, divisor), low)}, {v: parts})


def _atom(i: ix.Index) -> tuple[ix.Var, ...]:
    """The variable of a loop's index as a tuple; empty for a loop of one iteration, which has none."""
    return tuple(ix.free_vars(i))


def _division(kernel: Kernel, least: int) -> tuple[ix.Var, int] | None:
    """A loop variable that some index divides, and the smallest divisor, which is at least ``least``; None if there is
    none. A split after which a guard would depend on two loops is left out."""
    best: tuple[ix.Var, int] | None = None
    limits = [g.attr for g in guards([s.value for s in kernel.statements()])]
    for index in indices_of(kernel.statements()):
        for a in ix.atoms_of(index):
            if not isinstance(a, ix.Division) or isinstance(a.expr, int) or not isinstance(a.divisor, int):
                continue
            terms = list(a.expr.terms.items())
            if len(terms) != 1 or a.expr.const or terms[0][1] != 1 or len(terms[0][0]) != 1:
                continue
            v = terms[0][0][0]
            if not isinstance(v, ix.Var) or not isinstance(v.size, int) or v.size % a.divisor or a.divisor < least:
                continue
            if a.divisor < v.size and (best is None or a.divisor < best[1]):
                if all(_stays_one_loop(limit, v, a.divisor) for limit in limits):
                    best = v, a.divisor
    return best


def _stays_one_loop(limit: Limit, v: ix.Var, divisor: int) -> bool:
    """Whether a guard still depends on a single loop after ``v`` is split. Loops can't be split at other guards."""
    value, low, high = limit
    step, rest = ix.coefficient(value, v), substitute(value, {v: 0})
    if step == 0:
        return True
    if not isinstance(step, int):
        return False
    return all(isinstance(x, int) and x % (step * divisor) == 0 for x in (rest, low, high))


# ---------------------------------------------------------------- the vector loop
def _choose_vector(kernel: Kernel) -> None:
    """Chooses the loop with the most accesses of stride 1 as the vector loop, and moves it. An inner loop becomes the
    last inner loop. An outer loop becomes the last outer loop, or, in a kernel without reductions and inner loops, the
    inner loop of all stages."""
    candidates = [*kernel.outer, *kernel.inner]
    if not candidates:
        return
    scores = {v: score(kernel, v, unrolls=True) for v in candidates}
    # Of equal candidates the last one, which is the innermost in the order of the nests.
    v = candidates[max(range(len(candidates)), key=lambda k: (*scores[candidates[k]], k))]
    if v in kernel.inner:
        for stage in kernel.stages:
            if stage.inner:
                stage.inner = (*(w for w in stage.inner if w is not v), v)
        return
    outer = tuple(w for w in kernel.outer if w is not v)
    if kernel.is_pure() and not kernel.inner:
        kernel.outer = outer
        for stage in kernel.stages:
            stage.inner = (v,)
    else:
        kernel.outer = (*outer, v)
        kernel.vector_outer = True


def score(kernel: Kernel, v: ix.Var, unrolls: bool = False) -> tuple[int, int]:
    """How suitable ``v`` is as the vector loop; larger is better. The first number is the count of accesses of stride 1
    minus that of strided ones, each weighted by how often it happens; accesses to every second, third or fourth element
    that whole vectors load and store (``short_loops``) count as neither if the target ``unrolls``. The second is the
    loop's size if no access has stride 1."""
    gain = 0
    contiguous = False
    unrolls = unrolls and may_write_out(kernel)
    accesses = [(s.index, 2) for s in kernel.statements() if isinstance(s, Store) and s.buffer not in kernel.scratch]
    for stage in kernel.stages:  # each stage loads anew
        accesses += [(n.attr[1], 1) for n in walk([s.value for s in stage.statements])
                     if n.op == "load" and n.attr[0] not in kernel.scratch]
    for index, weight in accesses:
        c = ix.coefficient(index, v)
        times = weight * math.prod(w.size if isinstance(w.size, int) else 1 << 10 for w in ix.free_vars(index))
        if c == 1:
            gain += times
            contiguous = True
        elif c != 0 and not (unrolls and is_interleaved(kernel, index, v, weight == 2)):
            gain -= times
    size = v.size if isinstance(v.size, int) else 1 << 20
    # A short loop would leave most lanes idle.
    return (gain - ((1 << 60) if size < MIN_VECTOR else 0), 0 if contiguous else size)


# ---------------------------------------------------------------- merging
def _collapse(builder: Builder, kernel: Kernel) -> None:
    """Merges adjacent loops wherever all indices step through the two loops as through one."""
    while True:
        indices = indices_of(kernel.statements())
        pair = next((p for p in _neighbours(kernel) if mergeable(indices, *p)), None)
        if pair is None:
            return
        a, b = pair
        merged = ix.Var(f"{a.name}_{b.name.lstrip('x')}", ix.mul(a.size, b.size))
        rewrite(builder, kernel, {a: 0, b: ix.atom(merged)}, {a: (), b: (merged,)})


def _neighbours(kernel: Kernel) -> Iterator[tuple[ix.Var, ix.Var]]:
    """Pairs of adjacent loops that may be merged: two outer loops (but not the vector loop), two inner loops, or, in a
    kernel that reduces nothing, the last outer and the first inner loop."""
    outer = kernel.outer[:-1] if kernel.vector_outer else kernel.outer
    yield from zip(outer, outer[1:])
    yield from zip(kernel.inner, kernel.inner[1:])
    if kernel.is_pure() and kernel.outer and kernel.inner and all(s.inner for s in kernel.stages):
        yield kernel.outer[-1], kernel.inner[0]


def mergeable(indices: list[ix.Index], a: ix.Var, b: ix.Var) -> bool:
    """Whether every index steps through the nested loops ``a`` and ``b`` as through a single loop."""
    for index in indices:
        ca, cb = ix.coefficient(index, a), ix.coefficient(index, b)
        if ca is None or cb is None or ca != ix.mul(cb, b.size):
            return False
    return True


# ---------------------------------------------------------------- guards
def guards(values: Iterable[Node]) -> list[Node]:
    """The guards that values depend on."""
    return [n for n in walk(values) if n.op == "inside"]


def _split_guards(builder: Builder, kernel: Kernel) -> None:
    """Index set splitting: splits loops at the bounds of guards, so that each part, a stage of its own, needs no guard.

    A guarded outer loop first moves into the stages, together with all outer loops inside of it.
    """
    while True:
        found = next(((stage, g) for stage in kernel.stages for g in guards([s.value for s in stage.statements])), None)
        if found is None:
            return
        stage, guard = found
        assert kernel.is_pure(), "guards in a kernel that reduces"
        (v,) = ix.free_vars(guard.attr[0])
        if v in kernel.outer:
            at = kernel.outer.index(v)
            moved = kernel.outer[at:]
            kernel.outer = kernel.outer[:at]
            for s in kernel.stages:
                s.inner = (*moved, *s.inner)
        at = kernel.stages.index(stage)
        kernel.stages[at : at + 1] = _parts(builder, stage, v)


def _parts(builder: Builder, stage: Stage, v: ix.Var) -> list[Stage]:
    """Copies of a stage for the parts of the loop over ``v`` in which each guard has one value."""
    values = [s.value for s in stage.statements]
    edges = edges_of(builder, [g.attr for g in guards(values)], v)
    assert edges is not None, f"guards whose bounds are in no order: {guards(values)}"
    parts = []
    for number, (start, end) in enumerate(zip(edges, edges[1:])):
        here = ix.var(f"{v.name}_{number}", ix.add(end, ix.mul(start, -1)))
        place = {v: ix.add(here, start)}
        decided = {}
        for guard in guards(values):
            value, low, high = guard.attr
            if v in ix.free_vars(value):
                low, high = bounds_of(guard.attr, v)
                holds = builder.is_at_most(low, start) and builder.is_at_most(end, high)
                decided[guard] = builder.const(holds, torch.bool)
        new = builder.substitute_all(builder.substitute_all(values, {}, decided), place)
        statements: list[Statement] = []
        for s, value in zip(stage.statements, new):
            assert isinstance(s, Store)
            statements.append(Store(s.buffer, substitute(s.index, place), value))
        loops = tuple(w for u in stage.inner for w in (_atom(here) if u is v or u == v else (u,)))
        parts.append(Stage(loops, statements))
    return parts


# ---------------------------------------------------------------- tiles
def _choose_tiles(kernel: Kernel) -> None:
    """Tiles the vector loop together with the loop along which transposed loads are contiguous, which moves next to it.
    """
    if not kernel.is_pure() or len(kernel.stages) != 1 or len(kernel.inner) != 1:
        return
    stage = kernel.stages[0]
    (v,) = stage.inner
    votes = [u for n in walk([s.value for s in stage.statements]) for u in kernel.outer if is_transposed(n, u, v)]
    if not votes:
        return
    u = max(set(votes), key=lambda w: (votes.count(w), w.name))
    if all(isinstance(w.size, int) and w.size >= MIN_TILED for w in (u, v)):
        kernel.outer = tuple(w for w in kernel.outer if w is not u)
        stage.inner = (u, v)
        stage.tiled = True


def is_transposed(n: Node, u: ix.Var, v: ix.Var) -> bool:
    """Whether a node is a load, without indirect indices, that is contiguous along ``u`` and strided along ``v``."""
    return n.op == "load" and not n.args and _is_line(n.attr[1], u, v)


# ---------------------------------------------------------------- memory
def _takeovers(kernel: Kernel) -> tuple[tuple[str, str], ...]:
    """Pairs ``(output, input)`` where the output may overwrite the input in place: each element of the input is read
    only in the iteration that writes the same element of the output, or in an earlier stage for the same element."""
    if any(stage.tiled for stage in kernel.stages):
        return ()
    stored: dict[str, dict[int, ix.Index]] = {}
    read: dict[str, dict[int, set[ix.Index]]] = {}
    for number, stage in enumerate(kernel.stages):
        for s in stage.statements:
            if isinstance(s, Store):
                stored.setdefault(s.buffer, {})[number] = s.index
        for n in walk([s.value for s in stage.statements]):
            if n.op == "load":
                read.setdefault(n.attr[0], {}).setdefault(number, set()).add(n.attr[1])
    out = []
    for output in kernel.outputs:
        for name, stages in read.items():
            if name in kernel.scratch or name in stored or not _same_memory(kernel, output, name):
                continue
            here = stored[output]
            same = all(
                indices == {here.get(min(here) if len(here) == 1 else number)} for number, indices in stages.items()
            )
            if same and (len(here) > 1 or max(stages) <= min(here)):
                out.append((output, name))
    return tuple(out)


def _same_memory(kernel: Kernel, a: str, b: str) -> bool:
    x, y = kernel.buffers[a], kernel.buffers[b]
    return x.dtype is y.dtype and x.size == y.size and x.stride == y.stride
