"""Changes between two calls are noticed: nn.Module: parameters, buffers, submodules, hooks, the training flag."""
from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from guard_cases import Case, Cases, X
from torch import nn

case = Cases()


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.drop = nn.Dropout(0.0)
        self.register_buffer("scale", torch.ones(3))
        self.layers = nn.ModuleList([nn.ReLU(), nn.Tanh()])
        self.flag = True

    def forward(self, x: Any) -> Any:
        x = self.linear(x) * self.scale
        for layer in self.layers:
            x = layer(x)
        return x if self.flag else -x


def _module_case(change: Callable[[Net], Any]) -> Case:
    torch.manual_seed(0)
    net = Net()
    return net.forward, (X,), lambda: change(net)


def _forward_doubled(module: nn.Module, args: Any, output: Any) -> Any:
    return output * 2


MODULE_CHANGES: dict[str, Callable[[Net], Any]] = {
    "parameter_replaced": lambda net: setattr(net.linear, "weight", nn.Parameter(torch.ones(3, 3))),
    "parameter_data_changed": lambda net: net.linear.weight.data.fill_(2),
    "bias_removed": lambda net: setattr(net.linear, "bias", None),
    "requires_grad_off": lambda net: net.requires_grad_(False),
    "buffer_replaced": lambda net: setattr(net, "scale", torch.full((3,), 2.0)),
    "buffer_dtype": lambda net: setattr(net, "scale", torch.full((3,), 2.0, dtype=torch.float64)),
    "submodule_replaced": lambda net: setattr(net, "linear", nn.Linear(3, 4)),
    "submodule_same_class": lambda net: setattr(net, "linear", nn.Linear(3, 3)),
    "submodule_deleted": lambda net: delattr(net, "linear"),
    "layer_appended": lambda net: net.layers.append(nn.Sigmoid()),
    "layer_replaced": lambda net: net.layers.__setitem__(0, nn.Sigmoid()),
    "flag": lambda net: setattr(net, "flag", False),
    "forward_hook": lambda net: net.linear.register_forward_hook(_forward_doubled),
    "forward_pre_hook": lambda net: net.linear.register_forward_pre_hook(lambda module, args: (args[0] * 2,)),
    "forward_on_instance": lambda net: setattr(net.linear, "forward", lambda x: x * 7),
    "training": lambda net: (net.train(), setattr(net.drop, "p", 1.0)),
    "double": lambda net: net.double(),
    "parameter_shadowed": lambda net: net.__dict__.__setitem__("linear", lambda x: x * 3),
}
for _name, _change in MODULE_CHANGES.items():
    case.add(f"module_{_name}", functools.partial(_module_case, _change))


@case
def module_hook_added_to_called() -> Case:
    torch.manual_seed(0)
    net = Net()
    return lambda x: net(x), (X,), lambda: net.register_forward_hook(_forward_doubled)


@case
def module_global_hook() -> Case:
    torch.manual_seed(0)
    net = Net()
    handles: list[Any] = []

    class Change:
        def __call__(self) -> None:
            handles.append(nn.modules.module.register_module_forward_hook(_forward_doubled))

        def undo(self) -> None:
            handles.pop().remove()

    return lambda x: net(x), (X,), Change()


@case
def module_backward_hook() -> Case:
    torch.manual_seed(0)
    net = Net()
    seen: list[int] = []

    def fn(x: Any) -> Any:
        net(x).sum().backward()
        return x + 1

    def run(x: Any) -> Any:
        seen.clear()
        net.zero_grad()
        net(x).sum().backward()
        return len(seen)

    return run, (X,), lambda: net.linear.register_full_backward_hook(lambda m, a, b: seen.append(1))


@case
def module_train_dropout() -> Case:
    net = nn.Dropout(1.0).eval()
    return lambda x: net(x), (X,), lambda: net.train()


@case
def module_batch_norm_stats() -> Case:
    net = nn.BatchNorm1d(3).eval()
    return lambda x: net(x), (X,), lambda: net.running_mean.add_(2)


@case
def module_call_overridden() -> Case:
    class M(nn.Linear):
        pass

    torch.manual_seed(0)
    net = M(3, 3)
    return lambda x: net(x), (X,), lambda: setattr(M, "__call__", lambda self, x: x * 5)


@case
def module_forward_class_replaced() -> Case:
    class M(nn.Module):
        def forward(self, x: Any) -> Any:
            return x * 2

    net = M()
    return lambda x: net(x), (X,), lambda: setattr(M, "forward", lambda self, x: x * 5)


@case
def module_parameters_loop() -> Case:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))

    def fn(x: Any) -> Any:
        return x + sum(p.sum() for p in net.parameters())

    return fn, (X,), lambda: net.append(nn.Linear(3, 3))


@case
def module_parameters_loop_frozen() -> Case:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))

    def fn(x: Any) -> Any:
        return x + sum(p.detach().sum() for p in net.parameters() if p.requires_grad)

    return fn, (X,), lambda: net[0].requires_grad_(False)


@case
def module_named_buffers() -> Case:
    net = Net()
    return lambda x: (x + 1, [n for n, _ in net.named_buffers()]), (X,), lambda: net.register_buffer("more", X)


@case
def module_children_names() -> Case:
    net = Net()
    return lambda x: (x + 1, [n for n, _ in net.named_children()]), (X,), lambda: net.add_module("more", nn.ReLU())


@pytest.mark.parametrize("name", case.all)
def test_a_change_is_noticed(name):
    case.check(name, globals())
