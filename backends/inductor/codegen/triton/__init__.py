"""Triton for kernels: `source.write_source` is the door; `kernel`, `body` and `reduce` write, `blocks` decides what a
block is, `helpers` holds functions that the language lacks, `loading` makes a file's functions callable.

Nothing is imported here, and Triton itself by `loading` alone. A part of `codegen`: what may be imported is said there.
"""
