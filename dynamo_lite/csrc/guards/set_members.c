/* Whether two sets hold the same constants, in whatever order. Hashing finds the candidates, since equal constants have equal
 * hashes, and guard_const_equal() tells {1} from {True}, which hashing does not. Only a NaN has the hash of its address: what
 * contains one is compared with each other member that does. A set that has not changed since is told by its objects alone.
 *
 * The members' hashes are those that the sets hold, so that no code of the user's runs.
 */
#include "guards.h"

#include <math.h>

typedef struct {
    Py_hash_t hash;
    PyObject *key; /* owned; NULL once it is matched */
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

/* Takes the first of `others` that equals `key` away. 1: there was one; 0; -1 with an exception. */
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

/* Whether two sets of one size hold the very same objects, as a set and a copy of it do. */
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

/* Whether a set, or an object that is one, has exactly the members of `expected`, a frozenset of constants: 1, 0, or -1 with an
 * exception. */
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
