"""Which modules and optimizers of torch's own tests are equal to eager when compiled: module_db and optim_db.

    python benchmarks/coverage_torch.py [--only NAME ...] [--inputs N] [--db modules|optimizers] [--backend NAME]

Every entry's module is built with its first inputs, in training and in evaluation mode; forward (and backward where an
output needs it) runs in eager and compiled, with backend="eager" if nothing else is said, from the same random state.
Compared are results with their layouts, gradients of parameters and inputs, and the state left behind.
"""
from __future__ import annotations

import argparse
import copy
import sys
import warnings
from collections.abc import Iterator
from typing import Any

import torch
from torch.testing._internal.common_modules import module_db
from torch.testing._internal.common_optimizers import optim_db
from torch.utils import _pytree as pytree

import dynamo_lite

# torch's optimizers compute their bias corrections in float32 while compiling, in double precision otherwise.
TOLERANCES = {"eager": (1e-5, 1e-7), "inductor_lite": (1e-4, 2e-5)}


def _tensors(tree: Any) -> list[torch.Tensor]:
    return [leaf for leaf in pytree.tree_leaves(tree) if isinstance(leaf, torch.Tensor)]


def _same(got: Any, want: Any, backend: str) -> bool:
    a, b = _tensors(got), _tensors(want)
    rtol, atol = TOLERANCES[backend]
    return len(a) == len(b) and all(
        x.dtype == y.dtype and x.shape == y.shape and (x.layout != torch.strided or x.stride() == y.stride())
        and torch.allclose(x.detach(), y.detach(), rtol, atol, equal_nan=True) for x, y in zip(a, b)
    )


def _run(module: Any, args: Any, kwargs: Any, call: Any) -> tuple[Any, ...]:
    args, kwargs = copy.deepcopy((args, kwargs))
    torch.manual_seed(0)
    out = call(*args, **kwargs)
    needs = [t for t in _tensors(out) if t.requires_grad]
    if needs:
        sum(t.sum() for t in needs if not t.is_complex()).backward()  # type: ignore[union-attr]
    return out, [p.grad for p in module.parameters()], [t.grad for t in _tensors((args, kwargs)) if t.is_leaf]


def check_module(info: Any, training: bool, inputs: int, backend: str = "eager") -> str:
    """pass, skip, or what went wrong, for the first inputs of an entry."""
    samples = info.module_inputs_func(
        info, device="cpu", dtype=torch.float32, requires_grad=True, training=training
    )
    done = 0
    for sample in samples:
        if done == inputs:
            break
        given = sample.forward_input
        if given is None:
            continue
        torch.manual_seed(0)
        try:
            module = info.module_cls(*sample.constructor_input.args, **sample.constructor_input.kwargs).train(training)
            other = copy.deepcopy(module)
            want = _run(module, given.args, given.kwargs, module)
        except Exception:
            continue  # not for this device, or an input that is meant to fail
        dynamo_lite.reset()
        try:
            got = _run(other, given.args, given.kwargs, dynamo_lite.compile(other, backend=backend))
        except Exception as error:
            return f"{type(error).__name__}: {str(error).splitlines()[0][:160]}"
        if not _same(got, want, backend) or not _same(other.state_dict(), module.state_dict(), backend):
            return f"differs from eager, input {done}"
        done += 1
    return "pass" if done else "skip"


def check_optimizer(info: Any, inputs: int, backend: str = "eager") -> str:
    """pass, or what went wrong, for the first settings of an entry."""
    for number, settings in enumerate(info.optim_inputs_func(device="cpu")):
        if number == inputs:
            break
        results: list[Any] = []
        for how in ("eager", "compiled"):
            torch.manual_seed(0)
            parameters = [torch.nn.Parameter(torch.randn(3, 4)), torch.nn.Parameter(torch.randn(5))]
            dynamo_lite.reset()
            try:
                optimizer = info.optim_cls(parameters, **settings.kwargs)
                if info.step_requires_closure:
                    def step(optimizer: Any = optimizer, parameters: Any = parameters) -> None:
                        def closure() -> torch.Tensor:
                            optimizer.zero_grad()
                            loss = sum((p**2).sum() for p in parameters)
                            loss.backward()
                            return loss

                        optimizer.step(closure)
                else:
                    step = optimizer.step
                call = step if how == "eager" else dynamo_lite.compile(step, backend=backend)
                for _ in range(3):
                    for parameter in parameters:
                        parameter.grad = parameter.detach().sin()
                    call()
            except Exception as error:
                if how == "eager":
                    results[:] = [None, None]
                    break
                return f"{settings.desc}: {type(error).__name__}: {str(error).splitlines()[0][:160]}"
            results.append((parameters, optimizer.state_dict()))
        if not _same(results[0], results[1], backend):
            return f"{settings.desc}: differs from eager"
    return "pass"


def results(db: str, only: list[str], inputs: int, backend: str) -> Iterator[tuple[str, str]]:
    """(entry, outcome) for each entry, modules in both modes."""
    if db in ("all", "modules"):
        for info in module_db:
            for training in (False, True):
                name = f"{info.name}{' training' if training else ''}"
                if not only or any(part in name for part in only):
                    yield name, check_module(info, training, inputs, backend)
    if db in ("all", "optimizers"):
        for optimizer in optim_db:
            cls: Any = optimizer.optim_cls  # which torch calls an Optimizer, but is its class
            name = cls.__name__
            if not only or any(part in name for part in only):
                yield name, check_optimizer(optimizer, inputs, backend)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--inputs", type=int, default=2)
    parser.add_argument("--db", default="all", choices=["all", "modules", "optimizers"])
    parser.add_argument("--backend", default="eager", choices=TOLERANCES)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    passed = failed = skipped = 0
    for name, outcome in results(options.db, options.only, options.inputs, options.backend):
        passed += outcome == "pass"
        skipped += outcome == "skip"
        if outcome not in ("pass", "skip"):
            failed += 1
            print(f"{name}: {outcome}", flush=True)
    print(f"{passed} of {passed + failed} equal eager; {skipped} have no input that runs here")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
