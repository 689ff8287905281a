"""Triton as the language of kernels: `source.write_source` is the entry point; `kernel`, `body` and `reduce` write the
text, `blocks` decides block sizes, `helpers` holds functions that the language lacks, and `loading` makes a file's
functions callable.

This package imports nothing here; only `loading` imports Triton. It is part of `codegen`, which states the rules for
imports.
"""
