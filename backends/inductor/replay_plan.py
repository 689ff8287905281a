"""The plan by which a program's calls are recorded once and replayed (CUDA graphs), as data that an artifact keeps.

A replay launches the same kernels with the same addresses. So an input is either read where it is (parameters, buffers,
inputs that the program writes), and a recording serves only calls with the same addresses; or it is copied to the
recording's own memory first. Invariant: a program without a refusal does nothing on the host that a replay would omit,
except what ``replay`` does itself: incrementing versions of written inputs, and making results that are views of
inputs.
"""
from __future__ import annotations

import dataclasses
import types
from collections.abc import Iterator
from typing import Any

import torch

from dynamo_lite.backends.aot.graph import AtenGraph, InputOutput, OutputAlias
from dynamo_lite.backends.aot.ops import Functionalized, RandomFill
from dynamo_lite.backends.inductor.device_random import reserve
from dynamo_lite.backends.inductor.program import BufferRef, ExternCall, Program
from dynamo_lite.runtime.sized_operators import NAMESPACE

aten = torch.ops.aten


@dataclasses.dataclass(frozen=True, slots=True)
class ReplayPlan:
    """Attributes:
        refusal: why calls are not recorded; "" if they are.
        device: index of the device of all tensors.
        boxed: whether the function takes a list of the inputs and empties it.
        fixed: indices of the inputs that are read where they are.
        copied: indices of the inputs that are copied first.
        numbers: indices of the inputs that are not tensors.
        layouts: indices of the tensors whose sizes or strides are symbols.
        written: indices of the inputs that the program writes, each as often as autograd's version counter is to rise.
    """

    refusal: str
    device: int = 0
    boxed: bool = False
    fixed: tuple[int, ...] = ()
    copied: tuple[int, ...] = ()
    numbers: tuple[int, ...] = ()
    layouts: tuple[int, ...] = ()
    written: tuple[int, ...] = ()


def plan_replay(aten_graph: AtenGraph, program: Program, scopes: dict[str, bool]) -> ReplayPlan | None:
    """The plan for recording a program's calls; None if no tensor is on a GPU, so that there is nothing to record.

    Args:
        aten_graph: the graph that the program was made of.
        scopes: the scopes that it runs in, see ``write_wrapper``.
    """
    devices = {spec.device for spec in program.buffers.values()}
    gpus = {device.index or 0 for device in devices if device.type == "cuda"}
    if not gpus:
        return None
    if any(isinstance(step, ExternCall) and step.target is reserve for step in program.steps):
        return ReplayPlan("its kernels draw random numbers, by the host's state of the generator")
    if len(gpus) > 1 or any(device.type != "cuda" for device in devices):
        return ReplayPlan(f"its tensors are on {', '.join(sorted(map(str, devices)))}")
    refusal = next(_refusals(aten_graph, program, scopes), "")
    if refusal:
        return ReplayPlan(refusal)
    nodes = aten_graph.placeholders
    tensors = [at for at, node in enumerate(nodes) if isinstance(node.meta["val"], torch.Tensor)]
    written = set(aten_graph.mutated)
    fixed = tuple(at for at in tensors if at in written or nodes[at].meta.get("static"))
    return ReplayPlan(
        "", gpus.pop(), scopes.get("boxed", False), fixed,
        copied=tuple(at for at in tensors if at not in fixed),
        numbers=tuple(at for at in range(len(nodes)) if at not in tensors),
        layouts=tuple(at for at in tensors if _is_symbolic(nodes[at].meta["val"])),
        written=tuple(at for at in sorted(written) for _ in range(nodes[at].meta["versions"])))


def _is_symbolic(value: torch.Tensor) -> bool:
    return not all(type(n) is int for n in (*value.shape, *value.stride()))


def _refusals(aten_graph: AtenGraph, program: Program, scopes: dict[str, bool]) -> Iterator[str]:
    """The reasons why a program's calls can't be recorded."""
    if aten_graph.inference:
        yield "it enters torch.inference_mode() itself"
    for recipe in aten_graph.outputs:
        if isinstance(recipe, OutputAlias) and isinstance(recipe.base, InputOutput) and (
                scopes.get("no_grad") or recipe.detach or recipe.chain is not None):
            yield "a result is a view of an input, of another type or with a part in autograd"
    for step in program.steps:
        if isinstance(step, ExternCall):
            reason = _refused(program, step)
            if reason:
                yield f"{_name(step.target)} {reason}" + (f" ({step.origin})" if step.origin else "")


def _name(target: Any) -> str:
    return target.__name__ if isinstance(target, types.FunctionType) else str(target)


def _refused(program: Program, step: ExternCall) -> str:
    """The reason why a library call can't be recorded; "" if it can."""
    if any(isinstance(value, torch.Generator) for value in (*step.args, *step.kwargs.values())):
        return "draws from a generator of the program's own"
    target = step.target.op if isinstance(step.target, (Functionalized, RandomFill)) else step.target
    if not isinstance(target, torch._ops.OpOverload):
        ours = getattr(target, "__module__", "").startswith("dynamo_lite.backends.")
        return "" if ours else "may do on the host what a replay would not"
    if target.namespace not in ("aten", "prims", NAMESPACE):
        return "is an operator of the program's, which may do on the host what a replay would not"
    waits = _SYNCS & set(target.tags) or target.overloadpacket in _WAITING or (
        target._opname.startswith(_WAITING_FAMILIES)) or target.overloadpacket in _BY_INDEX and any(
        program.buffers[name].dtype in (torch.bool, torch.uint8) for name in _indices(step))
    return "waits for the GPU" if waits else ""


def _indices(step: ExternCall) -> list[str]:
    """The index tensors of a write by index. The elements of boolean ones are counted on the host."""
    return [ref.name for ref in step.args[1] if isinstance(ref, BufferRef)]


_SYNCS = {getattr(torch.Tag, name) for name in (
    "data_dependent_output", "dynamic_output_shape", "cudagraph_unsafe") if hasattr(torch.Tag, name)}
# Operations whose results have known sizes, but whose CUDA kernels copy something to the host or wait for it: counts of
# selected elements, the status of a factorization. Missing ones are noticed when the recording fails.
_WAITING = frozenset({
    aten.masked_scatter, aten.equal, aten.repeat_interleave, aten.bincount, aten.histc, aten._ctc_loss,
    aten.multinomial, aten._unique2, aten.embedding_renorm, aten._pad_packed_sequence, aten._pack_padded_sequence,
    aten.cholesky_inverse, aten.lu_unpack, aten.ormqr, aten.geqrf, aten.combinations})
_BY_INDEX = frozenset({aten.index_put, aten._index_put_impl, aten._unsafe_index_put})
_WAITING_FAMILIES = ("linalg_", "_linalg_", "cholesky", "_sparse", "sparse_", "to_sparse")
