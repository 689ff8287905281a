/* Runs the steps of a guard program.
 *
 * Invariants: an object that a step looks at is held by its register, so a step that runs user code (load_attr, load_item,
 * load_call, callable_*, comparisons of user types) can't free it; an exception other than "there is no such thing" comes out as such.
 */
#include "guards.h"

#include <math.h>

#include "../dict_version.h"
#include "versions.h"

#define REGISTERS_ON_STACK 64
#define FIRST_STEPS 32 /* the program of another specialization mostly fails within these */

/* ---- what a check compares ---- */

static int
float_bits_equal(double a, double b)
{
    return memcmp(&a, &b, sizeof(double)) == 0 || (isnan(a) && isnan(b));
}

static int
frozenset_equal(PyObject *a, PyObject *b)
{
    if (PySet_GET_SIZE(a) != PySet_GET_SIZE(b)) {
        return 0;
    }
    /* Sets of constants are small; the pairwise walk also tells {1} from {True}, which hashing does not. */
    PyObject *left = PySequence_List(a);
    PyObject *right = left == NULL ? NULL : PySequence_List(b);
    int equal = right == NULL ? -1 : 1;
    for (Py_ssize_t i = 0; equal == 1 && i < PyList_GET_SIZE(left); i++) {
        equal = 0;
        for (Py_ssize_t j = 0; equal == 0 && j < PyList_GET_SIZE(right); j++) {
            equal = guard_const_equal(PyList_GET_ITEM(left, i), PyList_GET_ITEM(right, j));
        }
    }
    Py_XDECREF(left);
    Py_XDECREF(right);
    return equal;
}

int
guard_const_equal(PyObject *a, PyObject *b)
{
    if (a == b) {
        return 1;
    }
    PyTypeObject *type = Py_TYPE(a);
    if (type != Py_TYPE(b) || a == Py_None || type == &PyBool_Type || type == &PyEllipsis_Type) {
        return 0;
    }
    if (type == &PyFloat_Type) {
        return float_bits_equal(PyFloat_AS_DOUBLE(a), PyFloat_AS_DOUBLE(b));
    }
    if (type == &PyComplex_Type) {
        Py_complex x = ((PyComplexObject *)a)->cval, y = ((PyComplexObject *)b)->cval;
        return float_bits_equal(x.real, y.real) && float_bits_equal(x.imag, y.imag);
    }
    if (PyTuple_Check(a)) { /* also of one subclass, such as torch.Size: what it holds decides */
        Py_ssize_t n = PyTuple_GET_SIZE(a);
        int equal = n == PyTuple_GET_SIZE(b);
        for (Py_ssize_t i = 0; equal == 1 && i < n; i++) {
            equal = guard_const_equal(PyTuple_GET_ITEM(a, i), PyTuple_GET_ITEM(b, i));
        }
        return equal;
    }
    if (type == &PyFrozenSet_Type) {
        return guard_same_table(a, b); /* it may be iterated over */
    }
    if (type == &PySlice_Type) {
        PySliceObject *x = (PySliceObject *)a, *y = (PySliceObject *)b;
        int equal = guard_const_equal(x->start, y->start);
        if (equal == 1) {
            equal = guard_const_equal(x->stop, y->stop);
        }
        return equal == 1 ? guard_const_equal(x->step, y->step) : equal;
    }
    return PyObject_RichCompareBool(a, b, Py_EQ);
}

/* Size by the C layout, so that an overridden __len__ does not run. -1: no such size; -2: an exception is set. */
static Py_ssize_t
raw_size(PyObject *obj)
{
    if (PyDict_Check(obj)) {
        return PyDict_GET_SIZE(obj);
    }
    if (PyList_Check(obj)) {
        return PyList_GET_SIZE(obj);
    }
    if (PyTuple_Check(obj)) {
        return PyTuple_GET_SIZE(obj);
    }
    if (PyAnySet_Check(obj)) {
        return PySet_GET_SIZE(obj);
    }
    Py_ssize_t size = PyObject_Size(obj); /* str, bytes, range, deque, and what a user defines */
    if (size >= 0) {
        return size;
    }
    if (PyErr_ExceptionMatches(PyExc_TypeError)) {
        PyErr_Clear();
        return -1;
    }
    return -2;
}

/* Key number `position` in the order that Python iterates; a new reference. NULL without an exception: there is none. */
static PyObject *
dict_key_at(PyObject *dict, Py_ssize_t position)
{
    if (PyODict_Check(dict)) { /* its order is a list of its own, which PyDict_Next does not follow */
        PyObject *keys = PyObject_CallMethod((PyObject *)&PyODict_Type, "keys", "O", dict);
        PyObject *iterator = keys == NULL ? NULL : PyObject_GetIter(keys);
        Py_XDECREF(keys);
        PyObject *key = NULL;
        for (Py_ssize_t i = 0; iterator != NULL && i <= position; i++) {
            Py_XSETREF(key, PyIter_Next(iterator));
            if (key == NULL) {
                break;
            }
        }
        Py_XDECREF(iterator);
        return key;
    }
    Py_ssize_t cursor = 0;
    PyObject *key;
    while (PyDict_Next(dict, &cursor, &key, NULL)) {
        if (position-- == 0) {
            return Py_NewRef(key);
        }
    }
    return NULL;
}

static int
keys_equal(PyObject *key, PyObject *expected)
{
    if (key == expected) {
        return 1;
    }
    Py_INCREF(key);
    int equal = guard_const_equal(key, expected);
    Py_DECREF(key);
    return equal;
}

static int
dict_keys_are(PyObject *dict, PyObject *expected, uint64_t *memo)
{
    Py_ssize_t n = PyTuple_GET_SIZE(expected);
    if (!PyDict_Check(dict) || PyDict_GET_SIZE(dict) != n) {
        return 0;
    }
    if (PyODict_Check(dict)) {
        PyObject *keys = PyObject_CallMethod((PyObject *)&PyODict_Type, "keys", "O", dict);
        PyObject *list = keys == NULL ? NULL : PySequence_List(keys);
        Py_XDECREF(keys);
        int equal = list == NULL ? -1 : PyList_GET_SIZE(list) == n;
        for (Py_ssize_t i = 0; equal == 1 && i < n; i++) {
            equal = guard_const_equal(PyList_GET_ITEM(list, i), PyTuple_GET_ITEM(expected, i));
        }
        Py_XDECREF(list);
        return equal;
    }
    uint64_t version = dict_version(dict);
    if (version != 0 && version == *memo) {
        return 1;
    }
    Py_ssize_t cursor = 0, i = 0;
    PyObject *key;
    while (PyDict_Next(dict, &cursor, &key, NULL)) {
        int equal = i < n ? keys_equal(key, PyTuple_GET_ITEM(expected, i++)) : 0;
        if (equal != 1) {
            return equal;
        }
    }
    if (i != n) {
        return 0;
    }
    *memo = version; /* as it was before the comparisons: if one changed the dict, the next check is a full one */
    return 1;
}

/* The value at a key, by the dict's own table; a new reference. NULL without an exception: there is none. */
static PyObject *
dict_get(PyObject *dict, PyObject *key, Py_hash_t hash)
{
    PyObject *value = hash != -1 ? _PyDict_GetItem_KnownHash(dict, key, hash) : PyDict_GetItemWithError(dict, key);
    return Py_XNewRef(value);
}

/* The same, found again without a look into the table while the dict is as it was. */
static PyObject *
load_dict_item(PyObject *dict, Step *step)
{
    uint64_t version = dict_version(dict);
    if (version != 0 && version == step->memo) {
        return Py_NewRef(step->found);
    }
    PyObject *value = dict_get(dict, step->obj, step->hash);
    if (value != NULL && dict_version(dict) == version) { /* comparing keys may have run code that changed it */
        step->found = value;
        step->memo = version;
    }
    return value;
}

/* The object's __dict__, made real where the interpreter keeps it inline; a new reference or NULL. Runs no user code. */
static PyObject *
instance_dict(PyObject *obj)
{
    PyObject **place = _PyObject_GetDictPtr(obj);
    if (place == NULL) {
        return NULL;
    }
    return *place != NULL ? Py_NewRef(*place) : PyObject_GenericGetDict(obj, NULL);
}

static int
set_items_are(PyObject *obj, PyObject *expected)
{
    if (!PyAnySet_Check(obj)) {
        return 0;
    }
    PyObject *frozen = PyFrozenSet_CheckExact(obj) ? Py_NewRef(obj) : PyFrozenSet_New(obj);
    int equal = frozen == NULL ? -1 : frozenset_equal(frozen, expected);
    Py_XDECREF(frozen);
    return equal;
}

/* Whether a set, or an object that is one, holds these elements in this order, whatever its class says of iteration. */
static int
set_order_is(PyObject *obj, PyObject *expected)
{
    if (!PyAnySet_Check(obj) || PySet_GET_SIZE(obj) != PyTuple_GET_SIZE(expected)) {
        return 0;
    }
    Py_ssize_t at = 0, i = 0;
    PyObject *item;
    int equal = 1;
    while (equal == 1 && i < PyTuple_GET_SIZE(expected) && (item = guard_next_member(obj, &at)) != NULL) {
        PyObject *other = PyTuple_GET_ITEM(expected, i++);
        Py_INCREF(item);
        equal = item == other                    ? 1
                : Py_TYPE(item) != Py_TYPE(other) ? 0
                                                  : PyObject_RichCompareBool(item, other, Py_EQ);
        Py_DECREF(item);
    }
    return equal;
}

/* Whether what the instance dict has under these names is empty. The containers stay in their place while the dict is as it
 * was, so that they need not be looked up again; they are asked for their sizes every time. */
static int
no_hooks(PyObject *obj, Step *step)
{
    PyObject *dict = instance_dict(obj);
    if (dict == NULL) {
        return PyErr_Occurred() ? -1 : 0;
    }
    Py_ssize_t n = PyTuple_GET_SIZE(step->obj);
    PyObject *found[GUARD_MOST_HOOKS] = {NULL};
    int ok = PyDict_Check(dict);
    uint64_t version = ok ? dict_version(dict) : 0;
    if (version != 0 && version == step->memo) {
        PyObject **known = step->data;
        for (Py_ssize_t i = 0; ok && i < n; i++) {
            ok = known[i] == NULL || PyDict_GET_SIZE(known[i]) == 0;
        }
        Py_DECREF(dict);
        return ok;
    }
    int remember = version != 0 && n <= GUARD_MOST_HOOKS;
    for (Py_ssize_t i = 0; ok == 1 && i < n; i++) {
        PyObject *hooks = dict_get(dict, PyTuple_GET_ITEM(step->obj, i), -1);
        if (hooks == NULL) {
            ok = PyErr_Occurred() ? -1 : 1;
        }
        else if (hooks != Py_None) {
            Py_ssize_t size = raw_size(hooks);
            ok = size == -2 ? -1 : size == 0;
            if (PyDict_Check(hooks) && i < GUARD_MOST_HOOKS) {
                found[i] = hooks; /* borrowed: as long as `dict` is as it is, it has them */
            }
            else {
                remember = 0; /* asking for its size may run code */
            }
        }
        Py_XDECREF(hooks);
    }
    if (ok == 1 && remember && dict_version(dict) == version) {
        if (step->data == NULL) {
            step->data = PyMem_Malloc(sizeof(found));
        }
        if (step->data != NULL) {
            memcpy(step->data, found, sizeof(found));
            step->memo = version;
        }
    }
    Py_DECREF(dict);
    return ok;
}

static int
compare_pointers(const void *a, const void *b)
{
    uintptr_t x = (uintptr_t) * (PyObject *const *)a, y = (uintptr_t) * (PyObject *const *)b;
    return (x > y) - (x < y);
}

static int
all_distinct(PyObject *const *registers, const int32_t *which, Py_ssize_t n)
{
    PyObject *small[REGISTERS_ON_STACK];
    PyObject **sorted = n <= REGISTERS_ON_STACK ? small : PyMem_New(PyObject *, n);
    if (sorted == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t i = 0; i < n; i++) {
        sorted[i] = registers[which[i]];
    }
    int distinct = 1;
    if (n <= 8) {
        for (Py_ssize_t i = 1; distinct && i < n; i++) {
            for (Py_ssize_t j = 0; j < i; j++) {
                distinct &= sorted[i] != sorted[j];
            }
        }
    }
    else {
        qsort(sorted, (size_t)n, sizeof(PyObject *), compare_pointers);
        for (Py_ssize_t i = 1; i < n; i++) {
            distinct &= sorted[i] != sorted[i - 1];
        }
    }
    if (sorted != small) {
        PyMem_Free(sorted);
    }
    return distinct;
}

/* Whether each of the first `changed` registers holds another object than all others. Few are changed as a rule, and then
 * this is less than sorting them all. */
static int
none_of_others(PyObject *const *registers, const int32_t *which, Py_ssize_t n, Py_ssize_t changed)
{
    int distinct = 1;
    for (Py_ssize_t i = 0; distinct && i < changed; i++) {
        for (Py_ssize_t j = i + 1; j < n; j++) {
            distinct &= registers[which[i]] != registers[which[j]];
        }
    }
    return distinct;
}

/* A type's version tag changes whenever it or a base is changed and no two types share one, so a tag that was seen with the
 * full check passing says that it still holds. */
static int
type_attributes_are(PyTypeObject *type, PyObject *expected, uint64_t *memo)
{
    if (type->tp_version_tag != 0 && type->tp_version_tag == *memo) {
        return 1;
    }
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(expected); i += 2) {
        PyObject *found = _PyType_Lookup(type, PyTuple_GET_ITEM(expected, i));
        PyObject *wanted = PyTuple_GET_ITEM(expected, i + 1);
        if (found != (wanted == guard_missing ? NULL : wanted)) {
            if (PyErr_Occurred()) {
                return -1;
            }
            return 0;
        }
    }
    *memo = type->tp_version_tag;
    return 1;
}

static int
call_and_compare(const Step *step)
{
    PyObject *result = PyObject_CallObject(step->obj, step->obj2);
    if (result == NULL) {
        return -1;
    }
    int ok;
    if (step->op == OP_CALLABLE_TRUE) {
        ok = PyObject_IsTrue(result);
    }
    else {
        ok = result == step->obj3 ? 1 : PyObject_RichCompareBool(result, step->obj3, Py_EQ);
    }
    Py_DECREF(result);
    return ok;
}

/* ---- the evaluator ---- */

/* A load came back empty: 0 when there simply is no such thing, -1 for any other exception. */
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

/* One load: a new reference, or NULL with or without an exception. */
static inline PyObject *
run_load(Step *step, PyObject *const *reg, const GuardFrame *frame)
{
    PyObject *src = step->src >= 0 ? reg[step->src] : NULL;
    switch (step->op) {
    case OP_LOAD_LOCAL:
        return step->i1 >= 0 && step->i1 < frame->nargs ? Py_XNewRef(frame->args[step->i1]) : NULL;
    case OP_LOAD_CLOSURE: {
        PyObject *cell = load_cell(frame, step->i1);
        return cell == NULL || !PyCell_Check(cell) ? NULL : Py_XNewRef(PyCell_GET(cell));
    }
    case OP_LOAD_CELL_OBJ:
        return Py_XNewRef(load_cell(frame, step->i1));
    case OP_LOAD_GLOBAL:
        return load_dict_item(frame->globals, step);
    case OP_LOAD_BUILTIN:
        return PyDict_Check(frame->builtins) ? dict_get(frame->builtins, step->obj, step->hash) : NULL;
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
        return PyDict_Check(src) ? load_dict_item(src, step) : NULL;
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
    case OP_LOAD_TYPE:
        return Py_NewRef((PyObject *)Py_TYPE(src));
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
        return PyDict_Check(src) && step->i1 >= 0 ? dict_key_at(src, step->i1) : NULL;
    case OP_LOAD_DICT_VALUE: {
        PyObject *key = PyDict_Check(src) && step->i1 >= 0 ? dict_key_at(src, step->i1) : NULL;
        PyObject *value = key == NULL ? NULL : dict_get(src, key, -1);
        Py_XDECREF(key);
        return value;
    }
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

/* One check: 1, 0, or -1 with an exception. */
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
        Py_ssize_t size = raw_size(src);
        return size == -2 ? -1 : size == step->i1;
    }
    case OP_BOOL_LEN: {
        Py_ssize_t size = raw_size(src);
        return size == -2 ? -1 : size >= 0 && (size != 0) == step->part;
    }
    case OP_DICT_KEYS:
        return dict_keys_are(src, step->obj, &step->memo);
    case OP_DICT_HAS:
    case OP_DICT_LACKS: {
        if (!PyDict_Check(src)) {
            return 0;
        }
        PyObject *found = dict_get(src, step->obj, step->hash);
        if (found == NULL && PyErr_Occurred()) {
            return -1;
        }
        Py_XDECREF(found);
        return (found != NULL) == (step->op == OP_DICT_HAS);
    }
    case OP_SET_ITEMS:
        return set_items_are(src, step->obj);
    case OP_SET_ORDER:
        return set_order_is(src, step->obj);
    case OP_SET_TABLE:
        return PyAnySet_Check(src) && PyAnySet_Check(step->obj) ? guard_same_table(src, step->obj) : 0;
    case OP_CELL_EMPTY:
        return PyCell_Check(src) && PyCell_GET(src) == NULL;
    case OP_CODE_IS:
        return PyFunction_Check(src) && PyFunction_GET_CODE(src) == step->obj;
    case OP_NO_HOOKS:
        return no_hooks(src, step);
    case OP_TENSOR:
        return guard_tensor_check(step->data, src);
    case OP_TENSOR_SLOW:
        return guard_tensor_slow_check(step->obj, src);
    case OP_TENSOR_DATA:
        return guard_tensor_data_is(src, step->obj);
    case OP_TENSOR_SAME:
        return src == reg[step->src2];
    case OP_NOT_SAME:
        return step->i2 < step->i1 ? none_of_others(reg, step->data, step->i1, step->i2)
                                   : all_distinct(reg, step->data, step->i1);
    case OP_DISJOINT:
        return guard_tensors_disjoint(reg, step->data, step->i1, step->i2);
    case OP_MEMORY_OFFSET:
        return guard_memory_offset_is(src, reg[step->src2], step->i1);
    case OP_INT_RANGE:
        return int_value(src, &value) && value >= step->i1 && value <= step->i2;
    case OP_INT_DIV:
        if (!int_value(src, &value)) {
            return 0;
        }
        value %= step->i1;
        return (value < 0 ? value + step->i1 : value) == step->i2;
    case OP_FLOAT_IS_NAN:
        return PyFloat_CheckExact(src) && isnan(PyFloat_AS_DOUBLE(src));
    case OP_HASATTR:
    case OP_LACKS_ATTR: {
        PyObject *found = PyObject_GetAttr(src, step->obj);
        if (found == NULL && !PyErr_ExceptionMatches(PyExc_AttributeError)) {
            return -1;
        }
        PyErr_Clear();
        Py_XDECREF(found);
        return (found != NULL) == (step->op == OP_HASATTR);
    }
    case OP_CALLABLE_TRUE:
    case OP_CALLABLE_EQ:
        return call_and_compare(step);
    case OP_GLOBAL_STATE:
        return guard_state_check(step->data, step->obj);
    case OP_TYPE_VERSION:
        return (PyObject *)Py_TYPE(src) == step->obj && type_attributes_are(Py_TYPE(src), step->obj2, &step->memo) > 0
                   ? 1
                   : (PyErr_Occurred() ? -1 : 0);
    case OP_CLASS_VERSION:
        return PyType_Check(src) ? type_attributes_are((PyTypeObject *)src, step->obj2, &step->memo) : 0;
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

/* begin_same: 1 if the steps of its block are to run, 0 if they would hold, -1: not a dict. */
static inline int
begin_block(Step *step, PyObject *dict)
{
    if (!PyDict_Check(dict)) {
        return -1;
    }
    uint64_t version = dict_version(dict);
    step->i2 = (int64_t)version;
    return version == 0 || version != step->memo;
}

/* end_same: all of the block's steps have held. Where they ran code that changed the dict, or evaluated this program for
 * another one, nothing is remembered. */
static inline void
end_block(const Step *end, PyObject *dict)
{
    Step *begin = (Step *)end - end->i1;
    uint64_t version = dict_version(dict);
    if ((uint64_t)begin->i2 == version) {
        begin->memo = version;
    }
}

/* Runs the steps from `*at` to `end`; where one does not hold, `*at` says which. 1, 0, or -1 with an exception. */
static inline int
run_steps(GuardProgram *self, PyObject **registers, const GuardFrame *frame, Py_ssize_t *at, Py_ssize_t end)
{
    Py_ssize_t i = *at;
    for (; i < end; i++) {
        Step *step = &self->code[i];
        int ok = 1;
        if (step->dst >= 0) {
            registers[step->dst] = run_load(step, registers, frame);
            ok = registers[step->dst] != NULL ? 1 : failed_load();
        }
        else if (step->op == OP_BEGIN_SAME) {
            int run = begin_block(step, registers[step->src]);
            i += run == 0 ? step->i1 : 0;
            ok = run >= 0;
        }
        else if (step->op == OP_END_SAME) {
            end_block(step, registers[step->src]);
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
    int ok = run_steps(self, registers, frame, &i, first);
    if (ok == 1) {
        guard_lines_fetch(self->lines);
        ok = run_steps(self, registers, frame, &i, self->n_steps);
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
    for (Py_ssize_t r = 0; r < self->n_registers; r++) {
        Py_XDECREF(registers[r]);
    }
    if (registers != on_stack) {
        PyMem_Free(registers);
    }
    return ok;
}
