"""Offsets from the start of a storage, of tensors that lie elsewhere in theirs at each call."""
import pytest
import torch

import dynamo_lite

PROGRAMS = {
    "read": lambda x: x.as_strided((2, 2), (2, 1), 0) * 2,
    "written": lambda x: x.as_strided((2, 2), (2, 1), 0).sub_(5),
    "function": lambda x: torch.as_strided(x, (2,), (1,), storage_offset=1) + 0,
    "named": lambda x: torch.as_strided(input=x, size=(2,), stride=(1,), storage_offset=1) + 0,
    "operator": lambda x: torch.ops.aten.as_strided(x, [2], [1], 1) + 1,
    "copy": lambda x: torch.as_strided_copy(x, (2,), (1,), 1),
    "part of an input": lambda x: x[1:].as_strided((2,), (1,), 1) * 1,
    "returned": lambda x: x.as_strided((2,), (1,), 0),
}
RELATIVE = {
    "without": lambda x: x[1:].as_strided((2,), (1,)).add_(1) * 2,
    "made here": lambda x: (x * 1)[1:].as_strided((2,), (1,), 2).add_(1),
    "size": lambda x: x.as_strided((x.shape[0] // 2, 2), (2, 1)).add_(1),
}


def compare(program, dynamic, backend, pieces):
    compiled = dynamo_lite.compile(program, dynamic=dynamic, backend=backend)
    dynamo_lite.reset_metrics()
    for start, count in pieces:
        seen = []
        for function in (program, compiled):
            memory = torch.arange(40.0)
            made = function(memory[start:start + count])
            seen.append((made, memory))
        assert torch.equal(seen[0][0], seen[1][0]) and torch.equal(seen[0][1], seen[1][1])
        assert seen[0][0].storage_offset() == seen[1][0].storage_offset()
    return dynamo_lite.metrics()["graphs"]


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor_lite"])
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", PROGRAMS)
def test_of_an_input(name, dynamic, backend):
    compare(PROGRAMS[name], dynamic, backend, [(0, 4), (2, 4), (1, 4), (0, 4), (3, 6)])


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("name", RELATIVE)
def test_others_are_compiled(name, backend):
    assert compare(RELATIVE[name], True, backend, [(0, 4), (2, 4), (3, 6)]) == 1


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor_lite"])
def test_a_diagonal_that_begins_again(backend):
    """The view of its further part is made here, in place of a kernel for each size."""
    def program(x):
        return x.view(-1, 2).fill_diagonal_(7, wrap=True) * 1

    assert compare(program, True, backend, [(3, 14), (0, 18), (1, 22)]) == 1
