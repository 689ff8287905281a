"""What becomes of a frame: whether it is captured, how it is converted, what is kept of it; and the public entries.

May import everything but `debug`; nothing but `debug` and the package itself imports it.
"""
