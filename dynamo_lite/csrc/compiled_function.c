/* CompiledFunction, which `compile` returns for a function, and Continuation, which guarded code returns after a graph break.
 *
 * A call of a CompiledFunction binds its arguments as the interpreter would and looks for guarded code at once, so that a
 * function that is a single graph runs without a frame of its own and without the hook. All other calls (without a hit, with
 * arguments that raise TypeError, of a callable that is not a function) are ordinary calls with the hook active.
 */
#include "eval_frame.h"

#include <structmember.h>

/* ---- Continuation ---- */

#define FREE_SIZES 16 /* there are free lists for continuations with fewer arguments than this */
#define FREE_LENGTH 8

static Continuation *free_continuations[FREE_SIZES][FREE_LENGTH];
static int n_free[FREE_SIZES];

static PyObject *
continuation_vectorcall(PyObject *Py_UNUSED(type), PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    Py_ssize_t n = PyVectorcall_NARGS(nargsf) - 1;
    if (n < 0 || (kwnames != NULL && PyTuple_GET_SIZE(kwnames) > 0)) {
        PyErr_SetString(PyExc_TypeError, "Continuation() takes a callable and positional arguments");
        return NULL;
    }
    Continuation *self;
    if (n < FREE_SIZES && n_free[n] > 0) {
        self = free_continuations[n][--n_free[n]];
        _Py_NewReference((PyObject *)self);
    }
    else {
        self = PyObject_NewVar(Continuation, &Continuation_Type, n);
        if (self == NULL) {
            return NULL;
        }
    }
    self->fn = Py_NewRef(args[0]);
    for (Py_ssize_t i = 0; i < n; i++) {
        self->args[i] = Py_NewRef(args[i + 1]);
    }
    return (PyObject *)self;
}

static void
continuation_dealloc(Continuation *self)
{
    Py_ssize_t n = Py_SIZE(self);
    for (Py_ssize_t i = 0; i < n; i++) {
        Py_XDECREF(self->args[i]); /* NULL if the frame that it continues in has begun: see Handover */
    }
    Py_DECREF(self->fn);
    if (n < FREE_SIZES && n_free[n] < FREE_LENGTH) {
        free_continuations[n][n_free[n]++] = self;
    }
    else {
        PyObject_Free(self);
    }
}

static PyObject *
continuation_args(Continuation *self, void *Py_UNUSED(closure))
{
    PyObject *args = PyTuple_New(Py_SIZE(self));
    for (Py_ssize_t i = 0; args != NULL && i < Py_SIZE(self); i++) {
        PyTuple_SET_ITEM(args, i, Py_NewRef(self->args[i] == NULL ? Py_None : self->args[i]));
    }
    return args;
}

static PyMemberDef continuation_members[] = {
    {"fn", T_OBJECT, offsetof(Continuation, fn), READONLY, "what to call next"},
    {NULL, 0, 0, 0, NULL},
};

static PyGetSetDef continuation_getset[] = {
    {"args", (getter)continuation_args, NULL, "with what", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

PyTypeObject Continuation_Type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "dynamo_lite._eval_frame.Continuation",
    .tp_basicsize = offsetof(Continuation, args),
    .tp_itemsize = sizeof(PyObject *),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_doc = "Continuation(fn, *args): returned by guarded code to be called in its place once its frame is gone",
    .tp_vectorcall = continuation_vectorcall,
    .tp_dealloc = (destructor)continuation_dealloc,
    .tp_members = continuation_members,
    .tp_getset = continuation_getset,
};

/* ---- binding of arguments ---- */

#define MAX_BOUND 64

typedef struct {
    PyObject *values[MAX_BOUND]; /* borrowed references, one per parameter; the last may be the two below */
    PyObject *varargs, *varkw;   /* owned, or NULL */
    Py_ssize_t n;
} Bound;

static void
release_bound(Bound *bound)
{
    Py_XDECREF(bound->varargs);
    Py_XDECREF(bound->varkw);
}

static Py_ssize_t
find_parameter(PyCodeObject *code, Py_ssize_t n_named, PyObject *name)
{
    for (Py_ssize_t i = code->co_posonlyargcount; i < n_named; i++) {
        if (PyTuple_GET_ITEM(code->co_localsplusnames, i) == name) {
            return i;
        }
    }
    for (Py_ssize_t i = code->co_posonlyargcount; i < n_named; i++) {
        PyObject *parameter = PyTuple_GET_ITEM(code->co_localsplusnames, i);
        if (PyUnicode_CheckExact(name) && PyUnicode_Compare(parameter, name) == 0) {
            return i;
        }
    }
    return -1;
}

/* Binds the arguments of a call to a function's parameters. 1: bound. 0: they do not fit; an ordinary call handles this case or
 * raises. -1: an exception is set. The caller must call release_bound() in any case. */
static int
bind_arguments(PyFunctionObject *function, PyObject *self, PyObject *const *args, Py_ssize_t n_given, PyObject *kwnames,
               Bound *bound)
{
    PyCodeObject *code = (PyCodeObject *)function->func_code;
    Py_ssize_t n_positional = code->co_argcount;
    Py_ssize_t n_named = n_positional + code->co_kwonlyargcount;
    Py_ssize_t n_kw = kwnames == NULL ? 0 : PyTuple_GET_SIZE(kwnames);
    Py_ssize_t shift = self != NULL, n_total = n_given + shift;
    PyObject **values = bound->values;
    bound->varargs = bound->varkw = NULL;
    bound->n = code_argument_count(code);
    if (bound->n > MAX_BOUND || (n_total > n_positional && !(code->co_flags & CO_VARARGS))) {
        return 0;
    }
    if (shift && n_positional > 0) {
        values[0] = self;
    }
    Py_ssize_t n_copied = n_total < n_positional ? n_total : n_positional;
    for (Py_ssize_t i = shift; i < n_copied; i++) {
        values[i] = args[i - shift];
    }
    for (Py_ssize_t i = n_copied; i < n_named; i++) {
        values[i] = NULL;
    }
    Py_ssize_t extra = n_named; /* position of *args and then **kwargs */
    if (code->co_flags & CO_VARARGS) {
        bound->varargs = PyTuple_New(n_total - n_copied);
        if (bound->varargs == NULL) {
            return -1;
        }
        for (Py_ssize_t i = n_copied; i < n_total; i++) {
            PyTuple_SET_ITEM(bound->varargs, i - n_copied, Py_NewRef(i < shift ? self : args[i - shift]));
        }
        values[extra++] = bound->varargs;
    }
    if (code->co_flags & CO_VARKEYWORDS) {
        bound->varkw = PyDict_New();
        if (bound->varkw == NULL) {
            return -1;
        }
        values[extra] = bound->varkw;
    }
    for (Py_ssize_t i = 0; i < n_kw; i++) {
        PyObject *name = PyTuple_GET_ITEM(kwnames, i), *value = args[n_given + i];
        Py_ssize_t place = find_parameter(code, n_named, name);
        if (place >= 0) {
            if (values[place] != NULL) {
                return 0;
            }
            values[place] = value;
        }
        else if (bound->varkw == NULL || !PyUnicode_CheckExact(name)) {
            return 0;
        }
        else if (PyDict_SetItem(bound->varkw, name, value) < 0) {
            return -1;
        }
    }
    PyObject *defaults = function->func_defaults;
    Py_ssize_t n_defaults = defaults == NULL ? 0 : PyTuple_GET_SIZE(defaults);
    for (Py_ssize_t i = n_copied; i < n_positional; i++) {
        if (values[i] == NULL) {
            Py_ssize_t which = i - (n_positional - n_defaults);
            if (which < 0) {
                return 0;
            }
            values[i] = PyTuple_GET_ITEM(defaults, which);
        }
    }
    for (Py_ssize_t i = n_positional; i < n_named; i++) {
        if (values[i] == NULL) {
            PyObject *name = PyTuple_GET_ITEM(code->co_localsplusnames, i);
            values[i] = function->func_kwdefaults == NULL ? NULL : PyDict_GetItemWithError(function->func_kwdefaults, name);
            if (values[i] == NULL) {
                return PyErr_Occurred() ? -1 : 0;
            }
        }
    }
    return 1;
}

/* ---- CompiledFunction ---- */

typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    PyObject *fn;
    FrameHook *hook; /* owned; NULL: calls run `fn` unchanged */
    PyObject *dict;
    PyObject *weakrefs;
} CompiledFunction;

/* Calls a function in plain Python, including all that it calls. */
static PyObject *
call_unhooked(ThreadState *thread, PyObject *fn, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    Switched switched = begin_hook(thread, NULL);
    PyObject *result = PyObject_Vectorcall(fn, args, nargsf, kwnames);
    end_hook(thread, switched);
    if (result != NULL && unhook_if_generator(result) < 0) {
        Py_CLEAR(result);
    }
    return result;
}

/* Calls guarded code without an ordinary call, if an entry fits. NULL without an exception: none does. */
static PyObject *
call_hit(ThreadState *thread, FrameHook *hook, PyObject *fn, PyObject *const *args, Py_ssize_t n_args, PyObject *kwnames)
{
    PyObject *self = NULL, *const called = fn;
    if (PyMethod_Check(fn)) {
        self = PyMethod_GET_SELF(fn);
        fn = PyMethod_GET_FUNCTION(fn);
    }
    if (!PyFunction_Check(fn)) {
        return NULL;
    }
    PyFunctionObject *function = (PyFunctionObject *)fn;
    PyCodeObject *code = (PyCodeObject *)function->func_code;
    CodeCache *cache = cache_of(code);
    if (cache == NULL || cache->skip != SKIP_NOT || !code_can_be_captured(code) || code_is_monitored(code)) {
        return NULL;
    }
    Slot *slot = find_slot(cache, hook);
    if (slot == NULL || slot->skip != SKIP_NOT || slot->entries == NULL) {
        return NULL;
    }
    Bound bound;
    PyObject *result = NULL;
    Py_INCREF(function); /* code that the guards run could rebind a method's function */
    Py_INCREF(code);
    Py_XINCREF(self);
    int found = bind_arguments(function, self, args, n_args, kwnames, &bound);
    if (found > 0) {
        GuardFrame frame = {bound.values, bound.n, function->func_closure, function->func_globals, function->func_builtins};
        GuardedCode *entry;
        PyObject *inputs;
        found = look_up(thread, code, hook, &frame, &entry, &inputs);
        if (found > 0) {
            if (entry->code != NULL) {
                result = run_guarded(thread, hook, entry, function, &frame, &inputs, NULL);
            }
            else if (!entry->needs_hook) {
                result = call_unhooked(thread, called, args, (size_t)n_args, kwnames);
            }
            Py_DECREF(entry);
            Py_XDECREF(inputs);
        }
    }
    release_bound(&bound);
    Py_XDECREF(self);
    Py_DECREF(code);
    Py_DECREF(function);
    return result;
}

/* Calls a compiled function with this hook, to which the caller holds a reference. */
static PyObject *
call_with_hook(ThreadState *thread, FrameHook *hook, PyObject *fn, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    PyObject *result = call_hit(thread, hook, fn, args, PyVectorcall_NARGS(nargsf), kwnames);
    if (result == NULL && !PyErr_Occurred()) {
        Switched switched = begin_hook(thread, hook);
        result = PyObject_Vectorcall(fn, args, nargsf, kwnames);
        end_hook(thread, switched);
    }
    else if (result != NULL && Py_IS_TYPE(result, &Continuation_Type)) {
        result = trampoline(thread, hook, result);
    }
    return result;
}

PyObject *call_policy;

/* Calls a compiled function while a policy is set: with the hook that it chooses, or in plain Python including all callees. */
static PyObject *
call_by_policy(ThreadState *thread, CompiledFunction *self, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    PyObject *fn = Py_NewRef(self->fn), *chosen, *result = NULL;
    if (call_policy == Py_None) {
        chosen = Py_NewRef(Py_None);
    }
    else {
        PyObject *policy = Py_NewRef(call_policy);
        PyObject *stack[] = {fn, (PyObject *)self->hook};
        Above own = begin_own(thread);
        Switched switched = begin_hook(thread, NULL);
        chosen = PyObject_Vectorcall(policy, stack, Py_ARRAY_LENGTH(stack), NULL);
        end_hook(thread, switched);
        end_own(thread, own);
        Py_DECREF(policy);
    }
    if (chosen != NULL && PyObject_TypeCheck(chosen, &FrameHook_Type)) {
        result = call_with_hook(thread, (FrameHook *)chosen, fn, args, nargsf, kwnames);
    }
    else if (chosen == Py_None) {
        result = call_unhooked(thread, fn, args, nargsf, kwnames);
    }
    else if (chosen != NULL) {
        PyErr_Format(PyExc_TypeError, "dynamo_lite: a call policy gave %R, neither a FrameHook nor None", chosen);
    }
    Py_XDECREF(chosen);
    Py_DECREF(fn);
    return result;
}

static PyObject *
compiled_vectorcall(PyObject *callable, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    CompiledFunction *self = (CompiledFunction *)callable;
    ThreadState *thread = thread_state();
    FrameHook *hook = self->hook;
    PyThreadState *tstate = PyThreadState_Get();
    if (hook == NULL || thread->busy || thread_is_traced(tstate)) {
        if (hook != NULL && !thread->busy) {
            note_traced(tstate);
        }
        return PyObject_Vectorcall(self->fn, args, nargsf, kwnames);
    }
    if (recursion_is_deep(thread, tstate)) {
        if (stack_left_is_below(thread, thread->stack_reserve / 4)) {
            PyErr_SetString(PyExc_RecursionError, "maximum recursion depth exceeded while calling a compiled function");
            return NULL;
        }
        return PyObject_Vectorcall(self->fn, args, nargsf, kwnames);
    }
    if (call_policy != NULL) {
        return call_by_policy(thread, self, args, nargsf, kwnames);
    }
    Py_INCREF(hook);
    PyObject *fn = Py_NewRef(self->fn);
    PyObject *result = call_with_hook(thread, hook, fn, args, nargsf, kwnames);
    Py_DECREF(fn);
    Py_DECREF(hook);
    return result;
}

static PyObject *
compiled_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"fn", "hook", NULL};
    PyObject *fn, *hook;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OO:CompiledFunction", names, &fn, &hook)) {
        return NULL;
    }
    if (!PyCallable_Check(fn) || (hook != Py_None && !PyObject_TypeCheck(hook, &FrameHook_Type))) {
        PyErr_SetString(PyExc_TypeError, "CompiledFunction() takes a callable and a FrameHook or None");
        return NULL;
    }
    CompiledFunction *self = (CompiledFunction *)type->tp_alloc(type, 0);
    if (self != NULL) {
        self->vectorcall = compiled_vectorcall;
        self->fn = Py_NewRef(fn);
        self->hook = hook == Py_None ? NULL : (FrameHook *)Py_NewRef(hook);
    }
    return (PyObject *)self;
}

static int
compiled_traverse(CompiledFunction *self, visitproc visit, void *arg)
{
    Py_VISIT(self->fn);
    Py_VISIT(self->hook);
    Py_VISIT(self->dict);
    return 0;
}

static int
compiled_clear(CompiledFunction *self)
{
    Py_CLEAR(self->hook);
    Py_CLEAR(self->dict);
    Py_XSETREF(self->fn, Py_NewRef(Py_None)); /* never NULL: a call finds an object that is not callable */
    return 0;
}

static void
compiled_dealloc(CompiledFunction *self)
{
    PyObject_GC_UnTrack(self);
    if (self->weakrefs != NULL) {
        PyObject_ClearWeakRefs((PyObject *)self);
    }
    compiled_clear(self);
    Py_CLEAR(self->fn);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

static PyObject *
compiled_bind(PyObject *self, PyObject *obj, PyObject *Py_UNUSED(type))
{
    return obj == NULL || obj == Py_None ? Py_NewRef(self) : PyMethod_New(self, obj);
}

/* Attributes that a function has and this object does not have (__code__, __defaults__, ...) are those of the function. */
static PyObject *
compiled_getattro(PyObject *self, PyObject *name)
{
    PyObject *value = PyObject_GenericGetAttr(self, name);
    if (value == Py_None && PyUnicode_CompareWithASCIIString(name, "__doc__") == 0) {
        Py_DECREF(value); /* __doc__ of the type, which every type has */
        return PyObject_GetAttr(((CompiledFunction *)self)->fn, name);
    }
    if (value != NULL || !PyErr_ExceptionMatches(PyExc_AttributeError)) {
        return value;
    }
    PyErr_Clear();
    return PyObject_GetAttr(((CompiledFunction *)self)->fn, name);
}

static PyObject *
compiled_repr(CompiledFunction *self)
{
    return PyUnicode_FromFormat("<compiled %R>", self->fn);
}

/* Copies and pickles as a function does: a copy is the object itself, a pickle is a reference by name. */
static PyObject *
compiled_reduce(PyObject *self, PyObject *Py_UNUSED(arg))
{
    return PyObject_GetAttrString(self, "__qualname__");
}

static PyMethodDef compiled_methods[] = {
    {"__reduce__", compiled_reduce, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyObject *
compiled_get_hook(CompiledFunction *self, void *Py_UNUSED(closure))
{
    return Py_NewRef(self->hook == NULL ? Py_None : (PyObject *)self->hook);
}

static int
compiled_set_hook(CompiledFunction *self, PyObject *hook, void *Py_UNUSED(closure))
{
    if (hook == NULL || (hook != Py_None && !PyObject_TypeCheck(hook, &FrameHook_Type))) {
        PyErr_SetString(PyExc_TypeError, "hook must be a FrameHook or None");
        return -1;
    }
    Py_XSETREF(self->hook, hook == Py_None ? NULL : (FrameHook *)Py_NewRef(hook));
    return 0;
}

static PyMemberDef compiled_members[] = {
    {"fn", T_OBJECT, offsetof(CompiledFunction, fn), READONLY, "the function as it was"},
    {NULL, 0, 0, 0, NULL},
};

static PyGetSetDef compiled_getset[] = {
    {"hook", (getter)compiled_get_hook, (setter)compiled_set_hook, "the FrameHook, or None: calls run fn as it is", NULL},
    {"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

PyTypeObject CompiledFunction_Type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "dynamo_lite._eval_frame.CompiledFunction",
    .tp_basicsize = sizeof(CompiledFunction),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_METHOD_DESCRIPTOR
                | Py_TPFLAGS_BASETYPE,
    .tp_new = compiled_new,
    .tp_call = PyVectorcall_Call,
    .tp_vectorcall_offset = offsetof(CompiledFunction, vectorcall),
    .tp_dealloc = (destructor)compiled_dealloc,
    .tp_traverse = (traverseproc)compiled_traverse,
    .tp_clear = (inquiry)compiled_clear,
    .tp_descr_get = compiled_bind,
    .tp_getattro = compiled_getattro,
    .tp_repr = (reprfunc)compiled_repr,
    .tp_methods = compiled_methods,
    .tp_members = compiled_members,
    .tp_getset = compiled_getset,
    .tp_dictoffset = offsetof(CompiledFunction, dict),
    .tp_weaklistoffset = offsetof(CompiledFunction, weakrefs),
};
