/*
 * abi.h - what the exported functions need of the TVM FFI C ABI (apache-tvm-ffi 0.1) and of DLPack: nothing is linked,
 * who loads the library brings the functions. Names and numbers are those of tvm/ffi/c_api.h and dlpack.h, both Apache
 * License 2.0.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

typedef enum DLDeviceType { kDLCPU = 1, kDLCUDA = 2 } DLDeviceType;

typedef struct DLDevice {
    int32_t device_type, device_id;
} DLDevice;

typedef enum DLDataTypeCode {
    kDLInt = 0,
    kDLUInt = 1,
    kDLFloat = 2,
    kDLBfloat = 4,
    kDLBool = 6,
    kDLFloat8_e4m3fn = 10,
    kDLFloat8_e5m2 = 12
} DLDataTypeCode;

typedef struct DLDataType {
    uint8_t code, bits;
    uint16_t lanes;
} DLDataType;

typedef struct DLTensor {
    void *data;
    DLDevice device;
    int32_t ndim;
    DLDataType dtype;
    int64_t *shape, *strides; // elements; strides may be NULL: compact, the last mode contiguous
    uint64_t byte_offset;
} DLTensor;

typedef enum TVMFFITypeIndex {
    kTVMFFINone = 0,
    kTVMFFIInt = 1,
    kTVMFFIBool = 2,
    kTVMFFIFloat = 3,
    kTVMFFIDLTensorPtr = 7,
    kTVMFFIRawStr = 8,
    kTVMFFIByteArrayPtr = 9,
    kTVMFFISmallStr = 11,
    kTVMFFISmallBytes = 12,
    kTVMFFIStr = 65,
    kTVMFFIBytes = 66,
    kTVMFFITensor = 70
} TVMFFITypeIndex;

/* What objects on the heap begin with: the content of a string or the DLTensor of a tensor comes right after it. */
typedef struct TVMFFIObject {
    uint64_t combined_ref_count;
    int32_t type_index;
    uint32_t padding;
    void (*deleter)(void *self, int flags);
} TVMFFIObject;

typedef struct TVMFFIByteArray {
    const char *data;
    size_t size;
} TVMFFIByteArray;

typedef struct TVMFFIAny {
    int32_t type_index;
    uint32_t small_str_len;
    union {
        int64_t v_int64;
        double v_float64;
        void *v_ptr;
        const char *v_c_str;
        char v_bytes[8];
    };
} TVMFFIAny;

_Static_assert(sizeof(TVMFFIAny) == 16 && offsetof(TVMFFIAny, v_ptr) == 8, "the ABI's argument");
_Static_assert(sizeof(TVMFFIObject) == 24, "the ABI's object");
_Static_assert(sizeof(DLTensor) == 48 && offsetof(DLTensor, shape) == 24, "DLPack's tensor");

#define FFI_WEAK __attribute__((weak, visibility("default")))
FFI_WEAK void TVMFFIErrorSetRaisedFromCStr(const char *kind, const char *message);
FFI_WEAK int TVMFFIStringFromByteArray(const TVMFFIByteArray *input, TVMFFIAny *out);
FFI_WEAK int TVMFFIBytesFromByteArray(const TVMFFIByteArray *input, TVMFFIAny *out);
FFI_WEAK void *TVMFFIEnvGetStream(int32_t device_type, int32_t device_id);

/* The signature of all exported functions: 0, or -1 with the error set. Any thread. */
#define FFI_EXPORT(name)                                                                                            \
    __attribute__((visibility("default"))) int __tvm_ffi_##name(void *handle, const TVMFFIAny *args, int32_t count, \
                                                                TVMFFIAny *result)
