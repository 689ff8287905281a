/* GraphCall: a compiled graph as code with breaks calls it.
 *
 * That code runs with the hook active, for what the program calls at a break; the graph is not the program's, so neither we
 * nor others are to capture what runs in it.
 */
#include "_eval_frame.h"

#include <structmember.h>

typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    PyObject *fn;
} GraphCall;

static PyObject *
graph_call(PyObject *self, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    ThreadState *thread = thread_state();
    PyObject *fn = Py_NewRef(((GraphCall *)self)->fn);
    Above own = begin_own(thread);
    Switched switched = begin_hook(thread, NULL);
    PyObject *result = PyObject_Vectorcall(fn, args, nargsf, kwnames);
    end_hook(thread, switched);
    end_own(thread, own);
    Py_DECREF(fn);
    return result;
}

static PyObject *
graph_call_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"fn", NULL};
    PyObject *fn;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O:GraphCall", names, &fn)) {
        return NULL;
    }
    if (!PyCallable_Check(fn)) {
        PyErr_SetString(PyExc_TypeError, "GraphCall() takes a callable");
        return NULL;
    }
    GraphCall *self = (GraphCall *)type->tp_alloc(type, 0);
    if (self != NULL) {
        self->vectorcall = graph_call;
        self->fn = Py_NewRef(fn);
    }
    return (PyObject *)self;
}

static int
graph_call_traverse(GraphCall *self, visitproc visit, void *arg)
{
    Py_VISIT(self->fn);
    return 0;
}

static int
graph_call_clear(GraphCall *self)
{
    Py_XSETREF(self->fn, Py_NewRef(Py_None)); /* never NULL: a call finds something that is not callable */
    return 0;
}

static void
graph_call_dealloc(GraphCall *self)
{
    PyObject_GC_UnTrack(self);
    Py_CLEAR(self->fn);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

static PyMemberDef graph_call_members[] = {
    {"fn", T_OBJECT, offsetof(GraphCall, fn), READONLY, "the compiled graph"},
    {NULL, 0, 0, 0, NULL},
};

PyTypeObject GraphCall_Type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "dynamo_lite._eval_frame.GraphCall",
    .tp_basicsize = sizeof(GraphCall),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL,
    .tp_doc = "GraphCall(fn): calls fn with no hook active and no other evaluation function looking on",
    .tp_new = graph_call_new,
    .tp_call = PyVectorcall_Call,
    .tp_vectorcall_offset = offsetof(GraphCall, vectorcall),
    .tp_dealloc = (destructor)graph_call_dealloc,
    .tp_traverse = (traverseproc)graph_call_traverse,
    .tp_clear = (inquiry)graph_call_clear,
    .tp_members = graph_call_members,
};
