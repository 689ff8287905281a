"""The registry of lowerings: functions that turn operators into loops.

A lowering is a function ``(g, *args, **kwargs)``: ``g`` is the ``GraphLowering`` in progress, the rest are the
operator's arguments by its schema, with tensors as ``TensorValue``. It returns a ``TensorValue`` (or a tuple of them),
or ``NotImplemented`` for a case that it leaves to the library. Registration checks that the function's parameters are
those of the operator's schema, so a lowering can't drift from its operator. If a parameter is annotated as an integer
or several (``int``, ``Sequence[int]``, or either with ``None``), it gets no symbols: calls with symbols there go to the
library. A lowering that can compute with symbols annotates the parameter as ``ix.Index``.

Invariant: an operator has one lowering, the one registered last.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import torch

from dynamo_lite.backends.aot.ops import RandomFill
from dynamo_lite.runtime import sized_operators

F = TypeVar("F", bound=Callable[..., Any])


@dataclasses.dataclass(frozen=True, slots=True)
class Lowering:
    """One operator's lowering. ``view``: the result is a view of the first argument; ``numbers``: positions and names
    of the parameters that take no symbols; ``random``: it draws random numbers, which the target must support
    (``Abilities.random``)."""

    target: Any
    fn: Callable[..., Any]
    view: bool = False
    numbers: tuple[tuple[int, str], ...] = ()
    random: bool = False

    def takes(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
        """Whether no parameter of ``numbers`` is given a symbol."""
        given = [args[at] if at < len(args) else kwargs.get(name) for at, name in self.numbers]
        return all(
            n is None or isinstance(n, int) for value in given
            for n in (value if isinstance(value, (list, tuple)) else (value,)))


LOWERINGS: dict[Any, Lowering] = {}


def lowering_of(target: Any) -> Lowering | None:
    """The lowering of what a graph calls, if any. An operator that is torch's with a symbolic size
    (``runtime.sized_operators``) has the lowering of torch's."""
    return LOWERINGS.get(target) or LOWERINGS.get(sized_operators.original_of(target))


_WHOLE = ("int", "Sequence[int]", "int | None", "Sequence[int] | None")


def register_lowering(*targets: Any, view: bool = False, random: bool = False) -> Callable[[F], F]:
    """Decorator that registers ``fn`` as the lowering of each of ``targets``. A later registration replaces an earlier
    one, from the next compilation on.

    Args:
        targets: ``OpOverload``s such as ``torch.ops.aten.add.Tensor``; for operators of your own also what
            ``torch.library.custom_op`` returned, or ``torch.ops.mylib.op`` if it has one overload.
        view: whether the result is a view of the first argument.
        random: whether it draws random numbers in kernels.
    """

    def register(fn: F) -> F:
        for target in map(overload_of, targets):
            _check_parameters(target, fn)
            LOWERINGS[target] = Lowering(target, fn, view, _numbers(fn), random)
        return fn

    return register


def _numbers(fn: Callable[..., Any]) -> tuple[tuple[int, str], ...]:
    parameters = list(inspect.signature(fn).parameters.values())[1:]
    return tuple((at, p.name) for at, p in enumerate(parameters) if _as_text(p.annotation) in _WHOLE)


def _as_text(annotation: Any) -> str:
    text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    return text.replace("collections.abc.", "").replace("typing.", "")


def overload_of(target: Any) -> Any:
    """The overload that an operator stands for, whichever object names it."""
    if isinstance(target, torch.library.CustomOpDef):
        return target._opoverload
    if isinstance(target, torch._ops.OpOverloadPacket):
        overloads = target.overloads()
        if len(overloads) != 1:
            raise TypeError(f"{target} has the overloads {', '.join(overloads)}: name one")
        return getattr(target, overloads[0])
    return target


def _check_parameters(target: Any, fn: Callable[..., Any]) -> None:
    """Raises TypeError if a lowering's parameters differ from those of the operator's schema."""
    if inspect.isfunction(target) or isinstance(target, RandomFill):
        return  # an operation of ``aot.ops``, which has no schema
    if not isinstance(target, torch._ops.OpOverload):
        raise TypeError(f"a lowering is registered for an OpOverload such as torch.ops.aten.add.Tensor, not {target!r}")
    parameters = list(inspect.signature(fn).parameters.values())[1:]
    if any(p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD) for p in parameters):
        return
    have = [p.name for p in parameters]
    want = [a.name for a in target._schema.arguments]
    if have != want:
        raise TypeError(
            f"the lowering of {target} takes ({', '.join(have)}); the operator's schema says ({', '.join(want)})"
        )
