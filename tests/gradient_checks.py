"""Programs with gradients, run compiled and compared with eager.

`run` calls a function on tensors of its own and gives all that may differ, gradients included; None for what is absent.
"""
import torch

import dynamo_lite


def check(run, function, compiled, strides=False):
    """Whether both give the same."""
    for got, want in zip(run(compiled), run(function), strict=True):
        assert (got is None) == (want is None)
        if got is not None:
            torch.testing.assert_close(got, want)
            assert not strides or got.stride() == want.stride()


def check_one_graph(run, program, backend, strides=False):
    """Whether a program is one graph that gives eager's results, and is found again."""

    def function(x):
        return program(x)

    compiled = dynamo_lite.compile(function, backend=backend, fullgraph=True)
    check(run, function, compiled, strides)
    with dynamo_lite.config.patch(error_on_recompile=True):
        check(run, function, compiled, strides)
