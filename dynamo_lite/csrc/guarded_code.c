/* GuardedCode: code to run in place of a frame, with the guards under which that is valid.
 *
 * Invariant: an entry does not change after its creation, except for its counts of hits and failures, its place in a cache, its
 * function, and the object that logs keep in `extra`.
 */
#include "eval_frame.h"

#include <structmember.h>

/* Computes the result of the entry's code without a frame for it; a new reference. NULL without an exception: the code must
 * run. This includes a failure of the direct call. It has changed nothing, and the code repeats the call and handles the
 * exception. */
PyObject *
guarded_call_direct(GuardedCode *entry, PyObject *inputs)
{
    if (inputs == NULL || !PyTuple_CheckExact(inputs) || calls_are_watched(PyThreadState_Get())) {
        return NULL;
    }
    PyObject *outputs = PyObject_Vectorcall(entry->direct, &PyTuple_GET_ITEM(inputs, 0), (size_t)PyTuple_GET_SIZE(inputs), NULL);
    PyObject *result = NULL;
    if (outputs == NULL) {
        PyErr_Clear();
    }
    else if (PyTuple_CheckExact(outputs) && PyTuple_GET_SIZE(outputs) != 0) {
        result = Py_NewRef(PyTuple_GET_ITEM(outputs, 0));
    }
    Py_XDECREF(outputs);
    return result;
}

static PyObject *
guarded_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"program", "code", "needs_hook", "extra", "breadth", "direct", NULL};
    PyObject *program, *code, *extra = Py_None, *direct = Py_None;
    int needs_hook, breadth = 1;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!Op|$OiO:GuardedCode", names, guards->program_type, &program, &code,
                                     &needs_hook, &extra, &breadth, &direct)) {
        return NULL;
    }
    if (code != Py_None && !PyCode_Check(code)) {
        PyErr_SetString(PyExc_TypeError, "GuardedCode() takes a code object or None");
        return NULL;
    }
    GuardedCode *self = (GuardedCode *)type->tp_alloc(type, 0);
    if (self != NULL) {
        self->program = Py_NewRef(program);
        self->code = code == Py_None ? NULL : Py_NewRef(code);
        self->extra = Py_NewRef(extra);
        self->direct = direct == Py_None ? NULL : Py_NewRef(direct);
        self->needs_hook = (char)needs_hook;
        self->breadth = (char)(breadth < 0 ? 0 : breadth > 2 ? 2 : breadth);
    }
    return (PyObject *)self;
}

static int
guarded_traverse(GuardedCode *self, visitproc visit, void *arg)
{
    Py_VISIT(self->program);
    Py_VISIT(self->extra);
    Py_VISIT(self->direct);
    Py_VISIT(self->function);
    /* The garbage collector does not traverse code objects, but the constants of guarded code can refer back to this entry. As
     * long as only this entry holds the code, the code's reference to its constants counts as the entry's own. */
    int known = 1 + (self->function != NULL && Py_REFCNT(self->function) == 1);
    if (self->code != NULL && Py_REFCNT(self->code) == known) {
        Py_VISIT(((PyCodeObject *)self->code)->co_consts);
    }
    return 0;
}

static int
guarded_clear(GuardedCode *self)
{
    Py_CLEAR(self->extra);
    Py_CLEAR(self->direct);
    Py_CLEAR(self->function);
    Py_CLEAR(self->program);
    Py_CLEAR(self->code);
    return 0;
}

static void
guarded_dealloc(GuardedCode *self)
{
    PyObject_GC_UnTrack(self);
    guarded_clear(self);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

static PyMemberDef guarded_members[] = {
    {"program", T_OBJECT, offsetof(GuardedCode, program), READONLY, "the GuardProgram"},
    {"code", T_OBJECT, offsetof(GuardedCode, code), READONLY, "the code object to run, or None"},
    {"extra", T_OBJECT, offsetof(GuardedCode, extra), 0, "any object, for logs"},
    {"direct", T_OBJECT, offsetof(GuardedCode, direct), READONLY, "what is called in place of the code, or None"},
    {"needs_hook", T_BOOL, offsetof(GuardedCode, needs_hook), READONLY, "whether the code runs with the hook active"},
    {"breadth", T_BYTE, offsetof(GuardedCode, breadth), READONLY, "0 to 2: narrow ones are tried first"},
    {"hits", T_ULONGLONG, offsetof(GuardedCode, hits), READONLY, "how often the guards have held"},
    {NULL, 0, 0, 0, NULL},
};

PyTypeObject GuardedCode_Type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "dynamo_lite._eval_frame.GuardedCode",
    .tp_basicsize = sizeof(GuardedCode),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_doc = "GuardedCode(program, code, needs_hook, *, extra=None, breadth=1, direct=None): code to run in place of a "
              "frame whose guards hold",
    .tp_new = guarded_new,
    .tp_dealloc = (destructor)guarded_dealloc,
    .tp_traverse = (traverseproc)guarded_traverse,
    .tp_clear = (inquiry)guarded_clear,
    .tp_members = guarded_members,
};
