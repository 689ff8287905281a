"""Serialization of values as pure data: to read them, names are looked up in tables, and no code from the file is
called.

The format is one line with the length of the JSON; the JSON, in which a list is a tag and its parts (``_READ`` has the
tags); then long strings and bytes, unescaped. A ``Format`` holds the tables: the classes whose instances may be
written, each reconstructed from its fields, and the functions and types that may be named.

Invariant: ``loads(dumps(value))`` equals ``value`` including all types, or one of the two raises. ``loads`` constructs
only numbers, strings, bytes, tuples, lists, dicts, tensors, types and devices of torch, the tables' entries, and looks
up operators of aten, prims and our own namespace.
"""
from __future__ import annotations

import ctypes
import json
import math
import re
import struct
from collections.abc import Callable, Mapping
from typing import Any

import torch

from dynamo_lite.backends.aot import chunked_loss
from dynamo_lite.backends.inductor import recurrent
from dynamo_lite.runtime import array_operator, sized_operators

LARGEST_TENSOR = 1 << 16  # bytes
_SHORT = 80  # longest string, in characters, that is written in the JSON
_NAMESPACES = ("aten", "prims", sized_operators.NAMESPACE)
_OTHERS = {
    chunked_loss.NAME: chunked_loss.operator, recurrent.FORWARD: lambda: recurrent.operators()[0],
    recurrent.BACKWARD: lambda: recurrent.operators()[1], array_operator.NAME: array_operator.array_call}
_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)


class NotKept(Exception):
    """Says why a value is not written, in words."""


class Malformed(Exception):
    """The bytes were not written by ``dumps``."""


def _names_of(kind: type) -> dict[str, Any]:
    return {str(value): value for value in vars(torch).values() if isinstance(value, kind)}


_DTYPES, _LAYOUTS, _MEMORY_FORMATS = map(_names_of, (torch.dtype, torch.layout, torch.memory_format))


class Format:
    """The classes and names that a file may contain.

    Args:
        records: classes by their names in the file, each with the fields that it is reconstructed from.
        named: functions, types and other values that are written by name.
        after: for some records, a function that completes what has been read, and may reject it by ``Malformed``.
        before: for some records, a function whose result, of the same type, is written instead of the record.
    """

    def __init__(
        self, records: Mapping[str, tuple[type, tuple[str, ...]]], named: Mapping[str, Any],
        before: Mapping[type, Callable[[Any], Any]] | None = None,
        after: Mapping[type, Callable[[Any], Any]] | None = None,
    ) -> None:
        self._named = dict(named)
        self._names = {id(value): name for name, value in named.items()}
        self._records = dict(records)
        self._tags = {cls: name for name, (cls, _) in records.items()}
        self._before = dict(before or {})
        self._after = dict(after or {})

    def dumps(self, value: Any) -> bytes:
        """A value as bytes.

        Raises:
            NotKept: it contains something that isn't the same in another process.
        """
        return _Writer(self).whole(value)

    def loads(self, data: bytes | memoryview) -> Any:
        """The value that ``dumps`` was given.

        Raises:
            Malformed: the bytes were not written by ``dumps``.
        """
        return _Reader(self, memoryview(data)).whole()


def _define(name: str) -> None:
    """Registers an operator of our own, which happens when it is first needed."""
    _OTHERS.get(name, sized_operators.operators)()


# ---------------------------------------------------------------- writing
class _Writer:
    """Writes one value."""

    def __init__(self, form: Format) -> None:
        self._form = form
        self._texts: list[bytes] = []
        self._at = 0

    def whole(self, value: Any) -> bytes:
        text = json.dumps(self._node(value), allow_nan=False, separators=(",", ":"), check_circular=False).encode()
        return b"".join((b"%d\n" % len(text), text, *self._texts))

    def _node(self, value: Any) -> Any:
        """A value as JSON: small values as they are, others as a list of a tag and parts."""
        kind = type(value)
        if value is None or kind is bool or kind is int or kind is str and len(value) <= _SHORT:
            return value
        if kind is str:
            return ["s", *self._apart(value.encode("utf-8", "surrogatepass"))]
        if kind is tuple or kind is list:
            return ["t" if kind is tuple else "l", *map(self._node, value)]
        if kind is dict:
            return ["d", *(self._node(part) for item in value.items() for part in item)]
        write = _WRITE.get(kind)
        if write is not None:
            return write(self, value)
        if kind in self._form._tags:
            return self._record(value)
        name = self._form._names.get(id(value))
        if name is not None:
            return ["n", name]
        raise NotKept(f"it holds {value}" if callable(value) else f"it holds a {kind.__name__}")

    def _apart(self, data: bytes) -> tuple[int, int]:
        self._texts.append(data)
        self._at += len(data)
        return self._at - len(data), len(data)

    def _record(self, value: Any) -> Any:
        tag = self._form._tags[type(value)]
        before = self._form._before.get(type(value))
        value = value if before is None else before(value)
        return ["r", tag, *(self._node(getattr(value, name)) for name in self._form._records[tag][1])]

    def _operator(self, op: Any) -> Any:
        if op.namespace not in _NAMESPACES:
            raise NotKept(f"{op} is an operator of the user's")
        return ["o", op.namespace, op._opname, op._overloadname]

    def _tensor(self, tensor: torch.Tensor) -> Any:
        """Writes a constant that the recorder made of a number or a list in the graph. Graphs hold no other tensors."""
        plain = tensor.device.type == "cpu" and tensor.layout == torch.strided and tensor.is_contiguous()
        if not plain or tensor.requires_grad or tensor.is_conj() or tensor.is_neg() or tensor.nbytes > LARGEST_TENSOR:
            raise NotKept("it holds a tensor")
        content = ctypes.string_at(tensor.data_ptr(), tensor.nbytes) if tensor.nbytes else b""
        return ["T", str(tensor.dtype), list(tensor.shape), *self._apart(content)]


_WRITE: dict[type, Callable[[_Writer, Any], Any]] = {
    float: lambda w, v: ["f", struct.pack("<d", v).hex()],
    complex: lambda w, v: ["c", struct.pack("<dd", v.real, v.imag).hex()],
    bytes: lambda w, v: ["b", *w._apart(v)],
    torch.dtype: lambda w, v: ["y", str(v)],
    torch.layout: lambda w, v: ["L", str(v)],
    torch.memory_format: lambda w, v: ["M", str(v)],
    torch.device: lambda w, v: ["D", v.type, v.index],
    torch._ops.OpOverload: _Writer._operator,
    torch.Tensor: _Writer._tensor,
}


# ---------------------------------------------------------------- reading
def _refused(*_: Any) -> Any:
    raise Malformed("JSON that dumps does not write")


# The exceptions of the tables, the constructors and torch for malformed values.
_WRONG = (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RuntimeError, struct.error)
_JSON = json.JSONDecoder(object_pairs_hook=_refused, parse_float=_refused, parse_constant=_refused)


class _Reader:
    """Reads one value; the methods in ``_READ`` get the parts of a tagged list."""

    def __init__(self, form: Format, data: memoryview) -> None:
        self._form = form
        self._data = data

    def whole(self) -> Any:
        head = bytes(self._data[:20])
        digits, line, _ = head.partition(b"\n")
        if not line or not digits.isdigit() or (start := len(digits) + 1) + int(digits) > len(self._data):
            raise Malformed("no length")
        text = bytes(self._data[start:start + int(digits)])
        self._data = self._data[start + int(digits):]
        try:
            return self._value(_JSON.decode(text.decode("ascii")))
        except _WRONG as error:
            raise Malformed(f"{type(error).__name__}: {error}") from error

    def _value(self, node: Any) -> Any:
        if type(node) is not list:
            return node
        tag = node[0]
        if tag == "t":
            value = self._value
            return tuple([part if type(part) is not list else value(part) for part in node[1:]])
        return _READ[tag](self, *node[1:])

    def _list(self, *parts: Any) -> list[Any]:
        return list(map(self._value, parts))

    def _dict(self, *parts: Any) -> dict[Any, Any]:
        values = self._list(*parts)
        if len(values) % 2:
            raise Malformed("a key without a value")
        return dict(zip(values[::2], values[1::2]))

    def _bytes(self, at: int, length: int) -> memoryview:
        if type(at) is not int or type(length) is not int or not 0 <= at <= at + length <= len(self._data):
            raise Malformed("a text that is not there")
        return self._data[at:at + length]

    def _text(self, at: int, length: int) -> str:
        return str(self._bytes(at, length), "utf-8", "surrogatepass")

    def _record(self, tag: str, *parts: Any) -> Any:
        cls, names = self._form._records[tag]
        if len(parts) != len(names):
            raise Malformed(f"{tag} has other fields")
        made = cls(*map(self._value, parts))
        after = self._form._after.get(cls)
        return made if after is None else after(made)

    def _operator(self, namespace: str, name: str, overload: str) -> Any:
        if namespace not in _NAMESPACES or not _NAME.fullmatch(name) or not _NAME.fullmatch(overload):
            raise Malformed("no operator's name")
        if namespace == sized_operators.NAMESPACE:
            _define(name)
        found = getattr(getattr(getattr(torch.ops, namespace), name), overload)
        if not isinstance(found, torch._ops.OpOverload):
            raise Malformed(f"{name}.{overload} is no operator")
        return found

    def _tensor(self, dtype: str, shape: list[int], at: int, length: int) -> torch.Tensor:
        kind, content = _DTYPES[dtype], self._bytes(at, length)
        if any(type(n) is not int or n < 0 for n in shape) or math.prod(shape) * kind.itemsize != length:
            raise Malformed("a tensor of another size")
        with torch.inference_mode(False):
            made = torch.empty(shape, dtype=kind, device="cpu")
        if length:
            ctypes.memmove(made.data_ptr(), bytes(content), length)
        return made


_READ: dict[str, Callable[..., Any]] = {
    "s": _Reader._text,
    "l": _Reader._list,
    "d": _Reader._dict,
    "f": lambda r, text: struct.unpack("<d", bytes.fromhex(text))[0],
    "c": lambda r, text: complex(*struct.unpack("<dd", bytes.fromhex(text))),
    "b": lambda r, at, length: bytes(r._bytes(at, length)),
    "y": lambda r, name: _DTYPES[name],
    "L": lambda r, name: _LAYOUTS[name],
    "M": lambda r, name: _MEMORY_FORMATS[name],
    "D": lambda r, kind, index: torch.device(kind) if index is None else torch.device(kind, index),
    "o": _Reader._operator,
    "T": _Reader._tensor,
    "r": _Reader._record,
    "n": lambda r, name: r._form._named[name],
}
