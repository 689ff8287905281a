"""Looking inside: :func:`explain` reports what a call captured, :func:`export` gives the one graph of a function."""
from .explain import ExplainOutput, explain
from .export import ExportResult, export

__all__ = ["ExplainOutput", "ExportResult", "explain", "export"]
