/* Functions of the extension `_runtime` for memory that is kept between calls; see kept_memory_methods.c. */
#ifndef DYNAMO_LITE_KEPT_MEMORY_METHODS_H
#define DYNAMO_LITE_KEPT_MEMORY_METHODS_H
#include <Python.h>

extern PyMethodDef kept_memory_methods[];
#endif
