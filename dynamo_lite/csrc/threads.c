/* The state of threads and the evaluation of frames: the active hook, and our evaluation function beside those of others.
 *
 * Invariant: our function is installed while some thread has an active hook or, if another function is installed, while code
 * runs that others must not see; afterwards the function that was above it is restored in the same order. The counters and
 * function pointers here are protected by the GIL; `this_thread` is thread-local.
 */
#include "eval_frame.h"

#include <pthread.h>

/* Nesting depth of Python calls that a compile may need in addition, so that it does not depend on the program's depth. */
#define COMPILE_DEPTH 1000

/* Bytes of stack that compiled frames leave to the interpreter. With the evaluation function installed a Python call also takes
 * C stack, so a deep recursion that works in plain Python must run without the hook before the stack ends. */
#define STACK_RESERVE (512 * 1024)

_Thread_local ThreadState this_thread;
PyInterpreterState *interpreter;
static int times_needed; /* number of active hooks in all threads, plus that of begin_own() calls in progress */
static PyObject *traced_callback;
_PyFrameEvalFunction previous_eval = _PyEval_EvalFrameDefault;

void
threads_init(void)
{
    interpreter = PyInterpreterState_Get();
}

/* ---- the state of a thread ---- */

void
find_stack(ThreadState *thread)
{
    thread->stack_end = 1; /* unknown: the stack never counts as low */
#ifdef __linux__
    pthread_attr_t attributes;
    void *end;
    size_t size;
    if (pthread_getattr_np(pthread_self(), &attributes) == 0) {
        if (pthread_attr_getstack(&attributes, &end, &size) == 0) {
            thread->stack_end = (uintptr_t)end;
            thread->stack_reserve = size / 4 < STACK_RESERVE ? size / 4 : STACK_RESERVE;
        }
        pthread_attr_destroy(&attributes);
    }
#endif
}

/* ---- coexistence with other evaluation functions ----
 *
 * An interpreter has a single evaluation function; who installs one keeps the previous one and restores it later. Others
 * (torch._dynamo) do so at any time: restoring a function may remove ours although it is needed, or install it although it is
 * not, and theirs may have ours as its previous function while ours has theirs. Therefore ours is put on top whenever a hook
 * becomes active, and the function that was there is restored in the same order. If ours is called without being needed it
 * uninstalls itself. A frame that the previous function passes back to ours is evaluated by the interpreter. */

/* Installs an evaluation function. From 3.15 on the interpreter specializes no instructions under any function but its own,
 * unless it is told that it may (Python/pystate.c, _PyInterpreterState_SetEvalFrameAllowSpecialization). Ours allows it, as it
 * passes frames on to the interpreter. The setting of the function that was installed before is restored with that function. */
static void
set_evaluator(_PyFrameEvalFunction evaluator)
{
#ifdef SPECIALIZING_IS_ASKED_FOR
    static int before;
    _PyFrameEvalFunction current = _PyInterpreterState_GetEvalFrameFunc(interpreter);
    if (evaluator == eval_frame) {
        before = current != _PyEval_EvalFrameDefault && _PyInterpreterState_IsSpecializationEnabled(interpreter);
    }
    _PyInterpreterState_SetEvalFrameFunc(interpreter, evaluator);
    _PyInterpreterState_SetEvalFrameAllowSpecialization(interpreter, evaluator == eval_frame || before);
#else
    _PyInterpreterState_SetEvalFrameFunc(interpreter, evaluator);
#endif
}

/* Installs our evaluation function if another one is installed. Returns what end_need() needs to restore that one. */
Above
put_on_top(void)
{
    Above above = {NULL, NULL};
    _PyFrameEvalFunction current = _PyInterpreterState_GetEvalFrameFunc(interpreter);
    if (current != eval_frame) {
        above = (Above){current, previous_eval};
        previous_eval = current;
        set_evaluator(eval_frame);
    }
    return above;
}

/* Counts a further need for our function and puts it on top. The first need returns NULLs: end_need() uninstalls ours then. */
static Above
begin_need(void)
{
    Above above = put_on_top();
    if (times_needed++ == 0) {
        above = (Above){NULL, NULL};
    }
    return above;
}

static void
end_need(Above above)
{
    times_needed--;
    if (_PyInterpreterState_GetEvalFrameFunc(interpreter) != eval_frame) {
        return;
    }
    if (above.above != NULL && above.above == previous_eval) { /* ours also lies below that function */
        set_evaluator(above.above);
        previous_eval = above.previous;
    }
    else if (times_needed == 0) {
        set_evaluator(previous_eval);
    }
}

Above
begin_own_beside_others(ThreadState *thread)
{
    thread->own++;
    return begin_need();
}

void
end_own_beside_others(ThreadState *thread, Above above)
{
    thread->own--;
    end_need(above);
}

/* Makes a hook active, of which the thread owns a new reference; `outer` of the result owns the one that was active. */
Switched
begin_hook(ThreadState *thread, FrameHook *hook)
{
    Switched switched = {thread->hook, {NULL, NULL}};
    thread->hook = (FrameHook *)Py_XNewRef(hook);
    if (switched.outer == NULL && hook != NULL) {
        switched.above = begin_need();
    }
    else if (switched.outer != NULL && hook == NULL) {
        _PyFrameEvalFunction current = _PyInterpreterState_GetEvalFrameFunc(interpreter);
        switched.above.above = current == eval_frame ? NULL : current;
        end_need((Above){NULL, NULL});
    }
    return switched;
}

void
end_hook(ThreadState *thread, Switched switched)
{
    FrameHook *inner = thread->hook;
    thread->hook = switched.outer;
    if (inner == NULL && switched.outer != NULL) {
        times_needed++;
        if (_PyInterpreterState_GetEvalFrameFunc(interpreter) != switched.above.above) {
            put_on_top();
        }
    }
    else if (inner != NULL && switched.outer == NULL) {
        end_need(switched.above);
    }
    Py_XDECREF(inner);
}

/* Runs calls as the compiler's own until end_compile(): without the hook, and unseen by other evaluation functions. */
Compiling
begin_compile(ThreadState *thread)
{
    Compiling compiling = {.own = begin_own(thread), .collects = PyGC_IsEnabled()};
    compiling.switched = begin_hook(thread, NULL);
    lend_recursion(PyThreadState_Get(), COMPILE_DEPTH);
    thread->compiling++;
    thread->busy++;
    return compiling;
}

void
end_compile(ThreadState *thread, Compiling compiling)
{
    thread->busy--;
    thread->compiling--;
    if (compiling.collects) {
        PyGC_Enable(); /* a compile pauses collection, and an exception may have cut off its clean-up */
    }
    lend_recursion(PyThreadState_Get(), -COMPILE_DEPTH);
    end_hook(thread, compiling.switched);
    end_own(thread, compiling.own);
}

/* Like begin_hook() for an unlimited time. Steals the reference to `hook`; the caller gets that to the previous one. */
static FrameHook *
exchange_hook(ThreadState *thread, FrameHook *hook)
{
    FrameHook *outer = thread->hook;
    _PyFrameEvalFunction current = _PyInterpreterState_GetEvalFrameFunc(interpreter);
    thread->hook = hook;
    if (outer != NULL && hook == NULL) {
        thread->below = current == eval_frame ? NULL : current;
        end_need((Above){NULL, NULL});
    }
    else if (outer == NULL && hook != NULL) {
        times_needed++;
        if (current != thread->below) {
            put_on_top();
        }
        thread->below = NULL;
    }
    return outer;
}

/* ---- frames that are not captured ---- */

/* Evaluates a frame by the previous evaluation function, or by the interpreter if that function has passed it back to ours. */
PyObject *
eval_plain(ThreadState *thread, PyThreadState *tstate, InterpreterFrame *frame, int throwflag)
{
    if (previous_eval == _PyEval_EvalFrameDefault || thread->passed == frame) {
        return _PyEval_EvalFrameDefault(tstate, frame, throwflag);
    }
    InterpreterFrame *outer = thread->passed;
    thread->passed = frame;
    PyObject *result = previous_eval(tstate, frame, throwflag);
    thread->passed = outer;
    return result;
}

/* Evaluates a frame by the previous evaluation function, unless its code was made by dynamo_lite. */
PyObject *
eval_uncaptured(ThreadState *thread, PyThreadState *tstate, InterpreterFrame *frame, int throwflag)
{
    if (previous_eval != _PyEval_EvalFrameDefault) {
        CodeCache *cache = cache_of(frame_code(frame));
        if (cache != NULL && cache->own) {
            return _PyEval_EvalFrameDefault(tstate, frame, throwflag);
        }
    }
    return eval_plain(thread, tstate, frame, throwflag);
}

/* Evaluates a frame of a thread without an active hook, or that is busy; uninstalls our function if nobody needs it. */
PyObject *
eval_without_hook(ThreadState *thread, PyThreadState *tstate, InterpreterFrame *frame, int throwflag)
{
    if (times_needed == 0 && _PyInterpreterState_GetEvalFrameFunc(interpreter) == eval_frame) {
        set_evaluator(previous_eval);
    }
    return thread->own ? _PyEval_EvalFrameDefault(tstate, frame, throwflag) : eval_plain(thread, tstate, frame, throwflag);
}

/* Evaluates a frame, including all that it calls, without the hook. */
PyObject *
eval_unhooked(ThreadState *thread, PyThreadState *tstate, InterpreterFrame *frame, int throwflag)
{
    Switched switched = begin_hook(thread, NULL);
    PyObject *result = eval_uncaptured(thread, tstate, frame, throwflag);
    end_hook(thread, switched);
    return result;
}

/* Calls the callback of tell_when_traced() once, hidden from the trace function: a traced thread runs no compiled code. */
void
note_traced(PyThreadState *tstate)
{
    PyObject *callback = traced_callback;
    if (callback == NULL) {
        return;
    }
    traced_callback = NULL;
    PyThreadState_EnterTracing(tstate);
    PyObject *result = PyObject_CallNoArgs(callback);
    PyThreadState_LeaveTracing(tstate);
    if (result == NULL) {
        PyErr_WriteUnraisable(callback);
    }
    Py_XDECREF(result);
    Py_DECREF(callback);
}

/* ---- functions on threads ---- */

/* Destructor of a capsule in the thread's state dict: releases a hook that set_active() left active when its thread ended. */
static void
release_thread(PyObject *Py_UNUSED(capsule))
{
    FrameHook *hook = exchange_hook(&this_thread, NULL);
    if (!interpreter_is_finalizing()) {
        Py_XDECREF(hook);
    }
}

static int
release_at_thread_end(void)
{
    static const char key[] = "dynamo_lite active hook";
    PyObject *dict = PyThreadState_GetDict(); /* borrowed */
    if (dict == NULL || PyDict_GetItemString(dict, key) != NULL) {
        return 0;
    }
    PyObject *capsule = PyCapsule_New(&this_thread, key, release_thread);
    int status = capsule == NULL ? -1 : PyDict_SetItemString(dict, key, capsule);
    Py_XDECREF(capsule);
    return status;
}

static PyObject *
set_active(PyObject *Py_UNUSED(module), PyObject *hook)
{
    if (hook != Py_None && !PyObject_TypeCheck(hook, &FrameHook_Type)) {
        PyErr_Format(PyExc_TypeError, "set_active() takes a FrameHook or None, not %.100s", Py_TYPE(hook)->tp_name);
        return NULL;
    }
    if (hook != Py_None && release_at_thread_end() < 0) {
        return NULL;
    }
    PyObject *previous = (PyObject *)exchange_hook(thread_state(), hook == Py_None ? NULL : (FrameHook *)Py_NewRef(hook));
    return previous != NULL ? previous : Py_NewRef(Py_None);
}

static PyObject *
active_hook(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(arg))
{
    PyObject *hook = (PyObject *)this_thread.hook;
    return Py_NewRef(hook == NULL ? Py_None : hook);
}

static PyObject *
in_compile(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(arg))
{
    return PyBool_FromLong(this_thread.compiling > 0);
}

static PyObject *
tell_when_traced(PyObject *Py_UNUSED(module), PyObject *callback)
{
    Py_XSETREF(traced_callback, callback == Py_None ? NULL : Py_NewRef(callback));
    Py_RETURN_NONE;
}

static PyObject *
set_call_policy(PyObject *Py_UNUSED(module), PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"policy", "plain", NULL};
    PyObject *policy = Py_None;
    int plain = 0;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|Op:set_call_policy", names, &policy, &plain)) {
        return NULL;
    }
    Py_XSETREF(call_policy, plain || policy != Py_None ? Py_NewRef(plain ? Py_None : policy) : NULL);
    Py_RETURN_NONE;
}

PyMethodDef thread_methods[] = {
    {"tell_when_traced", tell_when_traced, METH_O,
     "tell_when_traced(callback): call it at the next compiled call that runs plainly because its thread is traced"},
    {"set_call_policy", (PyCFunction)(void (*)(void))set_call_policy, METH_VARARGS | METH_KEYWORDS,
     "set_call_policy(policy=None, plain=False): who chooses the hook of a compiled call, (fn, hook) -> hook or None; plain: "
     "all run in plain Python"},
    {"set_active", set_active, METH_O, "set_active(hook or None) -> what was active in this thread before"},
    {"active_hook", active_hook, METH_NOARGS, "active_hook() -> the hook that is active in this thread, or None"},
    {"in_compile", in_compile, METH_NOARGS, "in_compile() -> whether this thread is inside a call of compile_frame"},
    {NULL, NULL, 0, NULL},
};
