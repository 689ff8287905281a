"""Functional forms of mutating operations (those that write to arguments), found by their schemas.

Invariant: calling ``Form.target`` with the operation's own arguments (without those in ``Form.dropped``) gives
``Form.own`` results of the operation that are no argument of it, followed by the new value of each argument in
``Form.mutated``, in order.
"""
from __future__ import annotations

import dataclasses
import functools
from typing import Any

import torch

from dynamo_lite.backends.aot import ops

Place = int | str


@dataclasses.dataclass(frozen=True, slots=True)
class Form:
    """See the module's docstring.

    Attributes:
        mutated: positions or keywords of the arguments that are written.
        returned: for each result of the operation: a place in ``mutated`` (that argument is returned), or None (its
            own).
        dropped: keywords that the functional form does not have: ``out`` arguments.
    """

    target: Any
    mutated: tuple[Place, ...]
    returned: tuple[int | None, ...]
    dropped: frozenset[str]

    @property
    def own(self) -> int:
        return self.returned.count(None)


_OTHERWISE = frozenset({
    torch.ops.aten._native_batch_norm_legit.default, torch.ops.aten._batch_norm_with_update.default,
    torch.ops.aten.rrelu_with_noise.default})
"""Operations whose functional form promises other dtypes on fake tensors than it gives, or lays results out otherwise
than the operation."""


@functools.cache
def functional_form(op: Any) -> Form:
    """How to compute what ``op`` writes without writing."""
    schema = op._schema
    mutated: list[Place] = []
    alias_sets = []
    for i, argument in enumerate(schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            mutated.append(argument.name if argument.kwarg_only else i)
            alias_sets.append(argument.alias_info.before_set)
    returned = tuple(
        alias_sets.index(r.alias_info.before_set) if r.alias_info is not None and r.alias_info.is_write else None
        for r in schema.returns)
    out_names = frozenset(a.name for a in schema.arguments if a.is_out)
    target = None
    if op not in _OTHERWISE:
        target = _matching_overload(op, out_names, len(mutated) + returned.count(None))
    if target is None:
        return Form(ops.Functionalized(op, tuple(mutated)), tuple(mutated), returned, frozenset())
    return Form(target, tuple(mutated), returned, out_names)


def _matching_overload(op: Any, out_names: frozenset[str], results: int) -> Any:
    """An operation without writes that takes the same arguments (less ``out``) and gives that many results."""
    namespace, name = op._schema.name.split("::")
    wanted = [(a.name, str(a.type)) for a in op._schema.arguments if a.name not in out_names]
    for candidate in (name.removesuffix("_"), name.removesuffix("_") + "_functional"):
        packet = getattr(getattr(torch.ops, namespace), candidate, None)
        if packet is None:
            continue
        overloads = packet.overloads()
        preferred = [op._overloadname] if op._overloadname in overloads else []
        for overload in (*preferred, *overloads):
            found = getattr(packet, overload)
            arguments = [(a.name, str(a.type)) for a in found._schema.arguments]
            if not found._schema.is_mutable and arguments == wanted and len(found._schema.returns) == results:
                return found
    return None


def argument_at(place: int | str, names: list[str], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The argument at a place of the schema, however it was passed."""
    if isinstance(place, int):
        if place < len(args):
            return args[place]
        place = names[place]
    return kwargs.get(place)
