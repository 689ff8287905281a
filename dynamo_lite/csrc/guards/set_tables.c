/* The tables of sets: the slot of each member, the slots of removed members, the size of the table, and the slot at which the
 * next pop() begins to search. They determine the order in which a set iterates over its members, now and after further
 * changes, and Python has no function that copies or compares them. The structure is that of CPython's public header
 * (cpython/setobject.h), which has been the same since 3.7.
 *
 * A slot is empty (key NULL), a dummy left by a removed member (hash -1, key not owned), or holds a member.
 */
#include "guards.h"

#include <string.h>

static int
holds_member(const setentry *entry)
{
    return entry->key != NULL && entry->hash != -1;
}

/* The member at `*at` in the table or the first one behind it, borrowed; `*at` moves behind it. NULL: there is none. */
PyObject *
guard_next_member(PyObject *set, Py_ssize_t *at, Py_hash_t *hash)
{
    PySetObject *self = (PySetObject *)set;
    while (*at <= self->mask) {
        const setentry *entry = &self->table[(*at)++];
        if (holds_member(entry)) {
            if (hash != NULL) {
                *hash = entry->hash;
            }
            return entry->key;
        }
    }
    return NULL;
}

/* Whether a set holds this very object, whose hash is given. Nothing is compared, so no user code runs. The slots are probed in
 * CPython's order (Objects/setobject.c, set_lookkey); in another order an object would not be found. */
int
guard_holds_object(PyObject *set, PyObject *key, Py_hash_t hash)
{
    enum { LINEAR_PROBES = 9, PERTURB_SHIFT = 5 };
    PySetObject *self = (PySetObject *)set;
    size_t mask = (size_t)self->mask, perturb = (size_t)hash, i = (size_t)hash & mask;
    for (;;) {
        size_t last = i + LINEAR_PROBES <= mask ? i + LINEAR_PROBES : i;
        for (const setentry *entry = &self->table[i]; entry <= &self->table[last]; entry++) {
            if (entry->key == NULL || entry->key == key) {
                return entry->key == key;
            }
        }
        perturb >>= PERTURB_SHIFT;
        i = (i * 5 + 1 + perturb) & mask;
    }
}

int
guard_same_table(PyObject *a, PyObject *b)
{
    PySetObject *left = (PySetObject *)a, *right = (PySetObject *)b;
    if (left->mask != right->mask || left->fill != right->fill || left->used != right->used) {
        return 0;
    }
    if ((left->finger & left->mask) != (right->finger & right->mask)) {
        return 0;
    }
    for (Py_ssize_t i = 0; i <= right->mask; i++) {
        /* A comparison could run code that changes the sets. */
        if (left->mask != right->mask) {
            return 0;
        }
        const setentry *x = &left->table[i], *y = &right->table[i];
        if (x->hash != y->hash || (x->key == NULL) != (y->key == NULL)) {
            return 0;
        }
        if (!holds_member(x) || x->key == y->key) {
            continue;
        }
        PyObject *key = Py_NewRef(x->key), *other = Py_NewRef(y->key);
        int equal = guard_const_equal(key, other);
        Py_DECREF(key);
        Py_DECREF(other);
        if (equal != 1) {
            return equal;
        }
    }
    return 1;
}

/* Replaces the table of `to` by a copy of that of `from`, with the members of `from` or with `members`, a tuple of equal
 * objects in the same order. 0, or -1 with an exception. */
static int
take_table(PySetObject *to, PySetObject *from, PyObject *members)
{
    if (to == from) {
        return 0;
    }
    if (members != NULL && PyTuple_GET_SIZE(members) != from->used) {
        PyErr_SetString(PyExc_ValueError, "as many members as the set has are needed");
        return -1;
    }
    size_t size = (size_t)from->mask + 1;
    setentry *table = NULL;
    if (from->table != from->smalltable && (table = PyMem_New(setentry, size)) == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    setentry small[PySet_MINSIZE];
    memcpy(small, to->smalltable, sizeof(small));
    setentry *old = to->table == to->smalltable ? small : to->table;
    size_t old_size = (size_t)to->mask + 1;

    memset(to->smalltable, 0, sizeof(to->smalltable));
    to->table = table != NULL ? table : to->smalltable;
    memcpy(to->table, from->table, size * sizeof(setentry));
    Py_ssize_t at = 0;
    for (size_t i = 0; i < size; i++) {
        setentry *entry = &to->table[i];
        if (holds_member(entry)) {
            entry->key = Py_NewRef(members != NULL ? PyTuple_GET_ITEM(members, at++) : entry->key);
        }
    }
    to->mask = from->mask;
    to->fill = from->fill;
    to->used = from->used;
    to->finger = from->finger;

    for (size_t i = 0; i < old_size; i++) {
        if (holds_member(&old[i])) {
            Py_DECREF(old[i].key);
        }
    }
    if (old != small) {
        PyMem_Free(old);
    }
    return 0;
}

static int
parse(const char *name, PyObject *const *args, Py_ssize_t nargs, Py_ssize_t sets)
{
    int right = nargs == sets || (nargs == sets + 1 && PyTuple_CheckExact(args[sets]));
    for (Py_ssize_t i = 0; right && i < sets; i++) {
        right = PyAnySet_Check(args[i]);
    }
    if (!right) {
        PyErr_Format(PyExc_TypeError, "%s() takes %zd set%s and perhaps a tuple", name, sets, sets > 1 ? "s" : "");
    }
    return right;
}

PyObject *
set_clone_table(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t nargs)
{
    if (!parse("clone_table", args, nargs, 1)) {
        return NULL;
    }
    PyObject *from = args[0];
    PyObject *made;
    if (!PyFrozenSet_Check(from)) {
        made = PySet_New(NULL);
    } else if (((PySetObject *)from)->fill == 0) {
        return PyFrozenSet_New(NULL);
    } else {
        /* Not an empty frozenset, which some versions of CPython share; this is a new object that nobody else refers to. */
        PyObject *something = Py_BuildValue("(O)", Py_None);
        made = something == NULL ? NULL : PyFrozenSet_New(something);
        Py_XDECREF(something);
    }
    if (made == NULL) {
        return NULL;
    }
    if (take_table((PySetObject *)made, (PySetObject *)from, nargs == 2 ? args[1] : NULL) < 0) {
        Py_CLEAR(made);
    }
    return made;
}

PyObject *
set_copy_table(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t nargs)
{
    if (!parse("copy_table", args, nargs, 2)) {
        return NULL;
    }
    if (take_table((PySetObject *)args[0], (PySetObject *)args[1], nargs == 3 ? args[2] : NULL) < 0) {
        return NULL;
    }
    Py_RETURN_NONE;
}

PyObject *
set_same_table(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t nargs)
{
    if (!parse("same_table", args, nargs, 2)) {
        return NULL;
    }
    int equal = guard_same_table(args[0], args[1]);
    return equal < 0 ? NULL : PyBool_FromLong(equal);
}
