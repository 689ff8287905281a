/* What a thread is doing, and who evaluates a frame: which hook is active, and our evaluation function beside those of others.
 *
 * Invariant: ours is installed while some thread has an active hook, or, where there is another one, runs what others must
 * not see; what lay above it then is put back in the same order.
 */
#include "eval_frame.h"

#include <pthread.h>

/* Nested Python calls that a compile may need; they are not the program's, whose depth must not matter to it. */
#define COMPILE_DEPTH 1000

/* Stack that compiled frames leave to the interpreter. With the hook installed a Python call also takes C stack, so deep
 * recursion that is fine in plain Python has to lose the hook before the stack ends. */
#define STACK_RESERVE (512 * 1024)

_Thread_local ThreadState this_thread;
PyInterpreterState *interpreter;
static int times_needed; /* by hooks that are active in a thread, and by begin_own() */
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
    thread->stack_end = 1; /* not known: never low */
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

/* ---- beside other evaluation functions ----
 *
 * There is one per interpreter; whoever installs one keeps the previous one and puts it back. Others (torch._dynamo) do so when
 * it suits them: what they put back may leave ours out though it is needed, or in though it is not, and theirs may have ours
 * as its previous one while ours has theirs. Therefore ours is put on top whenever a hook becomes active, and what was there
 * is put back in the same order; installed without need it takes itself away; a frame that comes back from the previous
 * function is evaluated by the interpreter. */

/* Makes a function the evaluator. Under any but its own the interpreter from 3.15 on specializes no instruction, unless it is
 * told that it may; ours passes frames on to it, so it may. Whether it might before is brought back with who was there. */
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
    if (above.above != NULL && above.above == previous_eval) { /* ours lies below it, too */
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

/* Calls are the compiler's own until end_compile(). */
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
        PyGC_Enable(); /* a compile pauses it; an exception may have cut off what puts it on again */
    }
    lend_recursion(PyThreadState_Get(), -COMPILE_DEPTH);
    end_hook(thread, compiling.switched);
    end_own(thread, compiling.own);
}

/* The same where nobody says how long; takes and gives ownership. */
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

/* A frame for the previous evaluation function, unless its code is ours. */
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

PyObject *
eval_without_hook(ThreadState *thread, PyThreadState *tstate, InterpreterFrame *frame, int throwflag)
{
    if (times_needed == 0 && _PyInterpreterState_GetEvalFrameFunc(interpreter) == eval_frame) {
        set_evaluator(previous_eval);
    }
    return thread->own ? _PyEval_EvalFrameDefault(tstate, frame, throwflag) : eval_plain(thread, tstate, frame, throwflag);
}

PyObject *
eval_unhooked(ThreadState *thread, PyThreadState *tstate, InterpreterFrame *frame, int throwflag)
{
    Switched switched = begin_hook(thread, NULL);
    PyObject *result = eval_uncaptured(thread, tstate, frame, throwflag);
    end_hook(thread, switched);
    return result;
}

/* Tells once that what is compiled is not used, unseen by the trace function. */
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

/* A thread can end while a hook that set_active() left is active. Its state dict then releases the hook. */
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
