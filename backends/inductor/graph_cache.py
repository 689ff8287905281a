"""The cache of compiled graphs, kept beside their libraries, so that the next process need not record, lower or
schedule them again.

An entry is an artifact, or a pair of artifacts with the data that makes them part of autograd's graph. It is written
as data (``serialize``) and sealed like a library (``codecache``). Strings in it become code: the wrapper's Python
source is executed, and C++ source is compiled if its library is gone. So an entry that is not this user's own is not
even decoded. Invariant: the value that is found for a key is equal to the one that was kept under it; a value that may
not be the same in another process is not kept.
"""
from __future__ import annotations

import builtins
import dataclasses
import functools
from typing import Any

import torch
from torch.fx import GraphModule

from dynamo_lite import config, exc, log
from dynamo_lite.backends.aot import call_sizes, graph, interface, ops
from dynamo_lite.backends.inductor import _runtime, device_random, kept_files
from dynamo_lite.backends.inductor.artifact import Artifact, Pair
from dynamo_lite.backends.inductor.codegen.wrapper import EntrySpec, WrapperSource
from dynamo_lite.backends.inductor.codegen.wrapper.calls import callable_of
from dynamo_lite.backends.inductor.codegen.wrapper.faults import new_fault, raise_fault
from dynamo_lite.backends.inductor.graph_key import NoKey, SymbolicKey, graph_key
from dynamo_lite.backends.inductor.late_decisions import share_windows
from dynamo_lite.backends.inductor.replay_plan import ReplayPlan
from dynamo_lite.backends.inductor.serialize import Format, Malformed, NotKept
from dynamo_lite.symbols import records

_SHOWS_THE_WAY = ("aot_graphs", "ir", "schedule", "fallbacks")  # logs of passes that are skipped if a graph is found
_SUFFIX = ".graph"
_SLOTS = 4  # entries of a graph with symbols, for calls that decide differently; if all are taken, the last is replaced


@dataclasses.dataclass(frozen=True, slots=True)
class Decided:
    """The result of compiling a graph with symbolic sizes, and the decisions about the symbols that were made
    meanwhile. It can be used only where these hold, and they have to be guarded then."""

    value: Any
    decisions: tuple[Any, ...]


def key_of(gm: GraphModule, example_inputs: list[Any], options: dict[str, Any]) -> str | None:
    """The key of a captured graph; None if it has to be compiled anew."""
    if not config.cache_graphs or any(log.enabled(name) for name in _SHOWS_THE_WAY):
        return None
    try:
        with log.phase("graph_cache"):
            return graph_key(gm, example_inputs, options)
    except NoKey as reason:
        log.artifact("cache").info("a graph is not kept: %s", reason)
        return None


def find(key: str | None) -> Any:
    """The ``Artifact`` or the ``Pair`` that was kept under a key, or None."""
    if key is None:
        return None
    with log.phase("graph_cache"):
        try:
            found = _symbolic(key) if isinstance(key, SymbolicKey) else _read(key, key)
        except exc.CacheError:
            return None  # building the library will report the error
        except (Malformed, records.Malformed) as error:
            log.artifact("cache").warning("a kept graph (%s) can't be read, and is compiled again: %s", key, error)
            return None
    if found is None:
        log.count("graph_cache_misses")
        return None
    log.count("graph_cache_hits")
    log.artifact("cache").info("graph %s: found", key)
    return found


def _read(key: str, name: str) -> Any:
    """The entry of a given name, or None; that of a graph with symbols comes with its decisions.

    Raises:
        Malformed: the entry is of another kind.
    """
    body = kept_files.read_entry(name, _SUFFIX)
    if body is None:
        return None
    found = _format().loads(body)
    value = found.value if isinstance(found, Decided) and isinstance(key, SymbolicKey) else found
    if not isinstance(value, (Artifact, Pair)) or isinstance(key, SymbolicKey) is not isinstance(found, Decided):
        raise Malformed(f"it holds a {type(value).__name__}")
    return found


def _symbolic(key: SymbolicKey) -> Any:
    """The first entry of a graph with symbols whose decisions hold in this call; the environment then takes them over.
    """
    for key.slot in range(_SLOTS):
        found = _read(key, key.name(key.slot))
        if found is None:
            return None
        if key.env.takes_over(found.decisions):
            return found.value
    return None


def keep(key: str | None, value: Artifact | Pair) -> None:
    """Keeps the result of compiling a graph for the next process."""
    if key is None:
        return
    try:
        with log.phase("graph_cache"):
            if isinstance(key, SymbolicKey):
                decided = Decided(value, key.env.since(key.start))
                kept_files.write_entry(key.name(key.slot), _SUFFIX, _format().dumps(decided))
            else:
                kept_files.write_entry(key, _SUFFIX, _format().dumps(value))
    except NotKept as reason:
        log.artifact("cache").info("a graph is not kept: %s", reason)
    except (OSError, exc.CacheError) as error:
        if log.first_time("cache", str(error)):
            log.artifact("cache").warning("a graph can't be kept: %s", error)


# ---------------------------------------------------------------- what an entry may contain
_RECORDS = (Artifact, ReplayPlan, Pair, Decided, WrapperSource, EntrySpec, interface.Interface, interface.Result,
            interface.Written, interface.Saved, interface.Freed, call_sizes.CallSizes, call_sizes.SizePlace,
            call_sizes.SizeFormula, graph.ValueOutput, graph.InputOutput, graph.LiteralOutput, graph.OutputAlias)
_FIELDS = {ops.RandomFill: ("op",), ops.Functionalized: ("op", "mutated")}  # of classes that are not dataclasses
# Values that wrappers name, apart from operators.
_NAMED = {
    "copy_strided": ops.copy_strided, "as_promised": ops.as_promised, "as_strided": ops.as_strided,
    "as_strided_scatter": ops.as_strided_scatter,
    "has_strides": _runtime.has_strides, "new_fault": new_fault, "raise_fault": raise_fault,
    "share_windows": share_windows, "increment_version": torch._C._increment_version, "reserve": device_random.reserve,
    "empty_strided": torch._C._VariableFunctions.empty_strided, "inference_mode": torch.inference_mode,
    "no_grad": torch.no_grad, "no_autocast": torch._C._DisableAutocast, "float": float, "ellipsis": ...,
    # Exceptions that kernels and wrappers raise.
    **{name: value for name, value in vars(builtins).items()
       if isinstance(value, type) and issubclass(value, Exception)},
}


@functools.cache
def _format() -> Format:
    records: dict[str, tuple[type, tuple[str, ...]]] = {cls.__name__: (cls, fields) for cls, fields in _FIELDS.items()}
    records.update((cls.__name__, (cls, tuple(f.name for f in dataclasses.fields(cls)))) for cls in _RECORDS)
    return Format(records, _NAMED, before={WrapperSource: _without_targets}, after={WrapperSource: _with_targets})


def _without_targets(wrapper: WrapperSource) -> WrapperSource:
    """The wrapper without the callables of library operations, which can't be written by name."""
    namespace = {name: value for name, value in wrapper.namespace.items() if name not in wrapper.targets}
    return dataclasses.replace(wrapper, namespace=namespace)


def _with_targets(wrapper: WrapperSource) -> WrapperSource:
    wrapper.namespace.update((name, callable_of(target)[1]) for name, target in wrapper.targets.items())
    return wrapper
