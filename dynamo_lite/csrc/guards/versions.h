/* What the guard program's evaluator asks of CPython under names that differ by version. */
#ifndef DYNAMO_LITE_GUARDS_VERSIONS_H
#define DYNAMO_LITE_GUARDS_VERSIONS_H

#include <Python.h>

/* A new reference, or NULL where the referent is gone. */
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
