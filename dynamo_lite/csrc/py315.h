/* CPython 3.15: the interpreter internals that the frame hook uses are those of 3.14. */
#ifndef DYNAMO_LITE_PY315_H
#define DYNAMO_LITE_PY315_H

#include "py314.h"

/* While an evaluation function is installed, the interpreter specializes instructions only if it is told to. */
#define SPECIALIZING_IS_ASKED_FOR 1

#endif
