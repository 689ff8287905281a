/* Chooses the header for the Python version that this is built for: interpreter internals, and names that differ by version.
 *
 * Invariant: the frame hook depends on the version nowhere else, except in dict_version.h.
 */
#ifndef DYNAMO_LITE_PYTHON_VERSION_H
#define DYNAMO_LITE_PYTHON_VERSION_H

#include <Python.h>

#ifdef Py_GIL_DISABLED
#    error "dynamo_lite needs the global interpreter lock; free-threaded builds of Python are not supported"
#elif PY_VERSION_HEX >= 0x030b0000 && PY_VERSION_HEX < 0x030c0000
#    include "py311.h"
#elif PY_VERSION_HEX >= 0x030c0000 && PY_VERSION_HEX < 0x030d0000
#    include "py312.h"
#elif PY_VERSION_HEX >= 0x030d0000 && PY_VERSION_HEX < 0x030e0000
#    include "py313.h"
#elif PY_VERSION_HEX >= 0x030e0000 && PY_VERSION_HEX < 0x030f0000
#    include "py314.h"
#elif PY_VERSION_HEX >= 0x030f0000 && PY_VERSION_HEX < 0x03100000
#    include "py315.h"
#else
#    error "dynamo_lite supports CPython 3.11 to 3.15"
#endif

#endif
