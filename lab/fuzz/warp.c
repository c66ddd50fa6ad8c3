/* warp.c - what the lanes of a warp tell each other; all of them are there. */
#include "lab/fuzz/program.h"

#include "ir/rules.h"

static const uint32_t words =
    TYPE_SET(CKL_I32) | TYPE_SET(IR_U32) | TYPE_SET(CKL_F32) | TYPE_SET(IR_F16X2) | TYPE_SET(IR_BF16X2);

void do_shuffle(program *p)
{
    ir_at("shuffle", 1);
    val lane = chance(p, 2) ? ir_u32(choose(p, 32)) : pick_register(p, IR_U32);
    val x = pick_register(p, choose_type(p, words));
    keep(p, ir_shuffle((ir_shuffle_kind)choose(p, 4), x, lane));
}

void do_vote(program *p)
{
    ir_at("vote", 1);
    val voted = pick_register(p, IR_PRED);
    keep(p, ir_vote((ir_vote_kind)choose(p, 3), voted));
}

void do_redux(program *p)
{
    ir_at("redux", 1);
    val x = pick_register(p, chance(p, 2) ? CKL_I32 : IR_U32);
    keep(p, ir_redux((ir_reduction)choose(p, IR_RED_OR + 1), x));
}

/* Which lane is elected is not promised, only that it is one. */
void do_elect(program *p)
{
    ir_at("elect", 1);
    val one = ir_select(ir_elect(), ir_u32(1), ir_u32(0));
    keep(p, ir_redux(IR_RED_ADD, one));
}

void do_warp_sync(program *p)
{
    (void)p;
    ir_at("warp_sync", 1);
    ir_plain(IR_WARP_SYNC, 0, 0);
}

/* The number of the program in its batch, the size of the grid and the clock are not the same in every launch of it. */
void do_special(program *p)
{
    static const ir_sreg_kind some[] = { IR_TID_X, IR_LANE, IR_WARP, IR_CTA_Y, IR_CTA_Z, IR_GRID_Y, IR_GRID_Z };
    ir_at("special", 1);
    keep(p, ir_sreg(some[choose(p, (int)(sizeof some / sizeof *some))]));
}
