/* CPython 3.11: the interpreter internals that differ by version, above all its frames (Include/internal/pycore_frame.h).
 *
 * Invariant: nothing outside this header names a field of a frame. In 3.11 the caller of the evaluation function clears and
 * pops the frame (_PyEval_Vector in Python/ceval.c), so a hook that does not evaluate a frame has nothing to do for it.
 */
#ifndef DYNAMO_LITE_PY311_H
#define DYNAMO_LITE_PY311_H

#include <Python.h>
#include <internal/pycore_frame.h>

#define interpreter_is_finalizing _Py_IsFinalizing
#define PyUnstable_Eval_RequestCodeExtraIndex _PyEval_RequestCodeExtraIndex
#define PyUnstable_Code_GetExtra _PyCode_GetExtra
#define PyUnstable_Code_SetExtra _PyCode_SetExtra

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

/* The arguments as an array of references that the frame owns, before the code's prologue has moved any of them into a cell.
 * They may be cleared if the frame is never evaluated; before it is evaluated they must be given back. */
static inline PyObject **
take_arguments(InterpreterFrame *frame)
{
    return frame->localsplus;
}

static inline void
give_arguments_back(InterpreterFrame *Py_UNUSED(frame))
{
}

/* Whether the frame has not executed anything yet: a frame that is resumed is never captured. */
static inline int
frame_is_fresh(InterpreterFrame *frame)
{
    return frame->owner == FRAME_OWNED_BY_THREAD && frame->prev_instr == _PyCode_CODE(frame->f_code) - 1;
}

/* The generator or coroutine that a frame belongs to, borrowed; NULL if there is none or it is just being created. */
static inline PyObject *
frame_generator(InterpreterFrame *frame)
{
    return frame->owner == FRAME_OWNED_BY_GENERATOR ? (PyObject *)_PyFrame_GetGenerator(frame) : NULL;
}

/* Ends a frame that is not passed on to the interpreter, with `result`; here its caller clears and pops it. */
static inline PyObject *
leave_frame(PyThreadState *Py_UNUSED(tstate), InterpreterFrame *Py_UNUSED(frame), PyObject *result)
{
    return result;
}

/* Increases the number of calls that may still be nested before a RecursionError. */
static inline void
lend_recursion(PyThreadState *tstate, int depth)
{
    tstate->recursion_remaining += depth;
}

/* Whether the interpreter's limit of nested C calls, which also counts hooked Python calls, is near. 3.11 has no such limit. */
static inline int
c_recursion_is_low(PyThreadState *Py_UNUSED(tstate))
{
    return 0;
}

/* Whether a debugger or a coverage tool has to see the lines that this thread runs. A profiler does not: it sees calls. */
static inline int
thread_is_traced(PyThreadState *tstate)
{
    return tstate->c_tracefunc != NULL;
}

/* Whether something is told of calls of Python functions, such as a profiler. */
static inline int
calls_are_watched(PyThreadState *tstate)
{
    return tstate->c_profilefunc != NULL || tstate->c_tracefunc != NULL;
}

/* Whether a tool has asked for events in this code alone, so that it has to see the code itself run. */
static inline int
code_is_monitored(PyCodeObject *Py_UNUSED(code))
{
    return 0;
}

#endif
