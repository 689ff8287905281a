/* What guards ask of torch's tensors: the steps "tensor" and "tensor_slow", and the set-up of all that concerns torch.
 *
 * Nothing here needs torch's headers. Metadata comes through the DLPack exchange API, which reports sizes and strides as the
 * tensor has them (it does not normalize strides). It exports a tensor with a conjugate or negative bit as if the bit were
 * not there, so a guard that cares asks for the bit with TENSOR_CONJ or TENSOR_NEG.
 */
#include "_guards.h"

#include <structmember.h>

#include "_dlpack.h"

enum { FLAG_INFERENCE = 1, FLAG_CONJ = 2, FLAG_NEG = 4, N_FLAGS = 3, FLAG_EXPECTED_SHIFT = 8 };

struct TensorSpec {
    PyTypeObject *cls; /* owned by the step */
    int32_t device_type, device_index;
    int32_t ndim;
    int16_t dtype_code, dtype_bits;
    int8_t requires_grad; /* -1: any */
    int8_t has_strides;
    uint16_t flags;
    int64_t dims[]; /* ndim sizes, then ndim strides; ANY where it does not matter */
};

#define ANY INT64_MIN

static struct {
    PyObject *module; /* torch */
    const DLPackExchangeAPI *dlpack;
    PyGetSetDef *requires_grad;
    PyObject *flag_methods[N_FLAGS]; /* is_inference, is_conj, is_neg */
} torch;

int
guard_require_torch(void)
{
    if (torch.module == NULL) {
        PyErr_SetString(PyExc_RuntimeError, "dynamo_lite._guards.init_torch(torch) has not been called");
        return -1;
    }
    return 0;
}

/* ---- tensors ---- */

/* A tuple of integers and None into dims; None becomes ANY. */
static int
parse_dims(PyObject *tuple, int64_t *dims)
{
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(tuple); i++) {
        PyObject *item = PyTuple_GET_ITEM(tuple, i);
        dims[i] = item == Py_None ? ANY : PyLong_AsLongLong(item);
        if (dims[i] == -1 && PyErr_Occurred()) {
            return -1;
        }
    }
    return 0;
}

TensorSpec *
guard_tensor_parse(PyObject *operands)
{
    PyTypeObject *cls;
    int dtype_code, dtype_bits, device_type, device_index, flags;
    PyObject *shape, *strides, *requires_grad;
    if (guard_require_torch() < 0
        || !PyArg_ParseTuple(operands, "O!iiiiO!OOi;tensor step", &PyType_Type, &cls, &dtype_code, &dtype_bits,
                             &device_type, &device_index, &PyTuple_Type, &shape, &strides, &requires_grad, &flags)) {
        return NULL;
    }
    Py_ssize_t ndim = PyTuple_GET_SIZE(shape);
    if (strides != Py_None && !(PyTuple_Check(strides) && PyTuple_GET_SIZE(strides) == ndim)) {
        PyErr_SetString(PyExc_ValueError, "tensor step: strides must be None or as long as the shape");
        return NULL;
    }
    int requires = requires_grad == Py_None ? -1 : PyObject_IsTrue(requires_grad);
    TensorSpec *spec = PyMem_Malloc(sizeof(TensorSpec) + (size_t)(2 * ndim) * sizeof(int64_t));
    if (spec == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    *spec = (TensorSpec){
        .cls = cls,
        .device_type = device_type,
        .device_index = device_index,
        .ndim = (int32_t)ndim,
        .dtype_code = (int16_t)dtype_code,
        .dtype_bits = (int16_t)dtype_bits,
        .requires_grad = (int8_t)requires,
        .has_strides = strides != Py_None,
        .flags = (uint16_t)flags,
    };
    if (parse_dims(shape, spec->dims) < 0 || (spec->has_strides && parse_dims(strides, spec->dims + ndim) < 0)) {
        PyMem_Free(spec);
        return NULL;
    }
    Py_INCREF(cls);
    return spec;
}

PyObject *
guard_tensor_class(const TensorSpec *spec)
{
    return (PyObject *)spec->cls;
}

static int
truth_of(PyObject *result)
{
    if (result == NULL) {
        return -1;
    }
    int truth = result == Py_True ? 1 : result == Py_False ? 0 : PyObject_IsTrue(result);
    Py_DECREF(result);
    return truth;
}

int
guard_tensor_check(const TensorSpec *spec, PyObject *tensor)
{
    if (Py_TYPE(tensor) != spec->cls) {
        return 0;
    }
    DLTensor dl;
    if (torch.dlpack->dltensor_from_py_object_no_sync(tensor, &dl) != 0) {
        PyErr_Clear(); /* sparse, meta, quantized: not what the spec describes */
        return 0;
    }
    if (dl.dtype.code != spec->dtype_code || dl.dtype.bits != spec->dtype_bits || dl.ndim != spec->ndim
        || dl.device.device_type != spec->device_type || dl.device.device_id != spec->device_index) {
        return 0;
    }
    for (int32_t i = 0; i < dl.ndim; i++) {
        if (spec->dims[i] != dl.shape[i] && spec->dims[i] != ANY) {
            return 0;
        }
    }
    if (spec->has_strides) {
        const int64_t *strides = spec->dims + dl.ndim;
        for (int32_t i = 0; i < dl.ndim; i++) {
            if (strides[i] != dl.strides[i] && strides[i] != ANY) {
                return 0;
            }
        }
    }
    if (spec->requires_grad >= 0) {
        int requires = truth_of(torch.requires_grad->get(tensor, torch.requires_grad->closure));
        if (requires != spec->requires_grad) {
            return requires < 0 ? -1 : 0;
        }
    }
    for (int bit = 0; spec->flags != 0 && bit < N_FLAGS; bit++) {
        if (spec->flags >> bit & 1) {
            int value = truth_of(PyObject_CallOneArg(torch.flag_methods[bit], tensor));
            if (value != (spec->flags >> (FLAG_EXPECTED_SHIFT + bit) & 1)) {
                return value < 0 ? -1 : 0;
            }
        }
    }
    return 1;
}

/* One attribute, or the result of one method, against what is expected; sizes are compared element by element. */
static int
attribute_is(PyObject *tensor, const char *name, int call, PyObject *expected)
{
    PyObject *value = PyObject_GetAttrString(tensor, name);
    if (value != NULL && call) {
        Py_SETREF(value, PyObject_CallNoArgs(value));
    }
    if (value == NULL) {
        if (PyErr_ExceptionMatches(PyExc_RuntimeError) || PyErr_ExceptionMatches(PyExc_AttributeError)) {
            PyErr_Clear(); /* a sparse tensor has no strides */
            return 0;
        }
        return -1;
    }
    int equal;
    if (PyTuple_Check(expected) && PyTuple_Check(value)) {
        Py_ssize_t n = PyTuple_GET_SIZE(expected);
        equal = n == PyTuple_GET_SIZE(value);
        for (Py_ssize_t i = 0; equal == 1 && i < n; i++) {
            PyObject *item = PyTuple_GET_ITEM(expected, i);
            equal = item == Py_None ? 1 : PyObject_RichCompareBool(PyTuple_GET_ITEM(value, i), item, Py_EQ);
        }
    }
    else {
        equal = value == expected ? 1 : PyObject_RichCompareBool(value, expected, Py_EQ);
    }
    Py_DECREF(value);
    return equal;
}

/* operands: cls, dtype, device, shape, strides or None, requires_grad or None, layout */
int
guard_tensor_slow_check(PyObject *operands, PyObject *tensor)
{
    static const struct {
        const char *name;
        int call;
    } attributes[] = {{NULL, 0}, {"dtype", 0}, {"device", 0}, {"shape", 0}, {"stride", 1}, {"requires_grad", 0}, {"layout", 0}};
    if ((PyObject *)Py_TYPE(tensor) != PyTuple_GET_ITEM(operands, 0)) {
        return 0;
    }
    for (int i = 1; i < 7; i++) {
        PyObject *expected = PyTuple_GET_ITEM(operands, i);
        int equal = expected == Py_None ? 1 : attribute_is(tensor, attributes[i].name, attributes[i].call, expected);
        if (equal != 1) {
            return equal;
        }
    }
    return 1;
}

/* tensor_spec(t) -> (dtype_code, dtype_bits, device_type, device_index, shape, strides) as the step "tensor" wants them. */
static PyObject *
tensor_spec(PyObject *Py_UNUSED(module), PyObject *tensor)
{
    DLTensor dl;
    if (guard_require_torch() < 0) {
        return NULL;
    }
    if (!PyObject_TypeCheck(tensor, (PyTypeObject *)PyDict_GetItemString(PyModule_GetDict(torch.module), "Tensor"))) {
        PyErr_Format(PyExc_TypeError, "tensor_spec() takes a tensor, not %.100s", Py_TYPE(tensor)->tp_name);
        return NULL;
    }
    if (torch.dlpack->dltensor_from_py_object_no_sync(tensor, &dl) != 0) {
        return NULL;
    }
    PyObject *shape = PyTuple_New(dl.ndim), *strides = PyTuple_New(dl.ndim);
    for (int32_t i = 0; shape != NULL && strides != NULL && i < dl.ndim; i++) {
        PyObject *size = PyLong_FromLongLong(dl.shape[i]), *stride = PyLong_FromLongLong(dl.strides[i]);
        if (size == NULL || stride == NULL) {
            Py_XDECREF(size);
            Py_XDECREF(stride);
            Py_CLEAR(shape);
            break;
        }
        PyTuple_SET_ITEM(shape, i, size);
        PyTuple_SET_ITEM(strides, i, stride);
    }
    if (shape == NULL || strides == NULL) {
        Py_XDECREF(shape);
        Py_XDECREF(strides);
        return NULL;
    }
    return Py_BuildValue("(iiiiNN)", dl.dtype.code, dl.dtype.bits, dl.device.device_type, dl.device.device_id, shape, strides);
}

/* ---- setting up ---- */

/* root.a.b for the path "a.b"; a new reference */
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
    static const char *const methods[] = {"Tensor.is_inference", "Tensor.is_conj", "Tensor.is_neg"};
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
    torch.requires_grad = ((PyGetSetDescrObject *)descriptor)->d_getset; /* lives as long as torch does */
    Py_DECREF(descriptor);
    for (int i = 0; i < N_FLAGS; i++) {
        PyObject *method = guard_attribute_path(module, methods[i]);
        if (method == NULL) {
            return -1;
        }
        Py_XSETREF(torch.flag_methods[i], method);
    }
    torch.dlpack = dlpack;
    return 0;
}

static PyObject *
init_torch(PyObject *Py_UNUSED(module), PyObject *torch_module)
{
    if (!PyModule_Check(torch_module)) {
        PyErr_SetString(PyExc_TypeError, "init_torch() takes the module torch");
        return NULL;
    }
    if (init_tensors(torch_module) < 0 || guard_init_state(torch_module) < 0) {
        return NULL;
    }
    Py_XSETREF(torch.module, Py_NewRef(torch_module));
    Py_RETURN_NONE;
}

PyMethodDef guard_tensor_methods[] = {
    {"init_torch", init_torch, METH_O, "init_torch(torch): look up what the tensor and state steps need"},
    {"tensor_spec", tensor_spec, METH_O,
     "tensor_spec(t) -> (dtype_code, dtype_bits, device_type, device_index, shape, strides), operands of the step \"tensor\""},
    {NULL, NULL, 0, NULL},
};

int
guard_tensor_add_constants(PyObject *module)
{
    if (PyModule_AddIntConstant(module, "TENSOR_INFERENCE", FLAG_INFERENCE) < 0
        || PyModule_AddIntConstant(module, "TENSOR_CONJ", FLAG_CONJ) < 0
        || PyModule_AddIntConstant(module, "TENSOR_NEG", FLAG_NEG) < 0
        || PyModule_AddIntConstant(module, "TENSOR_EXPECTED_SHIFT", FLAG_EXPECTED_SHIFT) < 0) {
        return -1;
    }
    return 0;
}
