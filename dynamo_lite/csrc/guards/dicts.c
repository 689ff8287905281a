/* Checks of dicts and loads from dicts. A step's memo keeps their results for as long as the dict is in the same state. */
#include "dicts.h"

/* Finds the entry at `position` of a dict in the order of its table; key and value are borrowed references.
 *
 * The cursor of PyDict_Next is an index into the table of entries (Objects/dictobject.c, _PyDict_Next), in which deleted entries
 * leave holes. A dict of n entries with none at an index of n or beyond has no hole, so that the index is the position, and the
 * walk from the first entry can be skipped. This matters for a guard program that reads every entry of an optimizer's state. */
static int
entry_at(PyObject *dict, Py_ssize_t position, PyObject **key, PyObject **value)
{
    Py_ssize_t size = PyDict_GET_SIZE(dict);
    if (position >= size) {
        return 0;
    }
    Py_ssize_t beyond = size;
    Py_ssize_t cursor = PyDict_Next(dict, &beyond, key, value) ? 0 : position;
    Py_ssize_t steps = cursor == position ? 0 : position;
    while (PyDict_Next(dict, &cursor, key, value)) {
        if (steps-- == 0) {
            return 1;
        }
    }
    return 0;
}

/* The key at `position` in the order of iteration in Python; a new reference. NULL without an exception: there is none. */
PyObject *
guard_dict_key_at(PyObject *dict, Py_ssize_t position)
{
    if (PyODict_Check(dict)) { /* its order is kept in a separate list, which PyDict_Next does not follow */
        PyObject *keys = PyObject_CallMethod((PyObject *)&PyODict_Type, "keys", "O", dict);
        PyObject *iterator = keys == NULL ? NULL : PyObject_GetIter(keys);
        Py_XDECREF(keys);
        PyObject *key = NULL;
        for (Py_ssize_t i = 0; iterator != NULL && i <= position; i++) {
            Py_XSETREF(key, PyIter_Next(iterator));
            if (key == NULL) {
                break;
            }
        }
        Py_XDECREF(iterator);
        return key;
    }
    PyObject *key, *value;
    return entry_at(dict, position, &key, &value) ? Py_NewRef(key) : NULL;
}

/* The value of the key at `position`; a new reference. NULL without an exception: there is none. */
PyObject *
guard_dict_value_at(PyObject *dict, Py_ssize_t position)
{
    PyObject *key, *value;
    if (PyODict_Check(dict)) {
        key = guard_dict_key_at(dict, position);
        value = key == NULL ? NULL : PyDict_GetItemWithError(dict, key);
        Py_XDECREF(key);
        return Py_XNewRef(value);
    }
    return entry_at(dict, position, &key, &value) ? Py_NewRef(value) : NULL;
}

static int
keys_equal(PyObject *key, PyObject *expected)
{
    if (key == expected) {
        return 1;
    }
    Py_INCREF(key);
    int equal = guard_const_equal(key, expected);
    Py_DECREF(key);
    return equal;
}

int
guard_dict_keys_are(PyObject *dict, Step *step)
{
    PyObject *expected = step->obj;
    Py_ssize_t n = PyTuple_GET_SIZE(expected);
    if (!PyDict_Check(dict) || PyDict_GET_SIZE(dict) != n) {
        return 0;
    }
    if (PyODict_Check(dict)) {
        PyObject *keys = PyObject_CallMethod((PyObject *)&PyODict_Type, "keys", "O", dict);
        PyObject *list = keys == NULL ? NULL : PySequence_List(keys);
        Py_XDECREF(keys);
        int equal = list == NULL ? -1 : PyList_GET_SIZE(list) == n;
        for (Py_ssize_t i = 0; equal == 1 && i < n; i++) {
            equal = guard_const_equal(PyList_GET_ITEM(list, i), PyTuple_GET_ITEM(expected, i));
        }
        Py_XDECREF(list);
        return equal;
    }
    if (dict_unchanged(&step->memo, dict)) {
        return 1;
    }
    DictState state = dict_state(&step->memo, dict);
    Py_ssize_t cursor = 0, i = 0;
    PyObject *key;
    while (PyDict_Next(dict, &cursor, &key, NULL)) {
        int equal = i < n ? keys_equal(key, PyTuple_GET_ITEM(expected, i++)) : 0;
        if (equal != 1) {
            return equal;
        }
    }
    if (i != n) {
        return 0;
    }
    dict_remember(&step->memo, state);
    return 1;
}

/* Looks up the step's key and remembers the result. A new reference, or NULL with or without an exception. */
PyObject *
guard_find_dict_item(PyObject *dict, Step *step)
{
    DictState state = dict_state(&step->memo, dict);
    PyObject *value = dict_get(dict, step->obj);
    if (value != NULL && dict_remember(&step->memo, state)) {
        step->found = value;
    }
    return value;
}

/* Whether the containers that a dict has under a step's names are empty: 1, 0, or -1 with an exception. If all of them are
 * dicts, they are remembered. */
static int
find_hooks(PyObject *dict, Step *step)
{
    Py_ssize_t n = PyTuple_GET_SIZE(step->obj);
    PyObject *found[GUARD_MOST_HOOKS] = {NULL};
    DictState state = dict_state(&step->memo, dict);
    int ok = 1, remember = n <= GUARD_MOST_HOOKS;
    for (Py_ssize_t i = 0; ok == 1 && i < n; i++) {
        PyObject *hooks = dict_get(dict, PyTuple_GET_ITEM(step->obj, i));
        if (hooks == NULL) {
            ok = PyErr_Occurred() ? -1 : 1;
        }
        else if (hooks != Py_None) {
            Py_ssize_t size = guard_raw_size(hooks);
            ok = size == -2 ? -1 : size == 0;
            if (PyDict_Check(hooks) && i < GUARD_MOST_HOOKS) {
                found[i] = hooks; /* borrowed: `dict` holds them as long as it does not change */
            }
            else {
                remember = 0; /* reading its size may run code */
            }
        }
        Py_XDECREF(hooks);
    }
    if (ok == 1 && remember) {
        if (step->data == NULL) {
            step->data = PyMem_Malloc(sizeof(found));
        }
        if (step->data != NULL && dict_remember(&step->memo, state)) {
            memcpy(step->data, found, sizeof(found));
        }
    }
    return ok;
}

/* Whether the containers that an instance's dict has under a step's names are empty: 1, 0, or -1 with an exception. While the
 * dict is unchanged, the containers need not be looked up again; their sizes are read every time. */
int
guard_no_hooks(PyObject *obj, Step *step)
{
    PyObject *dict = instance_dict(obj);
    if (dict == NULL) {
        return PyErr_Occurred() ? -1 : 0;
    }
    Py_ssize_t n = PyTuple_GET_SIZE(step->obj);
    int ok = 1;
    if (dict_unchanged(&step->memo, dict)) {
        PyObject **known = step->data;
        for (Py_ssize_t i = 0; ok && i < n; i++) {
            ok = known[i] == NULL || PyDict_GET_SIZE(known[i]) == 0;
        }
        Py_DECREF(dict);
        return ok;
    }
    ok = PyDict_Check(dict) ? find_hooks(dict, step) : 0;
    Py_DECREF(dict);
    return ok;
}
