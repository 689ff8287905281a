/* The part of DLPack 1.x (https://github.com/dmlc/dlpack) that guards use: tensor metadata through the C exchange API.
 *
 * Invariant: the layouts are those of the DLPack standard, major version DLPACK_MAJOR; a producer with another major
 * version is refused when the capsule is opened.
 */
#ifndef DYNAMO_LITE_DLPACK_H
#define DYNAMO_LITE_DLPACK_H

#include <stdint.h>

#define DLPACK_MAJOR 1
#define DLPACK_EXCHANGE_CAPSULE "dlpack_exchange_api"

typedef struct {
    int32_t device_type;
    int32_t device_id;
} DLDevice;

typedef struct {
    uint8_t code;
    uint8_t bits;
    uint16_t lanes;
} DLDataType;

typedef struct {
    void *data;
    DLDevice device;
    int32_t ndim;
    DLDataType dtype;
    int64_t *shape;
    int64_t *strides;
    uint64_t byte_offset;
} DLTensor;

typedef struct DLPackExchangeAPIHeader {
    uint32_t major;
    uint32_t minor;
    struct DLPackExchangeAPIHeader *prev_api;
} DLPackExchangeAPIHeader;

typedef struct {
    DLPackExchangeAPIHeader header;
    void *managed_tensor_allocator;
    void *managed_tensor_from_py_object_no_sync;
    void *managed_tensor_to_py_object_no_sync;
    int (*dltensor_from_py_object_no_sync)(void *py_object, DLTensor *out);
    void *current_work_stream;
} DLPackExchangeAPI;

#endif
