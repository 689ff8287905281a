"""Guards as data, and the guard program made of them.

A guard is (source, kind, expected value); see :mod:`.guard`. :mod:`.program` orders the guards of a compiled frame,
gives each path a register, and builds the program that C runs.

Invariant: no guard holds a closure or a module of the user's; what a guard compares with is a constant, a class or a
    code object.
"""
from .guard import Guard, GuardSet
from .program import build_program, describe_step, guard_lines

__all__ = ["Guard", "GuardSet", "build_program", "describe_step", "guard_lines"]
