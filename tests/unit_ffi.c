/* unit_ffi.c - the functions of the TVM FFI, called as its runtime does: this file is the runtime. */
#include <jansson.h>
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>
#include <unistd.h>

#include "unit.h"
#include "base/math.h"
#include "cutekernellib/operators/add.h"
#include "ffi/abi.h"
#include "ffi/value.h"
#include "operators/operators.h"

FFI_EXPORT(ckl_add);
FFI_EXPORT(ckl_elementwise);
FFI_EXPORT(ckl_gemm);
FFI_EXPORT(ckl_reduce);
FFI_EXPORT(ckl_sequence);
FFI_EXPORT(ckl_problem);
FFI_EXPORT(ckl_tensors);
FFI_EXPORT(ckl_operators);
FFI_EXPORT(ckl_explain);
FFI_EXPORT(ckl_version);
FFI_EXPORT(ckl_device);
FFI_EXPORT(ckl_plan);
FFI_EXPORT(ckl_prepare);
FFI_EXPORT(ckl_leave);
FFI_EXPORT(ckl_synchronize);

static char kind[64], message[4096], *given;
static size_t given_bytes;

void TVMFFIErrorSetRaisedFromCStr(const char *k, const char *m)
{
    snprintf(kind, sizeof kind, "%s", k);
    snprintf(message, sizeof message, "%s", m);
}

/* The last result is kept until the next one. */
static int keep(const TVMFFIByteArray *input)
{
    free(given);
    given = calloc(input->size + 1, 1);
    memcpy(given, input->data, input->size);
    given_bytes = input->size;
    return 0;
}

int TVMFFIStringFromByteArray(const TVMFFIByteArray *input, TVMFFIAny *out)
{
    out->type_index = kTVMFFIStr;
    return keep(input);
}

int TVMFFIBytesFromByteArray(const TVMFFIByteArray *input, TVMFFIAny *out)
{
    out->type_index = kTVMFFIBytes;
    return keep(input);
}

void *TVMFFIEnvGetStream(int32_t device_type, int32_t device_id)
{
    assert_int_equal(device_type, kDLCUDA); // the host has no streams
    return NULL;
}

/* Arguments */

#define TEXT(s)                                     \
    {                                               \
        .type_index = kTVMFFIRawStr, .v_c_str = (s) \
    }
#define TENSOR(t)                                      \
    {                                                  \
        .type_index = kTVMFFIDLTensorPtr, .v_ptr = (t) \
    }
#define FLOAT(x)                                     \
    {                                                \
        .type_index = kTVMFFIFloat, .v_float64 = (x) \
    }
#define INTEGER(x)                               \
    {                                            \
        .type_index = kTVMFFIInt, .v_int64 = (x) \
    }
#define BOOLEAN(x)                                \
    {                                             \
        .type_index = kTVMFFIBool, .v_int64 = (x) \
    }
#define NONE                      \
    {                             \
        .type_index = kTVMFFINone \
    }
#define CALL(function, ...)                                      \
    __tvm_ffi_ckl_##function(NULL, (TVMFFIAny[]){ __VA_ARGS__ }, \
                             (int)(sizeof((TVMFFIAny[]){ __VA_ARGS__ }) / sizeof(TVMFFIAny)), &result)
#define FAILS(wanted, sentence, call)      \
    do {                                   \
        assert_int_equal(call, -1);        \
        assert_string_equal(kind, wanted); \
        assert_says(message, sentence);    \
    } while (0)

static TVMFFIAny result;
static int64_t shape[] = { 2, 3 }, apart[] = { 4, 1 };

static DLTensor matrix(float *data, int64_t *strides)
{
    return (DLTensor){ .data = data,
                       .device = { kDLCPU, 0 },
                       .ndim = 2,
                       .dtype = { kDLFloat, 32, 1 },
                       .shape = shape,
                       .strides = strides };
}

TEST(call)
{
    float a[7] = { 0, 1, 2, 3, 4, 5, 6 }, b[6] = { 10, 20, 30, 40, 50, 60 }, y[6] = { 0 };
    DLTensor A = matrix(a, NULL), B = matrix(b, NULL), Y = matrix(y, NULL);
    A.byte_offset = sizeof a[0];
    assert_int_equal(CALL(add, TEXT("n=3 rows=2"), TENSOR(&A), TENSOR(&B), TENSOR(&Y), FLOAT(2)), 0);
    for (int i = 0; i < 6; i++)
        assert_float_equal(y[i], 2 * a[i + 1] + b[i], 0);
    assert_int_equal(CALL(add, TEXT("n=3 rows=2"), TENSOR(&B), TENSOR(&B), TENSOR(&B), INTEGER(0), FLOAT(3)),
                     0); // in place
    assert_float_equal(b[5], 180, 0);
    assert_int_equal(CALL(add, TEXT("n=3 rows=2"), TENSOR(&A), TENSOR(&B), TENSOR(&Y), BOOLEAN(1), BOOLEAN(0)), 0);
    assert_float_equal(y[5], a[6], 0);
}

/* A problem in each form that its runtime has for texts and bytes: a line, or a desc. */
TEST(problems)
{
    typedef struct object {
        TVMFFIObject head;
        TVMFFIByteArray bytes;
    } object;
    const ckl_add_desc desc = { .dtype = CKL_F32, .n = 6 };
    object line = { .bytes = { "n=6 and more", 3 } }, whole = { .bytes = { (const char *)&desc, sizeof desc } };
    const TVMFFIAny problems[] = { TEXT("n=6"),
                                   { .type_index = kTVMFFISmallStr, .small_str_len = 3, .v_bytes = "n=6,." },
                                   { .type_index = kTVMFFIStr, .v_ptr = &line },
                                   { .type_index = kTVMFFIByteArrayPtr, .v_ptr = &whole.bytes },
                                   { .type_index = kTVMFFIBytes, .v_ptr = &whole } },
                    others[] = { { .type_index = kTVMFFIBytes, .v_ptr = &line },
                                 { .type_index = kTVMFFISmallBytes, .small_str_len = 3, .v_bytes = "n=6" } };
    float a[6] = { 1, 2, 3, 4, 5, 6 };
    DLTensor A = matrix(a, NULL);
    for (int i = 0; i < COUNT_OF(problems); i++) {
        float y[6] = { 0 };
        DLTensor Y = matrix(y, NULL);
        assert_int_equal(CALL(add, problems[i], TENSOR(&A), TENSOR(&A), TENSOR(&Y)), 0);
        assert_float_equal(y[5], 12, 0);
    }
    for (int i = 0; i < COUNT_OF(others); i++)
        FAILS("ValueError", "add: the problem is neither a line nor the",
              CALL(add, others[i], TENSOR(&A), TENSOR(&A), TENSOR(&A)));
}

/* A number in the place of an operand: one that is said to be a scalar, and no other. */
TEST(scalars)
{
    float x[6] = { 1, 2, 3, 4, 5, 6 }, y[6] = { 0 };
    DLTensor X = matrix(x, NULL), Y = matrix(y, NULL);
    assert_int_equal(
        CALL(elementwise, TEXT("expr=a*x shape=2x3 scalars=a=1"), FLOAT(3), TENSOR(&X), NONE, NONE, TENSOR(&Y)), 0);
    for (int i = 0; i < 6; i++)
        assert_float_equal(y[i], 3 * x[i], 0);
    FAILS("ValueError", "elementwise: in[0] is not a number",
          CALL(elementwise, TEXT("expr=a*x shape=2x3 scalars=a=1"), TENSOR(&X), TENSOR(&X), NONE, NONE, TENSOR(&Y)));
}

/* A step of a sequence, as src/ffi/call.c reads it: an operator, a desc, and arguments. */
typedef struct add_step {
    int32_t op, count;
    ckl_add_desc desc;
    struct {
        int32_t kind, tensor;
        union {
            int64_t offset;
            double number;
        };
    } arguments[5];
} add_step;

#define SEQUENCE                                                                                               \
    CALL(sequence, { .type_index = kTVMFFIByteArrayPtr, .v_ptr = &steps }, TENSOR(&A), TENSOR(&B), TENSOR(&Y), \
         TENSOR(&memory))
#define STEPS(what)                                         \
    do {                                                    \
        memcpy(broken, good, sizeof good);                  \
        what;                                               \
        memcpy(both, &broken[0], first);                    \
        memcpy(both + first, &broken[1], sizeof broken[1]); \
    } while (0)
#define BROKEN(what, sentence)                   \
    do {                                         \
        STEPS(what);                             \
        FAILS("ValueError", sentence, SEQUENCE); \
        steps.size = first + sizeof good[1];     \
    } while (0)

/* y = a + b into memory, y = 3 y + 1 b of what lies there, out of its order: two calls in one. */
TEST(sequence)
{
    enum { NOTHING, WHOLE, MEMORY, NUMBER };
    _Static_assert(sizeof(ckl_add_desc) % 8 == 0, "there is no padding behind it");
    float a[6] = { 0, 1, 2, 3, 4, 5 }, b[6] = { 10, 20, 30, 40, 50, 60 }, y[6] = { 0 };
    unsigned char bytes[32] = { 0 };
    DLTensor A = matrix(a, NULL), B = matrix(b, NULL), Y = matrix(y, NULL);
    DLTensor memory = {
        .data = bytes, .device = { kDLCPU, 0 }, .ndim = 1, .dtype = { kDLUInt, 8, 1 }, .shape = (int64_t[]){ 32 }
    };
    const ckl_add_desc desc = { .dtype = CKL_F32, .n = 6 };
    const add_step good[2] = {
        { 0, 4, desc, { { WHOLE, 0, { 0 } }, { WHOLE, 1, { 0 } }, { MEMORY, 3, { 8 } }, { NOTHING, 0, { 0 } } } },
        { 0,
          5,
          desc,
          { { MEMORY, 3, { 8 } }, { WHOLE, 1, { 0 } }, { WHOLE, 2, { 0 } }, { NUMBER, 0, { .number = 3 } } } }
    };
    char both[sizeof good];
    size_t first = sizeof good[0] - sizeof good[0].arguments[0];
    add_step broken[2];
    TVMFFIByteArray steps = { both, first + sizeof good[1] };
    STEPS((void)0);
    assert_int_equal(SEQUENCE, 0);
    for (int i = 0; i < 6; i++)
        assert_float_equal(y[i], 3 * (a[i] + b[i]) + b[i], 0);
    STEPS(broken[0].arguments[2].offset = broken[1].arguments[0].offset = 0); // where the memory begins
    memset(y, 0, sizeof y);
    assert_int_equal(SEQUENCE, 0);
    assert_float_equal(y[5], 3 * (a[5] + b[5]) + b[5], 0);
    BROKEN(broken[0].op = -1, "sequence: a step begins with neither an operator");
    BROKEN(broken[1].op = 15, "sequence: a step begins with neither an operator");
    BROKEN(broken[1].count = -1, "sequence: a step begins with neither an operator");
    BROKEN(broken[1].count = 100, "sequence: a step begins with neither an operator");
    BROKEN(steps.size -= 1, "sequence: a step of add ends behind");
    BROKEN(steps.size = first + 7, "sequence: a step begins with neither an operator");
    BROKEN(broken[0].arguments[2].tensor = 4, "sequence: argument 3 of add is tensor 4, which was not given");
    BROKEN(broken[0].arguments[2].tensor = -1, "sequence: argument 3 of add is tensor -1, which was not given");
    BROKEN(broken[0].arguments[2].offset = 12, "add: y does not fit behind byte 12 of memory of 32");
    BROKEN(broken[0].arguments[2].offset = -4, "add: y does not fit behind byte -4 of memory of 32");
    BROKEN(broken[0].arguments[0] = broken[1].arguments[3], "add: a is not a tensor");
    BROKEN(broken[1].desc.n = -1, "n=-1");
    FAILS("ValueError", "sequence: the first argument is not the bytes of its steps",
          CALL(sequence, TEXT("add"), TENSOR(&A)));
    FAILS("ValueError", "sequence: there is no tensor among the arguments",
          CALL(sequence, { .type_index = kTVMFFIByteArrayPtr, .v_ptr = &steps }));
}

/* What lies between rows of an output stays as it was. */
TEST(strides)
{
    float a[6] = { 1, 2, 3, 4, 5, 6 }, y[8] = { 7, 7, 7, 7, 7, 7, 7, 7 };
    const float wanted[8] = { 2, 4, 6, 7, 8, 10, 12, 7 };
    DLTensor A = matrix(a, NULL), Y = matrix(y, apart);
    assert_int_equal(CALL(add, TEXT("n=3 rows=2 ldy=4"), TENSOR(&A), TENSOR(&A), TENSOR(&Y)), 0);
    assert_memory_equal(y, wanted, sizeof y);
    assert_int_equal(CALL(add, TEXT("n=3"), TENSOR(&A), TENSOR(&A), TENSOR(&Y)), 0); // the first row alone
    FAILS("ValueError", "add: y has gaps between its elements, the problem has none",
          CALL(add, TEXT("n=3 rows=2"), TENSOR(&A), TENSOR(&A), TENSOR(&Y)));
    FAILS("ValueError", "add: a has gaps", CALL(add, TEXT("n=6"), TENSOR(&Y), TENSOR(&A), TENSOR(&A)));
    DLTensor columns = matrix(a, (int64_t[]){ 1, 2 }), D = matrix(y, NULL);
    FAILS("ValueError", "add: b has the shape that the problem says, and other strides",
          CALL(add, TEXT("n=3 rows=2"), TENSOR(&A), TENSOR(&columns), TENSOR(&D)));
    assert_int_equal(CALL(add, TEXT("n=6"), TENSOR(&A), TENSOR(&columns), TENSOR(&D)), 0); // whatever their order is
}

/* Inputs that share memory in turn: the third overlaps the second and the first. */
TEST(overlapping_inputs)
{
    float memory[15], y[6];
    for (int i = 0; i < COUNT_OF(memory); i++)
        memory[i] = (float)(i * i);
    DLTensor last = matrix(memory + 9, NULL), first = matrix(memory, NULL), middle = matrix(memory + 4, NULL),
             Y = matrix(y, NULL);
    assert_int_equal(CALL(elementwise, TEXT("expr=x+y*z shape=2x3"), TENSOR(&last), TENSOR(&first), TENSOR(&middle),
                          NONE, TENSOR(&Y)),
                     0);
    for (int i = 0; i < 6; i++)
        assert_float_equal(y[i], memory[9 + i] + memory[i] * memory[4 + i], 0);
}

/* Where one tensor ends another one begins. */
TEST(neighbours)
{
    float memory[18] = { 1, 2, 3, 4, 5, 6, 10, 20, 30, 40, 50, 60 };
    DLTensor A = matrix(memory, NULL), B = matrix(memory + 6, NULL), Y = matrix(memory + 12, NULL);
    assert_int_equal(CALL(add, TEXT("n=6"), TENSOR(&A), TENSOR(&B), TENSOR(&Y)), 0);
    for (int i = 0; i < 6; i++)
        assert_float_equal(memory[12 + i], 11 * (float)(i + 1), 0);
}

/* The interface of others: its numbers are theirs. */
TEST(numbers_of_the_interface)
{
    const int numbers[] = { kTVMFFINone,
                            kTVMFFIInt,
                            kTVMFFIBool,
                            kTVMFFIFloat,
                            kTVMFFIDLTensorPtr,
                            kTVMFFIRawStr,
                            kTVMFFIByteArrayPtr,
                            kTVMFFISmallStr,
                            kTVMFFISmallBytes,
                            kTVMFFIStr,
                            kTVMFFIBytes,
                            kTVMFFITensor,
                            kDLCPU,
                            kDLCUDA };
    static const int wanted[] = { 0, 1, 2, 3, 7, 8, 9, 11, 12, 65, 66, 70, 1, 2 };
    assert_memory_equal(numbers, wanted, sizeof wanted);
}

/* DLPack's codes and bits of every element type, as numbers. */
TEST(types)
{
    static const struct {
        DLDataType type;
        ckl_dtype wanted;
    } rows[] = { { { 2, 32, 1 }, CKL_F32 },
                 { { 2, 16, 1 }, CKL_F16 },
                 { { 4, 16, 1 }, CKL_BF16 },
                 { { 2, 64, 1 }, CKL_F64 },
                 { { 10, 8, 1 }, CKL_E4M3 },
                 { { 12, 8, 1 }, CKL_E5M2 },
                 { { 0, 64, 1 }, CKL_I64 },
                 { { 0, 32, 1 }, CKL_I32 },
                 { { 0, 16, 1 }, CKL_I16 },
                 { { 0, 8, 1 }, CKL_I8 },
                 { { 1, 8, 1 }, CKL_U8 },
                 { { 6, 8, 1 }, CKL_BOOL },
                 { { 2, 32, 2 }, CKL_DTYPE_DEFAULT },
                 { { 1, 32, 1 }, CKL_DTYPE_DEFAULT } };
    for (int i = 0; i < COUNT_OF(rows); i++)
        assert_int_equal(value_dtype(rows[i].type), rows[i].wanted);
}

TEST(spans)
{
    int64_t sizes[] = { 2, 3, 4 }, strides[] = { 100, 7, 2 }, none[] = { 2, 0, 4 }, back[] = { 100, -7, 2 },
            again[] = { 100, 0, 2 };
    DLTensor t = { .ndim = 3, .dtype = { kDLFloat, 16, 1 }, .shape = sizes };
    assert_int_equal(value_span(&t), 24 * 2);
    t.strides = strides;
    assert_int_equal(value_span(&t), (100 + 14 + 6 + 1) * 2);
    t.strides = again;
    assert_int_equal(value_span(&t), (100 + 6 + 1) * 2);
    t.strides = back;
    assert_int_equal(value_span(&t), -1);
    t.shape = none;
    assert_int_equal(value_span(&t), 0);
    t.ndim = 0;
    assert_int_equal(value_span(&t), 2);
}

/* Tensors on the host are copied, be they a single byte. */
TEST(one_byte)
{
    int64_t one = 1;
    uint8_t x = 3, y = 0;
    DLTensor X = { .data = &x, .device = { kDLCPU, 0 }, .ndim = 1, .dtype = { kDLUInt, 8, 1 }, .shape = &one }, Y = X;
    Y.data = &y;
    assert_int_equal(CALL(elementwise, TEXT("expr=x+x shape=1 dtype=u8"), TENSOR(&X), NONE, NONE, NONE, TENSOR(&Y)), 0);
    assert_int_equal(y, 6);
}

/* An output without modes is a tensor, and an input that the problem has not is refused with the reason. */
TEST(no_modes)
{
    float x[6] = { 1, 2, 3, 4, 5, 6 }, y = 0;
    DLTensor X = matrix(x, NULL), Y = matrix(&y, NULL);
    Y.ndim = 0;
    assert_int_equal(CALL(reduce, TEXT("shape=2x3"), TENSOR(&X), TENSOR(&Y)), 0);
    assert_float_equal(y, 21, 0);
    FAILS("ValueError", "reduce: y is not a tensor", CALL(reduce, TEXT("shape=2x3"), TENSOR(&X), FLOAT(1)));
    FAILS("ValueError", " is not part of ",
          CALL(elementwise, TEXT("expr=relu(x) shape=2x3"), TENSOR(&X), TENSOR(&Y), NONE, NONE, TENSOR(&X)));
}

/* What a problem wants on the host lies where everything does. */
TEST(host_tensor)
{
    float a[6] = { 1, 2, 3, 4, 5, 6 }, b[8] = { 1, 0, 0, 1, 0, 1, 1, 0 }, d[6] = { 0 };
    const float wanted[6] = { 1, 2, 4, 3, 6, 5 };
    int32_t offsets[3] = { 0, 1, 3 };
    int64_t rows[] = { 3, 2 }, squares[] = { 2, 2, 2 }, three[] = { 3 };
    DLTensor A = matrix(a, NULL), B = matrix(b, NULL), D = matrix(d, NULL), O = matrix(NULL, NULL);
    A.shape = D.shape = rows;
    B.shape = squares, B.ndim = 3;
    O.data = offsets, O.shape = three, O.ndim = 1, O.dtype = (DLDataType){ kDLInt, 32, 1 };
    assert_int_equal(CALL(gemm, TEXT("m=3 n=2 k=2 a=f32 groups=2 host_offsets=1"), TENSOR(&A), TENSOR(&B), NONE, NONE,
                          TENSOR(&D), NONE, NONE, NONE, NONE, NONE, NONE, TENSOR(&O)),
                     0);
    assert_memory_equal(d, wanted, sizeof d);
}

/* A refusal names the caller's memory, and not its copy. */
TEST(misaligned)
{
    float a[7] = { 0 }, y[6];
    DLTensor A = matrix(a, NULL), Y = matrix(y, NULL);
    char sentence[96];
    A.byte_offset = 1;
    snprintf(sentence, sizeof sentence, "add: a=%p is not aligned to its 4-byte elements", (void *)((char *)a + 1));
    FAILS("ValueError", sentence, CALL(add, TEXT("n=6"), TENSOR(&A), TENSOR(&Y), TENSOR(&Y)));
}

TEST(refusals)
{
    float a[6] = { 0 };
    DLTensor A = matrix(a, NULL), gpu = A, half = A, bytes = A, back = matrix(a, (int64_t[]){ -3, 1 });
    gpu.device.device_type = 8;
    half.dtype.bits = 16;
    bytes.dtype = (DLDataType){ kDLUInt, 8, 1 };
#define ADD(line, x) CALL(add, TEXT(line), TENSOR(x), TENSOR(&A), TENSOR(&A))
    FAILS("ValueError", "add: a is of f16, the problem says f32", ADD("n=6", &half));
    FAILS("ValueError", "add: a is of u8, the problem says f32", ADD("n=6", &bytes));
    FAILS("ValueError", "add: a has memory of 24 bytes, the problem needs 28", ADD("n=7", &A));
    FAILS("ValueError", "add: a has negative strides", ADD("n=6", &back));
    FAILS("ValueError", "argument 2 lies on another device", ADD("n=6", &gpu));
    FAILS("ValueError", "device type 8 are not taken", CALL(add, TEXT("n=6"), TENSOR(&gpu)));
    gpu.device = (DLDevice){ kDLCUDA, 64 };
    FAILS("ValueError", "device: GPU 64 is not in 0..63", CALL(add, TEXT("n=6"), TENSOR(&gpu)));
    gpu.device.device_id = 0; // may be there or not
    assert_int_equal(CALL(add, TEXT("n=6"), TENSOR(&gpu)), -1);
    assert_omits(ckl_error(), "is not in 0..63");
    FAILS("ValueError", "add: y is NULL", CALL(add, TEXT("n=6"), TENSOR(&A), TENSOR(&A)));
    FAILS("ValueError", "add: a is not a tensor", CALL(add, TEXT("n=6"), FLOAT(1), TENSOR(&A), TENSOR(&A)));
    FAILS("ValueError", "no tensor among the arguments", CALL(add, TEXT("n=6"), NONE));
    FAILS("ValueError", "up to 5 arguments, not 6", CALL(add, TEXT("n=6"), NONE, NONE, NONE, NONE, NONE, NONE));
    FAILS("ValueError", "neither a line nor the", CALL(add, FLOAT(1), TENSOR(&A)));
    FAILS("ValueError", "add: n=-1 is negative", ADD("n=-1", &A));
    FAILS("ValueError", "unknown operator 'ad'", CALL(problem, TEXT("ad"), TEXT("n=6")));
    FAILS("ValueError", "takes 2 arguments, not 1", CALL(problem, TEXT("add")));
    FAILS("ValueError", "add: impl= and config= are not taken here",
          CALL(problem, TEXT("add"), TEXT("n=6 impl=vector")));
    FAILS("ValueError", "add: impl= and config= are not taken here",
          CALL(problem, TEXT("add"), TEXT("n=6 impl=vector config='vec=1'")));
    assert_int_equal(value_status(CKL_UNSUPPORTED), -1);
    assert_string_equal(kind, "NotImplementedError");
    assert_int_equal(value_status(CKL_NO_MEMORY), -1);
    assert_string_equal(kind, "MemoryError");
    assert_int_equal(value_status(CKL_DEVICE_FAULT), -1);
    assert_string_equal(kind, "RuntimeError");
}

/* The args of every operator are its tensors, its numbers and a workspace, and it says their names. */
TEST(operators)
{
    json_error_t error;
    assert_int_equal(__tvm_ffi_ckl_operators(NULL, NULL, 0, &result), 0);
    json_t *list = json_loads(given, 0, &error), *each;
    assert_non_null(list);
    assert_omits(given, "\\u00"); // nothing in it needs to be escaped so
    size_t i;
    json_array_foreach(list, i, each)
    {
        const operator_info *op = operators[i];
        const char *numbers = json_string_value(json_object_get(each, "numbers"));
        size_t slots = json_array_size(json_object_get(each, "tensors")) + (op->workspace != 0), words = 0;
        for (const char *word; field_word(numbers, (int)words, &word) > 0;)
            words++;
        assert_string_equal(json_string_value(json_object_get(each, "name")), op->name);
        assert_int_equal((slots + words) * sizeof(void *), op->args_bytes);
    }
    assert_null(operators[i]);
    json_decref(list);
}

TEST(questions)
{
    assert_int_equal(CALL(problem, TEXT("gemm"), TEXT("m=8 n=8 k=8")), 0);
    assert_int_equal(given_bytes, gemm_operator.desc_bytes);
    char desc[1024];
    memcpy(desc, given, given_bytes);
    TVMFFIByteArray bytes = { desc, given_bytes };
#define DESC { .type_index = kTVMFFIByteArrayPtr, .v_ptr = &bytes }
    assert_int_equal(CALL(tensors, TEXT("gemm"), DESC), 0);
    assert_says(given, "\"name\": \"d\", \"dtype\": \"f16\", \"shape\": [8, 8]");
    assert_says(given, "\"name\": \"a\", \"dtype\": \"f16\", \"shape\": [8, 8], \"stride\": [8, 1], "
                       "\"optional\": false, \"output\": false}");
    assert_says(given, "\"optional\": false, \"output\": true}");
    assert_int_equal(__tvm_ffi_ckl_version(NULL, NULL, 0, &result), 0);
    assert_string_equal(given, ckl_version());
    assert_int_equal(CALL(device, INTEGER(kDLCPU), INTEGER(0)), 0);
    assert_says(given, "\"compute_capability\": 90, \"sm_count\": 132, \"memory_bytes\": ");
    assert_int_equal(CALL(plan, TEXT("gemm"), DESC, INTEGER(kDLCPU), INTEGER(0)), 0);
    assert_int_equal(strncmp(given, "gemm ", 5), 0);
    assert_int_equal(CALL(explain, TEXT("gemm"), DESC, INTEGER(kDLCPU), INTEGER(0)), 0);
    assert_int_equal(strncmp(given, "taken: ", 7), 0);
    assert_says(given, "naive ");
    assert_int_equal(CALL(prepare, INTEGER(kDLCPU), INTEGER(0), TEXT("add n=5\n\nadd n=6")), 0);
    assert_int_equal(CALL(synchronize, INTEGER(kDLCPU), INTEGER(0)), 0);
    FAILS("ValueError", "the name of an operator is missing", CALL(tensors, INTEGER(1), DESC));
    FAILS("ValueError", "the name of an operator is missing",
          CALL(tensors, TEXT("a_name_of_more_letters_than_any_operator_has_and_than_there_is_room_for"), DESC));
    FAILS("ValueError", "a device is two numbers", CALL(synchronize, TEXT("cpu"), INTEGER(0)));
    FAILS("ValueError", "n=-1", CALL(prepare, INTEGER(kDLCPU), INTEGER(0), TEXT("add n=5\nadd n=-1")));
}

static atomic_int calls;
static clockid_t clock_of_calls; // written before the first one

static double seconds_of_calls(void)
{
    struct timespec now;
    assert_int_equal(clock_gettime(clock_of_calls, &now), 0);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static void *call_on(void *user)
{
    float y[6];
    DLTensor X = matrix(user, NULL), Y = matrix(y, NULL);
    TVMFFIAny args[] = { TEXT("n=3 rows=2"), TENSOR(&X), TENSOR(&X), TENSOR(&Y) }, none;
    assert_int_equal(pthread_getcpuclockid(pthread_self(), &clock_of_calls), 0);
    while (!__tvm_ffi_ckl_add(NULL, args, 4, &none))
        atomic_fetch_add(&calls, 1);
    return NULL;
}

/* Calls of another thread do not return any more, those of this one do. The last test: the thread stays. */
TEST(leave)
{
    static float x[6];
    float y[6];
    DLTensor X = matrix(x, NULL), Y = matrix(y, NULL);
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, call_on, x), 0);
    while (!atomic_load(&calls))
        usleep(100);
    assert_int_equal(__tvm_ffi_ckl_leave(NULL, NULL, 0, &result), 0);
    usleep(20000);
    int before = atomic_load(&calls);
    double seconds = seconds_of_calls();
    assert_int_equal(CALL(add, TEXT("n=3 rows=2"), TENSOR(&X), TENSOR(&X), TENSOR(&Y)), 0);
    usleep(20000);
    assert_int_equal(atomic_load(&calls), before);
    assert_true(seconds_of_calls() - seconds < 0.002); // it sleeps
}

int main(void)
{
    int failed = run_enlisted(NULL, NULL);
    free(given);
    return failed;
}
