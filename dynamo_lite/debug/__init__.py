"""Looking inside: :func:`explain` reports what a call captured, :func:`export` gives the one graph of a function,
:func:`generated_code` what the backend wrote; `rules` prints the table of calls.

May import all of dynamo_lite; nothing but the package itself and `__main__` imports it.
"""
from .explain import ExplainOutput, explain
from .export import ExportResult, export
from .generated import generated_code

__all__ = ["ExplainOutput", "ExportResult", "explain", "export", "generated_code"]
