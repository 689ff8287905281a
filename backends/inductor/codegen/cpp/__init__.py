"""C++ code generation for kernels: `source.write_source` is the entry point, `kernel`, `body` and `contraction` write
the code, and the headers define the vectors that it uses.

This module imports nothing, so that a program whose graphs are all found in the cache never loads the code generators.
The package is a part of `codegen`, whose docstring says which modules may be imported.
"""
