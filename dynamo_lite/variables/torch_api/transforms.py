"""``torch.vmap`` and ``torch.func``: transforms whose function is evaluated to a graph, which a node transforms.

The function is evaluated once, on tensors in the form in which the transform shows them to it (``vmap``: one example;
``grad``: inputs that require grad). A node (:class:`graph_calls.TransformCall`) then applies torch's own transform to
the resulting graph. Invariant: the Python code of the function runs once, as with torch. A function that the transform
would run several times, or whose effects a graph can't hold, breaks the graph.
"""
from __future__ import annotations

import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import fx
from torch._functorch.vmap import _process_batched_inputs
from torch.utils import _pytree as pytree

from ...guards.source import Source
from ...polyfills.chunks import chunked_vmap
from ...rules.table import handles, looks_at
from ...runtime.graph_calls import TransformCall
from ..base import ObservedException, VariableTracker, realized, unsupported
from ..constant import ConstantVariable
from ..containers.mappings import DictVariable
from ..containers.sequences import ListVariable, NamedTupleVariable, TupleVariable
from ..functions.functions import CallableVariable, FunctionVariable
from ..tensors.subclasses import refuse_subclasses
from ..tensors.tensor import TensorVariable, record
from .subgraphs import NodeVariable, Part, as_graph, read_from_outside, remove, torch_state
from .torch_functions import TorchFunctionVariable

if TYPE_CHECKING:
    from ..protocols import Tracer

_KIND = "functorch"


# ---------------------------------------------------------------- structures
class _Opaque:
    """A value that is neither a tensor nor a container, as a leaf of a structure."""

    def __init__(self, value: VariableTracker) -> None:
        self.value = value


def structure(tx: Tracer, value: VariableTracker) -> Any:
    """The value as a Python object, with fake tensors in place of tensors."""
    value = realized(tx, value)
    if isinstance(value, TensorVariable):
        refuse_subclasses([value], "a transform")
        return value.fake
    if isinstance(value, NamedTupleVariable):
        return value.python_type()(*(structure(tx, item) for item in value.items))
    if type(value) in (ListVariable, TupleVariable) and value.python_type() in (list, tuple):
        return value.python_type()([structure(tx, item) for item in value.iterate(tx)])
    if isinstance(value, DictVariable) and value.python_type() is dict:
        return {tx.values.as_plain(k): structure(tx, v) for k, v in zip(value.keys(), value.values(tx))}
    if value.is_constant():
        return value.constant()
    return _Opaque(value)


def _trackers(tx: Tracer, value: Any, of: Callable[[Any], VariableTracker]) -> VariableTracker:
    """The tracker of a structure; `of` returns the trackers of tensors."""
    if isinstance(value, torch.Tensor):
        return of(value)
    if isinstance(value, _Opaque):
        return value.value
    if isinstance(value, dict):
        return tx.values.new_dict({tx.values.from_result(k, "key"): _trackers(tx, v, of) for k, v in value.items()})
    if isinstance(value, (list, tuple)):
        return tx.values.new_sequence(type(value), [_trackers(tx, item, of) for item in value])
    return tx.values.from_result(value, "argument")


def _tensor_of(tx: Tracer, fake: torch.Tensor) -> TensorVariable:
    found = tx.output.tensor_of(fake)
    assert found is not None
    return found


# ---------------------------------------------------------------- the function's graph
class _Body:
    """A function evaluated to a graph.

    Args:
        what: the transform, for messages.
    """

    def __init__(self, tx: Tracer, what: str) -> None:
        self.tx = tx
        self.what = what
        self.replaced: list[torch.Tensor] = []
        self.markers: list[fx.Node] = []
        self.part = Part(tx.output)

    def show(self, fake: torch.Tensor, seen: torch.Tensor) -> _Opaque:
        """The stand-in for the tensor `fake` in the arguments. The function sees `seen` there, but not in other places
        where it gets the same tensor."""
        output = self.tx.output
        output.fake_mode.known.drop(seen)  # the elements of one example are not those of the others
        node = output.graph.create_node("call_function", shown_tensor, (), name="shown")
        node.meta["example_value"] = seen
        self.markers.append(node)
        self.replaced.append(fake)
        return _Opaque(output.register_tensor(TensorVariable(node, seen)))

    def run(self, function: VariableTracker, args: tuple[Any, ...], kwargs: dict[str, Any], grad: bool | None) -> Any:
        """The structure that the function returns."""
        tx = self.tx
        positional = [_trackers(tx, a, lambda t: _tensor_of(tx, t)) for a in args]
        named = {k: _trackers(tx, v, lambda t: _tensor_of(tx, t)) for k, v in kwargs.items()}
        try:
            with torch_state(grad=grad):
                return structure(tx, tx.call(function, positional, named))
        except ObservedException as error:
            unsupported(_KIND, f"the function of {self.what} raises {error.value.python_type().__qualname__}")

    def finish(self, results: list[torch.Tensor]) -> tuple[fx.GraphModule, list[fx.Node], bool]:
        """The graph that computes the results from the replaced tensors and from other values that it reads; the nodes
        of these other values; and whether the graph has effects."""
        output = self.tx.output
        nodes = self.part.close()
        markers = set(self.markers)
        inner = [n for n in nodes if n not in markers]
        made = [_tensor_of(self.tx, r).node for r in results]
        read = [n for n in read_from_outside(inner, made) if n not in markers]
        graph = as_graph(inner, [*self.markers, *read], made, output.fake_mode)
        impure = any(n.meta["impure"] for n in inner)
        if impure and len(set(map(id, self.replaced))) < len(self.replaced):
            unsupported(_KIND, f"the function of {self.what} has effects, and gets one tensor twice")
        remove(nodes)
        return graph, read, impure


def shown_tensor() -> None:
    """Stands in the trace for a tensor in the form in which a transform shows it to its function; never called."""


class TransformVariable(CallableVariable):
    """``torch.vmap(f)``, ``torch.func.grad(f)`` and the like, made in the trace.

    Args:
        maker: torch's function.
        function: the transformed function.
        options: the other arguments.
        apply: ``(tx, what, function, options, args, kwargs)``, the implementation of a call.
    """

    def __init__(
        self, maker: Any, function: VariableTracker, options: dict[str, VariableTracker], apply: Callable[..., Any]
    ) -> None:
        super().__init__()
        self.maker = maker
        self.function = function
        self.options = options
        self._apply = apply

    def python_type(self) -> type:
        return type(lambda: None)

    def describe(self) -> str:
        return f"{self.maker.__name__}({self.function.describe()})"

    def call(self, tx: Tracer, args: list[VariableTracker], kwargs: dict[str, VariableTracker]) -> VariableTracker:
        if torch._C._are_functorch_transforms_active():
            unsupported(_KIND, f"{self.describe()} under another transform")
        plain = {name: tx.values.as_plain(value) for name, value in self.options.items()}
        structures = tuple(structure(tx, a) for a in args)
        named = {k: structure(tx, v) for k, v in kwargs.items()}
        return self._apply(tx, self.describe(), self.function, plain, structures, named)

    def reconstruct(self, cg: Any) -> None:
        cg.build_new(self, lambda: cg.call_function(self.maker, [self.function], self.options), lambda: None)


def _bound(names: tuple[str, ...], rest: tuple[VariableTracker, ...], kwargs: dict[str, VariableTracker]) -> dict[
        str, VariableTracker]:
    return {**dict(zip(names, rest)), **kwargs}


# ---------------------------------------------------------------- vmap
@handles(torch.vmap)
def _vmap(tx: Tracer, func: VariableTracker, *rest: VariableTracker, **kwargs: VariableTracker) -> VariableTracker:
    options = _bound(("in_dims", "out_dims", "randomness"), rest, kwargs)
    if not options.get("chunk_size", ConstantVariable(None)).is_none():
        if "randomness" in options and options["randomness"].constant() == "same":
            unsupported(_KIND, "vmap with chunk_size and one state of the generator for all chunks")
        return tx.call(tx.values.library_function(chunked_vmap), [func], options)
    options.pop("chunk_size", None)
    return TransformVariable(torch.vmap, func, options, _apply_vmap)


def _apply_vmap(
    tx: Tracer, what: str, function: VariableTracker, options: dict[str, Any], args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> VariableTracker:
    in_dims, out_dims = options.pop("in_dims", 0), options.pop("out_dims", 0)
    try:
        _, flat_dims, flat_args, spec = _process_batched_inputs(in_dims, args, function)  # type: ignore[arg-type]
    except (ValueError, TypeError) as error:
        unsupported(_KIND, f"{what}: {error}")
    body = _Body(tx, what)
    mapped: list[tuple[torch.Tensor, int]] = []
    seen: list[Any] = list(flat_args)
    for at, (leaf, dim) in enumerate(zip(flat_args, flat_dims)):
        if dim is not None:
            with tx.output.fake_mode:
                example = leaf.select(dim, 0) if leaf.shape[dim] else _example_of_none(leaf, dim)
            seen[at] = body.show(leaf, example)
            mapped.append((leaf, dim))
    with tx.output.one_example():
        returned = body.run(function, tuple(pytree.tree_unflatten(seen, spec)), kwargs, None)
    leaves, out_spec = pytree.tree_flatten(returned)
    if not all(isinstance(leaf, torch.Tensor) for leaf in leaves):
        unsupported(_KIND, f"the function of {what} returns something that is no tensor")
    flat_out = pytree._broadcast_to_and_flatten(out_dims, out_spec)
    if flat_out is None:
        unsupported(_KIND, f"out_dims of {what} do not fit what it returns")
    graph, read, _ = body.finish(leaves)
    call = TransformCall("vmap", torch.vmap, graph, {
        "in_dims": (*(d for _, d in mapped), *[None] * len(read)), "out_dims": tuple(flat_out), **options})
    arguments = [_tensor_of(tx, t) for t, _ in mapped]
    made = record(tx, "call_function", call, [*arguments, *map(NodeVariable, read)], {})
    return rebuilt(tx, made, out_spec)


def _example_of_none(batch: torch.Tensor, dim: int) -> torch.Tensor:
    """An example of the shape and layout that the examples of an empty batch would have."""
    places = [i for i in range(batch.dim()) if i != dim % batch.dim()]
    size, strides = [batch.shape[i] for i in places], [batch.stride(i) for i in places]
    return torch.empty_strided(size, strides, dtype=batch.dtype, device=batch.device)


_MAKERS: dict[int, Any] = {  # by the id of the code object that the functions a maker returns share
    id(maker(len).__code__): maker for maker in (
        torch.vmap, torch.func.grad, torch.func.grad_and_value, torch.func.jacrev, torch.func.jacfwd)
}
_NOT_OPTIONS = frozenset({"eager_transforms", "_preallocate_and_copy"})


@looks_at(*(maker(len).__code__ for maker in _MAKERS.values()))
def _made_before(tx: Tracer, value: types.FunctionType, source: Source) -> VariableTracker:
    """The tracker of a transformed function that was made outside of the trace."""
    maker = _MAKERS[id(value.__code__)]
    tx.guard(source, "code_is", value.__code__)
    outer = FunctionVariable(value, source)
    parts = dict(zip(value.__code__.co_freevars, outer.cells(tx)))
    given: dict[str, Any] = {name: cell.load(tx) for name, cell in parts.items() if name not in _NOT_OPTIONS}
    func = given.pop("func")
    if maker is torch.func.jacfwd:
        maker, func = _hessian_or(maker, func, given, tx)
    made = tx.call(TorchFunctionVariable(maker), [func], given)
    made.source = source
    return made


def _hessian_or(
    maker: Any, func: VariableTracker, given: dict[str, VariableTracker], tx: Tracer
) -> tuple[Any, VariableTracker]:
    """Recognizes ``hessian``, which is ``jacfwd`` of ``jacrev``: gives ``hessian`` and the innermost function for that,
    `maker` and `func` as they are for others."""
    func = realized(tx, func)
    if not isinstance(func, TransformVariable) or func.maker is not torch.func.jacrev:
        return maker, func
    ours, theirs = ({name: tx.values.as_plain(value) for name, value in of.items()} for of in (given, func.options))
    if theirs.pop("chunk_size", None) is not None or ours.pop("randomness") != "error" or ours != theirs:
        return maker, func
    del given["randomness"]
    return torch.func.hessian, func.function


def rebuilt(tx: Tracer, made: VariableTracker, spec: Any) -> VariableTracker:
    """The tracker of a structure whose leaves are the elements of a tuple."""
    items = list(made.items)  # type: ignore[attr-defined]
    return _trackers(tx, pytree.tree_unflatten([_Opaque(item) for item in items], spec), lambda t: _tensor_of(tx, t))


# ---------------------------------------------------------------- gradients
def _show_differentiated(
    tx: Tracer, what: str, body: _Body, args: tuple[Any, ...], argnums: Any
) -> tuple[list[torch.Tensor], Any, tuple[Any, ...]]:
    """Replaces the arguments that a transform differentiates by. Returns the tensors in them, the structure of the
    gradients, and all arguments in the form in which the function gets them."""
    numbers = (argnums,) if isinstance(argnums, int) else tuple(argnums)
    if not all(-len(args) <= n < len(args) for n in numbers) or len({n % len(args) for n in numbers}) != len(numbers):
        unsupported(_KIND, f"{what} with argnums={argnums} of {len(args)} arguments")
    chosen = args[argnums] if isinstance(argnums, int) else tuple(args[n] for n in numbers)
    leaves, spec = pytree.tree_flatten(chosen)

    def shown(leaf: Any) -> _Opaque:
        if not isinstance(leaf, torch.Tensor) or not leaf.is_floating_point():
            unsupported(_KIND, f"{what} by an argument that is no float tensor")
        with tx.output.fake_mode, torch.enable_grad():
            # It gets a history, as the wrapped tensor has one: it is no leaf, and can't be changed like one.
            seen = leaf.detach().requires_grad_().view_as(leaf)
        return body.show(leaf, seen)

    given = list(args)
    for n in numbers:
        given[n] = pytree.tree_map(shown, args[n])
    return leaves, spec, tuple(given)


def _gradient(maker: Any, with_value: bool) -> Callable[..., VariableTracker]:
    def apply(
        tx: Tracer, what: str, function: VariableTracker, options: dict[str, Any], args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> VariableTracker:
        body = _Body(tx, what)
        leaves, spec, given = _show_differentiated(tx, what, body, args, options.get("argnums", 0))
        returned = body.run(function, given, kwargs, True)
        value, aux = returned, ()
        if options.get("has_aux", False):
            if not (isinstance(returned, tuple) and len(returned) == 2):
                unsupported(_KIND, f"the function of {what} with has_aux does not return a pair")
            value, aux = returned
        if not isinstance(value, torch.Tensor) or value.dim() or not value.is_floating_point():
            unsupported(_KIND, f"the function of {what} does not return a number")
        aux_leaves, aux_spec = pytree.tree_flatten(aux)
        if not all(isinstance(leaf, torch.Tensor) for leaf in aux_leaves):
            unsupported(_KIND, f"{what}: an auxiliary result that is no tensor")
        graph, read, _ = body.finish([value, *aux_leaves])
        call = TransformCall("grad", torch.func.grad_and_value, graph, {}, differentiated=len(leaves))
        arguments = [*(_tensor_of(tx, t) for t in leaves), *map(NodeVariable, read)]
        items = list(record(tx, "call_function", call, arguments, {}).items)  # type: ignore[attr-defined]
        n = len(leaves)
        grads = rebuilt(tx, TupleVariable(items[:n]), spec)
        rest = [items[n]] if with_value else []
        if options.get("has_aux", False):
            rest.append(rebuilt(tx, TupleVariable(items[n + 1 :]), aux_spec))
            if with_value:
                rest = [TupleVariable(rest)]
        return TupleVariable([grads, *rest]) if rest else grads

    return apply


def _jacobian(maker: Any) -> Callable[..., VariableTracker]:
    def apply(
        tx: Tracer, what: str, function: VariableTracker, options: dict[str, Any], args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> VariableTracker:
        randomness = options.get("randomness", "error")
        if randomness != "error" or any(options.get(name) for name in ("has_aux", "chunk_size")):
            unsupported(_KIND, f"{what} with has_aux, chunk_size or randomness")
        body = _Body(tx, what)
        argnums = options.get("argnums", 0)
        leaves, spec, given = _show_differentiated(tx, what, body, args, argnums)
        if maker is torch.func.hessian and len(leaves) != 1:
            unsupported(_KIND, f"{what} by several tensors")
        value = body.run(function, given, kwargs, True)
        if not isinstance(value, torch.Tensor):
            unsupported(_KIND, f"the function of {what} does not return one tensor")
        graph, read, impure = body.finish([value])
        if impure:
            unsupported(_KIND, f"the function of {what} has effects")
        call = TransformCall(maker.__name__, maker, graph, {}, differentiated=len(leaves))
        arguments = [*(_tensor_of(tx, t) for t in leaves), *map(NodeVariable, read)]
        return rebuilt(tx, record(tx, "call_function", call, arguments, {}), spec)

    return apply


def _register(maker: Any, apply: Callable[..., VariableTracker], names: tuple[str, ...]) -> None:
    @handles(maker)
    def transform(tx: Tracer, func: VariableTracker, *rest: VariableTracker,
                  **kwargs: VariableTracker) -> VariableTracker:
        return TransformVariable(maker, func, _bound(names, rest, kwargs), apply)


_register(torch.func.grad, _gradient(torch.func.grad, False), ("argnums", "has_aux"))
_register(torch.func.grad_and_value, _gradient(torch.func.grad_and_value, True), ("argnums", "has_aux"))
for _maker in (torch.func.jacrev, torch.func.jacfwd, torch.func.hessian):
    _register(_maker, _jacobian(_maker), ("argnums",))


@handles(torch.func.jvp)
def _jvp(
    tx: Tracer, func: VariableTracker, primals: VariableTracker, tangents: VariableTracker,
    **options: VariableTracker,
) -> VariableTracker:
    what = f"jvp({func.describe()})"
    if any(tx.truth(value) for value in options.values()):
        unsupported(_KIND, f"{what} with {', '.join(options)}")
    args, directions = structure(tx, primals), structure(tx, tangents)
    if not isinstance(args, tuple) or not isinstance(directions, tuple) or len(args) != len(directions):
        unsupported(_KIND, f"{what} of what is not a pair of tuples")
    body = _Body(tx, what)
    if not all(isinstance(leaf, torch.Tensor) for leaf in args):
        unsupported(_KIND, f"{what} by an argument that is no tensor")
    returned = body.run(func, tuple(body.show(leaf, leaf.detach()) for leaf in args), {}, None)
    leaves, spec = pytree.tree_flatten(returned)
    if not all(isinstance(t, torch.Tensor) for t in (*leaves, *directions)):
        unsupported(_KIND, f"{what} with something that is no tensor")
    graph, read, _ = body.finish(leaves)
    call = TransformCall("jvp", torch.func.jvp, graph, {}, differentiated=len(args))
    arguments = [_tensor_of(tx, t) for t in (*args, *directions)]
    made = record(tx, "call_function", call, [*arguments, *map(NodeVariable, read)], {})
    items = list(made.items)  # type: ignore[attr-defined]
    halves = items[: len(leaves)], items[len(leaves):]
    return TupleVariable([rebuilt(tx, TupleVariable(half), spec) for half in halves])


@handles(torch.func.vjp)
def _vjp(
    tx: Tracer, func: VariableTracker, *primals: VariableTracker, **options: VariableTracker
) -> VariableTracker:
    what = f"vjp({func.describe()})"
    if any(tx.truth(value) for value in options.values()):
        unsupported(_KIND, f"{what} with {', '.join(options)}")
    args = tuple(structure(tx, p) for p in primals)
    body = _Body(tx, what)
    leaves, spec, given = _show_differentiated(tx, what, body, args, tuple(range(len(args))))
    returned = body.run(func, given, {}, True)
    results, out_spec = pytree.tree_flatten(returned)
    if not all(isinstance(t, torch.Tensor) for t in results):
        unsupported(_KIND, f"{what}: a result that is no tensor")
    graph, read, impure = body.finish(results)
    if impure:
        unsupported(_KIND, f"the function of {what} has effects")
    arguments = [*(_tensor_of(tx, t) for t in leaves), *map(NodeVariable, read)]
    value = record(tx, "call_function", TransformCall("function", None, graph, {}), arguments, {})
    call = TransformCall("vjp", torch.func.vjp, graph, {}, differentiated=len(leaves))
    return TupleVariable([rebuilt(tx, value, out_spec), _PullbackVariable(call, arguments, out_spec, spec)])


class _PullbackVariable(CallableVariable):
    """The second result of ``torch.func.vjp``."""

    def __init__(self, node: TransformCall, arguments: list[VariableTracker], out_spec: Any, spec: Any) -> None:
        super().__init__()
        self._node = node
        self._arguments = arguments
        self._out_spec = out_spec
        self._spec = spec

    def describe(self) -> str:
        return "a function that torch.func.vjp returned"

    def call(self, tx: Tracer, args: list[VariableTracker], kwargs: dict[str, VariableTracker]) -> VariableTracker:
        cotangents = tuple(structure(tx, a) for a in args)
        leaves, spec = pytree.tree_flatten(cotangents[0] if len(cotangents) == 1 else cotangents)
        if kwargs or spec != self._out_spec or not all(isinstance(t, torch.Tensor) for t in leaves):
            unsupported(_KIND, f"calling {self.describe()} with what does not fit")
        given = [_tensor_of(tx, t) for t in leaves]
        return rebuilt(tx, record(tx, "call_function", self._node, [*given, *self._arguments], {}), self._spec)

    def reconstruct(self, cg: Any) -> None:
        unsupported(_KIND, f"{self.describe()} leaves the captured part")
