"""What turns a captured graph into something that runs: the registry of backends, and the backends.

Importing this package is cheap: a backend's implementation is imported when it is first looked up. Of the front end
it may import `config`, `exc`, `log` and three modules of `runtime` (its docstring names them); of this package the
front end may import `registry` and `metrics`.
"""
from dynamo_lite.backends import eager as _eager  # noqa: F401  (registers itself)
from dynamo_lite.backends.registry import list_backends, lookup_backend, register_backend, register_lazy_backend

__all__ = ["list_backends", "lookup_backend", "register_backend", "register_lazy_backend"]

register_lazy_backend("aot_eager", "dynamo_lite.backends.aot_eager", "aot_eager")
register_lazy_backend(
    "aot_eager_decomp_partition", "dynamo_lite.backends.aot_eager", "aot_eager_decomp_partition")
register_lazy_backend("inductor_lite", "dynamo_lite.backends.inductor", "inductor_lite")
