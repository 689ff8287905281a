/* Calls of generated kernels: loads shared libraries, and calls their functions with the data pointers of tensors.
 *
 * A generated function is `void f(void **pointers, const int64_t *sizes)`. An Entry is a Python callable for one such
 * function. Called with tensors followed by integers, it reads each tensor's data pointer through torch's DLPack
 * exchange API (or, where that fails, by calling the tensor's data_ptr), allocates the tensors that the function writes
 * and that are not passed in, calls the function, without the GIL if its work is large, and returns the new tensors.
 *
 * Tensors are allocated by libtorch_cpu's C interface (aoti_torch_empty_strided) and wrapped by libtorch_python, which
 * together take a third of the time of torch.empty_strided. If a torch lacks these symbols, `can_allocate` returns
 * False, and the wrapper allocates in Python.
 *
 * Invariant: a library stays loaded as long as the process lives, because its code may be running, or OpenMP's threads
 * may be waiting in it.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <dlfcn.h>
#include <stdint.h>
#include <structmember.h>

#include "../../dynamo_lite/csrc/dlpack.h"
#include "../../dynamo_lite/csrc/profile.h"
#include "kept_memory.h"
#include "kept_memory_methods.h"

#define MAX_ON_STACK 64

typedef void (*kernel_fn)(void **pointers, const int64_t *sizes);

/* The layout of a tensor that an entry allocates. */
typedef struct {
    int64_t *sizes; /* ndim sizes, followed by ndim strides */
    int64_t ndim;
    int32_t dtype;
} Layout;

typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    PyObject *dict;
    kernel_fn fn;
    PyObject *name;
    PyObject *label; /* the call's name in torch's profiler */
    Py_ssize_t n_tensors;
    Py_ssize_t n_sizes;
    Py_ssize_t n_new;
    Py_ssize_t n_kept; /* number of the new ones that are returned; they come first */
    Layout *layouts;
    PyObject *faults; /* a tuple of (exception type, message), or NULL if the function reports none */
    int release_gil;
    char is_brief;
    char makes_large; /* whether it allocates some tensor that is a large block */
} Entry;

static const DLPackExchangeAPI *exchange;
static PyObject *str_data_ptr;

/* libtorch_cpu's C interface; a handle is the address of an at::Tensor. */
typedef void *TensorHandle;
static int32_t (*empty_strided)(int64_t ndim, const int64_t *sizes, const int64_t *strides, int32_t dtype,
                                int32_t device_type, int32_t device_index, TensorHandle *result);
static int32_t (*delete_tensor)(TensorHandle tensor);
static int32_t (*get_data_ptr)(TensorHandle tensor, void **result);
/* PyObject *THPVariable_Wrap(const at::TensorBase &), by its mangled name */
static PyObject *(*wrap_tensor)(const void *tensor);
#define WRAP_TENSOR "_Z16THPVariable_WrapRKN2at10TensorBaseE"

/* ---------------------------------------------------------------- pointers */
static int
data_pointer(PyObject *tensor, void **out)
{
    DLTensor view;
    if (exchange != NULL) {
        if (exchange->dltensor_from_py_object_no_sync(tensor, &view) == 0) {
            *out = (char *)view.data + view.byte_offset;
            return 0;
        }
        /* DLPack has no code for the dtype, or it is a tensor subclass: the tensor itself is asked. */
        PyErr_Clear();
    }
    PyObject *number = PyObject_CallMethodNoArgs(tensor, str_data_ptr);
    if (number == NULL) {
        return -1;
    }
    *out = PyLong_AsVoidPtr(number);
    Py_DECREF(number);
    return *out == NULL && PyErr_Occurred() ? -1 : 0;
}

/* ---------------------------------------------------------------- new tensors */
static PyObject *
new_tensor(const Layout *layout, void **pointer)
{
    TensorHandle handle;
    PyObject *result = NULL;
    if (empty_strided(layout->ndim, layout->sizes, layout->sizes + layout->ndim, layout->dtype, 0, 0, &handle) != 0) {
        return PyErr_NoMemory();
    }
    if (get_data_ptr(handle, pointer) == 0) {
        result = wrap_tensor(handle);
    } else {
        PyErr_SetString(PyExc_RuntimeError, "a new tensor has no data pointer");
    }
    delete_tensor(handle);
    return result;
}

/* ---------------------------------------------------------------- Entry */
/* A function's report of an index out of bounds: the number of the fault, the index, whether the two are set. */
#define FAULT_WORDS 3

static void
raise_fault(PyObject *faults, const int64_t *fault)
{
    PyObject *pair = fault[0] > 0 && fault[0] <= PyTuple_GET_SIZE(faults) ? PyTuple_GET_ITEM(faults, fault[0] - 1) : NULL;
    if (pair == NULL || !PyTuple_Check(pair) || PyTuple_GET_SIZE(pair) != 2) {
        PyErr_Format(PyExc_SystemError, "a kernel reports the unknown fault %lld", (long long)fault[0]);
        return;
    }
    PyObject *message = PyObject_CallMethod(PyTuple_GET_ITEM(pair, 1), "format", "L", (long long)fault[1]);
    if (message != NULL) {
        PyErr_SetObject(PyTuple_GET_ITEM(pair, 0), message);
        Py_DECREF(message);
    }
}

static PyObject *
entry_call(PyObject *self, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    Entry *entry = (Entry *)self;
    Py_ssize_t n = PyVectorcall_NARGS(nargsf), total = entry->n_tensors + entry->n_sizes;
    Py_ssize_t n_pointers = entry->n_tensors + entry->n_new;
    if (n != total || (kwnames != NULL && PyTuple_GET_SIZE(kwnames) != 0)) {
        return PyErr_Format(PyExc_TypeError, "%U takes %zd tensors and %zd integers, not %zd arguments", entry->name,
                            entry->n_tensors, entry->n_sizes, n);
    }
    void *few_pointers[MAX_ON_STACK];
    int64_t few_sizes[MAX_ON_STACK];
    void **pointers = few_pointers;
    int64_t *sizes = few_sizes;
    int64_t fault[FAULT_WORDS] = {0};
    PyObject *result = NULL;
    if (n_pointers + 1 > MAX_ON_STACK) {
        pointers = PyMem_Malloc((size_t)(n_pointers + 1) * sizeof(void *));
    }
    if (entry->n_sizes > MAX_ON_STACK) {
        sizes = PyMem_Malloc((size_t)entry->n_sizes * sizeof(int64_t));
    }
    if (pointers == NULL || sizes == NULL) {
        PyErr_NoMemory();
        goto done;
    }
    for (Py_ssize_t i = 0; i < entry->n_tensors; i++) {
        if (data_pointer(args[i], &pointers[i]) < 0) {
            goto done;
        }
    }
    for (Py_ssize_t i = 0; i < entry->n_sizes; i++) {
        sizes[i] = PyLong_AsLongLong(args[entry->n_tensors + i]);
        if (sizes[i] == -1 && PyErr_Occurred()) {
            goto done;
        }
    }
    if (entry->makes_large) {
        use_kept_memory();
    }
    if (entry->n_new == 0) {
        result = Py_NewRef(Py_None);
    } else {
        result = PyTuple_New(entry->n_new);
        for (Py_ssize_t i = 0; result != NULL && i < entry->n_new; i++) {
            PyObject *tensor = new_tensor(&entry->layouts[i], &pointers[entry->n_tensors + i]);
            if (tensor == NULL) {
                Py_CLEAR(result);
                break;
            }
            PyTuple_SET_ITEM(result, i, tensor);
        }
        if (result == NULL) {
            goto done;
        }
    }
    pointers[n_pointers] = fault;
    PyObject *region = profiler_is_on() ? begin_region(Py_NewRef(entry->label)) : NULL;
    if (entry->release_gil) {
        /* The caller's references keep the tensors alive while the GIL is released. */
        Py_BEGIN_ALLOW_THREADS
        entry->fn(pointers, sizes);
        Py_END_ALLOW_THREADS
    } else {
        entry->fn(pointers, sizes);
    }
    end_region(region);
    if (fault[0] != 0 && entry->faults != NULL) {
        Py_CLEAR(result);
        raise_fault(entry->faults, fault);
        goto done;
    }
    if (entry->n_kept < entry->n_new) {
        PyObject *kept = entry->n_kept == 0 ? Py_NewRef(Py_None) : PyTuple_GetSlice(result, 0, entry->n_kept);
        Py_SETREF(result, kept);
    }
done:
    if (pointers != few_pointers) {
        PyMem_Free(pointers);
    }
    if (sizes != few_sizes) {
        PyMem_Free(sizes);
    }
    return result;
}

static void
entry_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    Entry *entry = (Entry *)self;
    PyObject_GC_UnTrack(self);
    Py_XDECREF(entry->name);
    Py_XDECREF(entry->label);
    Py_XDECREF(entry->dict);
    Py_XDECREF(entry->faults);
    for (Py_ssize_t i = 0; i < entry->n_new; i++) {
        PyMem_Free(entry->layouts[i].sizes);
    }
    PyMem_Free(entry->layouts);
    type->tp_free(self);
    Py_DECREF(type);
}

static int
entry_traverse(PyObject *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(((Entry *)self)->dict);
    return 0;
}

static int
entry_clear(PyObject *self)
{
    Py_CLEAR(((Entry *)self)->dict);
    return 0;
}

static PyObject *
entry_repr(PyObject *self)
{
    Entry *entry = (Entry *)self;
    return PyUnicode_FromFormat("<kernel entry %U: %zd tensors, %zd integers>", entry->name, entry->n_tensors,
                                entry->n_sizes);
}

static PyMemberDef entry_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(Entry, vectorcall), READONLY, NULL},
    {"__dictoffset__", T_PYSSIZET, offsetof(Entry, dict), READONLY, NULL},
    {"is_brief", T_BOOL, offsetof(Entry, is_brief), READONLY, "whether it keeps the GIL"},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot entry_slots[] = {
    {Py_tp_dealloc, entry_dealloc},
    {Py_tp_traverse, entry_traverse},
    {Py_tp_clear, entry_clear},
    {Py_tp_getattro, PyObject_GenericGetAttr},
    {Py_tp_setattro, PyObject_GenericSetAttr},
    {Py_tp_repr, entry_repr},
    {Py_tp_call, PyVectorcall_Call},
    {Py_tp_members, entry_members},
    {0, NULL},
};

static PyType_Spec entry_spec = {
    .name = "dynamo_lite.backends.inductor._runtime.Entry",
    .basicsize = sizeof(Entry),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = entry_slots,
};

static PyTypeObject *entry_type;

/* ---------------------------------------------------------------- module */
/* `Pause` of codegen/cpp/threads.h: the time for which loops of all libraries use no other threads. */
static int64_t pause_of_loops[8];

static PyObject *
load_library(PyObject *module, PyObject *path_object)
{
    (void)module;
    PyObject *path;
    if (!PyUnicode_FSConverter(path_object, &path)) {
        return NULL;
    }
    void *handle = dlopen(PyBytes_AS_STRING(path), RTLD_NOW | RTLD_LOCAL);
    Py_DECREF(path);
    if (handle == NULL) {
        return PyErr_Format(PyExc_OSError, "%s", dlerror());
    }
    void **pause = dlsym(handle, "dynamo_lite_pause");
    if (pause != NULL) {
        *pause = pause_of_loops;
    }
    return PyLong_FromVoidPtr(handle);
}

static int
can_allocate_now(void)
{
    void *cpu = dlopen("libtorch_cpu.so", RTLD_LAZY | RTLD_NOLOAD);
    void *python = dlopen("libtorch_python.so", RTLD_LAZY | RTLD_NOLOAD);
    if (cpu == NULL || python == NULL) {
        return 0;
    }
    *(void **)&empty_strided = dlsym(cpu, "aoti_torch_empty_strided");
    *(void **)&delete_tensor = dlsym(cpu, "aoti_torch_delete_tensor_object");
    *(void **)&get_data_ptr = dlsym(cpu, "aoti_torch_get_data_ptr");
    void *wrap = dlsym(python, WRAP_TENSOR);
    if (empty_strided == NULL || delete_tensor == NULL || get_data_ptr == NULL || wrap == NULL) {
        return 0;
    }
    *(void **)&wrap_tensor = wrap;
    return 1;
}

/* Whether a tensor of this layout is a large block; exact for elements of 1 byte (dtype 0) and of 4 bytes. */
static int
is_large(const Layout *layout)
{
    int64_t extent = 1;
    for (int64_t k = 0; k < layout->ndim; k++) {
        if (layout->sizes[k] == 0) {
            return 0;
        }
        extent += (layout->sizes[k] - 1) * layout->sizes[layout->ndim + k];
    }
    return extent >= LARGE_BLOCK / (layout->dtype == 0 ? 1 : 4);
}

/* layouts: a tuple of (sizes, strides, dtype code) */
static int
set_layouts(Entry *entry, PyObject *layouts)
{
    Py_ssize_t n = PyTuple_GET_SIZE(layouts);
    entry->layouts = PyMem_Calloc((size_t)(n ? n : 1), sizeof(Layout));
    if (entry->layouts == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *parts[2];
        int dtype;
        if (!PyArg_ParseTuple(PyTuple_GET_ITEM(layouts, i), "O!O!i:layout", &PyTuple_Type, &parts[0], &PyTuple_Type,
                              &parts[1], &dtype)) {
            return -1;
        }
        Py_ssize_t ndim = PyTuple_GET_SIZE(parts[0]);
        if (PyTuple_GET_SIZE(parts[1]) != ndim) {
            PyErr_SetString(PyExc_ValueError, "a stride for each size");
            return -1;
        }
        Layout *layout = &entry->layouts[i];
        layout->sizes = PyMem_Malloc((size_t)(ndim ? 2 * ndim : 1) * sizeof(int64_t));
        if (layout->sizes == NULL) {
            PyErr_NoMemory();
            return -1;
        }
        entry->n_new = i + 1;
        layout->ndim = ndim;
        layout->dtype = dtype;
        for (Py_ssize_t k = 0; k < 2 * ndim; k++) {
            layout->sizes[k] = PyLong_AsLongLong(PyTuple_GET_ITEM(parts[k / ndim], k % ndim));
            if (layout->sizes[k] == -1 && PyErr_Occurred()) {
                return -1;
            }
        }
        entry->makes_large |= is_large(layout);
    }
    return 0;
}

static PyObject *
make_entry(PyObject *module, PyObject *args)
{
    PyObject *handle_object, *name, *layouts, *faults = NULL, *label = NULL;
    Py_ssize_t n_tensors, n_sizes;
    Py_ssize_t n_kept = -1;
    int release_gil;
    (void)module;
    if (!PyArg_ParseTuple(args, "OUnnO!p|nO!U:entry", &handle_object, &name, &n_tensors, &n_sizes, &PyTuple_Type,
                          &layouts, &release_gil, &n_kept, &PyTuple_Type, &faults, &label)) {
        return NULL;
    }
    if (PyTuple_GET_SIZE(layouts) != 0 && wrap_tensor == NULL && !can_allocate_now()) {
        return PyErr_Format(PyExc_RuntimeError, "this torch does not let tensors be made from C");
    }
    void *handle = PyLong_AsVoidPtr(handle_object);
    if (handle == NULL) {
        return PyErr_Occurred() ? NULL : PyErr_Format(PyExc_ValueError, "no library");
    }
    const char *symbol = PyUnicode_AsUTF8(name);
    if (symbol == NULL) {
        return NULL;
    }
    void *address = dlsym(handle, symbol);
    if (address == NULL) {
        return PyErr_Format(PyExc_OSError, "%s", dlerror());
    }
    Entry *entry = (Entry *)entry_type->tp_alloc(entry_type, 0);
    if (entry == NULL) {
        return NULL;
    }
    entry->vectorcall = entry_call;
    *(void **)&entry->fn = address;
    entry->name = Py_NewRef(name);
    entry->label = Py_NewRef(label == NULL ? name : label);
    entry->n_tensors = n_tensors;
    entry->n_sizes = n_sizes;
    entry->release_gil = release_gil;
    entry->is_brief = !release_gil;
    entry->faults = faults != NULL && PyTuple_GET_SIZE(faults) != 0 ? Py_NewRef(faults) : NULL;
    if (set_layouts(entry, layouts) < 0) {
        Py_DECREF(entry);
        return NULL;
    }
    /* The wrapper allocates tensors of symbolic sizes; so some of them may be large. */
    entry->makes_large |= n_sizes > 0 && release_gil;
    entry->n_kept = n_kept < 0 || n_kept > entry->n_new ? entry->n_new : n_kept;
    return (PyObject *)entry;
}

static PyObject *
can_allocate(PyObject *module, PyObject *ignored)
{
    (void)module;
    (void)ignored;
    return PyBool_FromLong(wrap_tensor != NULL || can_allocate_now());
}

static PyObject *
use_tensor_type(PyObject *module, PyObject *type)
{
    (void)module;
    PyObject *capsule = PyObject_GetAttrString(type, "__dlpack_c_exchange_api__");
    if (capsule == NULL) {
        /* This torch is older than the API: pointers then come from data_ptr(). */
        PyErr_Clear();
        Py_RETURN_FALSE;
    }
    const DLPackExchangeAPI *api = PyCapsule_GetPointer(capsule, DLPACK_EXCHANGE_CAPSULE);
    Py_DECREF(capsule);
    if (api == NULL) {
        return NULL;
    }
    if (api->header.major != DLPACK_MAJOR || api->dltensor_from_py_object_no_sync == NULL) {
        Py_RETURN_FALSE;
    }
    exchange = api;
    Py_RETURN_TRUE;
}

static PyObject *
data_pointer_of(PyObject *module, PyObject *tensor)
{
    (void)module;
    void *pointer;
    if (data_pointer(tensor, &pointer) < 0) {
        return NULL;
    }
    return PyLong_FromVoidPtr(pointer);
}

/* data_pointers(tensors, indices): the addresses of the elements with these indices of a tuple or list, 8 bytes each */
static PyObject *
data_pointers(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
{
    (void)module;
    if (nargs != 2 || !PyTuple_Check(args[1]) || !(PyTuple_Check(args[0]) || PyList_Check(args[0]))) {
        return PyErr_Format(PyExc_TypeError, "data_pointers(tensors, tuple of indices)");
    }
    Py_ssize_t n = PyTuple_GET_SIZE(args[1]);
    PyObject *result = PyBytes_FromStringAndSize(NULL, n * (Py_ssize_t)sizeof(void *));
    for (Py_ssize_t i = 0; result != NULL && i < n; i++) {
        Py_ssize_t at = PyLong_AsSsize_t(PyTuple_GET_ITEM(args[1], i));
        void *pointer = NULL;
        PyObject *tensor = at == -1 && PyErr_Occurred() ? NULL : PySequence_GetItem(args[0], at);
        if (tensor == NULL || data_pointer(tensor, &pointer) < 0) {
            Py_CLEAR(result);
        } else {
            memcpy(PyBytes_AS_STRING(result) + i * (Py_ssize_t)sizeof(void *), &pointer, sizeof(void *));
        }
        Py_XDECREF(tensor);
    }
    return result;
}

/* has_strides(tensor, strides): whether the strides agree wherever a dimension has more than one element */
static PyObject *
has_strides(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
{
    (void)module;
    if (nargs != 2 || !PyTuple_Check(args[1])) {
        return PyErr_Format(PyExc_TypeError, "has_strides(tensor, tuple of strides)");
    }
    DLTensor view;
    if (exchange == NULL || exchange->dltensor_from_py_object_no_sync(args[0], &view) != 0) {
        PyErr_Clear();
        PyObject *strides = PyObject_CallMethod(args[0], "stride", NULL);
        PyObject *result = strides == NULL ? NULL : PyObject_RichCompare(strides, args[1], Py_EQ);
        Py_XDECREF(strides);
        return result;
    }
    if (view.ndim != PyTuple_GET_SIZE(args[1])) {
        Py_RETURN_FALSE;
    }
    int empty = 0, equal = 1;
    for (int32_t i = 0; i < view.ndim; i++) {
        int64_t stride = PyLong_AsLongLong(PyTuple_GET_ITEM(args[1], i));
        if (stride == -1 && PyErr_Occurred()) {
            return NULL;
        }
        empty |= view.shape[i] == 0;
        equal &= view.shape[i] == 1 || stride == view.strides[i];
    }
    return PyBool_FromLong(equal || empty);
}

static PyMethodDef methods[] = {
    {"load", load_library, METH_O, "load(path) -> int\n\nLoads a shared library for good; its handle."},
    {"entry", make_entry, METH_VARARGS,
     "entry(library, symbol, n_tensors, n_sizes, layouts, release_gil, n_kept=-1, faults=(), label=symbol) -> Entry\n\n"
     "A layout is (sizes, strides, dtype code) of a tensor to make; their pointers follow those of the arguments. The "
     "first `n_kept` are returned, all if that is negative. The pointer after all others is to three integers, in which the "
     "function may report fault k: it is raised as the k-th pair (exception type, message) of `faults`."},
    {"has_strides", (PyCFunction)(void (*)(void))has_strides, METH_FASTCALL,
     "has_strides(tensor, strides) -> bool\n\nWhether the strides are those, wherever they matter."},
    {"can_allocate", can_allocate, METH_NOARGS, "can_allocate() -> bool\n\nWhether entries can make tensors."},
    {"use_tensor_type", use_tensor_type, METH_O,
     "use_tensor_type(torch.Tensor) -> bool\n\nReads pointers through that type's DLPack exchange API from now on, "
     "if it has one."},
    {"use_profiler", use_profiler, METH_VARARGS, USE_PROFILER_DOC},
    {"data_pointers", (PyCFunction)(void (*)(void))data_pointers, METH_FASTCALL,
     "data_pointers(tensors, indices) -> bytes\n\nThe addresses of tensors, 8 bytes each."},
    {"data_pointer", data_pointer_of, METH_O,
     "data_pointer(tensor) -> int\n\nThe address that a kernel would be given."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module_def = {
    PyModuleDef_HEAD_INIT,
    .m_name = "dynamo_lite.backends.inductor._runtime",
    .m_doc = "Calls of generated kernels.",
    .m_size = -1,
    .m_methods = methods,
};

PyMODINIT_FUNC
PyInit__runtime(void)
{
    PyObject *module = PyModule_Create(&module_def);
    if (module == NULL) {
        return NULL;
    }
    str_data_ptr = PyUnicode_InternFromString("data_ptr");
    entry_type = (PyTypeObject *)PyType_FromSpec(&entry_spec);
    if (str_data_ptr == NULL || entry_type == NULL || PyModule_AddFunctions(module, kept_memory_methods) < 0 ||
        PyModule_AddObjectRef(module, "Entry", (PyObject *)entry_type) < 0) {
        Py_DECREF(module);
        return NULL;
    }
    return module;
}
