"""What can be seen of a value: data, layout, aliasing and identity, as plain data that compares.

Invariant: two observations are equal if no program could tell the values apart by what Python and torch promise.
Objects are numbered in the order in which a walk meets them, so an object that is met twice is seen to be the same
one, and tensors that share memory are seen to share it. """
from __future__ import annotations

import collections
import functools
import itertools
import re
import types
import weakref
from collections.abc import Callable, ItemsView, Iterator, KeysView, ValuesView
from typing import Any

import numpy
import torch

# Addresses, and the C++ calls that torch puts into the text of some errors.
ADDRESS = re.compile(r"0x[0-9a-f]+")
PLACES_IN_C = re.compile(r"\nException raised from .*", re.DOTALL)
# A variable of a frame's own that inner functions share is a free one behind a break, as resume.py says.
UNBOUND = re.compile(r"UnboundLocalError|cannot access (?:local|free) variable|"
                     r"(?<=where it is not associated with a value) in enclosing scope")
# How often a function that leaves a program is called, and how many items are taken of an iterator that does.
CALLS, ITEMS = 2, 4
PLAIN = (int, float, complex, str, bytes, bool, type(None), type(Ellipsis), range, torch.dtype, torch.device,
         torch.Size, numpy.generic)


class Observer:
    """One walk over all that is to be seen of a call. Values that are met are kept alive, so identities last."""

    def __init__(self, own: Callable[[type], bool]) -> None:
        self.own = own    # whether a class is the program's, so that its instances are looked into
        self.met: dict[int, int] = {}
        self.storages: dict[int, int] = {}
        self.kept: list[Any] = []
        self.differentiable: list[torch.Tensor] = []

    def see(self, value: Any) -> Any:
        if type(value) is str:
            return ("str", plain_text(value))
        if type(value) in weakref.ProxyTypes:  # asking it for its class asks what it stands for, which may be gone
            return (type(value).__name__,)
        if isinstance(value, PLAIN):
            return (type(value).__name__, repr(value) if value != value else value)
        if type(value) is tuple and all(isinstance(v, PLAIN) for v in value):
            # CPython decides which constants of one module are one object.
            return ("tuple", [self.see(v) for v in value])
        known = self.met.get(id(value))
        if known is not None:
            return ("again", known)
        self.met[id(value)] = len(self.met)
        self.kept.append(value)
        for kind, method in self.KINDS:
            if isinstance(value, kind):
                return method(self, value)
        if self.own(type(value)):
            return self._object(value)
        return (type(value).__name__,)

    # ---------------------------------------------------------------- kinds of value
    def _tensor(self, t: torch.Tensor) -> Any:
        if t.requires_grad and (t.is_floating_point() or t.is_complex()):
            self.differentiable.append(t)
        named = {name: self.see(v) for name, v in sorted(vars(t).items()) if not name.startswith("_")}
        with torch._C.DisableTorchFunctionSubclass():
            kind = (type(t).__name__, t.dtype, t.device.type, t.layout, tuple(t.shape), t.requires_grad, t.is_leaf,
                    t.is_inference(), t.is_conj(), named)
            plain = t.detach().resolve_conj().as_subclass(torch.Tensor)
            if t.layout != torch.strided:
                return ("tensor", *kind, plain.to_dense())
            storage = self.storages.setdefault(t.untyped_storage()._cdata, len(self.storages))
            return ("tensor", *kind, t.stride(), t.storage_offset(), storage, "" if t.is_meta else plain.clone())

    def _sequence(self, value: Any) -> Any:
        return (type(value).__name__, [self.see(v) for v in value], self._attributes(value))

    def _mapping(self, value: Any) -> Any:
        # What belongs to the module's own machinery is no program's.
        pairs = [(self.see(k), self.see(v)) for k, v in list(value.items()) if k != "__builtins__"]
        return (type(value).__name__, pairs, self._attributes(value))

    def _set(self, value: Any) -> Any:
        seen = [self.see(v) for v in value]
        # Members that hash alike in both runs come in the same order.
        alike = all(type(v) in (int, float, bool, str, bytes) for v in value)
        return (type(value).__name__, seen if alike else sorted(seen, key=repr))

    def _iterator(self, value: Iterator[Any]) -> Any:
        items = []
        try:
            items = [self.see(v) for v in itertools.islice(value, ITEMS)]
        except Exception as error:
            items.append(raised(error))
        return ("iterator", type(value).__name__, items)

    def _function(self, fn: types.FunctionType) -> Any:
        """A function is what it does: it is called with a few tensors, as often as it takes to see it keep a state."""
        results = []
        for _ in range(CALLS if fn.__code__.co_filename.startswith("<fuzz") else 0):
            try:
                results.append(self.see(fn(*[torch.ones(3, 4)] * fn.__code__.co_argcount)))
            except Exception as error:
                results.append(raised(error))
        defaults = (fn.__defaults__, fn.__kwdefaults__)
        return ("function", fn.__name__, fn.__qualname__, fn.__doc__, self.see(defaults), self._attributes(fn), results)

    def _method(self, method: types.MethodType) -> Any:
        return ("method", method.__func__.__qualname__, self.see(method.__self__))

    def _module(self, module: torch.nn.Module) -> Any:
        return ("module", type(module).__name__, self.see(vars(module)))

    def _class(self, cls: type) -> Any:
        if not self.own(cls):
            return ("class", cls.__qualname__)
        data = (*PLAIN, list, dict, torch.Tensor)
        names = {k: v for k, v in vars(cls).items() if isinstance(v, data) and k[:2] != "__"}
        return ("class", cls.__qualname__, self.see(names))

    def _error(self, error: BaseException) -> Any:
        """An error that a program has caught: not the lines it passed, as a traceback grows where it is caught."""
        chain = [None if e is None else type(e).__name__ for e in (error.__context__, error.__cause__)]
        return ("error", *raised(error)[1:3], chain, error.__suppress_context__, self._attributes(error))

    def _array(self, a: numpy.ndarray[Any, Any]) -> Any:
        return ("array", a.dtype.str, a.shape, a.strides, a.flags.writeable, a.tolist())

    def _partial(self, value: functools.partial[Any]) -> Any:
        return ("partial", self.see(value.func), self.see(value.args), self.see(value.keywords))

    def _object(self, value: Any) -> Any:
        slots = [name for cls in type(value).__mro__ for name in vars(cls).get("__slots__", ())]
        held = {name: getattr(value, name, "unset") for name in slots if not name.startswith("__")}
        return ("object", type(value).__qualname__, self._attributes(value), self.see(held))

    def _attributes(self, value: Any) -> Any:
        held = getattr(value, "__dict__", None)
        return self.see(held) if isinstance(held, dict) and held else None

    # The first kind that fits decides.
    KINDS: tuple[tuple[Any, Callable[..., Any]], ...] = (
        (torch.Tensor, _tensor), (torch.nn.Module, _module), (type, _class), (BaseException, _error),
        (numpy.ndarray, _array), (functools.partial, _partial), ((KeysView, ValuesView, ItemsView), _sequence),
        ((list, tuple, collections.deque), _sequence), ((dict, types.MappingProxyType), _mapping),
        ((set, frozenset), _set), (types.FunctionType, _function), (types.MethodType, _method),
        ((Iterator,), _iterator),
    )


def raised(error: BaseException) -> Any:
    """An exception: class, text, the lines of the program that it went through, and what it was raised from."""
    lines = []
    frame = error.__traceback__
    while frame is not None:
        code = frame.tb_frame.f_code
        if code.co_filename.startswith("<fuzz"):
            lines.append((code.co_name, frame.tb_lineno))
        frame = frame.tb_next
    context = type(error.__context__).__name__ if error.__context__ is not None else None
    text = ADDRESS.sub("0x", PLACES_IN_C.sub("", str(error)))
    return ("raised", plain_text(type(error).__name__), plain_text(text), lines, context)


def plain_text(text: str) -> str:
    """A text in which unbound variables are told alike."""
    return UNBOUND.sub(lambda m: {"Unb": "NameError", "can": "unbound"}.get(m[0][:3], ""), text)


def gradients(tensors: list[torch.Tensor], leaves: list[torch.Tensor]) -> Any:
    """What flows back into the leaves from the tensors that were seen to require gradients."""
    if not tensors or not leaves:
        return None
    weights = [torch.linspace(0.5, 1.5, max(t.numel(), 1))[:t.numel()].reshape(t.shape).to(t.dtype) for t in tensors]
    try:
        found = torch.autograd.grad(tensors, leaves, weights, allow_unused=True)
    except RuntimeError as error:
        return ("raised", type(error).__name__)
    return [None if g is None else g.clone() for g in found]


def same(a: Any, b: Any, tolerance: float) -> bool:
    """Whether two observations are equal, numbers within a tolerance relative to the largest one beside them."""
    if isinstance(a, torch.Tensor) or isinstance(b, torch.Tensor):
        return isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor) and _same_tensors(a, b, tolerance)
    if isinstance(a, float) and isinstance(b, float):
        return a == b or (a != a and b != b) or abs(a - b) <= tolerance * max(1.0, abs(a), abs(b))
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        return type(a) is type(b) and len(a) == len(b) and all(same(p, q, tolerance) for p, q in zip(a, b))
    if isinstance(a, dict) and isinstance(b, dict):
        return list(a) == list(b) and all(same(a[k], b[k], tolerance) for k in a)
    return type(a) is type(b) and bool(a == b)


def _same_tensors(a: torch.Tensor, b: torch.Tensor, tolerance: float) -> bool:
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    if not tolerance or not (a.is_floating_point() or a.is_complex()):
        return torch.equal(a, b) or bool(((a == b) | ((a != a) & (b != b))).all())
    finite = a.detach()[a.detach().isfinite()]
    scale = max(1.0, float(finite.abs().max())) if finite.numel() else 1.0
    return torch.allclose(a, b, rtol=tolerance, atol=tolerance * scale, equal_nan=True)


def difference(a: Any, b: Any, tolerance: float, path: str = "") -> str:
    """The first place where two observations differ, in words."""
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)) and len(a) == len(b) and type(a) is type(b):
        for i, (p, q) in enumerate(zip(a, b)):
            if not same(p, q, tolerance):
                return difference(p, q, tolerance, f"{path}[{i}]")
    if isinstance(a, dict) and isinstance(b, dict) and list(a) == list(b):
        for k in a:
            if not same(a[k], b[k], tolerance):
                return difference(a[k], b[k], tolerance, f"{path}.{k}")
    return f"at {path}: plain {a!r}, compiled {b!r}"
