"""One model of the survey: built, run in eager, captured, compared. A row is plain data.

Invariant: every call has inputs of its own and the same random state, so what a call leaves behind changes no other.
"""
import collections.abc
import copy
import dataclasses
import signal
import time
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import torch
from coverage_build import NotBuilt, build

# Relative to the larger of 1 and the largest value of the tensor. The eager backend runs eager's own operations.
TOLERANCE = {"eager": 1e-5, "inductor_lite": 1e-3}
TEXT = {"input_ids", "attention_mask", "token_type_ids", "decoder_input_ids", "mm_token_type_ids"}


class TimedOut(BaseException):
    """No Exception, so that no handler of a library's takes it."""


def _alarm(*_: Any) -> None:
    raise TimedOut


def leaves(value: Any, seen: dict[int, Any] | None = None) -> Iterator[Any]:
    """Tensors, numbers and names of the types around them, in order, of a result of any form."""
    # Values are kept, so that an id stands for one of them.
    seen = {} if seen is None else seen
    if isinstance(value, (torch.Tensor, int, float, complex, str, type(None))):
        yield value
        return
    if id(value) in seen:
        return
    seen[id(value)] = value
    yield type(value).__qualname__
    if isinstance(value, collections.abc.Mapping):
        for key, item in value.items():
            yield str(key)
            yield from leaves(item, seen)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from leaves(item, seen)
    elif dataclasses.is_dataclass(value) or "transformers" in type(value).__module__:
        if not isinstance(value, torch.nn.Module) and hasattr(value, "__dict__"):
            yield from leaves(dict(vars(value)), seen)


def difference(want: Any, got: Any) -> float:
    """The largest difference, relative to each tensor's largest value (at least 1); infinite if the form differs."""
    a, b = list(leaves(want)), list(leaves(got))
    if len(a) != len(b):
        return float("inf")
    worst = 0.0
    for p, q in zip(a, b):
        if not isinstance(p, torch.Tensor) or not isinstance(q, torch.Tensor):
            if type(p) is not type(q) or p != q and not (p != p and q != q):
                return float("inf")
        elif (p.shape, p.dtype, p.requires_grad) != (q.shape, q.dtype, q.requires_grad):
            return float("inf")
        elif p.numel() and p.layout is torch.strided:
            wide = torch.complex128 if p.is_complex() else torch.float64
            p, q = p.detach().to(wide), q.detach().to(wide)
            if not torch.equal(torch.isfinite(p), torch.isfinite(q)):
                return float("inf")
            p, q = torch.nan_to_num(p), torch.nan_to_num(q)
            worst = max(worst, ((p - q).abs().max() / max(1.0, p.abs().max().item())).item())
    return worst


def call(model: Callable[..., Any], inputs: dict[str, Any]) -> Any:
    with torch.no_grad():
        torch.manual_seed(1)
        return model(**copy.deepcopy(inputs))


def told(model: Callable[..., Any], inputs: dict[str, Any]) -> Any:
    """What eager gives where the model asks whether it is being compiled, and is told so: some compute otherwise."""
    asked = torch.compiler.is_compiling
    torch.compiler.is_compiling = lambda: True
    try:
        return call(model, inputs)
    except Exception:
        return None
    finally:
        torch.compiler.is_compiling = asked


def gradients(model: torch.nn.Module, function: Callable[..., Any], inputs: dict[str, Any]) -> list[Any]:
    """The parameters' gradients of the sum of all floating results."""
    torch.manual_seed(1)
    model.zero_grad()
    results = [t for t in leaves(function(**copy.deepcopy(inputs))) if isinstance(t, torch.Tensor) and t.requires_grad]
    torch.stack([t.float().abs().sum() for t in results]).sum().backward()
    return [None if p.grad is None else p.grad.detach().clone() for p in model.parameters()]


def shorter(inputs: dict[str, Any]) -> dict[str, Any] | None:
    """The same inputs with other lengths, where they are text only."""
    if not set(inputs) <= TEXT:
        return None
    return {k: v[:, : v.shape[1] - 3].clone() for k, v in inputs.items()}


def lite(model: Any, backend: str, fullgraph: bool) -> Any:
    import dynamo_lite

    dynamo_lite.reset()
    dynamo_lite.log.reset()
    return dynamo_lite.compile(model, backend=backend, fullgraph=fullgraph)


def counter(name: str) -> int:
    import dynamo_lite

    return dynamo_lite.log.counters().get(name, 0)


def other_length(model: Any, compiled: Any, inputs: dict[str, Any], eager: Callable[..., Any]) -> dict[str, Any]:
    """What a call with shorter texts gives, where the model takes them, compared with what `eager` makes of them."""
    other = shorter(inputs)
    if other is None:
        return {}
    try:
        want = eager(model, other)
    except Exception:
        return {}
    if want is None:
        return {}
    before = counter("graphs")
    found = difference(want, call(compiled, other))
    return {"shorter_difference": found, "shorter_graphs": counter("graphs") - before}


def try_lite(model: Any, inputs: dict[str, Any], backend: str, train: bool, both: bool) -> dict[str, Any]:
    """Captured with fullgraph=True, and without where it is refused, or always with `both`; called twice, with another
    length, perhaps with a backward."""
    import dynamo_lite

    row: dict[str, Any] = {}
    want, limit = call(model, inputs), TOLERANCE[backend]
    again = difference(want, call(model, inputs))
    if again > limit:
        return {"why_not_run": "eager gives another result the second time"}
    started = time.perf_counter()
    compiled = lite(model, backend, True)
    try:
        found = call(compiled, inputs)
        row["fullgraph_difference"], row["one_graph"] = difference(want, found), True
        if row["fullgraph_difference"] > limit:
            # A model that asks computes something else: what is compiled is compared with eager that is told the same.
            as_told = difference(told(model, inputs), found)
            if as_told <= limit:
                row.update(told=True, fullgraph_difference=as_told)
                want = told(model, inputs)
    except dynamo_lite.exc.Unsupported as error:
        row.update(one_graph=False, kind=error.kind, reason=error.reason, where=short(error.where))
    except Exception as error:
        row.update(one_graph=False, why_not_run="fullgraph: " + reason(error))
    row["seconds"] = round(time.perf_counter() - started, 2)
    try:
        if both or not row["one_graph"]:
            started = time.perf_counter()
            compiled = lite(model, backend, False)
            row["difference"] = difference(want, call(compiled, inputs))
            row["seconds_with_breaks"] = round(time.perf_counter() - started, 2)
        row["graphs"], row["breaks"] = counter("graphs"), counter("graph_breaks")
        row["second_difference"] = difference(want, call(compiled, inputs))
        row["second_graphs"] = counter("graphs") - row["graphs"]
        row.update(other_length(model, compiled, inputs, told if row.get("told") else call))
        if train:
            try:
                want = gradients(model, model, inputs)
            except RuntimeError as error:
                row["no_backward"] = reason(error)
            else:
                row["gradient_difference"] = difference(want, gradients(model, lite(model, backend, False), inputs))
    except Exception as error:
        row["why_not_run"] = reason(error)
    row["internal_errors"], row["skipped"] = counter("internal_errors"), counter("skipped_frames")
    found = [row[k] for k in row if k.endswith("difference")]
    row["equal"] = "why_not_run" not in row and bool(found) and max(found) <= limit
    return row


def try_torch(model: Any, inputs: dict[str, Any]) -> dict[str, Any]:
    """The same of torch.compile, with its eager backend."""
    row: dict[str, Any] = {"one_graph": False}
    want = call(model, inputs)
    started = time.perf_counter()
    for fullgraph in (True, False):
        torch.compiler.reset()
        try:
            found = call(torch.compile(model, backend="eager", fullgraph=fullgraph), inputs)
        except Exception as error:
            row["reason" if fullgraph else "why_not_run"] = reason(error)
            continue
        row["seconds"] = round(time.perf_counter() - started, 2)
        row["one_graph"], row["difference"] = fullgraph, difference(want, found)
        if row["difference"] > TOLERANCE["eager"]:
            as_told = difference(told(model, inputs), found)
            if as_told <= TOLERANCE["eager"]:
                row.update(told=True, difference=as_told)
        break
    row["equal"] = row.get("difference", float("inf")) <= TOLERANCE["eager"]
    return row


def try_model(model_type: str, system: str, options: Any) -> dict[str, Any]:
    """One row: whether the model was built, is one graph, equals eager, and why not."""
    import transformers

    transformers.logging.set_verbosity_error()
    row: dict[str, Any] = {"type": model_type, "system": system, "backend": options.backend, "built": False}
    signal.signal(signal.SIGPROF, _alarm)
    signal.setitimer(signal.ITIMER_PROF, options.seconds)  # processor time, whatever else the machine does
    try:
        model, inputs, way = build(model_type)
        row.update(built=True, way=way, model=type(model).__name__, inputs=sorted(inputs))
        started = time.perf_counter()
        call(model, inputs)
        row["seconds_eager"] = round(time.perf_counter() - started, 3)
        if system == "dynamo_lite":
            row.update(try_lite(model, inputs, options.backend, options.train, options.both))
        else:
            row.update(try_torch(model, inputs))
    except NotBuilt as error:
        row.update(why_not_built=str(error), attempts=error.errors)
    except TimedOut:
        key = "why_not_run" if row["built"] else "why_not_built"
        row[key] = f"more than {options.seconds} s of processor time"
        row["equal"] = row["one_graph"] = False
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    return row


def reason(error: Exception) -> str:
    lines = str(error).strip().splitlines() or [""]
    place = traceback.extract_tb(error.__traceback__)[-1]
    return (f"{type(error).__name__}: " + " | ".join(line.strip() for line in lines[:3])[:300]
            + f" [{short(place.filename)}:{place.lineno}]")


def short(where: str) -> str:
    """A place without the folder that packages, or Python itself, are installed in."""
    return where.split("site-packages/")[-1].split("/python3.11/")[-1]
