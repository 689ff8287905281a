"""The comparison of results with eager's, for processes of tests' own."""
import torch


def same(got, want, tolerance=1e-5):
    assert type(got) is type(want), (got, want)
    if isinstance(want, tuple):
        assert len(got) == len(want)
        for a, b in zip(got, want):
            same(a, b, tolerance)
        return
    assert got.dtype is want.dtype and got.stride() == want.stride(), (got.stride(), want.stride())
    torch.testing.assert_close(got, want, rtol=tolerance, atol=tolerance, equal_nan=True)
