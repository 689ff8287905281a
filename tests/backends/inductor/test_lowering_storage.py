"""Results of the library that take over the storage of an argument: offset and size of storage are eager's."""
import pytest
import thorough
import torch

import dynamo_lite

pytestmark = pytest.mark.by_turns(3)

aten = torch.ops.aten
SCATTERS = {
    "slice": lambda x: aten.slice_scatter(x, x.new_ones(min(x.shape[0], 1), x.shape[1]), 0, 0, 1),
    "select": lambda x: aten.select_scatter(x, x.new_ones(x.shape[0]), 1, 2),
    "diagonal": lambda x: aten.diagonal_scatter(x, x.new_ones(min(x.shape)), 0, 0, 1),
    "as_strided": lambda x: torch.as_strided_scatter(x, x.new_ones(0, 3), (0, 3), (3, 1), x.storage_offset()),
}
SOURCES = {
    "clone": lambda x: x.clone(),
    "view of a clone": lambda x: x.clone()[x.shape[0] // 2:],
    "clone of a view": lambda x: x[x.shape[0] // 2:].clone(),
    "computed": lambda x: x * 2,
    "view of what is computed": lambda x: (x * 2)[x.shape[0] // 2:],
    "clone of what is computed": lambda x: (x.abs() + x.cummax(1)[0].neg())[x.shape[0] // 2:].clone(),
    "result of the library": lambda x: x.cummax(0)[0][x.shape[0] // 2:],
    "clone of such a result": lambda x: x.cummax(0)[0][x.shape[0] // 2:].clone(),
    "clone of what is scattered": lambda x: aten.slice_scatter(x, x.new_ones(x.shape[0], 1), 1, 0, 1).clone(),
    "part": lambda x: x.clone().split(2, 1)[0].repeat(1, 3)[:, :5].clone(),
}
INPUTS = {
    "empty": lambda: torch.randn(60)[7:7].view(0, 5),
    "empty, strided": lambda: torch.zeros(0, 5, 2)[..., 1],
    "dense": lambda: torch.randn(60)[7:47].view(8, 5),
    "strided": lambda: torch.randn(8, 5, 2)[..., 1],
    "transposed": lambda: torch.randn(60)[7:47].view(5, 8).t(),
}


def layout(x):
    return x.shape, x.stride(), x.storage_offset(), x.untyped_storage().nbytes()


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("scatter", SCATTERS)
def test_storage_of_scattered(scatter, source):
    turn = list(SCATTERS).index(scatter) + list(SOURCES).index(source) // 2
    for name, make in thorough.share(list(INPUTS.items()), turn):
        x = make()

        def f(x):
            return SCATTERS[scatter](SOURCES[source](x))

        expected = f(x)
        got = dynamo_lite.compile(f, backend="inductor_lite", dynamic=False)(x)
        assert torch.equal(got, expected), name
        # A scatter into a part of a tensor, called by its name and computed by generated code, has memory of its own.
        if expected.storage_offset() == 0 or scatter == "as_strided":
            assert layout(got) == layout(expected), name


@pytest.mark.parametrize("write", [
    lambda x: x[4:].mul_(2), lambda x: x[:, 1].add_(1), lambda x: x.diagonal().zero_(), lambda x: x.fill_(3),
    lambda x: x.zero_(), lambda x: x.t()[2:].copy_(x.t()[2:] + 1), lambda x: x.index_fill_(1, torch.tensor([2]), 4),
])
def test_writes_into_clones(write):
    for name, make in INPUTS.items():
        def f(x):
            x = x.clone()
            write(x)
            return x

        x = make()
        expected, got = f(x), dynamo_lite.compile(f, backend="inductor_lite", dynamic=False)(x)
        assert torch.equal(got, expected), name
        assert layout(got) == layout(expected), name
