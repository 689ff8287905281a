"""Backends by name."""
import textwrap

import new_process
import pytest
import torch

from dynamo_lite import exc
from dynamo_lite.backends import list_backends, lookup_backend, register_backend, registry


@pytest.fixture(autouse=True)
def _registry_restored():
    before = dict(registry._backends)
    yield
    registry._backends.clear()
    registry._backends.update(before)


def test_the_built_in_backends_are_listed():
    assert {"eager", "inductor_lite"} <= set(list_backends())


def test_every_form_of_registering():
    @register_backend
    def first(gm, inputs):
        return gm.forward

    @register_backend(name="second")
    def something(gm, inputs):
        return gm.forward

    @register_backend("third")
    def other(gm, inputs):
        return gm.forward

    register_backend(first, name="fourth")
    assert lookup_backend("first") is lookup_backend("fourth") is first
    assert lookup_backend("second") is something and lookup_backend("third") is other
    assert {"first", "second", "third", "fourth"} <= set(list_backends())


def test_a_callable_is_its_own_backend():
    def mine(gm, inputs):
        return gm.forward

    assert lookup_backend(mine) is mine


def test_an_unknown_name_lists_the_known():
    with pytest.raises(exc.InvalidBackend, match="nosuch.*eager.*inductor_lite"):
        lookup_backend("nosuch")
    with pytest.raises(exc.InvalidBackend):
        lookup_backend(3)


def test_what_is_no_backend_is_refused():
    with pytest.raises(TypeError, match="callable"):
        register_backend(3)


def test_eager_runs_the_graph(backend_check):
    backend_check.compare(lambda x: (x + 1, x), [torch.randn(3)], backend="eager")


def test_importing_backends_is_cheap():
    code = textwrap.dedent("""
        import sys, torch
        before = set(sys.modules)
        import dynamo_lite.backends
        new = set(sys.modules) - before
        bad = [m for m in new if m.startswith(("sympy", "torch._dynamo", "torch._inductor"))]
        assert not bad and "dynamo_lite.backends.inductor" not in new, (bad, new)
    """)
    done = new_process.run(code)
    assert done.returncode == 0, done.stderr
