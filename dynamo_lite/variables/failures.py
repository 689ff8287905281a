"""Operations that fail on fake tensors: those that also fail in eager mode raise in the program, the others break the
graph.

Invariant: an exception that reaches the traced program is one that torch raised for real tensors of the same sizes,
dtypes and strides, independently of their elements; so the program's handlers run, and the message is eager's.
"""
from __future__ import annotations

import operator
from typing import Any

import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils import _pytree as pytree

from ..exc import Unsupported
from ..fake.overlap import MemoryOverlap
from ..runtime import signal_handlers
from ..runtime.graph_calls import GraphCall

# Exceptions that torch raises for invalid arguments.
_OF_ARGUMENTS = (RuntimeError, TypeError, ValueError, IndexError, NotImplementedError, MemoryOverlap)
# Messages of errors of autograd that depend on the autograd history of tensors alone, which fake tensors have, too.
_OF_AUTOGRAD = (
    "a leaf Variable that requires grad ", "a view of a leaf Variable that requires grad ",
    "functions with out=... arguments don't support automatic differentiation",
    "Inference tensors cannot be saved for backward.",
    "One of the differentiated Tensors ", "The differentiated Tensor at index ",
    "does not require grad and does not have a grad_fn",
    "Trying to backward through the graph a second time", "grad can be implicitly created only for scalar outputs",
)
_MOST_BYTES = 1 << 24  # in all real tensors that are made to reproduce one failure
_MOST_BYTES_UNUSED = 1 << 18  # the same limit for unused operations, which is filled in a few microseconds


def raised_in_eager(
    op: str, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any], error: Exception
) -> Exception | None:
    """The exception that an operation which failed on fake tensors raises for real tensors; None if it raises none or
    if the exception may depend on their elements.
    """
    flat = pytree.tree_leaves((args, kwargs))
    leaves = [t for t in flat if isinstance(t, torch.Tensor)]
    if type(error) not in _OF_ARGUMENTS or isinstance(target, GraphCall) or not all(map(_is_plain, leaves)):
        return None
    if any(isinstance(n, (torch.SymInt, torch.SymFloat, torch.SymBool)) for n in flat):
        return None
    if sum(t.untyped_storage().nbytes() for t in leaves) > _MOST_BYTES:
        return None
    if any(text in str(error) for text in _OF_AUTOGRAD):
        return error  # raised before the operation reads elements
    if _depends_on_history(target, leaves):
        return None
    first = _raised(op, target, args, kwargs, 0)
    if first is None or type(first) is not (RuntimeError if type(error) is MemoryOverlap else type(error)):
        return None
    second = _raised(op, target, args, kwargs, 1)
    return first if type(second) is type(first) and str(second) == str(first) else None


def refused_in_eager(node: fx.Node) -> Exception | None:
    """The exception that a call raises for real tensors with any elements though it succeeded on fake ones, since
    metadata rules accept more than kernels do; None if there is none. Used for calls whose results are unused, which
    dead code elimination removes."""
    if node.op not in ("call_function", "call_method") or not _is_of_torch(node.target):
        return None
    first = node.args[0] if node.args else None
    if node.target is operator.getitem and isinstance(first, fx.Node) and isinstance(
            first.meta.get("example_value"), (tuple, list)):
        return None  # an element of a multi-output operation's result; there may be thousands
    args, kwargs = fx.node.map_arg((node.args, node.kwargs), lambda n: n.meta.get("example_value"))
    flat = pytree.tree_leaves((args, kwargs))
    leaves = [t for t in flat if isinstance(t, torch.Tensor)]
    symbols = any(isinstance(n, (torch.SymInt, torch.SymFloat, torch.SymBool)) for n in flat)
    if symbols or not all(map(_is_plain, leaves)):
        return None
    if sum(t.untyped_storage().nbytes() for t in leaves) > _MOST_BYTES_UNUSED:
        return None
    raised = _raised(node.op, node.target, args, kwargs, 0)
    if not isinstance(raised, _OF_ARGUMENTS):
        return None
    again = _raised(node.op, node.target, args, kwargs, 1)
    return raised if type(again) is type(raised) and str(again) == str(raised) else None


def frees_history(node: fx.Node) -> bool:
    """Whether the node computes a gradient and frees saved tensors that a later one, or a backward pass outside, would
    need."""
    retain = node.kwargs.get("retain_graph")
    return node.target is torch.autograd.grad and not (node.kwargs.get("create_graph") if retain is None else retain)


def _is_of_torch(target: Any) -> bool:
    """Whether `target` is an operation of torch whose errors can be reproduced with real tensors without autograd
    history."""
    if target is torch.autograd.grad:
        return False
    module = getattr(target, "__module__", None) or ""
    return isinstance(target, str) or module == "_operator" or module.split(".")[0] == "torch"


def _raised(op: str, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any], content: int) -> Exception | None:
    """The exception that an operation raises for real tensors filled with the number `content`; None if it succeeds."""
    made: dict[Any, torch.Tensor] = {}
    real_args, real_kwargs = pytree.tree_map_only(torch.Tensor, lambda t: _filled(t, content, made), (args, kwargs))
    # The program can't observe this: neither its random number generators nor its tensors take part.
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        try:
            if op == "call_method":
                getattr(real_args[0], target)(*real_args[1:], **real_kwargs)
            else:
                target(*real_args, **real_kwargs)
        except Exception as raised:
            signal_handlers.pass_on(raised)
            return raised
    return None


def _depends_on_history(target: Any, operands: list[torch.Tensor]) -> bool:
    return target is torch.autograd.grad or torch.is_grad_enabled() and any(map(_has_unknown_history, operands))


def _has_unknown_history(value: torch.Tensor) -> bool:
    """Whether the tensor is, or is a view of, an input that is no leaf. Such an input may be a view of a leaf; autograd
    refuses to write into that before the operation checks its arguments. It also refuses every use of one of several
    views (of ``split``, ``unbind``) whose base was written, and so does the attribute here."""
    seen = [value] if value._base is None else [value, value._base]
    try:
        return any(t.grad_fn is not None and type(t.grad_fn).__name__ == "Error" for t in seen)
    except RuntimeError:
        return True


def _is_plain(value: torch.Tensor) -> bool:
    return type(value) in (FakeTensor, torch.nn.Parameter) and value.device.type == "cpu" and (
        value.layout is torch.strided and all(
            type(n) is int
            for n in (*value.shape, *value.stride(), value.storage_offset(), value.untyped_storage().nbytes())))


def _filled(fake: torch.Tensor, content: int, made: dict[Any, torch.Tensor]) -> torch.Tensor:
    """A real tensor with a fake tensor's metadata, without autograd history; fake tensors that share a storage give
    real tensors that share one."""
    if id(fake) not in made:
        storage, itemsize = fake.untyped_storage(), fake.itemsize
        place = storage._cdata, fake.dtype
        if place not in made:
            made[place] = torch.full((storage.nbytes() // itemsize,), content, dtype=fake.dtype, device="cpu")
        made[id(fake)] = made[place].as_strided(fake.shape, fake.stride(), fake.storage_offset())
    return made[id(fake)]


def describe_failure(target: Any, error: BaseException) -> Unsupported:
    """The break for an operation that failed on fake tensors."""
    text = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    return Unsupported("fake_tensor_error", f"{target_name(target)}: {type(error).__name__}: {text}")


def target_name(target: Any) -> str:
    """The name of an operation, for messages."""
    return target if isinstance(target, str) else getattr(target, "__qualname__", str(target))
