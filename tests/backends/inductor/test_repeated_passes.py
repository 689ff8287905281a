"""Several passes over what a kernel reduces: along rows in one kernel, down long columns in one for each pass; vectors
run along what most passes read in its order."""

import pytest
import torch
import torch.nn.functional as F

from dynamo_lite.backends.inductor.scheduler import vectors
from dynamo_lite.backends.inductor.target_info import current

pytestmark = pytest.mark.by_turns(3)

CLOSE = {torch.float32: (1e-4, 1e-5), torch.float64: (1e-10, 1e-10), torch.bfloat16: (2e-2, 2e-2)}


def standardized(x):
    return (x - x.mean(0)) / x.std(0)


def over_channels(x):
    return F.layer_norm(x.permute(0, 2, 3, 1), x.shape[1:2])


PROGRAMS = {
    "columns": standardized,
    "softmax of columns": lambda x: x.softmax(0),
    "columns, scaled": lambda x: ((x * 2).sub((x * 2).amax(0)).exp() / 3, x.sum(0)),
    "columns twice": lambda x: standardized(standardized(x).tanh()),
    "rows": lambda x: (x - x.mean(1, keepdim=True)) / x.std(1, keepdim=True),
    "both": lambda x: standardized(x).softmax(1),
    "all": lambda x: (x - x.mean()) / x.std(),
    "transposed": lambda x: standardized(x.t()).t().contiguous(),
}


@pytest.mark.parametrize("dtype", CLOSE)
@pytest.mark.parametrize("shape", [(3, 17), (700, 9), (65, 130), (1100, 64)])
def test_values(check_many, dtype, shape):
    torch.manual_seed(0)
    x = torch.randn(shape).to(dtype)
    check_many([(name, fn, [x]) for name, fn in PROGRAMS.items() if dtype is not torch.bfloat16 or "twice" not in name],
               tolerance=CLOSE)


@pytest.mark.parametrize("shape", [(2, 8, 5, 7), (1, 64, 16, 16), (3, 130, 9, 9)])
def test_norms_over_channels(check_many, shape):
    torch.manual_seed(0)
    x = torch.randn(shape)
    last = x.contiguous(memory_format=torch.channels_last)
    w = torch.randn(shape[1])
    cases = []
    for layout, y in (("planes", x), ("channels last", last)):
        cases += [
            (f"layer norm, {layout}", over_channels, [y]),
            (f"layer norm and back, {layout}", lambda x: over_channels(x).permute(0, 3, 1, 2) + 1, [y]),
            (f"RMS, {layout}", lambda x: x * x.square().mean(1, keepdim=True).rsqrt(), [y]),
            (f"batch norm, {layout}", lambda x, w: F.batch_norm(x, None, None, w, w, training=True), [y, w]),
            (f"instance norm, {layout}", lambda x: F.instance_norm(x), [y]),
        ]
    check_many(cases, tolerance=CLOSE, library=[])


def kernels(build, fn, *shape):
    return build(fn, [torch.randn(shape)]).program.source.count("KERNEL kernel")


def test_long_columns_are_passed_over_by_kernels_of_their_own(build, in_cpp):
    assert kernels(build, standardized, 16, 64) == 1
    assert kernels(build, standardized, 4000, 64) > 1
    assert kernels(build, lambda x: x.softmax(0), 4000, 64) > 1
    # One pass is enough for these, and rows are near.
    assert kernels(build, lambda x: (x.sum(0), (x * x).sum(0), x.amax(0)), 4000, 64) == 1
    assert kernels(build, lambda x: x.softmax(1), 64, 4000) == 1


def test_what_is_near_depends_on_the_number_of_rows_and_pages(build, in_cpp):
    pages = current().pages
    # Rows of a page each, and rows of which several share one.
    assert kernels(build, lambda x: x.softmax(0), pages // 2, 1024) == 1
    assert kernels(build, lambda x: x.softmax(0), pages, 1024) > 1
    assert kernels(build, lambda x: x.softmax(0), pages, 64) == 1


def test_vectors_run_along_what_is_read_in_several_passes(build, in_cpp):
    text = build(lambda x: over_channels(x), [torch.randn(2, 16, 8, 8)]).program.source.split("KERNEL")[-1]
    assert "load_lanes" not in text and "store_lanes" in text
    text = build(lambda x: F.layer_norm(x, (16,)).transpose(1, 2).contiguous(), [torch.randn(2, 64, 16)])
    assert "load_lanes" not in text.program.source.split("KERNEL")[-1]


def test_arrangements_have_it():
    assert vectors(current(), 2).stays_near is not None
