/* Parses the tuples that Python code writes into the steps that `eval.c` runs. All validation happens here, once. */
#include "guards.h"

#include <structmember.h>

typedef struct {
    const char *name;
    const char *operands;
} OpInfo;

static const OpInfo op_table[OP_COUNT] = {
#define X(op, name, operands) [OP_##op] = {name, operands},
    GUARD_OPS(X)
#undef X
};

/* The parts of functions and methods, given by the offset of the field that the evaluator reads. */
typedef struct {
    const char *name;
    Py_ssize_t offset;
} Part;

static const Part func_parts[] = {
    {"__defaults__", offsetof(PyFunctionObject, func_defaults)},
    {"__kwdefaults__", offsetof(PyFunctionObject, func_kwdefaults)},
    {"__closure__", offsetof(PyFunctionObject, func_closure)},
    {"__code__", offsetof(PyFunctionObject, func_code)},
    {"__globals__", offsetof(PyFunctionObject, func_globals)},
    {"__dict__", offsetof(PyFunctionObject, func_dict)},
    {NULL, 0},
};

static const Part method_parts[] = {
    {"__func__", offsetof(PyMethodObject, im_func)},
    {"__self__", offsetof(PyMethodObject, im_self)},
    {NULL, 0},
};

PyObject *
guard_op_names(void)
{
    PyObject *names = PyTuple_New(OP_COUNT);
    for (int op = 0; names != NULL && op < OP_COUNT; op++) {
        PyObject *name = PyUnicode_InternFromString(op_table[op].name);
        if (name == NULL) {
            Py_CLEAR(names);
            break;
        }
        PyTuple_SET_ITEM(names, op, name);
    }
    return names;
}

static int
bad_step(Py_ssize_t index, PyObject *tuple, const char *why)
{
    PyErr_Format(PyExc_ValueError, "guard step %zd %R: %s", index, tuple, why);
    return -1;
}

static int
find_op(PyObject *name)
{
    if (PyUnicode_Check(name)) {
        for (int op = 0; op < OP_COUNT; op++) {
            if (PyUnicode_CompareWithASCIIString(name, op_table[op].name) == 0) {
                return op;
            }
        }
    }
    return -1;
}

/* The interned string if `name` is one; a new reference. */
static PyObject *
interned(PyObject *name)
{
    Py_INCREF(name);
    if (PyUnicode_CheckExact(name)) {
        PyUnicode_InternInPlace(&name);
    }
    return name;
}

static int
parse_part(Step *step, const Part *parts, PyObject *name)
{
    for (; PyUnicode_Check(name) && parts->name != NULL; parts++) {
        if (PyUnicode_CompareWithASCIIString(name, parts->name) == 0) {
            step->i1 = parts->offset;
            return 1;
        }
    }
    return 0;
}

/* Flattens ((name, expected), ...) to a tuple name, expected, name, expected, ...; a new reference. */
static PyObject *
parse_expected_attributes(PyObject *pairs)
{
    PyObject *items = PySequence_Tuple(pairs);
    if (items == NULL) {
        return NULL;
    }
    PyObject *flat = PyTuple_New(2 * PyTuple_GET_SIZE(items));
    for (Py_ssize_t i = 0; flat != NULL && i < PyTuple_GET_SIZE(items); i++) {
        PyObject *name, *expected;
        PyObject *pair = PyTuple_GET_ITEM(items, i);
        if (!PyTuple_Check(pair) || !PyArg_ParseTuple(pair, "UO", &name, &expected)) {
            if (!PyErr_Occurred()) {
                PyErr_SetString(PyExc_TypeError, "expected (name, object) tuples");
            }
            Py_CLEAR(flat);
            break;
        }
        PyTuple_SET_ITEM(flat, 2 * i, interned(name));
        PyTuple_SET_ITEM(flat, 2 * i + 1, Py_NewRef(expected));
    }
    Py_DECREF(items);
    return flat;
}

/* The states of a register while a program is parsed; LEFT_BEHIND: it was written in a block that has ended. */
enum { WRITTEN = GUARD_REGISTER_WRITTEN, WRITTEN_IN_BLOCK = 2, LEFT_BEHIND = 4, READABLE = WRITTEN | WRITTEN_IN_BLOCK };

/* Parses a sequence of registers into the step's data. 0, or -1 with an exception. */
static int
parse_not_same(Step *step, PyObject *registers, const char *written, Py_ssize_t n_registers)
{
    PyObject *items = PySequence_Tuple(registers);
    if (items == NULL) {
        return -1;
    }
    Py_ssize_t n = PyTuple_GET_SIZE(items);
    int32_t *data = PyMem_Calloc((size_t)n + 1, sizeof(int32_t));
    if (data == NULL) {
        Py_DECREF(items);
        PyErr_NoMemory();
        return -1;
    }
    step->data = data;
    step->i1 = n;
    for (Py_ssize_t i = 0; i < n; i++) {
        Py_ssize_t reg = PyLong_AsSsize_t(PyTuple_GET_ITEM(items, i));
        if (reg < 0 || reg >= n_registers || !(written[reg] & READABLE)) {
            Py_DECREF(items);
            if (!PyErr_Occurred()) {
                PyErr_SetString(PyExc_ValueError, "register is not written before");
            }
            return -1;
        }
        data[i] = (int32_t)reg;
    }
    Py_DECREF(items);
    return 0;
}

/* Parses the operands that the table marks with *. `rest` are the tuple's items from there on. 1: valid, 0: malformed, -1: an
 * exception is set. */
static int
parse_special(GuardProgram *self, Step *step, PyObject *rest, const char *written)
{
    Py_ssize_t n = PyTuple_GET_SIZE(rest);
    PyObject *first = n > 0 ? PyTuple_GET_ITEM(rest, 0) : NULL;
    switch (step->op) {
    case OP_LOAD_FUNC_PART:
        return n == 1 && parse_part(step, func_parts, first);
    case OP_LOAD_METHOD_PART:
        return n == 1 && parse_part(step, method_parts, first);
    case OP_LOAD_FORMULA:
        if (n != 2 || !PyCallable_Check(first)) {
            return 0;
        }
        if (parse_not_same(step, PyTuple_GET_ITEM(rest, 1), written, self->n_registers) < 0) {
            return -1;
        }
        step->obj = Py_NewRef(first);
        return step->i1 <= GUARD_MOST_OPERANDS;
    case OP_TENSOR:
        step->data = guard_tensor_parse(rest);
        return step->data == NULL ? -1 : 1;
    case OP_DISJOINT: {
        if (n != 2) {
            return 0;
        }
        Py_ssize_t changed = PyLong_AsSsize_t(PyTuple_GET_ITEM(rest, 1));
        if (parse_not_same(step, first, written, self->n_registers) < 0 || PyErr_Occurred()) {
            return -1;
        }
        step->i2 = changed;
        return changed >= 0 && changed <= step->i1 && guard_require_torch() == 0 ? 1 : PyErr_Occurred() ? -1 : 0;
    }
    case OP_NOT_SAME:
        if (n != 1 && n != 2) {
            return 0;
        }
        if (parse_not_same(step, first, written, self->n_registers) < 0) {
            return -1;
        }
        step->i2 = n == 2 ? PyLong_AsSsize_t(PyTuple_GET_ITEM(rest, 1)) : step->i1;
        return step->i2 >= 0 && step->i2 <= step->i1 ? 1 : PyErr_Occurred() ? -1 : 0;
    case OP_RELATION:
        return guard_relation_parse(step, rest, written, self->n_registers);
    case OP_GLOBAL_STATE:
        step->data = guard_state_parse(rest, &step->obj);
        return step->data == NULL ? -1 : 1;
    case OP_CLASS_VERSION:
        if (n != 1) {
            return 0;
        }
        step->obj = parse_expected_attributes(first);
        return step->obj == NULL ? -1 : 1;
    case OP_CALLABLE_EQ:
        step->obj = Py_NewRef(rest);
        return n == 3 && PyTuple_Check(PyTuple_GET_ITEM(rest, 1));
    case OP_COLLECT: {
        if (n != 1) {
            return 0;
        }
        Py_ssize_t slot = PyLong_AsSsize_t(first);
        if (slot == -1 && PyErr_Occurred()) {
            return -1;
        }
        if (slot < 0 || slot >= self->n_inputs || self->collected[slot] >= 0) {
            return 0;
        }
        self->collected[slot] = step->src;
        return 1;
    }
    default:
        Py_UNREACHABLE();
    }
}

/* Checks what the evaluator assumes about an object operand. NULL if it holds, else a message. */
static const char *
check_object_operands(const Step *step)
{
    switch (step->op) {
    case OP_LOAD_SLOT:
        if (!Py_IS_TYPE(step->obj, &PyMemberDescr_Type) && !Py_IS_TYPE(step->obj, &PyGetSetDescr_Type)) {
            return "expected a member or getset descriptor";
        }
        return NULL;
    case OP_SET_ITEMS:
        return PyAnySet_Check(step->obj) ? NULL : "expected a set or frozenset";
    case OP_CODE_IS:
        return PyCode_Check(step->obj) ? NULL : "expected a code object";
    case OP_CALLABLE_EQ:
        return PyCallable_Check(PyTuple_GET_ITEM(step->obj, 0)) ? NULL : "expected a callable";
    case OP_NO_HOOKS:
        for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(step->obj); i++) {
            if (!PyUnicode_Check(PyTuple_GET_ITEM(step->obj, i))) {
                return "expected names";
            }
        }
        return NULL;
    default:
        return NULL;
    }
}

static int
parse_step(GuardProgram *self, Step *step, PyObject *tuple, Py_ssize_t index, char *written)
{
    if (!PyTuple_Check(tuple) || PyTuple_GET_SIZE(tuple) == 0) {
        return bad_step(index, tuple, "expected a non-empty tuple");
    }
    int op = find_op(PyTuple_GET_ITEM(tuple, 0));
    if (op < 0) {
        return bad_step(index, tuple, "unknown operation");
    }
    *step = (Step){.op = (uint16_t)op, .dst = -1, .src = -1, .src2 = -1};
    const char *operands = op_table[op].operands;
    Py_ssize_t given = PyTuple_GET_SIZE(tuple) - 1;
    Py_ssize_t wanted = (Py_ssize_t)strlen(operands);
    int special = operands[wanted - 1] == '*';
    if (special ? given < wanted - 1 : given != wanted) {
        return bad_step(index, tuple, "wrong number of operands");
    }
    int n_ints = 0;
    for (Py_ssize_t i = 0; i < wanted - special; i++) {
        PyObject *operand = PyTuple_GET_ITEM(tuple, i + 1);
        char kind = operands[i];
        if (kind == 'd' || kind == 'r') {
            Py_ssize_t reg = PyLong_AsSsize_t(operand);
            if (reg == -1 && PyErr_Occurred()) {
                return -1;
            }
            if (reg < 0 || reg >= self->n_registers) {
                return bad_step(index, tuple, "register out of range");
            }
            if (kind == 'r' && !(written[reg] & READABLE)) {
                return bad_step(index, tuple, "register is not written before");
            }
            if (kind == 'd' && written[reg]) {
                return bad_step(index, tuple, "register is written twice");
            }
            *(kind == 'd' ? &step->dst : step->src < 0 ? &step->src : &step->src2) = (int32_t)reg;
        }
        else if (kind == 'i') {
            long long value = PyLong_AsLongLong(operand);
            if (value == -1 && PyErr_Occurred()) {
                return -1;
            }
            *(n_ints++ == 0 ? &step->i1 : &step->i2) = value;
        }
        else {
            if (kind == 's' && !PyUnicode_Check(operand)) {
                return bad_step(index, tuple, "expected a name");
            }
            if (kind == 't' && !PyTuple_Check(operand)) {
                return bad_step(index, tuple, "expected a tuple");
            }
            if (kind == 'T' && !PyType_Check(operand)) {
                return bad_step(index, tuple, "expected a type");
            }
            step->obj = interned(operand);
        }
    }
    if ((op == OP_LOAD_SIZE || op == OP_LOAD_STRIDE) && guard_require_torch() < 0) {
        return -1;
    }
    if (step->dst >= 0) {
        written[step->dst] = WRITTEN;
    }
    if (special) {
        PyObject *rest = PyTuple_GetSlice(tuple, wanted, given + 1);
        int ok = rest == NULL ? -1 : parse_special(self, step, rest, written);
        Py_XDECREF(rest);
        if (ok <= 0) {
            return ok < 0 ? -1 : bad_step(index, tuple, "malformed operands");
        }
    }
    const char *why = check_object_operands(step);
    if (why != NULL) {
        return bad_step(index, tuple, why);
    }
    return 0;
}

/* Connects begin_same with its end_same; `*begin` is the index of the open block, or -1. 0, or -1 with an exception. */
static int
parse_block(GuardProgram *self, Py_ssize_t index, PyObject *tuple, Py_ssize_t *begin, char *written)
{
    Step *step = &self->code[index];
    if (step->op == OP_BEGIN_SAME) {
        if (*begin >= 0) {
            return bad_step(index, tuple, "a block inside a block");
        }
        *begin = index;
    }
    else if (step->op == OP_END_SAME) {
        if (*begin < 0 || self->code[*begin].src != step->src) {
            return bad_step(index, tuple, "ends no block of this register");
        }
        step->i1 = self->code[*begin].i1 = index - *begin;
        for (Py_ssize_t i = *begin; i < index; i++) {
            if (self->code[i].dst >= 0) {
                written[self->code[i].dst] = LEFT_BEHIND;
            }
        }
        *begin = -1;
    }
    else if (*begin >= 0 && step->dst >= 0) {
        written[step->dst] = WRITTEN_IN_BLOCK;
    }
    else if (*begin >= 0 && step->op == OP_COLLECT) {
        return bad_step(index, tuple, "an input in a block that may be left out");
    }
    return 0;
}

int
guard_parse_steps(GuardProgram *self, PyObject *steps)
{
    Py_ssize_t n = PyTuple_GET_SIZE(steps);
    char *written = PyMem_Calloc((size_t)self->n_registers + 1, 1);
    self->code = PyMem_Calloc((size_t)n + 1, sizeof(Step));
    self->collected = PyMem_Malloc(((size_t)self->n_inputs + 1) * sizeof(int32_t));
    if (written == NULL || self->code == NULL || self->collected == NULL) {
        PyMem_Free(written);
        PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t i = 0; i < self->n_inputs; i++) {
        self->collected[i] = -1;
    }
    Py_ssize_t begin = -1;
    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *tuple = PyTuple_GET_ITEM(steps, i);
        self->n_steps = i + 1; /* set before parsing, so that a partly parsed step is freed with the program */
        if (parse_step(self, &self->code[i], tuple, i, written) < 0 || parse_block(self, i, tuple, &begin, written) < 0) {
            PyMem_Free(written);
            return -1;
        }
    }
    PyMem_Free(written);
    if (begin >= 0) {
        return bad_step(begin, PyTuple_GET_ITEM(steps, begin), "a block without an end");
    }
    for (Py_ssize_t i = 0; i < self->n_inputs; i++) {
        if (self->collected[i] < 0) {
            PyErr_Format(PyExc_ValueError, "guard program: no step collects input %zd", i);
            return -1;
        }
    }
    return 0;
}

void
guard_free_steps(GuardProgram *self)
{
    Step *code = self->code;
    Py_ssize_t n = self->n_steps;
    self->code = NULL;
    self->n_steps = 0;
    guard_lines_free(self->lines);
    self->lines = NULL;
    for (Py_ssize_t i = 0; i < n; i++) {
        Py_XDECREF(code[i].obj);
        if (code[i].op == OP_TENSOR && code[i].data != NULL) {
            Py_DECREF(guard_tensor_class(code[i].data));
        }
        PyMem_Free(code[i].data);
    }
    PyMem_Free(code);
}

int
guard_traverse_steps(GuardProgram *self, visitproc visit, void *arg)
{
    for (Py_ssize_t i = 0; self->code != NULL && i < self->n_steps; i++) {
        Step *step = &self->code[i];
        Py_VISIT(step->obj);
        if (step->op == OP_TENSOR && step->data != NULL) {
            Py_VISIT(guard_tensor_class(step->data));
        }
    }
    return 0;
}
