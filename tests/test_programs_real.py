"""Programs as people write them: compiled they give what eager gives, in as few graphs as can be, without recompiling
for ever."""
import functools

import pytest
import thorough
import torch
from programs_real import algorithms, models, training
from torch.utils import _pytree as pytree

import dynamo_lite
from dynamo_lite import log

PROGRAMS = {**training.PROGRAMS, **models.PROGRAMS, **algorithms.PROGRAMS}
BACKENDS = {"eager": 1e-6, "inductor_lite": 1e-4}


def compare(want, got, tolerance):
    a, b = pytree.tree_flatten(want), pytree.tree_flatten(got)
    assert a[1] == b[1]
    for p, q in zip(a[0], b[0]):
        assert type(p) is type(q)
        torch.testing.assert_close(q, p, rtol=tolerance, atol=tolerance)


def programs():
    """All of them with kernels, some with the captured graph as it is: what is captured is the same."""
    for turn, program in enumerate(PROGRAMS):
        for backend in ["inductor_lite", *thorough.share(["eager"], turn, 3)]:
            yield pytest.param(program, backend, id=f"{program.__name__}-{backend}")


@pytest.mark.parametrize("program, backend", programs())
def test_program(program, backend):
    dynamo_lite.reset()
    log.reset()
    want = program(lambda f: f)
    random = torch.get_rng_state()
    got = program(functools.partial(dynamo_lite.compile, backend=backend))
    compare(want, got, BACKENDS[backend])
    assert torch.equal(torch.get_rng_state(), random)
    counters = log.counters()
    assert "internal_errors" not in counters
    assert program is algorithms.nms or "recompile_limit" not in counters  # each round of it has another size
    graphs = PROGRAMS[program]
    if graphs is not None:
        assert (counters["graphs"], counters.get("graph_breaks", 0)) == (graphs, 0)
