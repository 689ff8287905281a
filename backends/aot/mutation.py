"""Functional forms of mutating operations (those that write to arguments), derived from their schemas.

Invariant: calling ``Form.target`` with the operation's own arguments (without those in ``Form.dropped``) returns the
``Form.own`` results of the operation that are not arguments of it, followed by the new value of each argument in
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
    """The functional form of an operation; see the module's docstring.

    Attributes:
        target: the functional operation.
        mutated: positions or keywords of the arguments that are written.
        returned: for each result of the operation: an index into ``mutated``, if it returns that argument; None for a
            result of its own.
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
"""Operations whose functional form has other dtypes on fake tensors than on real ones, or lays out results differently
from the operation."""


@functools.cache
def functional_form(op: Any) -> Form:
    """The functional form of ``op``, which computes the new values of arguments without writing to them."""
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
    """An operation that does not write, takes the same arguments (except ``out``) and returns that many results."""
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
    """The argument at a position (or with a keyword) of the schema, whether it was passed by position or keyword."""
    if isinstance(place, int):
        if place < len(args):
            return args[place]
        place = names[place]
    return kwargs.get(place)
