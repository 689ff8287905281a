"""torch's own sample inputs for every operator, as far as generated code computes them: results are eager's."""

import sys
import types

import pytest
import thorough
import torch
import torch.utils._pytree as pytree

from dynamo_lite.backends.aot.decompositions import FOR_KERNELS
from dynamo_lite.backends.aot.functional import CannotFunctionalize
from dynamo_lite.backends.aot.record import record
from dynamo_lite.backends.inductor import pipeline
from dynamo_lite.backends.inductor.artifact import start, write
from dynamo_lite.backends.inductor.program import ExternCall

if "expecttest" not in sys.modules:
    # torch's test helpers import it for what is not used here.
    sys.modules["expecttest"] = types.SimpleNamespace(TestCase=object, assert_expected_inline=None)
op_db = pytest.importorskip("torch.testing._internal.common_methods_invocations").op_db

SAMPLES = 5  # with DYNAMO_LITE_TESTS=all; else one of the first two
# Contents that nothing determines, or that the operator draws with a seed of its own.
SKIPPED = {
    "empty", "empty_like", "empty_strided", "empty_permuted", "new_empty", "new_empty_strided", "bernoulli", "cauchy",
    "exponential", "geometric", "log_normal", "normal", "uniform", "rand_like", "randn", "randn_like", "randint",
    "randint_like", "multinomial", "nn.functional.dropout", "nn.functional.dropout2d", "nn.functional.dropout3d",
    "nn.functional.alpha_dropout", "nn.functional.feature_alpha_dropout", "nn.functional.rrelu",
    "nn.functional.fractional_max_pool2d", "nn.functional.fractional_max_pool3d", "svd_lowrank", "pca_lowrank",
}  # fmt: skip
OPERATORS = [
    op
    for op in op_db
    if torch.float32 in op.supported_dtypes("cpu") and op.name not in SKIPPED and "jiterator" not in op.name
]


def as_function(op, sample):
    """A function of the sample's tensors alone, and those."""
    leaves, spec = pytree.tree_flatten((sample.input, sample.args, sample.kwargs))
    tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]

    def run(*given):
        following = iter(given)
        full = [next(following) if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]
        first, args, kwargs = pytree.tree_unflatten(full, spec)
        return tuple(x for x in pytree.tree_leaves(op.op(first, *args, **kwargs)) if isinstance(x, torch.Tensor))

    return run, tensors


@pytest.mark.parametrize("number, op", [
    pytest.param(number, op, id=f"{op.name} {op.variant_test_name}".strip())
    for number, op in thorough.share(list(enumerate(OPERATORS)), 0, 6)])
def test_samples(number, op, backend_check, kernels):
    samples = list(op.sample_inputs("cpu", torch.float32))
    computed = False
    spread = samples[:: max(1, len(samples) // (SAMPLES if thorough.ALL else 2))]
    for sample in spread[:SAMPLES] if thorough.ALL else spread[number // 2 % 2 % len(spread):][:1]:
        fn, tensors = as_function(op, sample)
        with torch.no_grad():
            try:
                want = fn(*backend_check.copies(tensors))
                gm, fakes = backend_check.capture(fn, tensors)
                aten = record(gm, fakes, FOR_KERNELS)
            except (CannotFunctionalize, RuntimeError, NotImplementedError, AttributeError, TypeError):
                continue  # eager's, or the recorder's affair
            program = pipeline.lower_and_schedule(aten.graph, aten.constants, pipeline.target_named(kernels))
            if any(isinstance(step, ExternCall) for step in program.steps):
                continue
            computed = True
            call = start(write(aten, program, {"no_grad": False, "no_autocast": False, "inference": False}))
            got = call(*backend_check.copies(tensors))
        for a, b in zip(got, want):
            assert a.dtype is b.dtype and a.shape == b.shape
            assert a.stride() == b.stride() or not a.numel()
            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4, equal_nan=True)
    if not computed:
        pytest.skip("not computed by generated code alone")
