/* A number that tells whether a dict is as it was: no two states of any two dicts share one, except 0, which tells nothing.
 *
 * CPython 3.11 counts every change of every dict (PEP 509). From 3.12 on that is deprecated in favour of watchers, so there
 * the number is 0 and whoever asks does the full check.
 */
#ifndef DYNAMO_LITE_DICT_VERSION_H
#define DYNAMO_LITE_DICT_VERSION_H

#include <Python.h>
#include <stdint.h>

#if PY_VERSION_HEX < 0x030c0000
static inline uint64_t
dict_version(PyObject *dict)
{
    return ((PyDictObject *)dict)->ma_version_tag;
}
#else
static inline uint64_t
dict_version(PyObject *Py_UNUSED(dict))
{
    return 0;
}
#endif

#endif
