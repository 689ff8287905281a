"""Lowering of a whole aten graph to operations: loop nests, library calls and views over named buffers.

``GraphLowering`` walks the nodes in order. An operator with a lowering becomes an expression (``values.TensorValue``).
When its value is needed in memory, or would otherwise be computed too often, it is *realized*: a loop nest stores it in
a buffer. All other operators become library calls on realized arguments. The operations are in the order of the graph;
``scheduler`` fuses them.

Invariant: a buffer that holds a node's value has exactly the strides of the node's fake tensor.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import Any, Union

import torch
import torch.utils._pytree as pytree

from dynamo_lite import log
from dynamo_lite.backends.aot import passes
from dynamo_lite.backends.aot.origin import operation_and_line, user_line
from dynamo_lite.backends.inductor import program as prog
from dynamo_lite.backends.inductor.ir import index as ix
from dynamo_lite.backends.inductor.ir.loops import Buffer, LoopNest
from dynamo_lite.backends.inductor.ir.nodes import Builder, Node, walk
from dynamo_lite.backends.inductor.ir.ops import OPS
from dynamo_lite.backends.inductor.ir.symbolic import index_of
from dynamo_lite.backends.inductor.lowering.abilities import ALL, Abilities
from dynamo_lite.backends.inductor.lowering.attention import attention_products
from dynamo_lite.backends.inductor.lowering.few_elements import chained
from dynamo_lite.backends.inductor.lowering.index_checks import check_rest
from dynamo_lite.backends.inductor.lowering.layouts import is_dense, is_separate, same_layout, same_strides, strides_of
from dynamo_lite.backends.inductor.lowering.lowered_graph import LoweredGraph, Operation
from dynamo_lite.backends.inductor.lowering.node_facts import REINTERPRETS, device_of, is_supported, leaves_graph
from dynamo_lite.backends.inductor.lowering.planes import realize_where_read
from dynamo_lite.backends.inductor.lowering.refusals import is_refused
from dynamo_lite.backends.inductor.lowering.size_floats import are_for_the_library
from dynamo_lite.backends.inductor.lowering.sizes import sizes_of
from dynamo_lite.backends.inductor.lowering.splitting import reduced_in_steps
from dynamo_lite.backends.inductor.lowering.storage import KEEP_STORAGE, argument_in_storage, keeps_foreign_storage
from dynamo_lite.backends.inductor.lowering.uses import Uses, find_uses
from dynamo_lite.backends.inductor.lowering.values import (
    Shape,
    TensorValue,
    dim_var,
    is_size,
    loop_vars,
    reindexed,
    shape_vars,
)
from dynamo_lite.backends.inductor.lowering_registry import lowering_of

# Limit of an expression's nodes: a larger one is stored in a buffer, which fusion usually eliminates again.
MAX_NODES = 300
# A value that several operations read is computed again in each if it costs at most as much as this many additions.
CHEAP_TO_REPEAT = 2


class GraphLowering:
    """The state of one graph's lowering; see the module's docstring. Lowerings get it as ``g`` and use ``ops``,
    ``realize``, ``memory_of`` and ``origin``."""

    def __init__(self, graph: torch.fx.Graph, constants: Mapping[str, torch.Tensor], abilities: Abilities = ALL):
        self.graph = graph
        self.abilities = abilities
        self.device = abilities.device
        self.constants = dict(constants)
        self.sizes = sizes_of(graph)
        self.ops = Builder()
        self.buffers: dict[str, Buffer] = {}
        self.operations: list[Operation] = []
        self.makers: dict[str, Operation] = {}  # by buffer: the library call or the loops that make it
        self.symbols: dict[str, Any] = {}
        self.env: dict[torch.fx.Node, Any] = {}
        self.origin: tuple[str, ...] = ()
        self._node: torch.fx.Node | None = None
        self._place: torch.device | None = None
        self.metrics = {"lowered": 0, "library": 0}
        self._origins: dict[int, tuple[str, ...]] = {}
        self._inputs: list[str] = []
        self._mutations: list[tuple[str, TensorValue]] = []
        self._settled: set[str] = set()  # buffers whose strides a library call or an output relies on
        self._view_names: dict[tuple[Any, ...], str] = {}
        self._shared: dict[str, str] = {}  # from a buffer that is read as another dtype to the one with its memory
        self._uses: dict[torch.fx.Node, Uses] = {}
        self._faults: list[tuple[type[Exception], str]] = []
        self._attention: set[torch.fx.Node] = set()  # products that are not left to the library
        self.products: set[str] = set()  # buffers that product templates write
        self.in_planes: set[str] = set()  # buffers laid out in planes, unlike eager's tensors: see ``planes``
        self.checked: list[Node] = []  # "bounded" nodes, each of which has to be computed in all its iterations

    # ------------------------------------------------------------ the walk
    def run(self) -> LoweredGraph:
        if self.abilities.online_softmax:
            self._attention = attention_products(self.graph, self.has_lowering)
        self._uses = find_uses(self.graph, self.has_lowering, self.abilities.few)
        outputs: tuple[Union[str, prog.Literal], ...] = ()
        for node in self.graph.nodes:
            if node.op == "placeholder":
                self.env[node] = self._placeholder(node)
            elif node.op == "get_attr":
                self.env[node] = self._constant(node)
            elif node.op == "output":
                outputs = self._outputs(node)
                self._mutate_inputs()
            else:
                assert node.op == "call_function", node.op
                self.origin = (operation_and_line(node),)
                self._node = node
                self.env[node] = self._call(node)
        return LoweredGraph(
            self.ops,
            tuple(self._inputs),
            self.constants,
            self.buffers,
            self.operations,
            outputs,
            self.symbols,
            self.metrics,
            self._faults,
        )

    def has_lowering(self, node: torch.fx.Node) -> bool:
        """Whether generated code computes a node: it has a lowering, eager accepts it, loops can handle its tensors."""
        lowering = lowering_of(node.target)
        if lowering is None or node.target in self.abilities.library and node not in self._attention:
            return False
        if lowering.random and not self.abilities.random:
            return False
        if self.abilities.leaves is not None and self.abilities.leaves(node):
            return False
        if is_refused(node, self.sizes) or are_for_the_library(node):
            return False
        values = pytree.tree_leaves([a.meta.get("val") for a in node.all_input_nodes] + [node.meta.get("val")])
        tensors = [v for v in values if isinstance(v, torch.Tensor)]
        complex_too = node.target in REINTERPRETS
        return len({v.device for v in tensors}) < 2 and all(is_supported(v, self.device, complex_too) for v in tensors)

    def is_read_on(self) -> bool:
        """Whether generated code computes with the result of the operation that is being lowered."""
        assert self._node is not None
        return self._uses[self._node].computed > 0

    def leaves_graph(self) -> bool:
        """Whether the first operand of the operation that is being lowered, or its result, is an output."""
        return self._node is not None and leaves_graph(self._node)

    def _placeholder(self, node: torch.fx.Node) -> Any:
        value = node.meta["val"]
        self._inputs.append(node.name)
        if isinstance(value, torch.Tensor):
            return self._memory(node.name, value)
        if isinstance(value, torch.SymInt):
            self.symbols[node.name] = index_of(value)
            return self.symbols[node.name]
        return value

    def _constant(self, node: torch.fx.Node) -> TensorValue:
        assert isinstance(node.target, str)
        return self._memory(node.target, node.meta["val"])

    def _memory(self, name: str, fake: torch.Tensor) -> TensorValue:
        """Makes a buffer with the layout of a fake tensor; returns the tensor that reads it."""
        size = tuple(map(index_of, fake.shape))
        stride = strides_of(fake)
        buffer = self.buffers[name] = Buffer(name, size, stride, fake.dtype, fake.device)
        return TensorValue(size, fake.dtype, self._read(buffer, fake), stride, fake.device)

    def _read(self, buffer: Buffer, fake: torch.Tensor) -> Node:
        """The elements of the tensor in a buffer. Its memory holds their negatives if it has the negative bit, as the
        imaginary part of a conjugate has (``at::Tensor::is_neg``)."""
        node = self.ops.load(buffer.name, buffer.load_index(shape_vars(buffer.size)), buffer.dtype)
        return self.ops.op("neg", node) if fake.is_neg() and not fake.is_complex() else node

    def _call(self, node: torch.fx.Node) -> Any:
        if node.target is operator.getitem:
            return self.env[node.args[0]][node.args[1]]  # type: ignore[index]
        if node.target is torch.ops.aten.copy_.default:
            destination, source = node.args[:2]
            assert isinstance(destination, torch.fx.Node) and isinstance(source, torch.fx.Node)
            self._mutations.append((destination.name, self.env[source]))
            return None
        if not node.users and passes.may_raise(node):
            return self._library(node)  # nobody uses the result, but the call may raise
        if self.has_lowering(node):
            args, kwargs = self._values((node.args, node.kwargs))
            lowering = lowering_of(node.target)
            assert lowering is not None
            self._place = device_of(node)
            result = lowering.fn(self, *args, **kwargs) if lowering.takes(args, kwargs) else NotImplemented
            self._place = None
            if result is not NotImplemented and self._is_computed(result):
                self.metrics["lowered"] += 1
                return self._adopt(node, result)
        return self._library(node)

    def _is_computed(self, result: Any) -> bool:
        """Whether the target's kernels can compute the expressions that a lowering has returned."""
        computes = self.abilities.computes
        if computes is None:
            return True
        values = result if isinstance(result, (tuple, list)) else (result,)
        return all(map(computes, walk(v.node for v in values if isinstance(v, TensorValue))))

    def _values(self, tree: Any) -> Any:
        """Arguments with nodes replaced by their values, and symbolic integers by indices."""

        def value(leaf: Any) -> Any:
            if isinstance(leaf, torch.fx.Node):
                return self.env[leaf]
            if isinstance(leaf, torch.SymFloat):
                return leaf.node
            return index_of(leaf) if isinstance(leaf, torch.SymInt) else leaf

        return torch.fx.node.map_aggregate(tree, value)

    def _adopt(self, node: torch.fx.Node, result: Any) -> Any:
        """Checks a lowering's result against the dtypes and shapes of eager's, and realizes it where that pays."""
        if not isinstance(result, TensorValue):
            for part, fake in zip(result, node.meta["val"]):
                if isinstance(part, TensorValue):
                    self._check(node, part, fake)
            parts = list(result)
            for user in node.users:
                at: Any = user.args[1] if user.target is operator.getitem else None
                if at is not None and isinstance(parts[at], TensorValue):
                    self._decide(user, parts[at])
            return tuple(parts)
        self._check(node, result, node.meta["val"])
        self._decide(node, result)
        return result

    def _check(self, node: torch.fx.Node, result: TensorValue, fake: torch.Tensor) -> None:
        shape = tuple(map(index_of, fake.shape))
        assert result.dtype is fake.dtype, f"{node.target}: lowered to {result.dtype}, eager gives {fake.dtype}"
        assert len(shape) == len(result.shape) and all(
            a == b for a, b in zip(result.shape, shape) if isinstance(a, int) and isinstance(b, int)
        ), f"{node.target}: lowered to shape {result.shape}, eager gives {shape}"
        result.stride = strides_of(fake)
        result.device = fake.device
        self._origins.setdefault(result.node.id, self.origin)

    def _decide(self, node: torch.fx.Node, x: TensorValue) -> None:
        uses = self._uses[node]
        if x.node.op == "load":
            return
        nodes = walk((x.node,))
        one_element = all(is_size(n, 1) for n in x.shape)
        if uses.library or len(nodes) > MAX_NODES:
            self.realize(x)
        elif (uses.computed > 1 or uses.widened) and self._cost(x) > CHEAP_TO_REPEAT and not one_element:
            realize_where_read(self, x)

    @staticmethod
    def _cost(x: TensorValue) -> int:
        """The cost of computing one element, in additions."""
        return sum(OPS[n.op].cost for n in walk((x.node,)) if n.op in OPS)

    # ------------------------------------------------------------ memory
    def new_buffer(self, size: Shape, stride: Shape, dtype: torch.dtype, device: torch.device) -> Buffer:
        name = f"buf{len(self.buffers)}"
        while name in self.buffers:
            name += "_"
        # While an operator is lowered, all tensors are on one device.
        buffer = self.buffers[name] = Buffer(name, size, stride, dtype, self._place or device)
        return buffer

    def writes_input(self, x: TensorValue) -> bool:
        """Whether ``x`` is an unmodified input, into which the result of the operator being lowered is written."""
        if x.node.op != "load" or x.node.attr[0] not in self._inputs or self._node is None:
            return False
        given = self._node.args[0]
        return any(user.target is torch.ops.aten.copy_.default and user.args[0] is given for user in self._node.users)

    def share(self, name: str, base: str) -> None:
        """Records that one buffer is another's memory, read as another dtype."""
        self._shared[name] = self._memory_name(base)

    def _memory_name(self, name: str) -> str:
        return self._shared.get(name, name)

    def is_given(self, name: str) -> bool:
        """Whether a buffer is an input or a constant."""
        return name in self._inputs or name in self.constants

    def realize(self, x: TensorValue, fresh: bool = False, gaps: bool = False) -> str:
        """Stores ``x`` in a buffer of its own layout and turns it into a load from there. Does nothing if it is a load
        already, unless ``fresh``. A layout with gaps becomes contiguous, unless ``gaps``. Returns the buffer's name."""
        if x.node.op == "load" and not fresh:
            return x.node.attr[0]
        fits = x.stride is not None and (is_separate if gaps else is_dense)(x.shape, x.stride)
        stride = x.stride if fits and x.stride is not None else ix.contiguous_strides(x.shape)
        buffer = self.new_buffer(x.shape, stride, x.dtype, x.device)
        variables = shape_vars(x.shape)
        index = buffer.load_index(variables)
        self.emit(LoopNest(buffer, loop_vars(variables), x.node, index, origin=self._origin_of(x.node)))
        x.node = self.ops.load(buffer.name, index, x.dtype)
        x.stride = stride
        return buffer.name

    def realize_result(self, x: TensorValue) -> None:
        """Realizes the result of the operator being lowered, in eager's layout."""
        x.stride = self.wanted_stride(x.shape)
        self.realize(x)

    def realize_if_dear(self, x: TensorValue) -> None:
        """Realizes a value that several loops of a lowering read, unless recomputing it costs next to nothing."""
        if self._cost(x) > CHEAP_TO_REPEAT:
            realize_where_read(self, x)

    def reduce(self, x: TensorValue, kind: str, dims: Sequence[int], keepdim: bool) -> TensorValue:
        """The reduction of ``x`` over ``dims``: in memory, or an expression if it has few elements. ``kind`` is a key
        of ``ir.ops.REDUCTIONS``."""
        result = chained(self, x, kind, dims, keepdim) or reduced_in_steps(self, x, kind, dims, keepdim)
        return self.reduce_at_once(x, kind, dims, keepdim) if result is None else result

    def reduce_at_once(self, x: TensorValue, kind: str, dims: Sequence[int], keepdim: bool) -> TensorValue:
        """The reduction of ``x`` over ``dims`` in a single loop nest, with the arguments of ``reduce``."""
        shape = tuple(1 if d in dims else n for d, n in enumerate(x.shape) if keepdim or d not in dims)
        dtype = torch.int64 if kind.startswith("arg") else x.dtype
        variables = shape_vars(x.shape)
        reduced = loop_vars([variables[d] for d in dims])
        kept = [0 if d in dims else v for d, v in enumerate(variables) if keepdim or d not in dims]
        if not reduced:
            node = self.ops.const(0, dtype) if kind.startswith("arg") else self.without_ones(x, () if keepdim else dims)
            return TensorValue(shape, dtype, node, device=x.device)
        stride = self.wanted_stride(shape) or ix.contiguous_strides(shape)
        buffer = self.new_buffer(shape, stride, dtype, x.device)
        position = ix.dot([variables[d] for d in dims], ix.contiguous_strides([x.shape[d] for d in dims]))
        self.emit(
            LoopNest(
                buffer,
                loop_vars(variables),
                x.node,
                ix.dot(kept, stride),
                kind,
                reduced,
                position if kind.startswith("arg") else 0,
                self._origin_of(x.node),
            )
        )
        return TensorValue(
            shape, dtype, self.ops.load(buffer.name, ix.dot(shape_vars(shape), stride), dtype), stride, x.device
        )

    def without_ones(self, x: TensorValue, dims: Sequence[int]) -> Node:
        """The element of ``x``, in terms of the variables of a tensor without ``dims``, which are of size 1."""
        indices: list[ix.Index] = []
        at = 0
        for d, n in enumerate(x.shape):
            indices.append(0 if d in dims else dim_var(at, n))
            at += d not in dims
        return reindexed(self.ops, x, indices)

    def result_dtypes(self) -> list[torch.dtype]:
        """Dtypes of the results that the operator being lowered has in eager."""
        return [v.dtype for v in self.results()]

    def results(self) -> list[torch.Tensor]:
        """The results that the operator being lowered has in eager, as fake tensors."""
        assert self._node is not None
        return [v for v in pytree.tree_leaves(self._node.meta["val"]) if isinstance(v, torch.Tensor)]

    def fault(self, error: type[Exception], message: str) -> int:
        """The number by which a kernel reports this error; ``{}`` in the message stands for the invalid index."""
        found = (error, message)
        if found not in self._faults:
            self._faults.append(found)
        return 1 + self._faults.index(found)

    def is_read(self, position: int) -> bool:
        """Whether any node reads the result at this position of the operator being lowered."""
        assert self._node is not None
        return any(user.args[1] == position for user in self._node.users if user.target is operator.getitem)

    def operand(self, at: int) -> Any:
        """An argument of the operator being lowered, as it is in the graph (a node or a constant)."""
        assert self._node is not None
        return self._node.args[at]

    def wanted_stride(self, shape: Shape) -> Shape | None:
        """Eager's strides of the operator being lowered, if its result has this shape."""
        value = self._node.meta["val"] if self._node is not None else None
        if isinstance(value, torch.Tensor) and tuple(map(index_of, value.shape)) == shape:
            return strides_of(value)
        return None

    def dense_stride(self, shape: Shape) -> Shape:
        """Eager's strides of the operator being lowered if known and without gaps; otherwise contiguous strides."""
        stride = self.wanted_stride(shape)
        return stride if stride is not None and is_dense(shape, stride) else ix.contiguous_strides(shape)

    def emit(self, operation: Operation) -> None:
        self.operations.append(operation)
        if isinstance(operation, prog.ExternCall):
            self.makers.update((name, operation) for name in operation.outputs if name is not None)
        elif isinstance(operation, LoopNest):
            self.makers[operation.buffer.name] = operation

    def _origin_of(self, node: Node) -> tuple[str, ...]:
        found = dict.fromkeys(o for n in walk((node,)) for o in self._origins.get(n.id, ()))
        return tuple(found) or self.origin

    def layout_of(self, x: TensorValue) -> tuple[str, Shape, ix.Index] | None:
        """``(buffer, strides, offset)`` if ``x`` is a strided view of a buffer of its own dtype."""
        if x.node.op != "load":
            return None
        name, index = x.node.attr
        affine = ix.affine_terms(index)
        if affine is None or self.buffers[name].dtype is not x.dtype:
            return None
        terms, offset = affine
        variables = shape_vars(x.shape)
        stride: list[ix.Index] = []
        for d, v in enumerate(variables):
            if isinstance(v, int):
                stride.append(x.stride[d] if x.stride is not None else 1)
            else:
                stride.append(terms.pop(next(iter(v.terms))[0], 0))
        if terms or any(isinstance(s, int) and s < 0 for s in stride):
            return None
        return name, tuple(stride), offset

    def memory_of(self, x: TensorValue) -> tuple[str, ix.Index]:
        """The buffer that holds ``x`` in eager's layout, and the offset of ``x`` in it; realizes ``x`` if need be."""
        layout = self.layout_of(x)
        if layout is None or not same_strides(x.shape, layout[1], x.stride):
            return self.realize(x, fresh=True), 0
        return layout[0], layout[2]

    def tensor_ref(self, x: TensorValue) -> str:
        """The name of the buffer, or view of one, that is passed to a library call as ``x``."""
        layout = self.layout_of(x)
        if layout is None or (
            x.stride is not None and not same_strides(x.shape, layout[1], x.stride) and is_dense(x.shape, x.stride)
        ):
            return self.realize(x, fresh=True)
        base, stride, offset = layout
        if is_size(offset, 0) and same_layout(x.shape, stride, self.buffers[base]):
            return self._exactly_laid_out(base, x)
        key = (base, x.shape, stride, offset)
        name = self._view_names.get(key)
        if name is None:
            view = self.new_buffer(x.shape, stride, x.dtype, x.device)
            name = self._view_names[key] = view.name
            self.emit(prog.View(name, base, self.size_expr(offset)))
        return name

    def size_expr(self, x: ix.Index) -> Any:
        """An index as an integer of the program."""
        return x

    # ------------------------------------------------------------ library calls, writes to inputs, outputs
    def _library(self, node: torch.fx.Node) -> Any:
        """Emits a library call for the node, with realized arguments; returns the values that read its results."""
        self.metrics["library"] += 1
        if log.enabled("fallbacks"):
            lowered = lowering_of(node.target) is not None
            why = "a case that its lowering leaves to the library" if lowered else "no lowering"
            log.artifact("fallbacks").info("library call: %s (%s): %s", node.target, why, user_line(node))
        device = device_of(node)

        def reference(leaf: Any) -> Any:
            if isinstance(leaf, torch.fx.Node):
                leaf = self.env[leaf]
            if isinstance(leaf, TensorValue):
                return prog.BufferRef(self.tensor_ref(leaf))
            if isinstance(leaf, torch.SymInt):
                return prog.SizeRef(index_of(leaf))
            return prog.SizeRef(self.size_expr(leaf)) if isinstance(leaf, ix.Expr) else leaf

        kept = node.target in KEEP_STORAGE
        args, kwargs = torch.fx.node.map_aggregate((node.args[kept:], dict(node.kwargs)), reference)
        if kept:
            args = (prog.BufferRef(argument_in_storage(self, node.all_input_nodes[0])), *args)
        leaves, spec = pytree.tree_flatten(node.meta["val"])
        names: list[str | None] = []
        values: list[Any] = []
        for leaf in leaves:
            if not isinstance(leaf, torch.Tensor):
                names.append(None)
                values.append(leaf)
                continue
            buffer = self.new_buffer(
                tuple(map(index_of, leaf.shape)), strides_of(leaf), leaf.dtype, leaf.device or device
            )
            names.append(buffer.name)
            values.append(
                TensorValue(buffer.size, leaf.dtype, self._read(buffer, leaf), buffer.stride, leaf.device)
            )
        unpack = isinstance(node.meta["val"], (tuple, list))
        if unpack:
            read = {user.args[1] for user in node.users if user.target is operator.getitem}
            names = [name if at in read else None for at, name in enumerate(names)]
        call = prog.ExternCall(node.target, tuple(args), dict(kwargs), tuple(names), ", ".join(self.origin), unpack)
        self.emit(call)
        if passes.is_view(node.target):
            for name in prog.step_writes(call):
                self.share(name, call.reads()[0])
        return pytree.tree_unflatten(values, spec)

    def _mutate_inputs(self) -> None:
        """Copies new values into mutated inputs at the end of the graph, after all reads of their old values."""
        overwritten = {destination for destination, _ in self._mutations}
        for _, source in self._mutations:
            layout = self.layout_of(source)
            if layout is not None and layout[0] in overwritten:
                # Another copy might overwrite the source before it is read.
                self.realize(source, fresh=True)
        sources = [self.tensor_ref(source) for _, source in self._mutations]
        check_rest(self)
        for (destination, _), name in zip(self._mutations, sources):
            self.emit(prog.CopyInto(destination, name))

    def _outputs(self, node: torch.fx.Node) -> tuple[Union[str, prog.Literal], ...]:
        """The program's outputs: numbers, and buffers of their own, each with eager's layout."""
        taken: set[str] = set()
        out: list[Union[str, prog.Literal]] = []
        values: Any = node.args[0]
        for arg in values:
            value = self.env[arg] if isinstance(arg, torch.fx.Node) else arg
            if not isinstance(value, TensorValue):
                out.append(prog.Literal(value))
                continue
            value = TensorValue(value.shape, value.dtype, value.node, strides_of(arg.meta["val"]), value.device)
            layout = self.layout_of(value)
            # A buffer that is an input or another output can't be returned as this output, nor can a view of one.
            own = (
                layout is not None
                and self._memory_name(layout[0]) not in taken
                and not self.is_given(self._memory_name(layout[0]))
                and is_size(layout[2], 0)
                and (same_layout(value.shape, layout[1], self.buffers[layout[0]]))
                and (same_strides(value.shape, layout[1], value.stride))
            )
            name = None
            if layout is None or not keeps_foreign_storage(self, layout[0], arg):
                name = layout[0] if own and layout is not None else self._reshaped(value, taken)
            if name is None:
                name = self.realize(value, fresh=True, gaps=True)
            taken.add(self._memory_name(name))
            out.append(self._exactly_laid_out(name, value))
        return tuple(out)

    def _reshaped(self, value: TensorValue, taken: set[str]) -> str | None:
        """The name of ``value`` if it is the whole result of a library call or a product in another shape: a tensor of
        that shape which is no view (``x @ w`` of three dimensions is computed with two). None for any other value."""
        layout = self.layout_of(value)
        if layout is None or self._memory_name(layout[0]) in taken or not is_size(layout[2], 0):
            return None
        name = layout[0]
        buffer = self.buffers[name]
        if not all(isinstance(n, int) for n in (*value.shape, *buffer.size)):
            return None
        layouts = ((value.shape, layout[1]), (value.shape, value.stride), (buffer.size, buffer.stride))
        if ix.product(value.shape) != ix.product(buffer.size) or not all(
                same_strides(size, ix.contiguous_strides(size), stride) for size, stride in layouts):
            return None
        if name not in self.products and not isinstance(self.makers.get(name), prog.ExternCall):
            return None
        taken.add(name)
        result = self.new_buffer(value.shape, ix.contiguous_strides(value.shape), value.dtype, value.device)
        self.emit(prog.ExternCall(torch.ops.aten._unsafe_view.default, (prog.BufferRef(name), list(value.shape)), {},
                                  (result.name,), "view"))
        return result.name

    def _exactly_laid_out(self, name: str, value: TensorValue) -> str:
        """A name of the buffer with eager's strides in dimensions of size 1, too: the layout of a library call's result
        may depend on them."""
        buffer = self.buffers[name]
        settled = name in self._settled
        self._settled.add(name)
        if value.stride is None:
            return name
        # In other dimensions eager's strides may leave gaps, which this memory does not have.
        exact = tuple(eager if is_size(n, 1) else own
                      for n, own, eager in zip(buffer.size, buffer.stride, value.stride, strict=True))
        if buffer.stride == exact:
            return name
        if not settled and isinstance(self.makers.get(name), LoopNest):
            buffer.stride = exact
            return name
        key = (name, value.shape, exact, 0)
        if key not in self._view_names:
            view = self.new_buffer(value.shape, exact, value.dtype, value.device)
            self._view_names[key] = view.name
            self.emit(prog.View(view.name, name))
        return self._view_names[key]
