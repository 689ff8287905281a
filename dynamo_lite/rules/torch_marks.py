"""The marks and settings that the user's program has made for torch's compiler, where they mean the same here.

torch's decorators leave attributes on functions (``torch.compiler.disable``, ``assume_constant_result``) or write into
tables of ``torch._dynamo`` (``allow_in_graph``, ``disallow_in_graph``, ``substitute_in_graph``). Invariant: nothing
here imports ``torch._dynamo``: its tables are read only if the program has imported it.
"""
from __future__ import annotations

import dataclasses
import sys
import types
from typing import Any

from torch._compile import _disable_dynamo

from .. import config

FORBIDDEN = "_dynamo_forbidden"
CONSTANT = "_dynamo_marked_constant"


@dataclasses.dataclass(frozen=True)
class Disabled:
    """A function under ``torch.compiler.disable``.

    Attributes:
        wrapped: the function that it calls; None if the function itself is marked.
        recursive: whether its callees are not to be compiled either.
        reason: the user's reason.
    """

    wrapped: Any
    recursive: bool
    reason: str


def disabled(function: Any) -> Disabled | None:
    """How ``torch.compiler.disable`` was applied to a function; None if it was not.

    ``functools.wraps`` copies attributes, so a decorator around a disabled function has them, too. Beside them torch
    stores the id of the function that they refer to.
    """
    if not getattr(function, "_torchdynamo_disable", False):
        return None
    wrapped = getattr(function, "_torchdynamo_orig_callable", None)
    if wrapped is not None and getattr(function, "_torchdynamo_wrapper_id", id(function)) != id(function):
        return None
    if wrapped is None and _is_torchs(function):
        # Disabling a class of modules that has no ``__init__`` of its own marks nn.Module's, and thereby all modules.
        return None
    recursive = wrapped is not None and bool(getattr(function, "_torchdynamo_disable_recursive", True))
    return Disabled(wrapped, recursive, getattr(function, "_torchdynamo_disable_msg", None) or "torch.compiler.disable")


def below_own_patch(function: types.FunctionType) -> types.FunctionType | None:
    """torch's own function below a wrapper that torch.compile, when it first runs, puts around parts of torch.

    The wrapper keeps torch's compiler out of functions that it can't capture, such as optimizers' bookkeeping. This
    says nothing about dynamo_lite; nor do the wrappers that torch puts around its own functions when it is imported.
    Such a wrapper replaces the function where that was defined; one that the user made from a function of torch, for
    example by disabling a class of modules, is found elsewhere.
    """
    if id(function.__code__) in _KEEPS_OUT:
        return _torchs_inside(function, "fn")
    if function.__module__ == "torch._dynamo.mutation_guard":
        # Module.__init__, which that module patches in order to count the modules that are created.
        return _torchs_inside(function, "init")
    found = disabled(function)
    if found is None or not _is_torchs(found.wrapped):
        return None
    # The second is the function that `torch._disable_dynamo` creates at the first call and keeps.
    own = _at_home(found.wrapped) is function or getattr(found.wrapped, "__dynamo_disable", None) is function
    return found.wrapped if own else None


# The code of the wrapper that `torch._disable_dynamo` puts around functions of torch, when torch is imported or (such
# as `torch.manual_seed`) when `torch._dynamo` is. All of its wrappers share it.
_KEEPS_OUT = frozenset(
    id(code) for code in _disable_dynamo.__code__.co_consts if isinstance(code, types.CodeType))


def _torchs_inside(wrapper: types.FunctionType, name: str) -> types.FunctionType | None:
    """The function of torch that a wrapper has in its closure under a name; None if it is not torch's."""
    inner = _inside(wrapper, name)
    return inner if _is_torchs(inner) else None


def _inside(wrapper: types.FunctionType, name: str) -> Any:
    cells = dict(zip(wrapper.__code__.co_freevars, wrapper.__closure__ or ()))
    return cells[name].cell_contents if name in cells else None


def below_torch_compile(value: Any) -> Any:
    """The function or module that torch.compile was given, if `value` is its result; else None. A compiled function
    inside a compiled function is compiled with it, whichever compiler it was compiled by, as under torch.compile."""
    made = getattr(value, "__dict__", None)
    if not isinstance(made, dict):
        return None
    if isinstance(value, types.FunctionType):
        own = made.get("_torchdynamo_wrapper_id") == id(value) and (
            made.get("_is_torch_compile") is True or _optimizes(value))
        return made.get("_torchdynamo_orig_callable") if own else None
    return _module_below(value, "OptimizeContext")


def _optimizes(wrapper: types.FunctionType) -> bool:
    """Whether torch.compile made a wrapper, for a torch that does not mark its wrappers (2.11)."""
    own = wrapper.__globals__.get("__name__") == "torch._dynamo.eval_frame"
    return own and type(_inside(wrapper, "self")).__name__ == "OptimizeContext"


def below_plain_call(value: Any) -> Any:
    """The function below a wrapper that torch.compile puts around functions without a file, so that they have a frame
    of their own. The wrapper does nothing else. None if `value` is no such wrapper."""
    code = getattr(value, "__code__", None) if isinstance(value, types.FunctionType) else None
    if code is None or code.co_qualname != "wrap_inline.<locals>.inner":
        return None
    return _inside(value, "fn") if value.__globals__.get("__name__") == "torch._dynamo.external_utils" else None


def _module_below(value: Any, context: str) -> Any:
    """The module below one that torch.compile or ``torch.compiler.disable`` made; `context` is its context's class
    name."""
    made = getattr(value, "__dict__", None)
    if not isinstance(made, dict) or type(value).__module__ != "torch._dynamo.eval_frame":
        return None
    return made["_modules"].get("_orig_mod") if type(made.get("dynamo_ctx")).__name__ == context else None


def below_disabled(value: Any) -> Any:
    """The function or module that ``torch.compiler.disable`` was given, if `value` is its result; else None."""
    found = disabled(value) if isinstance(value, types.FunctionType) else None
    return found.wrapped if found is not None else _module_below(value, "DisableContext")


def _is_torchs(function: Any) -> bool:
    if not isinstance(function, types.FunctionType):
        return False
    home = function.__globals__.get("__name__")
    return isinstance(home, str) and home.partition(".")[0] == "torch"


def _at_home(function: types.FunctionType) -> Any:
    """The object that is now found under the name by which a function was defined."""
    place: Any = sys.modules.get(function.__module__)
    for name in function.__qualname__.split("."):
        place = getattr(place, name, None)
    return place


def is_marked(function: types.FunctionType) -> bool:
    """Whether a Python function may have been marked by torch's decorators or wrapped by torch's compiler."""
    return bool(function.__dict__) or "torch._dynamo" in sys.modules or id(function.__code__) in _KEEPS_OUT


# ---------------------------------------------------------------- tables of torch._dynamo
def _table(module: str, name: str) -> Any:
    loaded = sys.modules.get(module)
    return None if loaded is None else getattr(loaded, name, None)


def is_allowed(function: Any) -> bool | None:
    """True if ``torch.compiler.allow_in_graph`` was applied, False if ``torch._dynamo.disallow_in_graph`` was; None if
    neither was."""
    loaded = sys.modules.get("torch._dynamo.trace_rules")
    if loaded is None:
        return None
    key = id(function)
    if key in getattr(loaded, "_disallowed_callable_ids", ()):
        return False
    return True if key in getattr(loaded, "_allowed_callable_ids", ()) else None


def substitute(function: Any) -> types.FunctionType | None:
    """The function that the user wants traced in place of this one (``torch.compiler.substitute_in_graph``)."""
    polyfill = getattr(function, "__torch_dynamo_polyfill__", None)
    if polyfill is None:
        polyfilled = _table("torch._dynamo.variables.functions", "PolyfilledFunctionVariable")
        if polyfilled is None:
            return None
        try:
            wrapper = polyfilled._get_polyfill_handlers().get(function)
        except TypeError:  # not hashable
            return None
        polyfill = getattr(wrapper, "__torch_dynamo_polyfill__", None)
    if not isinstance(polyfill, types.FunctionType) or _is_torchs(polyfill):
        return None  # torch's own substitutes are for its own compiler
    return polyfill


# ---------------------------------------------------------------- settings
# Settings of torch._dynamo.config with the same name and meaning as settings here.
_SETTINGS = frozenset({
    "capture_dynamic_output_shape_ops", "capture_scalar_outputs", "error_on_recompile", "recompile_limit",
    "suppress_errors",
})


def setting(name: str) -> Any:
    """The value of a setting; if it has its default, the value that the program set in ``torch._dynamo.config``."""
    value, default = getattr(config, name), config.OPTIONS[name].default
    return _set_for_torch(name, value) if name in _SETTINGS and value == default else value


def disables_all() -> bool:
    """Whether the program has set ``torch._dynamo.config.disable``, which torch reads whenever something is
    compiled."""
    return bool(_set_for_torch("disable", False))


def _set_for_torch(name: str, otherwise: Any) -> Any:
    """The value that the program has set in ``torch._dynamo.config``; `otherwise` if that is the default."""
    torchs = sys.modules.get("torch._dynamo.config")
    value = getattr(torchs, name, otherwise)
    default = getattr(getattr(torchs, "_config", {}).get(name), "default", value)
    return value if type(value) is type(otherwise) and value != default else otherwise
