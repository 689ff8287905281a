"""The recorder: interprets a captured graph on fake tensors and records the aten calls that it makes as a functional
graph.

The captured graph is interpreted, node by node, under a dispatch mode that sits above the fake mode and below autograd.
Each aten call that arrives there is, in this order: decomposed by our table; decomposed by aten's own kernel if it is a
composite (so that eager's choice of algorithm is kept); rewritten to its functional form if it writes to an argument;
or run on the fake tensors and recorded as a node. ``functional.Memory`` keeps track of memory.

Invariant: running the finished graph on real inputs and then applying its ``outputs`` recipes has the same side effects
and results as the captured graph in eager, including the stream of random numbers.
"""
from __future__ import annotations

import contextlib
import operator
import types
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
import torch.fx
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
    UnsupportedOperatorException,
)
from torch.fx import Graph, GraphModule, Node
from torch.utils._python_dispatch import TorchDispatchMode

from dynamo_lite.backends.aot import ambient, ops, passes
from dynamo_lite.backends.aot.decompositions.foreach import one_by_one
from dynamo_lite.backends.aot.functional import CannotFunctionalize, Memory, Tracked, ViewStep
from dynamo_lite.backends.aot.gradient_flags import GradientFlags
from dynamo_lite.backends.aot.graph import AtenGraph, InputOutput, OutputAlias, OutputRecipe
from dynamo_lite.backends.aot.inner_gradients import computes_gradients
from dynamo_lite.backends.aot.mutation import argument_at, functional_form
from dynamo_lite.backends.aot.operation_kinds import KEPT_COMPOSITES, LIFTS, is_factory, kind_of
from dynamo_lite.backends.aot.output_aliasing import alias_outputs
from dynamo_lite.backends.aot.strided_views import check_has_gradients, check_reads_alike, is_within
from dynamo_lite.runtime import autocast, casts_inside
from dynamo_lite.runtime.saved_tensor_hooks import saved_tensor_hooks_suspended
from dynamo_lite.symbols import torch_questions
from dynamo_lite.symbols.environment import NumbersAsked

aten = torch.ops.aten
Decompositions = dict[Any, Callable[..., Any]]

_FILLS = frozenset({aten.fill_.Scalar, aten.fill_.Tensor, aten.zero_.default})
_RANDOM_FILLS = frozenset(
    getattr(packet, overload)
    for packet in (aten.bernoulli_, aten.cauchy_, aten.exponential_, aten.geometric_, aten.log_normal_, aten.normal_,
                   aten.random_, aten.uniform_)
    for overload in packet.overloads())


_WITHOUT_GRADIENT = frozenset({torch.nn.functional.one_hot})
"""Composites that run below autograd, as it would decompose them otherwise before our decomposition gets them."""


def fake_mode_of(gm: GraphModule, example_inputs: list[Any]) -> Any:
    """The fake mode of the example inputs, or the one the front end left in ``gm.meta``."""
    for value in example_inputs:
        if isinstance(value, FakeTensor):
            return value.fake_mode
    return gm.meta["fake_mode"]


def record(gm: GraphModule, example_inputs: list[Any], decompositions: Decompositions) -> AtenGraph:
    """The functional aten graph of ``gm``.

    Args:
        gm: the captured graph; its output is a flat tuple.
        example_inputs: a fake tensor (or number) for each placeholder, as at the graph's entry.
        decompositions: maps an operation to a function of the same arguments that computes it by other operations, or
            returns ``NotImplemented``.

    Raises:
        CannotFunctionalize: the graph does something to memory that has no functional form, or makes a tensor whose
            size depends on values of other tensors.
    """
    if any(map(_is_new_leaf, gm.graph.output_node().all_input_nodes)):
        raise CannotFunctionalize("a result that is a new leaf of autograd")
    if computes_gradients(gm):
        raise CannotFunctionalize("a gradient inside of a graph (autograd.grad) that is recorded without autograd")
    refuse_chosen_gradients(gm)
    mode = fake_mode_of(gm, example_inputs)
    recorder = Recorder(mode, decompositions, below_autograd=True)
    recorder.add_inputs(gm, example_inputs)
    answered = torch_questions.scope(symbols=False)
    with answered, global_state_kept(), mode, torch._C._AutoDispatchBelowAutograd(), recorder:
        try:
            results = recorder.interpret(gm, example_inputs)
        except (DataDependentOutputException, DynamicOutputShapeException, UnsupportedOperatorException) as e:
            raise CannotFunctionalize(f"{type(e).__name__.removesuffix('Exception')}: {e}") from e
    with mode:
        graph = alias_outputs(
            recorder.graph, recorder.memory, recorder.emit, recorder.inputs, recorder.constants, results)
    if not torch.is_inference_mode_enabled():
        graph.inference = _makes_inference_tensors(graph.outputs, results)
    passes.clean(graph)
    return graph


def _makes_inference_tensors(recipes: Sequence[OutputRecipe], results: Sequence[Any]) -> bool:
    """Whether the tensors that a graph makes are inference tensors. Views of its inputs are not considered."""
    made = set()
    for recipe, result in zip(recipes, results):
        base = recipe.base if isinstance(recipe, OutputAlias) else recipe
        if isinstance(result, FakeTensor) and not isinstance(base, InputOutput):
            made.add(result.is_inference())
    if len(made) > 1:
        raise CannotFunctionalize("results of which only some are inference tensors")
    return made == {True}


def refuse_chosen_gradients(gm: GraphModule) -> None:
    """Refuses gradients through a choice between graphs. They would be computed for all branches, and the zeros of a
    branch that did not run could be multiplied by infinities on their way.
    """
    for node in gm.graph.nodes:
        if node.op != "call_function":
            continue
        if isinstance(getattr(node.target, "body", None), GraphModule):
            refuse_chosen_gradients(node.target.body)
        values = node.meta.get("example_value", (None,))
        if getattr(node.target, "chooses", False) and any(getattr(v, "requires_grad", True) for v in values):
            raise CannotFunctionalize("gradients of the one branch that ran")


def _is_new_leaf(node: Node) -> bool:
    """Whether a node makes a leaf of autograd that requires grad."""
    value = node.meta.get("example_value")
    if node.op == "placeholder" or not isinstance(value, torch.Tensor) or not (value.requires_grad and value.is_leaf):
        return False
    # A view that was taken without gradients counts as its base does.
    return value._base is None or not value._base.requires_grad


@contextlib.contextmanager
def global_state_kept() -> Iterator[None]:
    """Restores grad mode, default dtype and autocast, whatever nodes of the graph switch and wherever it ends. Keeps
    fake tensors out of autocast's cache of casts, and from the program's saved-tensor hooks.
    """
    grad, dtype = torch.is_grad_enabled(), torch.get_default_dtype()
    casting, depth = ambient.casting(), autocast.depth()
    torch.clear_autocast_cache()
    with saved_tensor_hooks_suspended():
        try:
            yield
        finally:
            torch._C._set_grad_enabled(grad)
            torch.set_default_dtype(dtype)
            ambient.set_casting(casting)
            autocast.set_depth(depth)
            torch.clear_autocast_cache()


class Recorder(TorchDispatchMode):
    """The dispatch mode, which holds the graph under construction.

    Attributes:
        graph: the functional graph so far.
        memory: the value of each fake tensor.
        inputs: the ``Tracked`` of each placeholder, or None if it is not a tensor.
        constants: real tensors that the program uses and that are not inputs.
    """

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # Keeps torch from wrapping __torch_dispatch__ in a function that imports torch._dynamo.
        return False

    def __init__(self, fake_mode: Any, decompositions: Decompositions, below_autograd: bool = False) -> None:
        super().__init__()
        self._flags = GradientFlags(below_autograd)
        self.graph = Graph()
        self.memory = Memory(self.emit)
        self.inputs: list[Tracked | None] = []
        self.constants: dict[str, torch.Tensor] = {}
        self._constant_nodes: dict[int, Node] = {}
        self._fake_mode = fake_mode
        self._decompositions = decompositions
        self._origin: Node | None = None
        self._insert_constants_after: Node | None = None
        self._default_dtype = torch.get_default_dtype()
        self._casts: tuple[casts_inside.Key, ...] = ()  # autocast's casts that hold inside of the current operation

    # ------------------------------------------------------------ inputs and the walk over the captured graph
    def add_inputs(self, gm: GraphModule, example_inputs: list[Any]) -> None:
        placeholders = [node for node in gm.graph.nodes if node.op == "placeholder"]
        assert len(placeholders) == len(example_inputs), "an example for each placeholder"
        for node, value in zip(placeholders, example_inputs):
            layout = node.meta.get("layout")
            if layout is not None and layout != (tuple(value.shape), value.stride()):
                # Kernels would be generated for a layout that the call's tensors do not have.
                raise CannotFunctionalize(f"{node.target} has other sizes after the graph than at its entry")
            mine = self.graph.placeholder(str(node.target))
            mine.meta.update(val=value, origin=node, static=bool(node.meta.get("static")))
            self.inputs.append(self.memory.add(value, mine) if isinstance(value, torch.Tensor) else None)
            self._insert_constants_after = mine

    def interpret(self, gm: GraphModule, example_inputs: list[Any]) -> tuple[Any, ...]:
        """Runs ``gm``, whose calls are recorded on the way; returns its results."""
        env: dict[Node, Any] = {}
        feed = iter(example_inputs)
        for node in gm.graph.nodes:
            self._origin = node
            if node.op == "placeholder":
                env[node] = next(feed)
                continue
            args, kwargs = torch.fx.node.map_arg((node.args, node.kwargs), env.__getitem__)
            written = self._version(kwargs.get("out"))
            if node.op == "output":
                results = args[0]
                return tuple(results) if isinstance(results, (tuple, list)) else (results,)
            self._casts = casts_inside.keys()
            if node.op == "call_function" and node.target not in _WITHOUT_GRADIENT:
                env[node] = node.target(*args, **kwargs)
            else:
                env[node] = _INTERPRETED[node.op](self, gm, node.target, args, kwargs)
            if written is not None and written == self._version(kwargs["out"]):
                # It wrote through a view that is not declared as one, or did not write on fake tensors.
                raise CannotFunctionalize(f"{node.target} does not write to out as far as can be seen")
        raise AssertionError("the graph has no output")

    def _call_without_gradient(
        self, gm: GraphModule, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        with torch._C._AutoDispatchBelowAutograd():
            return target(*args, **kwargs)

    def _call_method(self, gm: GraphModule, target: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return getattr(args[0], target)(*args[1:], **kwargs)

    def _call_module(self, gm: GraphModule, target: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return gm.get_submodule(target)(*args, **kwargs)

    def _get_attr(self, gm: GraphModule, target: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return self._constant(operator.attrgetter(target)(gm))

    def _version(self, value: Any) -> tuple[int, int] | None:
        """A value that changes when a tensor is written to."""
        if not isinstance(value, torch.Tensor):
            return None
        storage = self._track(value).storage
        return id(storage), storage.version

    def end_of_forward(self) -> None:
        """Marks the end of the forward pass: later nodes come from no node of the captured graph."""
        self._origin = None

    # ------------------------------------------------------------ dispatch
    def __torch_dispatch__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if not self._casts or func.namespace == "prim" or func in _NUMBERS_OF_LAYOUT:
            return self._dispatch(func, args, kwargs)
        if func in casts_inside.OPAQUE:
            raise CannotFunctionalize(f"{func} under autocast")
        casts = self._casts
        if kind_of(func) == "composite" and not casts_inside.are_cast(func, (args, kwargs)):
            # Our decompositions are not used: the operations that aten's own kernel calls are cast, too.
            with self, self._flags.kept_by_views(func, args), casts_inside.on(casts):
                return self._take_apart(func, args, kwargs)
        self._casts = ()
        try:
            return self._dispatch(func, args, kwargs)
        finally:
            self._casts = casts

    def _dispatch(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if func.namespace == "prim":
            return func(*args, **kwargs)
        if func in _NUMBERS_OF_LAYOUT:
            # These kernels have no symbols: symbolic sizes are specialized to those of this call, by guards.
            found = _NUMBERS_OF_LAYOUT[func](args[0])
            if args[0]._has_symbolic_sizes_strides and self._fake_mode.env.may_call_again():
                raise NumbersAsked(str(func))
            return tuple(map(int, found)) if isinstance(found, tuple) else int(found)
        if any(map(_is_real, args)) and func not in LIFTS:
            # A function that the graph calls as a whole may use real tensors that nobody passed to it.
            args = torch.fx.node.map_aggregate(args, self._constant)
        decomposition = self._decompositions.get(func) or one_by_one(func)
        if decomposition is not None:
            with self:
                result = decomposition(*args, **kwargs)
            if result is not NotImplemented:
                return result
        kind = kind_of(func)
        if kind == "kept":
            metadata = KEPT_COMPOSITES[func]
            result = func(*args, **kwargs) if metadata is None else metadata(*args, **kwargs)
            if result is not None:
                self.memory.add(result, self._create(func, self._nodes(args), self._nodes(kwargs), result))
                return result
            kind = "composite"
        if kind == "composite":
            with self, self._flags.kept_by_views(func, args):
                return self._take_apart(func, args, kwargs)
        if kind not in _RECORDED:
            raise CannotFunctionalize(f"{func} changes which memory a tensor uses")
        return _RECORDED[kind](self, func, args, kwargs)

    def _take_apart(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Records a composite operation as the operations that it consists of: by its C++ kernel, or by Python's
        decomposition where the trace's fake mode uses that or C++ would ask for symbols as numbers."""
        def run(in_python: bool) -> Any:
            made = casts_inside.take_apart(func, args, kwargs, in_python)
            return self._as_new(func, made) if in_python else made

        asked = getattr(self._fake_mode, "decomposes_in_python", None)
        if asked is None or not casts_inside.has_python_kernel(func):
            return run(False)
        return run(True) if asked((args, kwargs), func) else self._fake_mode.taken_apart(run, (args, kwargs))

    def _as_new(self, func: Any, made: Any) -> Any:
        """The result of an operation that returns no view, even if its Python form does (``matmul`` in torch 2.11)."""
        if not isinstance(made, torch.Tensor) or any(r.alias_info is not None for r in func._schema.returns):
            return made
        return made if self._track(made).parent is None else aten._unsafe_view.default(made, made.shape)

    def _record_call(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], view: bool = False) -> Any:
        result = func(*args, **kwargs)
        if torch.get_default_dtype() != self._default_dtype and isinstance(result, torch.Tensor):
            # The graph has changed the default dtype; so the dtype that follows from it is passed explicitly.
            if kwargs.get("dtype") is None and any(a.name == "dtype" for a in func._schema.arguments):
                kwargs = {**kwargs, "dtype": result.dtype}
        self._flags.set_on_cast(func, args, result)
        if isinstance(result, torch.Tensor):
            node = self._create(func, self._nodes(args), self._nodes(kwargs), result)
            if view and _share_memory(result, args[0]):
                self._add_view(result, node, func, args, kwargs, None)
            else:
                self.memory.add(result, node)
        elif isinstance(result, (tuple, list)) and any(isinstance(r, torch.Tensor) for r in result):
            node = self._create(func, self._nodes(args), self._nodes(kwargs), tuple(result))
            for i, item in enumerate(result):
                if isinstance(item, torch.Tensor):
                    part = self._create(operator.getitem, (node, i), {}, item)
                    if view and _share_memory(item, args[0]):
                        self._add_view(item, part, func, args, kwargs, i)
                    else:
                        self.memory.add(item, part)
        elif not isinstance(result, (bool, int, float)):
            # No tensor results: the call is made for its side effect.
            self._create(func, self._nodes(args), self._nodes(kwargs), result).meta["effect"] = True
        return result

    def _record_view(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if not isinstance(args[0], torch.Tensor):
            # C++ has made a tensor of a number: a factor 1j, whose conjugate occurs in the gradient of a product.
            with self:
                return func(aten.scalar_tensor.default(args[0], dtype=torch.tensor(args[0]).dtype), *args[1:], **kwargs)
        if args[0].layout is not torch.strided:
            raise CannotFunctionalize(f"{func} of a tensor of the layout {str(args[0].layout).removeprefix('torch.')}")
        return self._record_call(func, args, kwargs, True)

    def _add_view(
        self, fake: torch.Tensor, node: Node, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], item: int | None
    ) -> None:
        if fake is args[0]:
            return
        parent = self._track(args[0])
        if func is aten.detach.default and parent.parent is None and self._is_just_made(parent):
            # This is how torch's factories end on fake tensors; nobody else has the undetached tensor.
            self.memory.rename(parent, fake)
            return
        if func is aten.as_strided.default:
            root, step = self._strided_view(parent, fake, args[1], args[2])
            node.replace_all_uses_with(replacement := self.emit(step.target, (self.memory.read(root), *step.args)))
            self.graph.erase_node(node)
            self.memory.add_view(fake, replacement, root, step)
            return
        self.memory.add_view(fake, node, parent, ViewStep(func, tuple(args[1:]), dict(kwargs), item))

    @staticmethod
    def _strided_view(parent: Tracked, fake: torch.Tensor, size: Any, stride: Any) -> tuple[Tracked, ViewStep]:
        """The tensor that ``as_strided`` of ``parent`` is a view of, and the step. The given offset counts from the
        start of the storage; values in the graph have no storage."""
        root = parent.storage.root
        offset = fake.storage_offset() - root.fake.storage_offset()
        check_reads_alike(parent.fake, root.fake)
        if not is_within(root.fake, size, stride, offset):
            raise CannotFunctionalize("as_strided reaches elements of a memory that are not its tensor's")
        check_has_gradients(parent.fake, root.fake, size, stride, offset)
        return root, ViewStep(ops.as_strided, (tuple(size), tuple(stride), offset), {})

    def _record_mutation(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Records the functional form of a mutating operation, and writes the results to the arguments' memory."""
        if func in _FILLS:
            return self._record_fill(args[0], args[1] if len(args) > 1 else 0)
        if func is aten.copy_.default and not (args[0].is_conj() or args[1].is_conj()):
            return self._record_copy(*args[:2])
        if func in _RANDOM_FILLS:
            target = args[0]
            layout = (tuple(target.shape), tuple(target.stride()), target.dtype, target.device)
            drawn = self._record_call(ops.RandomFill(func), (*layout, *args[1:]), kwargs)
            self.memory.write(self._track(target), self._node(drawn))
            return target
        form = functional_form(func)
        names = [a.name for a in func._schema.arguments]
        targets = [argument_at(place, names, args, kwargs) for place in form.mutated]
        rest = {k: v for k, v in kwargs.items() if k not in form.dropped}
        with self:
            if isinstance(form.target, ops.Functionalized):
                computed = self._record_outside(form.target, args, rest)
            else:
                computed = form.target(*args, **rest)
        several = len(form.mutated) + form.own > 1 or isinstance(form.target, ops.Functionalized)
        results = list(computed) if several else [computed]
        new_values = results[form.own:]
        for target, value in zip(targets, new_values):
            pairs = zip(target, value) if isinstance(target, (list, tuple)) else ((target, value),)
            for t, v in pairs:
                if t is not None:
                    self._write(t, v, func, args, kwargs)
        own = iter(results[:form.own])
        returned = [next(own) if place is None else targets[place] for place in form.returned]
        if len(func._schema.returns) == 1:
            return returned[0]
        return tuple(returned) if returned else None

    def _write(self, target: torch.Tensor, value: torch.Tensor, func: Any, args: Any, kwargs: Any) -> None:
        if not torch.can_cast(value.dtype, target.dtype):
            raise CannotFunctionalize(f"{func} can't store {value.dtype} as {target.dtype}")  # eager raises
        if target.shape != value.shape and any(a.is_out for a in func._schema.arguments):
            # An `out` tensor is resized to fit; it then has memory of its own.
            if self._is_input(target):
                raise CannotFunctionalize(f"{func} resizes an input")
            if self.memory.is_seen_by_others(self._track(target)):
                raise CannotFunctionalize(f"{func} resizes a tensor that others look at")
            self._keep_layout(target)
            func(*args, **kwargs)
            self.memory.add_resized(target, self._node(value))
            return
        self.memory.write(self._track(target), self._node(value))

    def _keep_layout(self, fake: torch.Tensor) -> torch.Tensor:
        """A twin of a tensor whose sizes or strides are about to change; nodes' metadata refer to it from now on."""
        old = aten.alias.default(fake)
        for known in self.graph.nodes:
            value = known.meta["val"]
            if value is fake:
                known.meta["val"] = old
            elif isinstance(value, (tuple, list)) and any(part is fake for part in value):
                known.meta["val"] = type(value)([old if part is fake else part for part in value])
        return old

    def _record_fill(self, target: torch.Tensor, value: Any) -> torch.Tensor:
        with self:
            if isinstance(value, torch.Tensor):
                filled = value.to(target.device, target.dtype).expand(target.shape)
            else:
                filled = aten.full.default(list(target.shape), value, dtype=target.dtype, device=target.device)
        self.memory.write(self._track(target), self._node(filled))
        return target

    def _record_copy(self, target: torch.Tensor, source: torch.Tensor) -> torch.Tensor:
        with self:
            if source.dtype != target.dtype or source.device != target.device:
                source = aten._to_copy.default(source, dtype=target.dtype, device=target.device)
            if source.shape != target.shape:
                source = aten.expand.default(source, list(target.shape))
        self.memory.write(self._track(target), self._node(source))
        return target

    def _record_outside(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Records a call of a plain function, which the dispatcher never sees."""
        self.__exit__(None, None, None)
        try:
            return self._record_call(target, args, kwargs)
        finally:
            self.__enter__()

    def _record_relayout(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> torch.Tensor:
        """Records ``t_`` and the like: the tensor becomes a view of its former self."""
        fake = args[0]
        before = self._track(fake)
        if self._is_input(fake):
            raise CannotFunctionalize(f"{func} changes the shape of an input")
        node = self.memory.read(before)
        before.fake = self._keep_layout(fake)
        functional = functional_form(func).target
        func(*args, **kwargs)
        if functional is aten.as_strided.default:
            root, step = self._strided_view(before, fake, args[1], args[2])
            value = self.emit(step.target, (self.memory.read(root), *step.args))
            self.memory.replace(fake, self.memory.add_view(fake, value, root, step))
            return fake
        value = self.emit(functional, (node, *args[1:]), kwargs)
        after = self.memory.add_view(fake, value, before, ViewStep(functional, tuple(args[1:]), dict(kwargs)))
        self.memory.replace(fake, after)
        return fake

    def _is_just_made(self, t: Tracked) -> bool:
        """Whether it comes from a factory that the current call, a torch function in C, has called."""
        origin = self._origin
        if origin is None or t.node.meta.get("origin") is not origin:
            return False
        return isinstance(origin.target, types.BuiltinFunctionType) and is_factory(t.node.target)

    # ------------------------------------------------------------ nodes
    def emit(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any] | None = None) -> Node:
        """Adds a node; computes its metadata from those of its arguments. Not to be called while this mode is on."""
        kwargs = kwargs or {}
        fakes, fake_kwargs = torch.fx.node.map_arg((args, kwargs), lambda node: node.meta["val"])
        return self._create(target, args, kwargs, target(*fakes, **fake_kwargs))

    def _create(self, target: Any, args: Any, kwargs: Any, value: Any) -> Node:
        # Arguments are set afterwards, which saves create_node's search for symbolic sizes to warn of.
        node = self.graph.create_node("call_function", target)
        node.args = args
        if kwargs:
            node.kwargs = kwargs
        node.meta["val"] = value
        node.meta["origin"] = self._origin
        return node

    def _nodes(self, value: Any) -> Any:
        """``value`` with tensors replaced by the nodes that hold their values."""
        if isinstance(value, torch.Tensor):
            return self._node(value)
        if isinstance(value, (tuple, list)):
            return [*map(self._nodes, value)] if isinstance(value, list) else tuple(map(self._nodes, value))
        if isinstance(value, dict):
            return {k: self._nodes(v) for k, v in value.items()}
        return value

    def _node(self, tensor: torch.Tensor) -> Node:
        return self.memory.read(self._track(tensor))

    def _track(self, tensor: torch.Tensor) -> Tracked:
        found = self.memory.find(tensor)
        if found is None:
            if isinstance(tensor, FakeTensor):
                raise CannotFunctionalize("a tensor that was not made by this graph")
            found = self.memory.find(self._constant(tensor))
            assert found is not None
        return found

    def _is_input(self, tensor: torch.Tensor) -> bool:
        root = self._track(tensor).storage.root
        return any(root is known for known in self.inputs)

    def _constant(self, value: Any) -> Any:
        """The fake twin of a real tensor that is part of the program."""
        if not isinstance(value, torch.Tensor) or isinstance(value, FakeTensor):
            return value
        twin = self._fake_mode.fake_tensor_converter.from_real_tensor(self._fake_mode, value, make_constant=False)
        known = self._constant_nodes.get(id(value))
        if known is None:
            name = f"_constant{len(self.constants)}"
            self.constants[name] = value
            here = self._insert_constants_after
            first = next(iter(self.graph.nodes), None)
            place = self.graph.inserting_after(here) if here else (
                self.graph.inserting_before(first) if first else contextlib.nullcontext())
            with place:
                known = self.graph.create_node("get_attr", name)
            known.meta.update(val=twin, origin=self._origin)
            self._insert_constants_after = self._constant_nodes[id(value)] = known
        self.memory.add(twin, known)
        return twin


# ---------------------------------------------------------------- dispatch by the kind of operation
# How operations of each kind are recorded, except those that are kept whole; and how each kind of node is interpreted.
_RECORDED: dict[str, Callable[[Recorder, Any, tuple[Any, ...], dict[str, Any]], Any]] = {
    "pure": Recorder._record_call, "view": Recorder._record_view, "mutating": Recorder._record_mutation,
    "relayout": Recorder._record_relayout, "lift": lambda recorder, func, args, kwargs: recorder._constant(args[0]),
    "no-op": lambda recorder, func, args, kwargs: args[0],
}
_INTERPRETED: dict[str, Callable[[Recorder, GraphModule, Any, tuple[Any, ...], dict[str, Any]], Any]] = {
    "call_function": Recorder._call_without_gradient, "call_method": Recorder._call_method,
    "call_module": Recorder._call_module, "get_attr": Recorder._get_attr,
}


_NUMBERS_OF_LAYOUT: dict[Any, Callable[[torch.Tensor], Any]] = {
    aten.size.default: lambda x: tuple(x.shape), aten.stride.default: lambda x: tuple(x.stride()),
    aten.storage_offset.default: lambda x: x.storage_offset(), aten.numel.default: lambda x: x.numel(),
}


def _is_real(value: Any) -> bool:
    """Whether it is a real tensor, which is not of the traced program, or a list that contains one."""
    if isinstance(value, torch.Tensor):
        return not isinstance(value, FakeTensor)
    return isinstance(value, (list, tuple)) and any(map(_is_real, value))


def _share_memory(a: torch.Tensor, b: torch.Tensor) -> bool:
    return a.untyped_storage()._cdata == b.untyped_storage()._cdata
