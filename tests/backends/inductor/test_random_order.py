"""Calls that draw random numbers keep their order, whatever is fused around them."""
import torch
import torch.nn.functional as F

import dynamo_lite


def test_draws_around_loops_that_fuse():
    def function(x):
        return torch.multinomial(torch.softmax(x, -1), 1), F.gumbel_softmax(x), torch.rand(2)

    compiled = dynamo_lite.compile(function, fullgraph=True)
    results = []
    for f in (function, compiled):
        torch.manual_seed(0)
        results.append((*f(torch.randn(4, 8)), torch.rand(2)))
    torch.testing.assert_close(results[1], results[0])


def test_new_tensors():
    def function(x):
        return x.new(2, 3).fill_(1), x.new((2, 3)), x.new(x.shape).zero_(), x.new([2, 3]), x.new(), x.int().new([1])

    x = torch.ones(2, 3)
    for backend in ("eager", "inductor_lite"):
        got = dynamo_lite.compile(function, backend=backend, fullgraph=True)(x)
        torch.testing.assert_close(got, function(x))
