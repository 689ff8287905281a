"""Imports inside functions of modules that are not loaded before the first call."""
from __future__ import annotations

import sys
import types
from collections.abc import Callable, Iterator
from importlib.abc import Loader
from importlib.machinery import ModuleSpec

import pytest
import torch

import dynamo_lite
from dynamo_lite import log


class Doubling(Loader):
    """A finder and loader of modules `late_*`, each with a function `double`."""

    def find_spec(self, name: str, path: object, target: object = None) -> ModuleSpec | None:
        return ModuleSpec(name, self) if name.startswith("late_") else None

    def exec_module(self, module: types.ModuleType) -> None:
        exec("def double(x):\n    return x * 2\n", vars(module))


@pytest.fixture(autouse=True)
def _late() -> Iterator[None]:
    finder = Doubling()
    sys.meta_path.append(finder)  # type: ignore[arg-type]
    yield
    sys.meta_path.remove(finder)  # type: ignore[arg-type]
    for name in [name for name in sys.modules if name.startswith("late_")]:
        del sys.modules[name]


class Backend:
    def __init__(self) -> None:
        import late_backend  # type: ignore[import-not-found]

        self.module = late_backend


def kept_by(cache: dict[str, Backend]) -> Callable[[torch.Tensor], torch.Tensor]:
    def operation(x: torch.Tensor) -> torch.Tensor:
        """As in einops: a callee imports a module at its first call, and keeps what it has made of it."""
        if "backend" not in cache:
            cache["backend"] = Backend()
        return cache["backend"].module.double(x) + 1  # type: ignore[no-any-return]

    def program(x: torch.Tensor) -> torch.Tensor:
        return operation(operation(x * 3)).sin()

    return program


def imports_itself(x: torch.Tensor) -> torch.Tensor:
    from late_own import double  # type: ignore[import-not-found]

    return double(x) + 1  # type: ignore[no-any-return]


def counts(program: Callable[..., torch.Tensor], calls: int = 3) -> list[tuple[int, int, int]]:
    """Graphs, breaks and recompiles after each call."""
    compiled, found = dynamo_lite.compile(program, backend="eager"), []
    for n in range(calls):
        x = torch.arange(4.0) + n
        assert torch.equal(compiled(x), x * 2 + 1 if program is imports_itself else (x * 12 + 3).sin())
        found.append(tuple(log.counters().get(name, 0) for name in ("graphs", "graph_breaks", "recompiles")))
    return found  # type: ignore[return-value]


def test_what_a_callee_imports_at_its_first_call_breaks_that_call_alone() -> None:
    first, second, third = counts(kept_by({}))
    assert first[1] > 0 and first[2] == 0
    assert second == third == (first[0] + 1, first[1], 1)


def test_an_import_of_the_functions_own() -> None:
    assert counts(imports_itself) == [(1, 1, 0), (2, 1, 1), (2, 1, 1)]


def test_a_module_that_is_never_found_is_no_reason_to_compile_again() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        try:
            import no_such_module  # type: ignore[import-not-found]
        except ImportError:
            return x + 1
        return no_such_module.double(x)  # type: ignore[no-any-return]

    compiled = dynamo_lite.compile(program, backend="eager")
    for _ in range(3):
        assert torch.equal(compiled(torch.ones(3)), torch.ones(3) + 1)
    assert (log.counters()["graphs"], log.counters().get("recompiles", 0)) == (1, 0)
