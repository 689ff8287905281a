"""The handling of a frame: the decision to compile it, the phases of a compile, its cache entries; and the public
entry points.

`convert_frame` has the phases from top to bottom, one module each (`decide`, `trace`, `finish`, `emit`, `entry`);
`request` holds their inputs, `recompiles` the knowledge from earlier compiles. `eval_frame`, `marks` and `stance`
hold the functions that users call.

May import everything but `debug`; nothing but `debug` and the package itself imports it.
"""
