"""Guards as data, and the guard program made of them.

A guard is (source, kind, expected value): `source` is where a value lives, `guard` has the kinds, `memory` guards which
tensors share memory, `sizes` what a trace has decided of symbols. `program` orders the guards of a compiled frame,
gives each path a register, and builds the program that C runs, with the blocks of `blocks`. `tree` and `failures` are
for readers.

Invariant: no guard holds a closure or a module of the user's; what a guard compares with is a constant, a class or a
code object.

May import `symbols`, `runtime` and the modules at the top of dynamo_lite; knows nothing of frames and trackers.
"""
from .guard import Guard, GuardSet
from .program import build_program, describe_step, guard_lines

__all__ = ["Guard", "GuardSet", "build_program", "describe_step", "guard_lines"]
