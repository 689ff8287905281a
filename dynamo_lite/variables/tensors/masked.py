"""``x[mask]`` with a mask whose elements are not known: only the running graph knows how many elements it selects.

Nothing is computed at the read. Where elementwise operations follow, the graph computes them for all elements of ``x``
(`dense`), and ``x[mask] = ...`` with the same mask writes ``torch.where(mask, dense, x)``: ``x[mask] *= 2`` and
``x[x < 0] = -x[x < 0]`` need no size that depends on data. Elements outside of the mask count as zeros in `dense`, by
``masked_fill``, so that gradients that are infinite or NaN there do not get into those of ``x``.

Any other use asks for :attr:`MaskedTensorVariable.node` or `fake`: the elements are selected in the graph if the mask
can be known, else the graph breaks there and generated code selects them behind the graph. Where that would be wrong,
or where all elements may be many more than the selected ones (a mask of rows), the trace starts again and does not wait
at this read.

Invariant: the selected elements are those that ``x`` and the mask had where the program read ``x[mask]``.
"""
from __future__ import annotations

import dataclasses
import operator
from typing import TYPE_CHECKING, Any

import torch
from torch import fx

from ...exc import Unsupported
from ...fake.dense_results import is_known_equal
from ...runtime.masked_elements import masked_elements
from ...runtime.storage_extent import is_surely_disjoint
from ..base import VariableTracker, realized
from ..constant import ConstantVariable
from ..containers.sequences import TupleVariable
from .attributes import PLAIN_TENSOR_TYPES
from .elementwise import changes_operand, is_elementwise, is_question, name_of
from .learned_elements import known_tensor
from .tensor import TensorVariable, call_in_graph, record

if TYPE_CHECKING:
    from ..protocols import Codegen, Tracer

_KIND = "dynamic_output_shape"
_BASIC = (int, slice, type(None), type(...))
_DEPTH = 6  # nested operations in a mask up to which two computations of it are compared


class SelectionNeeded(Unsupported):
    """The elements that a mask selects are needed at the read: the trace starts again without waiting there.

    Args:
        at: the number of the root frame's instruction that reads them.
    """

    def __init__(self, detail: str, at: int) -> None:
        super().__init__(_KIND, detail)
        self.at = at


@dataclasses.dataclass(eq=False)
class Selection:
    """The elements that a mask selects.

    Args:
        mask: the mask.
        before: number of dimensions of the tensor before those of the mask.
        last: the graph's last node where the program has used the mask first.
        outside: the mask inverted, a tensor that nothing else writes to; made when it is needed.
    """

    mask: TensorVariable
    before: int
    last: fx.Node | None
    outside: TensorVariable | None = None

    def covers(self, tensor: torch.Tensor) -> bool:
        """Whether the mask has all dimensions of a tensor."""
        return not self.before and tensor.dim() == self.mask.fake.dim()

    def behind(self, tensor: torch.Tensor) -> int:
        """Number of a tensor's dimensions behind those of the mask."""
        return tensor.dim() - self.before - self.mask.fake.dim()

    def outside_of(self, tx: Tracer, tensor: torch.Tensor) -> VariableTracker:
        """The inverted mask, in a shape that broadcasts to that of the tensor."""
        if self.outside is None:
            made = call_in_graph(tx, torch.logical_not, [self.mask], {})
            assert isinstance(made, TensorVariable)
            self.outside = made
        found: VariableTracker = self.outside
        for _ in range(self.behind(tensor)):
            found = found.call_method(tx, "unsqueeze", [ConstantVariable(-1)], {})
        return found


class MaskedTensorVariable(TensorVariable):
    """The elements of a tensor that a mask selects.

    Args:
        tx: the evaluator of the root frame.
        selection: which elements.
        view: the tensor that they are read from.
        read: the elements that these are computed from; None: they have just been read.
    """

    def __init__(
        self, tx: Tracer, selection: Selection, view: TensorVariable, read: MaskedTensorVariable | None = None
    ) -> None:
        VariableTracker.__init__(self, None)
        self.cls = torch.Tensor
        self.value = None
        self.selection = selection
        # The tensor of all elements that these are a part of; None: nothing has been computed yet.
        self.dense = view if read is not None else None
        self.made: TensorVariable | None = None
        self._tx: Tracer = _root(tx)
        self._view = view
        self._last = _last_node(tx)
        self._visit: int = tx.root_visit() if read is None else read._visit
        self._with_gradient = torch.is_grad_enabled()

    # -- the elements in the graph
    @property
    def node(self) -> fx.Node:
        return self._select().node

    @node.setter
    def node(self, node: fx.Node) -> None:
        self._select().node = node

    @property
    def fake(self) -> torch.Tensor:
        return self._select().fake

    @fake.setter
    def fake(self, fake: torch.Tensor) -> None:
        self._select().fake = fake

    def whole(self) -> TensorVariable:
        """The tensor that these elements are a part of."""
        return self.dense if self.dense is not None else self._view

    def _select(self) -> TensorVariable:
        """The tensor of the graph that has these elements alone."""
        if self.made is None:
            tx = self._tx
            self.check()
            mask: VariableTracker = self.selection.mask
            if self.dense is not None and self.is_written(mask):
                assert self.selection.outside is not None
                mask = self.selection.outside.unary(tx, "~")
            key: list[VariableTracker] = [ConstantVariable(slice(None))] * self.selection.before
            made = call_in_graph(tx, operator.getitem, [self.whole(), TupleVariable([*key, mask])], {})
            assert isinstance(made, TensorVariable)
            self.made = made
            tx.output.register_tensor(self)
        return self.made

    def is_written(self, *tensors: VariableTracker) -> bool:
        """Whether one of the tensors has been written to since the read."""
        return _written_behind(self._tx.output.graph, {self._last}, {_storage(t) for t in tensors})

    def check(self, leaves: bool = True, behind_graph: bool = False) -> None:
        """Has the trace start again if the elements can't be had any more as they were at the read.

        Args:
            leaves: whether they are selected now.
            behind_graph: whether generated code does so.
        """
        whole, why = self.whole().fake, ""
        if self._with_gradient != torch.is_grad_enabled() and whole.requires_grad:
            why = "under another grad mode"
        elif self._tx.output.rebound:
            why = "behind setting Tensor.data"
        elif self.dense is None and self.is_written(self._view, self.selection.mask):
            why = "behind a change of the tensor or of the mask"
        elif behind_graph and self._tx.output.fullgraph:
            why = "behind the graph"
        elif leaves and self.dense is not None and not self.selection.covers(whole):
            why = "and not in a write by the same mask"
        if why:
            raise SelectionNeeded(f"an index of truths that are not known, whose result is used {why}", self._visit)

    def densely(self, tx: Tracer) -> TensorVariable:
        """The tensor of all elements that these are a part of."""
        if self.dense is None:
            self.check(leaves=False)
            outside = self.selection.outside_of(tx, self._view.fake)
            made = self._view.call_method(tx, "masked_fill", [outside, ConstantVariable(0)], {})
            assert isinstance(made, TensorVariable)
            self.dense = made
        return self.dense

    # -- metadata
    def describe(self) -> str:
        return f"tensor of the elements that a mask selects, {self.whole().fake.dtype}"

    def getattr(self, tx: Tracer, name: str) -> VariableTracker:
        if self.made is None and not tx.output.overrides.active():
            if name in ("dtype", "device", "layout", "requires_grad"):
                return self.whole().getattr(tx, name)
            if name == "ndim":
                return ConstantVariable(self._dims())
        return super().getattr(tx, name)

    def call_method(
        self, tx: Tracer, name: str, args: list[VariableTracker], kwargs: dict[str, VariableTracker]
    ) -> VariableTracker:
        if self.made is None and name in ("dim", "ndimension") and not args and not tx.output.overrides.active():
            return ConstantVariable(self._dims())
        return super().call_method(tx, name, args, kwargs)

    def _dims(self) -> int:
        return self.whole().fake.dim() - self.selection.mask.fake.dim() + 1

    # -- behind the graph
    def reconstruct(self, cg: Codegen) -> None:
        if self.made is not None:
            cg.load_output(self)
            return
        self.check(behind_graph=True)
        cg.build_new(self, lambda: self._build(cg), lambda: cg.store_attributes(self))

    def _build(self, cg: Codegen) -> None:
        inverted = self.dense is not None
        mask = self.selection.outside if inverted else self.selection.mask
        assert mask is not None
        args = [self.whole(), mask, *map(ConstantVariable, (self.selection.before, inverted, self._with_gradient))]
        cg.call_function(masked_elements, args, {})


class MaskedReads:
    """The reads by masks in one trace."""

    def __init__(self) -> None:
        self._selections: list[Selection] = []
        # Instructions of the root frame that do not wait with the selection; None: none of them waits.
        self.selected_at: frozenset[int] | None = frozenset()

    def forget(self) -> None:
        self._selections.clear()

    def read(self, tx: Tracer, tensor: TensorVariable, key: VariableTracker) -> VariableTracker | None:
        """``tensor[key]`` where the key has one mask whose elements are not known; None for other keys."""
        found = self._selected(tx, tensor, key)
        return None if found is None else MaskedTensorVariable(tx, found[1], found[0])

    def write(self, tx: Tracer, tensor: TensorVariable, key: VariableTracker, value: VariableTracker) -> bool:
        """Does ``tensor[key] = value`` where the same mask has selected the value, and returns whether it was done."""
        value = realized(tx, value)
        if not isinstance(value, MaskedTensorVariable) or value.made is not None:
            return False
        found = self._selected(tx, tensor, key)
        if found is None or found[1] is not value.selection:
            return False
        view, selection, mask = found
        whole = value.whole().fake
        if whole.dtype is not view.fake.dtype or not _same_shape(whole, view.fake):
            return False
        if not _has_no_overlap(view.fake) or _storage(view) in (_storage(selection.mask), _storage(mask)):
            return False
        outside = selection.outside_of(tx, view.fake)
        result = call_in_graph(tx, torch.where, [outside, view, value.densely(tx)], {})
        view.call_method(tx, "copy_", [result], {})
        return True

    def record(
        self, tx: Tracer, op: str, target: Any, args: list[VariableTracker], kwargs: dict[str, VariableTracker]
    ) -> VariableTracker | None:
        """The result of an elementwise operation on selected elements, computed for all elements; None where that can't
        be done, or no operand is one of them."""
        if not self._selections:
            return None
        masked = [a for a in args if isinstance(a, MaskedTensorVariable) and a.made is None]
        if not masked or not _is_dense_operation(op, target, args, kwargs, masked):
            return None
        name = name_of(op, target)
        if not all(_same_shape(m.whole().fake, masked[0].whole().fake) for m in masked):
            return None
        whole = [m.densely(tx) for m in masked]
        by_id: dict[int, VariableTracker] = {id(m): w for m, w in zip(masked, whole)}
        made = record(tx, op, target, [by_id.get(id(a), a) for a in args], kwargs)
        if is_question(name) or not isinstance(made, TensorVariable):
            return made
        for m, w in zip(masked, whole):
            if made is w:
                return m
        return MaskedTensorVariable(tx, masked[0].selection, made, masked[0])

    def _selected(
        self, tx: Tracer, tensor: TensorVariable, key: VariableTracker
    ) -> tuple[TensorVariable, Selection, TensorVariable] | None:
        """The view of a tensor, which of its elements a key with one mask selects, and the mask."""
        output = tx.output
        if self.selected_at is None or tx.root_visit() in self.selected_at or output.captures_sizes:
            return None
        if output.overrides.active() or output.examples or output.parts or output.rebound or output.choices.made:
            return None
        keys = [realized(tx, k) for k in (key.items if type(key) is TupleVariable else [key])]
        at = [place for place, k in enumerate(keys) if isinstance(k, TensorVariable)]
        if len(at) != 1 or not all(k.python_type() in _BASIC for k in keys if not isinstance(k, TensorVariable)):
            return None
        mask = keys[at[0]]
        assert isinstance(mask, TensorVariable)
        if isinstance(mask, MaskedTensorVariable) or isinstance(tensor, MaskedTensorVariable):
            return None
        if not _is_mask(tx, mask, tensor):
            return None
        view, before = tensor, 0
        if len(keys) > 1:
            split = _as_view(tx, tensor, keys, at[0])
            if split is None:
                return None
            view, before = split
        size, whole = mask.fake.shape, view.fake.shape[before:]
        if len(whole) < len(size) or not all(map(is_known_equal, size, whole)):
            return None
        return view, self._selection(tx, mask, before), mask

    def _selection(self, tx: Tracer, mask: TensorVariable, before: int) -> Selection:
        graph = tx.output.graph
        for known in self._selections:
            if known.before == before and _is_same_mask(graph, known, mask):
                return known
        made = Selection(mask, before, _last_node(tx))
        self._selections.append(made)
        return made


# ---------------------------------------------------------------- what can be selected
def _is_mask(tx: Tracer, mask: Any, tensor: TensorVariable) -> bool:
    a, b = mask.fake, tensor.fake
    if tensor.cls not in PLAIN_TENSOR_TYPES or mask.cls is not torch.Tensor or tensor.alternatives:
        return False
    if a.dtype is not torch.bool or not a.dim() or a.device != b.device or b.is_inference() or b.is_complex():
        return False
    if any(x.layout is not torch.strided or x.is_quantized for x in (a, b)):
        return False
    if torch.is_inference_mode_enabled():
        return False  # generated code may run outside of the mode, which marks the tensors made in it
    return known_tensor(tx, a) is None


def _as_view(tx: Tracer, tensor: TensorVariable, keys: list[Any], at: int) -> tuple[TensorVariable, int] | None:
    """The view that the other indices give, and the number of its dimensions before the mask."""
    taken = [keys[at].fake.dim() if k is keys[at] else k.python_type() in (int, slice) for k in keys]
    rest = tensor.fake.dim() - sum(taken)
    kinds = [None if k is keys[at] else k.python_type() for k in keys]
    if rest < 0 or kinds.count(type(...)) > 1:
        return None
    made = {int: 0, slice: 1, type(None): 1, type(...): rest}
    before = sum(made[kind] for kind in kinds[:at] if kind is not None)
    whole: list[VariableTracker] = [ConstantVariable(slice(None))] * keys[at].fake.dim()
    view = tensor.getitem(tx, TupleVariable([*keys[:at], *whole, *keys[at + 1 :]]))
    return (view, before) if isinstance(view, TensorVariable) else None


def _is_dense_operation(
    op: str, target: Any, args: list[VariableTracker], kwargs: dict[str, VariableTracker],
    masked: list[MaskedTensorVariable],
) -> bool:
    """Whether an operation can be computed for all elements, and each operand broadcasts to them as it does to the
    selected ones."""
    selection, first = masked[0].selection, masked[0].whole().fake
    name = name_of(op, target)
    constants = [a.constant() for a in args if a.is_constant()]
    if not is_elementwise(name, first.dtype, constants, kwargs) or any(a.contains_tensor() for a in kwargs.values()):
        return False
    if changes_operand(name) and args[0] is not masked[0]:
        return False
    sizes = first.shape[first.dim() - selection.behind(first):]
    for operand in args:
        if isinstance(operand, MaskedTensorVariable) and operand.made is None:
            if operand.selection is not selection:
                return False
        elif isinstance(operand, TensorVariable):
            own = operand.fake.shape
            if len(own) > len(sizes) or operand.fake.requires_grad and torch.is_grad_enabled():
                return False
            if not all(is_known_equal(n, 1) or is_known_equal(n, m) for n, m in zip(own[::-1], sizes[::-1])):
                return False
        elif operand.contains_tensor():
            return False
    return True


def _same_shape(a: torch.Tensor, b: torch.Tensor) -> bool:
    return a.dim() == b.dim() and all(map(is_known_equal, a.shape, b.shape))


def _has_no_overlap(x: torch.Tensor) -> bool:
    """Whether no two elements surely share memory."""
    return x.is_contiguous() if x._has_symbolic_sizes_strides else is_surely_disjoint(x.shape, x.stride())


# ---------------------------------------------------------------- the same elements later
def _root(tx: Tracer) -> Tracer:
    while tx.parent is not None:
        tx = tx.parent
    return tx


def _last_node(tx: Tracer) -> fx.Node | None:
    return next(iter(reversed(tx.output.graph.nodes)), None)


def _storage(tensor: VariableTracker) -> int:
    assert isinstance(tensor, TensorVariable)
    return int(tensor.fake.untyped_storage()._cdata)


def _written_behind(graph: fx.Graph, first: set[fx.Node | None], storages: set[int]) -> bool:
    """Whether a node that comes behind the earliest of the nodes `first` may write to one of the storages."""
    left = set(first)
    for other in reversed(graph.nodes):
        left.discard(other)
        if not left:
            return False
        if other.meta.get("impure") and not storages.isdisjoint(_storages_of(other)):
            return True
    return False


def _storages_of(node: fx.Node) -> set[int]:
    fakes = [argument.meta.get("example_value") for argument in node.all_input_nodes]
    return {f.untyped_storage()._cdata for f in fakes if isinstance(f, torch.Tensor)}


def _is_same_mask(graph: fx.Graph, known: Selection, mask: TensorVariable) -> bool:
    """Whether a mask has the elements that a known selection was made with."""
    read: dict[fx.Node, bool] = {}
    if not _computes_same(known.mask.node, mask.node, read, _DEPTH):
        return False
    fakes = [node.meta["example_value"] for node in read]
    storages = {fake.untyped_storage()._cdata for fake in fakes if isinstance(fake, torch.Tensor)}
    # What was computed twice must have been computed from the same elements.
    twice: set[fx.Node | None] = {node for node, shared in read.items() if not shared}
    return not _written_behind(graph, twice or {known.last}, storages)


def _computes_same(a: Any, b: Any, read: dict[fx.Node, bool], depth: int) -> bool:
    """Whether two nodes compute the same from the same nodes; `read` gets the nodes that this depends on, and for each
    whether it is one node that both are computed from."""
    if not isinstance(a, fx.Node) or not isinstance(b, fx.Node):
        if isinstance(a, (list, tuple)) and type(a) is type(b) and len(a) == len(b):
            return all(_computes_same(x, y, read, depth) for x, y in zip(a, b))
        return type(a) is type(b) and not isinstance(a, (fx.Node, dict)) and bool(a is b or a == b) and str(a) == str(b)
    if a is b:
        read.setdefault(a, True)
        return True
    read[a] = read[b] = False
    if not depth or a.op != b.op or a.target != b.target or a.op not in ("call_function", "call_method"):
        return False
    if a.kwargs or b.kwargs or a.meta["impure"] or len(a.args) != len(b.args):
        return False
    constants = [x for x in a.args if not isinstance(x, fx.Node)]
    name = name_of(a.op, a.target)
    operand = a.args[0].meta["example_value"] if isinstance(a.args[0], fx.Node) else None
    if not isinstance(operand, torch.Tensor) or changes_operand(name) or not (
            is_elementwise(name, operand.dtype, constants, ()) or a.target is operator.getitem):
        return False
    return all(_computes_same(x, y, read, depth - 1) for x, y in zip(a.args, b.args))
