"""All settings of dynamo_lite in one table: name, type, default, purpose.

A setting is read as an attribute (`config.recompile_limit`), and set by assignment, or temporarily by
`config.patch(...)`. Each can also be set in the environment as `DYNAMO_LITE_<NAME>`. Invariant: a setting has a value
of its declared type; a wrong type or choice, or an unknown name, is an error that says what would have been right.
"""
import contextlib
import dataclasses
import difflib
import os
import sys
import types
import warnings
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")


@dataclasses.dataclass(frozen=True)
class Option:
    """One row of the table."""

    default: Any
    help: str
    choices: tuple[str, ...] = ()
    may_be_zero: tuple[str, ...] = ()  # of the choices of a table of numbers
    minimum: int | None = None
    path: bool = False
    name: str = ""

    @property
    def type(self) -> Any:
        """The type of the setting's values."""
        return type(self.default)

    @property
    def env(self) -> str:
        """Name of the environment variable that sets it."""
        return "DYNAMO_LITE_" + self.name.upper()

    def parse(self, text: str) -> Any:
        """Parses a value from the text of the environment variable."""
        if self.type is bool:
            lowered = text.strip().lower()
            if lowered in ("1", "true", "yes", "on"):
                return True
            if lowered in ("0", "false", "no", "off"):
                return False
            raise ValueError(f"{self.env} is a switch (1 or 0), not {text!r}")
        if self.type is tuple:
            return tuple(part.strip() for part in text.split(",") if part.strip())
        if self.type is dict:
            pairs = (part.partition("=") for part in text.split(",") if part.strip())
            try:
                return {name.strip(): float(value) for name, _, value in pairs}
            except ValueError:
                raise ValueError(f"{self.env} is numbers by name, as a=1,b=2.5, not {text!r}") from None
        if self.type is int:
            try:
                return int(text)
            except ValueError:
                raise ValueError(f"{self.env} is a whole number, not {text!r}") from None
        return text

    def check(self, value: Any) -> Any:
        """Returns `value` in the form in which it is stored, or raises an error that explains why it is not valid."""
        if self.type is tuple and isinstance(value, (list, set, frozenset)):
            value = tuple(value)
        if self.type is str and isinstance(value, os.PathLike):
            value = os.fspath(value)
        if type(value) is not self.type:
            raise TypeError(
                f"config.{self.name} is of type {self.type.__name__}, not {type(value).__name__} ({value!r})")
        if self.type is dict:
            return self._numbers(value)
        if self.choices and value not in self.choices:
            raise ValueError(f"config.{self.name} is one of {', '.join(self.choices)}, not {value!r}")
        if self.minimum is not None and value < self.minimum:
            raise ValueError(f"config.{self.name} is at least {self.minimum}, not {value!r}")
        return _absolute(self.name, value) if self.path and value else value

    def _numbers(self, value: dict[str, float]) -> dict[str, float]:
        """A copy of a table of numbers by name."""
        for name, number in value.items():
            if name not in self.choices:
                raise ValueError(f"config.{self.name} has numbers by the names {', '.join(self.choices)}, not {name!r}")
            known = not isinstance(number, bool) and isinstance(number, (int, float))
            if not known or not 0 <= number < float("inf") or number == 0 and name not in self.may_be_zero:
                least = "a number of at least 0" if name in self.may_be_zero else "a positive number"
                raise ValueError(f"config.{self.name}[{name!r}] is {least}, not {number!r}")
        return dict(value)


def _option(default: T, help: str, **rest: Any) -> T:
    """A row of the table; typed as the value that the module attribute holds once the table is read."""
    return Option(default, help, **rest)  # type: ignore[return-value]


def _disabled_for_torch() -> bool:
    return any(os.environ.get(name) == "1" for name in ("TORCH_COMPILE_DISABLE", "TORCHDYNAMO_DISABLE"))


def _absolute(name: str, path: str) -> str:
    """An absolute path, which stays valid when the program changes its working directory."""
    expanded = os.path.expanduser(path)
    if expanded.startswith("~"):
        raise ValueError(f"config.{name} is {path!r}, and there is no such home folder")
    try:
        return os.path.abspath(expanded)
    except OSError as error:
        raise ValueError(f"config.{name} is {path!r}, relative to a folder that is gone") from error


def _user_cache_dir() -> str:
    """The folder for cached files of this user's programs. A user without a home directory, as in containers, gets a
    folder in the directory for temporary files.
    """
    base = os.environ.get("XDG_CACHE_HOME", "")
    home = os.path.expanduser("~")
    if not os.path.isabs(base) and os.path.isabs(home):
        base = os.path.join(home, ".cache")
    if os.path.isabs(base):
        return os.path.join(base, "dynamo_lite")
    return os.path.join("/tmp", f"dynamo_lite-{os.geteuid()}")


# ---------------------------------------------------------------- the table: capture
default_backend: str = _option("inductor_lite", "the backend that compile() uses when none is named")
disable: bool = _option(
    _disabled_for_torch(), "run everything in plain Python, what has been compiled already too; "
    "TORCH_COMPILE_DISABLE=1 does the same")
recompile_limit: int = _option(
    8, "cache entries per code object before it runs uncompiled, with a warning; up to as many again that others cover "
    "do not count", minimum=1)
error_on_recompile: bool = _option(False, "raise instead of compiling a code object a second time")
suppress_errors: bool = _option(
    False, "when a backend fails: warn, and run the frame in plain Python, as is done for faults of dynamo_lite itself")
raise_internal_errors: bool = _option(
    False, "raise on a fault of dynamo_lite's own while it captures, not a warning and a graph break: for tests")
capture_scalar_outputs: bool = _option(False, "keep Tensor.item() in the graph while nothing branches on its value")
capture_dynamic_output_shape_ops: bool = _option(
    False, "keep operations in the graph whose results are as large as elements say (nonzero, masks as indices, "
    "unique), while nothing branches on such a size; a call with a size of 0 or 1 runs in plain Python")
capture_with_fullgraph: bool = _option(
    True, "with fullgraph, do both of these where it would be an error otherwise, as torch.compile does")
max_trace_instructions: int = _option(
    1_000_000, "instructions to evaluate in a trace, those of inlined calls included, before it is given up",
    minimum=1)
max_plain_instructions: int = _option(
    200_000, "instructions to evaluate in a row without an operation on tensors, before the trace is given up; not "
    "with fullgraph", minimum=1)
inline_depth_limit: int = _option(200, "nested calls to follow before a call breaks the graph", minimum=1)
extra_inline_modules: tuple[str, ...] = _option((), "module prefixes to inline though they are skipped by default")
extra_skip_modules: tuple[str, ...] = _option((), "module prefixes whose functions are called, not captured")

automatic_dynamic_sizes: bool = _option(
    True, "whether a size that has changed between two calls becomes a symbol at the next compile, where "
    "compile(dynamic=None) leaves it open")
dynamic_sources: tuple[str, ...] = _option(
    (), "tensors whose sizes are symbols from the first compile on, by their path in the compiled function (x, "
    "self.cache), or single sizes (x.shape[0])")
value_guard_elements: int = _option(
    16384, "elements of a tensor of integers or truths that a guard may compare at each call (2.5 us for as many of "
    "int64, about what two breaks cost), where the program makes numbers or shapes of them", minimum=0)
value_guard_reduction: int = _option(
    512, "elements that each element of a mask computed from floats sums up, at least: what sums up an image comes "
    "again, what sums up the 91 class scores of a detection does not, and then the frame is compiled once more",
    minimum=1)
value_guard_operations: int = _option(
    32, "operations that a guard may run at each call to compute such a mask, 2.7 us each on a small tensor: a "
    "thousand calls cost less than the 0.1 s of a compile behind a break", minimum=0)

# ---------------------------------------------------------------- the table: backend
cpp_compiler: str = _option(os.environ.get("CXX") or "g++", "the C++ compiler's command; CXX is honoured too")
cpp_simd: str = _option(
    "auto", "vector instructions of generated C++ kernels", choices=("auto", "avx512", "avx2", "scalar"))
target: dict[str, float] = _option(
    {}, "what is known of the processor better than it is read or measured, by name, as l2=2097152,cores=2: sizes of "
    "caches in bytes, costs (the log `targets` prints all)", choices=(
        "l1", "l2", "l2_ways", "l3", "cores", "product_rate", "pack_lines", "pack_columns", "pack_far_lines",
        "pack_far_columns", "im2col", "left_lines", "left_columns", "near_left_lines", "near_left_columns",
        "transform_pixels", "transform_taps", "transform_sums", "strided_left", "streamed_left", "aliased_left",
        "placed_right", "wake", "awake", "elements", "foreign_read", "far_read", "near_store", "far_store",
        "library_call", "library_sharing", "convolution_share", "product_share", "pages", "fetched_depth"),
    may_be_zero=("strided_left", "streamed_left", "aliased_left", "placed_right"))
measured_products: bool = _option(
    False, "whether the library or our loops compute a matrix product on a CPU is decided by what both take for one of "
    "its kind, measured once in some milliseconds and kept in the cache folder; off, our loops compute it, unless the "
    "mode is max-autotune")
torch_for_single_operations: bool = _option(
    True, "whether torch's own autograd runs training graphs of one operation on few elements, which fusion can't make "
    "faster; off, they are compiled like others")
winograd: bool = _option(
    True, "whether convolutions of 3 x 3 taps on a CPU are computed by Winograd's minimal filtering F(2 x 2, 3 x 3) "
    "where that is faster: with less than half the products; rounding errors are those of the largest numbers in a "
    "window, also where these meet taps of zero")
cuda_graph_limit: int = _option(
    64, "CUDA graphs that are recorded of one compiled graph with mode='reduce-overhead', each with memory of its own: "
    "one for each choice of sizes, weights and streams that it is called with, and more where results are held",
    minimum=0)
chunked_loss: bool = _option(
    True, "compute the cross-entropy of a linear layer's results some rows at a time where that halves the memory that "
    "logits and their gradients take; gradients are computed with the loss then, whether a backward pass follows or "
    "not")
num_compile_workers: int = _option(
    0, "C++ files, or parts of a long one, compiled side by side; 0: as many as there are processors", minimum=0)
cpp_compiler_timeout: int = _option(
    300, "seconds that the C++ compiler may take for one file before it is stopped; 0: as many as it likes", minimum=0)
cache_dir: str = _option(
    _user_cache_dir(), "folder of compiled kernels and graphs, made with mode 0700; not used if others can write it",
    path=True)
cache_secret: str = _option(
    "", "file of the secret that kept files are signed with, made with mode 0600; empty: `secret` in the user's cache "
    "folder, whatever cache_dir is", path=True)
cache_graphs: bool = _option(True, "keep compiled graphs in cache_dir, so that another process compiles none of them")
kept_memory: int = _option(
    -1, "MiB of freed memory that malloc (glibc's) keeps between calls of graphs whose results are large, so that the "
    "next call need not get each page from the system; a block of more than half goes back at once. -1: a part of "
    "the memory (the thirty-second, 64 to 1024); 0: malloc is left to itself", minimum=-1)
kept_memory_seconds: int = _option(
    10, "so long after the last such call all free memory is given back", minimum=1)
cache_sizes: bool = _option(
    True, "keep in cache_dir which sizes and numbers of a function have changed between calls, so that another process "
    "begins with symbols there")


_watchers: dict[str, Callable[[], None]] = {}


def watch(name: str, changed: Callable[[], None]) -> None:
    """Calls `changed` after each assignment to a setting."""
    _watchers[_find(name).name] = changed


class _ConfigModule(types.ModuleType):
    """The class of this module: checks assignments, and suggests similar names for an unknown one."""

    def __setattr__(self, name: str, value: Any) -> None:
        if not name.startswith("__"):
            value = _find(name).check(value)
        super().__setattr__(name, value)
        if name in _watchers:
            _watchers[name]()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        _find(name)
        raise AttributeError(name)  # the setting has been deleted from the module

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"a setting can't be deleted: {name}")


def _find(name: str) -> Option:
    option = OPTIONS.get(name)
    if option is None:
        near = difflib.get_close_matches(name, OPTIONS, n=3, cutoff=0.4)
        hint = f"did you mean {' or '.join(near)}?" if near else f"the settings are {', '.join(OPTIONS)}"
        raise AttributeError(f"dynamo_lite.config has no setting {name!r}; {hint}")
    return option


def _start_value(option: Option) -> Any:
    text = os.environ.get(option.env)
    if not text:
        return option.default
    try:
        return option.check(option.parse(text))
    except (TypeError, ValueError) as e:
        # A wrong variable must not make the import fail.
        warnings.warn(f"{e}; {option.env} is ignored", stacklevel=2)
        return option.default


OPTIONS: dict[str, Option] = {
    name: dataclasses.replace(value, name=name)
    for name, value in list(globals().items()) if isinstance(value, Option)}
globals().update({name: _start_value(option) for name, option in OPTIONS.items()})


def _warn_of_misspelt_variables() -> None:
    prefix = "DYNAMO_LITE_"
    known = [*(name.upper() for name in OPTIONS), "LOGS"]
    for variable in os.environ:
        name = variable.removeprefix(prefix)
        if variable.startswith(prefix) and name not in known:
            near = difflib.get_close_matches(name, known, n=1, cutoff=0.8)
            if near:  # a variable without a similar name may belong to another program
                warnings.warn(f"there is no variable {variable}: did you mean {prefix}{near[0]}?", stacklevel=2)


_warn_of_misspelt_variables()


def snapshot() -> dict[str, Any]:
    """The current values of all settings."""
    return {name: globals()[name] for name in OPTIONS}


class Patch(contextlib.ContextDecorator):
    """Sets some settings on entry and restores them on exit; may be entered again while it is active."""

    def __init__(self, values: dict[str, Any]) -> None:
        self.values = values
        self.before: list[dict[str, Any]] = []

    def __enter__(self) -> None:
        self.before.append({name: globals()[name] for name in self.values})
        self._assign(self.values)

    def __exit__(self, *exception: object) -> None:
        self._assign(self.before.pop())

    def _assign(self, values: dict[str, Any]) -> None:
        for name, value in values.items():
            setattr(sys.modules[__name__], name, value)


def patch(**values: Any) -> Patch:
    """Sets settings within a `with` block, or while the decorated function runs. All values are checked first."""
    return Patch({name: _find(name).check(value) for name, value in values.items()})


def describe() -> str:
    """The table as text: each setting with its value, default, environment variable and purpose."""
    rows = []
    for name, option in OPTIONS.items():
        choices = f" ({'|'.join(option.choices)})" if option.choices else ""
        rows.append(f"{name} = {globals()[name]!r}{choices}")
        rows.append(f"    {option.help}; default {option.default!r}, {option.env}")
    return "\n".join(rows)


sys.modules[__name__].__class__ = _ConfigModule
