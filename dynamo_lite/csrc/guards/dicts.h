/* Loads from dicts that most steps come by: what is found without a call is found here. */
#ifndef DYNAMO_LITE_GUARDS_DICTS_H
#define DYNAMO_LITE_GUARDS_DICTS_H

#include "guards.h"

/* The value at a key, by the dict's own table; a new reference. NULL without an exception: there is none. */
static inline PyObject *
dict_get(PyObject *dict, PyObject *key)
{
    return Py_XNewRef(PyDict_GetItemWithError(dict, key));
}

/* The same for the step's key, found again without a look into the table while the dict is as it was. */
static inline PyObject *
load_dict_item(PyObject *obj, Step *step)
{
    if (dict_unchanged(&step->memo, obj)) {
        return Py_NewRef(step->found);
    }
    return PyDict_Check(obj) ? guard_find_dict_item(obj, step) : NULL;
}

/* The object's __dict__, made real where the interpreter keeps it inline; a new reference or NULL. Runs no user code. */
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
