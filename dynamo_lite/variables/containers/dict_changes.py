"""What a trace has done to the keys of a dict from outside, so that generated code can do it to the real one.

Invariant: keys are removed and stored in the program's order and by the program's means. Iterators that were made
earlier, in a caller's frame say, walk through the real dict's table, where ``popitem`` gives a place back and ``del``
leaves a gap (Objects/dictobject.c, ``dict_popitem_impl``, ``delitem_common``).
"""
from __future__ import annotations

from typing import Any

from ..base import VariableTracker
from ..constant import ConstantVariable
from .user_keys import UserKey, check_unchanged

Entry = tuple[VariableTracker, VariableTracker]  # key and value
Entries = dict[Any, Entry]

Step = tuple[VariableTracker, ...] | None
"""As ``output.codegen.change_dict`` takes it: a key and its value to store, a key to delete, nothing: the last entry is
to be removed; None: all are."""

_Done = tuple[str, Any, VariableTracker | None]  # what was done, the mark of the key, the key
_LAST: _Done = "last", None, None
_CLEAR: _Done = "clear", None, None


def mark(hashed: Any) -> Any:
    """What tells keys apart without asking the user's code."""
    return ("user's", id(hashed)) if isinstance(hashed, UserKey) else hashed


class DictChanges:
    """The entries that a dict from outside had when the trace met it, and what was done to its keys since.

    Args:
        items: hash key -> (key, value); empty for a dict that the trace makes.
        ordered: the dict is an OrderedDict, whose order of keys is apart from its table, so that only the difference
            counts.
    """

    def __init__(self, items: Entries, ordered: bool) -> None:
        self._ordered = ordered
        self._keys = {h: key for h, (key, _) in items.items()}
        # What the real dict has, looked at or not, by what tells its keys apart.
        self._before = {mark(h): value for h, (_, value) in items.items()}
        self._removed: set[Any] = set()  # keys of the real dict that were removed, be they stored again
        self._done: list[_Done] = []

    def had(self, hashed: Any) -> bool:
        """Whether the real dict has a key."""
        return mark(hashed) in self._before

    def before(self, hashed: Any) -> VariableTracker | None:
        """The value that the real dict has under a key, None if there is none."""
        return self._before.get(mark(hashed))

    def look_at(self, hashed: Any, value: VariableTracker, found: VariableTracker) -> None:
        """Notes what a value of the real dict is, now that it is looked at."""
        if self.before(hashed) is value:
            self._before[mark(hashed)] = found

    def store(self, hashed: Any, key: VariableTracker) -> None:
        """Notes that a key was stored that was not there."""
        self._done.append(("store", mark(hashed), key))

    def remove(self, hashed: Any, key: VariableTracker, last: bool) -> None:
        """Notes that a key was removed; `last`: by popitem."""
        self._removed.add(mark(hashed))
        self._done.append(_LAST if last else ("delete", mark(hashed), key))

    def clear(self) -> None:
        """Notes that all keys were removed at once."""
        self._removed.update(self._before)
        self._done = [_CLEAR]

    def steps(self, items: Entries) -> list[Step] | None:
        """What is to be done to the real dict, so that it becomes this one; None where no steps give the order of its
        keys.

        No key is hashed again that was neither removed nor stored. What was removed and stored again is here, too:
        iterators of the dict notice.
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
                steps.append((key, ConstantVariable(None)) if what == "store" else (key,))  # it is removed again
        return steps
