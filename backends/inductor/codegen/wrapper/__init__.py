"""The wrapper of a graph: Python source that allocates memory, calls kernels and library operations, and builds the
results.

A part of `codegen`, whose docstring says what may be imported.
"""
from dynamo_lite.backends.inductor.codegen.wrapper.entries import EntrySpec
from dynamo_lite.backends.inductor.codegen.wrapper.library import library_program
from dynamo_lite.backends.inductor.codegen.wrapper.python import WrapperSource, write_wrapper

__all__ = ["EntrySpec", "WrapperSource", "library_program", "write_wrapper"]
