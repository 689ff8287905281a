"""Results whose shape depends on elements that a guard knows: eager's memory and strides."""
import pytest
import torch

import dynamo_lite


def narrowed(x, at):
    part = x.narrow(1, at, 2)
    part.add_(100)
    return part


@pytest.mark.parametrize("backend", ["eager", "inductor_lite"])
@pytest.mark.parametrize("dtype", [torch.int64, torch.uint8, torch.float32])
def test_a_view_by_a_known_start_is_one(dtype, backend):
    compiled = dynamo_lite.compile(narrowed, backend=backend)
    for _ in range(2):
        mine, theirs = (torch.arange(24).reshape(2, 4, 3).to(dtype) for _ in range(2))
        want, got = narrowed(theirs, torch.tensor(1)), compiled(mine, torch.tensor(1))
        assert torch.equal(got, want) and got.stride() == want.stride() and torch.equal(mine, theirs)


@pytest.mark.parametrize("f", [
    lambda x: torch.combinations(x, 1), lambda x: torch.combinations(x, 2), lambda x: torch.combinations(x, 5),
    lambda x: torch.unique_consecutive(x.view(-1, 1, 1).expand(2, 2, 2), dim=1), lambda x: x.nonzero(),
    lambda x: torch.argwhere(x > 5), lambda x: torch.unique(x.view(1, 2, 1), dim=1, return_inverse=True),
    lambda x: x[x > 0],
])
def test_strides_of_constants(f):
    x = torch.tensor([1, 2])
    want, got = f(x), dynamo_lite.compile(f)(x)
    for a, b in zip(*((r if isinstance(r, tuple) else (r,)) for r in (want, got)), strict=True):
        assert torch.equal(a, b) and a.stride() == b.stride()


def test_out_that_is_not_written_without_data():
    def f(x, out):
        return torch.linalg.matrix_rank(x, hermitian=True, out=out) + 1

    out = torch.zeros((), dtype=torch.int64)
    assert dynamo_lite.compile(f)(torch.eye(4), out) == 5 and out == 4
