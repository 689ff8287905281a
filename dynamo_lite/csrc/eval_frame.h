/* Shared by the translation units of `_eval_frame`.
 *
 * Who owns what: a FrameHook owns the entries that were made for it; a code object only points to them (through co_extra),
 * so the garbage collector sees every reference an entry holds, and a hook that dies takes its entries with it. A Slot is
 * one (code, hook) pair; it dies with either. Whoever holds a Slot pointer must not run arbitrary code and go on using it.
 */
#ifndef DYNAMO_LITE_EVAL_FRAME_H
#define DYNAMO_LITE_EVAL_FRAME_H

#include <Python.h>
#include <stdint.h>

#include "guards_api.h"
#include "python_version.h"

typedef struct Slot Slot;

typedef struct {
    PyObject_HEAD
    PyObject *compile_frame;
    PyObject *dict;
    PyObject *weakrefs;
    Slot *slots; /* linked by next_in_hook; owns their entries */
} FrameHook;

typedef enum { SKIP_NOT, SKIP_FRAME, SKIP_WITH_CALLEES } SkipMark;

typedef struct CodeCache {
    PyCodeObject *code; /* borrowed: the cache dies with the code */
    Slot *slots;        /* linked by next_in_code, the last used first */
    SkipMark skip;      /* for every hook */
    int own;            /* code that we have made: no other evaluation function gets its frames */
    struct CodeCache *next, **link;
} CodeCache;

struct Slot {
    CodeCache *cache;
    FrameHook *hook; /* borrowed */
    PyObject *entries; /* tuple of GuardedCode, the last hit first; NULL when there is none. Replaced, never changed. */
    SkipMark skip;
    int closed; /* entries are used, but a miss does not ask for another one */
    Slot *next_in_code, **link_in_code;
    Slot *next_in_hook, **link_in_hook;
};

typedef struct {
    PyObject_HEAD
    PyObject *program; /* GuardProgram */
    PyObject *code;    /* NULL: run the original frame */
    PyObject *extra;
    PyObject *direct;  /* NULL, or what the code calls with the inputs to return the first of its results */
    PyObject *function; /* made from code; taken out for the time of a call */
    unsigned long long hits, passed_over; /* how often the guards have held, and not */
    Slot *slot; /* where the entry is listed; NULL when it is not or no longer */
    char needs_hook;
    char breadth; /* narrow ones are tried before broader ones: see GuardedCode in the .pyi */
} GuardedCode;

typedef struct {
    PyObject_VAR_HEAD
    PyObject *fn;
    PyObject *args[1];
} Continuation;

/* What lay over our evaluation function when it was put on top: both NULL if it was there already. */
typedef struct {
    _PyFrameEvalFunction above, previous; /* the one above, and what was our previous one */
} Above;

typedef struct {
    FrameHook *outer; /* owned */
    Above above;
} Switched;

/* What end_compile() puts back. */
typedef struct {
    Above own;
    Switched switched;
    int collects; /* whether the garbage collector was on */
} Compiling;

/* References that have to be gone when the frame of `code` has begun, which has got its own by then: what the program deletes
 * there must not live on because of us. */
typedef struct {
    PyCodeObject *code; /* borrowed */
    PyObject **inputs;  /* one owned reference, or NULL */
    PyObject **args;    /* n owned references, or NULL */
    Py_ssize_t n;
} Handover;

/* What a thread is doing. `hook` is owned. */
typedef struct {
    FrameHook *hook;
    int compiling;             /* depth of calls of compile_frame */
    int busy;                  /* compiling, or evaluating guards: every frame runs plainly */
    PyCodeObject *accepts;     /* the frame of this code may return a Continuation to its caller; borrowed */
    Handover *handover;        /* for the frame that is about to begin; lies on the C stack of who begins it */
    int own;                   /* depth of what others' evaluation functions must not see: see begin_own() */
    _PyFrameEvalFunction below; /* what lay over our function when set_active(None) was called, or NULL */
    InterpreterFrame *passed;  /* the frame that the previous evaluation function has been asked to evaluate, or NULL */
    uintptr_t stack_end;       /* lowest address of the C stack; 0: not looked up yet */
    uintptr_t stack_reserve;   /* with less than this left of it, frames run as without the hook */
} ThreadState;

extern PyTypeObject FrameHook_Type, GuardedCode_Type, CompiledFunction_Type, Continuation_Type, CompiledGraph_Type;
extern const GuardsAPI *guards;

/* threads.c */
/* With the C library's own way to find it (dlopen has room for small ones), every use is one load instead of a call. */
#ifdef __GLIBC__
#define NEAR_THREAD __attribute__((tls_model("initial-exec")))
#else
#define NEAR_THREAD
#endif
extern _Thread_local ThreadState this_thread NEAR_THREAD;
extern PyMethodDef thread_methods[];
extern PyInterpreterState *interpreter;
extern _PyFrameEvalFunction previous_eval; /* what ours is installed over */
void threads_init(void);
void find_stack(ThreadState *thread);
Above begin_own_beside_others(ThreadState *thread);
void end_own_beside_others(ThreadState *thread, Above above);
Switched begin_hook(ThreadState *thread, FrameHook *hook); /* another hook, or NULL for none, until end_hook() */
void end_hook(ThreadState *thread, Switched switched);
Compiling begin_compile(ThreadState *thread);
void end_compile(ThreadState *thread, Compiling compiling);
PyObject *eval_plain(ThreadState *thread, PyThreadState *tstate, InterpreterFrame *frame, int throwflag);
PyObject *eval_uncaptured(ThreadState *thread, PyThreadState *tstate, InterpreterFrame *frame, int throwflag);
PyObject *eval_without_hook(ThreadState *thread, PyThreadState *tstate, InterpreterFrame *frame, int throwflag);
PyObject *eval_unhooked(ThreadState *thread, PyThreadState *tstate, InterpreterFrame *frame, int throwflag);
Above put_on_top(void);
void note_traced(PyThreadState *tstate);

/* _eval_frame.c */
PyObject *eval_frame(PyThreadState *tstate, InterpreterFrame *frame, int throwflag);
PyObject *guarded_call_direct(GuardedCode *entry, PyObject *inputs);
PyObject *run_guarded(ThreadState *thread, FrameHook *hook, GuardedCode *entry, PyFunctionObject *function,
                      const GuardFrame *frame, PyObject **inputs, PyObject **owned);
PyObject *trampoline(ThreadState *thread, FrameHook *hook, PyObject *continuation);
int look_up(ThreadState *thread, PyCodeObject *code, FrameHook *hook, const GuardFrame *frame, GuardedCode **entry,
            PyObject **inputs);

/* compiled_function.c: NULL as a rule; None: whatever would run compiled runs in plain Python; or (fn, hook) -> the hook of
 * this call of a compiled function, or None. */
extern PyObject *call_policy;

/* unhooked_generators.c */
int frame_is_unhooked(InterpreterFrame *frame);
int unhook_if_generator(PyObject *value); /* 0, or -1 with an exception */
extern PyMethodDef generator_methods[];

/* frame_cache.c */
int cache_init(void);
CodeCache *cache_of(PyCodeObject *code);
Slot *find_slot(CodeCache *cache, FrameHook *hook);
Slot *need_slot(PyCodeObject *code, FrameHook *hook);
int mark_as_guarded(PyCodeObject *code); /* its frames always run plainly */
int mark_as_own(PyCodeObject *code);
int add_entry(PyCodeObject *code, FrameHook *hook, GuardedCode *entry);
Py_ssize_t place_of(PyObject *entries, const GuardedCode *entry); /* where it belongs among them; entries: a tuple or NULL */
void move_forward(PyCodeObject *code, FrameHook *hook, PyObject *entries, Py_ssize_t index, Py_ssize_t place);
extern PyMethodDef cache_methods[];

static inline ThreadState *
thread_state(void)
{
    ThreadState *thread = &this_thread;
    if (thread->stack_end == 0) {
        find_stack(thread);
    }
    return thread;
}

/* A stack that is not the thread's own (a fiber's) is never low. */
static inline int
stack_left_is_below(const ThreadState *thread, uintptr_t size)
{
    char here;
    return (uintptr_t)&here - thread->stack_end < size;
}

/* Whether calls are nested so deeply that what is left of the stack belongs to the program in plain Python. */
static inline int
recursion_is_deep(const ThreadState *thread, PyThreadState *tstate)
{
    return stack_left_is_below(thread, thread->stack_reserve) || c_recursion_is_low(tstate);
}

/* Compiles, and guarded code that runs without the hook: nobody else's evaluation function is to see their frames.
 * Where there is no other this costs nothing, and ours needn't be installed. */
#define NOT_OWN ((Above){eval_frame, NULL}) /* it is never above itself */

/* Whether no evaluation function is installed but the interpreter's and ours. */
static inline int
we_are_alone(void)
{
    _PyFrameEvalFunction current = _PyInterpreterState_GetEvalFrameFunc(interpreter);
    return current == _PyEval_EvalFrameDefault || (current == eval_frame && previous_eval == _PyEval_EvalFrameDefault);
}

static inline Above
begin_own(ThreadState *thread)
{
    return we_are_alone() ? NOT_OWN : begin_own_beside_others(thread);
}

static inline void
end_own(ThreadState *thread, Above above)
{
    if (above.above != eval_frame) {
        end_own_beside_others(thread, above);
    }
}

static inline Py_ssize_t
code_argument_count(PyCodeObject *code)
{
    return code->co_argcount + code->co_kwonlyargcount + ((code->co_flags & CO_VARARGS) != 0)
           + ((code->co_flags & CO_VARKEYWORDS) != 0);
}

/* Functions, not class bodies or modules; run to their end in one go. */
static inline int
code_can_be_captured(PyCodeObject *code)
{
    const int wanted = CO_OPTIMIZED | CO_NEWLOCALS;
    const int refused = CO_GENERATOR | CO_COROUTINE | CO_ITERABLE_COROUTINE | CO_ASYNC_GENERATOR;
    return (code->co_flags & (wanted | refused)) == wanted;
}

#endif
