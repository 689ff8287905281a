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
    "scattered": lambda x: x.as_strided_scatter(torch.ones(2), (2,), (2,), 1),
    "another dtype": lambda x: x.view(torch.int32).as_strided((2,), (1,), 1) + 1,
    "a view in place": lambda x: x.detach().as_strided_((2,), (1,), 1),
    "changed before": lambda x: x.add_(1).as_strided((3,), (1,), 1).mul_(2),
    "asked for": lambda x: x * x[1:].storage_offset(),
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


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor_lite"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_an_offset_is_guarded(name, backend):
    assert compare(PROGRAMS[name], False, backend, [(0, 4), (2, 4), (0, 4), (2, 4)]) == 2
    assert dynamo_lite.metrics()["recompiles"] == 1


@pytest.mark.parametrize("name", PROGRAMS)
def test_one_graph_for_all_sizes_of_tensors_that_begin_their_storage(name):
    assert compare(PROGRAMS[name], True, "eager", [(0, 4), (0, 6), (0, 8)]) == 1


def test_a_parameter_that_moves_in_its_storage():
    layer, memory = torch.nn.Linear(2, 2), torch.arange(20.0)

    @dynamo_lite.compile(backend="eager", dynamic=False)
    def program():
        return layer.weight.detach().as_strided((2,), (1,), 5) + 0

    dynamo_lite.reset_metrics()
    for start in (4, 4, 5, 4):
        layer.weight.data = (memory + start)[start:start + 4].view(2, 2)
        assert torch.equal(program(), torch.tensor([5.0 + start, 6.0 + start]))
    assert dynamo_lite.metrics()["graphs"] == 2


def test_a_tensor_made_here_has_no_known_offset():
    def program(x):
        return x * 2, (x * 2)[1:].storage_offset()

    breaks = dynamo_lite.explain(program)(torch.ones(3)).break_reasons
    assert [b.kind for b in breaks] == ["data_ptr"]
    assert dynamo_lite.compile(program)(torch.ones(3))[1] == 1


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor_lite"])
def test_a_view_of_another_dtype_without_an_offset(backend):
    """The view's elements were once read in the dtype of the memory's tensor."""
    def program(x):
        return x.view(torch.int32).as_strided((2,), (2,)) + 1, (x + 1j).conj().as_strided((2,), (2,)) * 1

    for made, expected in zip(dynamo_lite.compile(program, backend=backend)(torch.arange(4.0)),
                              program(torch.arange(4.0))):
        assert torch.equal(made, expected)


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
