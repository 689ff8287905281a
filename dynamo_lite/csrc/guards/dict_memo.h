/* Remembers a state of a dict: what was found out about the dict in that state holds while `dict_unchanged` says so.
 *
 *     if (dict_unchanged(&memo, dict)) ...what was found out holds...
 *     DictState state = dict_state(&memo, dict);     before the dict is looked at
 *     ...look at it...
 *     if (dict_remember(&memo, state)) ...keep what was found out...
 *
 * Where it gives 0, the memo still is of the state that it was of, and what was kept for that state still belongs to it. Where looking ran code that changed the dict, the state is over and the memo never matches. Invariant: no two states of any
 * two dicts are the same, those of dicts that lay at one address one after the other included; a memo of zeros matches none.
 *
 * CPython 3.11 and 3.12 number the states (dict_version.h). 3.13 still counts, but an attribute that is set on an object whose
 * dict shares the object's inline values changes the dict without a new number; 3.14 has no number. There a dict watcher says
 * what changes (watchers.c), and where CPython has no watcher left to give, no memo ever matches: every check is a full one.
 */
#ifndef DYNAMO_LITE_GUARDS_DICT_MEMO_H
#define DYNAMO_LITE_GUARDS_DICT_MEMO_H

#include <Python.h>
#include <stdint.h>

#include "../dict_version.h"

#ifdef DICTS_HAVE_VERSIONS

typedef uint64_t DictState; /* 0: nobody knows */
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

/* Whether a state has ever been remembered. */
static inline int
dict_memo_is_set(const DictMemo *memo)
{
    return *memo != 0;
}

/* An address that `dict_unchanged` reads besides those of the memo and the dict; 0: none. */
static inline uintptr_t
dict_memo_line(const DictMemo *Py_UNUSED(memo))
{
    return 0;
}

#else

/* A dict that is being watched and has not changed since. Records are used again for other dicts, but never freed. */
typedef struct DictWatch {
    PyObject *dict; /* borrowed; NULL: none */
    uint64_t stamp; /* the number of this state; no two states have one number */
    struct DictWatch *next;
} DictWatch;

typedef struct {
    DictWatch *watch;
    uint64_t stamp; /* 0: nobody knows */
} DictState;

typedef struct {
    DictWatch *watch;
    uint64_t stamp : 48; /* 0: none */
    uint64_t misses : 4; /* states remembered since the last one that lasted */
    uint64_t wait : 12;  /* looks to let pass before the next one is remembered */
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

/* Watching costs more than a look at the dict. Where no state lasts until the next look, as with objects that take turns or
 * are made for each call, states are remembered ever more rarely: after so many misses every 64th, a nanosecond for each look. */
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

/* Whether a state has ever been remembered. */
static inline int
dict_memo_is_set(const DictMemo *memo)
{
    return memo->stamp != 0;
}

/* An address that `dict_unchanged` reads besides those of the memo and the dict; 0: none. */
static inline uintptr_t
dict_memo_line(const DictMemo *memo)
{
    return (uintptr_t)memo->watch;
}

#endif

/* Takes a dict watcher where states come from one: -1 with an exception, or 0, also where CPython has none left. */
int dict_watcher_take(void);
/* Where states of dicts come from: "version", "watcher", or "" where nobody knows them. */
const char *dict_states_come_from(void);

/* Whether the process is about to end, so that there is no watcher any more. */
int dict_watcher_is_given_back(void);

#endif
