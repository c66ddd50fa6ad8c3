/* ptx_rows.c - the PTX of every op; ptx_rows.h explains the templates. */
#include "ir/ptx_rows.h"

#define SET(type) (1u << (type))

enum {
    PRED = SET(IR_PRED),
    BITS8 = SET(CKL_I8) | SET(CKL_U8) | SET(CKL_BOOL),
    BITS16 = SET(CKL_I16) | SET(IR_U16),
    BITS32 = SET(CKL_I32) | SET(IR_U32),
    BITS64 = SET(CKL_I64) | SET(IR_U64),
    INT = BITS16 | BITS32 | BITS64,
    UNSIGNED = SET(IR_U16) | SET(IR_U32) | SET(IR_U64),
    F8 = SET(CKL_E4M3) | SET(CKL_E5M2),
    F16 = SET(CKL_F16),
    BF16 = SET(CKL_BF16),
    F32 = SET(CKL_F32),
    BF16X2 = SET(IR_BF16X2),
    PAIR = SET(IR_F16X2) | BF16X2,
};

#define ROWS(...)        \
    (const ptx_row[])    \
    {                    \
        __VA_ARGS__,     \
        {                \
            .text = NULL \
        }                \
    }
#define PLAIN(text) ROWS({ 0, 0, 0, text })

/* The f32 of a bf16: the same bits, higher. */
#define F32_FROM_BF16(to, x) "mov.b16 %th0, 0; mov.b32 " to ", {%th0, " x "}"

/* An 8-bit float in the low byte of $X, as f16 in %th0. */
#define F16_FROM_F8 "cvt.rn.f16x2.$fx2 %tr0, $X; mov.b32 {%th0, %th1}, %tr0"

/*
 * An 8-bit float is the low byte of its register. Masking it keeps ptxas 13.0 from rounding into a pair with another
 * 16-bit value, which it would then take from the wrong half.
 */
#define LOW_BYTE "; and.b16 $d, $d, 255"

#define TMA_LOAD   "cp.async.bulk.tensor.$nd.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
#define TMA_PIXELS "cp.async.bulk.tensor.$nd.shared::cluster.global.im2col.mbarrier::complete_tx::bytes"
#define TMA_BOX    " [$a], [$Y, {$C}], [$Z]"
#define WGMMA      "wgmma.mma_async.sync.aligned.m64n$n"
#define MMA        "mma.sync.aligned.m16n8"
#define ALL_LANES  "0xffffffff"

/* sm_80 has only fma for bf16; x*1+y, y*-1+x and x*y-0 round once, as add, sub and mul do. */
static const ptx_row *const rows[IR_OP_COUNT] = {
    [IR_MOV] = PLAIN("mov.$m $d, $x"),
    [IR_ADD] = ROWS({ INT, 0, 0, "add.$t $d, $x, $y" },
                    { F32, 0, 0, "add.rn.$t $d, $x, $y" }, // without .rn, ptxas may fuse it with a product
                    { BF16X2, 0, PTX_SM80, "mov.b32 %tr0, 0x3f803f80; fma.rn.bf16x2 $d, $X, %tr0, $Y" },
                    { PAIR, 0, 0, "add.rn.$t $d, $X, $Y" }),
    [IR_SUB] = ROWS({ INT, 0, 0, "sub.$t $d, $x, $y" }, { F32, 0, 0, "sub.rn.$t $d, $x, $y" },
                    { BF16X2, 0, PTX_SM80, "mov.b32 %tr0, 0xbf80bf80; fma.rn.bf16x2 $d, $Y, %tr0, $X" },
                    { PAIR, 0, 0, "sub.rn.$t $d, $X, $Y" }),
    [IR_MUL] = ROWS({ INT, 0, 0, "mul.lo.$t $d, $x, $y" }, { F32, 0, 0, "mul.rn.$t $d, $x, $y" },
                    { BF16X2, 0, PTX_SM80, "mov.b32 %tr0, 0x80008000; fma.rn.bf16x2 $d, $X, $Y, %tr0" },
                    { PAIR, 0, 0, "mul.rn.$t $d, $X, $Y" }),
    [IR_FMA] = ROWS({ INT, 0, 0, "mad.lo.$t $d, $x, $y, $z" }, { F32, 0, 0, "fma.rn.$t $d, $x, $y, $z" },
                    { PAIR, 0, 0, "fma.rn.$t $d, $X, $Y, $Z" }),
    [IR_MUL_HI] = ROWS({ 0, 0, 0, "mul.hi.$t $d, $x, $y" }),
    [IR_DIV] = ROWS({ INT, 0, 0, "div.$t $d, $x, $y" }, { F32, 0, 0, "div.rn.$t $d, $x, $y" }),
    [IR_REM] = ROWS({ INT, 0, 0, "rem.$t $d, $x, $y" }),
    [IR_MIN] = ROWS({ INT, 0, 0, "min.$t $d, $x, $y" }, { F32, 0, 0, "min$o.$t $d, $x, $y" }),
    [IR_MAX] = ROWS({ INT, 0, 0, "max.$t $d, $x, $y" }, { F32, 0, 0, "max$o.$t $d, $x, $y" }),
    [IR_NEG] = ROWS({ INT, 0, 0, "neg.$s $d, $x" }, { F32, 0, 0, "neg.$t $d, $x" }),
    [IR_ABS] = ROWS({ UNSIGNED, 0, 0, "mov.$m $d, $x" }, { INT | F32, 0, 0, "abs.$t $d, $x" }),
    [IR_NOT] = ROWS({ INT, 0, 0, "not.$B $d, $x" }, { PRED, 0, 0, "not.pred $d, $X" }),
    [IR_AND] = ROWS({ INT, 0, 0, "and.$B $d, $x, $y" }, { PRED, 0, 0, "and.pred $d, $X, $Y" }),
    [IR_OR] = ROWS({ INT, 0, 0, "or.$B $d, $x, $y" }, { PRED, 0, 0, "or.pred $d, $X, $Y" }),
    [IR_XOR] = ROWS({ INT, 0, 0, "xor.$B $d, $x, $y" }, { PRED, 0, 0, "xor.pred $d, $X, $Y" }),
    [IR_SHL] = ROWS({ INT, 0, 0, "shl.$B $d, $x, $y" }),
    [IR_SHR] = ROWS({ INT, 0, 0, "shr.$t $d, $x, $y" }),
    [IR_AND_OR] = PLAIN("lop3.b32 $d, $X, $y, $z, 0xea"), // of one register: bench/notes/ptxas.md
    [IR_PRMT] = PLAIN("prmt.b32 $d, $X, $Y, $z"),
    [IR_COMPARE] = ROWS({ INT, 0, 0, "setp.$o.$t $d, $x, $y" }, { F32, 0, PTX_MODE, "setp.neu.$t $d, $x, $y" },
                        { F32, 0, 0, "setp.$o.$t $d, $x, $y" }),
    [IR_SELECT] = ROWS(
        { PRED, 0, 0, "and.pred %tp0, $X, $Y; not.pred %tp1, $X; and.pred %tp1, %tp1, $Z; or.pred $d, %tp0, %tp1" },
        { 0, 0, 0, "selp.$m $d, $y, $z, $X" }),
    [IR_CONVERT] = ROWS(
        { INT, INT, 0, "cvt.$t.$f $d, $X" }, { INT, PRED, 0, "selp.$B $d, 1, 0, $X" },
        { F32, PRED, 0, "selp.f32 $d, 0f3f800000, 0f00000000, $X" }, { F16, PRED, 0, "selp.b16 $d, 0x3c00, 0, $X" },
        { BF16, PRED, 0, "selp.b16 $d, 0x3f80, 0, $X" }, { INT, F32 | F16, 0, "cvt.rzi.$t.$f $d, $X" },
        { INT, BF16, 0, F32_FROM_BF16("%tf0", "$X") "; cvt.rzi.$t.f32 $d, %tf0" },
        { F32 | F16, INT, 0, "cvt.rn.$t.$f $d, $X" }, { BF16, INT, PTX_SM90, "cvt.rn.bf16.$f $d, $X" },
        { BF16, INT, 0, "cvt.rn.f32.$f %tf0, $X; cvt.rn.bf16.f32 $d, %tf0" }, // rounds twice beyond 2^24
        { F32, F16, 0, "cvt.$t.f16 $d, $X" }, { F16 | BF16, F32, 0, "cvt.rn.$t.f32 $d, $X" },
        { F32, BF16, 0, F32_FROM_BF16("$d", "$X") },
        { F16, BF16, 0, F32_FROM_BF16("%tf0", "$X") "; cvt.rn.f16.f32 $d, %tf0" },
        { BF16, F16, 0, "cvt.f32.f16 %tf0, $X; cvt.rn.bf16.f32 $d, %tf0" },
        { SET(IR_F16X2), F8, PTX_SM90, "cvt.rn.f16x2.$fx2 $d, $X" },
        { F16, F8, PTX_SM90, F16_FROM_F8 "; mov.b16 $d, %th0" },
        { F32, F8, PTX_SM90, F16_FROM_F8 "; cvt.f32.f16 $d, %th0" },
        { BF16, F8, PTX_SM90, F16_FROM_F8 "; cvt.f32.f16 %tf0, %th0; cvt.rn.bf16.f32 $d, %tf0" },
        { F8, F32, PTX_SM90, "cvt.rn.satfinite.$tx2.f32 $d, 0f00000000, $X" LOW_BYTE },
        { F8, F16, PTX_SM90,
          "mov.b16 %th0, 0; mov.b32 %tr0, {$X, %th0}; cvt.rn.satfinite.$tx2.f16x2 $d, %tr0" LOW_BYTE },
        { F8, BF16, PTX_SM90,
          F32_FROM_BF16("%tf0", "$X") "; cvt.rn.satfinite.$tx2.f32 $d, 0f00000000, %tf0" LOW_BYTE }),
    [IR_BITCAST] = PLAIN("mov.$B $d, $X"),
    [IR_PACK] =
        ROWS({ PAIR, F32, 0, "cvt.rn.$t.f32 $d, $Y, $X" }, // the first source goes to the high half
             { PAIR, F16 | BF16, 0, "mov.b32 $d, {$X, $Y}" },
             { BITS32, BITS16 | F16 | BF16, 0, "mov.b32 $d, {$X, $Y}" }, { BITS64, BITS32, 0, "mov.b64 $d, {$X, $Y}" }),
    [IR_UNPACK] =
        ROWS({ F16 | BF16 | BITS16, PAIR | BITS32, 0, "mov.b32 {$d, $e}, $X" },
             { F32, SET(IR_F16X2), 0, "mov.b32 {%th0, %th1}, $X; cvt.f32.f16 $d, %th0; cvt.f32.f16 $e, %th1" },
             { F32, BF16X2, 0, "shl.b32 $d, $X, 16; and.b32 $e, $X, 0xffff0000" },
             { BITS32, BITS64, 0, "mov.b64 {$d, $e}, $X" }),
    [IR_SQRT] = ROWS({ F32, 0, 0, "sqrt.rn.$t $d, $x" }),
    [IR_RSQRT] = ROWS({ F32, 0, 0, "rsqrt.approx.f32 $d, $x" }),
    [IR_RCP_APPROX] = ROWS({ F32, 0, PTX_MODE, "rcp.approx.ftz.f32 $d, $x" }, { F32, 0, 0, "rcp.approx.f32 $d, $x" }),
    [IR_EX2] = ROWS({ F32, 0, PTX_MODE, "ex2.approx.ftz.f32 $d, $x" }, { F32, 0, 0, "ex2.approx.f32 $d, $x" }),
    [IR_LG2] = ROWS({ F32, 0, 0, "lg2.approx.f32 $d, $x" }),
    [IR_SIN] = ROWS({ F32, 0, 0, "sin.approx.f32 $d, $x" }),
    [IR_COS] = ROWS({ F32, 0, 0, "cos.approx.f32 $d, $x" }),
    [IR_SREG] = PLAIN("mov.b32 $d, $o"),
    [IR_PARAM] = ROWS({ 0, 0, PTX_TENSOR_MAP, "mov.b64 $d, param_$P; cvta.param.u64 $d, $d" },
                      { 0, 0, 0, "ld.param.$E $d, [param_$P]" }),

    [IR_LD] = ROWS({ 0, 0, PTX_STRONG, "ld$l.$k.$g.$E $D, [$a]" }, { 0, 0, 0, "ld.$g$c$N.$E $D, [$a]$i" }),
    [IR_ST] = ROWS({ 0, 0, PTX_STRONG, "st$l.$k.$g.$E [$a], $S" }, { 0, 0, 0, "st.$g$c$N.$E [$a], $S$i" }),
    [IR_ATOM] = PLAIN("atom$l.$k.$g.$r $d, [$a], $Y"),
    [IR_RED] = PLAIN("red$l.$k.$g.$r [$a], $Y"),
    [IR_ST_ASYNC] = PLAIN("st.async.shared::cluster.mbarrier::complete_tx::bytes.$B [$a], $Z, [$Y]"),
    /*
     * NOTE: filling L2 by 256 bytes makes transposes of odd rows 1 to 3 % faster, and decode 2 to 10 % slower (H200;
     * bench/notes/permute.md, attention.md).
     */
    [IR_CP_ASYNC] = ROWS({ 0, 0, PTX_WIDE | PTX_MODE, "cp.async.cg.shared::cta.global [$a], [$Y], 16, $z" },
                         { 0, 0, PTX_WIDE, "cp.async.cg.shared::cta.global.L2::256B [$a], [$Y], 16, $z" },
                         { 0, 0, 0, "cp.async.ca.shared::cta.global [$a], [$Y], $n, $z" }),
    [IR_CP_ASYNC_COMMIT] = PLAIN("cp.async.commit_group"),
    [IR_CP_ASYNC_WAIT] = PLAIN("cp.async.wait_group $n"),
    [IR_FENCE] = PLAIN("fence.acq_rel.$k"),
    [IR_FENCE_PROXY_ASYNC] =
        ROWS({ 0, 0, PTX_MODE, "fence.proxy.async.global" }, { 0, 0, 0, "fence.proxy.async.shared::cta" }),
    [IR_FENCE_MBARRIER_INIT] = PLAIN("fence.mbarrier_init.release.cluster"),

    [IR_BULK_LOAD] = PLAIN("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [$a], [$Y], $z, [$U]"),
    [IR_BULK_STORE] = PLAIN("cp.async.bulk.global.shared::cta.bulk_group [$X], [$b], $z"),
    [IR_TMA_LOAD] = ROWS({ 0, 0, PTX_MODE | PTX_MULTICAST, TMA_PIXELS ".multicast::cluster$c" TMA_BOX ", {$O}, $M$i" },
                         { 0, 0, PTX_MODE, TMA_PIXELS "$c" TMA_BOX ", {$O}$i" },
                         { 0, 0, PTX_MULTICAST, TMA_LOAD ".multicast::cluster$c" TMA_BOX ", $M$i" },
                         { 0, 0, 0, TMA_LOAD "$c" TMA_BOX "$i" }),
    [IR_TMA_STORE] = ROWS(
        { 0, 0, PTX_MODE, "cp.reduce.async.bulk.tensor.$nd.global.shared::cta.add.tile.bulk_group [$X, {$C}], [$b]" },
        { 0, 0, 0, "cp.async.bulk.tensor.$nd.global.shared::cta.tile.bulk_group [$X, {$C}], [$b]" }),
    [IR_BULK_COMMIT] = PLAIN("cp.async.bulk.commit_group"),
    [IR_BULK_WAIT] =
        ROWS({ 0, 0, PTX_MODE, "cp.async.bulk.wait_group.read $n" }, { 0, 0, 0, "cp.async.bulk.wait_group $n" }),
    [IR_TMA_PREFETCH] = PLAIN("prefetch.tensormap [$X]"),
    [IR_BULK_PREFETCH] = ROWS({ 0, 0, PTX_SM80, "" }, { 0, 0, 0, "cp.async.bulk.prefetch.L2.global [$X], $y" }),
    [IR_PREFETCH] = ROWS({ 0, 0, PTX_SM80, "" }, { 0, 0, 0, "prefetch.global.L2 [$X]" }),
    [IR_DISCARD] = PLAIN("discard.global.L2 [$X], 128"),

    /*
     * NOTE: an arrival at a peer's barrier carries no .release.cluster. The default semantics order this thread's
     * earlier accesses, and with the qualifier ptxas puts MEMBAR.ALL.GPU into the main loop: 645 instead of 779
     * TFLOP/s (8192^3 GEMM, H200).
     */
    [IR_MBARRIER_INIT] = PLAIN("mbarrier.init.shared::cta.b64 [$a], $y"),
    [IR_MBARRIER_ARRIVE] = PLAIN("mbarrier.arrive.$g.b64 _, [$a]"),
    [IR_MBARRIER_EXPECT] = PLAIN("mbarrier.arrive.expect_tx.shared::cta.b64 _, [$a], $y"),
    [IR_MBARRIER_WAIT] =
        ROWS({ 0, 0, PTX_SM80, "WAIT$j: mbarrier.test_wait.parity.shared::cta.b64 %tp0, [$a], $y; @!%tp0 bra WAIT$j" },
             { 0, 0, PTX_CLUSTER,
               "WAIT$j: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %tp0, [$a], $y; @!%tp0 bra WAIT$j" },
             { 0, 0, 0, "WAIT$j: mbarrier.try_wait.parity.shared::cta.b64 %tp0, [$a], $y; @!%tp0 bra WAIT$j" }),

    [IR_BAR_SYNC] = PLAIN("bar.sync $x, $n"),
    [IR_BAR_ARRIVE] = PLAIN("bar.arrive $x, $n"),
    [IR_CLUSTER_ARRIVE] = PLAIN("barrier.cluster.arrive.release.aligned"),
    [IR_CLUSTER_WAIT] = PLAIN("barrier.cluster.wait.acquire.aligned"),
    [IR_MAPA] = PLAIN("mapa.shared::cluster.u32 $d, $X, $y"),
    [IR_WARP_SYNC] = PLAIN("bar.warp.sync " ALL_LANES),
    [IR_SHUFFLE] = PLAIN("shfl.sync.$o.b32 $d, $X, $y, $h, " ALL_LANES),
    [IR_VOTE] = ROWS({ PRED, 0, 0, "vote.sync.$o.pred $d, $X, " ALL_LANES },
                     { 0, 0, 0, "vote.sync.$o.b32 $d, $X, " ALL_LANES }),
    [IR_REDUX] = ROWS({ BITS32, 0, 0, "redux.sync.$r $d, $X, " ALL_LANES }),
    [IR_ELECT] = ROWS({ 0, 0, PTX_SM80, "mov.b32 %tr0, %laneid; setp.eq.u32 $d, %tr0, 0" },
                      { 0, 0, 0, "elect.sync _|$d, " ALL_LANES }),

    [IR_LDMATRIX] = ROWS({ 0, 0, PTX_MODE, "ldmatrix.sync.aligned.m8n8.x$n.trans.shared::cta.b16 $D, [$a]" },
                         { 0, 0, 0, "ldmatrix.sync.aligned.m8n8.x$n.shared::cta.b16 $D, [$a]" }),
    [IR_STMATRIX] = ROWS({ 0, 0, PTX_MODE, "stmatrix.sync.aligned.m8n8.x$n.trans.shared::cta.b16 [$a], $S" },
                         { 0, 0, 0, "stmatrix.sync.aligned.m8n8.x$n.shared::cta.b16 [$a], $S" }),
    [IR_MMA] = ROWS({ 0, F16 | BF16, 0, MMA "k16.row.col.f32.$f.$f.f32 $D, $04, $42, $64" },
                    { 0, F32, 0, MMA "k8.row.col.f32.tf32.tf32.f32 $D, $04, $42, $64" },
                    { 0, BITS8, 0, MMA "k32.row.col.s32.$f.$F.s32 $D, $04, $42, $64" }),
    [IR_WGMMA_FENCE] = PLAIN("wgmma.fence.sync.aligned"),
    [IR_WGMMA] = ROWS({ 0, F16 | BF16, 0, WGMMA "k16.f32.$f.$f $D, $X, $Y, $z, 1, 1, $p, $q" },
                      { 0, F32, 0, WGMMA "k8.f32.tf32.tf32 $D, $X, $Y, $z, 1, 1" },
                      { 0, F8, 0, WGMMA "k32.f32.$f.$F $D, $X, $Y, $z, 1, 1" },
                      { 0, BITS8, 0, WGMMA "k32.s32.$f.$F $D, $X, $Y, $z" }),
    [IR_WGMMA_RS] = ROWS({ 0, F16 | BF16, 0, WGMMA "k16.f32.$f.$f $D, $04, $V, $w, 1, 1, $q" },
                         { 0, F32, 0, WGMMA "k8.f32.tf32.tf32 $D, $04, $V, $w, 1, 1" },
                         { 0, F8, 0, WGMMA "k32.f32.$f.$F $D, $04, $V, $w, 1, 1" },
                         { 0, BITS8, 0, WGMMA "k32.s32.$f.$F $D, $04, $V, $w" }),
    [IR_WGMMA_COMMIT] = PLAIN("wgmma.commit_group.sync.aligned"),
    [IR_WGMMA_WAIT] = PLAIN("wgmma.wait_group.sync.aligned $n"),
    [IR_SETMAXNREG] = ROWS({ 0, 0, PTX_MODE, "setmaxnreg.inc.sync.aligned.u32 $n" },
                           { 0, 0, 0, "setmaxnreg.dec.sync.aligned.u32 $n" }),

    /* Nothing on sm_80, where kernels are never launched early. */
    [IR_EXIT] = PLAIN("exit"),
    [IR_GRID_WAIT] = ROWS({ 0, 0, PTX_SM80, "" }, { 0, 0, 0, "griddepcontrol.wait" }),
    [IR_LAUNCH_DEPENDENTS] = ROWS({ 0, 0, PTX_SM80, "" }, { 0, 0, 0, "griddepcontrol.launch_dependents" }),
};

const ptx_row *ptx_rows(ir_op op)
{
    return rows[op];
}

enum { MODES_MAX = IR_SREG_COUNT };

static const char *const modes[IR_OP_COUNT][MODES_MAX] = {
    [IR_COMPARE] = { [IR_EQ] = "eq", [IR_NE] = "ne", [IR_LT] = "lt", [IR_LE] = "le", [IR_GT] = "gt", [IR_GE] = "ge" },
    [IR_SHUFFLE] = { [IR_SHFL_IDX] = "idx", [IR_SHFL_UP] = "up", [IR_SHFL_DOWN] = "down", [IR_SHFL_XOR] = "bfly" },
    [IR_VOTE] = { [IR_VOTE_ANY] = "any", [IR_VOTE_ALL] = "all", [IR_VOTE_BALLOT] = "ballot" },
    [IR_MIN] = { [1] = ".NaN" },
    [IR_MAX] = { [1] = ".NaN" },
    [IR_SREG] = { [IR_TID_X] = "%tid.x",
                  [IR_LANE] = "%laneid",
                  [IR_WARP] = "%uniform_warp",
                  [IR_CTA_X] = "%ctaid.x",
                  [IR_CTA_Y] = "%ctaid.y",
                  [IR_CTA_Z] = "%ctaid.z",
                  [IR_GRID_X] = "%nctaid.x",
                  [IR_GRID_Y] = "%nctaid.y",
                  [IR_GRID_Z] = "%nctaid.z",
                  [IR_CLUSTER_RANK] = "%cluster_ctarank",
                  [IR_SMEM_BASE] = "smem" },
};

const char *ptx_mode_text(ir_op op, int mode)
{
    const char *name = mode >= 0 && mode < MODES_MAX ? modes[op][mode] : NULL;
    return name ? name : "";
}
