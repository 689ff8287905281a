/* Remembers a state of a dict: results that were found in that state remain valid while `dict_unchanged` returns true.
 *
 *     if (dict_unchanged(&memo, dict)) ...the results are valid...
 *     DictState state = dict_state(&memo, dict);     before reading the dict
 *     ...read the dict...
 *     if (dict_remember(&memo, state)) ...store the results...
 *
 * If `dict_remember` returns 0, the memo still refers to the state that it referred to before, and the results stored for that
 * state still belong to it. If reading the dict ran code that changed it, the state is over and the memo never matches.
 * Invariant: no two states of any two dicts are the same, including dicts that had one address one after the other; a memo of
 * zeros matches no state. Memos are protected by the GIL and own no reference.
 *
 * CPython 3.11 and 3.12 number the states (dict_version.h). 3.13 still counts, but setting an attribute of an object whose dict
 * shares the object's inline values changes the dict without a new number; 3.14 has no numbers. There a dict watcher reports
 * changes (watchers.c). If CPython has no watcher left, no memo ever matches: every check is a full one.
 */
#ifndef DYNAMO_LITE_GUARDS_DICT_MEMO_H
#define DYNAMO_LITE_GUARDS_DICT_MEMO_H

#include <Python.h>
#include <stdint.h>

#include "../dict_version.h"

#ifdef DICTS_HAVE_VERSIONS

typedef uint64_t DictState; /* 0: unknown */
typedef DictState DictMemo;

static inline int
dict_unchanged(DictMemo *memo, PyObject *obj)
{
    return PyDict_Check(obj) && *memo != 0 && *memo == dict_version(obj);
}

static inline DictState
dict_state(DictMemo *Py_UNUSED(memo), PyObject *dict)
{
    return dict_version(dict);
}

static inline int
dict_remember(DictMemo *memo, DictState state)
{
    *memo = state;
    return 1;
}

/* Whether the memo refers to a state. */
static inline int
dict_memo_is_set(const DictMemo *memo)
{
    return *memo != 0;
}

/* An address that `dict_unchanged` reads in addition to the memo and the dict; 0: there is none. */
static inline uintptr_t
dict_memo_line(const DictMemo *Py_UNUSED(memo))
{
    return 0;
}

#else

/* A record of a dict that is being watched and has not changed since. Records are reused for other dicts, but never freed. */
typedef struct DictWatch {
    PyObject *dict; /* borrowed; NULL: the record is unused */
    uint64_t stamp; /* number of this state; no two states have the same number */
    struct DictWatch *next;
} DictWatch;

typedef struct {
    DictWatch *watch;
    uint64_t stamp; /* 0: unknown */
} DictState;

typedef struct {
    DictWatch *watch;
    uint64_t stamp : 48; /* 0: no state */
    uint64_t misses : 4; /* number of states remembered since one last matched, at most DICT_MOST_MISSES */
    uint64_t wait : 12;  /* number of lookups to skip before the next state is remembered */
} DictMemo;

DictState dict_state(DictMemo *memo, PyObject *dict);

static inline int
dict_unchanged(DictMemo *memo, PyObject *obj)
{
    if (memo->stamp == 0 || memo->watch->stamp != memo->stamp || memo->watch->dict != obj) {
        return 0;
    }
    if (memo->misses != 0) {
        memo->misses = memo->wait = 0;
    }
    return 1;
}

/* Watching costs more than reading the dict. If no state lasts until the next lookup, as with objects that take turns or are
 * made for each call, states are remembered ever more rarely: after this many misses at every 64th lookup, which costs a
 * nanosecond per lookup. */
#define DICT_MOST_MISSES 6

static inline int
dict_remember(DictMemo *memo, DictState state)
{
    if (state.stamp == 0) {
        return 0;
    }
    memo->watch = state.watch;
    memo->stamp = state.stamp;
    memo->wait = (UINT64_C(1) << memo->misses) - 1;
    if (memo->misses < DICT_MOST_MISSES) {
        memo->misses++;
    }
    return 1;
}

/* Whether the memo refers to a state. */
static inline int
dict_memo_is_set(const DictMemo *memo)
{
    return memo->stamp != 0;
}

/* An address that `dict_unchanged` reads in addition to the memo and the dict; 0: there is none. */
static inline uintptr_t
dict_memo_line(const DictMemo *memo)
{
    return (uintptr_t)memo->watch;
}

#endif

/* Takes a dict watcher if states come from one. 0, even if CPython has none left; -1 with an exception. */
int dict_watcher_take(void);
/* The source of the states of dicts: "version", "watcher", or "" if they are not known. */
const char *dict_states_come_from(void);

/* Whether the watcher has been given back because the process is about to end. */
int dict_watcher_is_given_back(void);

#endif
