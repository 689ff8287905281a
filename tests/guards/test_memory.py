"""Which tensors share memory: the sweep over all of them finds what a look at each pair finds."""
import random

import torch

from dynamo_lite.guards.memory import _any_overlap, overlap


def test_the_sweep_finds_what_pairs_do():
    draw = random.Random(0)
    found = set()
    for _ in range(2_000):
        base = torch.zeros(60)
        views = []
        for _ in range(draw.randrange(1, 7)):
            start, step = draw.randrange(50), draw.choice((1, 1, 2, 5))
            views.append(base[start:start + draw.randrange(0, 9):step])
        changed = draw.randrange(0, len(views) + 1)
        inputs = [(None, v) for v in views]
        want = any(overlap(views[i], views[k]) for i in range(changed) for k in range(len(views)) if k != i)
        assert _any_overlap(inputs[:changed], inputs[changed:]) == want
        found.add(want)
    assert found == {True, False}
