"""Scalar split: a graph is cut into subgraphs where Python numbers come out of tensors (``.item()``), are drawn at
random, or are passed in, and where the size of a result depends on the elements of a tensor (``nonzero``).

Such a number is known only after everything before it has run. So the graph is cut there: the tensor operations
between two numbers are a subgraph, which is compiled separately; a node that produces a number or computes with numbers
runs in Python as it is written. An int that is passed in, or computed from such ints, is a symbolic size in the kernels
of those calls that take it as a size or index, whatever else the graph does with it. Arithmetic between a tensor and a
number stays in a subgraph, which gets the number as a tensor without dimensions, of the type that eager computes in;
any other call with a number runs as a plain torch call.

A call whose result has a size that only the run tells is a plain torch call, too. The subgraphs that follow have the
size as an input, and are compiled as any graph with symbolic sizes is.

If the graph enters inference mode, the part inside is a subgraph, too, compiled under that mode. Entering and leaving
the mode are calls between subgraphs; in a graph that is cut, so are calls that turn gradients on and off.

A graph whose numbers are all passed in is not cut: everything that is computed from numbers alone runs first.

Invariant: the steps run in the graph's order, except that a pure step may run before subgraphs that it does not depend
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
# Arithmetic that gives the same result for a number and for a tensor without dimensions, once types are settled.
_ARITHMETIC: frozenset[Any] = frozenset({
    operator.add, operator.sub, operator.mul, operator.truediv, operator.iadd, operator.isub, operator.imul,
    operator.itruediv, operator.lt, operator.le, operator.eq, operator.ne, operator.gt, operator.ge,
    torch.add, torch.sub, torch.mul, torch.div,
    *(name + end for name in ("add", "sub", "mul", "div") for end in ("", "_")),
})
# Types in which a number is as exact as in eager; half precision is left out, since eager computes it in float32.
_EXACT_TYPES = {torch.float32, torch.float64, torch.int32, torch.int64}
# Calls in which numbers are sizes and indices.
_BY_SIZES: frozenset[Any] = frozenset({
    operator.getitem, torch.arange, torch.narrow, torch.zeros, torch.ones, torch.empty, torch.reshape,
    "view", "reshape", "expand", "narrow", "repeat", "new_zeros", "new_ones", "new_empty", "unflatten",
    "select", torch.select, torch.eye, torch.rand, torch.randn, torch.randperm, torch.topk, "topk", torch.roll, "roll",
    torch.tril, torch.triu, "tril", "triu", torch.nn.functional.pad, torch.split, "split",
})
# The same for all arguments but the last, which is the value that is written or filled with.
_BY_SIZES_AND_VALUES: frozenset[Any] = frozenset({operator.setitem, torch.full, "new_full"})
_MODES: frozenset[Any] = frozenset({_enter_inference_mode, _exit_inference_mode})
_GRADIENTS = torch._C._set_grad_enabled
_CHANGE_LAYOUT = frozenset({
    "t_", "transpose_", "unsqueeze_", "squeeze_", "swapaxes_", "swapdims_", "as_strided_", "detach_", "resize_",
    "resize_as_", "set_", "rename_", "requires_grad_",
})


def has_python_numbers(gm: GraphModule) -> bool:
    """Whether some node is a Python number, or has a size, that is known only at run time."""
    return any(_is_number(node) or _draws(node) or node.target in SIZES for node in gm.graph.nodes)


def enters_inference_mode(gm: GraphModule) -> bool:
    """Whether the graph enters inference mode itself, so that only some of its tensors may be inference tensors."""
    return any(node.target is _enter_inference_mode for node in gm.graph.nodes)


def has_whole_calls(gm: GraphModule) -> bool:
    """Whether some call of the graph is to run whole instead of being recorded operation by operation."""
    return any(_is_made_whole(node) for node in gm.graph.nodes)


def _is_made_whole(node: Node) -> bool:
    return is_whole(node.target) and not is_ours(node)


def compile_scalar_split(gm: GraphModule, compile_subgraph: CompileSubgraph) -> Callable[..., tuple[Any, ...]]:
    """Compiles the parts of a graph; returns the whole as a function of the graph's inputs.

    Args:
        compile_subgraph: the backend for the subgraphs, which contain no numbers.

    Raises:
        CannotCut: the graph contains something that can't be divided.
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
    numbers = list(inputs)  # nodes that sizes may be read from
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


# ---------------------------------------------------------------- classification of nodes
def _value(node: Node) -> Any:
    return node.meta.get("example_value")


def _holds_number(value: Any) -> bool:
    return isinstance(value, _SYMBOLS) or (isinstance(value, (list, tuple)) and any(map(_holds_number, value)))


def _is_number(node: Node) -> bool:
    """Whether the node's value is a number, or a list of numbers (``tolist``)."""
    if node.op == "call_method" and node.target == "tolist":
        return True
    return node.op != "output" and _holds_number(_value(node)) and not _of_sizes(node)


def _of_sizes(node: Node) -> bool:
    """Whether the number is computed only from sizes of tensors and from ints that are passed in and used as sizes:
    lowerings know these as symbols."""
    value = _value(node)
    if not isinstance(value, torch.SymInt) or not isinstance(value.node, IntNode):
        return False
    if node.op == "placeholder" or node.target in SIZES:
        return _is_size(node)
    return all(_of_sizes(n) for n in node.all_input_nodes if _holds_number(_value(n)))


def _is_size(number: Node) -> bool:
    """Whether a number is used only as a size of tensors or an index into them. For a number that takes part in
    arithmetic with tensors, eager may refuse some values."""
    return all(
        _is_size(user) if _holds_number(_value(user)) else user.op == "output" or _takes_size(user, number)
        for user in number.users)


def _comes_in(number: Node) -> bool:
    """Whether it is an int that the graph is given, or is computed from such ints alone, so that subgraphs can have it
    as a size."""
    value = _value(number)
    return isinstance(value, torch.SymInt) and isinstance(value.node, IntNode) and (
        number.op == "placeholder" or number.target not in SIZES and bool(number.all_input_nodes)
        and all(map(_comes_in, number.all_input_nodes)))


def _taken_as_numbers(node: Node) -> list[Node]:
    """The numbers among a call's arguments that it does not take as sizes."""
    return [n for n in node.all_input_nodes if _is_number(n) and not (_takes_size(node, n) and _comes_in(n))]


def _takes_size(user: Node, number: Node) -> bool:
    """Whether a call on tensors takes a number as a size or index."""
    if user.target in _BY_SIZES_AND_VALUES:
        return len(user.args) > 1 and user.args[-1] is not number
    return user.target in _BY_SIZES


def _of_numbers(node: Node) -> bool:
    """Whether it computes a number from numbers alone, so that it need not wait for any subgraph."""
    if not all(map(_is_number, node.all_input_nodes)):
        return False
    return _draws(node) or (_is_number(node) and not node.meta.get("impure"))


def _makes_size(node: Node) -> bool:
    """Whether the size of its result depends on elements of tensors, or it reads such a size."""
    return node.target in SIZES or any(user.target in SIZES for user in node.users) or any(
        user.target is operator.getitem and isinstance(_value(node), (tuple, list)) and _makes_size(user)
        for user in node.users)


def _draws(node: Node) -> bool:
    """Whether it draws from a Python generator, or seeds one: only other draws have to come before it."""
    return "draws" in node.meta


def _check(gm: GraphModule, cut: bool) -> None:
    """Raises ``CannotCut`` for graphs that can't be divided or run in Python."""
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
        # A leaf is an input, which may be mutated where gradients are off.
        trains |= node.op != "placeholder" and isinstance(value, torch.Tensor) and value.requires_grad and (
            not value.is_leaf)
    if changes and trains:
        raise CannotCut("it changes tensors in place under autograd")


def _writes_operands(node: Node) -> bool:
    """Whether it mutates an operand. Drawing random numbers is a side effect, too, but mutates none."""
    if not node.meta.get("impure"):
        return False
    writes = node.meta.get("writes")
    if writes is None:
        return bool(node.all_input_nodes)
    return any(v.untyped_storage()._cdata in writes for v in map(_value, node.all_input_nodes)
               if isinstance(v, torch.Tensor))


def _writes_inputs(nodes: list[Node], inputs: list[Node]) -> bool:
    """Whether some node may mutate an input of the graph."""
    tensors = [v for v in map(_value, inputs) if isinstance(v, torch.Tensor)]
    known = all(v.layout is torch.strided for v in tensors)
    memory = {v.untyped_storage()._cdata for v in tensors} if known else set()
    return any(not known or node.meta.get("writes") is None or node.meta["writes"] & memory
               for node in nodes if _writes_operands(node))


def _writes_last(steps: list[list[Node] | Node], inputs: list[Node]) -> bool:
    """Whether only a subgraph mutates inputs, and no step that may raise follows it."""
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
    """The type in which the number takes part in arithmetic of a tensor with a number; None if it is no such node."""
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
    """The steps in order, and whether nodes other than computations with numbers are between subgraphs. In that case,
    calls that turn gradients on and off are steps of their own, too. A graph that is not cut records these calls."""
    steps = _cut(gm, _MODES)
    if all(isinstance(step, list) or _of_numbers(step) for step in steps):
        return steps, False
    return _cut(gm, _MODES | {_GRADIENTS}), True


def _cut(gm: GraphModule, modes: frozenset[Any]) -> list[list[Node] | Node]:
    """The steps in order: a list of nodes is a subgraph, a single node runs in Python."""
    steps: list[list[Node] | Node] = []
    subgraph: list[Node] = []
    plain: set[Node] = set()
    for node in gm.graph.nodes:
        if node.op in ("placeholder", "output"):
            continue
        numbers = _taken_as_numbers(node)
        part = node.target is operator.getitem and node.args[0] in plain  # an element of a plain call's results
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
    """Compiles a subgraph. Returns a function that reads its inputs from the slots and writes its results to slots, its
    sources, and whether the subgraph has not written to any input yet when it raises.

    Args:
        inputs: the inputs of the graph, and the sizes that are known by then.
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
                    examples.append(torch.empty((), dtype=dtype, device="cpu"))
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
        made: list[Any] = [torch.scalar_tensor(values[i], dtype=dtype, device="cpu") for i, dtype in reads_numbers]
        made += [place.read([values[i] for i in known]) for place in places]
        for i, result in zip(writes, compiled(*[values[i] for i in reads], *made)):
            values[i] = result

    return run, tuple(getattr(compiled, "generated_code", ())), getattr(compiled, "raises_before_writes", False)


def _sizes_used_later(nodes: list[Node]) -> list[Node]:
    """The nodes of a subgraph that compute sizes that are needed after it, with those that they are computed from. They
    run once more in Python, on the tensors that the subgraph returns."""
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
    """A function that runs one node as it is written."""
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
    """A placeholder for a node's value among arguments."""

    def __init__(self, place: int) -> None:
        self.place = place

    @staticmethod
    def of(slots: dict[Node, int]) -> Callable[[Node], Any]:
        return lambda node: _Slot(slots[node])


def _filled(value: Any, values: list[Any]) -> Any:
    """Arguments with slots replaced by their values."""
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
    """The function that runs the steps in order on one list of values, which has a slot for each node."""
    def call(*given: Any) -> tuple[Any, ...]:
        values: list[Any] = [None] * size
        for place, value in zip(inputs, given):
            values[place] = value
        for step in steps:
            step(values)
        return tuple(_filled(results, values))

    return call


def _report(node: Node) -> None:
    """Logs that a call is not compiled because of an argument that the graph computes, or because of its result's size.
    """
    if _is_number(node) or node.target in SIZES:
        return
    metrics.count_library_call(_name(node))
    if _is_made_whole(node):
        return  # such a call is made whole by choice
    why = "an argument is a number that only the run tells"
    if _makes_size(node):
        why = "elements say how large its result is"
    line = exc.one_line((node.stack_trace or "").strip().splitlines()[-1]) if node.stack_trace else ""
    if log.first_time("fallbacks", (_name(node), line)):
        log.artifact("fallbacks").info(
            "%s runs as a plain torch call: %s (%s)", _name(node), why, line)


def _name(node: Node) -> str:
    return str(getattr(node.target, "__name__", node.target))
