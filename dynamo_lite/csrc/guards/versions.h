/* Functions of CPython that the evaluator of guard programs uses and whose names differ by version. */
#ifndef DYNAMO_LITE_GUARDS_VERSIONS_H
#define DYNAMO_LITE_GUARDS_VERSIONS_H

#include <Python.h>

/* The referent of a weak reference: a new reference, or NULL if it is gone. */
static inline PyObject *
weakref_referent(PyObject *reference)
{
#if PY_VERSION_HEX >= 0x030d0000
    PyObject *referent = NULL;
    return PyWeakref_GetRef(reference, &referent) == 1 ? referent : NULL;
#else
    PyObject *referent = PyWeakref_GET_OBJECT(reference);
    return referent == Py_None ? NULL : Py_NewRef(referent);
#endif
}

#endif
