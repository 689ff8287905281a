/* CPython 3.15: what is private to the interpreter is as in 3.14, as far as the frame hook uses it. */
#ifndef DYNAMO_LITE_PY315_H
#define DYNAMO_LITE_PY315_H

#include "py314.h"

/* Only then it goes on specializing instructions while an evaluator is installed. */
#define SPECIALIZING_IS_ASKED_FOR 1

#endif
