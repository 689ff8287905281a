"""The joint graph: a captured graph and the gradients that autograd derives for it, in one aten graph.

The captured graph runs on fake tensors with autograd on, under the recorder, which sits below autograd and so sees
only aten calls; then autograd's own engine computes the gradients of the results for fake incoming gradients
("tangents"), under the same recorder. So every formula is autograd's own, views and in-place operations included.

Invariant: the nodes in ``JointGraph.forward`` are the calls that eager makes in the forward pass, in order; the later
nodes are those of its backward pass. The earlier nodes that the later ones read are the values that eager saves.
"""
from __future__ import annotations

import dataclasses
import hashlib
from typing import Any

import torch
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    UnsupportedOperatorException,
)
from torch.autograd.graph import GradientEdge, get_gradient_edge
from torch.fx import Graph, GraphModule, Node

from dynamo_lite.backends.aot import inner_gradients, ops, passes, tangent_layouts
from dynamo_lite.backends.aot.call_sizes import CallSizes, sizes_of
from dynamo_lite.backends.aot.functional import CannotFunctionalize, Memory
from dynamo_lite.backends.aot.gradients import at_entry
from dynamo_lite.backends.aot.graph import InputOutput, LiteralOutput, OutputAlias, OutputRecipe
from dynamo_lite.backends.aot.interface import Freed, Interface, Result, Written, with_formulas
from dynamo_lite.backends.aot.output_aliasing import Values, recipe, refuse_shared_inputs, write_back
from dynamo_lite.backends.aot.record import (
    Decompositions,
    Recorder,
    fake_mode_of,
    global_state_kept,
    refuse_chosen_gradients,
)
from dynamo_lite.runtime.storage_extent import storage_extent
from dynamo_lite.symbols import torch_questions

aten = torch.ops.aten

_Edges = list["GradientEdge | None"]


@dataclasses.dataclass(slots=True)
class JointGraph:
    """A joint graph; see the module's docstring.

    Attributes:
        graph: has no output node; writes to inputs are among the forward nodes if ``written`` is empty.
        constants: the tensors that ``get_attr`` nodes name.
        inputs: the placeholders of the captured graph's inputs.
        forward: the nodes of the forward pass, including placeholders and constants.
        values: the nodes that the forward pass computes for its results, each with memory of its own.
        differentiable: for each value, whether gradients flow through it.
        results: how the captured graph's results are made from the values.
        mutated: indices of the inputs that are written.
        written: the same inputs, if the program writes to one of them under autograd; else empty.
        requiring: indices of the inputs that require grad.
        tangents: for each value, the placeholder of its incoming gradient; None where there is none.
        gradients: the nodes that the backward pass computes, each with memory of its own.
        freed: for values whose backward pass needs something that the graph itself has freed, a description of that. If
            it lies before inputs, no gradient comes in for the value.
        before_freed: indices of the inputs that such values are computed from.
        gradient_recipes: for each input, how its gradient is made from ``gradients`` (``ValueOutput``) and ``tangents``
            (``InputOutput``; its index does not count those that are None).
        sizes: the sizes that the backward pass takes from the inputs, for symbols.
    """

    graph: Graph
    constants: dict[str, torch.Tensor]
    inputs: list[Node]
    forward: set[Node]
    values: list[Node]
    differentiable: list[bool]
    results: list[Result]
    mutated: tuple[int, ...]
    written: tuple[Written, ...] = ()
    requiring: tuple[int, ...] = ()
    tangents: list[Node | None] = dataclasses.field(default_factory=list)
    freed: dict[int, Freed] = dataclasses.field(default_factory=dict)
    before_freed: set[int] = dataclasses.field(default_factory=set)
    gradients: list[Node] = dataclasses.field(default_factory=list)
    gradient_recipes: list[OutputRecipe] = dataclasses.field(default_factory=list)
    sizes: CallSizes = CallSizes()

    def forward_names(self) -> str:
        """A digest of the names of the forward pass's nodes and of their operands."""
        nodes = (f"{node.name}({', '.join(n.name for n in node.all_input_nodes)})" for node in self.graph.nodes
                 if node in self.forward)
        return hashlib.sha256("\n".join(nodes).encode()).hexdigest()

    def interface(self) -> Interface:
        """The data of the joint graph that running the compiled graphs needs."""
        values = [node.meta["val"] for node in self.values]
        random = any(map(passes.is_random, self.forward))
        none = LiteralOutput(None)
        unreached = tuple(i for i in self.requiring if self.gradient_recipes[i] == none and i not in self.before_freed)
        if self.requiring and len(unreached) == len(self.requiring):
            # No formula has a gradient (`x.norm(0)`). Eager's results require grad all the same, so one input stays.
            unreached = unreached[1:]
        results = with_formulas(self.results, self.sizes)
        return Interface(len(self.inputs), tuple((self.sizes.formulas(tuple(v.stride())), v.dtype) for v in values),
                         tuple(self.differentiable), results, self.mutated, self.written, random, unreached,
                         bool(self.requiring), tuple(self.freed.items()), self.sizes, self._adapts())

    def _adapts(self) -> bool:
        calls = sum(node.op == "call_function" and node not in self.forward for node in self.graph.nodes)
        return not self.sizes and tangent_layouts.can_read_as_they_come(
            self.gradient_recipes, calls, sum(self.differentiable))


def record_joint(
    gm: GraphModule, example_inputs: list[Any], decompositions: Decompositions, given: tuple[bool, ...] | None = None
) -> JointGraph:
    """The joint graph of ``gm``.

    Args:
        gm, example_inputs, decompositions: as for ``record.record``.
        given: for each value, whether a gradient comes in; None: for all that are differentiable. The forward part of
            the graph, including the names of nodes, does not depend on it.

    Raises:
        CannotFunctionalize: the graph does something that can't be expressed as a pair of functional graphs.
    """
    refuse_chosen_gradients(gm)
    mode = fake_mode_of(gm, example_inputs)
    recorder = Recorder(mode, decompositions)
    with global_state_kept(), mode:
        inputs, edges = _as_at_entry(gm, example_inputs)
        recorder.add_inputs(gm, inputs)
        try:
            with torch_questions.scope(symbols=False), recorder:
                results = recorder.interpret(gm, inputs)
                torch._C._set_grad_enabled(True)  # whatever mode the graph ends in: results keep histories
                _refuse_hidden_autograd(inputs, edges, results)
                if inner_gradients.makes_leaves(gm):
                    _refuse_views_of_leaves(inputs, results, recorder.memory)
                results = _owned(results, recorder)
            inner = inner_gradients.computes_gradients(gm)
            joint, bases = _forward_part(recorder, inputs, edges, results)
            if inner:
                seen = _seen(gm, inputs, edges, results)
                inner_gradients.refuse_uncut(seen, [*results, *seen])
            if inner or inner_gradients.makes_leaves(gm):
                _find_freed(joint, bases, edges)
            joint.sizes = sizes_of(example_inputs)
            _refuse_what_differs_in_tracing(joint)
            _backward_part(joint, recorder, edges, bases, given)
            _refuse_meta(joint)
        except (DataDependentOutputException, DynamicOutputShapeException, UnsupportedOperatorException) as e:
            raise CannotFunctionalize(f"{type(e).__name__.removesuffix('Exception')}: {e}") from e
    return joint


def _as_at_entry(gm: GraphModule, example_inputs: list[Any]) -> tuple[list[Any], _Edges]:
    """The inputs with the autograd metadata that they have when the graph is entered, whatever was done to the examples
    since; and for each that requires grad, the edge where its gradient arrives.
    """
    made: list[Any] = []
    edges: _Edges = []
    for node, value in zip(gm.graph.find_nodes(op="placeholder"), example_inputs):
        edge = None
        if isinstance(value, torch.Tensor):
            requires_grad, is_leaf = at_entry(node, value)
            value = value.detach()
            if requires_grad:
                with torch.enable_grad():
                    value.requires_grad_()
                    if not is_leaf:
                        value = torch._C._functions.DelayedError(b"backward of an input", 1)(value)
                edge = get_gradient_edge(value)
        made.append(value)
        edges.append(edge)
    return made, edges


def _refuse_hidden_autograd(inputs: list[Any], edges: _Edges, results: tuple[Any, ...]) -> None:
    """Refuses graphs that make leaves of inputs or results, or accumulate gradients."""
    for value, edge in zip(inputs, edges):
        if isinstance(value, torch.Tensor):
            if value.requires_grad and value.is_leaf and edge is None:
                raise CannotFunctionalize("an input becomes a new leaf of autograd")
            if value.is_leaf and value.grad is not None:
                raise CannotFunctionalize("a backward pass inside the graph")
    known = {id(value) for value in inputs}
    for value in results:
        if isinstance(value, torch.Tensor) and value.requires_grad and value.is_leaf and id(value) not in known:
            raise CannotFunctionalize("a result that is a new leaf of autograd")


def _refuse_views_of_leaves(inputs: list[Any], results: tuple[Any, ...], memory: Memory) -> None:
    """Refuses graphs that return a view of a leaf that they make: autograd refuses writes to such a view, so it would
    have to know the result as one."""
    known = {id(value) for value in inputs}
    leaves = memory.storages_of(lambda fake: id(fake) not in known and fake.requires_grad and fake.is_leaf)
    for value in results:
        tracked = memory.find(value) if isinstance(value, torch.Tensor) and id(value) not in known else None
        if tracked is not None and id(tracked.storage) in leaves:
            raise CannotFunctionalize("a result that looks at the memory of a new leaf of autograd")


def _has_new_history(value: torch.Tensor, edge: GradientEdge | None) -> bool:
    """Whether a tensor has been written to under autograd since its gradient edge was ``edge``."""
    if not value.requires_grad:
        return False
    return edge is None or value.grad_fn is not None and value.grad_fn is not edge.node


_GRAD_MODE_DEPENDENT = frozenset({aten.mkldnn_rnn_layer.default})
"""Operations that compute the values that their gradients need only if grad mode is on."""
_OTHER_GRADIENT_LAYOUT = frozenset({aten.ormqr.default})
"""Operations whose gradients, computed on tensors without data, have other layouts than eager's."""
_OTHER_EMPTY_GRADIENT = frozenset({aten.prod.default, aten.prod.dim_int})
"""Operations whose gradients have other layouts than eager's only for tensors without elements."""


def _refuse_what_differs_in_tracing(joint: JointGraph) -> None:
    for node in joint.graph.nodes:
        if node.target in _GRAD_MODE_DEPENDENT:
            raise CannotFunctionalize(f"{node.target} works differently where grad mode is off")
        empty = node.target in _OTHER_EMPTY_GRADIENT and node.args[0].meta["val"].numel() == 0
        if node.target in _OTHER_GRADIENT_LAYOUT or empty:
            raise CannotFunctionalize(f"gradients of {node.target} are laid out otherwise in tracing")


def _refuse_meta(joint: JointGraph) -> None:
    """Refuses a gradient that autograd makes on the meta device, which is the device of fake tensors in C++; it may do
    so for zero gradients."""
    devices = [{n.meta["val"].device.type for n in nodes if isinstance(n.meta.get("val"), torch.Tensor)}
               for nodes in (joint.forward, joint.graph.nodes)]
    if "meta" in devices[1] - devices[0]:
        raise CannotFunctionalize("a gradient that autograd makes without data")


def _owned(results: tuple[Any, ...], recorder: Recorder) -> tuple[Any, ...]:
    """The results, copied where a result shares memory with another tensor that autograd does not know as its base."""
    made: dict[int, Any] = {}
    for value in results:
        if not isinstance(value, torch.Tensor) or id(value) in made:
            continue
        made[id(value)] = value
        tracked = recorder.memory.find(value)
        if tracked is None:
            raise CannotFunctionalize("a result that was not made by this graph")
        root = tracked.storage.root
        if tracked is root or not value.requires_grad:
            continue
        is_known = value._is_view() and value._base is root.fake
        if is_known and not _has_own_gradients(value, root.fake):
            continue
        sharing = (*recorder.inputs, *(_root_of(other, recorder) for other in results if other is not value))
        if any(other is root for other in sharing):
            raise CannotFunctionalize("a result that shares memory in a way that autograd does not know")
        copy = value.clone()
        if copy.stride() != value.stride():
            raise CannotFunctionalize("a result of unusual layout that shares memory")
        made[id(value)] = copy
    return tuple(made.get(id(value), value) for value in results)


def _root_of(value: Any, recorder: Recorder) -> Any:
    tracked = recorder.memory.find(value) if isinstance(value, torch.Tensor) else None
    return None if tracked is None else tracked.storage.root


def _has_own_gradients(value: torch.Tensor, root: torch.Tensor) -> bool:
    """Whether a user's autograd function made the view, so that its gradients are not those of a view."""
    node, end = value.grad_fn, root.grad_fn
    while node is not None and node is not end:
        if isinstance(node, torch.autograd.function.BackwardCFunction):
            return True
        before = [n for n, _ in node.next_functions if n is not None]
        node = before[0] if len(before) == 1 else None
    return False


def _forward_part(
    recorder: Recorder, inputs: list[Any], edges: _Edges, results: tuple[Any, ...]
) -> tuple[JointGraph, list[torch.Tensor | None]]:
    """Completes the forward pass. Also returns, for each value, the fake tensor whose gradient comes in, or None."""
    graph, memory = recorder.graph, recorder.memory
    with torch.no_grad():
        mutated = [i for i, t in enumerate(recorder.inputs) if t is not None and t.storage.version > 0]
        refuse_shared_inputs(recorder.inputs, mutated)
        values = Values(memory, recorder.emit, results)
        made: dict[int, OutputRecipe] = {}
        bases: list[torch.Tensor] = []
        for value in results:
            if id(value) not in made:
                made[id(value)] = recipe(value, memory, recorder.inputs, values)
                if len(values.nodes) > len(bases):
                    bases.append(values.base_of(memory.find(value)).fake)
        differentiable = [base.requires_grad for base in bases]
        written: list[Written] = []
        if any(_has_new_history(inputs[i], edges[i]) for i in mutated):
            for i in mutated:
                tracked = recorder.inputs[i]
                assert tracked is not None
                with_history = _has_new_history(inputs[i], edges[i])
                written.append(Written(i, values.index(tracked), with_history, tracked.storage.counted))
                bases.append(inputs[i])
                differentiable.append(with_history)
        else:
            write_back(graph, memory, recorder.emit, recorder.inputs, mutated)
    kept = []
    for value in results:
        made_of = made[id(value)]
        detached = False
        if isinstance(made_of, OutputAlias):
            base = inputs[made_of.base.index] if isinstance(made_of.base, InputOutput) else bases[made_of.base.index]
            detached = base.requires_grad and not value.requires_grad
            if value.requires_grad and not base.requires_grad:
                raise CannotFunctionalize("a view that requires grad of a tensor that does not")
        kept.append(Result(made_of, detached))
    joint = JointGraph(
        graph, recorder.constants, [n for n in graph.nodes if n.op == "placeholder"], set(graph.nodes), values.nodes,
        differentiable, kept, tuple(mutated), tuple(sorted(written, key=lambda w: not w.differentiable)))
    return joint, [base if has_gradient else None for base, has_gradient in zip(bases, differentiable)]


def _backward_part(
    joint: JointGraph, recorder: Recorder, edges: _Edges, bases: list[torch.Tensor | None],
    given: tuple[bool, ...] | None,
) -> None:
    """Runs autograd's engine under the recorder; adds the tangents, the gradients and their recipes to the graph."""
    memory, graph = recorder.memory, recorder.graph
    wanted = [i for i, edge in enumerate(edges) if edge is not None]
    joint.requiring = tuple(wanted)
    heads: list[torch.Tensor] = []
    tangents: list[torch.Tensor] = []
    known: list[Any] = []
    for i, base in enumerate(bases):
        if base is None or _has_none(joint, i) or (given is not None and not given[i]):
            joint.tangents.append(None)
            continue
        tangent = torch.empty_strided(base.shape, base.stride(), dtype=base.dtype, device=base.device)
        node = graph.placeholder(f"tangent_{i}")
        node.meta.update(val=tangent, origin=None, static=False)
        known.append(memory.add(tangent, node))
        joint.tangents.append(node)
        heads.append(base)
        tangents.append(tangent)
    before = [t.storage.version for t in recorder.inputs if t is not None]
    recorder.end_of_forward()
    grads: list[Any] = [None] * len(edges)
    if heads and wanted:
        # autograd asks whether tangents and results have the same sizes.
        with torch._C._DisableAutocast(), torch_questions.scope(symbols=False), recorder:
            ends = [edge for edge in edges if edge is not None]
            found = torch.autograd.grad(heads, ends, tangents, allow_unused=True)
        for i, grad in zip(wanted, found):
            grads[i] = grad
    if before != [t.storage.version for t in recorder.inputs if t is not None]:
        raise CannotFunctionalize("the backward pass writes to an input")
    with torch.no_grad():
        _add_gradients(joint, recorder, grads, known)


def _add_gradients(joint: JointGraph, recorder: Recorder, grads: list[Any], known: list[Any]) -> None:
    """Adds the gradients and the recipes that make them from the tangents (``known``) and from values of the graph."""
    memory = recorder.memory
    values, taken = Values(memory, recorder.emit), dict[int, list[torch.Tensor]]()
    for grad in grads:
        if isinstance(grad, torch.Tensor) and _is_of_forward(grad, joint, recorder):
            # The caller must not get memory that belongs to the forward pass.
            with recorder:
                grad = aten.clone.default(grad)
        if isinstance(grad, torch.Tensor) and _shares_elements(grad, memory, taken):
            # Two leaves must not share a gradient: clipping, for instance, writes to each of them.
            with recorder:
                grad = aten.clone.default(grad)
        tracked = memory.find(grad) if isinstance(grad, torch.Tensor) else None
        if tracked is not None and tracked.storage.root.fake.dtype is not tracked.fake.dtype:
            # Such as the real part of a complex tensor: it is returned in memory of its own.
            node = recorder.emit(ops.copy_strided, (memory.read(tracked), tuple(grad.stride())))
            grad = memory.add(node.meta["val"], node).fake
        made = recipe(grad, memory, known, values) if grad is not None else LiteralOutput(None)
        if isinstance(made, OutputAlias) and made.chain is not None:
            raise CannotFunctionalize("a gradient that is a view of another kind")
        joint.gradient_recipes.append(made)
    joint.gradients = values.nodes


def _seen(gm: GraphModule, inputs: list[Any], edges: _Edges, results: tuple[Any, ...]) -> list[torch.Tensor]:
    """The tensors that the program sees and that have a history in the graph."""
    inside = gm.graph.output_node().meta.get("inside", ())
    made = [value for at, value in enumerate(results) if at not in inside and isinstance(value, torch.Tensor)]
    written = [value for value, edge in zip(inputs, edges)
               if isinstance(value, torch.Tensor) and _has_new_history(value, edge)]
    known = {id(value) for value, edge in zip(inputs, edges) if edge is not None} - {id(value) for value in written}
    return [value for value in (*made, *written) if id(value) not in known]


def _find_freed(joint: JointGraph, bases: list[torch.Tensor | None], edges: _Edges) -> None:
    for i, base in enumerate(bases):
        found = inner_gradients.freed(base, edges) if base is not None else None
        if base is not None and found is not None:
            joint.freed[i] = found
            joint.before_freed |= inner_gradients.leads_to(base.grad_fn, edges)


def _has_none(joint: JointGraph, value: int) -> bool:
    """Whether a backward pass from the value is an error in any case, so that no gradient comes in."""
    return value in joint.freed and joint.freed[value].before_inputs


def _is_of_forward(grad: torch.Tensor, joint: JointGraph, recorder: Recorder) -> bool:
    tracked = recorder.memory.find(grad)
    if tracked is None:
        raise CannotFunctionalize("a gradient that was not made by this graph")
    return recorder.memory.read(tracked.storage.root) in joint.forward


def _shares_elements(grad: torch.Tensor, memory: Memory, taken: dict[int, list[torch.Tensor]]) -> bool:
    """Whether a gradient may share elements with one in ``taken``, to which it is added.

    A tensor that has memory of its own and is the gradient of several inputs does not count: it is returned as one
    object, of which autograd makes a copy for each leaf itself.

    Args:
        taken: gradients by the identity of their memory.
    """
    tracked = memory.find(grad)
    if tracked is None:
        return False
    others = taken.setdefault(id(tracked.storage), [])
    shares = any(other is not grad or tracked is not tracked.storage.root for other in others if _overlap(grad, other))
    others.append(grad)
    return shares


def _overlap(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether the memory of two views of one storage overlaps; True if that is not known."""
    (a_first, a_end), (b_first, b_end) = ((t.storage_offset(), t.storage_offset() + storage_extent(t.shape, t.stride()))
                                          for t in (a, b))
    known = all(type(n) is int for n in (a_first, a_end, b_first, b_end))
    return not known or (a_first < b_end and b_first < a_end)
