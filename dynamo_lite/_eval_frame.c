/* The extension module `dynamo_lite._eval_frame`: the frame evaluation function of PEP 523.
 *
 * A frame whose thread has an active hook is looked up among the guarded code of its code object. On a hit, a function made
 * from the guarded code is called in place of the frame; a miss calls the hook's Python callback. The evaluation function is
 * installed only while some thread has an active hook, because it makes every Python call slower. No policy lives here.
 */
#include "csrc/eval_frame.h"

#include "csrc/profile.h"

const GuardsAPI *guards;

static PyObject *no_globals; /* an empty dict: the globals of a guarded function between calls */

/* The decisions that compile_frame can return instead of a GuardedCode. */
static PyObject *run_original, *skip_frame, *skip_recursive, *keep_entries;

/* ---- hits ---- */

/* Finds an entry whose guards hold for a frame. 1: `*entry` and `*inputs` are new references; 0: there is none; -1: an
 * exception is set. */

int
look_up(ThreadState *thread, PyCodeObject *code, FrameHook *hook, const GuardFrame *frame, GuardedCode **entry,
        PyObject **inputs)
{
    CodeCache *cache = cache_of(code);
    Slot *slot = cache == NULL ? NULL : find_slot(cache, hook);
    if (slot == NULL || slot->entries == NULL) {
        return 0;
    }
    PyObject *entries = Py_NewRef(slot->entries); /* guards can run code that replaces the slot's tuple */
    Py_ssize_t n = PyTuple_GET_SIZE(entries);
    int found = 0;
    thread->busy++;
    for (Py_ssize_t i = 0; i < n; i++) {
        GuardedCode *candidate = (GuardedCode *)PyTuple_GET_ITEM(entries, i);
        Py_ssize_t failed_step;
        if (candidate->slot == NULL || candidate->program == NULL) { /* invalidated by an earlier entry's guards */
            continue;
        }
        found = guards->check(candidate->program, frame, inputs, &failed_step);
        if (found != 0) {
            if (found > 0) {
                candidate->hits++;
                *entry = (GuardedCode *)Py_NewRef(candidate);
                Py_ssize_t place = i > 0 ? place_of(entries, candidate) : 0;
                if (place < i) {
                    move_forward(code, hook, entries, i, place);
                }
            }
            break;
        }
        candidate->passed_over++;
    }
    thread->busy--;
    Py_DECREF(entries);
    return found;
}

/* The function to call for an entry, a new reference. It has the frame's globals, builtins and closure only during a call:
 * they may hold the owner of the entry. It is taken out of the entry, so a nested call gets a function of its own. */
static PyFunctionObject *
take_function(GuardedCode *entry, PyFunctionObject *original, const GuardFrame *frame)
{
    PyFunctionObject *function = (PyFunctionObject *)entry->function;
    if (function != NULL) {
        entry->function = NULL;
        Py_SETREF(function->func_globals, Py_NewRef(frame->globals));
    }
    else {
        function = (PyFunctionObject *)PyFunction_New(entry->code, frame->globals);
        if (function == NULL) {
            return NULL;
        }
        Py_XSETREF(function->func_name, Py_NewRef(original->func_name));
        Py_XSETREF(function->func_qualname, Py_NewRef(original->func_qualname));
    }
    Py_XSETREF(function->func_builtins, Py_NewRef(frame->builtins));
    Py_XSETREF(function->func_closure, Py_XNewRef(frame->closure));
    return function;
}

/* Returns the function to the entry for the next call; steals the reference. */
static void
give_function_back(GuardedCode *entry, PyFunctionObject *function)
{
    if (Py_REFCNT(function) > 1 || entry->code == NULL || entry->function != NULL) {
        Py_DECREF(function); /* a traceback or a frame object holds it, and its frame needs the globals */
        return;
    }
    Py_SETREF(function->func_globals, Py_NewRef(no_globals)); /* not NULL: the garbage collector can show the function */
    Py_SETREF(function->func_builtins, Py_NewRef(no_globals));
    Py_CLEAR(function->func_closure);
    if (entry->code == NULL || entry->function != NULL) { /* releasing the references above ran code */
        Py_DECREF(function);
        return;
    }
    entry->function = (PyObject *)function;
}

/* Called when a frame of `code` begins: drops the references of a handover that was meant for it. */
static void
release_handover(ThreadState *thread, PyCodeObject *code)
{
    Handover *handover = thread->handover;
    if (handover == NULL || handover->code != code) {
        return;
    }
    thread->handover = NULL;
    if (handover->inputs != NULL) {
        Py_CLEAR(*handover->inputs);
    }
    for (Py_ssize_t i = 0; handover->args != NULL && i < handover->n; i++) {
        Py_CLEAR(handover->args[i]);
    }
}

/* Runs guarded code in place of a frame. Returns a new reference, or NULL with an exception. `*inputs` and the `owned`
 * arguments (or NULL) are references that the caller owns; they are cleared once the frame of the code has its own. */
static PyObject *
call_guarded(ThreadState *thread, GuardedCode *entry, PyFunctionObject *original, const GuardFrame *frame, PyObject **inputs,
             PyObject **owned)
{
    PyObject *small[16];
    PyObject **stack = small;
    Py_ssize_t n = frame->nargs;
    PyObject *given = entry->direct == NULL ? NULL : guarded_call_direct(entry, *inputs);
    if (given != NULL) {
        return given;
    }
    PyFunctionObject *function = take_function(entry, original, frame);
    if (function == NULL) {
        return NULL;
    }
    if (n + 2 > (Py_ssize_t)Py_ARRAY_LENGTH(small)) {
        stack = PyMem_New(PyObject *, n + 2);
        if (stack == NULL) {
            Py_DECREF(function);
            return PyErr_NoMemory();
        }
    }
    memcpy(stack + 1, frame->args, (size_t)n * sizeof(PyObject *));
    stack[n + 1] = *inputs;
    Handover handover = {(PyCodeObject *)entry->code, inputs, owned, n};
    thread->handover = entry->needs_hook ? &handover : NULL; /* without a break nobody can observe the references */
    PyObject *result = PyObject_Vectorcall((PyObject *)function, stack + 1, (size_t)(n + 1) | PY_VECTORCALL_ARGUMENTS_OFFSET, NULL);
    thread->handover = NULL;
    if (stack != small) {
        PyMem_Free(stack);
    }
    give_function_back(entry, function);
    return result;
}

/* Name under which torch's profiler shows a compiled call: the function's, and the frame's id in the logs. A new reference. */
static PyObject *
name_of_region(GuardedCode *entry)
{
    PyObject *frame_id = PyObject_GetAttrString(entry->extra, "frame_id");
    if (frame_id == NULL) {
        PyErr_Clear();
        return PyUnicode_FromFormat("dynamo_lite: %U", ((PyCodeObject *)entry->code)->co_qualname);
    }
    PyObject *name = PyUnicode_FromFormat("dynamo_lite: %U %S", ((PyCodeObject *)entry->code)->co_qualname, frame_id);
    Py_DECREF(frame_id);
    return name;
}

/* Runs guarded code with `wanted` as the active hook, which may be NULL. */
static PyObject *
run_with_hook(ThreadState *thread, FrameHook *wanted, GuardedCode *entry, PyFunctionObject *original, const GuardFrame *frame,
              PyObject **inputs, PyObject **owned)
{
    if (thread->hook == wanted) {
        return call_guarded(thread, entry, original, frame, inputs, owned);
    }
    Switched switched = begin_hook(thread, wanted);
    PyObject *result = call_guarded(thread, entry, original, frame, inputs, owned);
    end_hook(thread, switched);
    return result;
}

PyObject *
run_guarded(ThreadState *thread, FrameHook *hook, GuardedCode *entry, PyFunctionObject *original, const GuardFrame *frame,
            PyObject **inputs, PyObject **owned)
{
    FrameHook *wanted = entry->needs_hook ? hook : NULL;
    if ((wanted != NULL || we_are_alone()) && !profiler_is_on()) {
        return run_with_hook(thread, wanted, entry, original, frame, inputs, owned);
    }
    Above own = wanted == NULL ? begin_own(thread) : NOT_OWN;
    PyObject *region = profiler_is_on() ? begin_region(name_of_region(entry)) : NULL;
    PyObject *result = run_with_hook(thread, wanted, entry, original, frame, inputs, owned);
    end_region(region);
    end_own(thread, own);
    return result;
}

/* ---- continuations ---- */

/* Calls the function of a continuation: its guarded code directly if an entry fits, else by an ordinary call. */
static PyObject *
call_continuation(ThreadState *thread, FrameHook *hook, Continuation *next)
{
    PyObject *fn = next->fn;
    PyCodeObject *code = PyFunction_Check(fn) ? (PyCodeObject *)PyFunction_GET_CODE(fn) : NULL;
    if (code != NULL && code_can_be_captured(code) && code->co_argcount == Py_SIZE(next)
        && code_argument_count(code) == code->co_argcount && !thread_is_traced(PyThreadState_Get()) && !code_is_monitored(code)
        && call_policy != Py_None) {
        PyFunctionObject *function = (PyFunctionObject *)fn;
        GuardFrame frame = {next->args, Py_SIZE(next), function->func_closure, function->func_globals, function->func_builtins};
        GuardedCode *entry;
        PyObject *inputs;
        int found = look_up(thread, code, hook, &frame, &entry, &inputs);
        if (found < 0) {
            return NULL;
        }
        if (found && entry->code != NULL) {
            PyObject *result = run_guarded(thread, hook, entry, function, &frame, &inputs, next->args);
            Py_DECREF(entry);
            Py_XDECREF(inputs);
            return result;
        }
        if (found) {
            Py_DECREF(entry);
            Py_DECREF(inputs);
        }
    }
    Handover handover = {code, NULL, next->args, Py_SIZE(next)};
    thread->accepts = code;
    thread->handover = code == NULL ? NULL : &handover;
    PyObject *result = PyObject_Vectorcall(fn, next->args, (size_t)Py_SIZE(next), NULL);
    thread->accepts = NULL;
    thread->handover = NULL;
    return result;
}

/* Calls the continuation that guarded code returned, then the one that this call returns, until there is another result; steals
 * `result`. This is a loop, so that a hundred thousand graph breaks in a loop of the user's need no more stack than one. */
PyObject *
trampoline(ThreadState *thread, FrameHook *hook, PyObject *result)
{
    Switched switched = begin_hook(thread, hook);
    while (result != NULL && Py_IS_TYPE(result, &Continuation_Type)) {
        put_on_top(); /* the code that ran meanwhile may have uninstalled our evaluation function */
        PyObject *next = call_continuation(thread, hook, (Continuation *)result);
        Py_DECREF(result);
        result = next;
    }
    end_hook(thread, switched);
    return result;
}

/* ---- misses ---- */

/* Calls compile_frame; returns its decision as a new reference, or NULL with an exception. */
static PyObject *
ask_hook(ThreadState *thread, FrameHook *hook, PyCodeObject *code, PyFunctionObject *function, const GuardFrame *frame)
{
    if (hook->compile_frame == NULL || interpreter_is_finalizing()) {
        return Py_NewRef(run_original); /* the garbage collector has cleared the hook, or the process is ending */
    }
    PyObject *args = PyTuple_New(frame->nargs);
    if (args == NULL) {
        return NULL;
    }
    for (Py_ssize_t i = 0; i < frame->nargs; i++) {
        PyTuple_SET_ITEM(args, i, Py_NewRef(frame->args[i] == NULL ? Py_None : frame->args[i]));
    }
    PyObject *stack[] = {(PyObject *)code, frame->globals, frame->builtins, frame->closure == NULL ? Py_None : frame->closure,
                         args, (PyObject *)function};
    PyObject *callback = Py_NewRef(hook->compile_frame);
    Compiling compiling = begin_compile(thread);
    PyObject *decision = PyObject_Vectorcall(callback, stack, Py_ARRAY_LENGTH(stack), NULL);
    end_compile(thread, compiling);
    Py_DECREF(callback);
    Py_DECREF(args);
    return decision;
}

/* Guarded code must take the arguments of the frame that it replaces, then the tuple of inputs. 0, or -1 with an exception. */
static int
check_guarded_code(PyCodeObject *code, GuardedCode *entry)
{
    PyCodeObject *guarded = (PyCodeObject *)entry->code;
    if (guarded == NULL) {
        return 0;
    }
    Py_ssize_t wanted = code_argument_count(code) + 1;
    const char *what = NULL;
    if (guarded->co_argcount != wanted || code_argument_count(guarded) != wanted) {
        what = "its parameters must be those of the frame, all positional, and one for the inputs";
    }
    else if (!code_can_be_captured(guarded)) {
        what = "it must be the code of a plain function";
    }
    else if (guarded->co_nfreevars != code->co_nfreevars) {
        what = "its free variables must be those of the frame";
    }
    if (what == NULL) {
        return mark_as_guarded(guarded); /* otherwise its own frame would be looked up while the hook is active */
    }
    PyErr_Format(PyExc_RuntimeError, "dynamo_lite: wrong guarded code for %U: %s", code->co_qualname, what);
    return -1;
}

static void
raise_failing_guard(PyCodeObject *code, GuardedCode *entry, Py_ssize_t failed_step)
{
    PyObject *steps = PyObject_GetAttrString(entry->program, "steps");
    PyObject *step = steps == NULL ? NULL : PyTuple_GetItem(steps, failed_step);
    if (step != NULL) {
        PyErr_Format(PyExc_RuntimeError,
                     "dynamo_lite: the guards made for %U do not hold for the call they were made for: step %zd, %R",
                     code->co_qualname, failed_step, step);
    }
    Py_XDECREF(steps);
}

/* Adds a new entry after checking that its guards hold, and collects its inputs. 1, or -1 with an exception. */
static int
accept_entry(ThreadState *thread, PyCodeObject *code, FrameHook *hook, const GuardFrame *frame, GuardedCode *entry,
             PyObject **inputs)
{
    Py_ssize_t failed_step;
    if (check_guarded_code(code, entry) < 0) {
        return -1;
    }
    thread->busy++;
    int ok = guards->check(entry->program, frame, inputs, &failed_step);
    thread->busy--;
    if (ok == 0) {
        raise_failing_guard(code, entry, failed_step);
    }
    if (ok <= 0) {
        return -1;
    }
    if (add_entry(code, hook, entry) < 0) {
        Py_CLEAR(*inputs);
        return -1;
    }
    return 1;
}

/* Carries out a decision that is not a GuardedCode. 0: run the frame; -1: an exception is set. */
static int
obey(PyObject *decision, PyCodeObject *code, FrameHook *hook)
{
    if (decision == run_original) {
        return 0;
    }
    int skip = decision == skip_frame ? SKIP_FRAME : decision == skip_recursive ? SKIP_WITH_CALLEES : SKIP_NOT;
    if (skip == SKIP_NOT && decision != keep_entries) {
        PyErr_Format(PyExc_TypeError, "dynamo_lite: compile_frame returned %R, neither a GuardedCode nor a decision", decision);
        return -1;
    }
    Slot *slot = need_slot(code, hook);
    if (slot == NULL) {
        return -1;
    }
    if (decision == keep_entries) {
        slot->closed = 1;
    }
    else {
        slot->skip = (SkipMark)skip;
    }
    return 0;
}

/* ---- the evaluation function ---- */

static SkipMark
skip_mark(PyCodeObject *code, FrameHook *hook, int *closed)
{
    CodeCache *cache = cache_of(code);
    *closed = 0;
    if (cache == NULL) {
        return SKIP_NOT;
    }
    if (cache->skip != SKIP_NOT) {
        return cache->skip;
    }
    Slot *slot = find_slot(cache, hook);
    if (slot == NULL) {
        return SKIP_NOT;
    }
    *closed = slot->closed;
    return slot->skip;
}

/* Evaluates a frame without the hook, including all that it calls and the generator that it may return. */
static PyObject *
eval_with_callees_unhooked(ThreadState *thread, PyThreadState *tstate, InterpreterFrame *frame)
{
    PyObject *result = eval_unhooked(thread, tstate, frame, 0);
    if (result != NULL && unhook_if_generator(result) < 0) {
        Py_CLEAR(result);
    }
    return result;
}

/* Evaluates the original frame after its arguments have been taken out for the guards. */
static PyObject *
pass_on(ThreadState *thread, PyThreadState *tstate, InterpreterFrame *frame, int with_hook)
{
    give_arguments_back(frame);
    return with_hook ? eval_uncaptured(thread, tstate, frame, 0) : eval_with_callees_unhooked(thread, tstate, frame);
}

/* Evaluates a frame that can be captured. The caller holds a reference to the hook. `accepts`: whether the caller of the frame
 * takes a Continuation as its result. */
static PyObject *
eval_captured(ThreadState *thread, FrameHook *hook, PyThreadState *tstate, InterpreterFrame *frame, int accepts)
{
    PyCodeObject *code = frame_code(frame);
    PyFunctionObject *function = frame_function(frame);
    int closed;
    SkipMark skip = skip_mark(code, hook, &closed);
    if (skip != SKIP_NOT) {
        return skip == SKIP_FRAME ? eval_uncaptured(thread, tstate, frame, 0) : eval_with_callees_unhooked(thread, tstate, frame);
    }
    PyObject **arguments = take_arguments(frame);
    GuardFrame guard_frame = {arguments, code_argument_count(code), function->func_closure, frame_globals(frame),
                              frame_builtins(frame)};
    GuardedCode *entry = NULL;
    PyObject *inputs = NULL;
    int found = look_up(thread, code, hook, &guard_frame, &entry, &inputs);
    if (found == 0 && !closed) {
        PyObject *decision = ask_hook(thread, hook, code, function, &guard_frame);
        if (decision == NULL) {
            return leave_frame(tstate, frame, NULL);
        }
        if (Py_IS_TYPE(decision, &GuardedCode_Type)) {
            entry = (GuardedCode *)decision;
            found = accept_entry(thread, code, hook, &guard_frame, entry, &inputs);
            if (found < 0) {
                Py_DECREF(entry);
            }
        }
        else {
            found = obey(decision, code, hook);
            skip = decision == skip_recursive ? SKIP_WITH_CALLEES : SKIP_NOT;
            Py_DECREF(decision);
        }
    }
    if (found < 0) {
        return leave_frame(tstate, frame, NULL);
    }
    if (found == 0) {
        return pass_on(thread, tstate, frame, skip != SKIP_WITH_CALLEES);
    }
    PyObject *result;
    int passed_on = entry->code == NULL;
    if (passed_on) {
        result = pass_on(thread, tstate, frame, entry->needs_hook);
    }
    else {
        result = run_guarded(thread, hook, entry, function, &guard_frame, &inputs, arguments);
    }
    Py_DECREF(entry);
    Py_XDECREF(inputs);
    if (result != NULL && Py_IS_TYPE(result, &Continuation_Type) && !accepts) {
        result = trampoline(thread, hook, result);
    }
    return passed_on ? result : leave_frame(tstate, frame, result);
}

/* The evaluation function (PEP 523). CPython calls it in place of _PyEval_EvalFrameDefault (Python/ceval.c). */
PyObject *
eval_frame(PyThreadState *tstate, InterpreterFrame *frame, int throwflag)
{
    ThreadState *thread = &this_thread;
    FrameHook *hook = thread->hook;
    if (hook == NULL) {
        return eval_without_hook(thread, tstate, frame, throwflag);
    }
    PyCodeObject *code = frame_code(frame);
    release_handover(thread, code);
    int accepts = thread->accepts == code;
    if (accepts) {
        thread->accepts = NULL;
    }
    if (thread->busy) {
        return eval_without_hook(thread, tstate, frame, throwflag);
    }
    if (throwflag || !code_can_be_captured(code) || !frame_is_fresh(frame) || thread_is_traced(tstate)
        || code_is_monitored(code)) {
        if (frame_is_unhooked(frame)) {
            return eval_unhooked(thread, tstate, frame, throwflag);
        }
        return eval_plain(thread, tstate, frame, throwflag);
    }
    if (call_policy == Py_None || recursion_is_deep(thread_state(), tstate)) {
        return eval_unhooked(thread, tstate, frame, 0);
    }
    Py_INCREF(hook);
    PyObject *result = eval_captured(thread, hook, tstate, frame, accepts);
    Py_DECREF(hook);
    return result;
}

/* ---- the module ---- */

typedef struct {
    PyObject_HEAD
    const char *name;
} Decision;

static PyObject *
decision_repr(Decision *self)
{
    return PyUnicode_FromString(self->name);
}

static PyTypeObject Decision_Type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "dynamo_lite._eval_frame.Decision",
    .tp_basicsize = sizeof(Decision),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_doc = "what compile_frame returns when it made no guarded code",
    .tp_repr = (reprfunc)decision_repr,
};

static int
add_decision(PyObject *module, PyObject **place, const char *name)
{
    if (*place == NULL) {
        Decision *decision = PyObject_New(Decision, &Decision_Type);
        if (decision == NULL) {
            return -1;
        }
        decision->name = name;
        *place = (PyObject *)decision;
    }
    return PyModule_AddObjectRef(module, name, *place);
}

static int
import_guards(void)
{
    PyObject *module = PyImport_ImportModule("dynamo_lite._guards");
    PyObject *capsule = module == NULL ? NULL : PyObject_GetAttrString(module, "_C_API");
    Py_XDECREF(module);
    if (capsule == NULL) {
        return -1;
    }
    guards = PyCapsule_GetPointer(capsule, GUARDS_CAPSULE);
    Py_DECREF(capsule); /* the module `_guards` stays loaded, and its capsule with it */
    if (guards != NULL && guards->version != GUARDS_API_VERSION) {
        PyErr_SetString(PyExc_ImportError, "dynamo_lite._guards and dynamo_lite._eval_frame are of different builds");
        return -1;
    }
    return guards == NULL ? -1 : 0;
}

static PyMethodDef profile_methods[] = {
    {"use_profiler", use_profiler, METH_VARARGS, USE_PROFILER_DOC},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module_def = {
    PyModuleDef_HEAD_INIT,
    .m_name = "dynamo_lite._eval_frame",
    .m_doc = "The frame evaluation hook and the entry of a compiled call.",
    .m_size = -1,
    .m_methods = thread_methods,
};

PyMODINIT_FUNC
PyInit__eval_frame(void)
{
    PyTypeObject *types[] = {&FrameHook_Type, &GuardedCode_Type, &CompiledFunction_Type, &Continuation_Type, &CompiledGraph_Type,
                             &Decision_Type};
    threads_init();
    no_globals = PyDict_New();
    if (no_globals == NULL || import_guards() < 0 || cache_init() < 0) {
        return NULL;
    }
    PyObject *module = PyModule_Create(&module_def);
    if (module == NULL) {
        return NULL;
    }
    for (size_t i = 0; i < Py_ARRAY_LENGTH(types); i++) {
        if (PyModule_AddType(module, types[i]) < 0) {
            Py_DECREF(module);
            return NULL;
        }
    }
    if (PyModule_AddFunctions(module, cache_methods) < 0 || PyModule_AddFunctions(module, profile_methods) < 0
        || PyModule_AddFunctions(module, generator_methods) < 0 || add_decision(module, &run_original, "RUN_ORIGINAL") < 0
        || add_decision(module, &skip_frame, "SKIP") < 0 || add_decision(module, &skip_recursive, "SKIP_RECURSIVE") < 0
        || add_decision(module, &keep_entries, "KEEP_ENTRIES") < 0) {
        Py_DECREF(module);
        return NULL;
    }
    return module;
}
