/* Runs the steps of a guard program.
 *
 * Invariants: the register holds a reference to an object that a step looks at, so a step that runs user code (load_attr,
 * load_item, load_call, len, no_hooks, callable_eq, comparisons of user types) can't free it; an exception other than "there is
 * no such thing" is passed on to the caller.
 */
#include "dicts.h"
#include "versions.h"

#define REGISTERS_ON_STACK 64
#define FIRST_STEPS 32 /* the program of an entry for other values mostly fails within this many steps */

/* Whether the class attributes of a step are found as expected: 1, 0, or -1 with an exception. CPython gives a type a new
 * version tag when it or one of its bases has been changed, and no two types share a tag (Objects/typeobject.c). So the check
 * still holds if the tag is the one with which the full check passed. */
static int
class_attributes_are(PyTypeObject *type, Step *step)
{
    if (type->tp_version_tag != 0 && type->tp_version_tag == step->type_tag) {
        return 1;
    }
    unsigned int tag = 0;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(step->obj); i += 2) {
        PyObject *found = _PyType_Lookup(type, PyTuple_GET_ITEM(step->obj, i));
        PyObject *wanted = PyTuple_GET_ITEM(step->obj, i + 1);
        if (found != (wanted == guard_missing ? NULL : wanted)) {
            return PyErr_Occurred() ? -1 : 0;
        }
        tag = i == 0 ? type->tp_version_tag : tag; /* the first lookup assigns a tag if there is none */
    }
    step->type_tag = tag == type->tp_version_tag ? tag : 0; /* comparing names may have run code that changed the type */
    return 1;
}

/* The step callable_eq: 1, 0, or -1 with an exception. */
static int
call_and_compare(const Step *step)
{
    PyObject *expected = PyTuple_GET_ITEM(step->obj, 2);
    PyObject *result = PyObject_CallObject(PyTuple_GET_ITEM(step->obj, 0), PyTuple_GET_ITEM(step->obj, 1));
    if (result == NULL) {
        return -1;
    }
    int ok = result == expected ? 1 : PyObject_RichCompareBool(result, expected, Py_EQ);
    Py_DECREF(result);
    return ok;
}

/* The outcome of a load without a result: 0 if the value does not exist, -1 for any other exception. */
static int
failed_load(void)
{
    if (!PyErr_Occurred()) {
        return 0;
    }
    if (PyErr_ExceptionMatches(PyExc_AttributeError) || PyErr_ExceptionMatches(PyExc_LookupError)
        || PyErr_ExceptionMatches(PyExc_ReferenceError)) {
        PyErr_Clear();
        return 0;
    }
    return -1;
}

static PyObject *
field_at(PyObject *obj, int64_t offset)
{
    PyObject *value = *(PyObject **)((char *)obj + offset);
    return Py_NewRef(value == NULL ? Py_None : value);
}

static PyObject *
load_slot(PyObject *obj, PyObject *descriptor)
{
    if (!PyObject_TypeCheck(obj, ((PyDescrObject *)descriptor)->d_type)) {
        return NULL;
    }
    return Py_TYPE(descriptor)->tp_descr_get(descriptor, obj, (PyObject *)Py_TYPE(obj));
}

static PyObject *
load_cell(const GuardFrame *frame, int64_t index)
{
    if (frame->closure == NULL || index < 0 || index >= PyTuple_GET_SIZE(frame->closure)) {
        return NULL;
    }
    return PyTuple_GET_ITEM(frame->closure, index);
}

/* The number that a function computes from registers: a new reference, or NULL with or without an exception. */
static PyObject *
load_formula(const Step *step, PyObject *const *reg)
{
    PyObject *operands[GUARD_MOST_OPERANDS];
    const int32_t *places = step->data;
    for (int64_t i = 0; i < step->i1; i++) {
        operands[i] = reg[places[i]];
    }
    PyObject *number = PyObject_Vectorcall(step->obj, operands, (size_t)step->i1, NULL);
    if (number == NULL && (PyErr_ExceptionMatches(PyExc_ArithmeticError) || PyErr_ExceptionMatches(PyExc_ValueError))) {
        PyErr_Clear();
    }
    return number;
}

/* Runs one load: returns a new reference, or NULL with or without an exception. */
static inline PyObject *
run_load(Step *step, PyObject *const *reg, const GuardFrame *frame)
{
    PyObject *src = step->src >= 0 ? reg[step->src] : NULL;
    switch (step->op) {
    case OP_LOAD_LOCAL:
        return step->i1 >= 0 && step->i1 < frame->nargs ? Py_XNewRef(frame->args[step->i1]) : NULL;
    case OP_LOAD_CELL_OBJ:
        return Py_XNewRef(load_cell(frame, step->i1));
    case OP_LOAD_BUILTIN:
        return PyDict_Check(frame->builtins) ? dict_get(frame->builtins, step->obj) : NULL;
    case OP_LOAD_GLOBALS_DICT:
        return Py_NewRef(frame->globals);
    case OP_LOAD_CONST:
        return Py_NewRef(step->obj);
    case OP_LOAD_ATTR:
        return PyObject_GetAttr(src, step->obj);
    case OP_LOAD_INSTANCE_DICT:
        return instance_dict(src);
    case OP_LOAD_SLOT:
        return load_slot(src, step->obj);
    case OP_LOAD_DICT_ITEM:
        return load_dict_item(src, step);
    case OP_LOAD_LIST_ITEM:
        return PyList_Check(src) && step->i1 >= 0 && step->i1 < PyList_GET_SIZE(src)
                   ? Py_NewRef(PyList_GET_ITEM(src, step->i1))
                   : NULL;
    case OP_LOAD_TUPLE_ITEM:
        return PyTuple_Check(src) && step->i1 >= 0 && step->i1 < PyTuple_GET_SIZE(src)
                   ? Py_NewRef(PyTuple_GET_ITEM(src, step->i1))
                   : NULL;
    case OP_LOAD_ITEM:
        return PyObject_GetItem(src, step->obj);
    case OP_LOAD_CALL:
        return PyObject_CallOneArg(step->obj, src);
    case OP_LOAD_FORMULA:
        return load_formula(step, reg);
    case OP_LOAD_TYPE_ATTR:
        return PyType_Check(src) ? Py_XNewRef(_PyType_Lookup((PyTypeObject *)src, step->obj)) : NULL;
    case OP_LOAD_FUNC_PART:
        return PyFunction_Check(src) ? field_at(src, step->i1) : NULL;
    case OP_LOAD_CELL_CONTENTS:
        return PyCell_Check(src) ? Py_XNewRef(PyCell_GET(src)) : NULL;
    case OP_LOAD_METHOD_PART:
        return PyMethod_Check(src) ? field_at(src, step->i1) : NULL;
    case OP_LOAD_WEAKREF:
        return PyWeakref_Check(src) ? weakref_referent(src) : NULL;
    case OP_LOAD_DICT_KEY:
        return PyDict_Check(src) && step->i1 >= 0 ? guard_dict_key_at(src, step->i1) : NULL;
    case OP_LOAD_SIZE:
    case OP_LOAD_STRIDE:
        return guard_load_size(src, step->i1, step->op == OP_LOAD_STRIDE);
    case OP_LOAD_DICT_VALUE:
        return PyDict_Check(src) && step->i1 >= 0 ? guard_dict_value_at(src, step->i1) : NULL;
    default:
        Py_UNREACHABLE();
    }
}

static inline int
int_value(PyObject *obj, int64_t *value)
{
    if (!PyLong_CheckExact(obj)) {
        return 0;
    }
    int overflow;
    *value = PyLong_AsLongLongAndOverflow(obj, &overflow);
    return !overflow;
}

/* Runs one check: 1, 0, or -1 with an exception. */
static inline int
run_check(Step *step, PyObject *const *reg)
{
    PyObject *src = step->src >= 0 ? reg[step->src] : NULL;
    int64_t value;
    switch (step->op) {
    case OP_TYPE_IS:
        return (PyObject *)Py_TYPE(src) == step->obj;
    case OP_IS:
        return src == step->obj;
    case OP_IS_NOT:
        return src != step->obj;
    case OP_CONST:
        return guard_const_equal(src, step->obj);
    case OP_LEN: {
        Py_ssize_t size = guard_raw_size(src);
        return size == -2 ? -1 : size == step->i1;
    }
    case OP_DICT_KEYS:
        return guard_dict_keys_are(src, step);
    case OP_DICT_HAS:
    case OP_DICT_LACKS: {
        if (!PyDict_Check(src)) {
            return 0;
        }
        PyObject *found = dict_get(src, step->obj);
        if (found == NULL && PyErr_Occurred()) {
            return -1;
        }
        Py_XDECREF(found);
        return (found != NULL) == (step->op == OP_DICT_HAS);
    }
    case OP_SET_ITEMS:
        return guard_set_items_are(src, step->obj);
    case OP_SET_ORDER:
        return guard_set_order_is(src, step->obj);
    case OP_SET_TABLE:
        return PyAnySet_Check(src) && PyAnySet_Check(step->obj) ? guard_same_table(src, step->obj) : 0;
    case OP_CELL_EMPTY:
        return PyCell_Check(src) && PyCell_GET(src) == NULL;
    case OP_CODE_IS:
        return PyFunction_Check(src) && PyFunction_GET_CODE(src) == step->obj;
    case OP_NO_HOOKS:
        return guard_no_hooks(src, step);
    case OP_TENSOR:
        return guard_tensor_check(step->data, src);
    case OP_TENSOR_DATA:
        return guard_tensor_data_is(src, step->obj);
    case OP_TENSOR_SAME:
        return src == reg[step->src2];
    case OP_NOT_SAME:
        return step->i2 < step->i1 ? guard_none_of_others(reg, step->data, step->i1, step->i2)
                                   : guard_all_distinct(reg, step->data, step->i1);
    case OP_DISJOINT:
        return guard_tensors_disjoint(reg, step->data, step->i1, step->i2);
    case OP_MEMORY_OFFSET:
        return guard_memory_offset_is(src, reg[step->src2], step->i1);
    case OP_INT_RANGE:
        return int_value(src, &value) && value >= step->i1 && value <= step->i2;
    case OP_RELATION:
        return guard_relation_holds(step->data, reg);
    case OP_CALLABLE_EQ:
        return call_and_compare(step);
    case OP_GLOBAL_STATE:
        return guard_state_check(step->data, step->obj);
    case OP_CLASS_VERSION:
        return PyType_Check(src) ? class_attributes_are((PyTypeObject *)src, step) : 0;
    case OP_COLLECT:
        return 1;
    default:
        Py_UNREACHABLE();
    }
}

static PyObject *
collect_inputs(GuardProgram *self, PyObject *const *registers)
{
    PyObject *inputs = PyTuple_New(self->n_inputs);
    for (Py_ssize_t i = 0; inputs != NULL && i < self->n_inputs; i++) {
        PyTuple_SET_ITEM(inputs, i, Py_NewRef(registers[self->collected[i]]));
    }
    return inputs;
}

/* The state of one evaluation. */
typedef struct {
    PyObject **registers; /* owned references, or NULL */
    const GuardFrame *frame;
    DictState begun; /* state of the current block's dict when the block began */
} Run;

/* begin_same: 1 if the steps of its block must run, 0 if they are known to hold, -1 if the object is not a dict. */
static inline int
begin_block(Step *step, Run *run)
{
    PyObject *dict = run->registers[step->src];
    if (dict_unchanged(&step->memo, dict)) {
        return 0;
    }
    if (!PyDict_Check(dict)) {
        return -1;
    }
    run->begun = dict_state(&step->memo, dict);
    return 1;
}

/* Runs the steps from `*at` to `end`. 1 if all hold; 0, or -1 with an exception, and `*at` is the step that does not. */
static inline int
run_steps(GuardProgram *self, Run *run, Py_ssize_t *at, Py_ssize_t end)
{
    PyObject **registers = run->registers;
    Py_ssize_t i = *at;
    for (; i < end; i++) {
        Step *step = &self->code[i];
        int ok = 1;
        if (step->dst >= 0) {
            registers[step->dst] = run_load(step, registers, run->frame);
            ok = registers[step->dst] != NULL ? 1 : failed_load();
        }
        else if (step->op == OP_BEGIN_SAME) {
            int begun = begin_block(step, run);
            i += begun == 0 ? step->i1 : 0;
            ok = begun >= 0;
        }
        else if (step->op == OP_END_SAME) {
            dict_remember(&self->code[i - step->i1].memo, run->begun); /* all steps of the block have held */
        }
        else {
            ok = run_check(step, registers);
        }
        if (ok != 1) {
            *at = i;
            return ok;
        }
    }
    *at = i;
    return 1;
}

/* Evaluates a program; see GuardsAPI.check. */
int
guard_check(PyObject *program, const GuardFrame *frame, PyObject **inputs, Py_ssize_t *failed_step)
{
    GuardProgram *self = (GuardProgram *)program;
    *inputs = NULL;
    *failed_step = -1;
    if (self->code == NULL) {
        PyErr_SetString(PyExc_RuntimeError, "the guard program has been cleared by the garbage collector");
        return -1;
    }
    PyObject *on_stack[REGISTERS_ON_STACK];
    PyObject **registers = on_stack;
    if (self->n_registers > REGISTERS_ON_STACK) {
        registers = PyMem_New(PyObject *, self->n_registers);
        if (registers == NULL) {
            PyErr_NoMemory();
            return -1;
        }
    }
    memset(registers, 0, (size_t)self->n_registers * sizeof(PyObject *));
    self->evaluations++;
    Py_ssize_t i = 0, first = self->n_steps < FIRST_STEPS ? self->n_steps : FIRST_STEPS;
    Run run = {.registers = registers, .frame = frame};
    int hidden = guard_hide_modes();
    int ok = run_steps(self, &run, &i, first);
    if (ok == 1) {
        guard_lines_fetch(self->lines);
        ok = run_steps(self, &run, &i, self->n_steps);
    }
    if (ok == 1) {
        *inputs = collect_inputs(self, registers);
        ok = *inputs == NULL ? -1 : 1;
        guard_lines_remember(self, registers);
    }
    else {
        *failed_step = i;
        self->failures += ok == 0;
    }
    guard_show_modes(hidden);
    for (Py_ssize_t r = 0; r < self->n_registers; r++) {
        Py_XDECREF(registers[r]);
    }
    if (registers != on_stack) {
        PyMem_Free(registers);
    }
    return ok;
}
