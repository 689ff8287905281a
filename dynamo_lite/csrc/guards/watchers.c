/* States of dicts for versions of CPython that do not number them: one dict watcher reports which of the watched dicts change.
 *
 * A dict is watched from when one of its states is remembered until it first changes or is freed. So, however often a loop
 * writes to a dict, it gets one event for each call of compiled code in between.
 *
 * Invariants: a record is in the table if and only if its dict is being watched and has not changed since. The event precedes
 * the change, and from the event on no memo of the old state matches. The event callback only removes the record from the
 * table: it allocates nothing and runs no Python code. All of this is protected by the GIL.
 *
 * Changes that CPython 3.13 does not report, and the remedies:
 * - In 3.13.0 there is no event when an attribute is set on an object whose dict shares its inline values. Whether the running
 *   Python reports it is tried out when the watcher is taken; if not, a dict gets values of its own before it is watched, as if
 *   the program had executed `obj.__dict__ = obj.__dict__` (all dicts of 3.11 and 3.12 are of this kind).
 * - While such a dict is cleared, the values are dropped one after the other, after the event, and a destructor may read the
 *   dict meanwhile: its size is 0, but it still has values. Therefore no state of an empty dict is remembered.
 */
#include "dict_memo.h"

#ifdef DICTS_HAVE_VERSIONS

int
dict_watcher_take(void)
{
    return 0;
}

const char *
dict_states_come_from(void)
{
    return "version";
}

int
dict_watcher_is_given_back(void)
{
    return 0;
}

#else

#define RECORDS_AT_ONCE 128
#define FEWEST_CHAINS 256

enum { NONE = -1, GIVEN_BACK = -2 };

static struct {
    int id;                /* of the watcher; or NONE or GIVEN_BACK */
    DictWatch **chains;    /* hash table of records, by the addresses of their dicts */
    size_t n_chains;       /* a power of two */
    size_t n_watched;
    DictWatch *unused;     /* list of free records */
    uint64_t last_stamp;
    int inline_untold; /* whether no event reports a change of inline values */
} watcher = {.id = NONE};

static DictWatch **
chain_of(PyObject *dict)
{
    uint64_t mixed = ((uint64_t)(uintptr_t)dict >> 4) * UINT64_C(0x9E3779B97F4A7C15);
    return &watcher.chains[(mixed >> 32) & (watcher.n_chains - 1)];
}

/* The link in the chain that points to the record of this dict, or the NULL link at the end of the chain. */
static DictWatch **
place_of(PyObject *dict)
{
    DictWatch **place = chain_of(dict);
    while (*place != NULL && (*place)->dict != dict) {
        place = &(*place)->next;
    }
    return place;
}

/* Removes the dict's record from the table, if it has one. */
static void
forget(PyObject *dict)
{
    DictWatch **place = watcher.chains == NULL ? NULL : place_of(dict);
    DictWatch *record = place == NULL ? NULL : *place;
    if (record == NULL) {
        return;
    }
    *place = record->next;
    record->dict = NULL;
    record->stamp = 0;
    record->next = watcher.unused;
    watcher.unused = record;
    watcher.n_watched--;
}

/* The callback of the watcher (PyDict_WatchCallback). */
static int
on_event(PyDict_WatchEvent Py_UNUSED(event), PyObject *dict, PyObject *Py_UNUSED(key), PyObject *Py_UNUSED(value))
{
    forget(dict);
    return watcher.id >= 0 ? PyDict_Unwatch(watcher.id, dict) : 0;
}

/* Makes room for one more record: 1, or 0 if there is no memory. */
static int
make_room(void)
{
    if (watcher.n_watched >= watcher.n_chains) {
        DictWatch **old = watcher.chains;
        size_t n_old = watcher.n_chains, n = n_old == 0 ? FEWEST_CHAINS : 2 * n_old;
        DictWatch **chains = PyMem_Calloc(n, sizeof(DictWatch *));
        if (chains == NULL) {
            return 0;
        }
        watcher.chains = chains;
        watcher.n_chains = n;
        for (size_t i = 0; i < n_old; i++) {
            for (DictWatch *record = old[i], *next; record != NULL; record = next) {
                next = record->next;
                DictWatch **chain = chain_of(record->dict);
                record->next = *chain;
                *chain = record;
            }
        }
        PyMem_Free(old);
    }
    if (watcher.unused == NULL) {
        DictWatch *records = PyMem_Calloc(RECORDS_AT_ONCE, sizeof(DictWatch));
        for (size_t i = 0; records != NULL && i < RECORDS_AT_ONCE; i++) {
            records[i].next = watcher.unused;
            watcher.unused = &records[i];
        }
    }
    return watcher.unused != NULL;
}

#if PY_VERSION_HEX < 0x030e0000
/* The object (borrowed) whose inline values the dict shares, or NULL. They lie directly behind the object's header, because
 * instances of a class with any other C fields have no inline values. */
static PyObject *
sharer_of(PyObject *dict)
{
    struct {
        uint8_t capacity, size, embedded, valid;
    } const *values = (const void *)((PyDictObject *)dict)->ma_values;
    return values != NULL && values->embedded ? (PyObject *)((char *)values - sizeof(PyObject)) : NULL;
}

/* Gives the dict values of its own: 1, or 0 if that fails. */
static int
part_from_inline_values(PyObject *dict)
{
    PyObject *sharer = sharer_of(dict);
    if (sharer == NULL) {
        return 1;
    }
    PyObject **place = _PyObject_GetDictPtr(sharer);
    if (place == NULL || *place != dict) {
        return 0;
    }
    Py_INCREF(dict);
    if (_PyObject_SetManagedDict(sharer, dict) < 0) {
        PyErr_WriteUnraisable(sharer); /* out of memory */
    }
    int parted = sharer_of(dict) == NULL;
    Py_DECREF(dict);
    return parted;
}
#else
static int
part_from_inline_values(PyObject *Py_UNUSED(dict))
{
    return 0; /* not needed: later versions report the change */
}
#endif

/* Watches a dict. Returns its record, or NULL (without an exception) if that is not possible. */
static DictWatch *
watch(PyObject *dict)
{
    if (!make_room()) {
        return NULL;
    }
    DictWatch **place = place_of(dict);
    if (*place != NULL) {
        return *place;
    }
    if (watcher.inline_untold && !part_from_inline_values(dict)) {
        return NULL;
    }
    if (PyDict_Watch(watcher.id, dict) < 0) {
        PyErr_Clear(); /* other code has cleared our watcher */
        watcher.id = GIVEN_BACK;
        return NULL;
    }
    DictWatch *record = watcher.unused;
    watcher.unused = record->next;
    *record = (DictWatch){.dict = dict, .stamp = ++watcher.last_stamp};
    *place = record;
    watcher.n_watched++;
    return record;
}

DictState
dict_state(DictMemo *memo, PyObject *dict)
{
    if (watcher.id < 0 || PyDict_GET_SIZE(dict) == 0) {
        return (DictState){NULL, 0};
    }
    if (memo->wait > 0) {
        memo->wait--;
        return (DictState){NULL, 0};
    }
    DictWatch *record = watch(dict);
    return record == NULL ? (DictState){NULL, 0} : (DictState){record, record->stamp};
}

static int exiting;

/* Clears the watcher at exit, after unwatching all dicts. */
static PyObject *
give_back(PyObject *Py_UNUSED(self), PyObject *Py_UNUSED(ignored))
{
    int id = watcher.id;
    exiting = 1;
    watcher.id = GIVEN_BACK; /* other functions may still run at exit, and call compiled code */
    for (size_t i = 0; i < watcher.n_chains; i++) {
        while (watcher.chains[i] != NULL) {
            PyObject *dict = watcher.chains[i]->dict;
            if (id >= 0 && PyDict_Unwatch(id, dict) < 0) {
                PyErr_Clear(); /* other code has cleared our watcher */
                id = NONE;
            }
            forget(dict);
        }
    }
    if (id >= 0 && PyDict_ClearWatcher(id) < 0) {
        return NULL;
    }
    Py_RETURN_NONE;
}

static PyMethodDef give_back_method = {"give_dict_watcher_back", give_back, METH_NOARGS, NULL};

/* Takes one of CPython's eight watchers, two of which CPython uses itself. If all are taken, the next program tries again. */
static int
id_of_own(void)
{
    int id = PyDict_AddWatcher(on_event);
    if (id < 0 && PyErr_ExceptionMatches(PyExc_RuntimeError)) {
        PyErr_Clear();
    }
    return id < 0 ? NONE : id;
}

/* Whether setting an attribute of an object ends the state of its dict: 1, 0, or -1 with an exception. */
static int
attribute_is_told(PyObject *obj, PyObject *dict)
{
    DictWatch *record = watch(dict);
    if (record == NULL) {
        return 0;
    }
    uint64_t stamp = record->stamp;
    PyObject *value = PyLong_FromUnsignedLongLong(stamp);
    int set = value == NULL ? -1 : PyObject_SetAttrString(obj, "attribute", value);
    Py_XDECREF(value);
    return set < 0 ? -1 : record->stamp != stamp;
}

/* Tries out which changes the running Python reports. 1: enough of them, 0: too few to know any state, -1 with an exception. */
static int
try_out(void)
{
    PyObject *type = PyObject_CallFunction((PyObject *)&PyType_Type, "s(){}", "WatchedWhenTriedOut");
    PyObject *obj = type == NULL ? NULL : PyObject_CallNoArgs(type);
    int told = obj == NULL ? -1 : PyObject_SetAttrString(obj, "attribute", Py_None);
    PyObject *dict = told < 0 ? NULL : PyObject_GenericGetDict(obj, NULL);
    told = dict == NULL ? -1 : attribute_is_told(obj, dict);
    if (told == 0) {
        watcher.inline_untold = 1;
        forget(dict);
        told = attribute_is_told(obj, dict);
    }
    Py_XDECREF(dict);
    Py_XDECREF(obj);
    Py_XDECREF(type);
    return told;
}

static int
give_back_at_exit(void)
{
    PyObject *atexit = PyImport_ImportModule("atexit");
    PyObject *function = atexit == NULL ? NULL : PyCFunction_New(&give_back_method, NULL);
    PyObject *registered = function == NULL ? NULL : PyObject_CallMethod(atexit, "register", "O", function);
    Py_XDECREF(function);
    Py_XDECREF(atexit);
    Py_XDECREF(registered);
    return registered == NULL ? -1 : 0;
}

int
dict_watcher_take(void)
{
    if (watcher.id != NONE) {
        return 0;
    }
    watcher.id = id_of_own();
    if (watcher.id == NONE) {
        return PyErr_Occurred() ? -1 : 0;
    }
    int usable = try_out();
    if (usable > 0) {
        usable = give_back_at_exit() < 0 ? -1 : 1;
    }
    if (usable <= 0) {
        PyDict_ClearWatcher(watcher.id);
        watcher.id = usable < 0 ? NONE : GIVEN_BACK;
    }
    return usable < 0 ? -1 : 0;
}

const char *
dict_states_come_from(void)
{
    return watcher.id >= 0 ? "watcher" : "";
}

int
dict_watcher_is_given_back(void)
{
    return exiting;
}

#endif
