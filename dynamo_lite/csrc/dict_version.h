/* A number that tells whether a dict is as it was: no two states of any two dicts share one, except 0, which tells nothing.
 *
 * CPython 3.11 counts every change of every dict (PEP 509), and so does 3.12, where reading the number is deprecated. In 3.13
 * a dict may change without a new number, 3.14 has none (guards/dict_memo.h): there it is 0, and whoever asks looks again.
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
    return ((PyDictObject *)dict)->ma_version_tag; /* in 3.12 its lowest bits say who watches the dict: no harm */
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
