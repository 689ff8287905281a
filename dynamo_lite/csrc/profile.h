/* Regions for torch's profiler, which show a compiled call and the runs of its kernels under their names.
 *
 * torch.autograd.profiler has a global variable that says whether a profiler is enabled. `use_profiler` gets that module's dict
 * and the type of a region. Until then, and while the flag is False, a call costs a comparison of the dict's version or, in
 * Python versions without one, a lookup of the flag.
 */
#ifndef DYNAMO_LITE_PROFILE_H
#define DYNAMO_LITE_PROFILE_H

#include <Python.h>
#include <stdint.h>

#include "dict_version.h"

static struct { /* references are owned */
    PyObject *globals, *flag_name, *region_type;
    Py_hash_t flag_hash;
    uint64_t version;
    int on;
} profiler;

static inline int
look_for_profiler(void)
{
    PyObject *flag = _PyDict_GetItem_KnownHash(profiler.globals, profiler.flag_name, profiler.flag_hash); /* borrowed */
    profiler.version = dict_version(profiler.globals);
    profiler.on = flag == Py_True;
    return profiler.on;
}

static inline int
profiler_is_on(void)
{
    if (profiler.globals == NULL) {
        return 0;
    }
    uint64_t version = dict_version(profiler.globals);
    return version != 0 && version == profiler.version ? profiler.on : look_for_profiler();
}

/* Steals `name`. Returns a new reference, or NULL if there is no region: a profiler must not make a call fail. */
static inline PyObject *
begin_region(PyObject *name)
{
    PyObject *region = name == NULL ? NULL : PyObject_CallOneArg(profiler.region_type, name);
    PyObject *entered = region == NULL ? NULL : PyObject_CallMethod(region, "__enter__", NULL);
    if (entered == NULL) {
        PyErr_WriteUnraisable(name);
        Py_CLEAR(region);
    }
    Py_XDECREF(entered);
    Py_XDECREF(name);
    return region;
}

/* Leaves a region and steals the reference to it; keeps the current exception. */
static inline void
end_region(PyObject *region)
{
    PyObject *type, *value, *traceback;
    if (region == NULL) {
        return;
    }
    PyErr_Fetch(&type, &value, &traceback);
    PyObject *left = PyObject_CallMethod(region, "__exit__", "OOO", Py_None, Py_None, Py_None);
    if (left == NULL) {
        PyErr_WriteUnraisable(region);
    }
    Py_XDECREF(left);
    Py_DECREF(region);
    PyErr_Restore(type, value, traceback);
}

static PyObject *
use_profiler(PyObject *module, PyObject *args)
{
    PyObject *globals, *flag_name, *region_type;
    (void)module;
    if (!PyArg_ParseTuple(args, "O!UO:use_profiler", &PyDict_Type, &globals, &flag_name, &region_type)) {
        return NULL;
    }
    profiler.flag_hash = PyObject_Hash(flag_name);
    Py_XSETREF(profiler.globals, Py_NewRef(globals));
    Py_XSETREF(profiler.flag_name, Py_NewRef(flag_name));
    Py_XSETREF(profiler.region_type, Py_NewRef(region_type));
    look_for_profiler();
    Py_RETURN_NONE;
}

#define USE_PROFILER_DOC \
    "use_profiler(globals, flag, region): regions are made by region(name) while globals[flag] is True"

#endif
