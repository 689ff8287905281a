"""``out=`` with several tensors, distributions whose checks look at values, and what autograd is told in place."""
from __future__ import annotations

import pytest
import torch
import torch.distributions as D
from language_support import Programs, same

import dynamo_lite

program = Programs()
EYE = torch.eye(3)
VALUES, INDICES = torch.zeros(2), torch.zeros(2, dtype=torch.long)


# ---------------------------------------------------------------- out=
@program
def number_classes_as_dtypes(x):
    mask = torch.ones(2, 2, dtype=bool).triu()
    return (x + torch.ones(3, dtype=bool)[0], x.to(float), x.to(dtype=int), x.new_zeros(3, dtype=complex),
            torch.zeros(2, 2, dtype=float).masked_fill(mask, 1.0), torch.arange(3, dtype=int),
            torch.tensor([1], dtype=float))


@program
def out_tuples(x):
    values, indices = torch.empty(2), torch.empty(2, dtype=torch.long)
    made = torch.max(x, 1, out=(values, indices))
    more = torch.empty(2), torch.empty(2, dtype=torch.long)
    torch.kthvalue(x, 2, out=list(more))
    return values, indices, made.values is values, made, more


@program
def out_of_sort_and_topk(x):
    values, indices = torch.empty(2, 3), torch.empty(3, 2, dtype=torch.long).t()
    torch.sort(x, descending=True, out=(values, indices))
    top = torch.empty(2, 2), torch.empty(2, 2, dtype=torch.long)
    torch.topk(x, 2, out=top)
    top[0].add_(1)
    return values, indices, top


@program
def out_of_linear_algebra(x):
    a = x.t() @ x + EYE
    q, w = (torch.empty(3, 3), torch.empty(3, 3)), (torch.empty(3), torch.empty(3, 3))
    torch.linalg.qr(a, out=q)
    torch.linalg.eigh(a, out=w)
    return q, w


@program
def out_from_outside(x):
    torch.max(x, 1, out=(VALUES, INDICES))
    return VALUES + 1, INDICES.clone()


@program.breaks("input_mutation")
def out_of_another_shape(x):
    values, indices = torch.empty(0), torch.empty(0, dtype=torch.long)
    torch.max(x, 1, out=(values, indices))
    return values, indices


# ---------------------------------------------------------------- distributions
@program
def normals_of_several_dimensions(x):
    d = D.MultivariateNormal(x[0], EYE * 2)
    e = D.MultivariateNormal(x, precision_matrix=torch.stack([EYE, EYE * 3]))
    return d.rsample((2,)), d.log_prob(x), d.entropy(), e.sample(), e.log_prob(x), D.kl_divergence(d, d.expand(()))


@program
def dirichlet_and_its_like(x):
    d, b = D.Dirichlet(x.abs() + 1), D.Beta(x.abs() + 1, x.abs() + 2)
    made = d.rsample(), b.rsample()
    corner = D.LKJCholesky(3, torch.ones(())).sample()
    return made, d.log_prob(made[0]), b.log_prob(made[1]), d.entropy(), b.mean, corner


@program
def checks_with_a_value_in_the_message(x):
    d = D.Geometric(x.sigmoid())
    return d.sample(), d.log_prob(x.abs().round()), d.entropy()


def test_gradients_through_a_sample():
    def f(a):
        return (D.Dirichlet(a, validate_args=False).rsample() * torch.arange(3.0)).sum()

    a = torch.tensor([1.0, 2, 3], requires_grad=True)
    grads = []
    for function in (f, dynamo_lite.compile(f, backend="eager", fullgraph=True)):
        torch.manual_seed(0)
        grads.append(torch.autograd.grad(function(a), a))
    assert same(*grads)


@pytest.mark.parametrize("matrix", [-EYE, EYE + torch.arange(3.0)])
def test_matrices_that_are_refused(matrix):
    def f(m):
        return D.MultivariateNormal(m[0] * 0, m).mean + 1

    compiled = dynamo_lite.compile(f, backend="eager")
    assert same(compiled(EYE), f(EYE))
    for _ in range(2):
        with pytest.raises(ValueError, match="PositiveDefinite"):
            f(matrix)
        with pytest.raises(ValueError, match="PositiveDefinite"):
            compiled(matrix)


# ---------------------------------------------------------------- autograd
@pytest.mark.parametrize("backend", ["eager", "inductor_lite"])
@pytest.mark.parametrize("detach", [torch.Tensor.detach_, torch.detach_, lambda y: y.detach_()])
def test_detach_in_place(backend, detach):
    weight = torch.ones(3, requires_grad=True)

    def f(x):
        y = x * weight
        z = y * 2
        detach(y)
        return y, z, y.requires_grad

    compiled = dynamo_lite.compile(f, backend=backend, fullgraph=True)
    for x in (torch.arange(3.0), torch.ones(3)):
        y, z, requires = compiled(x)
        assert same(y, x) and not requires and z.requires_grad
        (grad,) = torch.autograd.grad(z.sum(), weight)
        assert same(grad, x * 2)


@pytest.mark.parametrize("name", program.names())
def test_program(name):
    program.check(name)
