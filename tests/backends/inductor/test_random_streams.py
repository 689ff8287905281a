"""Random numbers of compiled programs: eager's, from the same generator, which is afterwards where eager leaves it."""
import pytest
import torch
import torch.nn.functional as F

import dynamo_lite

X = torch.rand(5, 37, generator=torch.Generator().manual_seed(3))
LONG = torch.rand(7, 500, generator=torch.Generator().manual_seed(4))
PROGRAMS = {
    "rand": lambda x: torch.rand(4, 33) + x[:4, :33],
    "rand few": lambda x: (torch.rand(3), torch.rand(()), torch.rand(0)),
    "rand double": lambda x: torch.rand(100, dtype=torch.float64),
    "rand half": lambda x: torch.rand(100, dtype=torch.bfloat16),
    "randn": lambda x: torch.randn(3, 50) * 2,
    "randn few": lambda x: (torch.randn(7), torch.randn(16), torch.randn(17), torch.randn(())),
    "randn double": lambda x: torch.randn(40, dtype=torch.float64),
    "rand_like": lambda x: (torch.rand_like(x), torch.randn_like(x), torch.randint_like(x, 3, 9)),
    "of a transposed tensor": lambda x: (torch.rand_like(x.t()), torch.bernoulli(x.t())),
    "randint": lambda x: (torch.randint(0, 10, (50,)), torch.randint(2**40, (9,)), torch.randint(-5, 5, (8,))),
    "randperm": lambda x: (torch.randperm(20), torch.randperm(1), torch.randperm(0)),
    "bernoulli": lambda x: (torch.bernoulli(x), x.bernoulli(0.3), torch.bernoulli(LONG)),
    "bernoulli_": lambda x: x.clone().bernoulli_(0.5),
    "bernoulli_ by a tensor": lambda x: torch.empty(5, 37).bernoulli_(x),
    "normal_": lambda x: (x.clone().normal_(), x.clone().normal_(2, 0.5), x.t().clone().normal_()),
    "normal": lambda x: (torch.normal(x, 2.0), torch.normal(0.0, x), torch.normal(x, x), torch.normal(0.0, 1.0, (9,))),
    "uniform_": lambda x: (x.clone().uniform_(), x.clone().uniform_(-2, 3)),
    "other distributions": lambda x: (
        x.clone().exponential_(), x.clone().cauchy_(), x.clone().geometric_(0.3), x.clone().log_normal_(),
        x.clone().random_(), x.clone().random_(7), x.clone().random_(-3, 4)),
    "multinomial": lambda x: (torch.multinomial(x, 4), torch.multinomial(x, 9, replacement=True)),
    "poisson": lambda x: torch.poisson(x * 5),
    "dropout": lambda x: (F.dropout(x, 0.3), F.dropout(x, 0.0), F.dropout(x, 1.0), F.dropout(LONG, 0.1)),
    "dropout of bfloat16": lambda x: F.dropout(x.bfloat16(), 0.5),
    "other dropouts": lambda x: (
        F.alpha_dropout(x, 0.4, True), F.dropout1d(x, 0.5), F.dropout2d(x[None, None], 0.5),
        F.feature_alpha_dropout(x, 0.5, True)),
    "not in training": lambda x: F.dropout(x, 0.3, training=False),
    "rrelu": lambda x: F.rrelu(x - 0.5, training=True),
    "gumbel": lambda x: F.gumbel_softmax(x, hard=True),
    "in turns": lambda x: torch.rand(3) + torch.randn(3) + torch.rand(3) * F.dropout(x[0, :3], 0.5),
    "attention": lambda x: F.scaled_dot_product_attention(x[None, None], x[None, None], x[None, None], dropout_p=0.2),
    "unused": lambda x: (torch.rand(5), x + 1)[1],
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_stream(name):
    fn = PROGRAMS[name]
    compiled = dynamo_lite.compile(fn)
    for seed in (0, 1):
        torch.manual_seed(seed)
        want = fn(X)
        state = torch.get_rng_state()
        torch.manual_seed(seed)
        got = compiled(X)
        assert torch.equal(torch.get_rng_state(), state), "the generator is elsewhere"
        pairs = [(got, want)] if isinstance(want, torch.Tensor) else zip(got, want, strict=True)
        for a, b in pairs:
            assert a.dtype is b.dtype and a.stride() == b.stride()
            torch.testing.assert_close(a, b, rtol=2e-6, atol=1e-6)
    assert "fallback lowering failed" not in dynamo_lite.metrics()["fallbacks"]


@pytest.mark.parametrize("fn", [
    lambda x, g: torch.rand(5, 3, generator=g), lambda x, g: torch.randn(40, generator=g),
    lambda x, g: torch.bernoulli(x, generator=g), lambda x, g: torch.randint(0, 9, (4,), generator=g),
    lambda x, g: torch.randperm(9, generator=g), lambda x, g: torch.multinomial(x, 2, generator=g),
    lambda x, g: x.clone().normal_(generator=g), lambda x, g: x.clone().uniform_(generator=g) + torch.rand(1),
])
def test_generator_of_the_user_s(fn):
    compiled = dynamo_lite.compile(fn)
    mine, theirs = torch.Generator().manual_seed(5), torch.Generator().manual_seed(5)
    for _ in range(2):
        torch.manual_seed(1)
        want = fn(X, theirs)
        state = torch.get_rng_state()
        torch.manual_seed(1)
        got = compiled(X, mine)
        assert torch.equal(got, want)
        assert torch.equal(mine.get_state(), theirs.get_state()) and torch.equal(torch.get_rng_state(), state)


def test_training_with_dropout_draws_once_forward_and_nothing_backward():
    def fn(x):
        return (F.dropout(x.sin(), 0.4) * F.dropout(x, 0.2)).sum()

    compiled = dynamo_lite.compile(fn)
    results = []
    for run in (fn, compiled):
        x = X.clone().requires_grad_()
        torch.manual_seed(2)
        loss = run(x)
        loss.backward()
        results.append((loss.detach(), x.grad, torch.get_rng_state()))
    (loss, grad, state), (loss_, grad_, state_) = results
    torch.testing.assert_close(loss_, loss)
    torch.testing.assert_close(grad_, grad)
    assert torch.equal(state, state_)


def test_seeding_inside():
    def fn(x):
        torch.manual_seed(7)
        return x + torch.rand(3)

    compiled = dynamo_lite.compile(fn)
    assert torch.equal(compiled(torch.zeros(3)), fn(torch.zeros(3)))
