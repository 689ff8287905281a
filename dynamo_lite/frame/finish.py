"""The third phase of a compile: the frame's exit, its live locals, and the graph of the operations before it.

Invariant: the outputs of the graph are fixed only when it is known that the frame can be left here, including all its
side effects.
"""
from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any, NamedTuple

import torch

from .. import exc, log
from .._eval_frame import GuardedCode
from ..continuation.deoptimize import may_raise
from ..continuation.listings import layouts
from ..continuation.places import BreakSite, break_site
from ..guards.memory import writes_are_hidden
from ..guards.source import LocalSource, Source
from ..interpreter.translator import StackMark, Translator
from ..output.codegen import Plan
from ..output.output_graph import OutputGraph
from ..variables.base import MISSING, LazyVariable, VariableTracker
from ..variables.finalization import finalizables_in, held_by, is_pointed_at, may_be_finalized, points_weakly
from ..variables.objects.classes import MadeClassVariable
from ..variables.objects.weakrefs import WeakrefVariable
from ..variables.tensors.tensor import TensorVariable
from .descriptions import place
from .entry_record import plain_entry
from .request import Frame, Settings
from .trace import Trace, Traced


class FrameExit(NamedTuple):
    """How a frame is left: by a return or by a break.

    Attributes:
        returned: the return value; None: the graph breaks.
        site: the place of the break in the user's code.
        live: the locals that are read after the break, or whose values must not be finalized there.
        kept: those among these locals, and among the cells, that no instruction reads any more.
        error: the reason for the break.
    """

    trace: Trace
    frame: Frame
    returned: VariableTracker | None
    site: BreakSite | None
    live: frozenset[str]
    kept: frozenset[str]
    error: exc.Unsupported | None


class Graph(NamedTuple):
    """The graph of a trace, with its final inputs and outputs.

    Attributes:
        module: the graph module; None: there is nothing to compute.
        inputs: trackers of its inputs.
        state_changes: calls that set torch's state as the program leaves it.
    """

    module: torch.fx.GraphModule | None
    inputs: list[Any]
    state_changes: list[tuple[Any, tuple[Any, ...]]]


class Compiled(NamedTuple):
    """The backend's result for a graph.

    Attributes:
        run: takes the graph's inputs and returns its outputs.
        put_back: indices of the inputs to copy, and of those whose writes torch counts, so that the frame can run again
            when the graph raises; None: it can't run again.
    """

    run: Callable[..., Any]
    put_back: tuple[list[int], list[int]] | None


def find_exit(traced: Traced) -> FrameExit:
    """The exit of the frame, after checks that the frame can be left there without losing a value.

    Raises:
        exc.Unsupported: it can't be left here.
    """
    trace, site = traced.trace, None
    frame, effects = trace.frame, trace.output.effects
    live = kept = frozenset[str]()
    if traced.break_index is not None:
        # The instructions of a unit run together. Those that prepare a call change nothing on the stack, and a value's
        # truth stands in for the value.
        site = break_site(frame.code, traced.break_index)
        if site.behind:
            raise exc.Unsupported("unsupported_value", "a function without its closure or defaults",
                                  visit=trace.tx.visits - site.behind)
        if site.start in site.analysis.unbreakable:
            earlier = trace.tx.last_breakable
            raise exc.Unsupported("unsupported_value", "what a comprehension inside the function has put aside",
                                  visit=earlier if earlier > frame.prologue() else -1)
        live = site.needed
        kept = _locals_to_keep(frame, trace.tx, live)
        if traced.error is not None and traced.error.kind == "frame_access":
            # The called function can inspect its callers' frames, and thus all their locals.
            kept |= {name for name in trace.tx.locals if not name.startswith("___")} - live
    effects.check_outer_tracebacks()
    effects.check_generators()
    return FrameExit(trace, frame, traced.returned, site, live | kept, kept, traced.error)


def close_graph(end: FrameExit, plan: Plan) -> Graph:
    """The graph that computes the plan's outputs. From here on, torch's state is as it was before the trace."""
    output = end.trace.output
    changes = output.state_changes()
    finished = output.finish(plan.output_list)
    output.restore_state()
    module, inputs = finished if finished is not None else (None, [])
    return Graph(module, inputs, changes)


def nothing_to_run(settings: Settings, end: FrameExit, graph: Graph) -> GuardedCode | None:
    """The entry for a frame that was evaluated to its end without an operation on tensors or a side effect. All its
    callees have been evaluated with it, so they need not be intercepted."""
    output = end.trace.output
    if end.returned is None or output.operations:
        return None
    if graph.module is None and not output.effects.has_changes() and not graph.state_changes:
        return uncompiled(end.trace, hooked=False)
    if output.generators and not settings.fullgraph:
        return uncompiled(end.trace, hooked=False)  # the graph only draws numbers
    return None


_FEW_INSTRUCTIONS = 40
"""Instructions of a frame that its graph runs as captured: generated code takes 0.25 us longer than to call the frame's
own code, and saves the instructions that the trace has evaluated, of some 3 ns each (additions of integers; on an EPYC,
Zen 4, both are equal at about 100 instructions). Some take several times as long."""


def runs_as_well_in_python(end: FrameExit, graph: Graph, compiled: Compiled | None) -> bool:
    """Whether the frame itself is the fastest form of its graph: the backend runs the graph as captured, and the frame
    does little beside the graph's calls. Its callees have been evaluated with it, so they need not be intercepted."""
    if end.returned is None or graph.module is None or compiled is None:
        return False
    if not graph.module.meta.get("as_captured") or compiled.run != graph.module.forward:
        return False
    tx = end.trace.tx
    return tx.depth == 0 and tx.visits == tx.budget.evaluated <= _FEW_INSTRUCTIONS


def uncompiled(trace: Trace, hooked: bool = True, sources: Sequence[str] | None = None) -> GuardedCode:
    """An entry that runs the frame in plain Python.

    Args:
        hooked: whether its callees may have something to compile.
        sources: texts that describe the frame's graph, if it has one.
    """
    trace.output.restore_state()
    request, output = trace.request, trace.output
    readers = {**request.readers, **output.value_guards.learned}
    return plain_entry(output.all_guards(), trace.state, hooked, request.dynamic, readers, sources)


def report_break(settings: Settings, end: FrameExit) -> None:
    """Counts a break, and reports its place and reason."""
    error = end.error
    assert error is not None
    log.count("graph_breaks")
    if settings.on_break is not None:
        settings.on_break(error)
    if not log.enabled("graph_breaks"):
        return
    if error.kind == "unsupported_iteration" and end.frame.resumed is not None:
        # A break on account of the iterator of a loop that was broken in its body: the user can't avoid it.
        log.artifact("graph_breaks").debug("Graph break again at %s", error.report())
    elif log.first_time("graph_breaks", (error.where, error.kind)):
        log.artifact("graph_breaks").info("Graph break at %s", error.report())
    else:
        log.artifact("graph_breaks").debug("Graph break again at %s: %s", error.where, error.reason)


# ---------------------------------------------------------------- the backend
Outside = tuple[Source, torch.Tensor, torch.Tensor]  # a tensor from outside: where it is, its fake and its real tensor


def changed_and_others(output: OutputGraph) -> tuple[list[Outside], list[Outside]]:
    """The tensors from outside that the graph mutates, and those that it does not; none of them if it mutates none."""
    mutated = {id(t) for t in output.mutated_inputs()}
    changed: list[Outside] = []
    others: list[Outside] = []
    for t in output.inputs if mutated else ():
        if isinstance(t, TensorVariable) and t.source is not None and t.value is not None and (
                t.value.device.type != "meta"):
            (changed if id(t) in mutated else others).append((t.source, t.fake, t.value))
    return changed, others


def compile_graph(settings: Settings, end: FrameExit, graph: Graph) -> Compiled | None:
    """The graph compiled by the backend; None if there is no graph."""
    module = graph.module
    if module is None:
        return None
    log.count("graphs")
    if log.enabled("graph_code"):
        name = place(end.frame.user_code)
        log.artifact("graph_code").info("graph of %s\n%s", name, module.print_readable(False))
        log.artifact("graph_code").debug("nodes of the graph of %s\n%s", name, layouts(module))
    if settings.on_graph is not None:
        settings.on_graph(module)
    changed, others = ([(fake, value) for _, fake, value in part] for part in changed_and_others(end.trace.output))
    module.meta["hidden_writes"] = writes_are_hidden(changed, others)
    with log.phase("backend"):
        run = settings.compile_graph(module, [t.fake for t in graph.inputs])
    why = module.meta.get("as_captured")
    module.meta["generated_code"] = getattr(run, "generated_code", ()) or (
        (f"# A graph runs as torch's own calls: {why}.\n{module.code.strip()}\n",) if why else ())
    return Compiled(run, _to_put_back(end.trace.output, graph.inputs, run))


def described(graph: Graph) -> Sequence[str] | None:
    """What ``generated_code`` shows of a compiled graph; None if there is no graph."""
    return None if graph.module is None else graph.module.meta.get("generated_code", ())


def _to_put_back(output: OutputGraph, inputs: list[Any], run: Any) -> tuple[list[int], list[int]] | None:
    changed = output.mutated_inputs()
    if not changed or getattr(run, "raises_before_writes", False):
        return [], []
    places = [place for place, t in enumerate(inputs) if any(t is c for c in changed)]
    if may_raise(output.graph) and not output.inputs_changed_for_autograd():
        return places, []
    # Operations that run one by one count their writes. A backend's kernel may write and raise before it has counted.
    by_torch = isinstance(getattr(run, "__self__", None), torch.fx.GraphModule) or getattr(run, "counts_writes", False)
    return ([], places) if by_torch else None


# ---------------------------------------------------------------- live values
def _locals_to_keep(frame: Frame, tx: Translator, live: frozenset[str]) -> frozenset[str]:
    """Locals and cells that nothing reads any more, but whose values must not be finalized before the frame returns."""
    effects = tx.output.effects
    dead = {n: v for n, v in tx.locals.items() if n not in live and not n.startswith("___")}
    cells = {n: tx.cells[n].contents for n in frame.user_code.co_cellvars if n in tx.cells}
    dead |= {n: contents for n, contents in cells.items() if contents is not MISSING}
    kept: set[str] = set()
    seen_outside: dict[int, VariableTracker] | None = None
    points = False
    for name, value in dead.items():
        if isinstance(value, MadeClassVariable):
            kept.add(name)  # its base classes refer to it
            continue
        if isinstance(value, LazyVariable) and effects.tracker_of(value.value) is None:
            if isinstance(value.source, LocalSource) and value.source.local == name:
                kept.add(name)  # an argument whose type no guard checks
                continue
        parts = held_by(effects, [value])
        outer = [part.value for part in parts.values() if part.source is not None]
        if any(finalizables_in(real) or is_pointed_at(real) for real in outer):
            kept.add(name)
            continue
        felt = {key: part for key, part in parts.items() if may_be_finalized(part, True)}
        if felt and seen_outside is None:
            seen_outside, points = _seen_outside(tx, live)
        if any(key in (seen_outside or ()) and may_be_finalized(part, points) for key, part in felt.items()):
            kept.add(name)
    return frozenset(kept)


def _seen_outside(tx: Translator, live: Collection[str]) -> tuple[dict[int, VariableTracker], bool]:
    """The trackers, by id, of objects that plain Python can reach after a break, and whether it has or can make weak
    references to them."""
    effects = tx.output.effects
    seen = held_by(effects, list(_visible(tx, live)))
    pointed_at = [r.referent for r in seen.values() if isinstance(r, WeakrefVariable)]
    points = bool(pointed_at) or any(map(points_weakly, seen.values()))
    return seen | held_by(effects, pointed_at), points


def _visible(tx: Translator, live: Collection[str]) -> Iterator[VariableTracker]:
    """The values that plain Python can reach after a break."""
    yield from (value for value in tx.stack if not isinstance(value, StackMark))
    yield from (value for name, value in tx.locals.items() if name in live)
    yield from tx.cells.values()
    yield from tx.output.effects.outside_values()
