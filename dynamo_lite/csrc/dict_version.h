/* A number that identifies the state of a dict: no two states of any two dicts share one, except for 0, which means "unknown".
 *
 * CPython 3.11 counts every change of every dict (PEP 509), and so does 3.12, where reading the number is deprecated. In 3.13
 * a dict may change without a new number, and 3.14 has none (guards/dict_memo.h). From 3.13 on the number is 0 here, so that
 * the caller looks again.
 */
#ifndef DYNAMO_LITE_DICT_VERSION_H
#define DYNAMO_LITE_DICT_VERSION_H

#include <Python.h>
#include <stdint.h>

#if PY_VERSION_HEX < 0x030d0000
#    define DICTS_HAVE_VERSIONS
static inline uint64_t
dict_version(PyObject *dict)
{
#    pragma GCC diagnostic push
#    pragma GCC diagnostic ignored "-Wdeprecated-declarations"
    return ((PyDictObject *)dict)->ma_version_tag; /* in 3.12 its lowest bits say who watches the dict, which does no harm */
#    pragma GCC diagnostic pop
}
#else
static inline uint64_t
dict_version(PyObject *Py_UNUSED(dict))
{
    return 0;
}
#endif

#endif
