"""Inputs that lie in one memory although their dtypes or storages differ: writes to one are seen in the other."""
import numpy as np
import pytest
import torch

import dynamo_lite


def fill_and_read(a, b):
    a.fill_(1)
    return b * 2


def write_both(a, b):
    a.fill_(1)
    b.add_(1)
    return a * 2, b * 2


PAIRS = {
    "whole numbers": lambda n: (x := torch.zeros(n), x.view(torch.int32)),
    "narrower": lambda n: (x := torch.zeros(n), x.view(torch.float16)),
    "a part in bytes": lambda n: (x := torch.zeros(n), x.view(torch.uint8)[1:5]),
    "complex": lambda n: (x := torch.zeros(2 * n), torch.view_as_complex(x.view(n, 2))),
    "one array": lambda n: (torch.from_numpy(a := np.zeros(n, np.float32)), torch.from_numpy(a)),
    "a part of an array": lambda n: (torch.from_numpy(a := np.zeros(n, np.float32)), torch.from_numpy(a[1:])),
}


@pytest.mark.parametrize("backend", ["aot_eager", "inductor_lite"])
@pytest.mark.parametrize("program", [fill_and_read, write_both])
@pytest.mark.parametrize("name", PAIRS)
def test_writes_are_seen(name, program, backend):
    dynamo_lite.reset()
    compiled = dynamo_lite.compile(program, backend=backend)
    for n in (4, 4, 6, 8):
        seen = []
        for function in (program, compiled):
            a, b = PAIRS[name](n)
            made = function(a, b)
            seen.append((made if isinstance(made, tuple) else (made,), a, b))
        torch.testing.assert_close(seen[1], seen[0], rtol=0, atol=0)


def test_two_tensors_that_come_to_lie_in_one_memory():
    dynamo_lite.reset()
    compiled = dynamo_lite.compile(write_both)
    compiled(torch.zeros(4), torch.zeros(4, dtype=torch.int32))
    x, y = torch.zeros(4), torch.zeros(4)
    torch.testing.assert_close(compiled(x, x.view(torch.int32)), write_both(y, y.view(torch.int32)))
    separate = torch.zeros(4), torch.zeros(4, dtype=torch.int32)
    torch.testing.assert_close(compiled(*separate), write_both(torch.zeros(4), torch.zeros(4, dtype=torch.int32)))


def test_a_view_of_another_dtype_across_a_break():
    dynamo_lite.reset()

    def program(x):
        bits = x.view(torch.int32)
        x.detach_()  # breaks
        x.fill_(1)
        return bits - x

    compiled = dynamo_lite.compile(program)
    for n in (2, 3):
        x, y = torch.zeros(n), torch.zeros(n)
        assert torch.equal(compiled(x), program(y)) and torch.equal(x, y)


def test_reads_alone_are_compiled():
    dynamo_lite.reset()
    dynamo_lite.reset_metrics()
    compiled = dynamo_lite.compile(lambda a, b: a.sum() + b)
    x = torch.ones(4)
    assert torch.equal(compiled(x, x.view(torch.int32)), x.sum() + x.view(torch.int32))
    measured = dynamo_lite.metrics()
    assert measured["graphs"] == 1 and not measured["fallbacks"]
