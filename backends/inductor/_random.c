/* Draws many random numbers of torch's CPU generator at a time.
 *
 * torch's generator is a Mersenne twister that returns one word per call; a draw of a Bernoulli distribution uses two,
 * and takes 7 ns. Here the twister's 624 words are generated, tempered and compared in vector loops, in a
 * fifth of that time.
 *
 * Invariant: the numbers drawn, and the state left behind, are those of torch's own bernoulli_ (its version without
 * MKL; dynamo_lite.backends.inductor.random compares the two before it relies on that).
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>

#define WORDS 624
#define SHIFT 397

/* The bytes of Generator.get_state(), up to the end of the twister's state. */
typedef struct {
    uint64_t seed;
    int32_t left; /* 1 + number of words that have not been handed out */
    int32_t seeded;
    uint64_t next; /* index of the next word */
    uint64_t words[WORDS];
} State;

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define VECTORS __attribute__((target_clones("avx512f", "avx2", "default"), optimize("O3")))
#else
#define VECTORS
#endif

#define TWISTED(high, low) (((((high) & 0x80000000u) | ((low) & 0x7fffffffu)) >> 1) ^ (-((low) & 1u) & 0x9908b0dfu))

VECTORS static void
twist(uint32_t *restrict w)
{
    /* Each loop reads words that the one before it has written; within itself, it reads only words that it has not
       written yet. The second loop reads words 227 places back, so it is divided into pieces of 192. */
#pragma GCC ivdep
    for (int i = 0; i < WORDS - SHIFT; i++) {
        w[i] = w[i + SHIFT] ^ TWISTED(w[i], w[i + 1]);
    }
    for (int start = WORDS - SHIFT; start < WORDS - 1; start += 192) {
        int end = start + 192 < WORDS - 1 ? start + 192 : WORDS - 1;
#pragma GCC ivdep
        for (int i = start; i < end; i++) {
            w[i] = w[i - (WORDS - SHIFT)] ^ TWISTED(w[i], w[i + 1]);
        }
    }
    w[WORDS - 1] = w[SHIFT - 1] ^ TWISTED(w[WORDS - 1], w[0]);
}

VECTORS static void
temper(const uint32_t *restrict w, uint32_t *restrict out, int count)
{
    for (int i = 0; i < count; i++) {
        uint32_t y = w[i];
        y ^= y >> 11;
        y ^= (y << 7) & 0x9d2c5680u;
        y ^= (y << 15) & 0xefc60000u;
        out[i] = y ^ (y >> 18);
    }
}

/* Two words make a number of 53 bits; the first has the high bits. */
#define LESS(words, i, limit)                                                                                         \
    (((int64_t)(words)[2 * (i)] & 0x1fffff) << 32 | (int64_t)(words)[2 * (i) + 1]) < (limit)

VECTORS static void
compare_float(const uint32_t *restrict words, float *restrict out, int count, int64_t limit)
{
    for (int i = 0; i < count; i++) {
        out[i] = LESS(words, i, limit) ? 1.0f : 0.0f;
    }
}

VECTORS static void
compare_byte(const uint32_t *restrict words, uint8_t *restrict out, int count, int64_t limit)
{
    for (int i = 0; i < count; i++) {
        out[i] = LESS(words, i, limit) ? 1 : 0;
    }
}

static void
fill(State *state, void *out, Py_ssize_t count, int64_t limit, int bytes)
{
    uint32_t words[WORDS], fresh[WORDS + 1];
    for (int i = 0; i < WORDS; i++) {
        words[i] = (uint32_t)state->words[i];
    }
    int next = (int)state->next, left = state->left - 1, kept = 0;
    Py_ssize_t done = 0;
    while (done < count) {
        if (left == 0) {
            twist(words);
            next = 0;
            left = WORDS;
        }
        Py_ssize_t wanted = 2 * (count - done) - kept;
        int taken = wanted < left ? (int)wanted : left;
        temper(words + next, fresh + kept, taken);
        next += taken;
        left -= taken;
        int pairs = (kept + taken) / 2;
        if (bytes) {
            compare_byte(fresh, (uint8_t *)out + done, pairs, limit);
        } else {
            compare_float(fresh, (float *)out + done, pairs, limit);
        }
        done += pairs;
        /* The two words of a draw may be in different batches of words. */
        kept = (kept + taken) % 2;
        fresh[0] = fresh[2 * pairs];
    }
    for (int i = 0; i < WORDS; i++) {
        state->words[i] = words[i];
    }
    state->next = (uint64_t)next;
    state->left = left + 1;
}

/* bernoulli(state, out, count, limit, bytes) */
static PyObject *
bernoulli(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
{
    (void)module;
    if (nargs != 5) {
        return PyErr_Format(PyExc_TypeError, "bernoulli takes 5 arguments");
    }
    State *state = PyLong_AsVoidPtr(args[0]);
    void *out = PyLong_AsVoidPtr(args[1]);
    Py_ssize_t count = PyLong_AsSsize_t(args[2]);
    long long limit = PyLong_AsLongLong(args[3]);
    int bytes = PyObject_IsTrue(args[4]);
    if (PyErr_Occurred()) {
        return NULL;
    }
    if (state == NULL || state->left < 1 || state->left > WORDS || state->next + (uint64_t)state->left > WORDS + 1) {
        return PyErr_Format(PyExc_ValueError, "no state of a Mersenne twister");
    }
    /* The GIL is not released: two threads that draw from one generator take turns. */
    fill(state, out, count, limit, bytes);
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"bernoulli", (PyCFunction)(void (*)(void))bernoulli, METH_FASTCALL,
     "bernoulli(state, out, count, limit, bytes)\n\nDraws `count` numbers of 53 bits and writes to `out`, as floats or "
     "as bytes, whether each is less than `limit`. `state` and `out` are addresses; the state is brought forward."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module_def = {
    PyModuleDef_HEAD_INIT,
    .m_name = "dynamo_lite.backends.inductor._random",
    .m_doc = "Draws of torch's CPU generator, many at a time.",
    .m_size = -1,
    .m_methods = methods,
};

PyMODINIT_FUNC
PyInit__random(void)
{
    return PyModule_Create(&module_def);
}
