"""Source code from programs: kernels, for the one target that there is (`cpp`), and the wrapper that calls them.

May import `scheduler`, `ir`, `program`, `random` and `aot`; knows nothing of lowerings.
"""
