"""Autograd segments: a graph that takes part in autograd is cut where a differentiable intermediate is visible outside
and is used afterwards in the graph.

A compiled graph is one node of autograd. A tensor that the program sees, because the graph returns it or has written to
it, may be asked for its gradient, get a hook, or retain its gradient. So operations that use this tensor have to belong
to a later node. The graph is cut before the first use of such a tensor that follows the last write to it, and around
the call that makes a tensor on which the program has registered a hook: hooks of different nodes run in eager's order,
and only if the tensor gets a gradient. Each segment is a graph of its own, with nodes that set torch's state as it is
at its beginning, and restore it at the end.

Invariant: the nodes of all segments are the graph's nodes, in the program's order.
"""
from __future__ import annotations

import dataclasses
import operator
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node

from dynamo_lite.backends.aot import passes
from dynamo_lite.backends.aot.call_sizes import SizePlace, missing_sizes
from dynamo_lite.backends.aot.functional import CannotCut
from dynamo_lite.backends.aot.gradients import has_new_history, twin
from dynamo_lite.backends.aot.inner_gradients import last_gradient
from dynamo_lite.backends.aot.joint import JointGraph

_CHANGE_LAYOUT = frozenset({
    "t_", "transpose_", "unsqueeze_", "squeeze_", "swapaxes_", "swapdims_", "as_strided_", "detach_", "resize_",
    "resize_as_", "set_", "rename_", "requires_grad_",
})
"""Methods after which a fake tensor no longer shows its former metadata."""


@dataclasses.dataclass(frozen=True, slots=True)
class Segment:
    """A part of a graph.

    Attributes:
        module: the part as a graph.
        examples: fake tensors for its inputs.
        reads: the nodes of the whole graph whose values are its inputs.
        sizes: places in the whole graph's inputs from which its last inputs are read: sizes that do not follow from
            ``reads``.
        makes: the nodes of the whole graph whose values are its results.
        writes: whether it may write to an input of the whole graph.
    """

    module: GraphModule
    examples: list[Any]
    reads: list[Node]
    sizes: list[SizePlace]
    makes: list[Node]
    writes: bool


def segments_of(gm: GraphModule, example_inputs: list[Any]) -> list[Segment]:
    """The segments of a captured graph in order; an empty list if it need not be cut.

    Raises:
        CannotCut: it has to be cut, but can't be.
    """
    calls = [n for n in gm.graph.nodes if n.op not in ("placeholder", "output")]
    if gm.meta.get("segment") or not all("example_value" in n.meta for n in calls):
        return []  # it is a segment already, or the values of its nodes are unknown
    order = list(_with_items_behind(calls))
    starts = _cuts(gm, order, example_inputs)
    if not starts:
        return []
    if any(n.op not in ("call_function", "call_method") for n in order):
        raise CannotCut("it holds modules or constant tensors")
    bounds = [0, *starts, len(order)]
    for node in order:
        if node.op == "call_method" and node.target in _CHANGE_LAYOUT and not _makes_a_leaf(node, order, bounds):
            raise CannotCut(f"{node.target} changes what a tensor looks like")
    examples = dict(zip(gm.graph.find_nodes(op="placeholder"), example_inputs))
    asked = [_asked_again(order[start:end]) for start, end in zip(bounds, bounds[1:])]
    needed = {n for sizes in asked for size in sizes for n in size.all_input_nodes}
    return [_segment(gm, order, (start, end), sizes, needed, examples)
            for start, end, sizes in zip(bounds, bounds[1:], asked)]


def _makes_a_leaf(node: Node, order: list[Node], bounds: list[int]) -> bool:
    """Whether the call makes a leaf of a tensor of the same segment, so that other segments see only the leaf."""
    if node.target != "requires_grad_" or node.args[0] not in order:
        return False
    places = sorted((order.index(node.args[0]), order.index(node)))  # type: ignore[arg-type]
    return not any(places[0] < bound <= places[1] for bound in bounds)


class SegmentedGraph:
    """The whole graph as a function that runs its compiled segments; has the attributes of a backend's result."""

    def __init__(self, gm: GraphModule, segments: list[Segment], parts: Sequence[Callable[..., Any]]) -> None:
        self.generated_code = tuple(text for part in parts for text in getattr(part, "generated_code", ()))
        self.raises_before_writes = not any(segment.writes for segment in segments[:-1]) and (
            not segments[-1].writes or getattr(parts[-1], "raises_before_writes", False))
        places = {node: i for i, node in enumerate(gm.graph.find_nodes(op="placeholder"))}
        for segment in segments:
            for node in segment.makes:
                places.setdefault(node, len(places))
        self._results = [places[node] for node in gm.graph.output_node().args[0]]  # type: ignore[union-attr]
        self._size = len(places)
        last: dict[int, int] = {}
        for at, segment in enumerate(segments):
            last.update((places[node], at) for node in segment.reads)
        self._steps = []
        for at, (segment, part) in enumerate(zip(segments, parts)):
            done = [place for place, use in last.items() if use == at and place not in self._results]
            self._steps.append((
                part, [places[n] for n in segment.reads], segment.sizes, [places[n] for n in segment.makes], done))

    def __call__(self, *inputs: Any) -> tuple[Any, ...]:
        values = [*inputs, *[None] * (self._size - len(inputs))]
        for part, reads, sizes, makes, done in self._steps:
            numbers = [size.read(inputs) for size in sizes]
            for place, value in zip(makes, part(*[values[i] for i in reads], *numbers)):
                values[place] = value
            for place in done:
                values[place] = None
        return tuple([values[i] for i in self._results])


def is_one_pointwise_call(gm: GraphModule, joint: JointGraph) -> bool:
    """Whether a graph is a segment that computes one pointwise operation. Eager computes that and its gradient in one
    pass over memory, too, and without the overhead of a compiled call.
    """
    if not gm.meta.get("segment"):
        return False
    calls = [n for n in joint.forward if n.op == "call_function" and not passes.is_view(n.target)]
    return len(calls) <= 1 and all(torch.Tag.pointwise in getattr(n.target, "tags", ()) for n in calls)


def _runs_apart(node: Node) -> bool:
    """Whether a call is a checkpoint whose function writes to its operands in both runs; torch itself runs it."""
    return getattr(node.target, "recomputes", False)


def compile_checkpoint(gm: GraphModule, backend: Callable[..., Any]) -> Callable[..., Any] | None:
    """The function of a graph that consists of one such checkpoint, whose own function is compiled; None for other
    graphs."""
    calls = [n for n in gm.graph.nodes if n.op not in ("placeholder", "output")]
    apart = [n for n in calls if _runs_apart(n)]
    if len(apart) != 1 or any(n is not apart[0] and not _takes_an_item(n, apart[0]) for n in calls):
        return None
    graph = Graph()
    graph.output(graph.graph_copy(gm.graph, {}))
    for node in graph.nodes:
        if node.op == "call_function" and _runs_apart(node):
            node.target = node.target.compiled(backend)
    return GraphModule(torch.nn.Module(), graph).forward


# ---------------------------------------------------------------- where to cut
def _with_items_behind(nodes: Sequence[Node]) -> Iterator[Node]:
    """The nodes, reordered so that those that select one of a call's several results directly follow the call."""
    done: set[Node] = set()

    def with_items(node: Node) -> Iterator[Node]:
        done.add(node)
        yield node
        for user in node.users:
            if user not in done and _takes_an_item(user, node):
                yield from with_items(user)

    for node in nodes:
        if node not in done:
            yield from with_items(node)


def _takes_an_item(node: Node, call: Node) -> bool:
    """Whether the node selects one of the call's several results."""
    several = isinstance(call.meta.get("example_value"), (tuple, list))
    return several and node.target is operator.getitem and type(node.args[1]) is int


def _cuts(gm: GraphModule, order: list[Node], example_inputs: list[Any]) -> list[int]:
    """Indices where segments after the first begin; as few as are enough for all tensors that the program sees."""
    values = {id(value): value for value in _visible(gm, example_inputs)}
    apart = [at for at, node in enumerate(order) if _runs_apart(node)]
    hooked = [at for at, node in enumerate(order) if node.meta.get("hooked")]
    if not values and not apart and not hooked:
        return []
    uses = [_Use.of(node) for node in order]
    modes = _grad_modes(order)
    needed = [interval for value in values.values() for interval in _between(order, uses, value, modes)]
    # A node calls the hooks of all its results, also of one that gets no gradient, so a hooked result's call is alone.
    for at in (*apart, *(order.index(_call_of(order[place])) for place in hooked)):
        end = at + 1
        while end < len(order) and _takes_an_item(order[end], order[at]):
            end += 1
        needed += [(place - 1, place) for place in (at, end) if 0 < place < len(order)]
    found: list[int] = []
    last = last_gradient(order)
    if any(before <= last for before in apart):
        raise CannotCut("it takes a gradient (autograd.grad) behind a checkpoint that writes to tensors")
    for after, before in sorted(needed, key=operator.itemgetter(1)):
        if before <= last:
            continue  # a tensor stays in one segment with its inner gradient; see inner_gradients.refuse_uncut
        if not found or found[-1] <= after:
            found.append(before)
    return found


def _call_of(node: Node) -> Node:
    """The call whose result, or one of whose results, the node is."""
    call = node.args[0] if node.args else None
    return _call_of(call) if isinstance(call, Node) and _takes_an_item(node, call) else node


def _visible(gm: GraphModule, example_inputs: list[Any]) -> Iterator[torch.Tensor]:
    """The tensors that the program sees, whose history the graph has made, and that may be used afterwards."""
    for node, value in zip(gm.graph.find_nodes(op="placeholder"), example_inputs):
        if isinstance(value, torch.Tensor) and has_new_history(node, value):
            yield value
    output = gm.graph.output_node()
    inside = output.meta.get("inside", ())
    for at, node in enumerate(output.args[0]):  # type: ignore[arg-type]
        if not isinstance(node, Node) or node.op == "placeholder" or at in inside:
            continue
        value = node.meta["example_value"]
        if isinstance(value, torch.Tensor) and value.requires_grad and (len(node.users) > 1 or node.meta.get("impure")):
            yield value


def _grad_modes(order: list[Node]) -> list[bool]:
    """The grad mode in which each node runs."""
    modes, grad = [], torch.is_grad_enabled()
    for node in order:
        modes.append(grad)
        if node.target is torch._C._set_grad_enabled:
            grad = bool(node.args[0])
    return modes


@dataclasses.dataclass(frozen=True, slots=True)
class _Use:
    """The ids of the tensors among a call's operands, and of their bases."""

    operands: frozenset[int]
    bases: frozenset[int]

    @classmethod
    def of(cls, node: Node) -> _Use:
        if node.target is operator.getitem and isinstance(node.args[0], Node) and _takes_an_item(node, node.args[0]):
            return cls(frozenset(), frozenset())
        tensors = [value for n in node.all_input_nodes for value in _tensors(n.meta.get("example_value"))]
        return cls(frozenset(map(id, tensors)), frozenset(id(_base(value)) for value in tensors))


def _between(
    order: list[Node], uses: list[_Use], value: torch.Tensor, modes: list[bool]
) -> list[tuple[int, int]]:
    """Pairs of indices: because of this tensor, the graph has to be cut after the first and no later than at the
    second.
    """
    base = _base(value)
    found: list[tuple[int, int]] = []
    changed, used = -1, False
    for at, (node, use) in enumerate(zip(order, uses)):
        made = node.meta["example_value"]
        uses_it = id(value) in use.operands
        if made is value and not uses_it:
            changed, used = at, False
        if id(base) not in use.bases:
            continue
        written = _written(node) if modes[at] else []
        if written is not None and any(_base(v) is base for v in written):
            # The tensor has a new history: results computed before do not depend on it.
            found.clear()
            changed, used = at, False
            continue
        if uses_it and not used and (made is None or any(v.requires_grad for v in _tensors(made))):
            found.append((changed, at))
            used = True
        if written is None:
            changed, used = at, False
    return found


def _written(node: Node) -> list[torch.Tensor] | None:
    """The tensors that a call writes to, if it does so under autograd; None if these may be any of its operands."""
    if not node.meta.get("impure"):
        return []
    made = node.meta["example_value"]
    if node.target is operator.setitem or str(getattr(node.target, "__name__", "")).startswith("_foreach"):
        first = node.args[0]
        nodes = first if isinstance(first, (list, tuple)) else [first]
        return [n.meta["example_value"] for n in nodes if isinstance(n, Node)]
    operands = [n.meta.get("example_value") for n in node.all_input_nodes]
    same = [v for v in _tensors(made) if any(v is operand for operand in operands)]
    if same:
        return same
    # Functions of torch draw random numbers or write to statistics; other functions may do anything.
    module = getattr(node.target, "__module__", None) or ""
    own = node.op == "call_method" or module in ("_operator", "builtins") or module.split(".")[0] == "torch"
    return [] if own and made is not None else None


def _base(value: torch.Tensor) -> torch.Tensor:
    return value._base if value._is_view() else value  # type: ignore[return-value]


def _tensors(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    return [t for part in value for t in _tensors(part)] if isinstance(value, (tuple, list)) else []


# ---------------------------------------------------------------- the segments
def _is_size(node: Node) -> bool:
    return isinstance(node.meta["example_value"], torch.SymInt)


def _asked_again(nodes: list[Node]) -> list[Node]:
    """The sizes that a segment reads but does not compute, in order, with those that they are computed from. They are
    not passed as inputs, as they are not tensors: the segment reads them from tensors again."""
    inside, found = set(nodes), dict[Node, None]()

    def ask(node: Node) -> None:
        if _is_size(node) and node.op.startswith("call_"):
            for n in node.all_input_nodes:
                ask(n)
            found[node] = None

    for node in nodes:
        for n in node.all_input_nodes:
            if n not in inside:
                ask(n)
    return [node for node in found if node not in inside]


def _segment(
    gm: GraphModule, order: list[Node], bounds: tuple[int, int], sizes: list[Node], needed: set[Node],
    examples: dict[Node, Any],
) -> Segment:
    """Makes one segment.

    Args:
        bounds: the index of its first node, and that of the first node after it.
        sizes: the sizes that it reads from its inputs again.
        needed: the nodes from which some segment reads sizes again.
    """
    start, end = bounds
    nodes = [*sizes, *order[start:end]]
    own = set(nodes)
    reads = [n for n in dict.fromkeys(n for node in nodes for n in node.all_input_nodes) if n not in own]
    makes = [n for n in order[start:end] if n in needed or any(user not in own for user in n.users)]
    makes = [n for n in makes if not _is_size(n) or any(user.op == "output" for user in n.users)]
    for node in (*reads, *makes):
        if not isinstance(node.meta["example_value"], torch.Tensor):
            raise CannotCut(f"{node} is no tensor")
    graph = Graph()
    env: dict[Node, Node] = {}
    inputs = []
    for node in reads:
        env[node] = placeholder = graph.placeholder(node.name)
        if node.op == "placeholder":
            placeholder.meta.update(node.meta)
        else:
            placeholder.meta.update(source=node.name, static=False)
        value = examples.get(node)
        if value is None or _may_have_been_written(order[:start], value) and has_new_history(node, value):
            value = twin(gm.meta["fake_mode"], node.meta["example_value"])
            placeholder.meta["at_entry"] = value.requires_grad, value.is_leaf
        placeholder.meta["example_value"] = value
        inputs.append(value)
    placeholders, whole = list(examples), list(examples.values())
    missing = missing_sizes(whole, inputs, [node.meta["example_value"] for node in nodes])
    for place in missing:
        node = placeholders[place.input]
        placeholder = graph.placeholder(f"{node.name}_{place.kind}_{place.dim}")
        placeholder.meta.update(source=placeholder.name, static=False, example_value=place.read(whole))
        inputs.append(placeholder.meta["example_value"])
    before, after = _state(order[:start]), _state(order[end:])
    for node in (*before, *nodes, *after):
        copy = graph.node_copy(node, env.__getitem__)
        if node in own:
            env[node] = copy
    graph.output(tuple(env[n] for n in makes)).meta["example_value"] = tuple(n.meta["example_value"] for n in makes)
    module = GraphModule(torch.nn.Module(), graph)
    inside = gm.graph.output_node().meta.get("inside", ())
    seen = {n for at, n in enumerate(gm.graph.output_node().args[0]) if at not in inside}  # type: ignore[arg-type]
    module.graph.output_node().meta["inside"] = tuple(at for at, n in enumerate(makes) if n not in seen)
    module.meta.update(gm.meta, segment=True)
    writes = any(_may_have_been_written(nodes, value) for value in examples.values() if isinstance(value, torch.Tensor))
    return Segment(module, inputs, reads, missing, makes, writes)


def _may_have_been_written(nodes: Sequence[Node], value: torch.Tensor) -> bool:
    """Whether some call may have written to the memory of an input."""
    storage = value.untyped_storage()._cdata
    for node in nodes:
        if node.meta.get("impure"):
            operands = (n.meta.get("example_value") for n in node.all_input_nodes)
            if any(isinstance(v, torch.Tensor) and v.untyped_storage()._cdata == storage for v in operands):
                return True
    return False


def _state(nodes: Sequence[Node]) -> list[Node]:
    """The calls that set torch's state: the last of each kind; of those that undo each other, the ones that remain."""
    found: dict[Any, Node] = {}
    depth: list[Node] = []
    for node in nodes:
        if node.op != "call_function" or node.meta["example_value"] is not None or node.all_input_nodes:
            continue
        if node.args or node.kwargs:
            key = node.target, *(node.args if node.kwargs else node.args[:-1])
            found.pop(key, None)
            found[key] = node
        elif getattr(node.target, "__name__", "") in ("enter", "leave"):  # an autocast context
            if depth and depth[-1].target is not node.target:
                depth.pop()
            else:
                depth.append(node)
    return [*found.values(), *depth]
