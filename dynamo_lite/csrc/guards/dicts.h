/* Inline fast paths for loads from dicts, which are the most frequent steps. */
#ifndef DYNAMO_LITE_GUARDS_DICTS_H
#define DYNAMO_LITE_GUARDS_DICTS_H

#include "guards.h"

/* The value of a key in the dict's own table, also of a subclass; a new reference. NULL without an exception: there is none. */
static inline PyObject *
dict_get(PyObject *dict, PyObject *key)
{
    return Py_XNewRef(PyDict_GetItemWithError(dict, key));
}

/* Like dict_get() for the step's key; while the dict is unchanged, the remembered value is returned without a lookup. */
static inline PyObject *
load_dict_item(PyObject *obj, Step *step)
{
    if (dict_unchanged(&step->memo, obj)) {
        return Py_NewRef(step->found);
    }
    return PyDict_Check(obj) ? guard_find_dict_item(obj, step) : NULL;
}

/* The object's __dict__, which is created if the interpreter keeps the attributes inline. A new reference, or NULL with or
 * without an exception. Runs no user code. */
static inline PyObject *
instance_dict(PyObject *obj)
{
    PyObject **place = _PyObject_GetDictPtr(obj);
    if (place == NULL) {
        return NULL;
    }
    return *place != NULL ? Py_NewRef(*place) : PyObject_GenericGetDict(obj, NULL);
}

#endif
