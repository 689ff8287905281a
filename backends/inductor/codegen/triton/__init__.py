"""Triton as the language of kernels: `source.write_source` is the entry point; `kernel`, `body` and `reduce` write the
text, `blocks` decides block sizes, `helpers` holds functions that the language lacks, and `loading` makes a file's
functions callable.

Nothing is imported here, and Triton is imported only when the first kernel is loaded. This package is part of
`codegen`, which states the rules for imports.
"""
