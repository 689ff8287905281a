/* CPython 3.14: the interpreter internals that differ by version, above all its frames (Include/internal/pycore_interpframe.h).
 *
 * Invariant: nothing outside this header names a field of a frame. From 3.12 on the evaluation function clears a frame and
 * removes it from the thread's data stack, so a hook that does not pass a frame on to the interpreter has to do that:
 * leave_frame().
 */
#ifndef DYNAMO_LITE_PY314_H
#define DYNAMO_LITE_PY314_H

#include <Python.h>
#define Py_BUILD_CORE
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-parameter"
#include <internal/pycore_ceval.h>
#include <internal/pycore_genobject.h>
#include <internal/pycore_interp_structs.h>
#include <internal/pycore_interpframe.h>
#include <internal/pycore_tstate.h>
#pragma GCC diagnostic pop
#undef Py_BUILD_CORE

#include "monitoring.h"

#define interpreter_is_finalizing Py_IsFinalizing

typedef _PyInterpreterFrame InterpreterFrame;

static inline PyCodeObject *
frame_code(InterpreterFrame *frame)
{
    return _PyFrame_GetCode(frame);
}

static inline PyFunctionObject *
frame_function(InterpreterFrame *frame)
{
    return _PyFrame_GetFunction(frame);
}

static inline int
argument_count(InterpreterFrame *frame)
{
    PyCodeObject *code = _PyFrame_GetCode(frame);
    return code->co_argcount + code->co_kwonlyargcount + !!(code->co_flags & CO_VARARGS) + !!(code->co_flags & CO_VARKEYWORDS);
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
 * They may be cleared if the frame is never evaluated; before it is evaluated they must be given back.
 *
 * The frame has them as tagged pointers (_PyStackRef), which are replaced by plain ones until they are given back. The frame is
 * not linked into the thread's frames yet, so nobody else reads them meanwhile. */
static inline PyObject **
take_arguments(InterpreterFrame *frame)
{
    int n = argument_count(frame);
    for (int i = 0; i < n; i++) {
        _PyStackRef argument = frame->localsplus[i];
        frame->localsplus[i].bits = PyStackRef_IsNull(argument) ? 0 : (uintptr_t)PyStackRef_AsPyObjectSteal(argument);
    }
    return (PyObject **)frame->localsplus;
}

static inline void
give_arguments_back(InterpreterFrame *frame)
{
    int n = argument_count(frame);
    for (int i = 0; i < n; i++) {
        PyObject *argument = (PyObject *)frame->localsplus[i].bits;
        frame->localsplus[i] = argument == NULL ? PyStackRef_NULL : PyStackRef_FromPyObjectSteal(argument);
    }
}

/* Whether the frame has not executed anything yet: a frame that is resumed is never captured. */
static inline int
frame_is_fresh(InterpreterFrame *frame)
{
    return frame->owner == FRAME_OWNED_BY_THREAD && frame->instr_ptr == _PyFrame_GetBytecode(frame);
}

/* The generator or coroutine that a frame belongs to, borrowed; NULL if there is none or it is just being created. */
static inline PyObject *
frame_generator(InterpreterFrame *frame)
{
    return frame->owner == FRAME_OWNED_BY_GENERATOR ? (PyObject *)_PyGen_GetGeneratorFromFrame(frame) : NULL;
}

/* Ends a frame that is not passed on to the interpreter. It was never linked into the thread's frames. */
static inline PyObject *
leave_frame(PyThreadState *tstate, InterpreterFrame *frame, PyObject *result)
{
    give_arguments_back(frame);
    _PyEval_FrameClearAndPop(tstate, frame);
    return result;
}

/* Increases the number of calls that may still be nested before a RecursionError. */
static inline void
lend_recursion(PyThreadState *tstate, int depth)
{
    tstate->py_recursion_remaining += depth;
}

/* Whether the end of the C stack that the interpreter has determined is near; find_stack() may have found another end. */
static inline int
c_recursion_is_low(PyThreadState *tstate)
{
    const _PyThreadStateImpl *state = (const _PyThreadStateImpl *)tstate;
    char here;
    return (uintptr_t)&here - state->c_stack_soft_limit < (state->c_stack_top - state->c_stack_soft_limit) / 8;
}

/* Whether a debugger or a coverage tool has to see the lines that this thread runs. A profiler does not: it sees calls. */
static inline int
thread_is_traced(PyThreadState *tstate)
{
    return tstate->c_tracefunc != NULL || TOOLS_SEE_LINES(tstate->interp->monitors);
}

/* Whether something is told of calls of Python functions, such as a profiler. */
static inline int
calls_are_watched(PyThreadState *tstate)
{
    return tstate->c_profilefunc != NULL || tstate->c_tracefunc != NULL || TOOLS_SEE_ANYTHING(tstate->interp->monitors);
}

/* Whether a tool has asked for events in this code alone, so that it has to see the code itself run. */
static inline int
code_is_monitored(PyCodeObject *code)
{
    return code->_co_monitoring != NULL && TOOLS_SEE_LINES(code->_co_monitoring->local_monitors);
}

#endif
