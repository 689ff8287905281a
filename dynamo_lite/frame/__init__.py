"""What becomes of a frame: whether it is compiled, the phases of a compile, what is kept of it; and the public
entries.

`convert_frame` has the phases from top to bottom, one module each (`decide`, `trace`, `finish`, `emit`, `entry`);
`request` is what they are given, `recompiles` what earlier compiles have taught. `eval_frame`, `marks` and `stance`
are what users call.

May import everything but `debug`; nothing but `debug` and the package itself imports it.
"""
