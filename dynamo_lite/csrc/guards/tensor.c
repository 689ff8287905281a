/* Checks of torch's tensors.
 *
 * Nothing here needs torch's headers. Metadata comes through the DLPack exchange API, which reports sizes and strides as the
 * tensor has them (strides are not normalized). It exports a tensor with a conjugate or negative bit, and one of zeros without
 * memory, as if it were another, so a guard for which that matters checks the bit with TENSOR_CONJ, TENSOR_NEG or TENSOR_ZERO.
 */
#include "torch_parts.h"

enum { CPU_DEVICE = 1 }; /* DLPack's number of the CPU */

struct TensorSpec {
    PyTypeObject *cls; /* owned by the step */
    int32_t device_type, device_index;
    int32_t ndim;
    int16_t dtype_code, dtype_bits;
    int8_t requires_grad; /* -1: any */
    int8_t has_strides;
    uint16_t flags;
    int64_t dims[]; /* ndim sizes, then ndim strides; ANY if a size or stride does not matter */
};

#define ANY INT64_MIN
/* AFTER + d: the stride must be the size of dimension d times its stride. */
#define AFTER (INT64_MIN + 1)
#define MOST_DIMS 64

/* Parses a tuple of integers, of None (any) and, for strides, of (dimension,). 0, or -1 with an exception. */
static int
parse_dims(PyObject *tuple, int64_t *dims)
{
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(tuple); i++) {
        PyObject *item = PyTuple_GET_ITEM(tuple, i);
        if (PyTuple_CheckExact(item) && PyTuple_GET_SIZE(item) == 1) {
            long long dim = PyLong_AsLongLong(PyTuple_GET_ITEM(item, 0));
            if (dim < 0 || dim >= PyTuple_GET_SIZE(tuple) || dim >= MOST_DIMS) {
                if (!PyErr_Occurred()) {
                    PyErr_SetString(PyExc_ValueError, "tensor step: no such dimension");
                }
                return -1;
            }
            dims[i] = AFTER + dim;
            continue;
        }
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

/* The truth value of an object, whose reference is stolen; -1 with an exception, also if it is NULL. */
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

/* The word of the tensor's key set that has the bits of the flags. */
static inline uint64_t
key_word(PyObject *tensor)
{
    return (*(uint64_t **)((void **)tensor + guard_torch.keys.impl))[guard_torch.keys.word];
}

/* The step "tensor": 1, 0, or -1 with an exception. */
int
guard_tensor_check(const TensorSpec *spec, PyObject *tensor)
{
    if (Py_TYPE(tensor) != spec->cls) {
        return 0;
    }
    DLTensor dl;
    if (guard_torch.dlpack->dltensor_from_py_object_no_sync(tensor, &dl) != 0) {
        PyErr_Clear(); /* sparse, meta, quantized: not a tensor as the spec describes */
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
            if (strides[i] == dl.strides[i] || strides[i] == ANY) {
                continue;
            }
            if (strides[i] > AFTER + MOST_DIMS) {
                return 0;
            }
            int64_t dim = strides[i] - AFTER, step;
            if (__builtin_mul_overflow(dl.shape[dim], dl.strides[dim], &step) || dl.strides[i] != step) {
                return 0;
            }
        }
    }
    if (spec->requires_grad >= 0) {
        int requires = truth_of(guard_torch.requires_grad->get(tensor, guard_torch.requires_grad->closure));
        if (requires != spec->requires_grad) {
            return requires < 0 ? -1 : 0;
        }
    }
    for (int bit = 0; spec->flags != 0 && bit < N_FLAGS; bit++) {
        if (spec->flags >> bit & 1) {
            int value = guard_torch.keys.impl != 0 ? (key_word(tensor) & guard_torch.keys.mask[bit]) == guard_torch.keys.set[bit]
                                             : truth_of(PyObject_CallOneArg(guard_torch.flag_methods[bit], tensor));
            if (value != (spec->flags >> (FLAG_EXPECTED_SHIFT + bit) & 1)) {
                return value < 0 ? -1 : 0;
            }
        }
    }
    return 1;
}

#define IMPL_LINES 4     /* cache lines of a TensorImpl */
#define LINE_WORDS 8     /* words of a cache line */

/* The cache lines that a check of a tensor reads: those of its TensorImpl and those that it points to. Every word that could be
 * an address on the heap is taken for one, since the addresses are only prefetched. Returns their number; 0 if the object is
 * not a tensor, or if the place of its TensorImpl is not known. */
size_t
guard_tensor_lines(PyObject *obj, uintptr_t lines[GUARD_TENSOR_LINES])
{
    if (guard_torch.keys.impl == 0 || guard_torch.tensor == NULL || !PyObject_TypeCheck(obj, guard_torch.tensor)) {
        return 0;
    }
    const uintptr_t *impl = ((uintptr_t **)obj)[guard_torch.keys.impl];
    size_t n = 0;
    for (; impl != NULL && n < IMPL_LINES; n++) {
        lines[n] = (uintptr_t)(impl + n * LINE_WORDS);
    }
    for (size_t word = 1; impl != NULL && word < GUARD_IMPL_WORDS && n < GUARD_TENSOR_LINES; word++) {
        if (impl[word] % sizeof(void *) == 0 && impl[word] >> 20 != 0 && impl[word] >> 47 == 0) {
            lines[n++] = impl[word];
        }
    }
    return n;
}

typedef struct {
    uintptr_t low, high; /* address of the first element, and that behind the last */
    int changed;
} Span;

/* Finds the memory of a tensor's elements. 1: `span` is set, 0: there are no elements, -1: DLPack can't tell. */
static int
span_of(PyObject *tensor, Span *span)
{
    DLTensor dl;
    if (guard_torch.dlpack->dltensor_from_py_object_no_sync(tensor, &dl) != 0) {
        PyErr_Clear();
        return -1;
    }
    int64_t last = 0;
    for (int32_t i = 0; i < dl.ndim; i++) {
        if (dl.shape[i] == 0) {
            return 0;
        }
        last += (dl.shape[i] - 1) * dl.strides[i];
    }
    span->low = (uintptr_t)dl.data + dl.byte_offset;
    span->high = span->low + (uintptr_t)(last + 1) * (((uintptr_t)dl.dtype.bits * dl.dtype.lanes + 7) / 8);
    return 1;
}

static int
compare_spans(const void *a, const void *b)
{
    uintptr_t x = ((const Span *)a)->low, y = ((const Span *)b)->low;
    return (x > y) - (x < y);
}

/* Whether none of the first `changed` tensors overlaps another tensor. A tensor extends from its first to its last element, so
 * two tensors that interleave are not disjoint. */
int
guard_tensors_disjoint(PyObject *const *registers, const int32_t *which, Py_ssize_t n, Py_ssize_t changed)
{
    Span small[32];
    Span *spans = n <= 32 ? small : PyMem_New(Span, n);
    if (spans == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    int disjoint = 1;
    Py_ssize_t found = 0;
    for (Py_ssize_t i = 0; disjoint && i < n; i++) {
        int state = span_of(registers[which[i]], &spans[found]);
        spans[found].changed = i < changed;
        found += state == 1;
        disjoint = state >= 0;
    }
    if (disjoint && found > 1) {
        qsort(spans, (size_t)found, sizeof(Span), compare_spans);
        uintptr_t reached = 0, changed_until = 0;
        for (Py_ssize_t i = 0; disjoint && i < found; i++) {
            disjoint = spans[i].low >= (spans[i].changed ? reached : changed_until);
            reached = spans[i].high > reached ? spans[i].high : reached;
            if (spans[i].changed && spans[i].high > changed_until) {
                changed_until = spans[i].high;
            }
        }
    }
    if (spans != small) {
        PyMem_Free(spans);
    }
    return disjoint;
}

/* Whether `other` begins `bytes` bytes behind `tensor`. */
int
guard_memory_offset_is(PyObject *tensor, PyObject *other, int64_t bytes)
{
    Span a, b;
    if (guard_require_torch() < 0) {
        return -1;
    }
    return span_of(tensor, &a) == 1 && span_of(other, &b) == 1 && (int64_t)(b.low - a.low) == bytes;
}

/* Whether a tensor in the CPU's memory has these elements, in row-major order. */
int
guard_tensor_data_is(PyObject *tensor, PyObject *bytes)
{
    DLTensor dl;
    if (guard_require_torch() < 0) {
        return -1;
    }
    if (!PyBytes_Check(bytes) || guard_torch.dlpack->dltensor_from_py_object_no_sync(tensor, &dl) != 0) {
        PyErr_Clear();
        return 0;
    }
    size_t size = (size_t)dl.dtype.bits * dl.dtype.lanes / 8;
    Py_ssize_t elements = 1;
    for (int32_t i = 0; i < dl.ndim; i++) {
        elements *= dl.shape[i];
    }
    if (dl.device.device_type != CPU_DEVICE || elements * (Py_ssize_t)size != PyBytes_GET_SIZE(bytes)) {
        return 0;
    }
    if (elements == 0) {
        return 1;
    }
    /* Contiguous runs, which extend over the innermost dimensions as far as these are dense, are compared at once. */
    Py_ssize_t run = 1;
    int32_t outer = dl.ndim;
    while (outer > 0 && (dl.shape[outer - 1] == 1 || dl.strides[outer - 1] == run)) {
        run *= dl.shape[--outer];
    }
    const char *data = (const char *)dl.data + dl.byte_offset, *expected = PyBytes_AS_STRING(bytes);
    for (Py_ssize_t n = 0; n < elements / run; n++) {
        int64_t offset = 0;
        Py_ssize_t rest = n;
        for (int32_t i = outer - 1; i >= 0; i--) {
            offset += rest % dl.shape[i] * dl.strides[i];
            rest /= dl.shape[i];
        }
        if (memcmp(data + offset * (int64_t)size, expected + n * run * (Py_ssize_t)size, (size_t)run * size) != 0) {
            return 0;
        }
    }
    return 1;
}

/* tensor_spec(t) -> (dtype_code, dtype_bits, device_type, device_index, shape, strides), as the step "tensor" takes them. */
static PyObject *
tensor_spec(PyObject *Py_UNUSED(module), PyObject *tensor)
{
    DLTensor dl;
    if (guard_require_torch() < 0) {
        return NULL;
    }
    if (!PyObject_TypeCheck(tensor, guard_torch.tensor)) {
        PyErr_Format(PyExc_TypeError, "tensor_spec() takes a tensor, not %.100s", Py_TYPE(tensor)->tp_name);
        return NULL;
    }
    if (guard_torch.dlpack->dltensor_from_py_object_no_sync(tensor, &dl) != 0) {
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

PyMethodDef guard_tensor_methods[] = {
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
        || PyModule_AddIntConstant(module, "TENSOR_ZERO", FLAG_ZERO) < 0
        || PyModule_AddIntConstant(module, "TENSOR_EXPECTED_SHIFT", FLAG_EXPECTED_SHIFT) < 0) {
        return -1;
    }
    return 0;
}
