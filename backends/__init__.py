"""Backends, which turn a captured graph into something that runs, and their registry.

Importing this package is cheap: a backend's implementation is imported when it is first looked up. From the front end
it may import `config`, `exc`, `log` and three modules of `runtime` (whose docstring names them); from this package the
front end may import `registry` and `metrics`.
"""
from dynamo_lite.backends import eager as _eager  # noqa: F401  (importing it registers it)
from dynamo_lite.backends.registry import list_backends, lookup_backend, register_backend, register_lazy_backend

__all__ = ["list_backends", "lookup_backend", "register_backend", "register_lazy_backend"]

register_lazy_backend("aot_eager", "dynamo_lite.backends.aot_eager", "aot_eager")
register_lazy_backend(
    "aot_eager_decomp_partition", "dynamo_lite.backends.aot_eager", "aot_eager_decomp_partition")
register_lazy_backend("inductor_lite", "dynamo_lite.backends.inductor", "inductor_lite")
