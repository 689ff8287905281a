/* Looks up the parts of torch that the tensor and state steps need: the table of DLPack functions, attributes, and the place
 * where a tensor stores its flags. Invariant: `guard_torch.module` is set if and only if all parts have been looked up.
 */
#include "torch_parts.h"

TorchParts guard_torch;

int
guard_require_torch(void)
{
    if (guard_torch.module == NULL) {
        PyErr_SetString(PyExc_RuntimeError, "dynamo_lite._guards.init_torch(torch) has not been called");
        return -1;
    }
    return 0;
}

/* The object root.a.b for the path "a.b"; a new reference, or NULL with an exception. */
PyObject *
guard_attribute_path(PyObject *root, const char *path)
{
    PyObject *parts = NULL, *value = Py_NewRef(root);
    PyObject *text = PyUnicode_FromString(path), *dot = PyUnicode_FromString(".");
    if (text != NULL && dot != NULL) {
        parts = PyUnicode_Split(text, dot, -1);
    }
    Py_XDECREF(text);
    Py_XDECREF(dot);
    if (parts == NULL) {
        Py_DECREF(value);
        return NULL;
    }
    for (Py_ssize_t i = 0; value != NULL && i < PyList_GET_SIZE(parts); i++) {
        Py_SETREF(value, PyObject_GetAttr(value, PyList_GET_ITEM(parts, i)));
    }
    Py_DECREF(parts);
    return value;
}

static int
init_tensors(PyObject *module)
{
    static const char *const methods[] = {"Tensor.is_inference", "Tensor.is_conj", "Tensor.is_neg", "Tensor._is_zerotensor"};
    PyObject *capsule = guard_attribute_path(module, "Tensor.__dlpack_c_exchange_api__");
    if (capsule == NULL) {
        return -1;
    }
    const DLPackExchangeAPI *dlpack = PyCapsule_GetPointer(capsule, DLPACK_EXCHANGE_CAPSULE);
    Py_DECREF(capsule);
    if (dlpack == NULL) {
        return -1;
    }
    while (dlpack != NULL && dlpack->header.major != DLPACK_MAJOR) {
        dlpack = (const DLPackExchangeAPI *)dlpack->header.prev_api;
    }
    if (dlpack == NULL || dlpack->dltensor_from_py_object_no_sync == NULL) {
        PyErr_SetString(PyExc_ImportError, "this torch offers no DLPack 1.x exchange API for tensor metadata");
        return -1;
    }
    PyObject *descriptor = guard_attribute_path(module, "Tensor.requires_grad");
    if (descriptor == NULL || !Py_IS_TYPE(descriptor, &PyGetSetDescr_Type)) {
        Py_XDECREF(descriptor);
        PyErr_SetString(PyExc_ImportError, "torch.Tensor.requires_grad is not a C attribute in this torch");
        return -1;
    }
    guard_torch.requires_grad = ((PyGetSetDescrObject *)descriptor)->d_getset; /* static data of torch, which stays loaded */
    Py_DECREF(descriptor);
    for (int i = 0; i < N_FLAGS; i++) {
        PyObject *method = guard_attribute_path(module, methods[i]);
        if (method == NULL) {
            return -1;
        }
        Py_XSETREF(guard_torch.flag_methods[i], method);
    }
    PyObject *tensor = guard_attribute_path(module, "Tensor");
    if (tensor == NULL) {
        return -1;
    }
    Py_XSETREF(guard_torch.tensor, (PyTypeObject *)tensor);
    guard_torch.dlpack = dlpack;
    return 0;
}

/* Finds the place of the key set by comparing pairs of tensors that differ in one flag, which only flagged[i] has. */
static void
calibrate_keys(PyObject *const *plain, PyObject *const *flagged, const uint64_t *impls)
{
    KeySet keys = {0};
    size_t n_words = (size_t)Py_TYPE(plain[0])->tp_basicsize / sizeof(void *);
    for (size_t i = sizeof(PyObject) / sizeof(void *); i < n_words && keys.impl == 0; i++) {
        int all = 1;
        for (int t = 0; t < 2 * N_FLAGS; t++) {
            all &= ((uint64_t *)(t < N_FLAGS ? plain[t] : flagged[t - N_FLAGS]))[i] == impls[t];
        }
        keys.impl = all ? i : 0;
    }
    if (keys.impl == 0) {
        return;
    }
    int n_found = 0;
    for (size_t word = 1; word < GUARD_IMPL_WORDS; word++) {
        uint64_t mask[N_FLAGS], seen = 0;
        int fits = 1;
        for (int f = 0; f < N_FLAGS; f++) {
            mask[f] = ((uint64_t *)impls[f])[word] ^ ((uint64_t *)impls[N_FLAGS + f])[word];
            /* inference is a few bits, the others are one bit each; different flags have different bits */
            fits &= mask[f] != 0 && !(mask[f] & seen) && (f == 0 || !(mask[f] & (mask[f] - 1)));
            seen |= mask[f];
        }
        if (fits) {
            n_found++;
            keys.word = word;
            for (int f = 0; f < N_FLAGS; f++) {
                keys.mask[f] = mask[f];
                keys.set[f] = ((uint64_t *)impls[N_FLAGS + f])[word] & mask[f];
            }
        }
    }
    if (n_found == 1) {
        guard_torch.keys = keys;
    }
}

static PyObject *
one_number(PyObject *module, const char *dtype_name)
{
    PyObject *zeros = guard_attribute_path(module, "zeros"), *dtype = guard_attribute_path(module, dtype_name);
    PyObject *kwargs = dtype == NULL ? NULL : Py_BuildValue("{s:s,s:O}", "device", "cpu", "dtype", dtype);
    PyObject *args = kwargs == NULL ? NULL : Py_BuildValue("((i))", 1);
    PyObject *result = args == NULL || zeros == NULL ? NULL : PyObject_Call(zeros, args, kwargs);
    Py_XDECREF(zeros);
    Py_XDECREF(dtype);
    Py_XDECREF(kwargs);
    Py_XDECREF(args);
    return result;
}

static PyObject *
one_inference_number(PyObject *module)
{
    PyObject *mode = guard_attribute_path(module, "inference_mode");
    Py_XSETREF(mode, mode == NULL ? NULL : PyObject_CallNoArgs(mode));
    PyObject *entered = mode == NULL ? NULL : PyObject_CallMethod(mode, "__enter__", NULL);
    PyObject *result = NULL;
    if (entered != NULL) {
        result = one_number(module, "float32");
        PyObject *left = PyObject_CallMethod(mode, "__exit__", "OOO", Py_None, Py_None, Py_None);
        if (left == NULL) {
            Py_CLEAR(result);
        }
        Py_XDECREF(left);
    }
    Py_XDECREF(entered);
    Py_XDECREF(mode);
    return result;
}

static int
init_keys(PyObject *module)
{
    PyObject *tensors[2 * N_FLAGS] = {
        one_number(module, "float32"), one_number(module, "complex64"), one_number(module, "float32"),
        one_number(module, "float32"), one_inference_number(module),
    };
    PyObject **const flagged = tensors + N_FLAGS;
    uint64_t impls[2 * N_FLAGS];
    int ok = tensors[0] != NULL && tensors[1] != NULL && tensors[2] != NULL && tensors[3] != NULL && flagged[0] != NULL;
    if (ok) {
        flagged[1] = PyObject_CallMethod(module, "_conj", "O", tensors[1]);
        flagged[2] = flagged[1] == NULL ? NULL : PyObject_CallMethod(module, "_neg_view", "O", tensors[2]);
        flagged[3] = flagged[2] == NULL ? NULL : PyObject_CallMethod(module, "_efficientzerotensor", "((i))", 1);
        ok = flagged[3] != NULL;
    }
    for (int i = 0; ok && i < 2 * N_FLAGS; i++) {
        PyObject *address = PyObject_GetAttrString(tensors[i], "_cdata");
        impls[i] = address == NULL ? 0 : PyLong_AsUnsignedLongLong(address);
        Py_XDECREF(address);
        ok = impls[i] != 0 && !PyErr_Occurred();
    }
    if (ok) {
        calibrate_keys(tensors, flagged, impls);
    }
    for (int i = 0; i < 2 * N_FLAGS; i++) {
        Py_XDECREF(tensors[i]);
    }
    return ok ? 0 : -1;
}

static PyObject *
init_torch(PyObject *Py_UNUSED(module), PyObject *torch_module)
{
    if (!PyModule_Check(torch_module)) {
        PyErr_SetString(PyExc_TypeError, "init_torch() takes the module torch");
        return NULL;
    }
    if (init_tensors(torch_module) < 0 || init_keys(torch_module) < 0 || guard_init_state(torch_module) < 0) {
        return NULL;
    }
    Py_XSETREF(guard_torch.module, Py_NewRef(torch_module));
    Py_RETURN_NONE;
}

PyMethodDef guard_torch_methods[] = {
    {"init_torch", init_torch, METH_O, "init_torch(torch): look up what the tensor and state steps need"},
    {NULL, NULL, 0, NULL},
};
