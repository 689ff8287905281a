"""Computes training steps of convolutional networks with channels-last images in planes, that is, in contiguous layout.

The templates of convolutions compute in planes. So do the operations that follow them and compute element by element
or reduce images. Thus a training step copies an image where it enters and where a result leaves, and copies filters and
their gradients. The tensors that are saved for the backward pass are in planes. (Graphs without a backward pass need
less: ``lowering.planes``.)

Invariant: the graph's results keep their layouts; only the operations listed here, whose results do not depend on the
layouts of their operands, get other layouts.
"""
from __future__ import annotations

import operator
from typing import Any

import torch
from torch.fx import Node

from dynamo_lite.backends.aot import ops, passes
from dynamo_lite.backends.aot.joint import JointGraph

aten = torch.ops.aten

_CONVOLUTIONS: dict[Any, int] = {aten.convolution.default: 0, aten.convolution_backward.default: 1}
"""Index of the image among the arguments."""
_TRANSPOSED: dict[Any, int] = {aten.convolution.default: 6, aten.convolution_backward.default: 7}
_OF_IMAGES: frozenset[Any] = frozenset({
    aten.sum.dim_IntList, aten.sum.default, aten.mean.dim, aten.mean.default, aten.var_mean.correction,
    aten.amax.default, aten.max_pool2d_with_indices.default, aten.max_pool2d_with_indices_backward.default,
    aten.avg_pool2d.default, aten.avg_pool2d_backward.default, aten._adaptive_avg_pool2d.default,
    aten._adaptive_avg_pool2d_backward.default, aten.upsample_nearest2d.default,
    aten.upsample_nearest2d_backward.default, aten.upsample_bilinear2d.default,
    aten.upsample_bilinear2d_backward.default, aten.cat.default, aten.native_group_norm.default,
    aten.native_group_norm_backward.default, aten.detach.default, aten.alias.default,
})
"""Operations that compute in planes if an operand is in planes, besides those that compute element by element."""


def put_in_planes(joint: JointGraph) -> None:
    """Rewrites the convolutions of a joint graph, and the operations that follow them. To be called under its fake
    mode."""
    if any(_begins(node) for node in joint.graph.nodes):
        _Rewriting(joint).run()


def _begins(node: Node) -> bool:
    """Whether a node is a convolution that is computed in planes."""
    at = _CONVOLUTIONS.get(node.target)
    if at is None or node.op != "call_function" or node.args[_TRANSPOSED[node.target]]:
        return False
    image, weight = node.args[at], node.args[at + 1]
    assert isinstance(image, Node) and isinstance(weight, Node)
    value = image.meta["val"]
    if value.dtype is not torch.float32 or value.device.type != "cpu" or not any(map(_is_last, (image, weight))):
        return False
    return value.dim() == 4 and _is_sized(value) and _is_sized(weight.meta["val"])


def _follows(target: Any) -> bool:
    if target in _OF_IMAGES:
        return True
    return isinstance(target, torch._ops.OpOverload) and (
        torch.Tag.pointwise in target.tags and not passes.keeps_its_place(target))


def _is_sized(value: torch.Tensor) -> bool:
    return all(type(n) is int for n in (*value.shape, *value.stride()))


def _is_last(node: Node) -> bool:
    """Whether the value is an image, or filters, in channels-last layout. With one pixel, tap or channel, the two
    layouts have the same order in memory; the library decides by the strides then (``is_channels_last_strides_2d`` in
    c10/core/MemoryFormat.h), and so does this function."""
    value = node.meta.get("val")
    if not isinstance(value, torch.Tensor) or value.dim() != 4 or value.layout is not torch.strided:
        return False
    if not _is_sized(value) or 0 in value.shape or not value.is_contiguous(memory_format=torch.channels_last):
        return False
    beyond_channels = value.stride(3) >= value.shape[1] * value.stride(1)
    return value.stride() != _planes(value) and (not value.is_contiguous() or beyond_channels)


def _planes(value: torch.Tensor) -> tuple[int, ...]:
    """The strides of an image in planes."""
    _, channels, height, width = value.shape
    return channels * height * width, height * width, width, 1


class _Rewriting:
    """Rewrites one graph, node by node."""

    def __init__(self, joint: JointGraph) -> None:
        self._joint = joint
        self._graph = joint.graph
        self._planes: dict[Node, Node] = {}  # from a channels-last value to the same in planes
        self._again: dict[Node, Node] = {}  # the same for inputs that the backward pass reads
        self._instead: dict[Node, Node] = {}

    def run(self) -> None:
        for node in list(self._graph.nodes):
            if node in self._instead or node.op != "call_function":
                continue
            if _begins(node) or _follows(node.target) and any(a in self._planes for a in node.all_input_nodes):
                self._rewrite(node)
        joint = self._joint
        for nodes in (joint.values, joint.gradients):
            nodes[:] = [self._instead.get(node, node) for node in nodes]

    def _rewrite(self, node: Node) -> None:
        """Replaces a node by the same operation on operands in planes."""
        with self._graph.inserting_before(node):
            args, kwargs = torch.fx.node.map_arg((node.args, node.kwargs), lambda a: self._in_planes(a, node))
            fakes, fake_kwargs = torch.fx.node.map_arg((args, kwargs), lambda a: a.meta["val"])
            assert callable(node.target)
            value = node.target(*fakes, **fake_kwargs)
            if not _is_same(value, node.meta["val"]):
                return
            made = self._add(node, node.target, args, kwargs, value)
            if isinstance(value, torch.Tensor):
                self._replace(node, made)
                return
            for user in list(node.users):
                at: Any = user.args[1]
                self._replace(user, self._add(user, operator.getitem, (made, at), {}, value[at]))
            self._instead[node] = made
            self._drop(node)

    def _add(self, like: Node, target: Any, args: Any, kwargs: Any, value: Any) -> Node:
        made = self._graph.create_node("call_function", target)
        made.args, made.kwargs = args, kwargs
        made.meta = {**like.meta, "val": value}
        if like in self._joint.forward:
            self._joint.forward.add(made)
        return made

    def _in_planes(self, a: Node, reader: Node) -> Node:
        """The operand in planes, copied if it is channels-last; other operands as they are."""
        # Where eager saves an input, the input itself is saved, so that autograd notices if it is written to meanwhile.
        later = a.op == "placeholder" and a in self._joint.forward and reader not in self._joint.forward
        known = self._again if later else self._planes
        if a in known:
            return known[a]
        if not _is_last(a):
            return a
        known[a] = self._copied(a, _planes(a.meta["val"]), reader)
        return known[a]

    def _copied(self, a: Node, stride: tuple[int, ...], like: Node) -> Node:
        return self._add(like, ops.copy_strided, (a, stride), {}, ops.copy_strided(a.meta["val"], stride))

    def _replace(self, node: Node, made: Node) -> None:
        """Replaces a node by one that computes the same value, copied to the layout of the old value if necessary."""
        stride, back = node.meta["val"].stride(), made
        if made.meta["val"].stride() != stride:
            back = self._copied(made, stride, node)
            if _is_last(node):
                self._planes[back] = made
        node.replace_all_uses_with(back)
        self._instead[node] = back
        self._drop(node)

    def _drop(self, node: Node) -> None:
        self._graph.erase_node(node)
        self._joint.forward.discard(node)


def _is_same(made: Any, wanted: Any) -> bool:
    """Whether two values differ in layout only."""
    if isinstance(wanted, torch.Tensor):
        return isinstance(made, torch.Tensor) and made.shape == wanted.shape and made.dtype == wanted.dtype
    if isinstance(wanted, (tuple, list)):
        return len(made) == len(wanted) and all(map(_is_same, made, wanted))
    return type(made) is type(wanted)
