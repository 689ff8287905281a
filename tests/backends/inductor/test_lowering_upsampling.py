"""Linear interpolation: generated code against eager and the interpreter."""
import pytest
import torch
import torch.nn.functional as F

pytestmark = pytest.mark.by_turns(3)

MODES = {1: "linear", 2: "bilinear", 3: "trilinear"}
SIZES = {
    1: [((7,), (14,)), ((7,), (20,)), ((20,), (7,)), ((1,), (5,)), ((9,), (1,)), ((33,), (33,))],
    2: [((4, 5), (8, 10)), ((4, 5), (9, 5)), ((7, 9), (3, 20)), ((1, 6), (4, 17)), ((5, 5), (1, 1)),
        ((3, 4), (3, 40))],
    3: [((2, 3, 4), (4, 6, 8)), ((3, 4, 5), (2, 4, 17))],
}


def close(dtype):
    return {torch.float32: (2e-6, 2e-6), torch.float64: (1e-12, 1e-12)}[dtype]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize("aligned", [False, True])
def test_sizes(check_many, rank, dtype, aligned):
    cases = []
    for size, out in SIZES[rank]:
        torch.manual_seed(sum(size))
        x = torch.randn(2, 3, *size, dtype=dtype)
        cases.append((f"{size} to {out}", lambda x, out=out: F.interpolate(
            x.relu() - 1, out, mode=MODES[rank], align_corners=aligned), [x]))
        cases.append((f"{size} to {out}, transposed", lambda x, out=out: F.interpolate(
            x.transpose(0, 1), out, mode=MODES[rank], align_corners=aligned) * 2, [x]))
    check_many(cases, {dtype: close(dtype)}, interpreted=True)


@pytest.mark.parametrize("recompute", [False, True])
@pytest.mark.parametrize("scale", [2, 0.5, 1.7, (2.0, 3.5)])
def test_factors(check_many, scale, recompute):
    torch.manual_seed(0)
    x = torch.randn(2, 3, 9, 11)
    last = x.contiguous(memory_format=torch.channels_last)

    def resized(x):
        return F.interpolate(x, scale_factor=scale, mode="bilinear", recompute_scale_factor=recompute)

    check_many([("contiguous", resized, [x]), ("channels last", resized, [last]),
                ("joined", lambda x: torch.cat([resized(x), resized(x).relu()], 1), [x]),
                ("summed", lambda x: resized(x).sum((2, 3)), [x])],
               {torch.float32: (1e-5, 1e-5)})


def test_large_images_end_where_they_end(check_many):
    x = torch.arange(3000.0).view(1, 1, 1, 3000)
    check_many([(f"{n}", lambda x, n=n, a=a: F.interpolate(x, (1, n), mode="bilinear", align_corners=a), [x])
                for n in (6000, 8999, 4097) for a in (False, True)], {torch.float32: (1e-5, 1e-3)})


def test_16_bits_are_the_library_s(check_many):
    x = torch.randn(1, 2, 4, 4).bfloat16()
    check_many([("half", lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"), [x])],
               library=["aten.upsample_bilinear2d.default"])
