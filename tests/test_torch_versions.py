"""Which versions of torch are refused, and that what a version lacks is asked of torch and not of its number."""

import new_process
import pytest
import torch

import dynamo_lite
from dynamo_lite import torch_versions


@pytest.mark.parametrize("version", ["2.11.0", "2.11.0a0+git1234567", "2.13.0+cpu", "2.15.0+cu132", "3.0.0", "main"])
def test_versions_that_are_accepted(version):
    assert torch_versions.refusal(version) is None


@pytest.mark.parametrize("version", ["1.13.1", "2.2.0+cu118", "2.9.1", "2.10.0"])
def test_versions_that_are_refused(version):
    assert torch_versions.refusal(version) == f"dynamo_lite needs torch 2.11 or later, and this is torch {version}"


def test_an_older_torch_is_refused_at_import():
    code = """
import torch
torch.__version__ = torch.torch_version.TorchVersion("2.10.0")
try:
    import dynamo_lite
except ImportError as error:
    print(error)
"""
    p = new_process.run(code)
    assert p.stdout == "dynamo_lite needs torch 2.11 or later, and this is torch 2.10.0\n", p.stderr


def test_the_apply_of_autograd_functions_is_what_a_class_finds():
    class Twice(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

    bound = Twice.apply
    assert getattr(bound, "__func__", None) is torch_versions.FUNCTION_APPLY or (
        bound == torch_versions.FUNCTION_APPLY.__get__(None, Twice))


@pytest.mark.parametrize("program", [
    lambda x, w: torch.nn.functional.linear(x, w), lambda x, w: x @ w, lambda x, w: x @ x.transpose(1, 2),
], ids=["linear without a bias", "three dimensions and two", "batches"])
def test_products_of_symbolic_sizes_are_one_graph_on_every_version(program):
    graphs = []

    def backend(gm, example_inputs):
        graphs.append(gm)
        return gm.forward

    compiled = dynamo_lite.compile(program, backend=backend, dynamic=True)
    w = torch.randn(8, 8)
    for n in (5, 7, 9):
        x = torch.randn(2, n, 8)
        got, want = compiled(x, w), program(x, w)
        assert torch.equal(got, want) and got.stride() == want.stride()
    assert len(graphs) == 1


def test_what_asks_for_numbers_is_told_from_what_does_not():
    assert torch_versions.asks_for_numbers(lambda probe: torch.kron(probe, probe))
    assert torch_versions.asks_for_numbers(lambda probe: torch.ops.aten.size.int(probe, 0))
    assert not torch_versions.asks_for_numbers(lambda probe: probe.transpose(1, 2).flatten() + 1)


def test_symbolic_sizes_alone_import_nothing_of_torch_distributed():
    """Which kernels of torch's for meta tensors do, those of products among them."""
    done = new_process.run("""
import sys, torch, dynamo_lite
before = {m for m in sys.modules if m.startswith(("torch.distributed.", "sympy"))}
for name in ("eager", "inductor_lite"):
    compiled = dynamo_lite.compile(lambda x: x.sum(0) * x.cos(), backend=name)
    for n in (3, 4, 5):
        compiled(torch.ones(n, 2))
after = {m for m in sys.modules if m.startswith(("torch.distributed.", "sympy"))}
print(after - before, "torch._dynamo" in sys.modules, dynamo_lite.metrics()["graphs"])
""")
    assert done.stdout == "set() False 4\n", done.stdout + done.stderr


def test_the_python_dispatcher_is_left_as_it_was():
    before = torch._C._dispatch_tls_is_dispatch_key_included(torch._C.DispatchKey.PythonDispatcher)
    compiled = dynamo_lite.compile(lambda x: torch.linalg.inv(x @ x), backend="eager", dynamic=True)
    compiled(torch.eye(5))
    with pytest.raises(RuntimeError):
        compiled(torch.ones(5, 6))
    assert torch._C._dispatch_tls_is_dispatch_key_included(torch._C.DispatchKey.PythonDispatcher) is before


@pytest.mark.parametrize("program", [
    lambda x: torch.nn.functional.max_pool2d(x, 2), lambda x: torch.nn.functional.avg_pool2d(x, 3, stride=2, padding=1),
], ids=["max_pool2d", "avg_pool2d"])
def test_pools_of_symbolic_sizes_are_one_graph_on_every_version(program):
    compiled = dynamo_lite.compile(program, backend="eager", dynamic=True)
    before = dynamo_lite.metrics()["graphs"]
    for n in (12, 20, 17, 33):
        x = torch.randn(2, 3, n, n)
        assert torch.equal(compiled(x), program(x))
    assert dynamo_lite.metrics()["graphs"] == before + 1


def test_remainders_are_asked_of_an_older_torch_alone():
    """What is put in its place divides as its own does."""
    from torch import _meta_registrations

    torch_versions.mend_sizes_of_pooling()
    assert all(_meta_registrations.div_rtn(a, b) == a // b for a in (-7, -2, 0, 5, 6) for b in (1, 2, 3))


@pytest.mark.parametrize("dynamic", [False, True])
def test_norms_along_the_last_dimension_of_one_element(dynamic):
    def f(x):
        norm = torch.linalg.vector_norm(x, 2, -1)
        return norm, norm.shape, torch.linalg.vector_norm(x, 1, (-1, 0))

    compiled = dynamo_lite.compile(f, dynamic=dynamic)
    for n in (3, 7):
        x = torch.randn(1, n, 1)
        (got, shape, other), (want, _, expected) = compiled(x), f(x)
        assert torch.allclose(got, want) and shape == got.shape == want.shape
        assert torch.allclose(other, expected) and other.shape == expected.shape
