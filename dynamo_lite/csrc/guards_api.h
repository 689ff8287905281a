/* The interface of `_guards` for other C extensions of the package, through the capsule GUARDS_CAPSULE.
 *
 * Invariant: the layout only grows at its end, and GUARDS_API_VERSION is increased when it does.
 */
#ifndef DYNAMO_LITE_GUARDS_API_H
#define DYNAMO_LITE_GUARDS_API_H

#include <Python.h>

#define GUARDS_CAPSULE "dynamo_lite._guards._C_API"
#define GUARDS_API_VERSION 1

/* The values of a frame that guards can read. All references are borrowed; closure may be NULL or a tuple of cells. */
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
    /* Evaluates a program. 1: all guards hold, and *inputs is a new reference to a tuple. 0: the step *failed_step does not
     * hold. -1: an exception is set. `program` must be a GuardProgram, to which the caller holds a reference. */
    int (*check)(PyObject *program, const GuardFrame *frame, PyObject **inputs, Py_ssize_t *failed_step);
} GuardsAPI;

#endif
