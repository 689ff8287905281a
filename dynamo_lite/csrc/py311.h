/* CPython 3.11: what the hook reads from interpreter frames, which are private to the interpreter and differ by version.
 *
 * Invariant: nothing outside this header names a field of a frame. In 3.11 whoever called the evaluation function clears and
 * pops the frame, so a hook that does not evaluate a frame has nothing to do for it.
 */
#ifndef DYNAMO_LITE_PY311_H
#define DYNAMO_LITE_PY311_H

#include <Python.h>
#include <internal/pycore_frame.h>

typedef struct _PyInterpreterFrame InterpreterFrame;

static inline PyCodeObject *
frame_code(InterpreterFrame *frame)
{
    return frame->f_code;
}

static inline PyFunctionObject *
frame_function(InterpreterFrame *frame)
{
    return frame->f_func;
}

static inline PyObject *
frame_globals(InterpreterFrame *frame)
{
    return frame->f_globals;
}

static inline PyObject *
frame_builtins(InterpreterFrame *frame)
{
    return frame->f_builtins;
}

/* The arguments, before the prologue of the code has moved any of them into a cell. */
static inline PyObject *const *
frame_arguments(InterpreterFrame *frame)
{
    return frame->localsplus;
}

/* The same as references that the frame owns and that may be taken from one that is never going to be evaluated. */
static inline PyObject **
frame_owned_arguments(InterpreterFrame *frame)
{
    return frame->localsplus;
}

/* True when the frame has not executed anything: a frame that is resumed is never captured. */
static inline int
frame_is_fresh(InterpreterFrame *frame)
{
    return frame->owner == FRAME_OWNED_BY_THREAD && frame->prev_instr == _PyCode_CODE(frame->f_code) - 1;
}

/* Calls that may still be nested before a RecursionError. */
static inline int *
recursion_left(PyThreadState *tstate)
{
    return &tstate->recursion_remaining;
}

/* A debugger or a coverage tool wants to see the lines that this thread runs. A profiler does not: it sees calls. */
static inline int
thread_is_traced(PyThreadState *tstate)
{
    return tstate->c_tracefunc != NULL;
}

#endif
