"""Programs for a GPU on a machine without one: captured on CPU tensors, compiled for CUDA tensors, and run on CPU
tensors again, their kernels in Triton's interpreter. What is not run is Triton's launcher.

Graphs are recorded on CPU tensors and then moved, since autograd and indexing look for a GPU when they meet its
tensors; with ``place`` they are recorded where they run.

Needs ``TRITON_INTERPRET=1``; for processes of tests' own.
"""
import dataclasses
import functools

import torch
from libdevice_in_torch import libdevice
from same_results import same

import dynamo_lite
from dynamo_lite.backends.aot.decompositions import FOR_KERNELS
from dynamo_lite.backends.inductor import artifact as artifacts
from dynamo_lite.backends.inductor.codegen.triton.launch import launches_of
from dynamo_lite.backends.inductor.codegen.triton.loading import load
from dynamo_lite.backends.inductor.compile import compile_graph
from dynamo_lite.backends.inductor.pipeline import BY_RULE, lower_and_schedule, target_named
from dynamo_lite.backends.inductor.replay import replayed, report_refusal
from dynamo_lite.backends.inductor.route import Route

CPU = torch.device("cpu")


class Gpu:
    """A backend.

    Attributes:
        artifacts: what was compiled, in order.
        launches: symbols of the kernels that ran, with the device that was current.
        devices: that were made current, and left.
        recorder: with one, calls are recorded and replayed.
        tuning: what is decided how.
        clock: what measures forms of kernels.
    """

    def __init__(self, place=None, recorder=None, tuning=BY_RULE, clock=None):
        self.place, self.recorder, self.tuning, self.clock = place, recorder, tuning, clock
        self.artifacts, self.launches, self.devices = [], [], [0]

    def __call__(self, gm, examples):
        self.mode = gm.meta["fake_mode"]
        if self.place is not None:
            names = [node.name for node in gm.graph.nodes if node.op == "placeholder"]
            examples = [self._moved(value, self.place(name)) for name, value in zip(names, examples)]
        return compile_graph(gm, examples, Route(FOR_KERNELS, self._build))

    def _moved(self, value, device):
        if isinstance(value, torch.device):
            return torch.device(device)
        if not isinstance(value, torch.Tensor):
            return value
        with self.mode, torch.no_grad():
            return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=device)

    def _move(self, graph):
        for node in graph.nodes:
            node.args, node.kwargs = torch.fx.node.map_aggregate(
                (node.args, node.kwargs), lambda v: self._moved(v, "cuda:0"))
            if "val" in node.meta:
                node.meta["val"] = torch.fx.node.map_aggregate(node.meta["val"], lambda v: self._moved(v, "cuda:0"))

    def _build(self, aten, scopes):
        if self.place is None:
            self._move(aten.graph)
        program = lower_and_schedule(aten.graph, aten.constants, target_named("cuda", self.tuning))
        made = artifacts.write(aten, program, scopes, self.recorder is not None)
        self.artifacts.append(made)
        names = {name: CPU if isinstance(value, torch.device) else value
                 for name, value in made.wrapper.namespace.items()}
        call = artifacts._load(dataclasses.replace(made.wrapper, namespace=names), None, self._launchers(made))
        if made.replay is not None:
            if made.replay.refusal:
                report_refusal(made.replay.refusal)
            else:
                call = replayed(call, made.replay, self.recorder)
        call.generated_code = (made.source, made.wrapper.python)
        call.mutated_inputs, call.raises_before_writes = made.mutated, made.raises_before_writes
        return call, None

    def _launchers(self, made):
        found = {"exchange_device": self._exchange, "restore_device": self._restore,
                 "current_stream": lambda index: 100 + index}
        for index in made.gpus:
            names = load(made.source)
            names["libdevice"] = libdevice
            names.update({f"run_{name}": self._runner(name, names[name], *described[:3])
                          for name, described in names["SIGNATURES"].items()})
            found |= {artifacts.launcher_of(name, index): value
                      for name, value in launches_of(names, self.clock).items()}
        return found

    def _runner(self, name, kernel, types, blocks, warps):
        def run(programs, stream, *args):
            assert stream == 100 + self.devices[-1] and len(args) == len(types)
            for arg, kind in zip(args, types.values()):
                assert isinstance(arg, torch.Tensor) is kind.startswith("*")
            self.launches.append((name, self.devices[-1]))
            launch = functools.partial(kernel[(programs,)], *args, **blocks, num_warps=warps)
            if self.recorder is None:
                launch()
            else:
                self.recorder.launch(launch, [arg for arg in args if isinstance(arg, torch.Tensor)])

        return run

    def _exchange(self, index):
        self.devices.append(index)
        return self.devices[-2]

    def _restore(self, index):
        self.devices.append(index)


def check(fn, *args, tolerance=1e-5, backend=None, grad=False):
    """Compares results, and gradients, with eager's; what the backend has seen."""
    gpu = backend or Gpu()
    compiled = dynamo_lite.compile(fn, backend=gpu)
    mine, theirs = ([a.detach().clone().requires_grad_(a.requires_grad) if isinstance(a, torch.Tensor) else a
                     for a in args] for _ in range(2))
    with torch.set_grad_enabled(grad):
        got, want = compiled(*mine), fn(*theirs)
        same(got, want, tolerance)
        if grad:
            for a, b in zip(*map(_flat, (got, want))):
                if b.requires_grad:
                    g = torch.randn_like(b)
                    a.backward(g, retain_graph=True)
                    b.backward(g, retain_graph=True)
    for a, b in zip(mine, theirs):
        if isinstance(a, torch.Tensor):
            same(a.detach(), b.detach(), tolerance)
            if b.grad is not None:
                same(a.grad, b.grad, tolerance)
    assert gpu.devices[-1] == 0
    return gpu


def _flat(value):
    return list(value) if isinstance(value, tuple) else [value]
