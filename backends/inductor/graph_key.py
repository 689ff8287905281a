"""The key of a compiled graph in the cache: a digest of everything that the result of compiling the graph depends on.

That is the graph with its inputs' layouts, torch's state and dynamo_lite's settings, the files of dynamo_lite, the
versions of torch and Python, and the processor. Invariant: a graph has no key if it contains anything else (a user's
function, a tensor, an object that no string can represent), or if it is compiled with a user's lowerings.
"""
from __future__ import annotations

import functools
import hashlib
import operator
import os
import platform
import sys
import types
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch
from torch.fx import GraphModule, Node

from dynamo_lite import config
from dynamo_lite.backends.aot import ambient
from dynamo_lite.backends.aot.decompositions import FOR_KERNELS
from dynamo_lite.backends.aot.origin import user_line
from dynamo_lite.backends.inductor import _runtime, processor
from dynamo_lite.backends.inductor.ir.symbolic import environment_of, index_of
from dynamo_lite.backends.inductor.lowering_registry import LOWERINGS
from dynamo_lite.runtime import sized_operators
from dynamo_lite.symbols.environment import Environment

# Where torch's functions find others by name: a program's function there changes what their nodes mean.
_CALLED_BY_NAME: tuple[Any, ...] = (
    torch, torch.functional, torch.nn.functional, torch._C._nn, torch.Tensor, torch.nn.Parameter)
_FORMAT = 3  # increment it when the format of entries changes
_LIBRARIES = frozenset({"torch", "operator", "_operator", "math", "_math", "builtins", "dynamo_lite"})
_FUNCTIONS = (types.FunctionType, types.BuiltinFunctionType, types.MethodDescriptorType, types.WrapperDescriptorType,
              type)
_WRITTEN_OUT = (type(None), bool, int, float, complex, str, bytes, torch.dtype, torch.device, torch.layout,
                torch.memory_format, type(Ellipsis))
# Settings that say where and how a graph is compiled; they do not affect the result.
_ELSEWHERE = frozenset({"cache_dir", "cache_secret", "num_compile_workers", "cpp_compiler", "cpp_compiler_timeout",
                        "cache_sizes", "kept_memory", "kept_memory_seconds"})


class NoKey(Exception):
    """No string can represent the graph without ambiguity."""


class SymbolicKey(str):
    """The key of a graph with symbolic sizes. The result of compiling it is valid only where the decisions that were
    made meanwhile hold, so there may be several results of one graph.

    Attributes:
        env: the trace's environment of symbols; its description is a part of the key.
        start: number of decisions that it had made when the key was computed.
        slot: number of the result that this call uses.
    """

    env: Environment
    start: int
    slot: int = 0

    def name(self, slot: int) -> str:
        """The name of the cache entry for one of the results."""
        return str(self) if slot == 0 else hashlib.sha256(f"{self} {slot}".encode()).hexdigest()


def graph_key(gm: GraphModule, example_inputs: list[Any], options: dict[str, Any]) -> str:
    """The key of a captured graph.

    Args:
        gm: the graph.
        example_inputs: a fake tensor (or a number) for each placeholder.
        options: the backend's options.

    Returns:
        the key; a ``SymbolicKey`` where sizes are symbols.

    Raises:
        NoKey: the graph has no key; the message says why.
    """
    digest = hashlib.sha256(_surroundings().encode("utf-8", "surrogatepass"))
    env = environment_of(example_inputs)
    known = "" if env is None else env.described()
    for part in (_state(options), known, *_inputs(gm, example_inputs), *_nodes(gm)):
        digest.update(b"\n%d:" % len(part))
        digest.update(part.encode("utf-8", "surrogatepass"))
    if env is None:
        return digest.hexdigest()
    key = SymbolicKey(digest.hexdigest())
    key.env, key.start = env, len(env.decisions)
    return key


# ---------------------------------------------------------------- the environment of the graph
@functools.cache
def _surroundings() -> str:
    """The part of the key that is the same for all graphs of a process."""
    here = os.path.dirname(os.path.abspath(__file__))
    roots = os.path.dirname(os.path.abspath(str(config.__file__))), os.path.dirname(here)  # the front end, the backends
    try:
        files = [f"{path.removeprefix(root)} {status.st_size} {status.st_mtime_ns}"
                 for root in roots for path, status in sorted(_files(root))]
    except OSError as error:
        raise NoKey(f"the package's own files can't be seen: {error}") from error
    features = " ".join(sorted(processor.cpu_features()))
    return "\n".join([
        str(_FORMAT), torch.__version__, str(torch.version.git_version), sys.version,
        platform.machine(), features, processor.this_processor().key(),
        str(_runtime.can_allocate()), os.environ.get("ATEN_CPU_CAPABILITY", ""), *files])


def _files(root: str) -> Iterator[tuple[str, os.stat_result]]:
    for entry in os.scandir(root):
        if entry.is_dir() and entry.name != "__pycache__":
            yield from _files(entry.path)
        elif entry.name.endswith((".py", ".so", ".h", ".cpp")):
            yield entry.path, entry.stat()


def _state(options: dict[str, Any]) -> str:
    """The part of the key for options, settings, torch's state, and torch functions in registries."""
    torchs = sorted({*_torchs("a lowering", {target: entry.fn for target, entry in LOWERINGS.items()}),
                     *_torchs("a decomposition", FOR_KERNELS)})
    if torch._C._len_torch_function_stack() or torch._C._len_torch_dispatch_stack() or (
            torch._C._functorch.peek_interpreter_stack() is not None):
        raise NoKey("modes or transforms of torch's are on")
    for place, (names, values) in zip(_CALLED_BY_NAME, _torchs_own()):
        # A class also has what is put there under a name that its bases define.
        if isinstance(place, type) and any(map(_is_foreign, vars(place).values())) or not (
                all(map(operator.is_, map(vars(place).get, names), values)) or _are_torchs(place, names, values)):
            raise NoKey(f"the program has put functions of its own into {place.__name__}")
    backends = torch.backends
    flags = (
        torch.is_grad_enabled(), torch.is_inference_mode_enabled(), ambient.casting(),
        torch.is_autocast_cache_enabled(), torch.get_default_dtype(),
        torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled(),
        torch.get_num_threads(), backends.mkldnn.enabled, torch.get_float32_matmul_precision(),
        backends.cuda.matmul.fp32_precision, backends.mkldnn.matmul.fp32_precision, backends.mkldnn.conv.fp32_precision,  # type: ignore[attr-defined]
        backends.cuda.flash_sdp_enabled(), backends.cuda.mem_efficient_sdp_enabled(), backends.cuda.math_sdp_enabled(),
        backends.cuda.cudnn_sdp_enabled(), backends.cudnn.enabled,
        backends.opt_einsum.enabled, backends.opt_einsum.strategy,
        torch.utils.deterministic.fill_uninitialized_memory,  # type: ignore[attr-defined]
    )
    settings = {name: value for name, value in config.snapshot().items() if name not in _ELSEWHERE}
    return repr((sorted(options.items()), flags, sorted(settings.items()), processor.simd(), torchs))


@functools.cache
def _torchs_own() -> list[tuple[list[str], list[Any]]]:
    """The names and the functions in each place of ``_CALLED_BY_NAME``, as they are when first asked for. In the place
    of one that is not torch's by then stands an object that nothing is identical to."""
    found = []
    for place in _CALLED_BY_NAME:
        functions = {name: object() if _is_foreign(value) else value for name, value in vars(place).items()
                     if isinstance(value, property) or callable(value) and not isinstance(value, type)}
        found.append((list(functions), list(functions.values())))
    return found


def _are_torchs(place: Any, names: list[str], values: list[Any]) -> bool:
    """Whether what has changed in a place are functions that torch has wrapped, as its compiler does when imported."""
    changed = [name for name, value in zip(names, values) if vars(place).get(name) is not value]
    return all(isinstance(new := vars(place).get(name), types.FunctionType) and new.__name__ == name
               and not _is_foreign(new) for name in changed)


def _is_foreign(value: Any) -> bool:
    """Whether it is a function, a property or a callable object that neither torch nor Python's library defines."""
    value = value.fget if isinstance(value, property) else value
    if isinstance(value, types.FunctionType):
        package = str(value.__globals__.get("__name__")).partition(".")[0]
        return package not in ("torch", "typing_extensions") and package not in sys.stdlib_module_names
    if isinstance(value, _FUNCTIONS) or not callable(value):
        return False
    return type(value).__module__.partition(".")[0] in ("unittest", "__main__") or not _is_known(type(value))


def _is_known(cls: type) -> bool:
    package = cls.__module__.partition(".")[0]
    return package in ("torch", "builtins", "typing_extensions") or package in sys.stdlib_module_names


def _torchs(kind: str, table: Mapping[Any, Any]) -> Iterator[tuple[str, str, str, str]]:
    """The torch functions in the table, which a user may have registered in one process and not in another."""
    for target, fn in table.items():
        package, _, rest = (getattr(fn, "__module__", None) or "").partition(".")
        if package == "torch":
            yield kind, str(target), rest, getattr(fn, "__qualname__", repr(type(fn)))
        elif package != "dynamo_lite":
            raise NoKey(f"{kind} for {target} is the user's")


# ---------------------------------------------------------------- the graph
def _inputs(gm: GraphModule, example_inputs: list[Any]) -> Iterator[str]:
    """The layouts of the inputs, and which of them share memory."""
    mode = gm.meta.get("fake_mode")
    if mode is not None and mode.known:
        raise NoKey("the values of some inputs are known")
    storages: dict[int, int] = {}
    for value in example_inputs:
        if not isinstance(value, torch.Tensor):
            yield repr(_numbers((value,))) if isinstance(value, torch.SymInt) else _text(value)
            continue
        if value.layout != torch.strided:
            raise NoKey("an input is not strided")
        storage = value.untyped_storage()
        number = storages.setdefault(storage._cdata, len(storages))
        history = value.grad_fn.name() if value.grad_fn is not None else ""
        yield repr((
            type(value).__name__, value.dtype, value.device, _numbers(value.shape), _numbers(value.stride()),
            _numbers((value.storage_offset(), number, storage.nbytes())), value.requires_grad, history,
            value.is_conj(), value.is_neg(), value.is_inference()))


def _numbers(values: Iterable[Any]) -> tuple[int | str, ...]:
    """Integers as they are, symbolic ones as the text of their expressions."""
    try:
        return tuple(n if isinstance(n, int) else str(n) for n in map(index_of, values))
    except NotImplementedError as error:
        raise NoKey(str(error)) from error


def _nodes(gm: GraphModule) -> Iterator[str]:
    """The nodes of the graph, with the user's lines, which comments in generated code contain."""
    for node in gm.graph.nodes:
        if node.op == "call_function":
            target = _function(node.target)
        elif node.op in ("placeholder", "call_method", "output"):
            target = str(node.target)
        else:
            raise NoKey("the graph holds a tensor or a module")
        yield f"{node.op} {node.name} {target} {_text(node.args)} {_text(node.kwargs)} " \
              f"{bool(node.meta.get('static'))} {bool(node.meta.get('impure'))} {node.meta.get('at_entry')} " \
              f"{user_line(node)}"


def _text(value: Any) -> str:
    """An argument as a string; different arguments have different strings."""
    if isinstance(value, Node):
        return f"%{value.name}"
    if type(value) in _WRITTEN_OUT:
        return f"{type(value).__name__} {value!r}"
    if isinstance(value, (tuple, list)):
        return f"{'tuple' if isinstance(value, tuple) else 'list'}({', '.join(map(_text, value))})"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_text(k)}: {_text(v)}" for k, v in value.items()) + "}"
    if isinstance(value, slice):
        return f"slice({_text(value.start)}, {_text(value.stop)}, {_text(value.step)})"
    if callable(value):
        return _function(value)
    raise NoKey(f"an argument is a {type(value).__name__}")


@functools.lru_cache(maxsize=4096)
def _function(target: Any) -> str:
    """The name by which a function is found in a module of torch or Python."""
    if isinstance(target, torch._ops.OpOverload):
        if target.namespace not in ("aten", "prims", sized_operators.NAMESPACE):
            raise NoKey(f"{target} is an operator of the user's")
        return str(target)
    if not isinstance(target, _FUNCTIONS):
        raise NoKey(f"it calls an object of {type(target).__name__}")
    module, path = getattr(target, "__module__", None), target.__qualname__
    if path.startswith("_VariableFunctionsClass."):
        module, path = "torch", f"_C._VariableFunctions.{target.__name__}"
    elif isinstance(owner := getattr(target, "__objclass__", None), type):
        module, path = owner.__module__, f"{owner.__qualname__}.{target.__name__}"
    if module is None or module.partition(".")[0] not in _LIBRARIES or _at(module, path) != target:
        raise NoKey(f"it calls {module}.{path}, which is no function of torch's")
    return f"{module}.{path}"


def _at(module: str, path: str) -> Any:
    found: Any = sys.modules.get(module)
    for name in path.split("."):
        found = getattr(found, name, None)
    return found
