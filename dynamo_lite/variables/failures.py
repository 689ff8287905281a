"""Operations that fail on fake tensors: those that fail in eager too raise in the program, the others break the graph.

Invariant: an exception that the traced program gets to see is one that torch has raised of real tensors of the same
sizes, types and strides, whatever they hold; so its handlers run, and its text is eager's.
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

# What torch raises of arguments that do not fit.
_OF_ARGUMENTS = (RuntimeError, TypeError, ValueError, IndexError, NotImplementedError, MemoryOverlap)
# What autograd raises by the histories of tensors alone, which fake ones have, too.
_OF_AUTOGRAD = (
    "a leaf Variable that requires grad ", "a view of a leaf Variable that requires grad ",
    "functions with out=... arguments don't support automatic differentiation",
    "Inference tensors cannot be saved for backward.",
    "One of the differentiated Tensors ", "The differentiated Tensor at index ",
    "does not require grad and does not have a grad_fn",
    "Trying to backward through the graph a second time", "grad can be implicitly created only for scalar outputs",
)
_MOST_BYTES = 1 << 24  # of all real tensors that are made in order to ask
_MOST_BYTES_UNUSED = 1 << 18  # the same for what did not fail, where filling them takes some microseconds


def raised_in_eager(
    op: str, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any], error: Exception
) -> Exception | None:
    """What an operation that failed on fake tensors raises on real ones; None if this is not known to be the same
    whatever their elements are.
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
        return error  # asked before elements are
    if _depends_on_history(target, leaves):
        return None
    first = _raised(op, target, args, kwargs, 0)
    if first is None or type(first) is not (RuntimeError if type(error) is MemoryOverlap else type(error)):
        return None
    second = _raised(op, target, args, kwargs, 1)
    return first if type(second) is type(first) and str(second) == str(first) else None


def refused_in_eager(node: fx.Node) -> Exception | None:
    """What a call raises on real tensors whatever they hold, though it passed on fake ones: metadata rules let pass
    more than kernels do. Asked of calls whose results nobody uses, as they are left out."""
    if node.op not in ("call_function", "call_method") or not _is_of_torch(node.target):
        return None
    first = node.args[0] if node.args else None
    if node.target is operator.getitem and isinstance(first, fx.Node) and isinstance(
            first.meta.get("example_value"), (tuple, list)):
        return None  # a part of what an operation gives, of which there may be thousands
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
    """Whether the node takes a gradient and frees what a later one, or a backward pass outside, would need."""
    retain = node.kwargs.get("retain_graph")
    return node.target is torch.autograd.grad and not (node.kwargs.get("create_graph") if retain is None else retain)


def _is_of_torch(target: Any) -> bool:
    """Whether real tensors without histories tell what it refuses."""
    if target is torch.autograd.grad:
        return False
    module = getattr(target, "__module__", None) or ""
    return isinstance(target, str) or module == "_operator" or module.split(".")[0] == "torch"


def _raised(op: str, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any], content: int) -> Exception | None:
    """What an operation raises of real tensors of this content."""
    made: dict[Any, torch.Tensor] = {}
    real_args, real_kwargs = pytree.tree_map_only(torch.Tensor, lambda t: _filled(t, content, made), (args, kwargs))
    # Nothing that the program could notice: neither its random numbers nor its memory take part.
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
    """Whether it is, or looks at, an input that is no leaf: it may look at a leaf, which autograd refuses to have
    written before the operation looks at its arguments."""
    seen = [value] if value._base is None else [value, value._base]
    return any(t.grad_fn is not None and type(t.grad_fn).__name__ == "Error" for t in seen)


def _is_plain(value: torch.Tensor) -> bool:
    return type(value) in (FakeTensor, torch.nn.Parameter) and value.device.type == "cpu" and (
        value.layout is torch.strided and all(
            type(n) is int
            for n in (*value.shape, *value.stride(), value.storage_offset(), value.untyped_storage().nbytes())))


def _filled(fake: torch.Tensor, content: int, made: dict[Any, torch.Tensor]) -> torch.Tensor:
    """A real tensor like a fake one, without history; of those that share memory the real ones do, too."""
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
    """An operation in words."""
    return target if isinstance(target, str) else getattr(target, "__qualname__", str(target))
