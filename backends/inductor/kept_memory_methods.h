/* Functions of the extension `_runtime` on memory that stays with the process; see kept_memory_methods.c. */
#ifndef DYNAMO_LITE_KEPT_MEMORY_METHODS_H
#define DYNAMO_LITE_KEPT_MEMORY_METHODS_H
#include <Python.h>

extern PyMethodDef kept_memory_methods[];
#endif
