/* The extension module `dynamo_lite._guards`: the type GuardProgram, and the capsule through which `_eval_frame` runs programs.
 *
 * Steps are parsed in steps.c and run in eval.c. The checks are in values.c, dicts.c, sizes.c, set_members.c and set_tables.c;
 * access to torch is in tensor.c, state.c and torch_parts.c.
 */
#include "guards.h"

#include <structmember.h>

PyObject *guard_missing;

static PyObject *
program_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"steps", "n_inputs", "n_registers", NULL};
    PyObject *steps;
    Py_ssize_t n_inputs, n_registers;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "Onn:GuardProgram", names, &steps, &n_inputs, &n_registers)) {
        return NULL;
    }
    if (n_inputs < 0 || n_registers < 0 || n_registers > INT32_MAX || n_inputs > INT32_MAX) {
        PyErr_SetString(PyExc_ValueError, "guard program: n_inputs and n_registers must be small and not negative");
        return NULL;
    }
    if (dict_watcher_take() < 0) {
        return NULL;
    }
    GuardProgram *self = (GuardProgram *)type->tp_alloc(type, 0);
    if (self == NULL) {
        return NULL;
    }
    self->n_inputs = n_inputs;
    self->n_registers = n_registers;
    self->steps = PySequence_Tuple(steps);
    if (self->steps == NULL || guard_parse_steps(self, self->steps) < 0) {
        Py_DECREF(self);
        return NULL;
    }
    return (PyObject *)self;
}

static int
program_traverse(GuardProgram *self, visitproc visit, void *arg)
{
    Py_VISIT(self->steps);
    return guard_traverse_steps(self, visit, arg);
}

static int
program_clear(GuardProgram *self)
{
    guard_free_steps(self);
    Py_CLEAR(self->steps);
    return 0;
}

static void
program_dealloc(GuardProgram *self)
{
    PyObject_GC_UnTrack(self);
    program_clear(self);
    PyMem_Free(self->collected);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

static PyObject *
program_repr(GuardProgram *self)
{
    return PyUnicode_FromFormat("<GuardProgram of %zd steps, %zd inputs>", self->n_steps, self->n_inputs);
}

static PyObject *
program_check(GuardProgram *self, PyObject *const *args, Py_ssize_t nargs)
{
    if (nargs != 4) {
        PyErr_Format(PyExc_TypeError, "check() takes 4 arguments (%zd given)", nargs);
        return NULL;
    }
    if (!PyTuple_Check(args[0]) || !(args[1] == Py_None || PyTuple_Check(args[1])) || !PyDict_Check(args[2])
        || !PyDict_Check(args[3])) {
        PyErr_SetString(PyExc_TypeError, "check() takes a tuple of arguments, a closure or None, and two dicts");
        return NULL;
    }
    GuardFrame frame = {
        .args = &PyTuple_GET_ITEM(args[0], 0),
        .nargs = PyTuple_GET_SIZE(args[0]),
        .closure = args[1] == Py_None ? NULL : args[1],
        .globals = args[2],
        .builtins = args[3],
    };
    PyObject *inputs;
    Py_ssize_t failed_step;
    int ok = guard_check((PyObject *)self, &frame, &inputs, &failed_step);
    if (ok < 0) {
        return NULL;
    }
    return ok ? Py_BuildValue("(ON)", Py_True, inputs) : Py_BuildValue("(On)", Py_False, failed_step);
}

static PyMethodDef program_methods[] = {
    {"check", (PyCFunction)(void (*)(void))program_check, METH_FASTCALL,
     "check(args, closure, globals, builtins) -> (True, inputs) or (False, index of the step that failed)"},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef program_members[] = {
    {"steps", T_OBJECT, offsetof(GuardProgram, steps), READONLY, "the steps the program was made from"},
    {"n_inputs", T_PYSSIZET, offsetof(GuardProgram, n_inputs), READONLY, NULL},
    {"n_registers", T_PYSSIZET, offsetof(GuardProgram, n_registers), READONLY, NULL},
    {"evaluations", T_ULONGLONG, offsetof(GuardProgram, evaluations), READONLY, "how often the program ran"},
    {"failures", T_ULONGLONG, offsetof(GuardProgram, failures), READONLY, "how often a step did not hold"},
    {NULL, 0, 0, 0, NULL},
};

PyTypeObject GuardProgram_Type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "dynamo_lite._guards.GuardProgram",
    .tp_basicsize = sizeof(GuardProgram),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_doc = "GuardProgram(steps, n_inputs, n_registers): guards compiled to a straight line of steps that C runs",
    .tp_new = program_new,
    .tp_dealloc = (destructor)program_dealloc,
    .tp_traverse = (traverseproc)program_traverse,
    .tp_clear = (inquiry)program_clear,
    .tp_repr = (reprfunc)program_repr,
    .tp_methods = program_methods,
    .tp_members = program_members,
};

static PyObject *
const_equal(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t nargs)
{
    if (nargs != 2) {
        PyErr_SetString(PyExc_TypeError, "const_equal() takes 2 arguments");
        return NULL;
    }
    int equal = guard_const_equal(args[0], args[1]);
    return equal < 0 ? NULL : PyBool_FromLong(equal);
}

static PyObject *
generic_access(PyObject *Py_UNUSED(module), PyObject *cls)
{
    if (!PyType_Check(cls)) {
        PyErr_SetString(PyExc_TypeError, "generic_access() takes a class");
        return NULL;
    }
    PyTypeObject *type = (PyTypeObject *)cls;
    return Py_BuildValue("(NN)", PyBool_FromLong(type->tp_getattro == PyObject_GenericGetAttr),
                         PyBool_FromLong(type->tp_setattro == PyObject_GenericSetAttr));
}

static PyObject *
dict_states(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(ignored))
{
    return PyUnicode_FromString(dict_watcher_is_given_back() ? "given back" : dict_states_come_from());
}

static PyMethodDef module_methods[] = {
    {"dict_states", dict_states, METH_NOARGS,
     "dict_states() -> how it is known that a dict has not changed: \"version\", \"watcher\", "
     "\"given back\" once the process ends, or \"\" while it is not"},
    {"generic_access", generic_access, METH_O,
     "generic_access(cls) -> (whether C reads attributes of its instances as object does, whether it sets them so)"},
    {"const_equal", (PyCFunction)(void (*)(void))const_equal, METH_FASTCALL,
     "const_equal(a, b): the comparison of the step \"const\": same exact type and value, also inside tuples"},
    {"clone_table", (PyCFunction)(void (*)(void))set_clone_table, METH_FASTCALL,
     "clone_table(source[, members]): a new set or frozenset with the table of another"},
    {"copy_table", (PyCFunction)(void (*)(void))set_copy_table, METH_FASTCALL,
     "copy_table(target, source[, members]): gives a set the table of another"},
    {"same_table", (PyCFunction)(void (*)(void))set_same_table, METH_FASTCALL,
     "same_table(a, b): the comparison of the step \"set_table\""},
    {NULL, NULL, 0, NULL},
};

static PyObject *
missing_repr(PyObject *Py_UNUSED(self))
{
    return PyUnicode_FromString("MISSING");
}

static PyTypeObject Missing_Type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "dynamo_lite._guards.MissingType",
    .tp_basicsize = sizeof(PyObject),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_doc = "the type of MISSING",
    .tp_repr = missing_repr,
};

static GuardsAPI api = {GUARDS_API_VERSION, &GuardProgram_Type, guard_check};

static int
add(PyObject *module, const char *name, PyObject *value)
{
    int status = value == NULL ? -1 : PyModule_AddObjectRef(module, name, value);
    Py_XDECREF(value);
    return status;
}

static int
module_exec(PyObject *module)
{
    if (PyInterpreterState_Get() != PyInterpreterState_Main()) {
        PyErr_SetString(PyExc_ImportError, "dynamo_lite can't be used in a subinterpreter");
        return -1;
    }
    if (PyType_Ready(&GuardProgram_Type) < 0 || PyType_Ready(&Missing_Type) < 0) {
        return -1;
    }
    if (guard_missing == NULL) {
        guard_missing = _PyObject_New(&Missing_Type);
    }
    if (guard_missing == NULL || PyModule_AddFunctions(module, guard_tensor_methods) < 0
        || PyModule_AddFunctions(module, guard_torch_methods) < 0
        || PyModule_AddFunctions(module, guard_state_methods) < 0 || guard_tensor_add_constants(module) < 0
        || add(module, "GLOBAL_STATE_FIELDS", guard_state_fields()) < 0
        || PyModule_AddObjectRef(module, "MISSING", guard_missing) < 0
        || PyModule_AddObjectRef(module, "GuardProgram", (PyObject *)&GuardProgram_Type) < 0
        || add(module, "OPS", guard_op_names()) < 0
        || add(module, "_C_API", PyCapsule_New(&api, GUARDS_CAPSULE, NULL)) < 0) {
        return -1;
    }
    return 0;
}

static PyModuleDef_Slot module_slots[] = {
    {Py_mod_exec, module_exec},
    {0, NULL},
};

static struct PyModuleDef module_def = {
    PyModuleDef_HEAD_INIT,
    .m_name = "dynamo_lite._guards",
    .m_doc = "The interpreter of guard programs.",
    .m_size = 0,
    .m_methods = module_methods,
    .m_slots = module_slots,
};

PyMODINIT_FUNC
PyInit__guards(void)
{
    return PyModuleDef_Init(&module_def);
}
