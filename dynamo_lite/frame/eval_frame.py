"""The public entry points `compile` and `reset`.

``compile`` makes a hook from its settings and wraps the function or module. Equal settings share one hook, so that
compiling the same function twice does not compile its frames twice. Invariant: a compiled module has the attributes and
the state of its original, which is never changed.
"""
from __future__ import annotations

import contextlib
import copyreg
import functools
import importlib
import inspect
import traceback
import types
import weakref
from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.utils.checkpoint

from .. import _eval_frame, config, exc, log
from ..backends import lookup_backend
from ..backends.registry import reset_backends
from ..bytecode.code_map import CodeMap
from ..rules import torch_marks, trace_rules
from ..rules.torch_marks import disables_all
from ..runtime import collector, in_flight, signal_handlers
from . import callers, changed_values, convert_frame, decide, request, stance, torch_compiler
from .callers import code_of
from .compiled_module import CompiledModule
from .request import Settings

Backend = Callable[..., Any]

_hooks: dict[Any, _eval_frame.FrameHook] = {}
_alive: weakref.WeakSet[_eval_frame.FrameHook] = weakref.WeakSet()


def compile(
    model: Any = None,
    *,
    fullgraph: bool = False,
    dynamic: bool | None = None,
    backend: str | Backend | None = None,
    mode: str | None = None,
    options: Mapping[str, Any] | None = None,
    disable: bool = False,
) -> Any:
    """Compiles a function or module just in time, when it is called. Use it as ``@compile``, ``@compile(...)`` or
    ``compile(m)``.

    Args:
        model: the function, method, callable object or ``nn.Module``.
        fullgraph: raise ``exc.Unsupported`` at the first construct that can't be captured, in place of a graph break.
        dynamic: which sizes of tensors are symbolic, so that one compile serves all of them. True: every size of every
            tensor except parameters, from the start; False: none; None: those that `mark_dynamic` or
            `config.dynamic_sources` name, and those that have changed between two calls, unless
            `config.automatic_dynamic_sizes` is off.
        backend: a registered name, or ``(GraphModule, example_inputs) -> callable``; None is
            ``config.default_backend``.
        mode: one of torch.compile's names. "reduce-overhead" records calls on a GPU as CUDA graphs and replays them.
            "max-autotune" does so, too, and measures which block sizes of kernels are the fastest, and for each matrix
            product whether the library's or our own kernel is; "max-autotune-no-cudagraphs" only measures. On a CPU,
            both measure each matrix product when it is compiled, which takes some hundredths of a second for each new
            size on a machine; "reduce-overhead" has no effect there.
        options: passed to the backend as keyword ``options``. If the backend has an attribute ``check_options``, it
            checks them in this call.
        disable: return `model` as it is.

    Returns:
        for a function, a callable with the same signature; for a module, a module that shares its parameters, state and
        attributes.

    Raises:
        exc.InvalidBackend: no backend has this name.
        TypeError: `model` is a class or can't be called, an argument has the wrong type, or the backend takes no
            options.
        ValueError: the mode or an option is unknown, or both are given.
    """
    _check_arguments(fullgraph=(fullgraph, bool), dynamic=(dynamic, bool | None), mode=(mode, str | None),
                     options=(options, Mapping | None), disable=(disable, bool))
    if not disable:
        _check_meaning(backend if backend is not None else config.default_backend, dynamic, mode, options)
    if model is None:
        return functools.partial(
            compile, fullgraph=fullgraph, dynamic=dynamic, backend=backend, mode=mode, options=options, disable=disable
        )
    if not callable(model):
        raise TypeError(f"compile takes a function, a callable object or an nn.Module, not a {type(model).__name__}")
    if disable or (disables_all() and not config.disable):
        return model
    model = innermost(model)
    hook = _hook_for(backend if backend is not None else config.default_backend, fullgraph, dynamic, mode, options)
    if isinstance(model, torch.nn.Module):
        return CompiledModule(model, hook)
    if isinstance(model, type):
        raise TypeError("compile a class's instances or methods, not the class itself")
    return _wrap_callable(model, hook, fullgraph)


def _check_arguments(**given: tuple[Any, Any]) -> None:
    """Checks each argument's value against its allowed type: otherwise `fullgraph="no"` would count as True."""
    for name, (value, allowed) in given.items():
        if not isinstance(value, allowed):
            wanted = " or ".join(str(getattr(t, "__name__", t)) for t in getattr(allowed, "__args__", (allowed,)))
            raise TypeError(f"compile's {name} is {wanted.replace('NoneType', 'None')}, not {value!r}")


_MODES = ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")


def _check_meaning(
    backend: str | Backend, dynamic: bool | None, mode: str | None, options: Mapping[str, Any] | None
) -> None:
    """Refuses unknown modes and options, and warns once about a mode that has no effect."""
    if mode is not None and mode not in _MODES:
        raise ValueError(f"no mode {mode!r}; the known ones are {', '.join(_MODES)}")
    if mode is not None and options:
        raise ValueError("compile takes a mode or options, not both")
    if options:
        with in_flight.signals_deferred(), collector.importing():
            function = lookup_backend(backend)
        if not _takes_options(function):
            raise TypeError(f"backend {backend!r} takes no options")
        getattr(function, "check_options", lambda options: None)(dict(options))
    if mode not in (None, "default") and mode not in _modes_of(backend):
        log.warn_once(f"dynamo_lite.compile: mode={mode!r} has no effect with backend {backend!r}", 4)


def _modes_of(backend: str | Backend) -> Mapping[str, dict[str, Any]]:
    """The modes that a backend supports: a map from each name to its options."""
    try:
        with in_flight.signals_deferred(), collector.importing():
            return getattr(lookup_backend(backend), "modes", {})
    except exc.InvalidBackend:  # raised again when the backend is looked up
        return {}


def _takes_options(function: Backend) -> bool:
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return True  # a callable written in C may have no signature
    return any(p.kind is p.VAR_KEYWORD or p.name == "options" for p in parameters)


_SUSPENDS = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ITERABLE_COROUTINE | inspect.CO_ASYNC_GENERATOR


def _refusal(code: types.CodeType) -> Callable[..., Any]:
    """The result of compiling a generator function with fullgraph: a function that raises ``exc.Unsupported``."""

    def refuse(*args: Any, **kwargs: Any) -> Any:
        place = traceback.FrameSummary(code.co_filename, code.co_firstlineno, code.co_qualname, lookup_line=False)
        raise exc.Unsupported("generator_frame", f"{code.co_qualname}()", user_stack=[place])

    return refuse


def innermost(model: Any) -> Any:
    """The function or module below wrappers of ``compile``, ``torch.compile`` and ``disable``. When several are nested,
    only the outermost has an effect."""
    while True:
        if isinstance(model, CompiledModule):
            model = model._orig_mod
        elif isinstance(model, _eval_frame.CompiledFunction):
            model = callers.called(model.fn)
        else:
            inner = trace_rules.below_disabled(model)
            if inner is None:
                inner = torch_marks.below_torch_compile(model)
            if inner is None:
                inner = torch_marks.below_plain_call(model)
            if inner is None:
                return model
            model = inner


def _wrap_callable(model: Any, hook: _eval_frame.FrameHook | None, whole: bool = False) -> Any:
    code = code_of(model)
    if hook is not None and code is not None and code.co_flags & _SUSPENDS:
        if whole:
            return functools.wraps(model)(_refusal(code))
        decide.note_skipped(code, "a generator or coroutine, whose frame its caller suspends and resumes")
    original = model
    if callers.has_no_frame(model):
        model = callers.caller_of_callable(model)
        code = code_of(model)
    elif isinstance(model, types.MethodType):
        model = callers.own_method(model)
        code = code_of(model)
    compiled = _eval_frame.CompiledFunction(model, hook)
    if hook is not None and code is not None and hook.roots is not None:
        hook.roots.set(code, True)
        decide.enable_code(code)
    with contextlib.suppress(AttributeError):
        functools.update_wrapper(compiled, original)
    return compiled


# ---------------------------------------------------------------- hooks
def _hook_for(
    backend: str | Backend, fullgraph: bool, dynamic: bool | None, mode: str | None, options: Mapping[str, Any] | None
) -> _eval_frame.FrameHook:
    """The hook of these settings; a new one if there is none."""
    with in_flight.signals_deferred(), collector.importing():  # the first lookup imports the backend
        function = lookup_backend(backend)
    frozen = tuple(sorted((k, repr(v)) for k, v in options.items())) if options else ()
    key = (id(function), fullgraph, dynamic, mode, frozen)
    known = _hooks.get(key)
    if known is not None:
        return known
    name = backend if isinstance(backend, str) else getattr(function, "__name__", type(function).__name__)
    chosen = dict(options) if options else getattr(function, "modes", {}).get(mode)
    graphs = functools.partial(_run_backend, function, name, chosen)
    kept_files = getattr(function, "kept_files", None)
    settings = Settings(graphs, fullgraph, CodeMap(), dynamic=dynamic, kept_files=kept_files)
    hook = make_hook(settings)
    hook.settings = settings
    hook.arguments = {"backend": backend, "fullgraph": fullgraph, "dynamic": dynamic, "mode": mode,
                      "options": dict(options) if options else None}
    if isinstance(backend, str):
        # Hooks of named backends live as long as the process. A hook of a user's backend lives with its functions.
        _hooks[key] = hook
    return hook


def _hook_of_call(fn: Any, hook: _eval_frame.FrameHook) -> _eval_frame.FrameHook | None:
    """The hook for one call of a compiled function when the stance affects calls; None: run it in plain Python."""
    now = stance.current()
    if now.backend is not None:
        return _with_backend(hook, now.backend)
    if now.name in stance.DELAYED and stance.is_first_call(code_of(fn)):
        return None if now.name == "eager_then_compile" else _with_backend(hook, "aot_eager")
    return hook


def _with_backend(hook: _eval_frame.FrameHook, backend: str | Backend) -> _eval_frame.FrameHook:
    """A hook with the settings of `hook`, but another backend."""
    settings = getattr(hook, "settings", None)  # reports have hooks of their own
    if settings is None:
        return hook
    made = vars(hook).setdefault("others", {})
    key = backend if isinstance(backend, str) else id(backend)
    if key not in made:
        # "inductor" is the default backend of torch.compile; it selects our default.
        function = lookup_backend(config.default_backend if backend == "inductor" else backend)
        graphs = functools.partial(_run_backend, function, str(backend), None)
        made[key] = make_hook(Settings(graphs, settings.fullgraph, hook.roots))
    return made[key]


stance.choose_by(_hook_of_call)
torch_compiler.follow(lambda: reset())


def hooks_alive() -> list[_eval_frame.FrameHook]:
    """The hooks of everything that has been compiled and is still in use."""
    return list(_alive)


def make_hook(settings: Settings) -> _eval_frame.FrameHook:
    """A hook that compiles frames with these settings."""
    made: list[weakref.ref[_eval_frame.FrameHook]] = []
    hook = _eval_frame.FrameHook(functools.partial(convert_frame.compile_frame, settings, lambda: made[0]()))
    hook.roots = settings.roots
    made.append(weakref.ref(hook))
    _alive.add(hook)
    return hook


def _run_backend(function: Backend, name: str, options: dict[str, Any] | None, graph: Any, inputs: list[Any]) -> Any:
    try:
        compiled = function(graph, inputs) if options is None else function(graph, inputs, options=options)
        if not callable(compiled):
            raise TypeError(f"a backend returns a callable, not a {type(compiled).__name__}")
        return compiled
    except exc.DynamoLiteError:
        raise
    except Exception as error:
        signal_handlers.pass_on(error)
        raise exc.BackendCompilerFailed(name, error) from error


# ---------------------------------------------------------------- copies
def _remembered(hook: _eval_frame.FrameHook | None) -> dict[str, Any] | None:
    """The arguments of ``compile`` that a hook was made with; None where there is no hook."""
    return None if hook is None else getattr(hook, "arguments", {})


def _restored(model: Any, arguments: dict[str, Any] | None) -> Any:
    """Compiles an unpickled or copied `model` with the arguments of its original."""
    return _wrap_callable(model, None) if arguments is None else compile(model, **arguments)


def _reduced(compiled: _eval_frame.CompiledFunction) -> Any:
    """Reduces a compiled function for pickling and copying. A plain function is pickled by name, so that its copy is
    the function itself. A method or a callable object is pickled with its object and the arguments of ``compile``."""
    below = callers.called(compiled.fn)
    if isinstance(below, types.FunctionType):
        return compiled.__qualname__
    return _restored, (below, _remembered(compiled.hook))


def _reduced_module(module: CompiledModule) -> Any:
    """Reduces a compiled module to its original and the arguments of ``compile``; compiled code is not pickled."""
    return _restored, (module._orig_mod, _remembered(module._hook))


copyreg.pickle(_eval_frame.CompiledFunction, _reduced)
copyreg.pickle(CompiledModule, _reduced_module)


def _restore_module(module: torch.nn.Module) -> Any:
    """Restores a module from an old pickle, made before the arguments of ``compile`` were pickled with the module."""
    return compile(module)


# nn.Module's code around `forward` is traced as part of the caller. When it runs in plain Python, `forward` is the
# frame to compile, not this code.
for _function in (torch.nn.Module._wrapped_call_impl, torch.nn.Module._call_impl):
    _eval_frame.skip(_function.__code__, None, False)
# A checkpointed function called by torch runs again in the backward pass and has to save the same tensors both times.
_eval_frame.skip(torch.utils.checkpoint.checkpoint.__wrapped__.__code__, None, True)  # type: ignore[attr-defined]
# Code that runs during an import belongs to the imported modules, so it is not compiled.
_eval_frame.skip(importlib._bootstrap._find_and_load.__code__, None, True)  # type: ignore[attr-defined]


def _note_traced() -> None:
    log.count("traced_calls")
    log.artifact("skipped_frames").warning(
        "compiled functions run in plain Python while their thread has a trace function (sys.settrace) or a tool of "
        "sys.monitoring asks for lines: debuggers and coverage tools would not see them otherwise. This is said once."
    )


_eval_frame.tell_when_traced(_note_traced)
_eval_frame.use_profiler(vars(torch.autograd.profiler), "_is_profiler_enabled", torch._C._profiler._RecordFunctionFast)


def reset() -> None:
    """Discards all compiled code and counters, the record of messages logged once, and memory kept for calls."""
    _eval_frame.reset()
    _eval_frame.tell_when_traced(_note_traced)
    _hooks.clear()
    request.reset_numbers()
    changed_values.reset()
    stance.reset()
    log.reset()
    reset_backends()
