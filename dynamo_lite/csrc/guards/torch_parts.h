/* What guards need of torch, looked up once by torch_parts.c. Only tensor.c and torch_parts.c include it. */
#ifndef DYNAMO_LITE_GUARDS_TORCH_PARTS_H
#define DYNAMO_LITE_GUARDS_TORCH_PARTS_H

#include "guards.h"

#include "../dlpack.h"

enum { FLAG_INFERENCE = 1, FLAG_CONJ = 2, FLAG_NEG = 4, N_FLAGS = 3, FLAG_EXPECTED_SHIFT = 8 };

/* Where a tensor keeps the set of dispatch keys that tells the flags: the word at offset `word` of the object that the
 * pointer at offset `impl` of the Python object points to. No header says so; torch_parts.c finds out by comparing tensors
 * that differ in one flag, and without a clear answer (impl 0) the flags are read through the methods. */
typedef struct {
    size_t impl, word; /* in words */
    uint64_t mask[N_FLAGS];
    uint64_t set[N_FLAGS]; /* of the bits in mask, those that are set in a tensor with the flag */
} KeySet;

typedef struct {
    PyObject *module; /* torch */
    PyTypeObject *tensor; /* torch.Tensor */
    const DLPackExchangeAPI *dlpack;
    PyGetSetDef *requires_grad;
    PyObject *flag_methods[N_FLAGS]; /* is_inference, is_conj, is_neg */
    KeySet keys;
} TorchParts;

extern TorchParts guard_torch;

#define GUARD_IMPL_WORDS 22 /* of a TensorImpl, which is no smaller: how far to look for what it holds or points to */

#endif
