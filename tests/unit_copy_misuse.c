/* unit_copy_misuse.c - a misused copy ends in one sentence that names what was found and what was expected. */
#include "unit_emulator.h"

#undef HERE
#include "cute/kernel.h"

static layout block(int rows, int cols)
{
    return make_layout(shape(rows, cols), stride(cols, 1));
}

KERNEL(unknown_atom, make_tiled_copy("UniversalCopy<24>", F16, block(8, 4), block(1, 8)))
KERNEL(atom_of_boxes, make_tiled_copy("SM90_TMA_LOAD", F16, block(8, 4), block(1, 8)))
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

static void wrong_way(void)
{
    tiled_copy c = make_tiled_copy("SM75_U32x1_LDSM_N", F16, block(8, 4), block(1, 2));
    tensor gX = gmem_tensor(pointer("x"), F16, block(8, 8));
    copy_tiled(&c, partition_S(&c, gX, thread()), fragment(F16, compact(leaf(2))));
}

static void other_size(void)
{
    tiled_copy c = make_tiled_copy("UniversalCopy<32>", F16, block(8, 4), block(1, 2));
    tensor gX = gmem_tensor(pointer("x"), F16, block(8, 16));
    copy_tiled(&c, partition_S(&c, gX, thread()), fragment(F16, compact(leaf(2))));
}

static void bulk_with_gaps(void)
{
    tensor gX = gmem_tensor(pointer("x"), F32, make_layout(leaf(64), leaf(2)));
    bulk_load(gX, smem_tensor("x", F32, compact(leaf(64)), 128), ir_smem_address(0));
}

KERNEL(no_coordinates, tensor_coordinate(gmem_tensor(pointer("x"), F32, compact(leaf(4))), leaf(0), 0))

TEST(misuse)
{
    static const struct {
        void (*describe)(void);
        const char *sentence;
    } cases[] = {
        { unknown_atom, "there is no copy atom UniversalCopy<24>" },
        { atom_of_boxes, "SM90_TMA_LOAD: one thread copies whole tiles, by tma_load()" },
        { too_few_values, "UniversalCopy<128> does not tile threads and values: they are (" },
        { odd_tile, "UniversalCopy<128> does not tile shared (12,32):(32,1): it must consist of tiles of (8,32)" },
        { gaps, "UniversalCopy<128>: a thread's part is shared ((8,1),1,1):((8,0),0,0); it must consist of vectors" },
        { wrong_way, "SM75_U32x1_LDSM_N does not copy global " },
        { other_size, "UniversalCopy<32> does not copy global ((2,1),1,2):((1,0),0,8) to register 2:1" },
        { bulk_with_gaps, "bulk copy: global 64:2 is not contiguous" },
        { no_coordinates, "coordinate 0 is asked of a tensor that has 0" },
    };
    for (int i = 0; i < COUNT_OF(cases); i++) {
        ir_describe_begin("misuse", IR_SM90A);
        ir_current()->threads = 32;
        cases[i].describe();
        assert_fails(ir_describe_end(NULL), CKL_INTERNAL, cases[i].sentence);
    }
}

RUN_TESTS(NULL, NULL)
