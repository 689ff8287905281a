"""Recompilation of frames: the reasons, the knowledge from earlier compiles, and the limit on their number.

Invariant: a value is treated as changing only if a guard on it has failed, or if a break has extracted it from a
tensor.
"""
from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import torch

from .. import exc, log
from .._eval_frame import GuardedCode
from .._guards import GuardProgram, tensor_spec
from ..guards import Guard
from ..guards.failures import GuardFailure, explain_failure, value_of_step
from ..guards.source import LocalSource, SizeSource, StrideSource, TypeAttrSource, found_in_bases
from ..rules.torch_marks import setting
from ..variables.tensors.symbolic_sizes import APART, SizesLearned
from . import changed_values, kept_sizes, stance
from .descriptions import in_users_words, where
from .limits import counted_entries
from .request import Frame, Settings, TraceRequest

_STEPS_TO_LOOK_AT = 200_000  # total steps of guard programs, which are rebuilt for each changed value


def first_request(settings: Settings, frame: Frame) -> TraceRequest:
    """The first request for a trace of a frame, with the knowledge gained from its cache entries."""
    known, limit = frame.known, setting("recompile_limit")
    counted = counted_entries(frame)
    measured = dynamic = frozenset[Any]()
    learned = SizesLearned()
    if known:
        changes = list(_changes(frame))
        dynamic, learned = dynamic_paths(frame, changes), _learned_sizes(frame, changes)
    else:
        dynamic = kept_sizes.recall(settings, frame)
    if frame.resumed is not None and frame.resumed.numbers:
        names = enumerate(frame.parameters)
        measured = frozenset(LocalSource(name, i).key for i, name in names if name in frame.resumed.numbers)
    kept = frozenset[Any]()
    if not settings.fullgraph and counted >= limit // 2:
        kept = dynamic | measured
    elif not settings.fullgraph and (known or setting("capture_scalar_outputs")):
        kept = measured
    return TraceRequest(
        frame, dynamic | measured, changed_values.changed_names(frame.user_code), kept,
        fits_all=counted == limit - 1 and not settings.fullgraph,
        graphless=len(known) if all(entry.extra.sources is None for entry in known) else 0,
        learned=learned,
    )


# ---------------------------------------------------------------- changed values
class _Change(NamedTuple):
    """A guard of an entry that does not hold; for a guard on a tensor, with the tensor."""

    entry: GuardedCode
    guard: Guard
    value: Any


def _changes(frame: Frame) -> Iterator[_Change]:
    """The failing guards on values that may change, for each entry of a function."""
    for entry in frame.known:
        changed = list(_changed_values(entry, frame))
        by_text = _by_text(entry.extra.guards) if changed else {}
        for text, value in changed:
            for guard in by_text.get(text, ()):
                yield _Change(entry, guard, value)


def dynamic_paths(frame: Frame, changes: Iterable[_Change]) -> frozenset[Any]:
    """The paths of numbers, sizes, lists, objects and tensors' elements whose change made entries of a function fail,
    now or before."""
    found: set[Any] = set()
    for entry in frame.known:
        found |= entry.extra.dynamic
        found |= _changed_class_data(entry.extra.guards)
        found.update(guard.source.key for guard in entry.extra.guards
                     if guard.kind == "int_range" and isinstance(guard.source, (SizeSource, StrideSource)))
    resized: set[Any] = set()
    for entry, guard, value in changes:
        if guard.kind in ("tensor", "relation"):
            found |= _changed_sizes(guard, value)
            resized.add((id(entry), guard.source.key))
            continue
        if guard.kind == "int_range":
            continue  # the size has been symbolic already
        if guard.kind == "tensor_data" and (id(entry), guard.source.key) in resized:
            continue  # a tensor of another size has other elements, which doesn't show that elements change
        found.add(guard.source.key)
        if guard.kind == "tensor_data":
            changed_values.note(
                frame.user_code, guard.source.name, entry.extra.readers.get(guard.source.key, ()))
    return frozenset(found)


def _learned_sizes(frame: Frame, changes: Iterable[_Change]) -> SizesLearned:
    """The knowledge that predicts which sizes and numbers that no entry has met will change."""
    numbers: set[int] = set()
    for _, guard, value in changes:
        if guard.kind == "tensor" and len(guard.expected[5]) == value.dim():
            pairs = zip(guard.expected[5], value.shape)
            numbers.update(n for before, now in pairs if before is not None and before != now for n in (before, now))
    if not numbers:
        return SizesLearned()
    guards = [guard for entry in frame.known for guard in entry.extra.guards]
    known = {guard.source.key for guard in guards if guard.kind in ("tensor", "int_range")}
    same = {(guard.source.key, guard.expected[0]) for guard in guards if guard.kind == "const"}
    return SizesLearned(frozenset(numbers), frozenset(known | same))


def _changed_class_data(guards: Iterable[Guard]) -> set[Any]:
    """The paths of class attributes whose values have changed since these guards were made."""
    found: set[Any] = set()
    for guard in guards:
        if guard.kind == "class_version":
            cls = guard.source.value  # type: ignore[attr-defined]
            now = {name: found_in_bases(cls, name, None) for name, _ in guard.expected[0]}
            found.update(TypeAttrSource(guard.source, name).key for name, before in guard.expected[0]
                         if now[name] is not before)
    return found


def _changed_sizes(guard: Guard, value: Any) -> set[Any]:
    """The paths of a tensor's sizes that have changed since it was guarded. A size that was equal to another and no
    longer is gets its path marked as APART."""
    if guard.kind == "relation":
        condition, *others = guard.expected
        return {(APART, source.key) for source in (guard.source, *others)} if condition.shared else set()
    sizes, strides = guard.expected[5:7]
    source, shape = guard.source, tuple(value.shape)
    if len(sizes) != len(shape):
        return set()
    found: set[Any] = {SizeSource(source, dim).key for dim, (before, now) in enumerate(zip(sizes, shape))
                       if before is not None and before != now}
    if not found:
        # The size fits but the stride does not: the tensor is a view of memory whose size has changed.
        now = value.stride()
        found = {StrideSource(source, dim).key for dim, before in enumerate(strides)
                 if (before if type(before) is int else _dense(value, before)) not in (None, now[dim])}
    return found


def _dense(value: torch.Tensor, guarded: tuple[int, ...] | None) -> int | None:
    """The stride that a guard requires of a tensor that is dense over another of its dimensions; None: any stride."""
    return None if guarded is None else value.shape[guarded[0]] * value.stride(guarded[0])


def _by_text(guards: Iterable[Guard]) -> dict[str, list[Guard]]:
    """The guards by the texts of their steps. A relation's text is its condition alone (``guards/program.py``)."""
    found: dict[str, list[Guard]] = {}
    for guard in guards:
        found.setdefault(guard.expected[0].words if guard.kind == "relation" else guard.text, []).append(guard)
    return found


def _changed_values(entry: GuardedCode, frame: Frame) -> Iterator[tuple[str, Any]]:
    """The failing guards on numbers, lengths, sizes and identities, up to the first failing guard of another kind; for
    a guard on a tensor, with the tensor. If there are very many, as for a list of thousands, only the first ones."""
    steps, places = list(entry.program.steps), list(range(len(entry.program.steps)))
    program = entry.program
    for _ in range(max(16, _STEPS_TO_LOOK_AT // len(steps)) if steps else 1):
        held, at = program.check(*frame.values)
        if held or steps[at][0] not in ("is", "const", "len", "tensor_data", "tensor", "relation", "int_range"):
            return
        value = value_of_step(program, at, frame.values) if steps[at][0] == "tensor" else None
        if steps[at][0] == "tensor" and not _differs_in_sizes(steps[at], value):
            return
        yield entry.extra.texts[places[at]], value
        # In another object, more may differ than the changing values; a flag has nothing inside.
        if steps[at][0] == "is" and type(steps[at][2]) is not bool:
            return
        del steps[at], places[at]
        program = GuardProgram(steps, program.n_inputs, program.n_registers)


def _differs_in_sizes(step: tuple[Any, ...], tensor: Any) -> bool:
    """Whether a tensor differs from a step's requirements only in its sizes and strides."""
    if type(tensor) is not step[2] or tensor.layout is not torch.strided or tensor.device.type == "meta":
        return False
    if len(step[7]) != tensor.dim():
        return False
    return tensor_spec(tensor)[:4] == step[3:7]


# ---------------------------------------------------------------- reasons for a recompilation
def guard_failures(frame: Frame) -> list[GuardFailure]:
    """Why each entry does not fit, without duplicates: the broadest entry first, then the most recently used."""
    found: dict[str, GuardFailure] = {}
    for entry in sorted(frame.known, key=lambda entry: -entry.breadth):
        failure = explain_failure(entry.program, entry.extra.texts, frame.values)
        if failure is not None:
            found.setdefault(failure.change, failure)
    return list(found.values())


def note_limit(frame: Frame) -> None:
    """Counts and logs that a function has reached the limit of entries.

    Raises:
        exc.RecompileLimitExceeded: with config.error_on_recompile.
    """
    log.count("recompile_limit")
    if log.first_time("recompiles", frame.code) or setting("error_on_recompile"):
        reasons = "; ".join(in_users_words(str(m), frame) for m in guard_failures(frame)[:1])
        more = len(frame.known) - setting("recompile_limit")
        if setting("error_on_recompile"):
            raise exc.RecompileLimitExceeded(f"{where(frame)}: {reasons}")
        log.artifact("recompiles").warning(
            "%s has been compiled config.recompile_limit = %d times%s; calls that fit none run in plain Python. "
            "Last: %s", where(frame), setting("recompile_limit"), f", and {more} that others cover" if more else "",
            reasons,
        )


def note_compile(frame: Frame) -> None:
    """Logs why a function is compiled again, if it was compiled before.

    Raises:
        exc.RecompileLimitExceeded: with config.error_on_recompile, and under the stance fail_on_recompile.
    """
    if stance.current().name == "fail_on_recompile":
        reasons = "".join(f"; {in_users_words(str(failure), frame)}" for failure in guard_failures(frame)[:1])
        raise exc.RecompileLimitExceeded(
            f"{where(frame)} would be compiled, and the stance is fail_on_recompile{reasons}")
    if not frame.known:
        return
    log.count("recompiles")
    if not log.enabled("recompiles") and not setting("error_on_recompile"):
        return
    found = guard_failures(frame)
    if setting("error_on_recompile"):
        raise exc.RecompileLimitExceeded(f"{where(frame)} would be compiled again: {'; '.join(map(str, found))}")
    shown = found if log.enabled("recompiles", 10) else found[:1]
    reasons = "; ".join(in_users_words(str(failure), frame) for failure in shown)
    log.artifact("recompiles").info("%s is compiled again: %s", where(frame), reasons)
