"""Functions of ``torch.nn.functional`` that are given the program's own code or objects are followed."""
import os
import struct

import torch
from torch.nn import functional as F

import dynamo_lite

DISTANCE = torch.nn.PairwiseDistance()


def test_a_distance_of_the_programs():
    class Scaled:
        factor = 2.0

        def __call__(self, x, y):
            return (x - y).abs().sum(-1) * self.factor

    scaled = Scaled()

    def loss(x, y, z):
        own = F.triplet_margin_with_distance_loss(x, y, z, distance_function=lambda a, b: 1 - F.cosine_similarity(a, b))
        module = F.triplet_margin_with_distance_loss(x, y, z, distance_function=DISTANCE)
        return own + module, F.triplet_margin_with_distance_loss(x, y, z, distance_function=scaled, swap=True)

    compiled = dynamo_lite.compile(loss, backend="eager", fullgraph=True)
    dynamo_lite.reset_metrics()
    for factor in (2.0, 2.0, 3.0):
        scaled.factor = factor
        tensors = [torch.randn(3, 4) for _ in range(3)]
        for a, b in zip(compiled(*tensors), loss(*tensors)):
            torch.testing.assert_close(a, b)
    assert dynamo_lite.metrics()["graphs"] == 2


def test_paths_and_packed_numbers_are_computed_while_tracing():
    def named(x, name):
        path = os.path.join("a", os.path.basename(name))
        return x * len(path) + struct.unpack("<i", struct.pack("<i", 3))[0], path

    compiled, x = dynamo_lite.compile(named, fullgraph=True), torch.ones(2)
    dynamo_lite.reset_metrics()
    for name in ("b/c", "b/c", "b/cde"):
        got, wanted = compiled(x, name), named(x, name)
        assert torch.equal(got[0], wanted[0]) and got[1] == wanted[1]
    assert dynamo_lite.metrics()["graphs"] == 2
