/* CPython 3.11: what is private to the interpreter and differs by version, above all its frames.
 *
 * Invariant: nothing outside this header names a field of a frame. In 3.11 whoever called the evaluation function clears and
 * pops the frame, so a hook that does not evaluate a frame has nothing to do for it.
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

/* The arguments as references that the frame owns, before the prologue of the code has moved any of them into a cell. They may
 * be cleared in a frame that is never going to be evaluated; one that is gets them back first. */
static inline PyObject **
take_arguments(InterpreterFrame *frame)
{
    return frame->localsplus;
}

static inline void
give_arguments_back(InterpreterFrame *Py_UNUSED(frame))
{
}

/* True when the frame has not executed anything: a frame that is resumed is never captured. */
static inline int
frame_is_fresh(InterpreterFrame *frame)
{
    return frame->owner == FRAME_OWNED_BY_THREAD && frame->prev_instr == _PyCode_CODE(frame->f_code) - 1;
}

/* The generator or coroutine that a frame belongs to, borrowed; NULL: to none, or it is only now being made. */
static inline PyObject *
frame_generator(InterpreterFrame *frame)
{
    return frame->owner == FRAME_OWNED_BY_GENERATOR ? (PyObject *)_PyFrame_GetGenerator(frame) : NULL;
}

/* For a frame that is not passed on to the interpreter: its caller clears and pops it. */
static inline PyObject *
leave_frame(PyThreadState *Py_UNUSED(tstate), InterpreterFrame *Py_UNUSED(frame), PyObject *result)
{
    return result;
}

/* Raises the number of calls that may still be nested before a RecursionError. */
static inline void
lend_recursion(PyThreadState *tstate, int depth)
{
    tstate->recursion_remaining += depth;
}

/* Whether the interpreter's limit of nested calls in C is near, which hooked Python calls count for, too. 3.11 has none. */
static inline int
c_recursion_is_low(PyThreadState *Py_UNUSED(tstate))
{
    return 0;
}

/* A debugger or a coverage tool wants to see the lines that this thread runs. A profiler does not: it sees calls. */
static inline int
thread_is_traced(PyThreadState *tstate)
{
    return tstate->c_tracefunc != NULL;
}

/* Something is told of calls of Python functions, a profiler for example. */
static inline int
calls_are_watched(PyThreadState *tstate)
{
    return tstate->c_profilefunc != NULL || tstate->c_tracefunc != NULL;
}

/* A tool has asked for events in this code alone, which it is therefore to see as it is. */
static inline int
code_is_monitored(PyCodeObject *Py_UNUSED(code))
{
    return 0;
}

#endif
