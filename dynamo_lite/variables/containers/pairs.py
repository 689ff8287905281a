"""The (key, value) pairs that ``dict(value)`` and ``update(value)`` read from a value that is no dict.

Invariant: each pair is computed when it is requested, and the errors are CPython's (Objects/dictobject.c,
PyDict_MergeFromSeq2).
"""
from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NoReturn

from .. import error_texts
from ..base import ObservedException, VariableTracker, type_name
from ..constant import ConstantVariable

if TYPE_CHECKING:
    from ..protocols import Tracer


def _raise_no_pair(tx: Tracer, number: int) -> NoReturn:
    text, notes = error_texts.no_pair(number)
    try:
        tx.raise_error(TypeError, text)
    except ObservedException as error:
        for note in notes:
            tx.call_method(error.value, "add_note", [ConstantVariable(note)])
        raise


def given_pairs(tx: Tracer, value: VariableTracker) -> Iterator[tuple[VariableTracker, VariableTracker]]:
    """Yields the (key, value) pairs that dict(value) and update(value) read where the value is no dict."""
    if tx.has_attribute(value, "keys"):
        keys = tx.call_method(value, "keys", [])
        owner, kind = value.python_type().__name__, type_name(keys.python_type())
        iterator = tx.iteration.iterator_or(keys, f"{owner}.keys() returned a non-iterable (type {kind})")
        for key in tx.iteration.listed(iterator):
            yield key, value.getitem(tx, key)
        return
    for number, element in enumerate(tx.iteration.steps(tx.iteration.get_iter(value))):
        try:
            pair = tx.iteration.fast_sequence(element, "")
        except ObservedException as error:
            if issubclass(error.value.python_type(), TypeError):
                _raise_no_pair(tx, number)
            raise
        if len(pair) != 2:
            said = f"dictionary update sequence element #{number} has length {len(pair)}; 2 is required"
            tx.raise_error(ValueError, said)
        yield pair[0], pair[1]
