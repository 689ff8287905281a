/* Whether two sets hold the same constants, in any order. Candidates are found by hash, since equal constants have equal
 * hashes; guard_const_equal() then distinguishes {1} from {True}, which have the same hash. Only a NaN has the hash of its
 * address, so a member that contains a NaN is compared with all members. For a set that has not changed, comparing the
 * identities of the objects is enough.
 *
 * The hashes are those stored in the sets, so that no user code runs.
 */
#include "guards.h"

#include <math.h>

typedef struct {
    Py_hash_t hash;
    PyObject *key; /* owned; NULL once it has been matched */
} Member;

static int
compare_hashes(const void *a, const void *b)
{
    Py_hash_t x = ((const Member *)a)->hash, y = ((const Member *)b)->hash;
    return (x > y) - (x < y);
}

/* The members of a set, sorted by hash. NULL with MemoryError. */
static Member *
sorted_members(PyObject *set)
{
    Py_ssize_t size = PySet_GET_SIZE(set), at = 0;
    Member *members = PyMem_New(Member, size > 0 ? size : 1);
    if (members == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    for (Py_ssize_t i = 0; i < size; i++) {
        members[i].key = Py_NewRef(guard_next_member(set, &at, &members[i].hash));
    }
    qsort(members, (size_t)size, sizeof(Member), compare_hashes);
    return members;
}

static void
free_members(Member *members, Py_ssize_t size)
{
    for (Py_ssize_t i = 0; members != NULL && i < size; i++) {
        Py_XDECREF(members[i].key);
    }
    PyMem_Free(members);
}

static int
contains_nan(PyObject *key)
{
    if (PyFloat_CheckExact(key)) {
        return isnan(PyFloat_AS_DOUBLE(key));
    }
    if (PyComplex_CheckExact(key)) {
        Py_complex value = ((PyComplexObject *)key)->cval;
        return isnan(value.real) || isnan(value.imag);
    }
    if (PyTuple_CheckExact(key)) {
        for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(key); i++) {
            if (contains_nan(PyTuple_GET_ITEM(key, i))) {
                return 1;
            }
        }
    }
    return 0;
}

/* Removes the first of `others` that equals `key`. 1: there was one; 0: there was none; -1: an exception is set. */
static int
take_equal(PyObject *key, Member *others, Py_ssize_t n)
{
    for (Py_ssize_t i = 0; i < n; i++) {
        int equal = others[i].key == NULL ? 0 : guard_const_equal(key, others[i].key);
        if (equal != 0) {
            if (equal == 1) {
                Py_CLEAR(others[i].key);
            }
            return equal;
        }
    }
    return 0;
}

static int
members_equal(Member *left, Member *right, Py_ssize_t size)
{
    int equal = 1;
    Py_ssize_t from = 0;
    for (Py_ssize_t i = 0; equal == 1 && i < size; i++) {
        if (contains_nan(left[i].key)) {
            equal = take_equal(left[i].key, right, size);
            continue;
        }
        while (from < size && right[from].hash < left[i].hash) {
            from++;
        }
        Py_ssize_t to = from;
        while (to < size && right[to].hash == left[i].hash) {
            to++;
        }
        equal = take_equal(left[i].key, &right[from], to - from);
    }
    return equal;
}

/* Whether two sets of the same size hold the very same objects, as a set and its copy do. */
static int
same_objects(PyObject *left, PyObject *right)
{
    Py_ssize_t at = 0;
    Py_hash_t hash;
    for (PyObject *key; (key = guard_next_member(left, &at, &hash)) != NULL;) {
        if (!guard_holds_object(right, key, hash)) {
            return 0;
        }
    }
    return 1;
}

/* Whether `obj` is a set or frozenset (or of a subclass) with exactly the members of `expected`, a frozenset of constants: 1,
 * 0, or -1 with an exception. */
int
guard_set_items_are(PyObject *obj, PyObject *expected)
{
    if (!PyAnySet_Check(obj) || PySet_GET_SIZE(obj) != PySet_GET_SIZE(expected)) {
        return 0;
    }
    if (same_objects(obj, expected)) {
        return 1;
    }
    Py_ssize_t size = PySet_GET_SIZE(expected);
    Member *left = sorted_members(obj), *right = left == NULL ? NULL : sorted_members(expected);
    int equal = right == NULL ? -1 : members_equal(left, right, size);
    free_members(left, size);
    free_members(right, size);
    return equal;
}
