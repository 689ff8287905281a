"""Which operators the default backend computes as eager does: every operator of torch's own op_db, compiled.

    python benchmarks/operators.py [--only NAME ...] [--dtypes float32 ...] [--samples N] [--jobs N] [--write FILE]
    python benchmarks/operators.py --again FILE ... [--only NAME ...] [--write FILE]

All of an operator's sample inputs (some of them laid out with gaps) are one compiled function; its results, their
dtypes and strides, its effects on its arguments and on the random generator are compared with eager's: bit for bit
where eager's arithmetic has one answer, closely elsewhere. The same goes for the gradients and, in float32, for the
in-place form and the form with ``out``. Where something differs, each sample is tried by itself, so that the report can
name it. Operators run in processes of their own, so one that crashes is an entry of the report and no more. With
``--again`` the outcomes of earlier runs (``--json``) are read, what failed or is named runs again, and the report says
so.
"""
from __future__ import annotations

import argparse
import collections
import dataclasses
import functools
import json
import linecache
import logging
import math
import os
import subprocess
import sys
import tempfile
import types
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.utils._pytree as pytree

import dynamo_lite

if "expecttest" not in sys.modules:
    # torch's test helpers import it for what is not used here.
    sys.modules["expecttest"] = types.SimpleNamespace(TestCase=object, assert_expected_inline=None)  # type: ignore
from torch.testing._internal.common_methods_invocations import op_db

# op_db sets the seed around every random operator, in a function of torch's tests that is no part of the operator;
# here every program begins with a seed of its own.
for _module in [m for name, m in sys.modules.items() if name.startswith("torch.testing._internal")]:
    if hasattr(_module, "wrapper_set_seed"):
        _module.wrapper_set_seed = lambda op, *args, **kwargs: op(*args, **kwargs)  # type: ignore[attr-defined]

# Otherwise the gradients of small samples would be torch's own.
dynamo_lite.config.torch_for_single_operations = False

DTYPES = ("float32", "float64", "bfloat16", "float16", "int64", "int32", "int8", "uint8", "bool", "complex64")
SAMPLES = 8
# How many library operations the report names, and in how many columns.
NAMED, COLUMNS = 40, 4

# Contents that nothing determines.
UNDETERMINED = {
    "empty", "empty_like", "empty_strided", "empty_permuted", "new_empty", "new_empty_strided", "as_strided_empty",
}
# Eager's arithmetic has one right answer here; everything that isn't of a floating-point dtype is exact as well.
EXACT = {
    "abs", "add", "sub", "rsub", "mul", "div", "neg", "positive", "reciprocal", "sign", "floor", "ceil", "trunc",
    "round", "frac", "maximum", "minimum", "fmax", "fmin", "clamp", "clamp_min", "clamp_max", "where", "masked_fill",
    "floor_divide", "remainder", "fmod", "copysign", "nextafter", "square", "relu", "amax",
    "amin", "max", "min", "aminmax", "cummax", "cummin", "cat", "stack", "gather", "index_select", "index_put",
    "index_fill", "index_copy", "index_add", "scatter", "scatter_add", "take", "take_along_dim", "masked_select",
    "masked_scatter", "roll", "flip", "tril", "triu", "pad", "repeat", "tile", "repeat_interleave", "sort", "topk",
    "kthvalue", "median", "mode", "arange", "eye", "full", "ones", "zeros", "clone", "contiguous", "nan_to_num",
    "heaviside", "logical_not", "nn.functional.relu", "nn.functional.relu6", "nn.functional.hardtanh",
    "nn.functional.threshold", "nn.functional.max_pool1d", "nn.functional.max_pool2d", "nn.functional.max_pool3d",
    "nn.functional.pad", "nn.functional.embedding", "nn.functional.leaky_relu", "nn.functional.pixel_shuffle",
    "nn.functional.unfold", "diff", "bernoulli", "rand_like", "randint", "randint_like", "nn.functional.dropout",
    "uniform", "randn", "randn_like", "normal", "multinomial", "nn.functional.one_hot", "to", "bfloat16", "half",
    "float", "double", "view", "reshape", "permute", "transpose", "expand", "as_strided", "unfold", "constant_pad_nd",
}
# Relative and absolute: what two good orders of summation differ by.
CLOSE = {
    torch.float32: (2e-5, 1e-5), torch.float64: (1e-11, 1e-11), torch.bfloat16: (2e-2, 1e-2),
    torch.float16: (3e-3, 1e-3), torch.complex64: (2e-5, 1e-5), torch.complex128: (1e-11, 1e-11),
}
# Eager's vectorized loops round these once in 16 bits, its loops for the last few elements twice.
UNEVEN = {"add", "sub", "rsub"}
FORMS = ("forward", "gradient", "in-place", "out")
FAILING = ("wrong", "error", "crash")
RANKING = ("generated", "library", "partly eager", "wrong", "error", "crash")


@dataclasses.dataclass
class Outcome:
    """What happened to one form of one operator in one dtype."""

    name: str
    dtype: str
    form: str
    status: str
    detail: str = ""
    library: tuple[str, ...] = ()
    commit: str = ""


@dataclasses.dataclass
class Program:
    """A function of tensors, written out as source so that nothing but the operator's calls is captured."""

    fn: Callable[..., Any]
    tensors: list[torch.Tensor]
    exact: bool

    def wide(self) -> Program:
        """The same in double precision: what eager's results and ours are both measured by, where they differ."""
        def widened(t: torch.Tensor) -> torch.Tensor:
            if not (t.is_floating_point() or t.is_complex()):
                return t
            dtype = torch.complex128 if t.is_complex() else torch.float64
            return t.detach().to(dtype).requires_grad_(t.requires_grad)

        return Program(self.fn, [widened(t) for t in self.tensors], self.exact)


# ---------------------------------------------------------------- samples as source
class Writer:
    """Writes the calls of one operator's samples as one function."""

    def __init__(self) -> None:
        self.names: dict[str, Any] = {"torch": torch}
        self.tensors: list[torch.Tensor] = []
        self.lines: list[str] = []
        self.results: list[str] = []

    def constant(self, value: Any) -> str:
        name = f"c{len(self.names)}"
        self.names[name] = value
        return name

    def text(self, value: Any) -> str:
        """An argument as an expression."""
        if isinstance(value, torch.Tensor):
            self.tensors.append(value)
            return f"t{len(self.tensors) - 1}"
        if type(value) is list:
            return f"[{', '.join(map(self.text, value))}]"
        if type(value) is tuple:
            return f"({''.join(self.text(v) + ', ' for v in value)})"
        if type(value) is dict:
            return f"{{{', '.join(f'{k!r}: {self.text(v)}' for k, v in value.items())}}}"
        if type(value) in (bool, int, str, type(None)) or type(value) is float and math.isfinite(value):
            return repr(value)
        return self.constant(value)

    def call(self, fn: Any, sample: Any, form: str, outs: Any = None) -> None:
        callee = self.constant(fn)
        first = self.text(sample.input)
        if form == "in-place":
            self.lines.append(f"{first} = {first}.clone()")
            self.results.append(first)
        args = [first, *map(self.text, sample.args)]
        args += [f"{k}={self.text(v)}" for k, v in sample.kwargs.items()]
        if form == "out":
            args.append(f"out={self.text(outs)}")
        result = f"r{len(self.results)}"
        self.lines.append(f"{result} = {callee}({', '.join(args)})")
        self.results.append(result)

    def function(self) -> Callable[..., Any]:
        head = f"def program({', '.join(f't{i}' for i in range(len(self.tensors)))}):"
        source = "\n    ".join([head, *self.lines, f"return ({''.join(r + ', ' for r in self.results)})"]) + "\n"
        filename = f"<samples {id(self)}>"
        linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
        exec(compile(source, filename, "exec"), self.names)
        return self.names["program"]


def spread(items: list[Any], n: int) -> list[Any]:
    """``n`` of the items, the first and the last among them."""
    if len(items) <= n:
        return items
    return [items[round(i * (len(items) - 1) / (n - 1))] for i in range(n)]


def samples_of(op: Any, dtype: torch.dtype, n: int, gradient: bool) -> list[Any]:
    torch.manual_seed(0)
    plain = spread(list(op.sample_inputs("cpu", dtype, requires_grad=gradient)), n)
    if gradient:
        return plain
    return plain + [s.noncontiguous() for s in spread(plain, max(2, n // 4)) if not is_sparse(s)]


def is_sparse(sample: Any) -> bool:
    leaves = pytree.tree_leaves((sample.input, sample.args, sample.kwargs))
    return any(isinstance(x, torch.Tensor) and x.layout is not torch.strided for x in leaves)


def prepare(op: Any, samples: list[Any], form: str) -> Program | None:
    """The samples' calls as one function; None if eager refuses them all."""
    writer = Writer()
    half = any(isinstance(x, torch.Tensor) and x.dtype in (torch.bfloat16, torch.float16)
               for s in samples for x in pytree.tree_leaves((s.input, s.args)))
    exact = op.name in EXACT and not (half and op.name in UNEVEN)
    for sample in samples:
        fn = op.get_inplace() if form == "in-place" else op.op
        outs = None
        try:
            state = torch.get_rng_state()
            with torch.no_grad():
                # Some samples are not for this form, or dtype: eager says so.
                first = sample.input.clone() if form == "in-place" else sample.input
                result = fn(first, *copies_of(sample.args), **copies_of(sample.kwargs))
            torch.set_rng_state(state)
            if form == "out":
                if not all(isinstance(r, torch.Tensor) for r in pytree.tree_leaves(result)):
                    continue
                outs = pytree.tree_map(torch.zeros_like, tuple(result) if isinstance(result, tuple) else result)
                if not settled(op, sample, outs):
                    continue
        except Exception:
            continue
        writer.call(fn, sample, form, outs)
    if not writer.results:
        return None
    return Program(writer.function(), writer.tensors, exact)


def settled(op: Any, sample: Any, outs: Any) -> bool:
    """Whether eager's results in ``out`` don't depend on what was there before (native_batch_norm's do, where the
    statistics are laid out with gaps)."""
    state = torch.get_rng_state()
    made = []
    for content in (0, 1):
        torch.set_rng_state(state)
        out = pytree.tree_map(functools.partial(torch.full_like, fill_value=content), outs)
        op.op(copies_of(sample.input), *copies_of(sample.args), **copies_of(sample.kwargs), out=out)
        made.append(pytree.tree_leaves(out))
    return op.name in UNDETERMINED or all(
        torch.allclose(a, b, equal_nan=True) if a.is_floating_point() or a.is_complex() else torch.equal(a, b)
        for a, b in zip(*made))


# ---------------------------------------------------------------- running and comparing
def copies_of(tree: Any) -> Any:
    return pytree.tree_map(lambda x: copies([x])[0] if isinstance(x, torch.Tensor) else x, tree)


def copies(tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    """The same layout and contents in other memory."""
    made: list[torch.Tensor] = []
    seen: dict[int, torch.Tensor] = {}
    for t in tensors:
        if id(t) in seen:
            made.append(seen[id(t)])
            continue
        if t.layout is not torch.strided or t.is_quantized or t.is_conj() or t.is_neg():
            twin = t.detach().clone()
        else:
            memory = torch.empty(0, dtype=torch.uint8).set_(t.untyped_storage()).clone()
            twin = torch.empty(0, dtype=t.dtype).set_(memory.untyped_storage(), t.storage_offset(), t.shape, t.stride())
        made.append(twin.requires_grad_(t.requires_grad))
        seen[id(t)] = twin
    return made


def run(program: Program, fn: Callable[..., Any], gradient: bool) -> tuple[list[Any], list[torch.Tensor], torch.Tensor]:
    """Results (and gradients), the arguments afterwards, and where the random generator is."""
    tensors = copies(program.tensors)
    torch.manual_seed(1)
    with torch.set_grad_enabled(gradient):
        results = pytree.tree_leaves(fn(*tensors))
    state = torch.get_rng_state()
    if gradient:
        outs = [r for r in results if isinstance(r, torch.Tensor) and r.requires_grad]
        inputs = [t for t in tensors if t.requires_grad]
        if outs and inputs:
            torch.manual_seed(2)
            seeds = [torch.randn_like(r) for r in outs]
            results = [r.detach() if isinstance(r, torch.Tensor) else r for r in results]
            results += torch.autograd.grad(outs, inputs, seeds, allow_unused=True)
    return results, tensors, state


def difference(op: Any, exact: bool, want: Any, got: Any) -> str:
    """In words; empty if there is none."""
    if not isinstance(want, torch.Tensor):
        same = type(want) is type(got) and (want == got or want != want)
        return "" if same else f"{want!r} became {got!r}"
    if not isinstance(got, torch.Tensor):
        return f"a tensor became {got!r}"
    if want.dtype is not got.dtype:
        return f"{want.dtype} became {got.dtype}"
    if want.shape != got.shape:
        return f"shape {tuple(want.shape)} became {tuple(got.shape)}"
    if want.layout is not torch.strided:
        return difference(op, exact, want.to_dense(), got.to_dense()) if want.layout is got.layout else "layout"
    if want.stride() != got.stride():
        return f"strides {want.stride()} of shape {tuple(want.shape)} became {got.stride()}"
    if want.requires_grad != got.requires_grad:
        return "requires_grad"
    if op.name in UNDETERMINED:
        return ""
    a, b = want.detach(), got.detach()
    rtol, atol = (0.0, 0.0) if exact or a.dtype not in CLOSE else CLOSE[a.dtype]
    try:
        torch.testing.assert_close(b, a, rtol=rtol, atol=atol, equal_nan=True)
    except AssertionError as e:
        text = " ".join(str(e).split())
        return f"values differ: {text[:200]}"
    known = ~a.isnan()
    if exact and a.is_floating_point() and not torch.equal(torch.signbit(a)[known], torch.signbit(b)[known]):
        return "signs of zeros differ"
    return ""


def as_accurate(program: Program, gradient: bool, want: list[Any], got: list[Any], differs: list[str]) -> list[str]:
    """The differences that remain when a result as close to double precision's as eager's is as good."""
    try:
        wide = run(program.wide(), program.fn, gradient)[0]
    except Exception:
        return differs  # not defined in double precision
    left = []
    for text, a, b, w in zip(differs, want, got, wide):
        if text.startswith("values differ") and isinstance(w, torch.Tensor) and w.shape == a.shape:
            errors = [(x.detach().to(w.dtype) - w.detach()).abs() for x in (a, b)]
            if bool((errors[1] <= 2 * errors[0].max()).all()):
                text = ""
        left.append(text)
    return left


class Reasons(logging.Handler):
    """Collects what the logs of graph breaks and fall-backs say."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.said: list[str] = []
        for name in ("graph_breaks", "fallbacks"):
            logger = logging.getLogger(f"dynamo_lite.{name}")
            logger.setLevel(logging.INFO)
            logger.propagate = False
            logger.addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        self.said.append(" ".join(record.getMessage().split()))


def check(op: Any, program: Program, form: str, reasons: Reasons) -> tuple[str, str, tuple[str, ...]]:
    """(status, detail, library operations) of a program: eager's results against the compiled one's."""
    gradient = form == "gradient"
    try:
        want = run(program, program.fn, gradient)
    except Exception as e:
        return "", f"eager raises {type(e).__name__}", ()
    dynamo_lite.reset()
    dynamo_lite.reset_metrics()
    reasons.said.clear()
    try:
        got = run(program, dynamo_lite.compile(program.fn), gradient)
    except Exception as e:
        return "error", f"{type(e).__name__}: {' '.join(str(e).split())[:200]}", ()
    exact = program.exact and not gradient
    differs = [difference(op, exact, a, b) for a, b in zip(want[0], got[0])]
    if not exact and any(d.startswith("values differ") for d in differs):
        differs = as_accurate(program, gradient, want[0], got[0], differs)
    if len(want[0]) != len(got[0]):
        differs.append("another number of results")
    differs += [d and f"argument afterwards: {d}" for d in (
        difference(op, program.exact, a, b) for a, b in zip(want[1], got[1]))]
    if not torch.equal(want[2], got[2]):
        differs.append("the random generator is elsewhere")
    found = [d for d in differs if d]
    metrics = dynamo_lite.metrics()
    library = tuple(metrics["library_calls"])
    if found:
        return "wrong", found[0], library
    if metrics["fallbacks"] or metrics.get("graph_breaks") or metrics.get("internal_errors"):
        said = [s for s in reasons.said if not s.startswith("library call")]
        return "partly eager", said[0][:300] if said else str(metrics["fallbacks"]), library
    return ("library" if library else "generated"), "", library


def outcomes(op: Any, dtype: torch.dtype, forms: list[str], n: int, reasons: Reasons) -> Iterator[Outcome]:
    for form in forms:
        gradient = form == "gradient"
        if form == "in-place" and op.get_inplace() is None or form == "out" and not op.supports_out:
            continue
        if gradient and not (op.supports_autograd and dtype in op.supported_backward_dtypes("cpu")):
            continue
        samples = samples_of(op, dtype, n, gradient)
        program = prepare(op, samples, form)
        if program is None:
            continue
        status, detail, library = check(op, program, form, reasons)
        if status in ("wrong", "error", "partly eager"):
            alone = []
            for at, sample in enumerate(samples):
                one = prepare(op, [sample], form)
                if one is not None:
                    status_, detail_, library_ = check(op, one, form, reasons)
                    rank = RANKING.index(status_) if status_ else -1
                    alone.append((rank, status_, f"sample {at}: {detail_}", library_))
            worst = max(alone, key=lambda a: a[0], default=(0, status, detail, library))
            if RANKING.index(status) <= worst[0] or status == "partly eager":
                status, detail = worst[1], worst[2]
            else:
                detail = f"all samples together: {detail}"
        if status:
            yield Outcome(full_name(op), str(dtype).removeprefix("torch."), form, status, detail, library)


def full_name(op: Any) -> str:
    return f"{op.name} {op.variant_test_name}".strip()


def operators() -> list[Any]:
    # "jiterator": operators compiled for CUDA while running.
    return [op for op in op_db if "jiterator" not in op.name]


def work(options: argparse.Namespace) -> None:
    """In a child process: the outcomes of a range of operators, a line of JSON each."""
    warnings.simplefilter("ignore")
    reasons = Reasons()
    torch.set_num_threads(1)
    chosen = operators()
    for at in map(int, options.work.split(",")):
        op = chosen[at]
        print(json.dumps({"start": at}), flush=True)
        for name in options.dtypes:
            dtype = getattr(torch, name)
            if dtype not in op.supported_dtypes("cpu"):
                continue
            forms = [f for f in options.forms if name == "float32" or f in ("forward", "gradient")]
            for outcome in outcomes(op, dtype, forms, options.samples, reasons):
                print(json.dumps(dataclasses.asdict(outcome)), flush=True)
        print(json.dumps({"end": at}), flush=True)


# ---------------------------------------------------------------- the parent
def sweep(options: argparse.Namespace) -> list[Outcome]:
    everything = operators()
    numbers = [i for i, op in enumerate(everything)
               if not options.only or any(part == full_name(op) or part == op.name for part in options.only)]
    numbers = numbers[options.start::options.step]
    commit = commit_here()
    found: list[Outcome] = []
    slices = [numbers[i::options.jobs] for i in range(options.jobs)]
    running = [(start(options, left), left) for left in slices if left]
    while running:
        child, left = running.pop(0)
        assert child.stdout is not None
        current = None
        for line in child.stdout:
            try:
                said = json.loads(line)
            except ValueError:
                continue
            if "start" in said:
                current = said["start"]
            elif "end" in said:
                left = [n for n in left if n != said["end"]]
                current = None
            else:
                outcome = Outcome(**{**said, "library": tuple(said["library"]), "commit": commit})
                found.append(outcome)
                if options.verbose or outcome.status in FAILING:
                    said_of = f"{outcome.name} {outcome.dtype} {outcome.form}"
                    print(f"{said_of}: {outcome.status} {outcome.detail}", flush=True)
        child.wait()
        if current is not None:
            name = full_name(everything[current])
            detail = f"exit status {child.returncode}"
            found.append(Outcome(name, ",".join(options.dtypes), "?", "crash", detail, commit=commit))
            print(f"{name}: crash, exit status {child.returncode}", flush=True)
            left = [n for n in left if n != current]
            if left:
                running.append((start(options, left), left))
    return found


def start(options: argparse.Namespace, numbers: list[int]) -> subprocess.Popen[str]:
    command = [sys.executable, __file__, "--work", ",".join(map(str, numbers)), "--samples", str(options.samples),
               "--dtypes", *options.dtypes, "--forms", *options.forms]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, stderr=subprocess.DEVNULL)


def commit_here() -> str:
    """What is tested, with a "+" if files have changed since."""
    def git(*args: str) -> str:
        here = os.path.dirname(os.path.abspath(__file__))
        return subprocess.run(["git", *args], cwd=here, capture_output=True, text=True, check=False).stdout.strip()

    return git("rev-parse", "--short", "HEAD") + "+" * bool(git("status", "--short", "-uno", "--", "../*.py", "../*.c"))


def earlier(files: list[str]) -> dict[str, list[Outcome]]:
    """What earlier runs found, by operator; of one that ran again, the last word."""
    found: dict[str, list[Outcome]] = {}
    for name in files:
        with open(name) as file:
            read = [Outcome(**{**said, "library": tuple(said["library"])}) for said in map(json.loads, file)]
        again = {(o.name, o.dtype) for o in read}
        for operator, outcomes_ in found.items():
            found[operator] = [o for o in outcomes_ if (operator, o.dtype) not in again]
        for o in read:
            found.setdefault(o.name, []).append(o)
    return found


def report(found: list[Outcome]) -> str:
    """The table and the lists of docs/operators.md."""
    lines = ["| dtype, form | operators | generated | library | partly eager | failing | pass | commit |",
             "|---" * 8 + "|"]
    groups = dict.fromkeys((o.dtype, o.form) for o in found)
    again: dict[str, dict[str, None]] = {}
    for dtype, form in groups:
        mine = [o for o in found if (o.dtype, o.form) == (dtype, form)]
        n = collections.Counter(o.status for o in mine)
        (commit, _), = collections.Counter(o.commit for o in mine).most_common(1)
        for o in mine:
            if o.commit != commit:
                again.setdefault(o.commit, {})[f"`{o.name}`"] = None
        bad = n["wrong"] + n["error"] + n["crash"]
        lines.append(
            f"| {dtype}, {form} | {len(mine)} | {n['generated']} | {n['library']} | {n['partly eager']} | {bad} "
            f"| {100 * (len(mine) - bad) / len(mine):.1f}% | `{commit}` |")
    for commit, names in again.items():
        lines += ["", f"Tried again at `{commit}`: {', '.join(names)}."]
    lines += ["", "## Failing", ""]
    bad_ones = [o for o in found if o.status in FAILING]
    lines += [f"- `{o.name}` {o.dtype} {o.form}: {o.status}: {o.detail}" for o in bad_ones] or ["None."]
    lines += ["", "## Partly eager", "", "A graph break, or a graph that runs in eager; the results are eager's.", ""]
    eager: dict[str, dict[str, None]] = {}
    for o in found:
        if o.status == "partly eager":
            eager.setdefault(kind_of(o.detail), {})[o.name] = None
    for reason, names in sorted(eager.items(), key=lambda item: -len(item[1])):
        lines.append(f"- {reason} ({len(names)}): {', '.join(f'`{n}`' for n in names)}")
    calls = collections.Counter(c for o in found if o.dtype == "float32" for c in o.library)
    most = [f"`{name.removeprefix('aten.')}` {n}" for name, n in calls.most_common(NAMED)]
    rows = -(-len(most) // COLUMNS)
    lines += ["", "## Library operations", "",
              f"In float32, the samples call {len(calls)} different library operations. Those that most operators' "
              "samples call, and how many that are:", "", "| " * COLUMNS + "|", "|---" * COLUMNS + "|"]
    lines += [f"| {' | '.join(most[row::rows])} |" for row in range(rows)]
    return "\n".join(lines) + "\n"


def kind_of(detail: str) -> str:
    """The reason without what is particular to one program."""
    detail = detail.partition(": ")[2] if detail.startswith("sample ") else detail
    if detail.startswith("Graph break at "):
        # "Graph break at FILE:LINE in FUNCTION: what: which"
        detail = "graph break: " + detail.partition(" in ")[2].partition(": ")[2]
        detail = detail.partition(" [")[0]
    return ": ".join(detail.split(": ")[:2])[:140]


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--dtypes", nargs="*", default=["float32"], choices=DTYPES)
    parser.add_argument("--forms", nargs="*", default=list(FORMS), choices=FORMS)
    parser.add_argument("--samples", type=int, default=SAMPLES)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--start", type=int, default=0, help="the first operator of a slice")
    parser.add_argument("--step", type=int, default=1, help="every how many operators")
    parser.add_argument("--verbose", action="store_true")
    parser.add_argument("--again", nargs="*", default=[], help="outcomes of earlier runs: try what failed again")
    parser.add_argument("--json", help="file for the outcomes, a line of JSON each")
    parser.add_argument("--write", help="file for the report, such as docs/operators.md")
    parser.add_argument("--work", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        work(options)
        return 0
    before = earlier(options.again)
    if options.again and not options.only:
        options.only = [name for name, outcomes_ in before.items() if any(o.status in FAILING for o in outcomes_)]
    with tempfile.TemporaryDirectory() as folder:
        os.environ.setdefault("DYNAMO_LITE_CACHE_DIR", folder)
        found = sweep(options) if options.only or not options.again else []
    again = {(o.name, o.dtype) for o in found}
    kept = [o for outcomes_ in before.values() for o in outcomes_ if (o.name, o.dtype) not in again]
    found = sorted(kept + found, key=lambda o: (DTYPES.index(o.dtype), FORMS.index(o.form)) if o.form in FORMS else
                   (len(DTYPES), 0))
    if options.json:
        with open(options.json, "w") as file:
            file.writelines(json.dumps(dataclasses.asdict(o)) + "\n" for o in found)
    text = report(found)
    if options.write:
        with open(options.write, "w") as file:
            file.write(HEAD + text)
    print(text)
    return 1 if any(o.status in FAILING for o in found) else 0


HEAD = """# Operators

Written by `benchmarks/operators.py`; its docstring says what is compared, and how. "Generated" means that kernels of
ours compute all of it, "library" that some of it is a call of an aten operation. Calls whose result in `out` depends,
in eager, on what was there before have no right answer and are left out: `native_batch_norm` of statistics with gaps.
The figures of float32 are of 8 samples of each operator, those of the other dtypes of 4.

"""

if __name__ == "__main__":
    sys.exit(main())
