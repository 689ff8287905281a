/* Declarations shared by the translation units of `_eval_frame`.
 *
 * Ownership: a FrameHook owns the entries that were made for it. A code object only points to them (through co_extra), so the
 * garbage collector sees every reference that an entry holds, and a hook that dies takes its entries with it. A Slot is one
 * (code, hook) pair and dies with either. A Slot pointer must not be used after running arbitrary code. All global state is
 * protected by the GIL.
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
    Slot *slots; /* linked by next_in_hook; the hook owns their entries */
} FrameHook;

typedef enum { SKIP_NOT, SKIP_FRAME, SKIP_WITH_CALLEES } SkipMark;

typedef struct CodeCache {
    PyCodeObject *code; /* borrowed: the cache dies with the code */
    Slot *slots;        /* linked by next_in_code, the most recently used first */
    SkipMark skip;      /* applies to every hook */
    int own;            /* code made by dynamo_lite: other evaluation functions never get its frames */
    struct CodeCache *next, **link;
} CodeCache;

struct Slot {
    CodeCache *cache;
    FrameHook *hook; /* borrowed */
    PyObject *entries; /* owned tuple of GuardedCode, the last hit first, or NULL. Replaced, never changed. */
    SkipMark skip;
    int closed; /* the entries are used, but a miss does not call compile_frame */
    Slot *next_in_code, **link_in_code;
    Slot *next_in_hook, **link_in_hook;
};

typedef struct { /* references are owned unless noted */
    PyObject_HEAD
    PyObject *program; /* GuardProgram */
    PyObject *code;    /* NULL: run the original frame */
    PyObject *extra;
    PyObject *direct;  /* NULL, or a callable: all that the code does is to return direct(*inputs)[0] */
    PyObject *function; /* made from `code`; NULL during a call */
    unsigned long long hits, passed_over; /* number of evaluations in which the guards held, and did not hold */
    Slot *slot; /* borrowed: the slot that lists the entry; NULL if none does */
    char needs_hook;
    char breadth; /* narrower entries are tried before broader ones: see GuardedCode in the .pyi */
} GuardedCode;

typedef struct {
    PyObject_VAR_HEAD
    PyObject *fn;
    PyObject *args[1];
} Continuation;

/* The evaluation function that was installed above ours when ours was put on top; both fields are NULL if ours was on top. */
typedef struct {
    _PyFrameEvalFunction above, previous; /* the one above, and the value of previous_eval at that time */
} Above;

typedef struct {
    FrameHook *outer; /* owned: the hook to restore */
    Above above;
} Switched;

/* State that end_compile() restores. */
typedef struct {
    Above own;
    Switched switched;
    int collects; /* whether the garbage collector was enabled */
} Compiling;

/* References that must be dropped once the frame of `code` has begun, as it has its own by then. Otherwise an object that the
 * program deletes in that frame would stay alive because of dynamo_lite. */
typedef struct {
    PyCodeObject *code; /* borrowed */
    PyObject **inputs;  /* one owned reference, or NULL */
    PyObject **args;    /* n owned references, or NULL */
    Py_ssize_t n;
} Handover;

/* The state of a thread. `hook` is owned. */
typedef struct {
    FrameHook *hook;
    int compiling;             /* nesting depth of calls of compile_frame */
    int busy;                  /* nonzero while compiling or evaluating guards: no frame is captured then */
    PyCodeObject *accepts;     /* the frame of this code may return a Continuation to its caller; borrowed */
    Handover *handover;        /* for the frame that is about to begin; lies on the C stack of its caller */
    int own;                   /* nesting depth of code that others' evaluation functions must not see: see begin_own() */
    _PyFrameEvalFunction below; /* the function above ours when set_active(None) was called, or NULL */
    InterpreterFrame *passed;  /* the frame that the previous evaluation function is evaluating, or NULL */
    uintptr_t stack_end;       /* lowest address of the C stack; 0: not determined yet */
    uintptr_t stack_reserve;   /* if less than this is left of the stack, frames run without the hook */
} ThreadState;

extern PyTypeObject FrameHook_Type, GuardedCode_Type, CompiledFunction_Type, Continuation_Type, CompiledGraph_Type;
extern const GuardsAPI *guards;

/* threads.c */
/* With the initial-exec model (glibc's dlopen reserves room for small TLS blocks), an access is one load instead of a call. */
#ifdef __GLIBC__
#define NEAR_THREAD __attribute__((tls_model("initial-exec")))
#else
#define NEAR_THREAD
#endif
extern _Thread_local ThreadState this_thread NEAR_THREAD;
extern PyMethodDef thread_methods[];
extern PyInterpreterState *interpreter;
extern _PyFrameEvalFunction previous_eval; /* the evaluation function that ours passes frames on to */
void threads_init(void);
void find_stack(ThreadState *thread);
Above begin_own_beside_others(ThreadState *thread);
void end_own_beside_others(ThreadState *thread, Above above);
Switched begin_hook(ThreadState *thread, FrameHook *hook); /* activates a hook, or none (NULL), until end_hook() */
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

/* compiled_function.c: the policy for calls of compiled functions. NULL: none is set; None: all code runs in plain Python;
 * otherwise a callable (fn, hook) -> the hook of this call, or None. Owned. */
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
int mark_as_guarded(PyCodeObject *code); /* frames of this code are never captured */
int mark_as_own(PyCodeObject *code);
int add_entry(PyCodeObject *code, FrameHook *hook, GuardedCode *entry);
Py_ssize_t place_of(PyObject *entries, const GuardedCode *entry); /* its position among `entries`, a tuple or NULL */
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

/* Whether less than `size` bytes of the C stack are left. False on a stack that is not the thread's own (a fiber's). */
static inline int
stack_left_is_below(const ThreadState *thread, uintptr_t size)
{
    char here;
    return (uintptr_t)&here - thread->stack_end < size;
}

/* Whether calls are nested so deeply that the rest of the stack is reserved for the program in plain Python. */
static inline int
recursion_is_deep(const ThreadState *thread, PyThreadState *tstate)
{
    return stack_left_is_below(thread, thread->stack_reserve) || c_recursion_is_low(tstate);
}

/* Brackets code whose frames no other evaluation function may see: compiles, and guarded code that runs without the hook. If no
 * other function is installed this costs nothing, and ours need not be installed. */
#define NOT_OWN ((Above){eval_frame, NULL}) /* distinguishable, as ours is never above itself */

/* Whether no evaluation function is installed except the interpreter's and ours. */
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

/* Whether code is that of a function (not of a class body or module) that is not a generator or coroutine. */
static inline int
code_can_be_captured(PyCodeObject *code)
{
    const int wanted = CO_OPTIMIZED | CO_NEWLOCALS;
    const int refused = CO_GENERATOR | CO_COROUTINE | CO_ITERABLE_COROUTINE | CO_ASYNC_GENERATOR;
    return (code->co_flags & (wanted | refused)) == wanted;
}

#endif
