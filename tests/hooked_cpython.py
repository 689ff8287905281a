"""Runs modules of CPython's own tests with every frame hooked: python hooked_cpython.py <how> <module>...

`how` says what the hook answers for a frame that can be captured:
    skip    never again
    guards  guards without code: look up, then run the frame
    copy    guarded code that is the frame's own code with the additional parameter, so that every call of every
            function is a hit and runs through a call that the hook makes
"""

import dis
import signal
import sys

import extensions_alone  # noqa: F401

from dynamo_lite import _eval_frame, _guards

EXTENDED_ARG = dis.opmap["EXTENDED_ARG"]
# Instructions with two locals, in four bits each, have two names in one.
WITH_LOCAL = {op for op in {*dis.haslocal, *dis.hasfree} if dis.opname[op].count("_FAST") < 2}
WITH_TWO_LOCALS = {*dis.haslocal} - WITH_LOCAL


def with_inputs(code):
    """The code with one more parameter after the others, or None: the locals from there on move up by one."""
    n = code.co_argcount + code.co_kwonlyargcount + bool(code.co_flags & 4) + bool(code.co_flags & 8)
    if "super" in code.co_names and n == 0:
        return None
    raw = bytearray(code.co_code)
    extended = False
    for i in range(0, len(raw), 2):
        if raw[i] in WITH_LOCAL and (raw[i + 1] >= n or extended):
            if extended or raw[i + 1] == 255:
                return None
            raw[i + 1] += 1
        elif raw[i] in WITH_TWO_LOCALS:
            if extended or 15 in (raw[i + 1] >> 4, raw[i + 1] & 15):
                return None
            raw[i + 1] += 16 * (raw[i + 1] >> 4 >= n) + (raw[i + 1] & 15 >= n)
        extended = raw[i] == EXTENDED_ARG
    return code.replace(
        co_code=bytes(raw),
        co_varnames=(*code.co_varnames[:n], "__inputs__", *code.co_varnames[n:]),
        co_nlocals=code.co_nlocals + 1,
        co_argcount=n + 1,
        co_posonlyargcount=0,
        co_kwonlyargcount=0,
        co_flags=code.co_flags & ~12,
    )


def compile_frame(code, globals, builtins, closure, args, func):
    asked[0] += 1
    if how == "skip":
        return _eval_frame.SKIP
    copied = with_inputs(code) if how == "copy" else None
    if how == "copy" and copied is None:
        return _eval_frame.SKIP
    return _eval_frame.GuardedCode(_guards.GuardProgram([("load_const", 0, 3), ("collect", 0, 0)], 1, 1), copied, True)


how = sys.argv.pop(1)
asked = [0]
if __name__ == "__main__":
    # A shell's background job ignores it, and a test of generators sends it to itself.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    from test.libregrtest.main import main

    _eval_frame.set_active(_eval_frame.FrameHook(compile_frame))
    try:
        main()
    finally:
        _eval_frame.set_active(None)
        print("frames asked for:", asked[0])
