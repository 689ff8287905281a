/* CPython 3.12: the interpreter internals that differ by version, above all its frames (Include/internal/pycore_frame.h).
 *
 * Invariant: nothing outside this header names a field of a frame. From 3.12 on the evaluation function clears a frame and
 * removes it from the thread's data stack, so a hook that does not pass a frame on to the interpreter has to do that:
 * leave_frame().
 */
#ifndef DYNAMO_LITE_PY312_H
#define DYNAMO_LITE_PY312_H

#include <Python.h>
#define Py_BUILD_CORE
#undef _PyGC_FINALIZED /* a macro in Python.h, an inline function in the headers below */
#include <internal/pycore_frame.h>
#include <internal/pycore_interp.h>
#undef Py_BUILD_CORE

#include "monitoring.h"

#define interpreter_is_finalizing _Py_IsFinalizing

typedef struct _PyInterpreterFrame InterpreterFrame;

static inline PyCodeObject *
frame_code(InterpreterFrame *frame)
{
    return frame->f_code;
}

static inline PyFunctionObject *
frame_function(InterpreterFrame *frame)
{
    return (PyFunctionObject *)frame->f_funcobj;
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

/* Removes a frame from the data stack like _PyThreadState_PopFrame() (Python/pystate.c), which is not exported. */
static inline void
pop_frame(PyThreadState *tstate, InterpreterFrame *frame)
{
    _PyStackChunk *chunk = tstate->datastack_chunk;
    PyObject **base = (PyObject **)frame;
    if (base != &chunk->data[0]) {
        tstate->datastack_top = base;
        return;
    }
    _PyStackChunk *previous = chunk->previous; /* never NULL: the first frame of the first chunk does not begin at data[0] */
    PyObjectArenaAllocator allocator;
    PyObject_GetArenaAllocator(&allocator);
    tstate->datastack_top = &previous->data[previous->top];
    tstate->datastack_chunk = previous;
    tstate->datastack_limit = (PyObject **)((char *)previous + previous->size);
    allocator.free(allocator.ctx, chunk, chunk->size);
}

/* Ends a frame that is not passed on to the interpreter, like clear_thread_frame() in Python/ceval.c. The frame was never
 * linked into the thread's frames and has no frame object. */
static inline PyObject *
leave_frame(PyThreadState *tstate, InterpreterFrame *frame, PyObject *result)
{
    tstate->c_recursion_remaining--; /* as the interpreter does while destructors may run */
    for (int i = 0; i < frame->stacktop; i++) {
        Py_XDECREF(frame->localsplus[i]);
    }
    Py_XDECREF(frame->f_locals);
    Py_DECREF(frame->f_funcobj);
    Py_DECREF(frame->f_code);
    tstate->c_recursion_remaining++;
    pop_frame(tstate, frame);
    return result;
}

/* Increases the number of calls that may still be nested before a RecursionError. */
static inline void
lend_recursion(PyThreadState *tstate, int depth)
{
    tstate->py_recursion_remaining += depth;
    tstate->c_recursion_remaining += depth;
}

/* Whether the interpreter's limit of nested C calls (1500 in 3.12.1), which also counts hooked Python calls, is near. */
static inline int
c_recursion_is_low(PyThreadState *tstate)
{
    return tstate->c_recursion_remaining < 500;
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
