"""Scalar split: a graph in which Python numbers come out of tensors (``.item()``), are drawn, or go in, is cut into
subgraphs at these numbers; so is one in which elements say how large a result is (``nonzero``).

A number is known only once what comes before it has run. So the graph is cut there: the tensor operations between two
numbers are a subgraph, compiled by itself; what makes a number or computes with numbers runs in Python as it is
written. An int that comes in, or is computed from such, is a symbol to calls that take it as a size or place, in
kernels with symbolic sizes, whatever else the graph does with it. Arithmetic of a tensor with a number stays in a
subgraph, which gets the number as a tensor without dimensions of the type that eager computes in; any other call with a
number runs as the torch call that it is.

What makes a tensor of a size that only the run tells runs as the torch call that it is. The subgraphs behind it have
the size as an input, and are compiled as any graph with symbolic sizes is.

What lies between the ends of an inference mode that the graph enters is a subgraph, too, compiled under that mode;
entering and leaving it are calls between subgraphs, and where a graph is cut, turning gradients on and off.

A graph whose numbers all come in is not cut: what is computed from numbers alone runs first.

Invariant: the steps run in the graph's order except that what is pure may run before subgraphs that it does not depend
on.
"""
from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.fx
from torch.autograd.grad_mode import _enter_inference_mode, _exit_inference_mode
from torch.fx import Graph, GraphModule, Node

from dynamo_lite import exc, log
from dynamo_lite.backends import metrics
from dynamo_lite.backends.aot.call_sizes import missing_sizes
from dynamo_lite.backends.aot.functional import CannotCut
from dynamo_lite.backends.aot.gradients import twin
from dynamo_lite.backends.inductor.recurrent import is_ours
from dynamo_lite.runtime.running_sizes import SIZES
from dynamo_lite.runtime.whole_calls import is_whole
from dynamo_lite.symbols.nodes import IntNode

CompileSubgraph = Callable[[GraphModule, list[Any]], Callable[..., Sequence[Any]]]

_SYMBOLS = (torch.SymInt, torch.SymFloat, torch.SymBool)
_NUMBERS = (*_SYMBOLS, bool, int, float)
_MAX_SUBGRAPHS = 32
# Arithmetic that gives the same for a number and for a tensor of no dimensions, once types are settled.
_ARITHMETIC: frozenset[Any] = frozenset({
    operator.add, operator.sub, operator.mul, operator.truediv, operator.iadd, operator.isub, operator.imul,
    operator.itruediv, operator.lt, operator.le, operator.eq, operator.ne, operator.gt, operator.ge,
    torch.add, torch.sub, torch.mul, torch.div,
    *(name + end for name in ("add", "sub", "mul", "div") for end in ("", "_")),
})
# Types in which a number loses nothing on its way that it keeps in eager: half precision computes in float32.
_EXACT_TYPES = {torch.float32, torch.float64, torch.int32, torch.int64}
# Calls in which numbers are sizes and places.
_BY_SIZES: frozenset[Any] = frozenset({
    operator.getitem, torch.arange, torch.narrow, torch.zeros, torch.ones, torch.empty, torch.reshape,
    "view", "reshape", "expand", "narrow", "repeat", "new_zeros", "new_ones", "new_empty", "unflatten",
    "select", torch.select, torch.eye, torch.rand, torch.randn, torch.randperm, torch.topk, "topk", torch.roll, "roll",
    torch.tril, torch.triu, "tril", "triu", torch.nn.functional.pad, torch.split, "split",
})
# Of these, all but the last argument: what is written, or filled with, is computed with.
_BY_SIZES_AND_VALUES: frozenset[Any] = frozenset({operator.setitem, torch.full, "new_full"})
_MODES: frozenset[Any] = frozenset({_enter_inference_mode, _exit_inference_mode})
_GRADIENTS = torch._C._set_grad_enabled
_CHANGE_LAYOUT = frozenset({
    "t_", "transpose_", "unsqueeze_", "squeeze_", "swapaxes_", "swapdims_", "as_strided_", "detach_", "resize_",
    "resize_as_", "set_", "rename_", "requires_grad_",
})


def has_python_numbers(gm: GraphModule) -> bool:
    """Whether some node of the graph is a Python number, or has a size, that only the running program knows."""
    return any(_is_number(node) or _draws(node) or node.target in SIZES for node in gm.graph.nodes)


def enters_inference_mode(gm: GraphModule) -> bool:
    """Whether only some of the graph's tensors may be inference tensors."""
    return any(node.target is _enter_inference_mode for node in gm.graph.nodes)


def has_whole_calls(gm: GraphModule) -> bool:
    """Whether some call of the graph is better made whole than recorded operation by operation."""
    return any(_is_made_whole(node) for node in gm.graph.nodes)


def _is_made_whole(node: Node) -> bool:
    return is_whole(node.target) and not is_ours(node)


def compile_scalar_split(gm: GraphModule, compile_subgraph: CompileSubgraph) -> Callable[..., tuple[Any, ...]]:
    """The graph as a function of its inputs.

    Args:
        compile_subgraph: the backend for the subgraphs, which are without numbers.

    Raises:
        CannotCut: the graph holds something that can't be cut in two.
    """
    steps, cut = _steps(gm)
    _check(gm, cut)
    if sum(isinstance(step, list) for step in steps) > _MAX_SUBGRAPHS:
        raise CannotCut(f"numbers come out of tensors at more than {_MAX_SUBGRAPHS} places")
    slots: dict[Node, int] = {}
    for node in gm.graph.nodes:
        slots[node] = len(slots)
    inputs = [node for node in gm.graph.nodes if node.op == "placeholder"]
    results = gm.graph.output_node().args[0]
    made: list[Callable[[list[Any]], None]] = []
    code: list[str] = []
    numbers = list(inputs)  # that sizes may be read of
    modes: list[bool] = []
    gradients = torch.is_grad_enabled()
    writes_last = _writes_last(steps, inputs)
    for step in steps:
        if isinstance(step, list):
            with torch.inference_mode(modes[-1]) if modes else torch.set_grad_enabled(gradients):
                run, texts, raises_first = _subgraph(gm, step, slots, numbers, compile_subgraph)
            writes_last = writes_last and (raises_first or not _writes_inputs(step, inputs))
            code.extend(texts)
            made.append(run)
            made.extend(_plain(size, slots) for size in _sizes_used_later(step))
        else:
            if step.target is _enter_inference_mode:
                modes.append(bool(step.args[0]))
            elif step.target is _exit_inference_mode:
                modes.pop()
            elif step.target is _GRADIENTS:
                gradients = bool(step.args[0])
            else:
                _report(step)
            made.append(_plain(step, slots))
            numbers += [step] if step.target in SIZES else []
    call = _function(made, [slots[n] for n in inputs], torch.fx.node.map_arg(results, _Slot.of(slots)), len(slots))
    call.generated_code = tuple(code)  # type: ignore[attr-defined]
    call.raises_before_writes = writes_last  # type: ignore[attr-defined]
    return call


# ---------------------------------------------------------------- what a node is
def _value(node: Node) -> Any:
    return node.meta.get("example_value")


def _holds_number(value: Any) -> bool:
    return isinstance(value, _SYMBOLS) or (isinstance(value, (list, tuple)) and any(map(_holds_number, value)))


def _is_number(node: Node) -> bool:
    """Whether it gives a number, or a list of numbers (``tolist``)."""
    if node.op == "call_method" and node.target == "tolist":
        return True
    return node.op != "output" and _holds_number(_value(node)) and not _of_sizes(node)


def _of_sizes(node: Node) -> bool:
    """Whether it is computed from sizes of tensors, and ints from outside that are sizes, alone: lowerings know them
    as symbols."""
    value = _value(node)
    if not isinstance(value, torch.SymInt) or not isinstance(value.node, IntNode):
        return False
    if node.op == "placeholder" or node.target in SIZES:
        return _is_size(node)
    return all(_of_sizes(n) for n in node.all_input_nodes if _holds_number(_value(n)))


def _is_size(number: Node) -> bool:
    """Whether a number says how large tensors are or where parts of them begin, and is computed with for nothing else.
    In arithmetic with tensors, eager may refuse some value."""
    return all(
        _is_size(user) if _holds_number(_value(user)) else user.op == "output" or _takes_size(user, number)
        for user in number.users)


def _comes_in(number: Node) -> bool:
    """Whether it is an int that the graph is given, or is computed from such alone: subgraphs can have it as a size."""
    value = _value(number)
    return isinstance(value, torch.SymInt) and isinstance(value.node, IntNode) and (
        number.op == "placeholder" or number.target not in SIZES and bool(number.all_input_nodes)
        and all(map(_comes_in, number.all_input_nodes)))


def _taken_as_numbers(node: Node) -> list[Node]:
    """The numbers among a call's arguments that are no sizes to it."""
    return [n for n in node.all_input_nodes if _is_number(n) and not (_takes_size(node, n) and _comes_in(n))]


def _takes_size(user: Node, number: Node) -> bool:
    """Whether a call on tensors takes a number as a size or place."""
    if user.target in _BY_SIZES_AND_VALUES:
        return len(user.args) > 1 and user.args[-1] is not number
    return user.target in _BY_SIZES


def _of_numbers(node: Node) -> bool:
    """Whether it computes a number from numbers alone, so that nothing else has to have run before."""
    if not all(map(_is_number, node.all_input_nodes)):
        return False
    return _draws(node) or (_is_number(node) and not node.meta.get("impure"))


def _makes_size(node: Node) -> bool:
    """Whether elements say how large its result is, or it reads that size."""
    return node.target in SIZES or any(user.target in SIZES for user in node.users) or any(
        user.target is operator.getitem and isinstance(_value(node), (tuple, list)) and _makes_size(user)
        for user in node.users)


def _draws(node: Node) -> bool:
    """Whether it draws from a generator of Python's, or seeds one: nothing but other draws has to come before."""
    return "draws" in node.meta


def _check(gm: GraphModule, cut: bool) -> None:
    changes = trains = False
    for node in gm.graph.nodes:
        if node.op in ("get_attr", "call_module"):
            raise CannotCut("it holds modules or constant tensors")
        if cut and node.target is torch.autograd.grad:
            raise CannotCut("it takes a gradient (autograd.grad), whose history has to be in one piece")
        if not cut or _draws(node):
            continue
        if node.op == "call_method" and node.target in _CHANGE_LAYOUT:
            raise CannotCut(f"{node.target} changes what a tensor looks like")
        value = _value(node)
        if node.target in _MODES or node.target is _GRADIENTS:
            continue
        if node.op.startswith("call_") and value is None and node.target is not operator.setitem:
            raise CannotCut(f"{_name(node)} changes torch's state")
        changes |= _writes_operands(node)
        # A leaf is an input, which may be changed where gradients are off.
        trains |= node.op != "placeholder" and isinstance(value, torch.Tensor) and value.requires_grad and (
            not value.is_leaf)
    if changes and trains:
        raise CannotCut("it changes tensors in place under autograd")


def _writes_operands(node: Node) -> bool:
    """Whether it changes a tensor that it is given; what draws random numbers has effects, too, and changes none."""
    if not node.meta.get("impure"):
        return False
    writes = node.meta.get("writes")
    if writes is None:
        return bool(node.all_input_nodes)
    return any(v.untyped_storage()._cdata in writes for v in map(_value, node.all_input_nodes)
               if isinstance(v, torch.Tensor))


def _writes_inputs(nodes: list[Node], inputs: list[Node]) -> bool:
    """Whether some node may change an input of the graph."""
    tensors = [v for v in map(_value, inputs) if isinstance(v, torch.Tensor)]
    known = all(v.layout is torch.strided for v in tensors)
    memory = {v.untyped_storage()._cdata for v in tensors} if known else set()
    return any(not known or node.meta.get("writes") is None or node.meta["writes"] & memory
               for node in nodes if _writes_operands(node))


def _writes_last(steps: list[list[Node] | Node], inputs: list[Node]) -> bool:
    """Whether no step that may raise comes behind one that changes inputs, and that one is a subgraph."""
    written = False
    for step in steps:
        nodes = step if isinstance(step, list) else [step]
        if written and nodes[0].target is not _GRADIENTS and nodes[0].target not in _MODES:
            return False
        if _writes_inputs(nodes, inputs):
            if not isinstance(step, list) or _sizes_used_later(step):
                return False
            written = True
    return True


def _number_type(node: Node) -> torch.dtype | None:
    """For arithmetic of a tensor with a number, the type in which the number takes part."""
    if node.target not in _ARITHMETIC or len(node.args) != 2 or node.kwargs:
        return None
    first, second = (_value(a) if isinstance(a, Node) else a for a in node.args)
    tensor, number = (first, second) if isinstance(first, torch.Tensor) else (second, first)
    if not isinstance(tensor, torch.Tensor) or not isinstance(number, (torch.SymInt, torch.SymFloat)):
        return None
    dtype = torch.result_type(torch.empty(tensor.shape, dtype=tensor.dtype, device="meta"),
                              3 if isinstance(number, torch.SymInt) else 2.5)
    return dtype if dtype in _EXACT_TYPES and tensor.device.type == "cpu" else None


# ---------------------------------------------------------------- cutting
def _steps(gm: GraphModule) -> tuple[list[list[Node] | Node], bool]:
    """The steps in order, and whether some other than numbers lie between subgraphs: then turning gradients on and off
    does, too. A graph that is not cut records it."""
    steps = _cut(gm, _MODES)
    if all(isinstance(step, list) or _of_numbers(step) for step in steps):
        return steps, False
    return _cut(gm, _MODES | {_GRADIENTS}), True


def _cut(gm: GraphModule, modes: frozenset[Any]) -> list[list[Node] | Node]:
    """The steps in order: a subgraph, or a node that runs in Python."""
    steps: list[list[Node] | Node] = []
    subgraph: list[Node] = []
    plain: set[Node] = set()
    for node in gm.graph.nodes:
        if node.op in ("placeholder", "output"):
            continue
        numbers = _taken_as_numbers(node)
        part = node.target is operator.getitem and node.args[0] in plain  # of several results: no tensor to hand on
        part = part or _makes_size(node) or _is_made_whole(node) or node.target in modes
        if not part and not _is_number(node) and not _draws(node) and (not numbers or _number_type(node) is not None):
            subgraph.append(node)
            continue
        if _of_numbers(node):
            plain.add(node)
            steps.append(node)
            continue
        apart = not any(n in subgraph for n in node.all_input_nodes)
        if not apart or node.target in modes or any(n.meta.get("impure") for n in (*subgraph, node)):
            if subgraph:
                steps.append(subgraph)
            subgraph = []
        if not isinstance(_value(node), torch.Tensor):
            plain.add(node)
        steps.append(node)
    if subgraph:
        steps.append(subgraph)
    return steps


# ---------------------------------------------------------------- subgraphs
def _subgraph(
    gm: GraphModule, nodes: list[Node], slots: dict[Node, int], inputs: list[Node], compile_subgraph: CompileSubgraph
) -> tuple[Callable[[list[Any]], None], tuple[str, ...], bool]:
    """A subgraph, compiled: reads its inputs from the slots and writes its results there. Also its sources, and whether
    it has written to no input yet when it raises.

    Args:
        inputs: of the graph, and the sizes that are known by then.
    """
    inside = set(nodes)
    graph = Graph()
    env: dict[Any, Node] = {}
    outer = [n for n in dict.fromkeys(n for node in nodes for n in node.all_input_nodes) if n not in inside]
    sizes = {n for node in nodes for n in node.all_input_nodes if _is_number(n) and n not in _taken_as_numbers(node)}
    given = [n for n in outer if not _is_number(n) or n in sizes]
    examples: list[Any] = []
    mode = gm.meta["fake_mode"]
    for node in given:
        value = _value(node)
        examples.append(twin(mode, value) if isinstance(value, torch.Tensor) else value)
        env[node] = _placeholder(graph, node, node.name, examples[-1])
    numbers: list[tuple[Node, torch.dtype]] = []
    for node in nodes:
        dtype = _number_type(node)
        for number in node.all_input_nodes if dtype is not None else ():
            if _is_number(number) and (number, dtype) not in env:
                with mode:
                    examples.append(torch.empty((), dtype=dtype))
                env[number, dtype] = _placeholder(graph, number, f"{number.name}_{len(numbers)}", examples[-1])
                numbers.append((number, dtype))  # type: ignore[arg-type]
    inputs = list(inputs)
    places = missing_sizes([_value(node) for node in inputs], examples, [_value(node) for node in nodes])
    for place in places:
        node = inputs[place.input]
        examples.append(place.read([_value(n) for n in inputs]))
        _placeholder(graph, node, f"{node.name}_{place.kind}_{place.dim}", examples[-1])
    for node in nodes:
        env[node] = graph.node_copy(node, _lookup(env, _number_type(node)))
    later = _sizes_used_later(nodes)
    results = [n for n in nodes if n not in later and any(user not in inside or user in later for user in n.users)]
    if any(not isinstance(_value(n), torch.Tensor) for n in results):
        raise CannotCut("what is needed later is no tensor")
    output = graph.output(tuple(env[n] for n in results))
    seen = gm.graph.output_node().all_input_nodes
    output.meta.update(example_value=tuple(_value(n) for n in results),
                       inside=frozenset(at for at, n in enumerate(results) if n not in seen))
    module = GraphModule(torch.nn.Module(), graph)
    module.meta.update(gm.meta)
    compiled = compile_subgraph(module, examples)
    reads, known = [slots[n] for n in given], [slots[n] for n in inputs]
    reads_numbers = [(slots[n], dtype) for n, dtype in numbers]
    writes = [slots[n] for n in results]

    def run(values: list[Any]) -> None:
        made: list[Any] = [torch.scalar_tensor(values[i], dtype=dtype) for i, dtype in reads_numbers]
        made += [place.read([values[i] for i in known]) for place in places]
        for i, result in zip(writes, compiled(*[values[i] for i in reads], *made)):
            values[i] = result

    return run, tuple(getattr(compiled, "generated_code", ())), getattr(compiled, "raises_before_writes", False)


def _sizes_used_later(nodes: list[Node]) -> list[Node]:
    """The nodes of a subgraph whose sizes are needed behind it, and those that they are computed from: they run once
    more in Python, on the tensors that it gives."""
    inside, found = set(nodes), set()
    for node in reversed(nodes):
        if _holds_number(_value(node)) and _of_sizes(node) and any(
                user not in inside or user in found for user in node.users):
            found.add(node)
    return [node for node in nodes if node in found]


def _lookup(env: dict[Any, Node], dtype: torch.dtype | None) -> Callable[[Node], Node]:
    return lambda node: env[node, dtype] if dtype is not None and _is_number(node) else env[node]


def _placeholder(graph: Graph, node: Node, name: str, example: Any) -> Node:
    made = graph.placeholder(name)
    made.meta.update(example_value=example, source=name, static=bool(node.meta.get("static")))
    return made


# ---------------------------------------------------------------- nodes in Python
def _plain(node: Node, slots: dict[Node, int]) -> Callable[[list[Any]], None]:
    """A node that runs as it is written."""
    place = slots[node]
    arguments: Any = torch.fx.node.map_arg((node.args, node.kwargs), _Slot.of(slots))
    args, kwargs = arguments
    target: Any = node.target
    method = node.op == "call_method"
    if not kwargs and all(isinstance(a, _Slot) for a in args):
        places = [a.place for a in args]

        def run_simple(values: list[Any]) -> None:
            given = [values[i] for i in places]
            values[place] = getattr(given[0], target)(*given[1:]) if method else target(*given)

        return run_simple

    def run(values: list[Any]) -> None:
        given, named = _filled(arguments, values)
        values[place] = getattr(given[0], target)(*given[1:], **named) if method else target(*given, **named)

    return run


class _Slot:
    """Stands for a node's value among arguments."""

    def __init__(self, place: int) -> None:
        self.place = place

    @staticmethod
    def of(slots: dict[Node, int]) -> Callable[[Node], Any]:
        return lambda node: _Slot(slots[node])


def _filled(value: Any, values: list[Any]) -> Any:
    """Arguments with the values in place of their slots."""
    if isinstance(value, _Slot):
        return values[value.place]
    if isinstance(value, (tuple, list)):
        return type(value)(_filled(v, values) for v in value)
    if isinstance(value, dict):
        return {k: _filled(v, values) for k, v in value.items()}
    if isinstance(value, slice):
        return slice(*(_filled(v, values) for v in (value.start, value.stop, value.step)))
    return value


def _function(
    steps: list[Callable[[list[Any]], None]], inputs: list[int], results: Any, size: int
) -> Callable[..., tuple[Any, ...]]:
    def call(*given: Any) -> tuple[Any, ...]:
        values: list[Any] = [None] * size
        for place, value in zip(inputs, given):
            values[place] = value
        for step in steps:
            step(values)
        return tuple(_filled(results, values))

    return call


def _report(node: Node) -> None:
    """Says which calls on tensors are not compiled because a number that the graph computes is among the arguments."""
    if _is_number(node) or node.target in SIZES:
        return
    metrics.count_library_call(_name(node))
    if _is_made_whole(node):
        return  # by choice
    why = "an argument is a number that only the run tells"
    if _makes_size(node):
        why = "elements say how large its result is"
    line = exc.one_line((node.stack_trace or "").strip().splitlines()[-1]) if node.stack_trace else ""
    if log.first_time("fallbacks", (_name(node), line)):
        log.artifact("fallbacks").info(
            "%s runs as a plain torch call: %s (%s)", _name(node), why, line)


def _name(node: Node) -> str:
    return str(getattr(node.target, "__name__", node.target))
