/* What `_guards` offers to other C extensions of the package, through the capsule GUARDS_CAPSULE.
 *
 * Invariant: the layout only grows at its end, and GUARDS_API_VERSION is raised when it does.
 */
#ifndef DYNAMO_LITE_GUARDS_API_H
#define DYNAMO_LITE_GUARDS_API_H

#include <Python.h>

#define GUARDS_CAPSULE "dynamo_lite._guards._C_API"
#define GUARDS_API_VERSION 1

/* What a frame offers to its guards. Everything is borrowed; closure may be NULL or a tuple of cells. */
typedef struct {
    PyObject *const *args;
    Py_ssize_t nargs;
    PyObject *closure;
    PyObject *globals;
    PyObject *builtins;
} GuardFrame;

typedef struct {
    int version;
    PyTypeObject *program_type;
    /* 1: all guards hold and *inputs is a new tuple. 0: the step *failed_step does not hold. -1: an exception is set.
     * `program` must be a GuardProgram that the caller keeps alive during the call. */
    int (*check)(PyObject *program, const GuardFrame *frame, PyObject **inputs, Py_ssize_t *failed_step);
} GuardsAPI;

#endif
