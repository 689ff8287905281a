/* Declarations shared by the translation units of `_guards`: the steps of a guard program and the functions that evaluate them.
 *
 * A guard program is a straight line of steps over registers. A load puts an object into a register, a check looks at one; the
 * first step that does not hold ends the evaluation. Invariants: every register is written by at most one step, before any
 * step that reads it; a step owns all objects it refers to, except for remembered ones; evaluation changes only what a step
 * remembers: in which state of a dict or class the full check passed (`memo`, `type_tag`), and the objects found in that state
 * (`found`, and `data` of no_hooks).
 *
 * The steps from begin_same to end_same depend on the state of one dict alone: they read its values, and of those only
 * immutable properties. While the dict is in the state in which they all held, they are skipped. No step outside reads their
 * registers. Programs are protected by the GIL.
 */
#ifndef DYNAMO_LITE_GUARDS_H
#define DYNAMO_LITE_GUARDS_H

#include <Python.h>
#include <stdint.h>

#include "../guards_api.h"
#include "dict_memo.h"

/* Operation, its name in the Python tuple, and its operands: d register written, r register read, i integer, o object, s name,
 * t tuple, T type; * means that the operation has a parser of its own for the rest. At most one d, one of o, s, t, T, two r,
 * two i. */
#define GUARD_OPS(X)                                     \
    X(LOAD_LOCAL, "load_local", "di")                    \
    X(LOAD_CELL_OBJ, "load_cell_obj", "di")              \
    X(LOAD_BUILTIN, "load_builtin", "ds")                \
    X(LOAD_GLOBALS_DICT, "load_globals_dict", "d")       \
    X(LOAD_CONST, "load_const", "do")                    \
    X(LOAD_ATTR, "load_attr", "drs")                     \
    X(LOAD_INSTANCE_DICT, "load_instance_dict", "dr")    \
    X(LOAD_SLOT, "load_slot", "dro")                     \
    X(LOAD_DICT_ITEM, "load_dict_item", "dro")           \
    X(LOAD_LIST_ITEM, "load_list_item", "dri")           \
    X(LOAD_TUPLE_ITEM, "load_tuple_item", "dri")         \
    X(LOAD_ITEM, "load_item", "dro")                     \
    X(LOAD_CALL, "load_call", "dro")                     \
    X(LOAD_FORMULA, "load_formula", "d*")                \
    X(LOAD_TYPE_ATTR, "load_type_attr", "drs")           \
    X(LOAD_FUNC_PART, "load_func_part", "dr*")           \
    X(LOAD_CELL_CONTENTS, "load_cell_contents", "dr")    \
    X(LOAD_METHOD_PART, "load_method_part", "dr*")       \
    X(LOAD_WEAKREF, "load_weakref", "dr")                \
    X(LOAD_DICT_KEY, "load_dict_key", "dri")             \
    X(LOAD_DICT_VALUE, "load_dict_value", "dri")         \
    X(LOAD_SIZE, "load_size", "dri")                     \
    X(LOAD_STRIDE, "load_stride", "dri")                 \
    X(BEGIN_SAME, "begin_same", "r")                     \
    X(END_SAME, "end_same", "r")                         \
    X(TYPE_IS, "type_is", "rT")                          \
    X(IS, "is", "ro")                                    \
    X(IS_NOT, "is_not", "ro")                            \
    X(CONST, "const", "ro")                              \
    X(LEN, "len", "ri")                                  \
    X(DICT_KEYS, "dict_keys", "rt")                      \
    X(DICT_HAS, "dict_has", "ro")                        \
    X(DICT_LACKS, "dict_lacks", "ro")                    \
    X(SET_ITEMS, "set_items", "ro")                      \
    X(SET_ORDER, "set_order", "rt")                      \
    X(SET_TABLE, "set_table", "ro")                      \
    X(CELL_EMPTY, "cell_empty", "r")                     \
    X(CODE_IS, "code_is", "ro")                          \
    X(NO_HOOKS, "no_hooks", "rt")                        \
    X(TENSOR, "tensor", "r*")                            \
    X(TENSOR_DATA, "tensor_data", "ro")                  \
    X(TENSOR_SAME, "tensor_same", "rr")                  \
    X(NOT_SAME, "not_same", "*")                         \
    X(DISJOINT, "disjoint", "*")                         \
    X(MEMORY_OFFSET, "memory_offset", "rri")             \
    X(INT_RANGE, "int_range", "rii")                     \
    X(RELATION, "relation", "*")                         \
    X(CALLABLE_EQ, "callable_eq", "*")                 \
    X(GLOBAL_STATE, "global_state", "*")                 \
    X(CLASS_VERSION, "class_version", "r*")              \
    X(COLLECT, "collect", "r*")

typedef enum {
#define X(op, name, operands) OP_##op,
    GUARD_OPS(X)
#undef X
        OP_COUNT
} GuardOp;

/* No larger than a cache line: the program of a large model is read from end to end. */
typedef struct {
    uint16_t op;
    int32_t dst;      /* register written */
    int32_t src;      /* register read */
    int32_t src2;
    int64_t i1;
    union {
        int64_t i2;
        PyObject *found; /* borrowed: the item that load_dict_item found; its dict holds it while in the state of `memo` */
    };
    PyObject *obj;    /* owned */
    void *data;       /* owned, from PyMem: a TensorSpec, a Relation, registers, a state, or the containers of no_hooks */
    union {
        DictMemo memo;         /* state of the dict when the full check last passed, or when the item was found */
        unsigned int type_tag; /* for class_version: the class's version tag when the full check last passed; 0: none */
    };
} Step;

_Static_assert(sizeof(Step) <= 64, "a step is larger than a line");

#define GUARD_MOST_OPERANDS 4 /* largest number of operands of load_formula */
#define GUARD_MOST_HOOKS 8 /* largest number of containers that a no_hooks step remembers, in its data */

typedef struct {
    PyObject_HEAD
    PyObject *steps;         /* owned: the tuple of tuples that the program was made from */
    Step *code;
    Py_ssize_t n_steps;
    Py_ssize_t n_registers;
    Py_ssize_t n_inputs;
    int32_t *collected;      /* for each input the register that holds it */
    struct GuardLines *lines; /* the cache lines that the last evaluation read; NULL: nothing worth prefetching */
    unsigned long long evaluations, failures;
} GuardProgram;

extern PyTypeObject GuardProgram_Type;
extern PyObject *guard_missing; /* stands for "no such attribute" in class_version */

/* steps.c */
int guard_parse_steps(GuardProgram *self, PyObject *steps);
void guard_free_steps(GuardProgram *self);
int guard_traverse_steps(GuardProgram *self, visitproc visit, void *arg);
PyObject *guard_op_names(void);

/* eval.c */
int guard_check(PyObject *program, const GuardFrame *frame, PyObject **inputs, Py_ssize_t *failed_step);

/* values.c */
int guard_const_equal(PyObject *a, PyObject *b); /* same exact type and value: 1, 0, or -1 with an exception */
Py_ssize_t guard_raw_size(PyObject *obj);
int guard_set_order_is(PyObject *obj, PyObject *expected);
int guard_all_distinct(PyObject *const *registers, const int32_t *which, Py_ssize_t n);
int guard_none_of_others(PyObject *const *registers, const int32_t *which, Py_ssize_t n, Py_ssize_t changed);

/* dicts.c */
PyObject *guard_find_dict_item(PyObject *dict, Step *step);
PyObject *guard_dict_key_at(PyObject *dict, Py_ssize_t position);
PyObject *guard_dict_value_at(PyObject *dict, Py_ssize_t position);
int guard_dict_keys_are(PyObject *dict, Step *step);
int guard_no_hooks(PyObject *obj, Step *step);

/* set_members.c */
int guard_set_items_are(PyObject *obj, PyObject *expected);

/* set_tables.c */
int guard_same_table(PyObject *a, PyObject *b); /* two sets with equal members in the same slots: 1, 0, -1 */
PyObject *guard_next_member(PyObject *set, Py_ssize_t *at, Py_hash_t *hash); /* hash: of the member, unless NULL */
int guard_holds_object(PyObject *set, PyObject *key, Py_hash_t hash);
PyObject *set_clone_table(PyObject *, PyObject *const *, Py_ssize_t);
PyObject *set_copy_table(PyObject *, PyObject *const *, Py_ssize_t);
PyObject *set_same_table(PyObject *, PyObject *const *, Py_ssize_t);

/* tensor.c */
typedef struct TensorSpec TensorSpec;
TensorSpec *guard_tensor_parse(PyObject *operands); /* a new spec from (cls, dtype_code, ...), or NULL with an exception */
PyObject *guard_tensor_class(const TensorSpec *spec);
int guard_tensor_check(const TensorSpec *spec, PyObject *tensor);
int guard_tensors_disjoint(PyObject *const *registers, const int32_t *which, Py_ssize_t n, Py_ssize_t changed);
int guard_memory_offset_is(PyObject *tensor, PyObject *other, int64_t bytes);
int guard_tensor_data_is(PyObject *tensor, PyObject *bytes);
#define GUARD_TENSOR_LINES 16
size_t guard_tensor_lines(PyObject *obj, uintptr_t lines[GUARD_TENSOR_LINES]); /* addresses that a check of `obj` reads */
int guard_tensor_add_constants(PyObject *module);
extern PyMethodDef guard_tensor_methods[];

/* sizes.c */
typedef struct Relation Relation;
#define GUARD_REGISTER_WRITTEN 1 /* one of the register states in steps.c: written outside a block */
PyObject *guard_load_size(PyObject *tensor, int64_t dim, int stride);
int guard_relation_parse(Step *step, PyObject *rest, const char *written, Py_ssize_t n_registers);
int guard_relation_holds(const Relation *relation, PyObject *const *registers);

/* torch_parts.c */
int guard_require_torch(void); /* -1 with an exception before init_torch */
PyObject *guard_attribute_path(PyObject *root, const char *path);
extern PyMethodDef guard_torch_methods[];

/* lines.c */
typedef struct GuardLines GuardLines;
void guard_lines_fetch(const GuardLines *lines);
void guard_lines_remember(GuardProgram *program, PyObject *const *registers);
void guard_lines_free(GuardLines *lines);

/* state.c */
int guard_init_state(PyObject *torch);
int64_t *guard_state_parse(PyObject *operands, PyObject **modes);
int guard_state_check(const int64_t *expected, PyObject *modes);
PyObject *guard_state_fields(void);
int guard_hide_modes(void);
void guard_show_modes(int hidden);
extern PyMethodDef guard_state_methods[];

#endif
