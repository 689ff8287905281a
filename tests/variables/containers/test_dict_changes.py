"""Keys that a program removes and stores while the dict is iterated: the real dict's table decides what comes next."""
from __future__ import annotations

import collections
from collections.abc import Callable
from typing import Any

import pytest

import dynamo_lite


class Sized(dict):
    def __len__(self) -> int:
        return 7


def popped_last(words: Any) -> int:
    for word in words:
        words.popitem()
        words[word + "q"] = 1
    return len(list(words))


def deleted(words: Any) -> int:
    turns = 0
    for word in words:
        turns += 1
        del words["q" if "q" in words else word]
        words[word + "q"] = 1
        if turns > 5:
            break
    return turns


def cleared(words: Any) -> int:
    turns = 0
    for _ in words:
        turns += 1
        held = dict(words)
        words.clear()
        words.update(held)
        if turns > 5:
            break
    return turns


def stored_for_a_while(words: Any) -> int:
    turns = 0
    for _ in words:
        turns += 1
        words["t"] = 1
        del words["t"]
        words.pop("q", None)
        words["r"] = turns
        if turns > 5:
            break
    return turns


def stored_again(words: Any) -> int:
    turns = 0
    for word in words:
        turns += 1
        words["t"] = 1
        words.popitem()
        words[word] = words.pop(word)
        if turns > 5:
            break
    return turns


def behind_a_break(words: Any) -> list[str]:
    met: list[str] = []
    for word in words:
        dynamo_lite.graph_break()
        met.append(word)
        if len(met) < 4:
            words.pop("q", None)
            words[word + "z"] = 1
    return met


def zipped(words: Any) -> list[Any]:
    met: list[Any] = []
    for pair in zip(words, words.values()):
        met.append(pair)
        dynamo_lite.graph_break()
        words.pop(pair[0])
        words[pair[0] + "b"] = 5
        if len(met) > 4:
            break
    return met


@pytest.mark.parametrize("cls", [dict, collections.OrderedDict, collections.Counter, Sized,
                                 lambda entries: collections.defaultdict(int, entries)])
@pytest.mark.parametrize(
    "fn", [popped_last, deleted, cleared, stored_for_a_while, stored_again, behind_a_break, zipped])
def test_what_an_iterator_gives_of_a_dict_that_changes(fn: Callable[[Any], Any], cls: Any) -> None:
    def run(call: Callable[[Any], Any], entries: dict[str, int]) -> list[Any]:
        words = cls(entries)
        try:
            found = call(words)
        except RuntimeError as e:
            found = str(e)
        return [found, list(words.items())]

    for entries in ({"p": 2, "q": 1}, {"p": 2, "q": 1, "z": 3}, {"z": 1}):
        dynamo_lite.reset()
        compiled = dynamo_lite.compile(fn, backend="eager")
        assert run(compiled, entries) == run(fn, entries)


def test_an_iterator_of_a_caller() -> None:
    """The dict's table is as the caller's own statements leave it, gaps included."""
    @dynamo_lite.compile(backend="eager")
    def change(words: dict[str, int], last: bool) -> None:
        if last:
            words.popitem()
        else:
            del words["q"]
        words["r"] = 1
        words["s"] = 2
        del words["s"]

    def plain(words: dict[str, int], last: bool) -> None:
        change.__wrapped__(words, last)

    def run(call: Callable[..., None], last: bool) -> list[Any]:
        words = {"p": 1, "q": 2}
        met: list[Any] = []
        try:
            for word in words:
                met.append(word)
                if len(met) == 1:
                    call(words, last)
        except RuntimeError as e:
            met.append(str(e))
        return met

    for last in (True, False):
        assert run(change, last) == run(plain, last)
