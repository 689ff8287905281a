"""Compilation of frames: the decision whether to compile one, the phases of a compile, and its cache entries; also the
public entry points.

`convert_frame` runs the phases in order, one module each (`decide`, `trace`, `finish`, `emit`, `entry`);
`request` holds their inputs, `recompiles` the knowledge from earlier compiles. `eval_frame`, `marks` and `stance`
hold the functions that users call.

May import everything but `debug`; nothing but `debug` and the package itself imports it.
"""
