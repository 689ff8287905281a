/* The parts of torch that guards use, looked up once by torch_parts.c. Included only by torch_parts.c, tensor.c and sizes.c. */
#ifndef DYNAMO_LITE_GUARDS_TORCH_PARTS_H
#define DYNAMO_LITE_GUARDS_TORCH_PARTS_H

#include "guards.h"

#include "../dlpack.h"

enum { FLAG_INFERENCE = 1, FLAG_CONJ = 2, FLAG_NEG = 4, FLAG_ZERO = 8, N_FLAGS = 4, FLAG_EXPECTED_SHIFT = 8 };

/* The place of the set of dispatch keys that tells a tensor's flags: the word at offset `word` of the object (a TensorImpl)
 * that the pointer at offset `impl` of the Python object points to. No header specifies it. torch_parts.c determines it by
 * comparing tensors that differ in one flag; if the result is not unique (impl 0), the flags are read by calls of methods. */
typedef struct {
    size_t impl, word; /* in words */
    uint64_t mask[N_FLAGS];
    uint64_t set[N_FLAGS]; /* those of the bits in mask that are set in a tensor with the flag */
} KeySet;

typedef struct {
    PyObject *module; /* torch */
    PyTypeObject *tensor; /* torch.Tensor */
    const DLPackExchangeAPI *dlpack;
    PyGetSetDef *requires_grad;
    PyObject *flag_methods[N_FLAGS]; /* is_inference, is_conj, is_neg, _is_zerotensor */
    KeySet keys;
} TorchParts;

extern TorchParts guard_torch;

#define GUARD_IMPL_WORDS 22 /* words of a TensorImpl, which is at least this large, that are searched for data and pointers */

#endif
