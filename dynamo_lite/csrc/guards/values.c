/* Checks of values: constants, sizes, the order of sets, the identity of objects. */
#include "guards.h"

#include <math.h>

#define ON_STACK 64

static int
float_bits_equal(double a, double b)
{
    return memcmp(&a, &b, sizeof(double)) == 0 || (isnan(a) && isnan(b));
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
    if (PyTuple_Check(a)) { /* including a subclass such as torch.Size: the items decide */
        Py_ssize_t n = PyTuple_GET_SIZE(a);
        int equal = n == PyTuple_GET_SIZE(b);
        for (Py_ssize_t i = 0; equal == 1 && i < n; i++) {
            equal = guard_const_equal(PyTuple_GET_ITEM(a, i), PyTuple_GET_ITEM(b, i));
        }
        return equal;
    }
    if (type == &PyFrozenSet_Type) {
        return guard_same_table(a, b); /* with its order, as it may be iterated over */
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

/* Size read from the C structure, so that an overridden __len__ does not run. -1: it has no size; -2: an exception is set. */
Py_ssize_t
guard_raw_size(PyObject *obj)
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
    Py_ssize_t size = PyObject_Size(obj); /* str, bytes, range, deque, and classes of the user's, whose __len__ runs */
    if (size >= 0) {
        return size;
    }
    if (PyErr_ExceptionMatches(PyExc_TypeError)) {
        PyErr_Clear();
        return -1;
    }
    return -2;
}

/* Whether `obj` is a set (or of a subclass) that holds these elements in this order; its class's __iter__ is not called. */
int
guard_set_order_is(PyObject *obj, PyObject *expected)
{
    if (!PyAnySet_Check(obj) || PySet_GET_SIZE(obj) != PyTuple_GET_SIZE(expected)) {
        return 0;
    }
    Py_ssize_t at = 0, i = 0;
    PyObject *item;
    int equal = 1;
    while (equal == 1 && i < PyTuple_GET_SIZE(expected) && (item = guard_next_member(obj, &at, NULL)) != NULL) {
        PyObject *other = PyTuple_GET_ITEM(expected, i++);
        Py_INCREF(item);
        equal = item == other                    ? 1
                : Py_TYPE(item) != Py_TYPE(other) ? 0
                                                  : PyObject_RichCompareBool(item, other, Py_EQ);
        Py_DECREF(item);
    }
    return equal;
}

static int
compare_pointers(const void *a, const void *b)
{
    uintptr_t x = (uintptr_t) * (PyObject *const *)a, y = (uintptr_t) * (PyObject *const *)b;
    return (x > y) - (x < y);
}

/* Whether all these registers hold different objects: 1, 0, or -1 with an exception. Sorts them by address if they are many. */
int
guard_all_distinct(PyObject *const *registers, const int32_t *which, Py_ssize_t n)
{
    PyObject *small[ON_STACK];
    PyObject **sorted = n <= ON_STACK ? small : PyMem_New(PyObject *, n);
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

/* Whether each of the first `changed` registers holds another object than all the others. Mostly `changed` is small; then this
 * takes fewer comparisons than sorting all of them. */
int
guard_none_of_others(PyObject *const *registers, const int32_t *which, Py_ssize_t n, Py_ssize_t changed)
{
    int distinct = 1;
    for (Py_ssize_t i = 0; distinct && i < changed; i++) {
        for (Py_ssize_t j = i + 1; j < n; j++) {
            distinct &= registers[which[i]] != registers[which[j]];
        }
    }
    return distinct;
}
