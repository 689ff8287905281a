"""Tables of sets: the step that compares two, and the functions that copy one."""
import gc
import sys

import pytest
from guard_programs import holds

from dynamo_lite import _guards as G


class Bag(set):
    pass


class Seal(frozenset):
    pass


def tables():
    """Sets that have been larger, have lost members, have been popped from."""
    for n in (0, 1, 5, 40, 3000):
        for made in (set(range(n)), set(range(0, 8 * n, 8)), frozenset(map(str, range(n))), {(k,) for k in range(n)}):
            if type(made) is set:
                for value in range(0, 2 * n, 3):
                    made.discard(value)
                if len(made) > 2:
                    made.add(made.pop())
            yield made


def test_set_table():
    large = set(range(100)) - set(range(3, 98))
    grown = set(range(100))
    grown.difference_update(range(3, 98))
    popped = {0, 1, 2, 98, 99}
    popped.add(popped.pop())
    for expected in (large, grown, popped, frozenset(grown), set()):
        step = ("set_table", 0, G.clone_table(expected))
        for given in (large, grown, popped, frozenset(grown), set(), [], {0, 1}, Bag(grown)):
            same = isinstance(given, (set, frozenset)) and G.same_table(given, expected)
            assert holds(("load_local", 0, 0), step, args=(given,)) == same
    assert not G.same_table({1, 2}, {True, 2}) and not G.same_table(large, popped) and G.same_table({1}, frozenset({1}))


@pytest.mark.parametrize("made", tables(), ids=lambda made: f"{type(made).__name__}{len(made)}")
def test_a_copy_goes_on_as_its_original(made):
    same, held = G.clone_table(made), G.clone_table(made, tuple(made))
    for copied in (same, held):
        assert type(copied) is type(made) and (copied is not made or not made)
        assert G.same_table(copied, made) and list(copied) == list(made)
        assert sys.getsizeof(copied) == sys.getsizeof(made)
    for target in ({1, 2}, set(range(500)), Bag("abc"), Seal(), set()):
        G.copy_table(target, made)
        assert G.same_table(target, made) and target == made
    G.copy_table(same, same)
    if type(made) is set:
        for some in (made, same, held):
            some.update(range(50, 60))
            some.discard(51)
            some.pop()
            some |= {8 * n for n in range(30)}
        assert list(same) == list(held) == list(made) and G.same_table(same, made) and G.same_table(held, made)


def test_references_are_counted():
    made = {(k,) for k in range(50)}
    made.discard((3,))
    equal = tuple((v[0],) for v in made)
    before = [sys.getrefcount(value) for value in (*made, *equal)]
    for _ in range(3):
        same, held, target = G.clone_table(made), G.clone_table(made, equal), {object()}
        assert all(a is b for a, b in zip(held, equal, strict=True))
        G.copy_table(target, held)
        G.copy_table(target, same)
        G.copy_table(target, set())
        del same, held, target
    gc.collect()
    assert [sys.getrefcount(value) for value in (*made, *equal)] == before


def test_refused():
    for wrong in ((), ([],), ({1}, [1]), ({1}, (1,), 2)):
        with pytest.raises(TypeError):
            G.clone_table(*wrong)
    for wrong in (({1},), ({1}, []), ([], {1}), ({1}, {2}, [2])):
        with pytest.raises(TypeError):
            G.copy_table(*wrong)
    with pytest.raises(ValueError):
        G.clone_table({1, 2}, (1,))
    with pytest.raises(TypeError):
        G.same_table({1}, [1])
