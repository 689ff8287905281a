"""Containers that are read or changed while a function of C iterates, compares or asks for keys: generated programs.

Each program of ``growth_programs`` runs plainly and compiled, on a container that it makes or is given; results,
exceptions with their texts, contents and the order of all calls have to be the same. Here each container meets each
operation with some of the sources, by turns; `python tests/growth_programs.py 5000` runs any number of combinations.
"""
from __future__ import annotations

import pytest
import thorough
import torch
from growth_programs import ANY, CONTAINERS, combinations, difference
from language_support import Programs

import dynamo_lite

program = Programs()


def _turns(name):
    """Of this container's combinations: each operation of its own with one source or two,
    by turns; one in eight others with one."""
    groups = {}
    for combination in combinations():
        if combination.container == name:
            groups.setdefault(combination.operation, []).append(combination)
    offset = 7 * list(CONTAINERS).index(name)
    for turn, (operation, group) in enumerate(groups.items()):
        if operation in ANY:
            if turn % 8 == offset % 8:
                yield group[(offset + 5 * turn) % len(group)], turn % 4 == 0
            continue
        for extra in range(2 if len(group) > 8 and turn % 2 else 1):
            yield group[(offset + 3 * turn + 11 * extra) % len(group)], (turn + extra) % 3 == 0


@pytest.mark.parametrize("name", CONTAINERS)
def test_hostile_sources(name):
    turns = list(_turns(name))
    assert len(turns) > 40
    some = thorough.share(turns, list(CONTAINERS).index(name), 3)
    found = [difference(combination, outside) for combination, outside in some]
    assert not any(found), "\n\n".join(filter(None, found))


@program
def a_list_is_extended_by_what_reads_it(x):
    y = [x]
    y.extend(v * y[-1] for v in (2, 3))
    y += map(lambda v: v * len(y), list(y))
    return y


@program
def a_block_of_a_detector(x):
    layers = [torch.nn.functional.relu, torch.tanh, lambda v: v * 2]
    y = list(x.chunk(3, 1))
    y.extend(m(y[-1]) for m in layers)
    return torch.cat(y, 1)


@program
def keys_that_are_tuples_are_iterated_over(x):
    table = {(1, 2): x, (3, 4): x * 2}
    return [v * n for k, v in table.items() for n in k]


@pytest.mark.parametrize("name", program.names())
def test_program(name):
    program.check(name)


def test_keys_from_outside_that_are_tuples():
    def f(x, table, members):
        return [x * n for key in table for n in key], sorted(sum(member) for member in members)

    given = {(1, 2): 0, (3, 4): 1}, {(1, 2), (5, 6)}
    got = dynamo_lite.compile(f, backend="eager", fullgraph=True)(torch.ones(2), *given)
    assert [v.tolist() for v in got[0]] == [[n, n] for n in (1.0, 2.0, 3.0, 4.0)] and got[1] == [3, 11]


def test_a_changed_set_keeps_its_order():
    def f(x, members):
        members.add(5)
        members.discard(3)
        return x + 1

    plain, compiled = {100, 7, 3, "a"}, {100, 7, 3, "a"}
    for _ in range(40):  # a large table: a set made anew of the same members has another order
        plain.update(range(1000, 1400)), compiled.update(range(1000, 1400))
        plain.difference_update(range(1000, 1400)), compiled.difference_update(range(1000, 1400))
    f(torch.ones(1), plain)
    dynamo_lite.compile(f, backend="eager")(torch.ones(1), compiled)
    assert list(compiled) == list(plain)


def test_a_break_in_the_middle_of_an_iteration():
    def f(x, container):
        log = []
        try:
            for v in container:
                dynamo_lite.graph_break()
                log.append(v)
                if len(log) == 2:
                    container.add(9) if isinstance(container, set) else container.append(9)
                x = x + 1
        except RuntimeError as error:
            log.append(str(error))
        return x, log[:6]

    import collections

    for make in (lambda: {1, 2, 3}, lambda: collections.deque([1, 2, 3])):
        got, want = dynamo_lite.compile(f, backend="eager")(torch.ones(1), make()), f(torch.ones(1), make())
        assert got[1] == want[1] and torch.equal(got[0], want[0])


def test_an_iterator_that_is_asked_twice_breaks():
    class Counted:
        def __init__(self):
            self.asked = 0
            self.left = 3

        def __iter__(self):
            self.asked += 1
            return self

        def __next__(self):
            if not self.left:
                raise StopIteration
            self.left -= 1
            return self.left

    def f(x, counted):
        pairs = enumerate(counted)
        dynamo_lite.graph_break()
        return list(pairs), counted.asked, x + 1

    assert dynamo_lite.compile(f, backend="eager")(torch.ones(1), Counted())[:2] == f(torch.ones(1), Counted())[:2]
