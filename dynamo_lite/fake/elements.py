"""Fake tensors whose elements are known, because they come from tensors that are guarded by value.

A program gets the sizes of its images as a small tensor, ``[[1, 4, 4]]``, and turns it into Python numbers, or selects
by a mask. Such tensors are guarded by their elements where the trace needs them (``variables.tensors.value_guards``).
Tensors that are computed from these and from constants alone are computed here, too, in addition to the fake result.
Invariant: the known elements of a fake tensor are the elements of the program's tensor at that point; an operation that
can't be followed makes them unknown.
"""
from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch._subclasses.fake_tensor import FakeTensor, no_dispatch
from torch.utils import _pytree as pytree

from dynamo_lite.runtime import signal_handlers

if TYPE_CHECKING:
    from torch._subclasses.fake_tensor import FakeTensorMode

# Largest number of elements of a result that is followed.
MOST_ELEMENTS = 1 << 20
# Largest number of known elements that become a constant of the graph, for a result whose shape depends on elements.
MOST_IN_GRAPH = 1 << 16
_DYNAMIC = (torch.Tag.dynamic_output_shape, torch.Tag.data_dependent_output)
_aten = torch.ops.aten
# Operations without a tensor argument whose elements follow from their arguments.
_FACTORIES = frozenset({
    _aten.arange.default, _aten.arange.start, _aten.arange.start_step, _aten.full.default, _aten.zeros.default,
    _aten.ones.default, _aten.scalar_tensor.default, _aten.eye.default, _aten.linspace.default,
    _aten.empty.memory_format,
})
# Operations whose results depend only on a tensor's size and dtype.
_OF_METADATA = frozenset({
    _aten.zeros_like.default, _aten.ones_like.default, _aten.full_like.default, _aten.empty_like.default,
    _aten.new_zeros.default, _aten.new_ones.default, _aten.new_full.default, _aten.new_empty.default,
})
FACTORIES = frozenset(f.overloadpacket.__name__ for f in _FACTORIES)
"""The names of the operations without a tensor argument, which are the names of the program's functions, too."""
OF_METADATA = frozenset(f.overloadpacket.__name__ for f in _OF_METADATA)
"""The names of the operations whose results depend only on a tensor's size and dtype."""
# Operations that make a tensor of the program out of a tensor that Python has just made from numbers.
_LIFTS = frozenset({_aten.lift_fresh.default, _aten.lift_fresh_copy.default, _aten.lift.default})
# Operations that depend on a tensor's memory layout, which its elements don't tell.
_OF_MEMORY = frozenset({_aten.as_strided.default, _aten.as_strided_.default, _aten.set_.source_Tensor})
_NOT_FOLLOWED = object()


class KnownValues:
    """The elements of fake tensors, by tensor."""

    def __init__(self) -> None:
        self._values: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        self._outer: list[dict[int, tuple[torch.Tensor, torch.Tensor]]] = []
        # Set when the result of an operation, or its shape, depended on elements; cleared by the code that reads it.
        self.needed = False
        # Whether operations on constants are followed before any elements are known.
        self.follows = False

    def __bool__(self) -> bool:
        return bool(self._values or self._outer or self.follows)

    def add(self, fake: torch.Tensor, value: torch.Tensor) -> None:
        self._values[id(fake)] = (fake, value)

    def of(self, fake: Any) -> torch.Tensor | None:
        """The elements, which must not be changed; None if they are unknown."""
        found = self._values.get(id(fake))
        return found[1] if found is not None else getattr(fake, "constant", None)

    def drop(self, fake: Any) -> None:
        """Forgets the elements of one tensor, but not of others that share its memory."""
        self._values.pop(id(fake), None)

    @contextlib.contextmanager
    def unknown(self) -> Iterator[None]:
        """A context in which no elements are known; those of tensors written within are unknown afterwards, too."""
        outer, self._values = self._values, {}
        self._outer.append(outer)
        try:
            yield
        finally:
            self._values = self._outer.pop()

    def forget(self, tensors: list[torch.Tensor]) -> None:
        """Forgets the elements of all tensors that share memory with these."""
        if not tensors:
            return
        storages = {t.untyped_storage()._cdata for t in tensors}
        for values in (self._values, *self._outer):
            for key, (fake, _) in list(values.items()):
                if fake.untyped_storage()._cdata in storages:
                    del values[key]

    def _forget_copies(self, written: list[torch.Tensor]) -> None:
        """Forgets tensors that share memory with tensors just written, but whose known elements are a separate copy."""
        for tensor in written:
            place = tensor.untyped_storage()._cdata
            elements = self._values[id(tensor)][1].untyped_storage()._cdata
            for key, (fake, value) in list(self._values.items()):
                if fake.untyped_storage()._cdata == place and value.untyped_storage()._cdata != elements:
                    del self._values[key]

    def dispatch(self, mode: FakeTensorMode, raw: Any, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        """Runs an operation on fake tensors by `raw`, and also on their elements where these are known."""
        fakes = [a for a in pytree.tree_leaves((args, kwargs)) if isinstance(a, FakeTensor)]
        value = self._evaluate(func, args, kwargs, fakes)
        if value is _NOT_FOLLOWED:
            self.forget(_written(func, args, kwargs))
            result = raw(mode, func, types, args, kwargs)
            for fake in pytree.tree_leaves(result):
                if not any(fake is given for given in fakes):
                    self.drop(fake)  # elements that the rule for this operation may have recorded while it ran
            return result
        self._forget_copies(_written(func, args, kwargs))
        if any(tag in func.tags for tag in _DYNAMIC):
            self.needed = True
            result = pytree.tree_map_only(torch.Tensor, lambda t: _like(mode, t), value)
        else:
            result = raw(mode, func, types, args, kwargs)
        for fake, real in zip(pytree.tree_leaves(result), pytree.tree_leaves(value)):
            if isinstance(fake, FakeTensor) and isinstance(real, torch.Tensor):
                self.add(fake, real)
        return result

    def _evaluate(self, func: Any, args: Any, kwargs: Any, fakes: list[Any]) -> Any:
        """The operation's result on known elements. Views of known tensors are views of their elements."""
        if torch.Tag.nondeterministic_seeded in func.tags or func in _OF_MEMORY:
            return _NOT_FOLLOWED
        if func in _LIFTS and not fakes:
            with no_dispatch():
                return args[0].clone() if args[0].numel() <= MOST_ELEMENTS else _NOT_FOLLOWED
        if not fakes and func not in _FACTORIES:
            return _NOT_FOLLOWED
        if any(self.of(f) is None for f in fakes):
            if func not in _OF_METADATA or fakes[0].device.type != "cpu" or fakes[0].numel() > MOST_ELEMENTS:
                return _NOT_FOLLOWED
            like = {"dtype": fakes[0].dtype, "layout": fakes[0].layout, "device": "cpu"}
            with no_dispatch():
                args = (torch.empty_strided(fakes[0].shape, fakes[0].stride(), **like), *args[1:])
        if not all(id(t) in self._values for t in _written(func, args, kwargs)):
            return _NOT_FOLLOWED  # the fake mode handles its own constants
        args, kwargs = pytree.tree_map_only(FakeTensor, self.of, (args, kwargs))
        if kwargs.get("device") is not None and torch.device(kwargs["device"]).type != "cpu":
            return _NOT_FOLLOWED
        with no_dispatch():
            try:
                value = func(*args, **kwargs)
            except Exception as error:  # the fake mode raises the error
                signal_handlers.pass_on(error)
                return _NOT_FOLLOWED
        if any(t.numel() > MOST_ELEMENTS for t in pytree.tree_leaves(value) if isinstance(t, torch.Tensor)):
            return _NOT_FOLLOWED
        return value


def _written(func: Any, args: Any, kwargs: Any) -> list[torch.Tensor]:
    """The tensors that an operation writes to."""
    if not func._schema.is_mutable:
        return []
    given = {**{a.name: value for a, value in zip(func._schema.arguments, args)}, **kwargs}
    written = [given.get(a.name) for a in func._schema.arguments if a.alias_info is not None and a.alias_info.is_write]
    return [t for t in pytree.tree_leaves(written) if isinstance(t, torch.Tensor)]


def _like(mode: FakeTensorMode, value: torch.Tensor) -> torch.Tensor:
    with mode:
        return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=value.device)
