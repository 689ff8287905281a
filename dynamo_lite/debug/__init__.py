"""Inspection: :func:`explain` reports the graphs of a call, :func:`export` returns the single graph of a function,
:func:`generated_code` the source code that the backend generated; `rules` prints the table of calls.

May import all of dynamo_lite; nothing but the package itself and `__main__` imports it.
"""
from .explain import ExplainOutput, explain
from .export import ExportResult, export
from .generated import generated_code

__all__ = ["ExplainOutput", "ExportResult", "explain", "export", "generated_code"]
