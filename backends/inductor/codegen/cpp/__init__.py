"""C++ for kernels: `source.write_source` is the door, `kernel`, `body` and `contraction` write, the headers hold
vectors.

Nothing is imported here, so that a program whose graphs are all found in the cache does without the writers. A part
of `codegen`: what may be imported is said there.
"""
