"""C++ for kernels. ``source.write_source`` is the door.

Nothing is imported here, so that a program whose graphs are all found in the cache does without the writers.
"""
