/* Generators and coroutines of functions that are disabled together with all that they call.
 *
 * Such a function has returned before its generator runs, so each resumption of the generator has to deactivate the hook by
 * itself. Invariant: a generator is in the table from when it leaves its function until it ends; the table does not keep it
 * alive, and a generator that reuses its address is not mistaken for it. The table is protected by the GIL.
 */
#include "eval_frame.h"
#include "guards/versions.h"

typedef struct {
    PyObject *generator; /* borrowed */
    PyObject *weakref;   /* owned: its callback removes this row when the generator dies */
} Row;

static Row *rows;
static Py_ssize_t used, room; /* number of rows in use (mostly 0: a linear search is enough), and allocated */
static PyObject *when_it_ends;

static PyObject *
remove_row(PyObject *Py_UNUSED(module), PyObject *weakref)
{
    for (Py_ssize_t i = 0; i < used; i++) {
        if (rows[i].weakref == weakref) {
            rows[i] = rows[--used];
            Py_DECREF(weakref); /* the reference of the row; the caller has another one */
            break;
        }
    }
    Py_RETURN_NONE;
}

static PyMethodDef removal = {"remove_row", remove_row, METH_O, NULL};

/* Whether the row's generator is gone. At the recursion limit the callback can't run, and the row stays, while another
 * generator may get the address. */
static int
is_left_over(const Row *row)
{
    PyObject *alive = weakref_referent(row->weakref);
    Py_XDECREF(alive);
    return alive == NULL;
}

static int
has_row(PyObject *generator)
{
    for (Py_ssize_t i = 0; i < used; i++) {
        if (rows[i].generator == generator) {
            if (!is_left_over(&rows[i])) {
                return 1;
            }
            PyObject *weakref = rows[i].weakref;
            rows[i] = rows[--used];
            Py_DECREF(weakref);
            return 0;
        }
    }
    return 0;
}

int
frame_is_unhooked(InterpreterFrame *frame)
{
    PyObject *generator = used == 0 ? NULL : frame_generator(frame);
    return generator != NULL && has_row(generator);
}

int
unhook_if_generator(PyObject *value)
{
    if (!(PyGen_CheckExact(value) || PyCoro_CheckExact(value) || PyAsyncGen_CheckExact(value)) || has_row(value)) {
        return 0;
    }
    if (when_it_ends == NULL && (when_it_ends = PyCFunction_New(&removal, NULL)) == NULL) {
        return -1;
    }
    PyObject *weakref = PyWeakref_NewRef(value, when_it_ends);
    if (weakref == NULL) {
        return -1;
    }
    if (used == room) {
        Py_ssize_t wanted = room == 0 ? 8 : 2 * room;
        Row *larger = PyMem_Realloc(rows, (size_t)wanted * sizeof(Row));
        if (larger == NULL) {
            Py_DECREF(weakref);
            PyErr_NoMemory();
            return -1;
        }
        rows = larger;
        room = wanted;
    }
    rows[used++] = (Row){value, weakref};
    return 0;
}

static PyObject *
unhook(PyObject *Py_UNUSED(module), PyObject *value)
{
    return unhook_if_generator(value) < 0 ? NULL : Py_NewRef(value);
}

PyMethodDef generator_methods[] = {
    {"unhook", unhook, METH_O, "unhook(value) -> value: if it is a generator or coroutine, it always runs without the hook"},
    {NULL, NULL, 0, NULL},
};
