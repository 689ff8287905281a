"""Compiled graphs kept beside their libraries, so that the next process records, lowers and schedules nothing.

What is kept is an artifact, or what a pair of artifacts takes to be a part of autograd's graph, pickled; a file ends
with a digest of itself, as a library does. Invariant: what is found for a key is equal to what was kept under it; what
may not be the same in another process is not kept.
"""
from __future__ import annotations

import ctypes
import io
import pickle
import types
from typing import Any

import torch
from torch.fx import GraphModule

from dynamo_lite import config, exc, log
from dynamo_lite.backends.aot.ops import Functionalized, RandomFill
from dynamo_lite.backends.inductor import codecache
from dynamo_lite.backends.inductor.artifact import Artifact
from dynamo_lite.backends.inductor.codegen.wrapper import WrapperSource
from dynamo_lite.backends.inductor.codegen.wrapper.calls import callable_of
from dynamo_lite.backends.inductor.graph_key import NoKey, graph_key

_SHOWS_THE_WAY = ("aot_graphs", "ir", "schedule", "fallbacks")  # logs of what is skipped where a graph is found
_SUFFIX = ".graph"
_LARGEST_CONSTANT = 1 << 16  # bytes


def key_of(gm: GraphModule, example_inputs: list[Any], options: dict[str, Any]) -> str | None:
    """The key of a captured graph, or None where it is to be compiled anew."""
    if not config.cache_graphs or any(log.enabled(name) for name in _SHOWS_THE_WAY):
        return None
    try:
        with log.phase("graph_cache"):
            return graph_key(gm, example_inputs, options)
    except NoKey as reason:
        log.artifact("cache").info("a graph is not kept: %s", reason)
        return None


def find(key: str | None) -> Any:
    """What was kept under a key, or None."""
    if key is None:
        return None
    with log.phase("graph_cache"):
        try:
            body = codecache.read_entry(key, _SUFFIX)
        except exc.CacheError:
            return None  # who builds the library says so
        if body is None:
            log.count("graph_cache_misses")
            return None
        try:
            found = pickle.loads(body)
        except Exception as error:  # whatever unpickling makes of a file that is damaged or of another version
            log.artifact("cache").warning("a kept graph (%s) can't be read, and is compiled again: %s: %s", key,
                                          type(error).__name__, error)
            return None
    log.count("graph_cache_hits")
    log.artifact("cache").info("graph %s: found", key)
    return found


def keep(key: str | None, value: Any) -> None:
    """Keeps an artifact, or a structure with artifacts in it, for the next process."""
    if key is None:
        return
    try:
        with log.phase("graph_cache"):
            body = _dumps(value)
            codecache.write_entry(key, _SUFFIX, body)
    except _NotKept as reason:
        log.artifact("cache").info("a graph is not kept: %s", reason)
    except (OSError, exc.CacheError) as error:
        if log.first_time("cache", str(error)):
            log.artifact("cache").warning("a graph can't be kept: %s", error)


# ---------------------------------------------------------------- bytes
class _NotKept(Exception):
    """With the reason in words."""


_PLAIN = (type(None), bool, int, float, complex, str, bytes, torch.dtype, torch.device, torch.layout,
          torch.memory_format)
_BY_NAME = (type, types.FunctionType, types.BuiltinFunctionType)


class _Pickler(pickle.Pickler):
    """Takes only what is the same in another process: data, this package's classes, functions and operators by name."""

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, torch._ops.OpOverload):
            if obj.namespace not in ("aten", "prims"):
                raise _NotKept(f"{obj} is an operator of the user's")
            return _operator, (obj.namespace, obj._opname, obj._overloadname)
        if isinstance(obj, Artifact):
            return _artifact, (_without_targets(obj),)
        if isinstance(obj, torch.Tensor):
            return _tensor, _content(obj)
        if isinstance(obj, _BY_NAME) or type(obj) in _PLAIN or isinstance(obj, (RandomFill, Functionalized)):
            return NotImplemented
        if (type(obj).__module__ or "").startswith("dynamo_lite.backends."):
            return NotImplemented
        raise _NotKept(f"it holds a {type(obj).__name__}")


def _operator(namespace: str, name: str, overload: str) -> Any:
    return getattr(getattr(getattr(torch.ops, namespace), name), overload)


def _without_targets(artifact: Artifact) -> tuple[Any, ...]:
    """An artifact as a tuple of its fields, without the callables of library operations, which have no names."""
    wrapper = artifact.wrapper
    namespace = {name: value for name, value in wrapper.namespace.items() if name not in wrapper.targets}
    parts = tuple(getattr(artifact, field) for field in Artifact.__slots__[1:])
    return (wrapper.python, wrapper.entries, wrapper.entry_specs, namespace, wrapper.direct, wrapper.targets, *parts)


def _artifact(fields: tuple[Any, ...]) -> Artifact:
    made = Artifact(WrapperSource(*fields[:6]), *fields[6:])
    made.wrapper.namespace.update((name, callable_of(target)[1]) for name, target in made.wrapper.targets.items())
    return made


def _content(tensor: torch.Tensor) -> tuple[Any, ...]:
    """A constant that the recorder made of a number or a list in the graph, as data. The graph itself holds none."""
    plain = type(tensor) is torch.Tensor and tensor.device.type == "cpu" and tensor.is_contiguous()
    if not plain or tensor.requires_grad or tensor.is_conj() or tensor.is_neg() or tensor.nbytes > _LARGEST_CONSTANT:
        raise _NotKept("it holds a tensor")
    content = ctypes.string_at(tensor.data_ptr(), tensor.nbytes) if tensor.nbytes else b""
    return tensor.dtype, tuple(tensor.shape), content


def _tensor(dtype: torch.dtype, shape: tuple[int, ...], content: bytes) -> torch.Tensor:
    with torch.inference_mode(False):
        made = torch.empty(shape, dtype=dtype)
    ctypes.memmove(made.data_ptr(), content, len(content))
    return made


def _dumps(value: Any) -> bytes:
    stream = io.BytesIO()
    try:
        _Pickler(stream, pickle.HIGHEST_PROTOCOL).dump(value)
        body = stream.getvalue()
        pickle.loads(body)
    except (pickle.PicklingError, AttributeError, TypeError, RuntimeError) as error:
        raise _NotKept(f"{type(error).__name__}: {error}") from error
    return body
