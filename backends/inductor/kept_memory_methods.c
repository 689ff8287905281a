/* Python functions for memory that is kept between calls; they belong to the extension module `_runtime`.
 *
 * Invariant: no decision is made here; kept_memory.c does not need the interpreter.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "kept_memory.h"
#include "kept_memory_methods.h"

static PyObject *
keep_memory(PyObject *module, PyObject *args)
{
    long long bytes;
    double idle;
    const char *root = "/";
    (void)module;
    if (!PyArg_ParseTuple(args, "Ld|s:keep_memory", &bytes, &idle, &root)) {
        return NULL;
    }
    if (!can_keep_memory()) {
        Py_RETURN_FALSE;
    }
    set_kept_memory(bytes, idle, root);
    Py_RETURN_TRUE;
}

static PyObject *
release_memory(PyObject *module, PyObject *ignored)
{
    (void)module;
    (void)ignored;
    return PyBool_FromLong(release_kept_memory());
}

static PyObject *
memory_state(PyObject *module, PyObject *ignored)
{
    uint64_t bytes_free, at_end;
    (void)module;
    (void)ignored;
    count_kept_memory(&bytes_free, &at_end);
    return Py_BuildValue("(iKK)", kept_memory.kept, (unsigned long long)bytes_free, (unsigned long long)at_end);
}

static PyObject *
memory_short(PyObject *module, PyObject *root)
{
    (void)module;
    const char *path = PyUnicode_AsUTF8(root);
    return path == NULL ? NULL : PyBool_FromLong(memory_is_short(path));
}

PyMethodDef kept_memory_methods[] = {
    {"keep_memory", keep_memory, METH_VARARGS,
     "keep_memory(bytes, idle, root='/') -> bool\n\nHas malloc keep so many bytes between calls of entries that make large tensors, "
     "until none was called for `idle` seconds; 0: leaves it to itself. False: it can't be told."},
    {"release_memory", release_memory, METH_NOARGS, "release_memory() -> bool\n\nGives free memory back to the system."},
    {"memory_state", memory_state, METH_NOARGS,
     "memory_state() -> (kept, free, at_end)\n\nWhether freed memory is kept now; bytes of malloc that are free, and those at "
     "the heap's end."},
    {"memory_short", memory_short, METH_O,
     "memory_short(root) -> bool\n\nWhether the system, or this container, has little memory left, by the files below `root`."},
    {NULL, NULL, 0, NULL},
};
