"""Guards as data, and the guard program that is built from them.

A guard is a triple (source, kind, expected value). `source` says where a value lives, `guard` defines the kinds,
`memory` makes guards on tensors that share memory, and `sizes` makes guards of a trace's decisions about symbols.
`program` orders the guards of a compiled frame, assigns a register to each path, and builds the program that C runs,
including the skippable blocks of `blocks`. `tree` and `failures` present guards to readers.

Invariant: no guard holds a closure or one of the user's modules; the expected value of a guard is a constant, a class
or a code object.

May import `symbols`, `runtime` and the modules at the top of dynamo_lite; knows nothing of frames and trackers.
"""
from .guard import Guard, GuardSet
from .program import build_program, describe_step, guard_lines

__all__ = ["Guard", "GuardSet", "build_program", "describe_step", "guard_lines"]
