/* Prefetches the cache lines that an evaluation of a guard program is going to read.
 *
 * The guards of a large model visit thousands of objects, which the model's kernels have evicted from the caches since the last
 * call. Read one after the other, each would wait for memory. The next evaluation most probably visits the same objects as the
 * last one.
 *
 * Invariant: the addresses are hints. They are only prefetched, never read, as the objects may have been freed.
 */
#include "guards.h"

#define LINE 64         /* bytes of a cache line */
#define TABLE_LINES 6   /* lines of a dict's table: all of a module's __dict__ */
#define OBJECT_LINES 2  /* lines of an object, from the garbage collector's header in front of it */
#define FEWEST 64       /* registers; the objects of smaller programs stay in the caches */

struct GuardLines {
    PyObject **visited; /* for each register the object that `lines` was made for; borrowed, only compared */
    uintptr_t *lines;
    size_t n, room;
    size_t made, wait; /* number of times that `lines` was made, and of evaluations to skip before the next time */
};

static int
add(GuardLines *self, uintptr_t address, size_t n_lines)
{
    if (self->n + n_lines > self->room) {
        size_t room = 2 * self->room + 256;
        uintptr_t *lines = PyMem_Resize(self->lines, uintptr_t, room);
        if (lines == NULL) {
            return -1;
        }
        self->lines = lines;
        self->room = room;
    }
    for (size_t i = 0; i < n_lines; i++) {
        self->lines[self->n++] = address + i * LINE;
    }
    return 0;
}

static int
add_object(GuardLines *self, PyObject *obj)
{
    size_t before = PyObject_IS_GC(obj) ? 2 * sizeof(void *) + 2 * sizeof(PyObject *) : 0;
    if (add(self, (uintptr_t)obj - before, OBJECT_LINES) < 0) {
        return -1;
    }
    if (PyDict_Check(obj)) {
        /* if states of dicts are known, tables are hardly ever read */
        return *dict_states_come_from() != '\0' ? 0 : add(self, (uintptr_t)((PyDictObject *)obj)->ma_keys, TABLE_LINES);
    }
    uintptr_t parts[GUARD_TENSOR_LINES];
    size_t n = guard_tensor_lines(obj, parts);
    for (size_t i = 0; i < n; i++) {
        if (add(self, parts[i], 1) < 0) {
            return -1;
        }
    }
    return 0;
}

static int
add_step(GuardLines *self, const Step *step)
{
    if (add(self, (uintptr_t)step, 1) < 0 || add(self, (uintptr_t)(step + 1) - 1, 1) < 0) {
        return -1;
    }
    uintptr_t state = step->op == OP_CLASS_VERSION ? 0 : dict_memo_line(&step->memo);
    if (state != 0 && add(self, state, 1) < 0) {
        return -1;
    }
    return step->data == NULL ? 0 : add(self, (uintptr_t)step->data, 2);
}

void
guard_lines_fetch(const GuardLines *self)
{
    /* Into the L2 cache: together they are larger than the L1 cache. */
    for (size_t i = 0; self != NULL && i < self->n; i++) {
        __builtin_prefetch((const void *)self->lines[i], 0, 2);
    }
}

void
guard_lines_free(GuardLines *self)
{
    if (self != NULL) {
        PyMem_Free(self->visited);
        PyMem_Free(self->lines);
        PyMem_Free(self);
    }
}

static int
compare_lines(const void *a, const void *b)
{
    uintptr_t x = *(const uintptr_t *)a, y = *(const uintptr_t *)b;
    return (x > y) - (x < y);
}

/* Removes duplicates, as adjacent objects share lines. */
static void
sort_lines(GuardLines *self)
{
    size_t kept = 0;
    for (size_t i = 0; i < self->n; i++) {
        self->lines[i] -= self->lines[i] % LINE;
    }
    qsort(self->lines, self->n, sizeof(uintptr_t), compare_lines);
    for (size_t i = 0; i < self->n; i++) {
        if (kept == 0 || self->lines[i] != self->lines[kept - 1]) {
            self->lines[kept++] = self->lines[i];
        }
    }
    self->n = kept;
}

/* Remembers the lines that an evaluation has read. If objects take turns, as when equal layers share a program, this is soon
 * done only rarely. If there is no memory for it, nothing is remembered. */
void
guard_lines_remember(GuardProgram *program, PyObject *const *registers)
{
    GuardLines *self = program->lines;
    size_t n = (size_t)program->n_registers;
    if (n < FEWEST || (self != NULL && memcmp(self->visited, registers, n * sizeof(PyObject *)) == 0)) {
        return;
    }
    if (self == NULL) {
        self = program->lines = PyMem_Calloc(1, sizeof(GuardLines));
        if (self == NULL) {
            return;
        }
        self->visited = PyMem_Calloc(n, sizeof(PyObject *));
    }
    if (self->wait > 0) {
        self->wait--;
        return;
    }
    self->wait = self->made < 4 ? 0 : (size_t)1 << (self->made < 16 ? self->made : 16);
    self->made++;
    self->n = 0;
    int ok = self->visited == NULL ? -1 : 0;
    for (size_t i = 0; ok == 0 && i < n; i++) {
        self->visited[i] = registers[i];
        ok = registers[i] == NULL ? 0 : add_object(self, registers[i]);
    }
    for (Py_ssize_t i = 0; ok == 0 && i < program->n_steps; i++) {
        ok = add_step(self, &program->code[i]);
        if (program->code[i].op == OP_BEGIN_SAME && dict_memo_is_set(&program->code[i].memo)) {
            i += program->code[i].i1;
            continue;
        }
        PyObject **hooks = program->code[i].op == OP_NO_HOOKS ? program->code[i].data : NULL;
        for (int k = 0; ok == 0 && hooks != NULL && k < GUARD_MOST_HOOKS; k++) {
            ok = hooks[k] == NULL ? 0 : add(self, (uintptr_t)hooks[k], 1);
        }
    }
    if (ok < 0) {
        guard_lines_free(self);
        program->lines = NULL;
        return;
    }
    sort_lines(self);
}
