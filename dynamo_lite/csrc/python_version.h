/* Chooses the header of the Python that this is built for: what is private to its interpreter, or has another name in others.
 *
 * Invariant: the frame hook asks for a version nowhere else, but for dict_version.h.
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
