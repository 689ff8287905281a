"""Storage extent, against the storage that torch allocates for a layout."""
import pytest
import torch

from dynamo_lite.runtime.storage_extent import storage_extent


@pytest.mark.parametrize("size,stride", [
    ((), ()), ((3,), (1,)), ((3, 4), (4, 1)), ((3, 4), (10, 2)), ((2, 3), (0, 1)), ((1, 1), (7, 9)), ((0, 5), (5, 1)),
    ((5, 0, 2), (100, 3, 1)), ((4, 4), (1, 1)),
])
def test_extent_is_what_torch_allocates(size, stride):
    made = torch.empty_strided(size, stride)
    assert storage_extent(size, stride) == made.untyped_storage().nbytes() // made.itemsize
    assert storage_extent(made.shape, made.stride()) == storage_extent(size, stride)
