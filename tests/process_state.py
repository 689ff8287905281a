"""The state of a process that decides how later tests are compiled or run: settings, rules, marks and modes.

Invariant: reading it changes nothing, and imports nothing that the test has not imported.
"""
from __future__ import annotations

import gc
import operator
import sys
import threading
import types
from typing import Any

import torch
from torch.distributions import Distribution

from dynamo_lite import config
from dynamo_lite.rules import table
from dynamo_lite.runtime import autocast


def taken() -> dict[str, Any]:
    """The state now, by what it is called in a message."""
    return {
        "settings of dynamo_lite": config.snapshot(),
        "rules of users": _rules_of_users(),
        "types of torch's numbers": torch.get_default_dtype(),
        "device": torch.get_default_device(),
        "gradients": (torch.is_grad_enabled(), torch.is_inference_mode_enabled(), torch.is_anomaly_enabled()),
        "deterministic algorithms": (torch.are_deterministic_algorithms_enabled(),
                                     torch.is_deterministic_algorithms_warn_only_enabled()),
        "threads of torch": torch.get_num_threads(),
        "precision of products": torch.get_float32_matmul_precision(),
        "autocast": (torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu"), autocast.depth()),
        "function modes": torch._C._len_torch_function_stack(),
        "dispatch modes": torch._C._len_torch_dispatch_stack(),
        "saved tensors": torch._C._autograd._top_saved_tensors_default_hooks(True) is not None,
        "collector": (gc.isenabled(), gc.get_threshold()),
        "tracing": (sys.gettrace(), sys.getprofile(), threading.gettrace(), threading.getprofile()),
        "limit of recursion": sys.getrecursionlimit(),
        "hooks of all modules": tuple(len(hooks) for hooks in _hooks_of_modules()),
        # torch.compile, which torch.cond in plain Python calls, too, turns this off for good, and patches optimizers.
        "torch.compile was called": not Distribution._validate_args,
        "substituted for torch.compile": _marks_of_torch(),
    }


def _rules_of_users() -> tuple[str, ...]:
    """What has been said of callables of torch's and the standard library, and of modules, by name."""
    shared = (f.__module__ + "." + f.__qualname__ for f in [subject() for subject, _ in table._of_users.values()]
              if _stands_in_a_library(f))
    return (*sorted(shared), *sorted(table._modules_of_users), *sorted(table._waiting_of_users))


def _stands_in_a_library(f: Any) -> bool:
    home, name = getattr(f, "__module__", None), getattr(f, "__qualname__", None)
    if not isinstance(home, str) or home.partition(".")[0] not in {"torch", *sys.stdlib_module_names}:
        return False
    try:
        return operator.attrgetter(str(name))(sys.modules[home]) is f
    except AttributeError:
        return False


def _hooks_of_modules() -> list[dict[int, Any]]:
    found = vars(torch.nn.modules.module)
    return [found[name] for name in sorted(found) if name.startswith("_global_") and isinstance(found[name], dict)]


def _marks_of_torch() -> frozenset[str]:
    """The functions in C that ``torch.compiler.substitute_in_graph`` was applied to, which it never takes back, but for
    one that no program of the tests calls."""
    functions = sys.modules.get("torch._dynamo.variables.functions")
    if functions is None:
        return frozenset()
    handlers = functions.PolyfilledFunctionVariable._get_polyfill_handlers()
    return frozenset(
        f.__qualname__ for f, by in handlers.items()
        if isinstance(f, types.BuiltinFunctionType) and not by.__module__.startswith("torch.")) - {"adler32"}


def changes(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """What differs, in words."""
    return [f"{name}: {before[name]!r} -> {now!r}" for name, now in after.items() if before[name] != now]
