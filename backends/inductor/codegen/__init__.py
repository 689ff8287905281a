"""Source code from programs: kernels, for C++ (`cpp`) and Triton (`triton`), and the wrapper that calls them.

May import `target`, `target_info`, `gpu_info`, `kept_choices`, `source_parts`, `prebuilt`, `codecache`, `scheduler`,
`ir`, `program`, `random`, `device_random` and `aot`; knows nothing of lowerings.
"""
