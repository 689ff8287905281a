"""The registry of backends by name.

A backend is any callable ``(gm: torch.fx.GraphModule, example_inputs: list) -> callable``. The callable that it returns
gets the graph's inputs as positional arguments and returns the graph's outputs as a tuple or list. A backend that has a
parameter ``options`` also gets the ``options`` dict given to ``compile``.

Invariant: a name stands for one callable, or for the place to import it from until it is first looked up.
"""
from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar, overload

from dynamo_lite import exc


class KeptFiles(NamedTuple):
    """Functions by which a backend keeps files for the next process; its attribute ``kept_files``.

    Attributes:
        read: returns the bytes kept under a key with a suffix, or None.
        write: keeps bytes; raises OSError or exc.CacheError if there is no place for them.
    """

    read: Callable[[str, str], bytes | memoryview | None]
    write: Callable[[str, str, bytes], None]


Backend = Callable[..., Callable[..., Any]]
B = TypeVar("B", bound=Backend)


@dataclasses.dataclass(frozen=True, slots=True)
class _Lazy:
    """The place that a backend is to be imported from."""

    module: str
    attribute: str


_backends: dict[str, Backend | _Lazy] = {}
_at_reset: list[Callable[[], None]] = []


@overload
def register_backend(fn: B, *, name: str | None = None) -> B: ...
@overload
def register_backend(fn: str | None = None, *, name: str | None = None) -> Callable[[B], B]: ...


def register_backend(fn: Any = None, *, name: str | None = None) -> Any:
    """Make a backend known by name, as a decorator (``@register_backend``, ``@register_backend(name="mine")``) or a
    call.

    Registering a name again replaces the earlier backend.

    Args:
        fn: the backend; or its name, when used as ``@register_backend("mine")``.
        name: its name; the function's own when absent.

    Returns:
        the backend; without one, a decorator.

    Raises:
        TypeError: the backend can't be called, or has no name.
    """
    if isinstance(fn, str):
        name, fn = fn, None
    if fn is None:
        return lambda decorated: register_backend(decorated, name=name)
    if not callable(fn):
        raise TypeError(f"a backend is a callable (graph_module, example_inputs) -> callable, not {fn!r}")
    name = name or getattr(fn, "__name__", None)
    if name is None:
        raise TypeError(f"register_backend needs name=... for {fn!r}, which has no name of its own")
    _backends[name] = fn
    return fn


def register_lazy_backend(name: str, module: str, attribute: str) -> None:
    """Make a backend known by name; its module is imported when it is first looked up."""
    _backends[name] = _Lazy(module, attribute)


def list_backends() -> list[str]:
    """The names of the known backends, sorted."""
    return sorted(_backends)


def lookup_backend(backend: str | Backend) -> Backend:
    """The backend of that name; a callable stands for itself.

    Raises:
        exc.InvalidBackend: nothing is registered by that name.
    """
    if callable(backend):
        return backend
    found = _backends.get(backend) if isinstance(backend, str) else None
    if found is None:
        raise exc.InvalidBackend(backend, list_backends())
    if isinstance(found, _Lazy):
        found = _backends[backend] = getattr(importlib.import_module(found.module), found.attribute)
    return found


def at_reset(release: Callable[[], None]) -> None:
    """Makes ``dynamo_lite.reset()`` call ``release``, which frees what a backend keeps between calls."""
    _at_reset.append(release)


def reset_backends() -> None:
    """Lets backends free what they keep between calls."""
    for release in _at_reset:
        release()
