"""The systems that are compared: how each compiles a callable, where its cache lies, what it says about the compile."""
import dataclasses
from collections.abc import Callable
from typing import Any


@dataclasses.dataclass(frozen=True)
class System:
    """`compile` is timed with its import, as a user's program pays for both. `environment` names cache variables."""

    name: str
    compile: Callable[[Callable[..., Any]], Callable[..., Any]]
    environment: tuple[str, ...] = ()
    report: Callable[[], dict[str, Any]] = dict
    disable: Callable[[Callable[..., Any]], Callable[..., Any]] = lambda fn: fn


def _torch_compile(fn: Callable[..., Any]) -> Callable[..., Any]:
    import torch

    return torch.compile(fn)


def _torch_report() -> dict[str, Any]:
    from torch._dynamo import utils

    return {
        "graphs": utils.counters["stats"].get("unique_graphs", 0),
        "graph_breaks": sum(utils.counters["graph_break"].values()),
        # torch's phases contain one another: they do not add up.
        "phases": {name: sum(times) for name, times in utils.compilation_time_metrics.items() if sum(times) > 0.05},
    }


def _torch_disable(fn: Callable[..., Any]) -> Callable[..., Any]:
    import torch

    return torch.compiler.disable(fn)


def _ours(fn: Callable[..., Any]) -> Callable[..., Any]:
    import dynamo_lite

    return dynamo_lite.compile(fn)


def _our_report() -> dict[str, Any]:
    from dynamo_lite import log

    return {**log.counters(), "phases": log.phase_times()}


def _our_disable(fn: Callable[..., Any]) -> Callable[..., Any]:
    import dynamo_lite

    return dynamo_lite.disable(fn)


SYSTEMS = {
    "eager": System("eager", lambda fn: fn),
    "torch.compile": System("torch.compile", _torch_compile, ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR"),
                            _torch_report, _torch_disable),
    "dynamo_lite": System("dynamo_lite", _ours, ("DYNAMO_LITE_CACHE_DIR",), _our_report, _our_disable),
}
