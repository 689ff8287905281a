/* The thread's state that determines the meaning of torch's operations: the step "global_state".
 *
 * It is read through functions that libtorch exports, which take a nanosecond or two each. A function that this version of
 * torch does not have is replaced by the Python function of the same meaning. The symbols are mangled names of C++ functions
 * that take and return plain numbers or pointers, so that C can call them without torch's headers.
 */
#include "guards.h"

#include <dlfcn.h>

typedef int8_t (*ByteFunction)(void);
typedef int8_t (*ByteOfDevice)(int8_t);
typedef int64_t (*LengthFunction)(void);
typedef void *(*PointerFunction)(void);
typedef int8_t (*ByteOfObject)(void *);
typedef void (*ByteSetter)(int8_t);
typedef struct {
    char *begin, *end;
} VectorHead;

enum { CPU = 0, CUDA = 1 }; /* c10::DeviceType */

typedef enum { BYTE, DEVICE_BYTE, CONTEXT_BYTE, LENGTH, VECTOR, SHARED_POINTER, MODULE_NUMBER } SymbolKind;

/* A field is an integer that is equal if the state is. If the symbol is missing, `fallback` names the Python function. Some
 * state is a number in a Python module: then `fallback` names the module, `fallback_arg` the number. */
typedef struct {
    const char *name;
    SymbolKind kind;
    int8_t device;
    const char *symbol;
    const char *fallback, *fallback_arg;
} StateField;

static const StateField state_fields[] = {
    {"grad_mode", BYTE, 0, "_ZN3c108GradMode10is_enabledEv", "is_grad_enabled", NULL},
    {"inference_mode", BYTE, 0, "_ZN3c1013InferenceMode10is_enabledEv", "is_inference_mode_enabled", NULL},
    {"autocast_cpu", DEVICE_BYTE, CPU, "_ZN2at8autocast19is_autocast_enabledEN3c1010DeviceTypeE", "is_autocast_enabled", "cpu"},
    {"autocast_cuda", DEVICE_BYTE, CUDA, "_ZN2at8autocast19is_autocast_enabledEN3c1010DeviceTypeE", "is_autocast_enabled", "cuda"},
    {"autocast_cpu_dtype", DEVICE_BYTE, CPU, "_ZN2at8autocast18get_autocast_dtypeEN3c1010DeviceTypeE", "get_autocast_dtype", "cpu"},
    {"autocast_cuda_dtype", DEVICE_BYTE, CUDA, "_ZN2at8autocast18get_autocast_dtypeEN3c1010DeviceTypeE", "get_autocast_dtype", "cuda"},
    {"autocast_cache", BYTE, 0, "_ZN2at8autocast25is_autocast_cache_enabledEv", "is_autocast_cache_enabled", NULL},
    {"default_dtype", BYTE, 0, "_ZN3c1031get_default_dtype_as_scalartypeEv", "get_default_dtype", NULL},
    {"deterministic", CONTEXT_BYTE, 0, "_ZNK2at7Context23deterministicAlgorithmsEv", "are_deterministic_algorithms_enabled", NULL},
    {"deterministic_warn_only", CONTEXT_BYTE, 0, "_ZNK2at7Context31deterministicAlgorithmsWarnOnlyEv", "is_deterministic_algorithms_warn_only_enabled", NULL},
    {"function_disabled", BYTE, 0, "_ZN2at4impl22PythonTorchFunctionTLS18get_disabled_stateEv", "_C._is_torch_function_all_disabled", NULL},
    {"function_modes", LENGTH, 0, "_ZN2at4impl22PythonTorchFunctionTLS9stack_lenEv", "_C._len_torch_function_stack", NULL},
    {"dispatch_modes", LENGTH, 0, "_ZN3c104impl20TorchDispatchModeTLS9stack_lenEv", "_C._len_torch_dispatch_stack", NULL},
    {"forward_ad_level", MODULE_NUMBER, 0, NULL, "autograd.forward_ad", "_current_level"},
    {"jit_tracing", SHARED_POINTER, 0, "_ZN5torch3jit6tracer15getTracingStateEv", "_C._get_tracing_state", NULL},
    {"functorch_levels", VECTOR, 0, "_ZN2at9functorch20getDynamicLayerStackEv", "_C._functorch.maybe_current_level", NULL},
};

#define N_STATE ((int)Py_ARRAY_LENGTH(state_fields))

static struct {
    void *symbols[N_STATE];
    PyObject *fallbacks[N_STATE]; /* owned: the function if the symbol is missing; for MODULE_NUMBER the module's dict */
    PyObject *number_names[N_STATE];
    void *context;                /* at::Context */
    PyObject *function_mode_at;
    ByteSetter set_function_disabled; /* NULL if this version of torch does not have it */
    int stack_length;                 /* the field "function_modes" */
} state;

enum { ENABLED = 0, ALL_DISABLED = 2 }; /* at::impl::TorchFunctionDisabledState */
static _Thread_local int modes_hidden;

static int
field_index(const char *name)
{
    int i = 0;
    while (strcmp(state_fields[i].name, name) != 0) {
        i++;
    }
    return i;
}

/* Reads a field of the kind MODULE_NUMBER. 0, or -1 with an exception. */
static int
module_number(int i, int64_t *value)
{
    PyObject *found = PyObject_GetItem(state.fallbacks[i], state.number_names[i]);
    if (found == NULL) {
        return -1;
    }
    *value = PyLong_AsLongLong(found);
    Py_DECREF(found);
    return PyErr_Occurred() ? -1 : 0;
}

/* Converts a Python value to an integer: a number stays as it is, another object (a dtype) becomes its address, None -1. */
static int
fallback_value(int i, int64_t *value)
{
    PyObject *arg = state_fields[i].fallback_arg == NULL ? NULL : PyUnicode_FromString(state_fields[i].fallback_arg);
    if (arg == NULL && PyErr_Occurred()) {
        return -1;
    }
    PyObject *result = arg == NULL ? PyObject_CallNoArgs(state.fallbacks[i]) : PyObject_CallOneArg(state.fallbacks[i], arg);
    Py_XDECREF(arg);
    if (result == NULL) {
        return -1;
    }
    *value = PyLong_Check(result) ? PyLong_AsLongLong(result) : result == Py_None ? -1 : (int64_t)(intptr_t)result;
    Py_DECREF(result);
    return PyErr_Occurred() ? -1 : 0;
}

static inline int
read_field(int i, int64_t *value)
{
    void *symbol = state.symbols[i];
    if (state_fields[i].kind == MODULE_NUMBER) {
        return module_number(i, value);
    }
    if (symbol == NULL) {
        return fallback_value(i, value);
    }
    if (modes_hidden && i == state.stack_length - 1) { /* "function_disabled", as it is around the guard program */
        *value = ENABLED;
        return 0;
    }
    switch (state_fields[i].kind) {
    case BYTE:
        *value = ((ByteFunction)symbol)();
        return 0;
    case DEVICE_BYTE:
        *value = ((ByteOfDevice)symbol)(state_fields[i].device);
        return 0;
    case CONTEXT_BYTE:
        *value = ((ByteOfObject)symbol)(state.context);
        return 0;
    case LENGTH:
        *value = ((LengthFunction)symbol)();
        return 0;
    case SHARED_POINTER: /* the first word of a std::shared_ptr is the address of its object */
        *value = (int64_t)(intptr_t) * (void **)((PointerFunction)symbol)();
        return 0;
    default: {
        const VectorHead *vector = ((PointerFunction)symbol)();
        *value = vector->end - vector->begin;
        return 0;
    }
    }
}

/* Switches __torch_function__ off while a guard program runs, if torch function modes are on: a read of a tensor's attribute
 * would reach them. Returns whether it has, for guard_show_modes(). */
int
guard_hide_modes(void)
{
    void *length = state.symbols[state.stack_length], *disabled = state.symbols[state.stack_length - 1];
    if (state.set_function_disabled == NULL || length == NULL || disabled == NULL || modes_hidden
        || ((LengthFunction)length)() == 0 || ((ByteFunction)disabled)() != ENABLED) {
        return 0;
    }
    state.set_function_disabled(ALL_DISABLED);
    return modes_hidden = 1;
}

void
guard_show_modes(int hidden)
{
    if (hidden) {
        modes_hidden = 0;
        state.set_function_disabled(ENABLED);
    }
}

static int
is_device_context(PyObject *mode)
{
    return strcmp(Py_TYPE(mode)->tp_name, "DeviceContext") == 0;
}

/* Whether mode `i` of the torch function stack is the expected one: a DeviceContext for the same device, or an object of the
 * expected class. `with Mode()` creates a new object each time; what a trace has read of it has guards of its own. 1, 0, or -1
 * with an exception. */
static int
mode_is(int64_t i, PyObject *expected)
{
    PyObject *mode = PyObject_CallFunction(state.function_mode_at, "L", (long long)i);
    if (mode == NULL) {
        return -1;
    }
    int same = mode == expected || (PyObject *)Py_TYPE(mode) == expected;
    if (!same && Py_TYPE(mode) == Py_TYPE(expected) && is_device_context(mode)) {
        PyObject *a = PyObject_GetAttrString(mode, "device");
        PyObject *b = a == NULL ? NULL : PyObject_GetAttrString(expected, "device");
        same = b == NULL ? -1 : PyObject_RichCompareBool(a, b, Py_EQ);
        Py_XDECREF(a);
        Py_XDECREF(b);
    }
    Py_DECREF(mode);
    return same;
}

int
guard_state_check(const int64_t *expected, PyObject *modes)
{
    for (int i = 0; i < N_STATE; i++) {
        int64_t value;
        if (read_field(i, &value) < 0) {
            return -1;
        }
        if (value != expected[i]) {
            return 0;
        }
    }
    int same = 1;
    for (Py_ssize_t i = 0; same == 1 && i < PyTuple_GET_SIZE(modes); i++) {
        same = mode_is(i, PyTuple_GET_ITEM(modes, i));
    }
    return same;
}

/* Parses the operands, which are the items that current_global_state() returns, in one tuple or separate. `*modes` is a new
 * reference. */
int64_t *
guard_state_parse(PyObject *operands, PyObject **modes)
{
    if (guard_require_torch() < 0) {
        return NULL;
    }
    if (PyTuple_GET_SIZE(operands) == 1 && PyTuple_Check(PyTuple_GET_ITEM(operands, 0))) {
        operands = PyTuple_GET_ITEM(operands, 0);
    }
    if (PyTuple_GET_SIZE(operands) != N_STATE + 1 || !PyTuple_Check(PyTuple_GET_ITEM(operands, N_STATE))) {
        PyErr_SetString(PyExc_ValueError, "global_state step: expected what current_global_state() returns");
        return NULL;
    }
    int64_t *values = PyMem_New(int64_t, N_STATE);
    if (values == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    for (int i = 0; i < N_STATE; i++) {
        values[i] = PyLong_AsLongLong(PyTuple_GET_ITEM(operands, i));
        if (values[i] == -1 && PyErr_Occurred()) {
            PyMem_Free(values);
            return NULL;
        }
    }
    *modes = Py_NewRef(PyTuple_GET_ITEM(operands, N_STATE));
    return values;
}

static PyObject *
current_modes(int64_t n)
{
    PyObject *modes = PyTuple_New((Py_ssize_t)n);
    for (Py_ssize_t i = 0; modes != NULL && i < n; i++) {
        PyObject *mode = PyObject_CallFunction(state.function_mode_at, "n", i);
        if (mode == NULL) {
            Py_CLEAR(modes);
            break;
        }
        if (!is_device_context(mode)) {
            Py_SETREF(mode, Py_NewRef(Py_TYPE(mode)));
        }
        PyTuple_SET_ITEM(modes, i, mode);
    }
    return modes;
}

static PyObject *
current_global_state(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(arg))
{
    if (guard_require_torch() < 0) {
        return NULL;
    }
    PyObject *result = PyTuple_New(N_STATE + 1);
    for (int i = 0; result != NULL && i < N_STATE; i++) {
        int64_t value;
        PyObject *number = read_field(i, &value) < 0 ? NULL : PyLong_FromLongLong(value);
        if (number == NULL) {
            Py_CLEAR(result);
            break;
        }
        PyTuple_SET_ITEM(result, i, number);
    }
    if (result != NULL) {
        int64_t n = PyLong_AsLongLong(PyTuple_GET_ITEM(result, field_index("function_modes")));
        PyObject *modes = current_modes(n);
        if (modes == NULL) {
            Py_CLEAR(result);
        }
        else {
            PyTuple_SET_ITEM(result, N_STATE, modes);
        }
    }
    return result;
}

/* Finds a library that is already loaded, by its name; the handle stays open. NULL if it is not loaded. */
static void *
loaded_library(const char *stem)
{
    static const char *const patterns[] = {"%s.so", "%s.dylib"};
    for (size_t i = 0; i < Py_ARRAY_LENGTH(patterns); i++) {
        char name[64];
        PyOS_snprintf(name, sizeof(name), patterns[i], stem);
        void *handle = dlopen(name, RTLD_LAZY | RTLD_NOLOAD);
        if (handle != NULL) {
            return handle;
        }
    }
    return NULL;
}

int
guard_init_state(PyObject *module)
{
    void *libraries[] = {loaded_library("libc10"), loaded_library("libtorch_cpu")};
    void *context_function = libraries[1] == NULL ? NULL : dlsym(libraries[1], "_ZN2at13globalContextEv");
    if (context_function != NULL) {
        state.context = ((PointerFunction)context_function)();
    }
    state.stack_length = field_index("function_modes");
    if (libraries[1] != NULL) {
        state.set_function_disabled = (ByteSetter)dlsym(
            libraries[1], "_ZN2at4impl22PythonTorchFunctionTLS18set_disabled_stateENS0_26TorchFunctionDisabledStateE");
    }
    for (int i = 0; i < N_STATE; i++) {
        void *symbol = NULL;
        if (state_fields[i].kind == MODULE_NUMBER) {
            PyObject *holder = guard_attribute_path(module, state_fields[i].fallback);
            if (holder == NULL) {
                return -1;
            }
            Py_XSETREF(state.fallbacks[i], PyObject_GenericGetDict(holder, NULL));
            Py_DECREF(holder);
            Py_XSETREF(state.number_names[i], PyUnicode_InternFromString(state_fields[i].fallback_arg));
            if (state.fallbacks[i] == NULL || state.number_names[i] == NULL) {
                return -1;
            }
            continue;
        }
        for (size_t l = 0; symbol == NULL && l < Py_ARRAY_LENGTH(libraries); l++) {
            symbol = libraries[l] == NULL ? NULL : dlsym(libraries[l], state_fields[i].symbol);
        }
        if (symbol != NULL && (state_fields[i].kind != CONTEXT_BYTE || state.context != NULL)) {
            state.symbols[i] = symbol;
            continue;
        }
        PyObject *fallback = guard_attribute_path(module, state_fields[i].fallback);
        if (fallback == NULL) {
            return -1;
        }
        Py_XSETREF(state.fallbacks[i], fallback);
    }
    Py_XSETREF(state.function_mode_at, guard_attribute_path(module, "_C._get_function_stack_at"));
    return state.function_mode_at == NULL ? -1 : 0;
}

static PyObject *
hide_modes(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(arg))
{
    return guard_require_torch() < 0 ? NULL : PyBool_FromLong(guard_hide_modes());
}

static PyObject *
show_modes(PyObject *Py_UNUSED(module), PyObject *hidden)
{
    guard_show_modes(hidden == Py_True);
    Py_RETURN_NONE;
}

PyMethodDef guard_state_methods[] = {
    {"hide_modes", hide_modes, METH_NOARGS,
     "hide_modes() -> whether __torch_function__ is now switched off in this thread, since function modes are on; the step\n"
     "\"global_state\" does not see that it is"},
    {"show_modes", show_modes, METH_O, "show_modes(hidden): ends what hide_modes() has begun"},
    {"current_global_state", current_global_state, METH_NOARGS,
     "current_global_state() -> operands of the step \"global_state\", in the order of GLOBAL_STATE_FIELDS"},
    {NULL, NULL, 0, NULL},
};

PyObject *
guard_state_fields(void)
{
    PyObject *fields = PyTuple_New(N_STATE + 1);
    for (int i = 0; fields != NULL && i <= N_STATE; i++) {
        PyObject *name = PyUnicode_FromString(i < N_STATE ? state_fields[i].name : "function_mode_stack");
        if (name == NULL) {
            Py_CLEAR(fields);
            break;
        }
        PyTuple_SET_ITEM(fields, i, name);
    }
    return fields;
}
