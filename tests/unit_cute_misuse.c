/* unit_cute_misuse.c - a misused copy or product ends in one sentence: what was found and what was expected. */
#include "unit_emulator.h"

#undef HERE
#include "cute/kernel.h"

static layout block(int rows, int cols)
{
    return make_layout(shape(rows, cols), stride(cols, 1));
}

KERNEL(too_few_values, make_tiled_copy("UniversalCopy<128>", F16, block(8, 4), block(1, 4)))

static void odd_tile(void)
{
    tiled_copy c = make_tiled_copy("UniversalCopy<128>", F16, block(8, 4), block(1, 8));
    partition_S(&c, smem_tensor("x", F16, block(12, 32), 16), thread());
}

static void gaps(void)
{
    tiled_copy c = make_tiled_copy("UniversalCopy<128>", F16, block(8, 4), block(1, 8));
    tensor tXsX = partition_S(&c, smem_tensor("x", F16, compact(shape(8, 32)), 16), thread());
    copy_tiled(&c, tXsX, fragment_like(tXsX, F16));
}

static void load_fragment(const char *atom, int cols)
{
    tiled_copy c = make_tiled_copy(atom, F16, block(8, 4), block(1, 2));
    tensor gX = gmem_tensor(pointer("x"), F16, block(8, cols));
    copy_tiled(&c, partition_S(&c, gX, thread()), fragment(F16, compact(leaf(2))));
}

KERNEL(wrong_way, load_fragment("SM75_U32x1_LDSM_N", 8))
KERNEL(other_size, load_fragment("UniversalCopy<32>", 16))

static void bulk_with_gaps(void)
{
    tensor gX = gmem_tensor(pointer("x"), F32, make_layout(leaf(64), leaf(2)));
    bulk_load(gX, smem_tensor("x", F32, compact(leaf(64)), 128), ir_smem_address(0));
}

KERNEL(no_coordinates, tensor_coordinate(gmem_tensor(pointer("x"), F32, compact(leaf(4))), leaf(0), 0))

static tiled_mma some_mma(const char *atom)
{
    return make_tiled_mma(atom, 1, 1);
}

static void other_pairs(void)
{
    tiled_mma mma = some_mma("SM90_64x64x16_F32F16F16_RS");
    tensor acc = fragment_C(&mma, 64, 64), rA = fragment_A_words(&mma, 64, 32);
    fill(acc, immf(0));
    accumulators_to_A(acc, F16, rA);
}

static void unreadable_tile(void)
{
    tiled_mma mma = some_mma("SM90_64x64x16_F32F16F16_SS");
    tensor sB = smem_tensor("B", F16, compact(shape(64, 64)), 1024); // MN-major, not swizzled
    descriptors_B(&mma, sB);
}

/* MN-major runs of one span: the third is not as far from the second as that is from the first; then columns are. */
static layout uneven(int64_t third, int64_t column)
{
    const int_tuple runs = tuple(leaf(64), tuple(leaf(2), leaf(2))),
                    apart = tuple(leaf(1), tuple(leaf(1024), leaf(third)));
    return with_swizzle((swizzle){ 3, 3, 3 },
                        make_layout(tuple(runs, tuple(leaf(8), leaf(2))), tuple(apart, tuple(leaf(64), leaf(column)))));
}

static void read_uneven(int64_t third, int64_t column)
{
    tiled_mma mma = some_mma("SM90_64x256x16_F32F16F16_SS");
    descriptors_B(&mma, smem_tensor("B", F16, uneven(third, column), 1024));
}

KERNEL(even_runs, read_uneven(2048, 512))
KERNEL(uneven_runs, read_uneven(4096, 512))
KERNEL(uneven_columns, read_uneven(2048, 8192))

static void descriptors_for_fragments(void)
{
    tiled_mma mma = some_mma("SM90_64x64x16_F32F16F16_RS");
    tensor s = smem_tensor("A", F16, tma_tile_layout(F16, 64, 64, 128), 1024), acc = fragment_C(&mma, 64, 64);
    fill(acc, immf(0));
    gemm(&mma, descriptors_A(&mma, s), descriptors_B(&mma, s), acc, yes());
}

TEST(misuse)
{
    static const struct {
        void (*describe)(void);
        const char *sentence;
    } cases[] = {
        { too_few_values, "UniversalCopy<128> does not tile threads and values: they are (" },
        { odd_tile, "UniversalCopy<128> does not tile shared (12,32):(32,1): it must consist of tiles of (8,32)" },
        { gaps, "UniversalCopy<128>: a thread's part is shared ((8,1),1,1):((8,0),0,0); it must consist of vectors" },
        { wrong_way, "SM75_U32x1_LDSM_N does not copy global " },
        { other_size, "UniversalCopy<32> does not copy global ((2,1),1,2):((1,0),0,8) to register 2:1" },
        { bulk_with_gaps, "bulk copy: global 64:2 is not contiguous" },
        { no_coordinates, "coordinate 0 is asked of a tensor that has 0" },
        { other_pairs, "accumulators_to_A: 32 accumulators do not fill 8 pairs of A" },
        { unreadable_tile, "wgmma B: the shared tile is (64,64):(1,64); it must be K-major" },
        { uneven_runs,
          "wgmma B: the shared tile is Sw<3,3,3>o((64,(2,2)),(8,2)):((1,(1024,4096)),(64,512)); it must be" },
        { uneven_columns, "wgmma B: the shared tile is Sw<3,3,3>o((64,(2,2)),(8,2)):((1,(1024,2048)),(64,8192)); it" },
        { descriptors_for_fragments, "wanted are fragments (MMA_M,MMA_K), descriptors (MMA_N,MMA_K)" },
    };
    ir_describe_begin("use", IR_SM90A);
    even_runs();
    assert_ok(ir_describe_end(NULL));
    for (int i = 0; i < COUNT_OF(cases); i++) {
        ir_describe_begin("misuse", IR_SM90A);
        ir_current()->threads = 128;
        cases[i].describe();
        assert_fails(ir_describe_end(NULL), CKL_INTERNAL, cases[i].sentence);
    }
}

RUN_TESTS(NULL, NULL)
