"""Sizes and numbers of a function that were observed to change, stored on disk for the next process.

When the size or number at a path has changed between two calls, the path is stored in the backend's cache folder, in
one small file for each function, so that the next process starts with a symbol there. The file's name is a digest that
identifies the function: its source file, its name, its bytecode. Only portable paths are stored, which mean the same in
every process: they lead from arguments, closure and globals by names, indices and keys, not by an object's address.

Invariant: a file decides only which graph is made, not what it computes: everything else in the compile, including the
guards, is as if the change had been observed in this process.
"""
from __future__ import annotations

import hashlib
import json
import types
from collections.abc import Iterable
from typing import Any

from .. import config, exc, log
from .._eval_frame import GuardedCode
from ..continuation.origins import resume_label
from ..guards.source import PathKey
from ..variables.tensors.symbolic_sizes import APART, FROM_ONE
from .callers import structure_digest
from .descriptions import where
from .request import Frame, Settings, TraceRequest

_FORMAT = 2  # to be incremented when the meaning of a file changes
_SUFFIX = ".sizes"
# Per function. A frame that reads more numbers works on a table rather than on sizes, and each path costs a symbol.
MOST_PATHS = 256
_MOST_STEPS = 64  # largest number of steps of a path

# Kinds of path steps that are defined by their operands alone (``guards/source.py``), and those that end at a size.
_STEPS = frozenset({"local", "cell", "contents", "globals", "builtin", "attr", "size", "stride", "dict", "item", "seq",
                    "getitem", "dictkey", "dictvalue", "func", "method", "typeattr"})
_SIZES = ("size", "stride")
_MARKS = {APART: "not shared", FROM_ONE: "from 1 on"}  # marks on a path, and their names in the log
_TYPES: dict[str, type] = {cls.__name__: cls for cls in (int, str, bool, type(None))}


def recall(settings: Settings, frame: Frame) -> frozenset[Any]:
    """The paths of a function's sizes and numbers that have changed in earlier processes."""
    if settings.kept_files is None or not config.cache_sizes:
        return frozenset()
    found = _read(settings, frame)
    if found:
        log.count("kept_sizes_found")
        if log.enabled("cache"):
            names = ", ".join(sorted(_words(key, frame) for key in found))
            log.artifact("cache").info("%s: these have changed in an earlier process: %s", where(frame), names)
    return found


def keep(settings: Settings, frame: Frame, request: TraceRequest, made: GuardedCode) -> None:
    """Stores the paths of a function's changing sizes and numbers after a recompilation, taken from the request for the
    trace and from the cache entry that was made."""
    if settings.kept_files is None or not config.cache_sizes or not request.dynamic:
        return
    paths = frozenset(filter(_is_portable, _sizes_and_numbers(frame, request, made)))
    known = _read(settings, frame)
    if paths <= known:
        return
    paths |= known
    if len(paths) > MOST_PATHS:
        log.artifact("cache").info("%s: what changes is not kept: %d sizes and numbers", where(frame), len(paths))
        return
    body = json.dumps({"format": _FORMAT, "paths": sorted(map(_as_data, paths), key=repr)}).encode()
    try:
        settings.kept_files.write(_key(frame), _SUFFIX, body)
    except (OSError, exc.CacheError) as error:
        if log.first_time("cache", str(error)):
            log.artifact("cache").warning("what changes between calls can't be kept: %s", error)


def _sizes_and_numbers(frame: Frame, request: TraceRequest, made: GuardedCode) -> Iterable[Any]:
    """The changing paths that lead to sizes, numbers and lengths. Others, such as those to tensors' elements, may not
    change in the next process."""
    guards = [guard for entry in frame.known for guard in entry.extra.guards]
    numbers = {guard.source.key for guard in guards
               if guard.kind in ("len", "int_range")
               or guard.kind == "const" and type(guard.expected[0]) in (int, float)
               or guard.kind == "type_is" and guard.expected[0] in (int, float, list)}
    for key in request.dynamic:
        if type(key) is tuple or key.parts[0] in _SIZES or key in numbers:
            yield key
    if request.learned.changed:  # so sizes that no entry had met became symbolic, too
        yield from (guard.source.key for guard in made.extra.guards if guard.kind == "int_range")


# ---------------------------------------------------------------- files
def _read(settings: Settings, frame: Frame) -> frozenset[Any]:
    assert settings.kept_files is not None
    key = _key(frame)
    try:
        body = settings.kept_files.read(key, _SUFFIX)
        return frozenset() if body is None else _paths_in(bytes(body))
    except exc.CacheError as error:
        log.artifact("cache").debug("%s", error)  # the builder of the libraries reports it more loudly
    except _Malformed as error:
        log.artifact("cache").warning("what was kept of %s (%s) can't be read, and is not used: %s", where(frame), key,
                                      error)
    return frozenset()


def _paths_in(body: bytes) -> frozenset[Any]:
    try:
        data = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise _Malformed(str(error)) from error
    if type(data) is not dict or data.get("format") != _FORMAT or type(data.get("paths")) is not list:
        raise _Malformed("it holds no paths")
    if len(data["paths"]) > MOST_PATHS:
        raise _Malformed(f"{len(data['paths'])} paths")
    return frozenset(map(_path_of, data["paths"]))


class _Malformed(Exception):
    """A file has contents that ``keep`` does not write."""


def _key(frame: Frame) -> str:
    """A digest that identifies a function, or its part after a break, in all processes."""
    digest = hashlib.sha256(b"%d" % _FORMAT)
    code = frame.user_code
    for text in (code.co_filename, code.co_qualname, resume_label(frame.code), structure_digest(code)):
        digest.update(text.encode("utf-8", "surrogatepass") + b"\0")
    for part in {id(code): code, id(frame.code): frame.code}.values():
        _digest_code(digest, part)
    return digest.hexdigest()


def _digest_code(digest: Any, code: types.CodeType) -> None:
    digest.update(code.co_code)
    names = (code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars)
    digest.update(repr(names).encode("utf-8", "surrogatepass"))
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            _digest_code(digest, constant)
        elif type(constant) in (int, float, str, bool, type(None)):  # other reprs may hold addresses
            digest.update(repr(constant).encode("utf-8", "surrogatepass") + b"\0")


# ---------------------------------------------------------------- paths as data
def _is_portable(key: Any) -> bool:
    """Whether a path means the same in every process."""
    if type(key) is tuple:
        return len(key) == 2 and key[0] in _MARKS and _is_portable(key[1])
    for _ in range(_MOST_STEPS):
        kind, *operands = key.parts
        below = [part for part in operands if type(part) is PathKey]
        plain = (part for part in operands if type(part) is not PathKey)
        if kind not in _STEPS or len(below) > 1 or not all(
                type(part) in (int, str, bool, type(None)) or part in _TYPES.values() for part in plain):
            return False
        if not below:
            return True
        key = below[0]
    return False


def _as_data(key: Any) -> list[Any]:
    """A portable path as a list of its steps, the one nearest to the frame last, with the path's mark in front."""
    mark, at = key if type(key) is tuple else (None, key)
    steps = []
    while at is not None:
        below = None
        step: list[Any] = []
        for part in at.parts:
            if type(part) is PathKey:
                below = part
            else:
                step.append({"type": part.__name__} if isinstance(part, type) else part)
        steps.append(step)
        at = below
    return [mark, *steps]


def _path_of(data: Any) -> Any:
    if type(data) is not list or not 2 <= len(data) <= _MOST_STEPS + 1 or not (
            data[0] is None or type(data[0]) is str and data[0] in _MARKS):
        raise _Malformed("it holds something else than paths")
    key: PathKey | None = None
    for step in reversed(data[1:]):
        if type(step) is not list or not step or step[0] not in _STEPS:
            raise _Malformed(f"no step of a path: {step!r}")
        parts = tuple(map(_operand, step))
        key = PathKey(parts if key is None else (*parts, key))  # the path that a step starts from is its last operand
    return (data[0], key) if data[0] is not None else key


def _operand(data: Any) -> Any:
    if type(data) is dict:
        if set(data) != {"type"} or data["type"] not in _TYPES:
            raise _Malformed(f"no operand of a path: {data!r}")
        return _TYPES[data["type"]]
    if type(data) not in (int, str, bool, type(None)):
        raise _Malformed(f"no operand of a path: {data!r}")
    return data


def _words(key: Any, frame: Frame) -> str:
    """A path in words, for the log."""
    if type(key) is tuple:
        return f"{_words(key[1], frame)}, {_MARKS[key[0]]}"
    kind, *operands = key.parts
    base = _words(operands.pop(), frame) if operands and type(operands[-1]) is PathKey else ""
    if kind == "local":
        names = frame.parameters
        return names[operands[0]] if 0 <= operands[0] < len(names) else f"argument {operands[0]}"
    if kind in _SIZES:
        return f"{base}.shape[{operands[0]}]" if kind == "size" else f"{base}.stride({operands[0]})"
    if kind in ("dict", "contents"):
        return base
    own = [part for part in operands if not isinstance(part, type)]
    return f"{base}.{own[0]}" if base and own and isinstance(own[0], str) else f"{base}[{own[0] if own else kind}]"
