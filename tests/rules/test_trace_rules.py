"""What becomes of a function that is called: the tables, and what users add to them."""
import types

import new_process
import pytest
import torch
import torch.utils.checkpoint

import dynamo_lite
from dynamo_lite import config
from dynamo_lite.rules import trace_rules
from dynamo_lite.rules.trace_rules import Rule


@pytest.mark.parametrize("name, rule", [
    ("torch.nn.functional", Rule.GRAPH), ("torch.nn.modules.linear", Rule.INLINE), ("torch.autograd", Rule.SKIP),
    ("torch.autograd.function", Rule.INLINE), ("torch._functorch.functional_call", Rule.INLINE),
    ("torch.distributed.rpc", Rule.SKIP), ("json.encoder", Rule.SKIP), ("jsonschema", Rule.INLINE),
    ("somebody.elses.module", Rule.INLINE), ("dynamo_lite.config", Rule.SKIP),
])
def test_the_longest_prefix_decides(name, rule):
    assert trace_rules.decide_module(name).rule is rule


def test_functions_by_identity_come_before_modules():
    assert trace_rules.decide(torch.utils.checkpoint.checkpoint).rule is Rule.HANDLED
    assert trace_rules.decide(torch.utils.checkpoint.checkpoint_sequential).rule is Rule.INLINE


def _library():
    """A module of somebody's."""
    module = types.ModuleType("some_library")
    exec("def double(x):\n    return x * 2\n\ndef both(x):\n    return double(x) + 1\n", module.__dict__)
    return module


def test_modules_that_users_add():
    library = _library()

    def function(x):
        return library.both(x) * 3

    def reasons(**settings):
        dynamo_lite.reset()
        with config.patch(**settings):
            try:
                dynamo_lite.compile(function, backend="eager", fullgraph=True)(torch.ones(2))
            except dynamo_lite.exc.Unsupported as error:
                return error.detail
        return None

    assert reasons() is None
    assert "extra_skip_modules" in reasons(extra_skip_modules=("some_library",))
    assert reasons(extra_skip_modules=("some",)) is None
    with config.patch(extra_skip_modules=("some_library",)):
        assert dynamo_lite.compile(function, backend="eager")(torch.ones(2)).tolist() == [9, 9]
    with config.patch(extra_inline_modules=("torch.distributed.rpc",)):
        assert trace_rules.decide_module("torch.distributed.rpc.api").rule is Rule.INLINE
        assert trace_rules.decide_module("torch.distributed").rule is Rule.SKIP


def test_what_torchs_own_compiler_patches_is_looked_below():
    """Once torch.compile has run, it wraps functions of torch such as Optimizer.zero_grad."""
    script = """
import torch, dynamo_lite
torch.compile(lambda x: x + 1, backend="eager")(torch.ones(2))
layer = torch.nn.Linear(3, 3)
optimizer = torch.optim.SGD(layer.parameters(), 0.1)
layer(torch.ones(2, 3)).sum().backward()
step = lambda: (optimizer.step(), optimizer.zero_grad()) and None
compiled = dynamo_lite.compile(step, backend="eager", fullgraph=True)
compiled()
print("captured", layer.weight.grad)
"""
    done = new_process.run(script, modules=new_process.TORCH_COMPILE)
    assert done.stdout == "captured None\n", done.stderr[-2000:]
