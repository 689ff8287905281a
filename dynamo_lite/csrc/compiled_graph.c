/* CompiledGraph: a compiled graph, as guarded code with graph breaks calls it.
 *
 * Such code runs with the hook active, because of the program's calls at a break. The graph does not belong to the program, so
 * neither our evaluation function nor those of others may capture the frames that run in it.
 */
#include "eval_frame.h"

#include <structmember.h>

typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    PyObject *fn;
} CompiledGraph;

static PyObject *
compiled_graph_vectorcall(PyObject *self, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    ThreadState *thread = thread_state();
    PyObject *fn = Py_NewRef(((CompiledGraph *)self)->fn);
    Above own = begin_own(thread);
    Switched switched = begin_hook(thread, NULL);
    PyObject *result = PyObject_Vectorcall(fn, args, nargsf, kwnames);
    end_hook(thread, switched);
    end_own(thread, own);
    Py_DECREF(fn);
    return result;
}

static PyObject *
compiled_graph_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"fn", NULL};
    PyObject *fn;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O:CompiledGraph", names, &fn)) {
        return NULL;
    }
    if (!PyCallable_Check(fn)) {
        PyErr_SetString(PyExc_TypeError, "CompiledGraph() takes a callable");
        return NULL;
    }
    CompiledGraph *self = (CompiledGraph *)type->tp_alloc(type, 0);
    if (self != NULL) {
        self->vectorcall = compiled_graph_vectorcall;
        self->fn = Py_NewRef(fn);
    }
    return (PyObject *)self;
}

static int
compiled_graph_traverse(CompiledGraph *self, visitproc visit, void *arg)
{
    Py_VISIT(self->fn);
    return 0;
}

static int
compiled_graph_clear(CompiledGraph *self)
{
    Py_XSETREF(self->fn, Py_NewRef(Py_None)); /* never NULL: a call finds an object that is not callable */
    return 0;
}

static void
compiled_graph_dealloc(CompiledGraph *self)
{
    PyObject_GC_UnTrack(self);
    Py_CLEAR(self->fn);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

static PyMemberDef compiled_graph_members[] = {
    {"fn", T_OBJECT, offsetof(CompiledGraph, fn), READONLY, "the compiled graph"},
    {NULL, 0, 0, 0, NULL},
};

PyTypeObject CompiledGraph_Type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "dynamo_lite._eval_frame.CompiledGraph",
    .tp_basicsize = sizeof(CompiledGraph),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL,
    .tp_doc = "CompiledGraph(fn): calls fn with no hook active and no other evaluation function looking on",
    .tp_new = compiled_graph_new,
    .tp_call = PyVectorcall_Call,
    .tp_vectorcall_offset = offsetof(CompiledGraph, vectorcall),
    .tp_dealloc = (destructor)compiled_graph_dealloc,
    .tp_traverse = (traverseproc)compiled_graph_traverse,
    .tp_clear = (inquiry)compiled_graph_clear,
    .tp_members = compiled_graph_members,
};
