/* unit_limits.c - limits of the hardware from both sides: the last value that is taken, and the next, refused. */
#include "unit.h"
#include "device/device.h"
#include "ir/build.h"
#include "plan/check.h"
#include "skeletons/residency.h"

/* Tensor maps */

/* A map of five modes that is right; each row below changes one field. */
static tensor_map_desc right_map(void)
{
    return (tensor_map_desc){ .dtype = CKL_F16,
                              .rank = 5,
                              .address = (void *)(uintptr_t)4096,
                              .size = { 64, 8, 4, 2, 3 },
                              .stride = { 2, 128, 1024, 4096, 8192 },
                              .box = { 32, 8, 4, 2, 1 },
                              .swizzle = SWIZZLE_64 };
}

#define MEMBER(field) offsetof(tensor_map_desc, field), sizeof(((tensor_map_desc *)0)->field)

typedef struct bound {
    size_t offset, bytes;
    int64_t taken, refused;
    const char *sentence; // of the one that is refused
} bound;

static const bound map_bounds[] = {
    { MEMBER(rank), 5, 6, "rank=6 is not in 1..5" },
    { MEMBER(rank), 1, 0, "rank=0 is not in 1..5" },
    { MEMBER(dtype), CKL_BF16, CKL_DTYPE_DEFAULT, "dtype=default is not an element type" },
    { MEMBER(address), 16, 0, "address=0x0 is not a multiple of 16 above 0" },
    { MEMBER(address), 4112, 4104, "address=0x1008 is not" },
    { MEMBER(size[0]), 1, 0, "size[0]=0 is not in 1..4294967296" },
    { MEMBER(size[0]), INT64_C(1) << 32, (INT64_C(1) << 32) + 1, "size[0]=4294967297 is not" },
    { MEMBER(size[4]), INT64_C(1) << 32, -1, "size[4]=-1 is not" },
    { MEMBER(stride[0]), 1, 2, NULL }, // not read
    { MEMBER(stride[1]), 112, 120, "stride[1]=120 bytes is not a multiple of 16" },
    { MEMBER(stride[1]), 0, -16, "stride[1]=-16 bytes is not in 0..2^40-1" },
    { MEMBER(stride[4]), (INT64_C(1) << 40) - 16, INT64_C(1) << 40, "stride[4]=1099511627776 bytes is not in" },
    { MEMBER(box[1]), 256, 257, "box[1]=257 is not in 1..256" },
    { MEMBER(box[4]), 1, 0, "box[4]=0 is not in 1..256" },
    { MEMBER(box[0]), 32, 40, "box[0]=40 f16 are 80 bytes, more than the swizzle's 64" },
    { MEMBER(box[0]), 24, 20, "box[0]=20 f16 are 40 bytes, not a multiple of 16" },
    { MEMBER(swizzle), 128, 32, "box[0]=32 f16 are 64 bytes, more than the swizzle's 32" },
    { MEMBER(swizzle), 0, 16, "swizzle=16 is none of 0, 32, 64, 128" },
    { MEMBER(l2_promotion), 256, 32, "l2_promotion=32 is none of 0, 64, 128, 256" },
    { MEMBER(step[1]), 8, 9, "step[1]=9 is not in 1..8" },
    { MEMBER(step[0]), 1, 2, "step[0]=2 is not in 1..1" },
};

static ckl_status check_map(const bound *b, int64_t value)
{
    tensor_map_desc map = right_map();
    memcpy((char *)&map + b->offset, &value, b->bytes); // the host is little-endian
    return tensor_map_check(&map);
}

TEST(maps)
{
    for (int i = 0; i < COUNT_OF(map_bounds); i++) {
        const bound *b = &map_bounds[i];
        if (check_map(b, b->taken) != CKL_OK)
            fail_msg("row %d: %s", i, ckl_error());
        ckl_status status = check_map(b, b->refused);
        if (b->sentence ? status != CKL_INVALID || !strstr(ckl_error(), b->sentence) : status != CKL_OK)
            fail_msg("row %d: status %d, %s", i, (int)status, ckl_error());
    }
    tensor_map_desc map = right_map();
    map.rank = 4;
    map.size[4] = map.stride[4] = map.box[4] = -1; // beyond the rank nothing is read
    assert_ok(tensor_map_check(&map));
    map.swizzle = SWIZZLE_NONE;
    map.box[0] = 256;
    assert_ok(tensor_map_check(&map));
}

/* A map has one box, which the kernel may say as often as it likes. */
TEST(boxes)
{
    const ir_tensor_map box = { .dtype = CKL_F16, .rank = 2, .box = { 64, 8, 1, 1, 1 }, .swizzle_bytes = 128 };
    ir_tensor_map other = box;
    other.box[1] = 16;
    for (int wrong = 0; wrong < 3; wrong++) {
        ir_kernel *kernel = NULL;
        ir_describe_begin("boxes", IR_SM90A);
        val n = ir_scalar_param(IR_U32, "n"), map = ir_tensor_map_param("map");
        ir_tensor_map_set(map, box);
        ir_tensor_map_set(map, box);
        if (wrong)
            ir_tensor_map_set(wrong == 1 ? map : n, other);
        assert_int_equal(ir_describe_end(&kernel), wrong ? CKL_INTERNAL : CKL_OK);
        if (wrong)
            assert_says(ckl_error(), wrong == 1 ? "tensor map map: two boxes" : "is no tensor map parameter");
        else
            assert_memory_equal(&kernel->params[1].map, &box, sizeof box);
        ir_kernel_free(kernel);
    }
}

/* Kernels */

static const ckl_device_info hopper = { .id = "hopper",
                                        .compute_capability = 90,
                                        .threads_per_cta_max = 512,
                                        .smem_per_cta_bytes = 1000,
                                        .has_tma = true,
                                        .has_wgmma = true };

static void expect_limit(ckl_device_info info, ir_kernel kernel, const char *sentence)
{
    kernel.name = "k";
    ckl_status status = device_check_limits(&info, &kernel);
    if (!sentence)
        assert_ok(status);
    else
        assert_fails(status, CKL_UNSUPPORTED, sentence);
}

TEST(kernels)
{
    ckl_device_info old = hopper;
    old.has_tma = old.has_wgmma = false;
    old.compute_capability = 80;
    expect_limit(hopper, (ir_kernel){ .threads = 512, .cluster = 16, .smem_bytes = 1000, .target = IR_SM90A }, NULL);
    expect_limit(hopper, (ir_kernel){ .threads = 513, .cluster = 1 }, "k: needs 513 threads per CTA, hopper has 512");
    expect_limit(hopper, (ir_kernel){ .threads = 32, .cluster = 17 }, "k: needs clusters of 17 CTAs, hopper takes 16");
    expect_limit(old, (ir_kernel){ .threads = 32, .cluster = 1 }, NULL);
    expect_limit(old, (ir_kernel){ .threads = 32, .cluster = 2 }, "k: needs clusters of 2 CTAs, hopper takes 1");
    expect_limit(old, (ir_kernel){ .threads = 32, .cluster = 2, .target = IR_SM90 },
                 "k: is made for sm_90, hopper is sm_80 and has no TMA");
    expect_limit(old, (ir_kernel){ .threads = 32, .cluster = 1, .target = IR_SM90A },
                 "k: is made for sm_90a, hopper is sm_80 and has no wgmma");
}

/* A tensor spans up to 2^56 bytes, and as many elements, whichever of its modes it is. */
TEST(extents)
{
    const int64_t most = INT64_C(1) << 56;
    for (int mode = 0; mode < 3; mode++)
        for (int beyond = 0; beyond < 2; beyond++) {
            int64_t shape[] = { 1, 1, 1 }, stride[] = { 1, 1, 1 };
            shape[mode] = 2;
            stride[mode] = most / 4 - 1 + beyond;
            plan_tensor all[] = { plan_vector("x", CKL_F32, 8), plan_strided("y", CKL_F32, 3, shape, stride) };
            assert_int_equal(plan_tensor_bytes(&all[1]), most + 4 * beyond);
            assert_int_equal(plan_check_extents("op", all, 2), beyond ? CKL_INVALID : CKL_OK);
            if (beyond)
                assert_says(ckl_error(), "spans more than 2^56 bytes");
            assert_ok(plan_check_extents("op", all, 1));
            shape[mode] = most + beyond; // one element, many times
            stride[mode] = 0;
            all[1] = plan_strided("y", CKL_U8, 3, shape, stride);
            assert_int_equal(plan_tensor_bytes(&all[1]), 1);
            assert_int_equal(plan_check_extents("op", all, 2), beyond ? CKL_INVALID : CKL_OK);
            shape[(mode + 1) % 3] = 0; // no element
            all[1] = plan_strided("y", CKL_U8, 3, shape, stride);
            assert_int_equal(plan_tensor_bytes(&all[1]), 0);
            assert_ok(plan_check_extents("op", all, 2));
        }
}

/* CTAs of an SM of 228 KiB: each takes 1 KiB more than it asks for, and 56 registers a thread. */
TEST(residency)
{
    enum { KIB = 1 << 10 };
    const ckl_device_info sm = { .smem_per_sm_bytes = 228 * KIB, .registers_per_sm = 65536 };
    assert_int_equal(residency_ctas_per_sm(&sm, 128, 75 * KIB), 3);
    assert_int_equal(residency_ctas_per_sm(&sm, 128, 75 * KIB + 1), 2);
    assert_int_equal(residency_ctas_per_sm(&sm, 128, 227 * KIB), 1);
    assert_int_equal(residency_ctas_per_sm(&sm, 128, 300 * KIB), 1); // never none
    assert_int_equal(residency_ctas_per_sm(&sm, 128, 0), 9);         // 65536 / (56 * 128)
    assert_int_equal(residency_ctas_per_sm(&sm, 130, 0), 9);
    assert_int_equal(residency_ctas_per_sm(&sm, 131, 0), 8);
    assert_int_equal(residency_ctas_per_sm(&sm, 1024, 0), 1);
}

/* The three largest allocations are named, the first of equal ones first. */
TEST(shared_memory)
{
    ir_smem smem[] = {
        { "small", 0, 10, 1 }, { "first", 10, 300, 1 }, { "large", 310, 400, 1 }, { "second", 710, 300, 1 }
    };
    ir_kernel kernel = { .threads = 32, .cluster = 1, .smem_bytes = 1010, .smem = smem, .smem_count = COUNT_OF(smem) };
    expect_limit(
        hopper, kernel,
        "k: needs 1010 bytes of shared memory, hopper has 1000 per CTA: 10 bytes too many; the largest are large=400, "
        "first=300, second=300");
    assert_omits(ckl_error(), "small");
    kernel.smem_count = 1;
    expect_limit(hopper, kernel, "10 bytes too many; the largest are small=10");
    kernel.smem_count = 0;
    expect_limit(hopper, kernel, "10 bytes too many");
    assert_omits(ckl_error(), "largest");
}

RUN_TESTS(NULL, NULL)
