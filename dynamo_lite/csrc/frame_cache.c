/* The storage of guarded code: FrameHook, and the slots that connect hooks with code objects.
 *
 * Invariant: objects are released only after all lists are consistent again, because releasing one can run arbitrary code.
 */
#include "eval_frame.h"

#include <structmember.h>

#define MOST_PASSED_OVER 32 /* plus twice its hits: failures after which a narrow entry loses its precedence */

static Py_ssize_t extra_index = -1;
static CodeCache *all_caches;

/* ---- slots ---- */

static void free_cache(void *extra);

int
cache_init(void)
{
    if (extra_index < 0) {
        extra_index = PyUnstable_Eval_RequestCodeExtraIndex(free_cache);
        if (extra_index < 0) {
            PyErr_SetString(PyExc_ImportError, "dynamo_lite: this interpreter has no index left for data on code objects");
            return -1;
        }
    }
    return 0;
}

CodeCache *
cache_of(PyCodeObject *code)
{
    void *extra = NULL;
    if (PyUnstable_Code_GetExtra((PyObject *)code, extra_index, &extra) < 0) {
        PyErr_Clear(); /* only raised if `code` is not a code object */
        return NULL;
    }
    return extra;
}

static CodeCache *
need_cache(PyCodeObject *code)
{
    CodeCache *cache = cache_of(code);
    if (cache != NULL) {
        return cache;
    }
    cache = PyMem_Calloc(1, sizeof(CodeCache));
    if (cache == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    if (PyUnstable_Code_SetExtra((PyObject *)code, extra_index, cache) < 0) {
        PyMem_Free(cache);
        return NULL;
    }
    cache->code = code;
    cache->next = all_caches;
    cache->link = &all_caches;
    if (all_caches != NULL) {
        all_caches->link = &cache->next;
    }
    all_caches = cache;
    return cache;
}

static void
link_in_code(Slot *slot)
{
    CodeCache *cache = slot->cache;
    slot->next_in_code = cache->slots;
    slot->link_in_code = &cache->slots;
    if (cache->slots != NULL) {
        cache->slots->link_in_code = &slot->next_in_code;
    }
    cache->slots = slot;
}

static void
unlink_in_code(Slot *slot)
{
    *slot->link_in_code = slot->next_in_code;
    if (slot->next_in_code != NULL) {
        slot->next_in_code->link_in_code = slot->link_in_code;
    }
}

Slot *
find_slot(CodeCache *cache, FrameHook *hook)
{
    for (Slot *slot = cache->slots; slot != NULL; slot = slot->next_in_code) {
        if (slot->hook == hook) {
            if (slot != cache->slots) { /* many hooks can share a code object, but mostly one is in use: to the front */
                unlink_in_code(slot);
                link_in_code(slot);
            }
            return slot;
        }
    }
    return NULL;
}

Slot *
need_slot(PyCodeObject *code, FrameHook *hook)
{
    CodeCache *cache = need_cache(code);
    Slot *slot = cache == NULL ? NULL : find_slot(cache, hook);
    if (cache == NULL || slot != NULL) {
        return slot;
    }
    slot = PyMem_Calloc(1, sizeof(Slot));
    if (slot == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    slot->cache = cache;
    slot->hook = hook;
    link_in_code(slot);
    slot->next_in_hook = hook->slots;
    slot->link_in_hook = &hook->slots;
    if (hook->slots != NULL) {
        hook->slots->link_in_hook = &slot->next_in_hook;
    }
    hook->slots = slot;
    return slot;
}

/* Removes a slot from both lists and frees it. Its tuple of entries (or NULL) becomes the caller's, who must release it. */
static PyObject *
remove_slot(Slot *slot)
{
    PyObject *entries = slot->entries;
    for (Py_ssize_t i = 0; entries != NULL && i < PyTuple_GET_SIZE(entries); i++) {
        ((GuardedCode *)PyTuple_GET_ITEM(entries, i))->slot = NULL;
    }
    unlink_in_code(slot);
    *slot->link_in_hook = slot->next_in_hook;
    if (slot->next_in_hook != NULL) {
        slot->next_in_hook->link_in_hook = slot->link_in_hook;
    }
    PyMem_Free(slot);
    return entries;
}

static void
drop_slots_of_cache(CodeCache *cache)
{
    PyCodeObject *code = cache->code; /* releasing entries could release the code, and the cache with it */
    Py_INCREF(code);
    while (cache->slots != NULL) {
        Py_XDECREF(remove_slot(cache->slots));
    }
    Py_DECREF(code);
}

/* Called by CPython when a code object is being freed (code_dealloc in Objects/codeobject.c). */
static void
free_cache(void *extra)
{
    CodeCache *cache = extra;
    if (cache == NULL) {
        return;
    }
    *cache->link = cache->next;
    if (cache->next != NULL) {
        cache->next->link = cache->link;
    }
    while (cache->slots != NULL) {
        Py_XDECREF(remove_slot(cache->slots));
    }
    PyMem_Free(cache);
}

int
mark_as_guarded(PyCodeObject *code)
{
    CodeCache *cache = need_cache(code);
    if (cache == NULL) {
        return -1;
    }
    cache->skip = SKIP_FRAME;
    cache->own = 1;
    return 0;
}

int
mark_as_own(PyCodeObject *code)
{
    CodeCache *cache = need_cache(code);
    if (cache == NULL) {
        return -1;
    }
    cache->own = 1;
    return 0;
}

/* Whether an entry is tried before another regardless of which was used last. This holds for a narrow entry, which would never
 * be tried behind a broader one that fits all its calls; not if its guards failed so often that it costs more than it saves. */
static int
goes_before(const GuardedCode *entry, const GuardedCode *other)
{
    return entry->breadth < other->breadth && entry->passed_over < MOST_PASSED_OVER + 2 * entry->hits;
}

Py_ssize_t
place_of(PyObject *entries, const GuardedCode *entry)
{
    Py_ssize_t place = 0, n = entries == NULL ? 0 : PyTuple_GET_SIZE(entries);
    while (place < n && goes_before((GuardedCode *)PyTuple_GET_ITEM(entries, place), entry)) {
        place++;
    }
    return place;
}

/* A new tuple of the entries with this one at `place`; it moves there from `index`, or is new if `index` is negative. */
static PyObject *
entries_with(PyObject *entries, Py_ssize_t index, PyObject *entry, Py_ssize_t place)
{
    Py_ssize_t n = entries == NULL ? 0 : PyTuple_GET_SIZE(entries);
    PyObject *result = PyTuple_New(index < 0 ? n + 1 : n);
    if (result == NULL) {
        return NULL;
    }
    PyTuple_SET_ITEM(result, place, Py_NewRef(entry));
    for (Py_ssize_t i = 0, next = 0; i < n; i++) {
        if (i != index) {
            next += next == place;
            PyTuple_SET_ITEM(result, next++, Py_NewRef(PyTuple_GET_ITEM(entries, i)));
        }
    }
    return result;
}

int
add_entry(PyCodeObject *code, FrameHook *hook, GuardedCode *entry)
{
    if (entry->slot != NULL) {
        PyErr_SetString(PyExc_RuntimeError, "dynamo_lite: compile_frame returned a GuardedCode that is in use already");
        return -1;
    }
    Slot *slot = need_slot(code, hook);
    if (slot == NULL) {
        return -1;
    }
    PyObject *entries = entries_with(slot->entries, -1, (PyObject *)entry, place_of(slot->entries, entry));
    if (entries == NULL) {
        return -1;
    }
    slot = find_slot(cache_of(code), hook); /* again: making a tuple can run the garbage collector */
    if (slot == NULL) {
        slot = need_slot(code, hook);
    }
    if (slot == NULL) {
        Py_DECREF(entries);
        return -1;
    }
    entry->slot = slot;
    Py_XSETREF(slot->entries, entries);
    return 0;
}

void
move_forward(PyCodeObject *code, FrameHook *hook, PyObject *entries, Py_ssize_t index, Py_ssize_t place)
{
    PyObject *reordered = entries_with(entries, index, PyTuple_GET_ITEM(entries, index), place);
    if (reordered == NULL) {
        PyErr_Clear(); /* the order only affects speed */
        return;
    }
    CodeCache *cache = cache_of(code);
    Slot *slot = cache == NULL ? NULL : find_slot(cache, hook);
    if (slot == NULL || slot->entries != entries) { /* changed while the guards ran */
        Py_DECREF(reordered);
        return;
    }
    Py_SETREF(slot->entries, reordered);
}

/* ---- FrameHook ---- */

static PyObject *
hook_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"compile_frame", NULL};
    PyObject *compile_frame;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O:FrameHook", names, &compile_frame)) {
        return NULL;
    }
    if (!PyCallable_Check(compile_frame)) {
        PyErr_SetString(PyExc_TypeError, "FrameHook() takes a callable");
        return NULL;
    }
    FrameHook *self = (FrameHook *)type->tp_alloc(type, 0);
    if (self != NULL) {
        self->compile_frame = Py_NewRef(compile_frame);
    }
    return (PyObject *)self;
}

static int
hook_traverse(FrameHook *self, visitproc visit, void *arg)
{
    Py_VISIT(self->compile_frame);
    Py_VISIT(self->dict);
    for (Slot *slot = self->slots; slot != NULL; slot = slot->next_in_hook) {
        Py_VISIT(slot->entries);
    }
    return 0;
}

static int
hook_clear(FrameHook *self)
{
    while (self->slots != NULL) {
        Py_XDECREF(remove_slot(self->slots));
    }
    Py_CLEAR(self->compile_frame);
    Py_CLEAR(self->dict);
    return 0;
}

static void
hook_dealloc(FrameHook *self)
{
    PyObject_GC_UnTrack(self);
    if (self->weakrefs != NULL) {
        PyObject_ClearWeakRefs((PyObject *)self);
    }
    hook_clear(self);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

static PyMemberDef hook_members[] = {
    {"compile_frame", T_OBJECT, offsetof(FrameHook, compile_frame), READONLY, "called on a miss"},
    {NULL, 0, 0, 0, NULL},
};

static PyGetSetDef dict_getset[] = {
    {"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

PyTypeObject FrameHook_Type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "dynamo_lite._eval_frame.FrameHook",
    .tp_basicsize = sizeof(FrameHook),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_BASETYPE,
    .tp_doc = "FrameHook(compile_frame): what decides about frames while it is active in a thread; owns the guarded code",
    .tp_new = hook_new,
    .tp_dealloc = (destructor)hook_dealloc,
    .tp_traverse = (traverseproc)hook_traverse,
    .tp_clear = (inquiry)hook_clear,
    .tp_members = hook_members,
    .tp_getset = dict_getset,
    .tp_dictoffset = offsetof(FrameHook, dict),
    .tp_weaklistoffset = offsetof(FrameHook, weakrefs),
};

/* ---- functions on caches ---- */

static PyObject *
list_entries(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyCodeObject *code;
    PyObject *hook = Py_None;
    if (!PyArg_ParseTuple(args, "O!|O:entries", &PyCode_Type, &code, &hook)) {
        return NULL;
    }
    PyObject *result = PyList_New(0);
    CodeCache *cache = cache_of(code);
    for (Slot *slot = cache == NULL ? NULL : cache->slots; result != NULL && slot != NULL; slot = slot->next_in_code) {
        if (slot->entries != NULL && (hook == Py_None || (PyObject *)slot->hook == hook)) {
            Py_ssize_t end = PyList_GET_SIZE(result);
            if (PyList_SetSlice(result, end, end, slot->entries) < 0) {
                Py_CLEAR(result);
            }
        }
    }
    return result;
}

static PyObject *
reset_code(PyObject *Py_UNUSED(module), PyObject *code)
{
    if (!PyCode_Check(code)) {
        PyErr_SetString(PyExc_TypeError, "reset_code() takes a code object");
        return NULL;
    }
    CodeCache *cache = cache_of((PyCodeObject *)code);
    if (cache != NULL) {
        drop_slots_of_cache(cache);
    }
    Py_RETURN_NONE;
}

static PyObject *
reset(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(arg))
{
    /* Collect all entries first: releasing one can free code objects, and with them any cache of the list. */
    PyObject *garbage = PyList_New(0);
    if (garbage == NULL) {
        return NULL;
    }
    for (CodeCache *cache = all_caches; cache != NULL; cache = cache->next) {
        for (Slot *slot = cache->slots; slot != NULL; slot = slot->next_in_code) {
            if (slot->entries != NULL && PyList_Append(garbage, slot->entries) < 0) {
                Py_DECREF(garbage);
                return NULL;
            }
        }
    }
    for (CodeCache *cache = all_caches; cache != NULL; cache = cache->next) {
        while (cache->slots != NULL) {
            Py_XDECREF(remove_slot(cache->slots)); /* the list still holds them */
        }
    }
    Py_DECREF(garbage);
    Py_RETURN_NONE;
}

static PyObject *
mark(PyObject *args, const char *format, int is_skip, int is_close)
{
    PyCodeObject *code;
    PyObject *hook;
    int flag = 0;
    if (!PyArg_ParseTuple(args, format, &PyCode_Type, &code, &hook, &flag)) {
        return NULL;
    }
    SkipMark skip = !is_skip ? SKIP_NOT : flag ? SKIP_WITH_CALLEES : SKIP_FRAME;
    if (hook == Py_None && !is_close) {
        CodeCache *cache = need_cache(code);
        if (cache == NULL) {
            return NULL;
        }
        cache->skip = skip;
        Py_RETURN_NONE;
    }
    if (!PyObject_TypeCheck(hook, &FrameHook_Type)) {
        PyErr_Format(PyExc_TypeError, "expected a FrameHook, not %.100s", Py_TYPE(hook)->tp_name);
        return NULL;
    }
    Slot *slot = need_slot(code, (FrameHook *)hook);
    if (slot == NULL) {
        return NULL;
    }
    if (is_close) {
        slot->closed = flag;
    }
    else {
        slot->skip = skip;
    }
    Py_RETURN_NONE;
}

static PyObject *
skip(PyObject *Py_UNUSED(module), PyObject *args)
{
    return mark(args, "O!Op:skip", 1, 0);
}

static PyObject *
unskip(PyObject *Py_UNUSED(module), PyObject *args)
{
    return mark(args, "O!O|p:unskip", 0, 0);
}

static PyObject *
set_closed(PyObject *Py_UNUSED(module), PyObject *args)
{
    return mark(args, "O!Op:set_closed", 0, 1);
}

static PyObject *
is_skipped(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyCodeObject *code;
    PyObject *hook;
    if (!PyArg_ParseTuple(args, "O!O:is_skipped", &PyCode_Type, &code, &hook)) {
        return NULL;
    }
    CodeCache *cache = cache_of(code);
    int skipped = cache != NULL && cache->skip != SKIP_NOT;
    for (Slot *slot = cache == NULL ? NULL : cache->slots; slot != NULL; slot = slot->next_in_code) {
        skipped |= (PyObject *)slot->hook == hook && slot->skip != SKIP_NOT;
    }
    return PyBool_FromLong(skipped);
}

static PyObject *
mark_own(PyObject *Py_UNUSED(module), PyObject *code)
{
    if (!PyCode_Check(code)) {
        PyErr_SetString(PyExc_TypeError, "mark_own() takes a code object");
        return NULL;
    }
    if (mark_as_own((PyCodeObject *)code) < 0) {
        return NULL;
    }
    Py_RETURN_NONE;
}

static PyObject *
invalidate(PyObject *Py_UNUSED(module), PyObject *arg)
{
    if (!Py_IS_TYPE(arg, &GuardedCode_Type)) {
        PyErr_SetString(PyExc_TypeError, "invalidate() takes a GuardedCode");
        return NULL;
    }
    Slot *slot = ((GuardedCode *)arg)->slot;
    if (slot == NULL) {
        Py_RETURN_FALSE;
    }
    PyObject *rest = NULL;
    Py_ssize_t n = PyTuple_GET_SIZE(slot->entries);
    if (n > 1) {
        rest = PyTuple_New(n - 1);
        if (rest == NULL) {
            return NULL;
        }
        slot = ((GuardedCode *)arg)->slot; /* again: making a tuple can run the garbage collector */
        if (slot == NULL || PyTuple_GET_SIZE(slot->entries) != n) {
            Py_DECREF(rest);
            return invalidate(NULL, arg);
        }
        for (Py_ssize_t i = 0, next = 0; i < n; i++) {
            PyObject *entry = PyTuple_GET_ITEM(slot->entries, i);
            if (entry != arg) {
                PyTuple_SET_ITEM(rest, next++, Py_NewRef(entry));
            }
        }
    }
    ((GuardedCode *)arg)->slot = NULL;
    Py_XSETREF(slot->entries, rest);
    Py_RETURN_TRUE;
}

PyMethodDef cache_methods[] = {
    {"entries", list_entries, METH_VARARGS, "entries(code, hook=None) -> list of GuardedCode, the last hit first"},
    {"mark_own", mark_own, METH_O, "mark_own(code): frames of this code are never shown to other evaluation functions"},
    {"reset_code", reset_code, METH_O, "reset_code(code): forget all entries of a code object and what hooks decided on it"},
    {"reset", reset, METH_NOARGS, "reset(): reset_code() for every code object; skip() for every hook stays"},
    {"skip", skip, METH_VARARGS, "skip(code, hook or None, recursive): never ask about this code; None: for every hook"},
    {"unskip", unskip, METH_VARARGS, "unskip(code, hook or None): take a skip() back"},
    {"is_skipped", is_skipped, METH_VARARGS, "is_skipped(code, hook) -> bool"},
    {"set_closed", set_closed, METH_VARARGS,
     "set_closed(code, hook, closed): entries are still used, but a miss runs the frame without asking"},
    {"invalidate", invalidate, METH_O, "invalidate(guarded_code) -> bool: remove the entry; False: it was in no cache"},
    {NULL, NULL, 0, NULL},
};
