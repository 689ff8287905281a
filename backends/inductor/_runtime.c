/* Calls of generated kernels: loads a shared library, and calls its functions with the data pointers of tensors.
 *
 * A generated function is `void f(void **pointers, const int64_t *sizes)`. An Entry is a Python callable for one of
 * them: called with its tensors and then its integers, it reads each tensor's data pointer through the DLPack exchange
 * API of torch (or, where the API has no answer, by asking the tensor), and calls the function, without the GIL if the
 * work is large.
 *
 * Invariant: a library stays loaded as long as the process lives, since its code may be running, or its thread team be
 * parked in it.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <dlfcn.h>
#include <stdint.h>
#include <structmember.h>

#include "../../dynamo_lite/_dlpack.h"

#define MAX_ON_STACK 64

typedef void (*kernel_fn)(void **pointers, const int64_t *sizes);

typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    kernel_fn fn;
    PyObject *name;
    Py_ssize_t n_tensors;
    Py_ssize_t n_sizes;
    int release_gil;
} Entry;

static const DLPackExchangeAPI *exchange;
static PyObject *str_data_ptr;

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
        /* A dtype that DLPack has no code for, a tensor subclass: the tensor itself knows. */
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

/* ---------------------------------------------------------------- Entry */
static PyObject *
entry_call(PyObject *self, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    Entry *entry = (Entry *)self;
    Py_ssize_t n = PyVectorcall_NARGS(nargsf), total = entry->n_tensors + entry->n_sizes;
    if (n != total || (kwnames != NULL && PyTuple_GET_SIZE(kwnames) != 0)) {
        return PyErr_Format(PyExc_TypeError, "%U takes %zd tensors and %zd integers, not %zd arguments", entry->name,
                            entry->n_tensors, entry->n_sizes, n);
    }
    void *few_pointers[MAX_ON_STACK];
    int64_t few_sizes[MAX_ON_STACK];
    void **pointers = few_pointers;
    int64_t *sizes = few_sizes;
    PyObject *result = NULL;
    if (entry->n_tensors > MAX_ON_STACK) {
        pointers = PyMem_Malloc((size_t)entry->n_tensors * sizeof(void *));
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
    if (entry->release_gil) {
        /* The caller's references keep the tensors alive meanwhile. */
        Py_BEGIN_ALLOW_THREADS
        entry->fn(pointers, sizes);
        Py_END_ALLOW_THREADS
    } else {
        entry->fn(pointers, sizes);
    }
    result = Py_NewRef(Py_None);
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
    Py_XDECREF(((Entry *)self)->name);
    type->tp_free(self);
    Py_DECREF(type);
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
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot entry_slots[] = {
    {Py_tp_dealloc, entry_dealloc},
    {Py_tp_repr, entry_repr},
    {Py_tp_call, PyVectorcall_Call},
    {Py_tp_members, entry_members},
    {0, NULL},
};

static PyType_Spec entry_spec = {
    .name = "dynamo_lite.backends.inductor._runtime.Entry",
    .basicsize = sizeof(Entry),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = entry_slots,
};

static PyTypeObject *entry_type;

/* ---------------------------------------------------------------- module */
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
    return PyLong_FromVoidPtr(handle);
}

static PyObject *
make_entry(PyObject *module, PyObject *args)
{
    PyObject *handle_object, *name;
    Py_ssize_t n_tensors, n_sizes;
    int release_gil;
    (void)module;
    if (!PyArg_ParseTuple(args, "OUnnp:entry", &handle_object, &name, &n_tensors, &n_sizes, &release_gil)) {
        return NULL;
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
    entry->n_tensors = n_tensors;
    entry->n_sizes = n_sizes;
    entry->release_gil = release_gil;
    return (PyObject *)entry;
}

static PyObject *
use_tensor_type(PyObject *module, PyObject *type)
{
    (void)module;
    PyObject *capsule = PyObject_GetAttrString(type, "__dlpack_c_exchange_api__");
    if (capsule == NULL) {
        /* A torch older than the API: pointers then come from data_ptr(). */
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

static PyMethodDef methods[] = {
    {"load", load_library, METH_O, "load(path) -> int\n\nLoads a shared library for good; its handle."},
    {"entry", make_entry, METH_VARARGS, "entry(library, symbol, n_tensors, n_sizes, release_gil) -> Entry"},
    {"use_tensor_type", use_tensor_type, METH_O,
     "use_tensor_type(torch.Tensor) -> bool\n\nReads pointers through that type's DLPack exchange API from now on, "
     "if it has one."},
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
    if (str_data_ptr == NULL || entry_type == NULL ||
        PyModule_AddObjectRef(module, "Entry", (PyObject *)entry_type) < 0) {
        Py_DECREF(module);
        return NULL;
    }
    return module;
}
