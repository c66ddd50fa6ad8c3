/* value.c - values of the TVM FFI as C's, and back. */
#include "ffi/value.h"

#include <string.h>

#include "base/math.h"

/* Where the content of an object on the heap begins. */
static const void *content(const TVMFFIAny *value)
{
    return (const char *)value->v_ptr + sizeof(TVMFFIObject);
}

bool value_text(const TVMFFIAny *value, TVMFFIByteArray *out)
{
    if (value->type_index == kTVMFFIRawStr)
        *out = (TVMFFIByteArray){ value->v_c_str, strlen(value->v_c_str) };
    else if (value->type_index == kTVMFFISmallStr)
        *out = (TVMFFIByteArray){ value->v_bytes, value->small_str_len };
    else if (value->type_index == kTVMFFIStr)
        *out = *(const TVMFFIByteArray *)content(value);
    else
        return false;
    return true;
}

bool value_bytes(const TVMFFIAny *value, TVMFFIByteArray *out)
{
    if (value->type_index == kTVMFFIByteArrayPtr)
        *out = *(const TVMFFIByteArray *)value->v_ptr;
    else if (value->type_index == kTVMFFISmallBytes)
        *out = (TVMFFIByteArray){ value->v_bytes, value->small_str_len };
    else if (value->type_index == kTVMFFIBytes)
        *out = *(const TVMFFIByteArray *)content(value);
    else
        return false;
    return true;
}

const DLTensor *value_tensor(const TVMFFIAny *value)
{
    if (value->type_index == kTVMFFITensor)
        return content(value);
    return value->type_index == kTVMFFIDLTensorPtr ? value->v_ptr : NULL;
}

bool value_number(const TVMFFIAny *value, double *out)
{
    if (value->type_index == kTVMFFIFloat)
        *out = value->v_float64;
    else if (value->type_index == kTVMFFIInt || value->type_index == kTVMFFIBool)
        *out = (double)value->v_int64;
    else
        return false;
    return true;
}

ckl_dtype value_dtype(DLDataType type)
{
    static const struct {
        uint8_t code, bits;
        ckl_dtype dtype;
    } known[] = { // in any order
        { kDLFloat, 32, CKL_F32 },
        { kDLFloat, 16, CKL_F16 },
        { kDLBfloat, 16, CKL_BF16 },
        { kDLFloat, 64, CKL_F64 },
        { kDLFloat8_e4m3fn, 8, CKL_E4M3 },
        { kDLFloat8_e5m2, 8, CKL_E5M2 },
        { kDLInt, 64, CKL_I64 },
        { kDLInt, 32, CKL_I32 },
        { kDLInt, 16, CKL_I16 },
        { kDLInt, 8, CKL_I8 },
        { kDLUInt, 8, CKL_U8 },
        { kDLBool, 8, CKL_BOOL },
    };
    for (int i = 0; i < COUNT_OF(known); i++)
        if (known[i].code == type.code && known[i].bits == type.bits && type.lanes == 1)
            return known[i].dtype;
    return CKL_DTYPE_DEFAULT;
}

int64_t value_span(const DLTensor *tensor)
{
    int64_t last = 0, dense = 1;
    for (int d = tensor->ndim - 1; d >= 0; d--) {
        int64_t stride = tensor->strides ? tensor->strides[d] : dense;
        if (tensor->shape[d] == 0)
            return 0;
        if (stride < 0)
            return -1;
        last = sum_i64(last, product_i64(tensor->shape[d] - 1, stride));
        dense = product_i64(dense, tensor->shape[d]);
    }
    return product_i64(sum_i64(last, 1), tensor->dtype.bits / 8);
}

static ckl_status given(int failed)
{
    if (failed)
        FAIL(CKL_NO_MEMORY, "no memory for a result");
    return CKL_OK;
}

ckl_status value_give_text(const text *from, TVMFFIAny *result)
{
    TVMFFIByteArray content = { text_data(from), from->length };
    return given(TVMFFIStringFromByteArray(&content, result));
}

ckl_status value_give_bytes(const void *bytes, size_t size, TVMFFIAny *result)
{
    TVMFFIByteArray content = { bytes, size };
    return given(TVMFFIBytesFromByteArray(&content, result));
}

int value_status(ckl_status status)
{
    static const char *const kinds[] = { [CKL_INVALID] = "ValueError",
                                         [CKL_UNSUPPORTED] = "NotImplementedError",
                                         [CKL_NO_MEMORY] = "MemoryError",
                                         [CKL_DEVICE_FAULT] = "RuntimeError",
                                         [CKL_INTERNAL] = "RuntimeError" };
    if (status == CKL_OK)
        return 0;
    TVMFFIErrorSetRaisedFromCStr(kinds[status], ckl_error());
    return -1;
}
