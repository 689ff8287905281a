"""``torch.istft``: the check of its window is part of the graph."""
import warnings

import pytest
import torch

import dynamo_lite


def _spectrum(channels=2, n_fft=16, frames=9, dtype=torch.complex64, onesided=True):
    generator = torch.Generator().manual_seed(0)
    rows = n_fft // 2 + 1 if onesided else n_fft
    return torch.randn(*([channels] if channels else []), rows, frames, dtype=dtype, generator=generator)


CALLS = {
    "plain": lambda x, w: torch.istft(x, 16, window=w),
    "method": lambda x, w: x.istft(16, window=w) * 2,
    "hop": lambda x, w: torch.istft(x, n_fft=16, hop_length=8, window=w),
    "length": lambda x, w: torch.istft(x, 16, 4, 16, w, length=30),
    "without_window": lambda x, w: torch.istft(x, 16, 8, center=False) + w.sum(),
    "normalized": lambda x, w: torch.istft(x, 16, 4, window=w, normalized=True, onesided=True),
    "narrow_window": lambda x, w: torch.istft(x, 16, 4, 10, w[:10] + 0.5),
}


@pytest.mark.parametrize("channels", [0, 2])
@pytest.mark.parametrize("name", CALLS)
def test_results_are_eagers(name, channels):
    function, window = CALLS[name], torch.hann_window(16)
    for backend in ("eager", "inductor_lite"):
        compiled = dynamo_lite.compile(function, backend=backend, fullgraph=True)
        dynamo_lite.reset_metrics()
        for _ in range(2):
            x, also = (_spectrum(channels).requires_grad_() for _ in range(2))
            got, wanted = compiled(x, window), function(also, window)
            assert (got.shape, got.stride(), got.dtype) == (wanted.shape, wanted.stride(), wanted.dtype)
            torch.testing.assert_close(got, wanted, rtol=1e-5, atol=1e-6)
            got.square().sum().backward()
            wanted.square().sum().backward()
            torch.testing.assert_close(x.grad, also.grad, rtol=1e-5, atol=1e-6)
        assert dynamo_lite.metrics()["graphs"] == 1


def test_all_frequencies():
    x, window = _spectrum(onesided=False, dtype=torch.complex128), torch.hann_window(16, dtype=torch.float64)
    function = lambda x: torch.istft(x, 16, 4, window=window, onesided=False)
    assert torch.equal(dynamo_lite.compile(function, backend="eager", fullgraph=True)(x), function(x))


def test_a_window_that_leaves_gaps_raises_as_in_eager():
    compiled = dynamo_lite.compile(CALLS["hop"])
    compiled(_spectrum(), torch.hann_window(16))
    with pytest.raises(RuntimeError, match="window overlap add min"):
        compiled(_spectrum(), torch.zeros(16))


def test_what_torch_warns_of_or_refuses_is_left_to_it():
    too_long = dynamo_lite.compile(lambda x: torch.istft(x, 16, 4, window=torch.hann_window(16), length=80))
    with pytest.warns(UserWarning, match="length"):
        assert too_long(_spectrum()).shape == (2, 80)
    with pytest.raises(RuntimeError, match="n_fft"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dynamo_lite.compile(lambda x: torch.istft(x, 14))(_spectrum())
