"""Partition of a joint graph into a forward and a backward graph: chooses which values are saved in between, and which
are computed again (rematerialized).

The saved values are a minimum cut, in bytes, between the values that the forward pass has to compute and those that the
backward pass reads. Eager's own choice is one of the cuts considered, so no more is saved than in eager.

Invariants: an operation that draws random numbers, or is not cheap, is never computed again. An input or a result of
the graph is saved only if eager saves it too: the user may write to it afterwards, and autograd then reports an error,
which must not happen where eager has none.
"""
from __future__ import annotations

import dataclasses
import operator
from collections.abc import Iterable
from typing import Any

import torch
from torch.fx import Graph, Node

from dynamo_lite.backends.aot import ops, passes
from dynamo_lite.backends.aot.functional import CannotFunctionalize
from dynamo_lite.backends.aot.graph import (
    AtenGraph,
    InputOutput,
    LiteralOutput,
    OutputAlias,
    OutputRecipe,
    ValueOutput,
    copy_node,
)
from dynamo_lite.backends.aot.independence import readers_of
from dynamo_lite.backends.aot.interface import Saved
from dynamo_lite.backends.aot.joint import JointGraph
from dynamo_lite.backends.aot.mincut import INFINITE, FlowNetwork
from dynamo_lite.symbols.nodes import hint_of

aten = torch.ops.aten

_CHEAP = frozenset({
    aten.full.default, aten.zeros.default, aten.ones.default, aten.scalar_tensor.default, aten.arange.default,
    aten.arange.start, aten.arange.start_step, aten.linspace.default, aten.eye.default, aten.eye.m,
    aten.zeros_like.default, aten.ones_like.default, aten.full_like.default, aten.new_zeros.default,
    aten.new_ones.default, aten.new_full.default, aten._to_copy.default, aten.clone.default,
    aten.constant_pad_nd.default, aten.native_dropout_backward.default, ops.copy_strided,
})


def partition(joint: JointGraph) -> tuple[AtenGraph, Saved]:
    """The forward graph, which returns the joint graph's values followed by the saved ones; and the saved values."""
    needed = _needed_by_gradients(joint)
    saved = _choose(joint, needed)
    places = {node: i for i, node in enumerate(joint.inputs)}
    mutated = {joint.inputs[i] for i in joint.mutated}
    graph = Graph()
    env: dict[Node, Node] = {}
    effects = [n for n in joint.forward
               if n.op == "call_function" and (passes.is_effectful(n) or passes.may_raise(n))]
    keep = _ancestors([*joint.values, *saved, *effects]) | set(joint.inputs)
    writes = []
    for node in joint.graph.nodes:
        if node not in joint.forward or node not in keep:
            continue
        if node.target is aten.copy_.default:
            writes.append(node)
            continue
        env[node] = copy_node(graph, node, env.__getitem__)
    made = [env[node] for node in joint.values]
    inputs: list[int | None] = []
    values: list[int | None] = []
    for node in saved:
        inputs.append(places[node] if node in places and node not in mutated else None)
        if inputs[-1] is not None:
            values.append(None)
        elif node in joint.values:
            values.append(joint.values.index(node))
        else:
            values.append(len(made))
            result = env[node]
            if node in places:
                # The graph writes to this input; its contents at entry are saved.
                result = graph.call_function(aten.clone.default, (result,))
                result.meta.update(val=node.meta["val"], origin=None)
            made.append(result)
    for node in writes:
        copy_node(graph, node, env.__getitem__)
    graph.output(tuple(made))
    graph.output_node().meta["val"] = tuple(node.meta["val"] for node in made)
    recipes = tuple(ValueOutput(i) for i in range(len(made)))
    forward = AtenGraph(graph, dict(joint.constants), recipes, () if joint.written else joint.mutated)
    passes.clean(forward)
    return forward, Saved(tuple(n.name for n in saved), tuple(inputs), tuple(values), *readers_of(joint, saved))


def backward_graph(joint: JointGraph, saved: Saved) -> AtenGraph:
    """The backward graph. It takes the saved values, the numbers of ``joint.sizes`` and the incoming tangents, and
    returns the gradients of the inputs.
    """
    by_name = {node.name: node for node in joint.graph.nodes}
    graph = Graph()
    env: dict[Node, Node] = {}
    for name in saved.names:
        node = by_name[name]
        env[node] = made = graph.placeholder(name)
        made.meta.update(val=node.meta["val"], origin=None, static=bool(node.meta.get("static")))
    inputs = [node.meta["val"] for node in joint.inputs]
    for at, place in enumerate(joint.sizes.places):
        graph.placeholder(f"size_{at}").meta.update(val=place.read(inputs), origin=None, static=False)
    tangents = [node for node in joint.tangents if node is not None]
    for node in tangents:
        env[node] = graph.node_copy(node)
    effects = [n for n in joint.graph.nodes if n.op == "call_function" and n not in joint.forward
               and passes.is_effectful(n)]
    keep = _ancestors([*joint.gradients, *effects], stop=set(env))
    for node in joint.graph.nodes:
        if node in keep and node not in env and not (node in joint.forward and _is_checkpointed(node)):
            for needed in _in_order_of_need(node, env, joint):
                if needed.op == "placeholder" or (
                        needed.op == "call_function" and needed in joint.forward and passes.is_effectful(needed)):
                    raise CannotFunctionalize(f"the backward pass needs {needed}, which was not saved")
                env[needed] = copy_node(graph, needed, env.__getitem__)
    _constants_first(graph)
    made_all = tuple(env[node] for node in joint.gradients)
    graph.output(made_all)
    graph.output_node().meta["val"] = tuple(node.meta["val"] for node in made_all)
    before = len(saved.names) + len(joint.sizes.places)
    recipes = tuple(_shifted(r, before) for r in joint.gradient_recipes)
    backward = AtenGraph(graph, dict(joint.constants), recipes, ())
    passes.clean(backward)
    return backward


def _in_order_of_need(node: Node, env: dict[Node, Node], joint: JointGraph) -> list[Node]:
    """The checkpointed nodes that the node depends on, each as late as possible, followed by the node itself."""
    found: dict[Node, None] = {}
    todo = [node]
    while todo:
        last = todo[-1]
        missing = [n for n in last.all_input_nodes
                   if n not in env and n not in found and n in joint.forward and _is_checkpointed(n)]
        if missing:
            todo += missing
        else:
            found[todo.pop()] = None
    return list(found)


def _constants_first(graph: Graph) -> None:
    """Moves ``get_attr`` nodes up, directly behind the placeholders."""
    nodes = list(graph.nodes)
    first = next((n for n in nodes if n.op != "placeholder"), None)
    for node in nodes:
        if node.op == "get_attr" and node is not first and first is not None:
            first.prepend(node)


def _shifted(recipe: OutputRecipe, by: int) -> OutputRecipe:
    """A recipe with indices of tangents, changed to indices of placeholders, ``by`` of which precede the tangents."""
    if isinstance(recipe, InputOutput):
        return InputOutput(recipe.index + by)
    if isinstance(recipe, OutputAlias) and isinstance(recipe.base, InputOutput):
        return dataclasses.replace(recipe, base=InputOutput(recipe.base.index + by))
    assert isinstance(recipe, (ValueOutput, OutputAlias, LiteralOutput))
    return recipe


def _ancestors(nodes: Iterable[Node], stop: set[Node] | frozenset[Node] = frozenset()) -> set[Node]:
    """The nodes and everything that they are computed from; the search does not go past nodes in ``stop``."""
    found: set[Node] = set()
    todo = list(nodes)
    while todo:
        node = todo.pop()
        if node in found:
            continue
        found.add(node)
        if node not in stop:
            todo.extend(node.all_input_nodes)
    return found


# ---------------------------------------------------------------- the choice of saved values
def _needed_by_gradients(joint: JointGraph) -> set[Node]:
    effects = [n for n in joint.graph.nodes if n not in joint.forward and n.op == "call_function"
               and passes.is_effectful(n)]
    return _ancestors([*joint.gradients, *effects])


def _choose(joint: JointGraph, needed: set[Node]) -> list[Node]:
    """The nodes to save, in the order of the graph."""
    read_by_eager = {node for node in joint.forward & needed
                     if any(user not in joint.forward and user in needed for user in node.users)}
    owned_by_eager = {passes.root(node) for node in read_by_eager}
    # Eager keeps the inputs of a checkpointed function, to run it again.
    owned_by_eager |= {passes.root(read) for node in joint.forward if _is_checkpointed(node)
                       for read in node.all_input_nodes}
    exposed = {passes.root(node) for node in joint.values} | set(joint.inputs)
    network = FlowNetwork()
    source, sink = network.vertex(), network.vertex()
    enter: dict[Node, int] = {}
    leave: dict[Node, int] = {}
    candidates = [n for n in joint.graph.nodes if n in needed and n in joint.forward]
    for node in candidates:
        enter[node], leave[node] = network.vertex(), network.vertex()
    for node in candidates:
        network.edge(enter[node], leave[node], _price(node, exposed, owned_by_eager))
        if node.op == "get_attr":
            continue  # both graphs have this constant
        if node.op == "placeholder" or not _may_repeat(node, joint):
            network.edge(source, enter[node], INFINITE)
        for user in node.users:
            if user in leave:
                network.edge(leave[node], enter[user], INFINITE)
            elif user in needed:
                network.edge(leave[node], sink, INFINITE)
        if node in joint.gradients:
            network.edge(leave[node], sink, INFINITE)
    reached = network.reachable_after_cut(source, sink)
    if reached is None:
        raise CannotFunctionalize("no choice of saved values serves the backward pass")
    return [n for n in candidates if enter[n] in reached and leave[n] not in reached]


def _price(node: Node, exposed: set[Node], owned_by_eager: set[Node]) -> float:
    """The capacity of a node in the cut: its bytes, and a little for each tensor; infinite if it can't be saved."""
    value = node.meta["val"]
    if node.op == "get_attr":
        return INFINITE
    if not isinstance(value, torch.Tensor) or _is_view_node(node):
        return INFINITE
    owner = passes.root(node)
    if (node in exposed or owner in exposed) and owner not in owned_by_eager:
        return INFINITE
    price = hint_of(value.numel()) * value.itemsize + 64
    if node.op == "placeholder":
        # Its memory belongs to the caller, who mostly keeps it anyway.
        return 1.0 if node.meta.get("static") else price / 4
    if owner in exposed:
        # The forward pass writes a result anyway, and eager keeps it, too; another value would be a second tensor.
        return price / 2
    return float(price)


def _is_view_node(node: Node) -> bool:
    """Whether it is a view of another node, or one of several views that an operation returns; remaking it is free."""
    if node.op != "call_function":
        return False
    if node.target is operator.getitem:
        parent = node.args[0]
        return isinstance(parent, Node) and passes.is_view(parent.target)
    return passes.is_view(node.target)


def _may_repeat(node: Node, joint: JointGraph) -> bool:
    """Whether a forward node may be computed again in the backward pass."""
    if _is_view_node(node):
        return True
    if _is_checkpointed(node):
        return not passes.is_effectful(node) and not passes.is_random(node)
    if node.target is operator.getitem or not _is_cheap(node):
        return False
    return not (_feeds_library(node, joint, True) and _feeds_library(node, joint, False))


def _is_checkpointed(node: Node) -> bool:
    """Whether the user asked for it to be recomputed, with ``torch.utils.checkpoint``. The results of a checkpointed
    function do not count: the next function is recomputed from them.
    """
    origin = node.meta.get("origin")
    if origin is None or not getattr(origin.target, "recomputed", False):
        return False
    return all(user.meta.get("origin") in (origin, None) for user in node.users)


def _feeds_library(node: Node, joint: JointGraph, forward: bool) -> bool:
    """Whether a library call of the forward (or backward) pass reads the node, which then has to be in memory."""
    todo, seen = list(node.users), set()
    while todo:
        user = todo.pop()
        if user in seen or user.op != "call_function":
            continue
        seen.add(user)
        if _is_view_node(user):
            todo.extend(user.users)
        elif (user in joint.forward) == forward and _is_library(user.target):
            return True
    return False


_LIBRARY = ("convolution", "mm", "addmm", "bmm", "baddbmm", "_scaled_dot_product", "embedding")


def _is_library(target: Any) -> bool:
    return isinstance(target, torch._ops.OpOverload) and target._schema.name.removeprefix("aten::").startswith(_LIBRARY)


def _is_cheap(node: Node) -> bool:
    target = node.target
    if passes.is_effectful(node) or passes.is_random(node):
        return False
    if target in _CHEAP:
        return True
    return isinstance(target, torch._ops.OpOverload) and torch.Tag.pointwise in target.tags
