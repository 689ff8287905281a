/* Guards on sizes: steps that load them as numbers, and conditions on several of them.
 *
 * A condition compares an integer expression in postfix form with zero. Invariant: a condition does not hold if a value in its
 * computation does not fit 64 bits, or if it divides by less than one.
 */
#include "torch_parts.h"

enum { PUSH, LOAD, ADD, MUL, FLOORDIV, MOD, N_CODES };
enum { EQUAL, NOT_EQUAL, NOT_NEGATIVE, N_COMPARISONS };

#define MOST_ON_STACK 32

struct Relation {
    int32_t n_code, comparison;
    int64_t code[]; /* pairs of a code and its operand, which is a number or a register */
};

/* Size (or stride) of dimension `dim` of a tensor: a new reference, or NULL (with or without an exception) if there is none. */
PyObject *
guard_load_size(PyObject *tensor, int64_t dim, int stride)
{
    DLTensor dl;
    if (guard_torch.dlpack->dltensor_from_py_object_no_sync(tensor, &dl) != 0) {
        PyErr_Clear();
        return NULL;
    }
    if (dim < 0 || dim >= dl.ndim) {
        return NULL;
    }
    return PyLong_FromLongLong(stride ? dl.strides[dim] : dl.shape[dim]);
}

/* Parses `rest`, which is (registers, ((code, operand), ...), comparison). 1: valid, 0: malformed, -1: an exception is set. */
int
guard_relation_parse(Step *step, PyObject *rest, const char *written, Py_ssize_t n_registers)
{
    PyObject *registers, *program;
    int comparison;
    if (!PyArg_ParseTuple(rest, "O!O!i", &PyTuple_Type, &registers, &PyTuple_Type, &program, &comparison)) {
        return -1;
    }
    Py_ssize_t n = PyTuple_GET_SIZE(program), depth = 0;
    Relation *relation = PyMem_Malloc(sizeof(Relation) + (size_t)n * 2 * sizeof(int64_t));
    if (relation == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    step->data = relation;
    *relation = (Relation){.n_code = (int32_t)n, .comparison = comparison};
    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *pair = PyTuple_GET_ITEM(program, i);
        long long code, operand;
        if (!PyTuple_Check(pair) || !PyArg_ParseTuple(pair, "LL", &code, &operand)) {
            return PyErr_Occurred() ? -1 : 0;
        }
        if (code == LOAD) {
            if (operand < 0 || operand >= PyTuple_GET_SIZE(registers)) {
                return 0;
            }
            operand = PyLong_AsLongLong(PyTuple_GET_ITEM(registers, operand));
            if (operand < 0 || operand >= n_registers || written[operand] != GUARD_REGISTER_WRITTEN) {
                return PyErr_Occurred() ? -1 : 0;
            }
        }
        depth += code <= LOAD ? 1 : -1;
        if (code < 0 || code >= N_CODES || depth < 1 || depth > MOST_ON_STACK) {
            return 0;
        }
        relation->code[2 * i] = code;
        relation->code[2 * i + 1] = operand;
    }
    return depth == 1 && comparison >= 0 && comparison < N_COMPARISONS;
}

static int64_t
floor_div(int64_t a, int64_t b)
{
    return a / b - (a % b != 0 && a < 0);
}

/* Computes `*a = *a <code> b`; 0 if there is no valid result. */
static int
compute(int64_t code, int64_t *a, int64_t b)
{
    switch (code) {
    case ADD:
        return !__builtin_add_overflow(*a, b, a);
    case MUL:
        return !__builtin_mul_overflow(*a, b, a);
    default:
        if (b < 1) {
            return 0;
        }
        *a = code == FLOORDIV ? floor_div(*a, b) : *a - floor_div(*a, b) * b;
        return 1;
    }
}

int
guard_relation_holds(const Relation *relation, PyObject *const *registers)
{
    int64_t stack[MOST_ON_STACK + 1];
    Py_ssize_t top = -1;
    for (Py_ssize_t i = 0; i < relation->n_code; i++) {
        int64_t code = relation->code[2 * i], operand = relation->code[2 * i + 1];
        if (code == PUSH) {
            stack[++top] = operand;
        }
        else if (code == LOAD) {
            PyObject *value = registers[operand];
            int overflow = 1;
            stack[++top] = PyLong_CheckExact(value) ? PyLong_AsLongLongAndOverflow(value, &overflow) : 0;
            if (overflow) {
                return 0;
            }
        }
        else {
            top--;
            if (!compute(code, &stack[top], stack[top + 1])) {
                return 0;
            }
        }
    }
    int64_t value = stack[0];
    return relation->comparison == NOT_NEGATIVE ? value >= 0 : (value == 0) == (relation->comparison == EQUAL);
}
