"""The changes that a trace has made to the keys of a dict from outside, which generated code repeats on the real dict.

Invariant: keys are removed and stored in the program's order and by the program's operations. Iterators that were made
earlier, for example in a caller's frame, walk through the real dict's table, where ``popitem`` frees the last slot and
``del`` leaves a gap (Objects/dictobject.c, ``dict_popitem_impl``, ``delitem_common``).
"""
from __future__ import annotations

from typing import Any

from ..base import VariableTracker
from ..constant import ConstantVariable
from .user_keys import UserKey, check_unchanged

Entry = tuple[VariableTracker, VariableTracker]  # key and value
Entries = dict[Any, Entry]

Step = tuple[VariableTracker, ...] | None
"""A step as ``output.codegen.change_dict`` takes it: a key and a value to store; a key alone, to delete; the empty
tuple removes the last entry; None removes all entries."""

_Done = tuple[str, Any, VariableTracker | None]  # the operation, the mark of the key, the key
_LAST: _Done = "last", None, None
_CLEAR: _Done = "clear", None, None


def mark(hashed: Any) -> Any:
    """A representation of a hash key that distinguishes keys without running the user's code."""
    return ("user's", id(hashed)) if isinstance(hashed, UserKey) else hashed


class DictChanges:
    """The entries that a dict from outside had when the trace first read it, and the changes to its keys since.

    Args:
        items: hash key -> (key, value); empty for a dict that the trace makes.
        ordered: whether the dict is an OrderedDict, which keeps the order of its keys apart from its table, so that
            only the difference between the old and the new entries matters.
    """

    def __init__(self, items: Entries, ordered: bool) -> None:
        self._ordered = ordered
        self._keys = {h: key for h, (key, _) in items.items()}
        # The values in the real dict, lazy or not, by the marks of their keys.
        self._before = {mark(h): value for h, (_, value) in items.items()}
        self._removed: set[Any] = set()  # keys of the real dict that were removed, even if stored again later
        self._done: list[_Done] = []

    def had(self, hashed: Any) -> bool:
        """Whether the real dict has a key."""
        return mark(hashed) in self._before

    def before(self, hashed: Any) -> VariableTracker | None:
        """The value that the real dict has under a key, None if there is none."""
        return self._before.get(mark(hashed))

    def look_at(self, hashed: Any, value: VariableTracker, found: VariableTracker) -> None:
        """Replaces the lazy value of the real dict under a key by the realized tracker `found`."""
        if self.before(hashed) is value:
            self._before[mark(hashed)] = found

    def store(self, hashed: Any, key: VariableTracker) -> None:
        """Records that a new key was stored."""
        self._done.append(("store", mark(hashed), key))

    def remove(self, hashed: Any, key: VariableTracker, last: bool) -> None:
        """Records that a key was removed, with `last` by popitem."""
        self._removed.add(mark(hashed))
        self._done.append(_LAST if last else ("delete", mark(hashed), key))

    def clear(self) -> None:
        """Records that all keys were removed at once."""
        self._removed.update(self._before)
        self._done = [_CLEAR]

    def steps(self, items: Entries) -> list[Step] | None:
        """The steps that make the entries of the real dict equal to `items`; None where no steps give the order of its
        keys.

        A key that was neither removed nor stored is not hashed again. The steps include a key that was removed and
        stored again, as iterators of the dict notice that.
        """
        now = {mark(hashed): entry for hashed, entry in items.items()}
        before = {mark(hashed): key for hashed, key in self._keys.items()}
        kept = dict.fromkeys(m for m in before if m in now and m not in self._removed)
        if list(now)[: len(kept)] != list(kept):
            return None
        check_unchanged(hashed for hashed in items if mark(hashed) not in kept)
        changed: list[Step] = [now[m] for m in kept if self._before.get(m) is not now[m][1]]
        if not self._ordered:
            return [*self._replayed(now), *changed]
        deleted: list[Step] = [(key,) for m, key in before.items() if m not in kept]
        return [*deleted, *changed, *(entry for m, entry in now.items() if m not in kept)]

    def _replayed(self, now: dict[Any, Entry]) -> list[Step]:
        newest = {m: number for number, (what, m, _) in enumerate(self._done) if what == "store"}
        steps: list[Step] = []
        for number, (what, m, key) in enumerate(self._done):
            if what == "store" and newest[m] == number and m in now:
                steps.append(now[m])
            elif key is None:
                steps.append(() if what == "last" else None)
            else:
                steps.append((key, ConstantVariable(None)) if what == "store" else (key,))  # removed again later
        return steps
