"""Deoptimization: when a compiled graph raises, the frame runs again from its start, in plain Python.

An operation may fail although it passed on fake tensors. The program has to see the exception raised by its own line,
within reach of its handlers, with the effects of the lines before it and not of those after. The graph is called before
any side effect is replayed. So when it raises, torch's state and random numbers are restored and the original code
runs.

Invariant: code that runs again has had no effect yet. Inputs that the graph has changed are restored; otherwise the
exception propagates as it is, with the user's lines of the operation where these are known. Autograd's records of a
write to a tensor can't be restored, but torch counts such writes. An exception by which torch itself ends a computation
early is no failure: it passes through the frame, which has left torch's modes.
"""
from __future__ import annotations

import functools
import types
from collections.abc import Callable, Iterable, Sequence
from random import Random
from typing import Any

import torch
import torch.fx
import torch.utils.checkpoint

from .. import exc, log
from .._eval_frame import Continuation, skip
from ..bytecode.assembler import Label
from ..bytecode.emit import Emitter
from ..runtime import autocast
from .node_lines import NodeLines, give_lines

# Raised by torch's saved-tensor hook once a checkpoint has recomputed everything that its backward pass needs.
_ENDS_A_COMPUTATION = (torch.utils.checkpoint._StopRecomputationError,)

_ERROR = ".error"
_RANDOM = ".random"
_SAVED = ".saved"
_VERSIONS = ".versions"
_AUTOCAST = ".autocast"

_STATE = frozenset({autocast.enter, autocast.leave})


def may_raise(graph: torch.fx.Graph) -> bool:
    """Whether an operation of the graph may raise on some data: the operations that ``raising`` names, conversions to
    numbers, and the user's functions."""
    return any(node.op.startswith("call_") and _is_demanding(node) for node in graph.nodes)


def _is_demanding(node: torch.fx.Node) -> bool:
    if node.target in _STATE:
        return False
    if node.meta.get("raises") or not (isinstance(node.target, str) or is_of_torch(node.target)):
        return True
    return any(not isinstance(argument.meta.get("example_value"), torch.Tensor) for argument in node.all_input_nodes)


def is_of_torch(target: Any) -> bool:
    """Whether a function belongs to torch or to Python itself."""
    module = getattr(target, "__module__", None) or ""
    return module in ("_operator", "builtins") or module.split(".")[0] == "torch"


class Deoptimizer:
    """The handler around the call of a graph.

    Args:
        emit: the guarded code under construction; its operand stack is empty at the call.
        code: the code of the frame.
        arguments: the frame's parameters, in order.
        restore: restores torch's state to that at the frame's entry.
        random: whether the graph draws torch's random numbers.
        casts: whether it enters or leaves autocast contexts.
        changed: indices of the inputs that the graph may have changed by the time it raises, and that are restored.
        counted: indices of inputs that can't be restored; the frame runs again only if torch has counted no write to
            them.
        generators: the generators of Python's and NumPy's random numbers that it uses.
        graph: the graph, whose nodes know the user's lines.
        again: whether the frame may run again at all.
    """

    def __init__(
        self, emit: Emitter, code: types.CodeType, arguments: Sequence[str], restore: Callable[[], None], random: bool,
        casts: bool, changed: Sequence[int] = (), counted: Sequence[int] = (), generators: tuple[Any, ...] = (),
        graph: torch.fx.GraphModule | None = None, again: bool = True,
    ) -> None:
        self.emit = emit
        self.code = code
        self.arguments = arguments
        self.restore = restore
        self.random = again and (random or bool(generators))
        self._state_of = random, generators
        self.casts = casts
        self.changed = tuple(changed)
        self.counted = tuple(counted)
        self.graph, self.again = graph, again
        self.label: Label = emit.label()

    def begin(self, inputs: str) -> None:
        """Emits the code that saves state before the call; the graph's inputs are in the local `inputs`."""
        for function, places, name in ((copies, self.changed, _SAVED), (versions, self.counted, _VERSIONS)):
            if places:
                self.emit.load_function(function)
                self.emit.load_fast(inputs)
                self.emit.load_const(places)
                self.emit.call(2)
                self.emit.store_fast(name)
        if self.random:
            self.emit.load_function(random_state)
            for argument in self._state_of:
                self.emit.load_const(argument)
            self.emit.call(2)
            self.emit.store_fast(_RANDOM)
        if self.casts:
            self.emit.load_function(autocast.depth)
            self.emit.call(0)
            self.emit.store_fast(_AUTOCAST)

    def finish(self) -> None:
        """Emits the handler, at the end of the guarded code."""
        emit, code = self.emit, self.code
        emit.place(self.label)
        emit.push_exc_info()
        emit.store_fast(_ERROR)
        emit.pop_except()
        place = f"{code.co_qualname} ({code.co_filename}:{code.co_firstlineno})"
        goes_on = self.counted or not self.again  # the exception propagates instead of another run
        lines = NodeLines(self.graph) if self.graph is not None and goes_on else None
        emit.load_function(functools.partial(_prepare, place, self.restore, lines, self.again))
        emit.load_fast(_ERROR)
        emit.delete_fast(_ERROR)
        for known, name in ((self.counted, _VERSIONS), (self.changed, _SAVED), (self.random, _RANDOM),
                            (self.casts, _AUTOCAST)):
            if known:
                emit.load_fast(name)
            else:
                emit.load_const(None)
        emit.call(5)
        raises = emit.label()
        emit.dup()
        emit.load_const(None)
        emit.compare("is")
        emit.jump_if_false(raises)
        emit.pop()
        emit.load_function(Continuation)
        for name in code.co_freevars:
            emit.load_closure(name)
        if code.co_freevars:
            emit.build_tuple(len(code.co_freevars))
        emit.load_const(_plain_copy(code, len(self.arguments)))
        emit.make_function(closure=bool(code.co_freevars))
        for name in self.arguments:
            emit.load_deref(name) if name in code.co_cellvars else emit.load_fast(name)
        emit.call(1 + len(self.arguments))
        emit.ret()
        emit.place(raises)
        emit.reraise()


def _prepare(
    place: str, restore: Callable[[], None], lines: NodeLines | None, again: bool, error: BaseException,
    counted: Any, saved: Any, random: Any, depth: Any,
) -> BaseException | None:
    """Prepares the plain run; returns the exception that propagates instead, if any. Guarded code refers to this call,
    so it must not hold the frame's code, the emitter, or the graph, whose nodes have fake tensors."""
    if not isinstance(error, Exception) or isinstance(error, exc.DynamoLiteError):
        return error
    restore()
    if depth is not None:
        autocast.set_depth(depth)
    if isinstance(error, _ENDS_A_COMPUTATION):
        return error
    if not again or counted is not None and _is_written(counted):
        give_lines(error, lines)
        return error
    if saved is not None:
        put_back(saved)
    if random is not None:
        set_random_state(random)
    log.count("graphs_that_raised")
    if log.first_time("fallbacks", ("raised", place)):
        log.artifact("fallbacks").warning(
            "a graph of %s has raised %s: %s; this call runs again in plain Python", place, type(error).__name__,
            exc.one_line(error),
        )
    return None


def _plain_copy(code: types.CodeType, n: int) -> types.CodeType:
    """The code with `n` positional parameters. No hook intercepts it or its callees."""
    copy = code.replace(
        co_argcount=n, co_posonlyargcount=0, co_kwonlyargcount=0, co_flags=code.co_flags & ~0x0C
    )
    skip(copy, None, True)
    return copy


def versions(inputs: Sequence[Any], places: Sequence[int]) -> list[tuple[torch.Tensor, int | None]]:
    """Tensors with their version counters, the number of writes to each; None where torch doesn't count."""
    return [(inputs[place], None if inputs[place].is_inference() else inputs[place]._version) for place in places]


def _is_written(counted: list[tuple[torch.Tensor, int | None]]) -> bool:
    return any(version is None or tensor._version != version for tensor, version in counted)


Saved = list[tuple[torch.Tensor, torch.Tensor]]


def copies(inputs: Sequence[Any], places: Sequence[int]) -> Saved:
    """Tensors with copies of their elements. Of an expanded tensor, which torch can't write to, each element once."""
    with torch.no_grad():
        tensors = [_each_element_once(inputs[place]) for place in places]
        return [(tensor, tensor.clone()) for tensor in tensors]


def _each_element_once(tensor: torch.Tensor) -> torch.Tensor:
    strides = tensor.stride() if tensor.layout is torch.strided else ()
    for dim, (size, stride) in enumerate(zip(tensor.shape, strides)):
        if stride == 0 and size > 1:
            tensor = tensor.narrow(dim, 0, 1)
    return tensor


def put_back(saved: Saved) -> None:
    """Restores the elements of tensors. An unchanged tensor is not written to: torch would count the write, and
    invalidate what autograd has saved of the tensor."""
    with torch.no_grad():
        for tensor, value in saved:
            if not _is_unchanged(tensor, value):
                tensor.copy_(value)


def _is_unchanged(tensor: torch.Tensor, value: torch.Tensor) -> bool:
    """Whether a tensor has the same bits as its copy; False where these can't be compared."""
    if tensor.layout is not torch.strided or tensor.is_complex() or tensor.is_quantized or tensor.is_neg():
        return False
    # The copy has its own strides, as a tensor of one element may have any stride and still counts as contiguous.
    packed = (t.clone(memory_format=torch.contiguous_format).reshape(t.numel()) for t in (tensor, value))
    bits, before = (t.view(torch.uint8) for t in packed)
    return torch.equal(bits, before)


_State = list[tuple[Callable[[Any], Any], Any]]


def random_state(of_torch: bool = True, generators: Iterable[Any] = ()) -> _State:
    """The states of random number generators of torch, Python and NumPy: pairs of a setter and its argument."""
    state: _State = [
        (g.setstate, g.getstate()) if isinstance(g, Random) else (g.set_state, g.get_state())  # NumPy's
        for g in generators
    ]
    if of_torch:
        state.append((torch.default_generator.set_state, torch.default_generator.get_state()))
        if torch.cuda.is_initialized():
            state += [(generator.set_state, generator.get_state()) for generator in torch.cuda.default_generators]
    return state


def set_random_state(state: _State) -> None:
    """Restores the states that :func:`random_state` returned."""
    for set_to, value in state:
        set_to(value)
