/* GuardedCode: code to run in place of a frame, and the guards under which it may.
 *
 * Invariant: an entry does not change once it is made, but for its count of hits, its function, and what logs keep with it.
 */
#include "eval_frame.h"

#include <structmember.h>

static PyObject *
guarded_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"program", "code", "needs_hook", "extra", "breadth", NULL};
    PyObject *program, *code, *extra = Py_None;
    int needs_hook, breadth = 1;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!Op|$Oi:GuardedCode", names, guards->program_type, &program, &code,
                                     &needs_hook, &extra, &breadth)) {
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
    Py_VISIT(self->function);
    /* The collector can't see through a code object, and the constants of guarded code can refer back here. While nobody but
     * this entry holds the code, its reference to the constants counts as one of the entry's own. */
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
    .tp_doc = "GuardedCode(program, code, needs_hook, *, extra=None, breadth=1): code to run in place of a frame whose "
              "guards hold",
    .tp_new = guarded_new,
    .tp_dealloc = (destructor)guarded_dealloc,
    .tp_traverse = (traverseproc)guarded_traverse,
    .tp_clear = (inquiry)guarded_clear,
    .tp_members = guarded_members,
};
