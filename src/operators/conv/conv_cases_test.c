/* conv_cases_test.c - problems of convolution that every device computes, by family. */
#include "operators/conv/conv_lab.h"

const char *const conv_cases[] = {
    /* as chosen */
    "n=1 c=1 h=1 w=1 k=1 r=1 s=1                            # one product",
    "c=1 h=1 w=1 k=1 r=5 s=5 pad=2 dtype=bf16               # what is seen of the filter begins inside 16 bytes",
    "n=2 c=16 h=9 w=11 k=24 pad=1",
    "n=2 c=16 h=9 w=11 k=24 pad=1 layout=nchw dtype=bf16 bias=1 activation=relu",
    "n=1 c=8 h=12 w=10 k=16 r=5 s=3 pad=2 stride=2 residual=1 bias=1 activation=gelu",
    "n=1 c=8 h=6 w=7 k=16 pad=1 bias=1 activation=silu out=f32",
    "n=1 c=8 h=6 w=7 k=16 pad=1 bias=1 activation=gelu_erf dtype=bf16",
    "n=1 c=3 h=19 w=17 k=8 r=7 s=7 pad=3 stride=2 dtype=f32 # a first layer",
    "n=1 c=12 h=5 w=8 k=12 groups=12 pad=1 # depthwise",
    "n=2 c=12 h=8 w=8 k=24 groups=3 pad=1 dilation=2 layout=nchw dtype=f32",
    "n=2 c=24 h=7 w=9 k=40 r=1 s=1 dtype=bf16 out=f32       # a pixel alone",
    "n=1 c=4 d=5 h=6 w=7 k=8 t=3 pad=1 dtype=f32            # a volume",
    "n=2 c=8 h=1 w=40 k=8 r=1 s=5 stride_w=3 pad_left=4 pad_right=1 # a signal, padded before",
    "n=1 c=8 h=6 w=6 k=8 pad_top=2 pad_right=3               # sides of their own",
    "n=1 c=0 h=4 w=4 k=8 bias=1                              # no products",
    "n=0 c=8 h=4 w=4 k=8",
    "n=1 c=8 h=4 w=4 k=0 bias=1",
    "n=1 c=8 h=4 w=4 k=0 direction=data                       # no products: zeros",
    "n=2 c=16 h=9 w=11 k=24 pad=1 direction=data",
    "n=1 c=12 h=10 w=9 k=8 r=4 s=3 pad=1 stride=2 dilation=2 layout=nchw dtype=bf16 direction=data groups=2",
    "n=1 c=4 d=5 h=6 w=7 k=8 t=3 pad=1 stride=2 dtype=f32 direction=data out=f32",
    "n=1 c=8 h=9 w=9 k=8 r=2 s=2 stride=3 direction=data dtype=bf16   # pixels that no filter sees",
    "n=2 c=16 h=9 w=11 k=24 pad=1 direction=weight bias=1 out=f32",
    "n=2 c=12 h=10 w=9 k=8 r=3 s=3 pad=1 stride=2 dilation=2 layout=nchw dtype=bf16 direction=weight groups=2",
    "n=1 c=4 d=5 h=6 w=7 k=8 t=3 pad=1 stride=2 dtype=f32 direction=weight",
    "n=0 c=8 h=4 w=4 k=8 direction=weight bias=1             # no images: zeros",
    "n=1 c=8 d=3 h=4 w=5 k=8 t=3 pad=1 dtype=bf16 # a volume of whole vectors",
    "n=1 c=16 h=5 w=6 k=16 groups=16 pad=1 stride=2 direction=data # by another kernel",
    "n=1 c=8 d=3 h=4 w=5 k=8 t=3 pad=1 groups=8",
    "n=32 c=1 h=1 w=1 k=72 r=1 s=1 direction=weight dtype=bf16 bias=1",
    "n=4 c=3 h=5 w=6 k=24 r=2 s=3 pad=1 direction=weight bias=1",
    "n=2 c=2 d=3 h=8 w=8 k=12 t=2 r=2 s=3 pad=1 stride=2 direction=weight out=f32",
    "n=2 c=16 h=9 w=11 k=24 pad=1 x_w=24 y_w=40 y_h=480 bias=1 residual=1 # channels of wider tensors",
    "n=2 c=9 h=9 w=11 k=6 pad=1 x_h=18 y_h=13 layout=nchw bias=1 residual=1",
    "n=1 c=4 d=5 h=6 w=7 k=8 t=3 pad=1 x_d=300 x_w=5 y_d=500 dtype=f32 # slices apart",
    "n=1 c=8 d=1 h=4 w=5 k=8 t=2 pad=1 # a filter of two slices pads along them, too",
    "n=3 c=4 d=1 h=6 w=7 k=26 t=3 pad=1 y_d=500 dtype=f32 # the stride of a single slice is no image's",
    "n=2 c=6 h=6 w=7 k=8 pad=1 x_c=50 y_h=9 layout=nchw direction=weight dtype=f32 bias=1",
    "n=2 c=20 h=6 w=7 k=38 pad=1 direction=weight dtype=f32 math=tf32 bias=1",
    "n=2 c=32 h=9 w=11 k=48 pad=1 dtype=i8 stride=2 # sums as they are",
    "n=2 c=144 h=9 w=7 k=72 r=1 s=1 dtype=i8 out=bf16 scale=1",
    "n=24 c=1 h=1 w=1 k=72 pad=1 layout=nchw dtype=bf16 bias=1                           # images of one pixel",
    "n=2 c=7 h=1 w=1 k=9 pad_top=1 pad_bottom=3 pad_left=2 pad_right=2 dilation=2 bias=1  # no tap sees the pixel",
    "n=3 c=3 h=4 w=4 k=9 stride=3 bias=1                                                   # no more than one place",
    "n=2 c=7 h=23 w=37 k=7 r=5 s=5 groups=7 pad=2 dtype=bf16                             # sliding",
    "n=300 c=521 h=1 w=1 k=521 pad=1 direction=weight # of a tap that sees nothing it is 0",
    "n=3 c=64 h=16 w=24 k=64 pad=1 bias=1 residual=1 activation=relu # tall boxes by choice, or not",

    /* what takes anything */
    "n=2 c=6 d=5 h=6 w=7 k=8 t=3 pad=1 dtype=i8 impl=naive",
    "n=2 c=5 d=2 h=4 w=3 k=41 t=2 r=2 epilogue=tril layout=nchw impl=naive # custom epilogues, which know their "
    "element's place",
    "n=2 c=8 h=9 w=11 k=24 pad=1 epilogue=relu2 bias=1 fill=hard impl=naive",
    "n=2 c=16 h=9 w=11 k=24 pad=1 dtype=i8 out=f16 scale=1 impl=im2col",
    "n=2 c=16 h=9 w=11 k=24 pad=1 bias=1 residual=1 scale=1 activation=relu impl=im2col",
    "n=1 c=8 d=5 h=6 w=7 k=8 t=3 pad=1 stride=2 dilation=2 dtype=bf16 impl=im2col",
    "n=2 c=12 h=9 w=40 k=20 pad_left=3 stride_w=9 dtype=f32 math=tf32 impl=im2col",
    "n=2 c=16 h=5 w=5 k=72 pad=1 epilogue=tril impl=im2col",
    "n=2 c=16 h=9 w=11 k=24 pad=1 misalign=1 impl=sm80",
    "n=2 c=16 h=9 w=11 k=24 pad=1 scale=1 bias=1 residual=1 activation=relu impl=sm80",
    "n=2 c=36 h=9 w=11 k=72 pad=1 stride=2 bias=1 residual=1 dtype=f32 math=tf32 impl=sm80",
    "n=2 c=11 h=9 w=7 k=21 pad=1 dtype=f32 math=tf32 layout=nchw impl=sm80",
    "n=1 c=20 h=9 w=11 k=36 r=4 pad=1 stride=2 dilation=2 direction=data dtype=f32 math=tf32 impl=sm80",
    "n=2 c=24 h=9 w=11 k=12 groups=3 pad=1 direction=data dtype=f32 math=tf32 layout=nchw impl=sm80",
    "n=2 c=36 h=9 w=11 k=72 pad=1 stride=2 bias=1 residual=1 activation=relu dtype=f32 impl=sm80 # without tensor "
    "cores",
    "n=3 c=20 h=9 w=11 k=136 pad=1 dtype=f32 x_w=24 y_w=140 impl=sm80 config='tile_m=128 tile_n=128 stages=2'",
    "n=2 c=11 h=9 w=7 k=21 pad=1 dtype=f32 layout=nchw impl=sm80",
    "n=1 c=20 h=9 w=11 k=36 r=4 pad=1 stride=2 dilation=2 direction=data dtype=f32 impl=sm80 config='tile_m=96'",
    "n=2 c=16 h=9 w=11 k=24 pad=1 x_w=24 x_n=3000 y_w=26 y_h=300 stride=2 impl=sm80",
    "n=2 c=16 h=9 w=11 k=24 pad=1 x_h=13 x_c=121 y_h=17 y_n=9000 layout=nchw impl=sm80 # rows and planes apart",
    "n=2 c=16 h=9 w=11 k=24 pad=1 x_w=17 x_h=200 y_w=25 direction=data dtype=bf16 impl=sm80",
    "n=2 c=20 h=9 w=11 k=36 pad=1 groups=2 dtype=i8 out=bf16 scale=1 bias=1 activation=silu impl=sm80 # single bytes",
    "n=1 c=24 h=5 w=11 k=32 pad=1 dtype=i8 out=f32 layout=nchw impl=sm80",
    "n=1 c=40 h=9 w=11 k=32 pad=1 dtype=i8 impl=sm80 # vectors of 8",
    "n=2 c=16 h=5 w=6 k=72 pad=1 epilogue=tril residual=1 y_n=2304 impl=sm80",
    "n=1 c=24 h=9 w=11 k=12 groups=3 pad=1 direction=weight bias=1 dtype=f32 impl=sm80_weight config='slices=3'",
    "n=2 c=38 h=9 w=11 k=66 pad=1 stride=2 direction=weight dtype=f32 layout=nchw impl=sm80_weight",
    "n=3 c=24 h=9 w=11 k=36 pad=1 groups=4 direction=weight bias=1 impl=sm80_weight config='slices=4'",
    "n=2 c=7 h=9 w=11 k=5 pad_left=2 stride_h=2 stride_w=3 dilation_h=2 direction=weight dtype=bf16 out=f32 "
    "layout=nchw impl=sm80_weight config='slices=1 stages=2'",
    "n=2 c=6 d=5 h=6 w=7 k=66 t=3 pad=1 direction=weight dtype=f32 math=tf32 groups=2 impl=sm80_weight",
    "n=2 c=16 h=9 w=11 k=24 pad=1 x_w=25 y_w=41 y_h=480 direction=weight bias=1 impl=sm80_weight",
    "n=5 c=12 h=11 w=11 k=38 pad=1 direction=weight impl=sm80_weight config='slices=8' # the ring goes round in each",

    /* implicit products on Hopper */
    "n=3 c=72 h=13 w=11 k=72 pad=1 stride=2 dilation=2 impl=sm90 config='im2col=0 consumers=1 tile_n=64 box_w=4 "
    "box_h=2 box_n=8 tall=0 held=0'  # boxes that end within the image, two chunks",
    "n=2 c=16 h=5 w=9 k=136 pad=1 bias=1 residual=1 activation=relu impl=sm90 config='im2col=0 consumers=2 "
    "tile_n=128 box_w=8 box_h=8 box_n=2 stages=4 tall=0 held=0' # consumers by images; two residuals of a tile",
    "n=1 c=8 h=7 w=17 k=64 r=1 s=1 impl=sm90 config='im2col=0 consumers=2 tile_n=64 box_w=16 box_h=8 box_n=1 tall=0 "
    "held=0' # consumers by rows",
    "n=1 c=8 h=2 w=130 k=64 r=1 impl=sm90 config='im2col=0 consumers=2 tile_n=64 box_w=128 box_h=1 box_n=1 tall=0 "
    "held=0' # consumers by columns",
    "n=1 c=8 h=152 w=10 k=448 r=1 s=3 residual=1 out=f32 impl=sm90 config='im2col=0 consumers=1 tile_n=64 box_w=8 "
    "box_h=8 box_n=1 stages=8 tall=0 held=0' # more tiles than CTAs",
    "n=2 c=16 h=9 w=11 k=72 pad=1 direction=data impl=sm90",
    "n=2 c=136 h=10 w=9 k=24 r=3 s=4 pad=1 stride=2 direction=data dtype=bf16 impl=sm90 config='im2col=0 tile_n=128 "
    "tall=0 held=0' # two spans",
    "n=1 c=8 h=9 w=9 k=8 r=2 s=2 stride=3 direction=data impl=sm90    # pixels that no filter sees",
    "n=1 c=8 h=13 w=12 k=8 r=3 s=5 stride_h=2 stride_w=4 pad=3 dilation=2 direction=data out=f32 impl=sm90 # taps "
    "apart",
    "n=1 c=8 d=5 h=6 w=7 k=8 t=3 pad=1 stride=2 direction=data dtype=bf16 impl=sm90",
    "n=2 c=24 h=9 w=7 k=40 pad=1 stride=2 impl=sm90 config='im2col=0 tile_k=16 tall=0 held=0'",
    "n=2 c=56 h=9 w=7 k=40 pad=1 stride=2 impl=sm90 config='im2col=0 tile_k=56 tall=0 held=0' # no zeros in place of "
    "channels",
    "n=2 c=96 h=9 w=7 k=40 pad=1 bias=1 impl=sm90 config='im2col=0 tile_k=48 tall=0 held=0'",
    "n=2 c=40 h=9 w=7 k=72 pad=1 dtype=bf16 impl=sm90 config='im2col=0 tile_k=24 consumers=1 tall=0 held=0'",
    "n=2 c=40 h=9 w=7 k=104 pad=1 direction=data impl=sm90 config='im2col=0 tile_k=56 tall=0 held=0'",
    "n=2 c=20 h=9 w=11 k=72 pad=1 dtype=f32 math=tf32 impl=sm90 config='im2col=0 tile_k=20 tall=0 held=0'",
    "n=2 c=40 h=9 w=7 k=72 pad=1 dtype=bf16 impl=sm90 config='im2col=0 tile_k=32 tall=0 held=0'",
    "n=2 c=72 h=9 w=7 k=40 pad=1 direction=data impl=sm90 config='im2col=0 tile_k=16 tall=0 held=0'",
    "n=2 c=48 h=9 w=7 k=72 groups=3 pad=1 stride=2 bias=1 residual=1 activation=relu impl=sm90",
    "n=2 c=144 h=9 w=7 k=32 groups=2 pad=1 direction=data stride=2 dtype=bf16 impl=sm90",
    "n=2 c=72 h=9 w=8 k=16 r=1 s=1 stride=2 direction=data impl=sm90",
    "n=3 c=24 h=9 w=8 k=16 r=1 s=3 stride=2 pad=1 direction=data out=f32 dtype=bf16 impl=sm90",
    "n=2 c=8 h=11 w=12 k=8 r=2 s=2 stride=4 pad=1 direction=data groups=1 impl=sm90",
    "n=2 c=48 h=9 w=8 k=32 r=1 s=1 stride=2 groups=2 direction=data impl=sm90",
    "n=1 c=8 d=5 h=6 w=7 k=8 t=1 r=1 s=1 pad=0 stride=2 direction=data dtype=bf16 impl=sm90",
    "n=2 c=8 h=1 w=1 k=8 r=1 s=1 pad=1 stride=2 direction=data impl=sm90",
    "n=2 c=16 h=9 w=11 k=24 pad=1 scale=1 bias=1 residual=1 activation=relu impl=sm90",
    "n=40 c=8 h=20 w=33 k=24 pad=1 bias=1 scale=1 activation=relu impl=sm90 config='im2col=0 consumers=1 tile_n=16 "
    "tile_k=8 box_w=8 box_h=8 box_n=1 stages=8 tall=0 held=0' # filters change from tile to tile",
    "n=2 c=16 h=9 w=11 k=24 pad=1 scale=1 bias=1 out=f32 impl=sm90 config='im2col=0 tile_n=256 tall=0 held=0'",
    "n=2 c=48 h=9 w=7 k=72 groups=3 pad=1 stride=2 scale=1 impl=sm90",
    "n=2 c=16 h=9 w=11 k=24 pad=1 dtype=f32 math=tf32 scale=1 bias=1 residual=1 activation=relu impl=sm90",
    "n=2 c=36 h=9 w=11 k=72 pad=1 stride=2 dtype=f32 math=tf32 impl=sm90 config='im2col=0 tile_k=8 tall=0 held=0'",
    "n=2 c=16 h=9 w=11 k=24 pad=1 x_w=24 y_w=40 y_h=480 bias=1 residual=1 impl=sm90",
    "n=2 c=72 h=9 w=7 k=40 pad=1 x_w=80 x_h=640 y_w=48 direction=data stride=2 impl=sm90",
    "n=2 c=72 h=9 w=7 k=104 pad=1 bias=1 activation=relu impl=sm90 config='im2col=0 tile_n=112 tall=0 held=0' # four "
    "boxes of y of 16 filters and more",
    "n=2 c=72 h=9 w=7 k=104 pad=1 bias=1 residual=1 impl=sm90 config='im2col=0 tile_n=112 stages=3 tall=0 held=0' # "
    "two CTAs load filters for both",
    "n=1 c=8 h=152 w=10 k=440 r=1 s=3 residual=1 out=f32 impl=sm90 config='im2col=0 consumers=1 tile_n=32 box_w=8 "
    "box_h=8 box_n=1 stages=8 tall=0 held=0' # more tiles than CTAs, an odd number of boxes",
    "n=3 c=520 h=9 w=7 k=40 pad=1 stride=2 direction=data impl=sm90 config='im2col=0 tile_n=256 stages=3 tall=0 "
    "held=0'",
    "n=3 c=40 h=9 w=11 k=72 pad=1 bias=1 dtype=bf16 impl=sm90 config='im2col=1 consumers=3 box_w=192 box_h=1 box_n=1 "
    "tile_n=80 stages=3 tall=0 held=0'",
    "n=2 c=24 h=9 w=7 k=40 pad=1 stride=2 impl=sm90 config='im2col=0 tile_k=24 tile_n=32 tall=0 held=0' # rows "
    "narrower than their swizzle",
    "n=3 c=40 h=9 w=7 k=72 pad=1 bias=1 residual=1 impl=sm90 config='im2col=1 consumers=2 box_w=128 box_h=1 box_n=1 "
    "stages=4 tall=0 held=0'",
    "n=3 c=40 h=9 w=11 k=72 pad_left=2 pad_top=1 pad_bottom=3 r=3 s=5 stride_h=2 stride_w=3 dilation_w=2 impl=sm90 "
    "config='im2col=1 box_w=64 box_h=1 box_n=1 consumers=1 tall=0 held=0'",
    "n=3 c=40 h=9 w=7 k=72 pad=1 direction=data r=3 s=2 dtype=bf16 impl=sm90 config='stages=4 im2col=1 consumers=2 "
    "box_w=128 box_h=1 box_n=1 tall=0 held=0'",
    "n=5 c=40 h=1 w=1 k=48 pad=1 impl=sm90 config='im2col=1 consumers=2 box_w=128 box_h=1 box_n=1 tall=0 held=0'",
    "n=3 c=36 h=9 w=7 k=72 pad=1 dtype=f32 math=tf32 stride=2 impl=sm90 config='stages=3 im2col=1 tile_k=20 "
    "consumers=2 box_w=128 box_h=1 box_n=1 tall=0 held=0'",
    "n=3 c=40 h=9 w=7 k=72 pad=1 direction=data r=4 s=3 dilation=2 impl=sm90 config='stages=3 im2col=1 consumers=2 "
    "box_w=128 box_h=1 box_n=1 tall=0 held=0'",
    "n=30 c=24 h=9 w=19 k=136 pad=1 r=2 s=2 impl=sm90 config='im2col=1 tile_n=64 consumers=2 box_w=128 box_h=1 "
    "box_n=1 tall=0 held=0' # more tiles than CTAs",
    "n=2 c=128 h=9 w=11 k=128 groups=4 pad=1 bias=1 residual=1 impl=sm90 config='im2col=0 together=2 tile_k=64 "
    "tile_n=64 stages=3 tall=0 held=0'",
    "n=2 c=64 h=9 w=11 k=64 groups=4 pad=1 stride=2 scale=1 activation=relu dtype=bf16 impl=sm90 config='im2col=0 "
    "together=4 tile_k=64 tile_n=64 tall=0 held=0'",
    "n=5 c=40 h=1 w=1 k=48 pad=1 impl=sm90                    # one tap of nine sees pixels",
    "n=5 c=40 h=2 w=1 k=48 r=5 s=7 pad=3 direction=data impl=sm90",
    "n=1 c=16 h=1 w=3 k=8 r=5 s=1 pad_top=6 stride=3 impl=sm90 # no tap sees any",
    "n=2 c=48 h=9 w=11 k=40 pad=1 dtype=i8 out=f16 scale=1 bias=1 residual=1 activation=relu impl=sm90 "
    "config='im2col=0 tile_k=48 stages=3 tall=0 held=0'",
    "n=2 c=160 h=9 w=7 k=68 pad=1 dtype=i8 out=f32 scale=1 impl=sm90 config='im2col=1 consumers=2 box_w=128 box_h=1 "
    "box_n=1 stages=3 tile_k=80 tall=0 held=0'",
    "n=2 c=72 h=13 w=21 k=72 pad=1 impl=sm90 config='tall=1 held=0 im2col=0 box_w=8 box_h=16 box_n=1 consumers=2 "
    "tile_n=64 stages=3'",
    "n=3 c=64 h=13 w=21 k=64 pad=1 impl=sm90 config='tall=1 held=0 im2col=0 box_w=8 box_h=8 box_n=2 consumers=2 "
    "tile_n=64 stages=2' # two images a box",
    "n=2 c=24 h=13 w=41 k=96 pad=1 stride_w=2 bias=1 residual=1 impl=sm90 config='tall=1 held=0 im2col=0 box_w=16 "
    "box_h=12 box_n=1 consumers=3 tile_n=96 stages=2' # three consumers, every second column",
    "n=1 c=24 h=13 w=21 k=200 pad=1 dtype=bf16 bias=1 residual=1 impl=sm90 config='tall=1 held=0 im2col=0 box_w=16 "
    "box_h=12 box_n=1 consumers=3 tile_n=192 tile_k=16 stages=2' # the most filters of three consumers",
    "n=2 c=72 h=13 w=21 k=72 pad=1 direction=data dtype=bf16 impl=sm90 config='tall=1 held=0 im2col=0 box_w=8 "
    "box_h=24 box_n=1 consumers=3 tile_n=64 stages=3' # backwards",
    "n=2 c=64 h=13 w=70 k=48 pad=1 s=2 dilation_w=3 direction=data impl=sm90 config='tall=1 held=0 im2col=0 box_w=64 "
    "box_h=2 box_n=1 consumers=2 tile_n=128 stages=2'",
    "n=2 c=32 h=5 w=9 k=48 pad_top=2 t=2 d=3 dtype=f32 math=tf32 impl=sm90 config='tall=1 held=0 im2col=0 box_w=8 "
    "box_h=8 box_n=1 consumers=1 tile_n=64 tile_k=32 stages=2' # volumes",
    "n=2 c=96 h=9 w=9 k=192 groups=2 pad=1 impl=sm90 config='tall=1 held=0 im2col=0 box_w=8 box_h=8 box_n=1 "
    "consumers=1 tile_n=96 tile_k=48 stages=2' # groups",
    "n=2 c=48 h=9 w=9 k=48 pad=1 dtype=i8 out=f16 impl=sm90 config='tall=1 held=0 im2col=0 box_w=8 box_h=8 box_n=1 "
    "consumers=1 tile_n=48 tile_k=48 stages=2' # bytes",
    "n=3 c=64 h=13 w=21 k=64 pad=1 bias=1 residual=1 activation=relu impl=sm90 config='tall=1 held=3 im2col=0 "
    "box_w=8 box_h=8 box_n=2 consumers=2 tile_n=64 tile_k=64 stages=3'",
    "n=40 c=72 h=20 w=33 k=48 pad=1 dtype=bf16 impl=sm90 config='tall=1 held=6 im2col=0 box_w=8 box_h=16 box_n=1 "
    "consumers=2 tile_n=48 tile_k=64 stages=2'",
    "n=40 c=40 h=20 w=33 k=56 pad=1 direction=data impl=sm90 config='tall=1 held=6 im2col=0 box_w=8 box_h=16 box_n=1 "
    "consumers=2 tile_n=64 tile_k=32 stages=4'",
    "n=33 c=24 h=20 w=33 k=24 pad=1 s=2 d=2 t=2 dtype=bf16 impl=sm90 config='tall=1 held=4 im2col=0 box_w=16 "
    "box_h=12 box_n=1 consumers=3 tile_n=32 tile_k=24 stages=3'",
    "n=3 c=16 h=5 w=6 k=136 pad=1 epilogue=tril bias=1 activation=relu impl=sm90 config='im2col=1 box_w=128 box_h=1 "
    "box_n=1 consumers=2 tall=0 held=0'",
    "n=3 c=16 h=5 w=6 k=136 pad=1 epilogue=tril dtype=bf16 impl=sm90 config='im2col=0 box_w=4 box_h=8 box_n=2 "
    "consumers=1 tall=0 held=0'",
    "n=2 c=8 d=3 h=4 w=5 k=136 t=2 pad=1 epilogue=tril impl=sm90 config='im2col=0 box_w=4 box_h=8 box_n=2 consumers=1 "
    "tall=0 held=0'",
    "n=2 c=64 h=5 w=6 k=128 groups=4 pad=1 epilogue=tril impl=sm90",
    "n=3 c=72 h=6 w=7 k=72 pad=1 bias=1 residual=1 activation=relu impl=sliced config='consumers=1 tile_n=64 box_w=4 "
    "box_h=8 box_n=2 stages=4 slices=4' # the last box of a slice ends in it",
    "n=2 c=16 d=3 h=9 w=8 k=136 t=3 pad=1 stride=1 dtype=bf16 out=f32 impl=sliced config='slices=2'",
    "n=5 c=40 h=7 w=7 k=72 pad=1 direction=data impl=sliced config='slices=3'",
    "n=3 c=72 h=6 w=7 k=72 pad=1 scale=1 residual=1 activation=relu impl=sliced",
    "n=3 c=72 h=6 w=7 k=72 pad=1 dtype=f32 math=tf32 impl=sliced",
    "n=3 c=72 h=9 w=7 k=40 pad=1 bias=1 impl=sliced config='im2col=0 tile_n=48 slices=3'",
    "n=2 c=136 h=1 w=2 k=72 r=7 s=3 pad=3 impl=sliced         # slices of the taps that see pixels",
    "n=2 c=72 h=5 w=6 k=72 pad=1 epilogue=tril bias=1 impl=sliced",
    "n=2 c=64 h=8 w=8 k=64 r=1 s=1 layout=nchw impl=nchw_sm90",
    "n=2 c=16 h=8 w=12 k=24 pad=1 layout=nchw impl=nchw_sm90",
    "n=2 c=72 h=8 w=8 k=136 pad=1 r=3 s=1 layout=nchw dtype=bf16 bias=1 activation=relu impl=nchw_sm90 "
    "config='consumers=2 tile_n=128 stages=4'",
    "n=2 c=72 h=8 w=16 k=40 pad=1 r=2 layout=nchw bias=1 residual=1 activation=relu impl=nchw_sm90 config='consumers=2 "
    "tile_n=128 stages=4'",
    "n=3 c=19 h=8 w=9 k=21 pad=1 layout=nchw residual=1 impl=nchw_sm90",
    "n=3 c=24 h=14 w=14 k=40 r=3 s=3 pad=1 layout=nchw out=f32 bias=1 impl=nchw_sm90 config='consumers=2 tile_n=192 "
    "stages=4'",
    "n=3 c=24 h=8 w=14 k=40 r=3 s=5 dilation=2 pad=4 pad_top=1 layout=nchw out=f32 impl=nchw_sm90 config='consumers=1 "
    "tile_n=256 tile_k=32'",
    "n=3 c=24 h=12 w=14 k=40 r=3 s=3 pad=1 layout=nchw direction=data impl=nchw_sm90",
    "n=3 c=136 h=8 w=14 k=40 r=1 s=5 pad_left=1 pad_right=3 pad_top=1 layout=nchw direction=data dtype=bf16 "
    "impl=nchw_sm90 config='tile_k=16'",
    "n=5 c=40 d=3 h=7 w=8 k=16 r=1 s=1 layout=nchw impl=nchw_sm90",
    "n=1 c=8 h=6 w=2 k=8 s=9 pad_left=4 pad_right=4 layout=nchw impl=nchw_sm90",
    "n=2 c=24 h=10 w=12 k=40 layout=nchw pad=1 scale=1 bias=1 dtype=bf16 impl=nchw_sm90",
    "n=3 c=40 h=8 w=7 k=72 layout=nchw pad=1 bias=1 residual=1 activation=relu impl=nchw_sm90 # spans over images",
    "n=3 c=40 h=8 w=7 k=72 layout=nchw r=5 pad=1 direction=data dtype=bf16 impl=nchw_sm90",
    "n=1 c=96 h=10 w=16 k=70 layout=nchw pad=1 impl=nchw_sm90 # 128 channels, zeros among them",
    "n=2 c=17 h=12 w=14 k=65 layout=nchw r=5 s=3 dilation=2 direction=data impl=nchw_sm90 # y less wide",
    "n=2 c=16 h=5 w=8 k=72 pad=1 epilogue=tril layout=nchw impl=nchw_sm90",
    "n=2 c=11 h=9 w=7 k=24 pad=1 impl=packed                 # x and filters are copied",
    "n=2 c=16 h=9 w=7 k=13 pad=1 bias=1 residual=1 activation=relu dtype=bf16 impl=packed # y and the residual",
    "n=2 c=19 h=9 w=7 k=21 pad=1 stride=2 out=f32 bias=1 residual=1 layout=nchw impl=packed",
    "n=2 c=72 h=8 w=8 k=64 pad=1 layout=nchw dtype=bf16 impl=packed",
    "n=1 c=3 d=4 h=6 w=7 k=9 t=3 pad=1 layout=nchw impl=packed",
    "n=2 c=21 h=9 w=8 k=19 pad=1 stride=2 layout=nchw direction=data impl=packed",
    "n=2 c=12 h=9 w=8 k=20 pad=1 direction=data dtype=bf16 impl=packed",
    "n=3 c=40 h=9 w=11 k=72 pad=1 direction=data dtype=bf16 impl=packed config='slices=1' # the filters alone are "
    "copied",
    "n=3 c=24 h=5 w=6 k=136 pad=1 direction=data impl=packed config='tall=0 im2col=0 slices=3'",
    "n=2 c=72 h=9 w=8 k=24 pad=1 stride=2 direction=data out=f32 impl=packed",
    "n=3 c=3 h=19 w=17 k=16 r=7 s=7 pad=3 stride=2 impl=packed config='fold=1 step_w=1 slices=1'   # a first layer",
    "n=3 c=3 h=12 w=16 k=24 r=4 s=4 stride=4 layout=nchw bias=1 impl=packed config='fold=1 step_w=1 slices=1'",
    "n=2 c=3 h=32 w=32 k=16 r=16 s=16 stride=16 dtype=bf16 impl=packed config='fold=1 step_w=1 step_h=1 slices=1' # "
    "patches, as they lie",
    "n=2 c=5 h=9 w=13 k=11 r=3 s=5 pad_left=3 pad_top=1 stride_w=3 dilation_h=2 layout=nchw impl=packed config='fold=1 "
    "step_w=1 slices=1'",
    "n=2 c=16 h=9 w=13 k=64 pad=1 impl=packed config='fold=1'",
    "n=2 c=48 h=9 w=7 k=32 groups=2 pad=1 layout=nchw bias=1 impl=packed",
    "n=2 c=13 h=9 w=8 k=20 r=1 s=1 stride=2 direction=data impl=packed",
    "c=131 h=12 w=9 k=8 pad=1 impl=packed config='slices=3 im2col=0 tall=0'",
    "n=2 c=72 h=5 w=5 k=40 layout=nchw pad=1 bias=1 residual=1 activation=relu dtype=bf16 impl=packed "
    "config='slices=4 im2col=0 consumers=1 box_w=4 box_h=8 box_n=2' # images of a box that do not exist",
    "n=3 c=72 h=5 w=5 k=41 pad=1 scale=1 residual=1 out=f32 impl=packed config='slices=2' # y alone is no whole 16 "
    "bytes",
    "n=2 c=21 h=9 w=8 k=77 pad=1 layout=nchw direction=data impl=packed config='slices=3 im2col=0 consumers=1 "
    "box_w=4 box_h=8 box_n=2'",
    "n=3 c=5 h=8 w=8 k=296 pad=1 direction=data dtype=bf16 impl=packed config='slices=5'",
    "n=2 c=24 h=9 w=9 k=24 pad=1 impl=packed config='fold=1 slices=2 tall=0'",
    "n=2 c=13 h=9 w=11 k=21 pad=1 scale=1 bias=1 impl=packed",
    "n=3 c=29 h=9 w=11 k=29 pad=1 misalign=1 impl=packed config='slices=1'          # copied back to any address",
    "n=3 c=32 h=5 w=7 k=1 pad=1 dtype=bf16 impl=packed config='slices=1'            # several pixels of 16 bytes",
    "n=2 c=133 h=9 w=11 k=32 pad=1 direction=data out=f32 impl=packed config='slices=1'",
    "n=1 c=128 h=7 w=7 k=72 layout=nchw pad=1 bias=1 residual=1 activation=relu impl=packed # slices",
    "n=1 c=128 h=7 w=7 k=72 layout=nchw pad=1 direction=data impl=packed",
    "n=2 c=11 h=9 w=7 k=21 pad=1 dtype=f32 math=tf32 layout=nchw bias=1 impl=packed",
    "n=3 c=3 h=19 w=17 k=16 r=7 s=7 pad=3 stride=2 dtype=f32 math=tf32 impl=packed config='fold=1 step_w=1 slices=1'",
    "n=2 c=24 h=9 w=7 k=72 pad=1 layout=nchw impl=packed config='slices=1 im2col=1 consumers=2 box_w=128 box_h=1 "
    "box_n=1'",
    "n=5 c=40 h=1 w=1 k=48 pad=1 layout=nchw bias=1 residual=1 impl=packed # planes of one pixel are not copied",
    "n=3 c=72 h=1 w=1 k=7 r=1 s=1 layout=nchw impl=packed",
    "n=2 c=112 h=9 w=11 k=48 groups=2 pad=1 layout=nchw impl=packed # groups lie beside each other, nothing is filled "
    "up",
    "n=1 c=123 h=5 w=6 k=29 pad=1 layout=nchw impl=packed # 128 channels, zeros among them",
    "n=2 c=13 h=13 w=21 k=21 pad=1 bias=1 impl=packed config='fold=0 tall=1 held=0 im2col=0 slices=1 "
    "box_w=8 box_h=16 box_n=1 consumers=2 tile_n=32 tile_k=16 stages=3'",
    "n=2 c=13 h=13 w=21 k=21 pad=1 dtype=bf16 impl=packed config='fold=1 tall=1 held=0 im2col=0 slices=1 box_w=8 "
    "box_h=8 box_n=2 consumers=2 tile_n=32 tile_k=48 stages=3'",
    "n=2 c=24 h=13 w=21 k=40 pad=1 layout=nchw impl=packed config='fold=0 tall=1 held=0 im2col=0 slices=1 box_w=16 "
    "box_h=8 box_n=1 consumers=2 tile_n=48 tile_k=32 stages=3'",
    "n=2 c=21 h=13 w=21 k=13 pad=1 direction=data impl=packed config='tall=1 held=0 im2col=0 slices=1 "
    "box_w=8 box_h=16 box_n=1 consumers=2 tile_n=64 tile_k=16 stages=3'",
    "n=2 c=13 h=5 w=6 k=72 pad=1 epilogue=tril layout=nchw impl=packed",
    "n=2 c=72 h=5 w=6 k=71 pad=1 epilogue=tril impl=packed config='slices=2'",

    /* the gradient of weights by them */
    "n=2 c=16 h=9 w=11 k=24 pad=1 direction=weight bias=1 out=f32 impl=sm90_weight config='consumers=1 slices=1 "
    "tall=0'",
    "n=3 c=72 h=7 w=7 k=136 pad=1 direction=weight bias=1 impl=sm90_weight config='tall=0 consumers=2 tile_n=192 "
    "slices=3 "
    "stages=4' # two chunks of channels, two tiles of filters",
    "n=3 c=8 h=13 w=12 k=200 r=3 s=5 stride_h=2 stride_w=3 pad=2 dilation=2 direction=weight dtype=bf16 "
    "impl=sm90_weight config='consumers=2 tile_n=256 slices=2 stages=3 adders=128'",
    "n=12 c=136 h=9 w=9 k=72 r=1 s=1 direction=weight dtype=bf16 impl=sm90_weight config='tile_n=64 slices=1'",
    "n=1 c=8 d=5 h=6 w=7 k=8 t=3 pad=1 direction=weight dtype=bf16 impl=sm90_weight config='slices=2 tall=0 tile_n=64 "
    "stages=4'",
    "n=2 c=16 h=12 w=12 k=64 r=7 s=7 pad=3 direction=weight impl=sm90_weight config='consumers=1 tile_n=64 slices=4' # "
    "more tiles than CTAs",
    "n=2 c=64 h=16 w=17 k=128 pad=1 bias=1 direction=weight impl=sm90_weight config='tall=1 tile_n=192 consumers=2 "
    "box_w=16 box_h=4 box_n=1 slices=1 stages=3' # rows of a filter that see one box",
    "n=3 c=72 h=9 w=11 k=136 s=5 pad=1 stride_w=2 dilation_w=2 direction=weight dtype=bf16 out=f32 impl=sm90_weight "
    "config='tall=1 tile_n=192 consumers=1 box_w=32 box_h=2 box_n=1 slices=2 stages=4' # chunks by columns of a filter",
    "n=2 c=8 d=5 h=9 w=17 k=72 t=3 s=2 pad=1 direction=weight impl=sm90_weight config='tall=1 tile_n=192 consumers=1 "
    "box_w=8 box_h=8 box_n=1 slices=5 stages=2' # by slices of a filter",
    "n=2 c=16 h=9 w=11 k=24 pad=1 x_w=24 y_w=40 y_h=480 direction=weight bias=1 impl=sm90_weight",
    "n=4 c=11 h=9 w=7 k=21 pad=1 direction=weight bias=1 impl=packed_weight",
    "n=4 c=19 h=9 w=7 k=24 pad=1 stride=2 direction=weight layout=nchw dtype=bf16 out=f32 impl=packed_weight",
    "n=8 c=3 h=19 w=17 k=16 r=7 s=7 pad=3 stride=2 direction=weight bias=1 impl=packed_weight config='fold=1 "
    "patches=none step_w=1 step_h=2'",
    "n=44 c=3 h=16 w=16 k=16 r=8 s=8 stride=8 dtype=bf16 direction=weight impl=packed_weight config='fold=1'",
    "n=8 c=3 h=9 w=9 k=8 s=7 pad_left=3 stride=1 layout=nchw direction=weight impl=packed_weight config='fold=1'",
    "n=3 c=24 h=9 w=11 k=7 pad=1 direction=weight impl=packed_weight config='fold=0 patches=dy slices=3'      # 63 "
    "columns",
    "n=2 c=21 h=9 w=7 k=20 r=5 pad=2 dilation=2 direction=weight dtype=bf16 out=f32 impl=packed_weight config='fold=0 "
    "patches=dy'",
    "n=3 c=24 h=6 w=7 k=3 r=2 layout=nchw direction=weight impl=packed_weight config='fold=0 patches=dy'",
    "n=3 c=16 h=9 w=9 k=5 pad=1 direction=weight dtype=bf16 impl=packed_weight config='fold=0 patches=dy slices=1'",
    "n=3 c=5 h=9 w=11 k=40 pad=1 direction=weight bias=1 impl=packed_weight config='fold=0 patches=x' # 8 channels a "
    "tap",
    "n=3 c=24 h=9 w=11 k=19 s=5 pad=2 stride=2 dilation=2 direction=weight bias=1 dtype=bf16 impl=packed_weight "
    "config='fold=0 patches=x step_w=1 step_h=1 slices=1'",
    "n=2 c=7 h=9 w=13 k=72 r=1 pad=1 pad_top=0 layout=nchw direction=weight out=f32 impl=packed_weight config='fold=0 "
    "patches=x'",
    "n=4 c=64 h=5 w=3 k=3 r=1 s=1 direction=weight dtype=bf16 impl=packed_weight config='fold=0 patches=dy slices=2'",
    "n=4 c=64 h=5 w=3 k=3 direction=weight bias=1 impl=packed_weight config='slices=1 patches=none' # stored by TMA",
    "n=20 c=1 h=1 w=1 k=72 r=1 s=1 direction=weight bias=1 impl=packed_weight # a slice without pixels",

    /* filters of one pixel */
    "n=3 c=72 h=7 w=9 k=200 r=1 s=1 bias=1 scale=1 residual=1 activation=relu impl=pointwise",
    "n=2 c=40 h=9 w=7 k=24 r=1 s=1 dtype=bf16 out=f32 residual=1 x_w=48 y_w=32 impl=pointwise",
    "n=2 c=16 h=5 w=8 k=72 r=1 s=1 residual=1 epilogue=tril impl=pointwise",
    "n=2 c=72 h=9 w=7 k=40 r=1 s=1 bias=1 activation=relu impl=pointwise",
    "n=2 c=72 h=9 w=7 k=41 r=1 s=1 bias=1 activation=silu dtype=bf16 impl=pointwise",
    "n=3 c=24 h=12 w=7 k=40 r=1 s=1 out=f32 impl=pointwise config='tile_m=64 tile_n=64 consumers=1 pingpong=0 "
    "cluster_m=1 cluster_n=1 split=1 swap=0'",
    "n=5 c=72 h=9 w=7 k=12 r=1 s=1 bias=1 activation=relu impl=pointwise config='tile_m=128 tile_n=16 consumers=2 "
    "pingpong=0 cluster_m=1 cluster_n=1 ctas=1 split=1 swap=0 stages=4' # few filters",
    "n=5 c=40 h=9 w=7 k=136 r=1 s=1 direction=data impl=pointwise config='tile_m=128 tile_n=64 consumers=2 pingpong=0 "
    "cluster_m=1 cluster_n=1 split=1 swap=0 stages=4' # few columns",
    "n=2 c=72 d=3 h=9 w=7 k=40 r=1 s=1 direction=data dtype=bf16 impl=pointwise",
    "n=2 c=24 h=9 w=11 k=40 r=1 s=1 scale=1 bias=1 dtype=bf16 impl=pointwise",
    "n=3 c=128 h=7 w=7 k=136 r=1 s=1 direction=weight impl=pointwise",
    "n=2 c=40 h=9 w=7 k=72 x_w=48 y_w=80 r=1 s=1 direction=weight dtype=bf16 out=f32 impl=pointwise",
    "n=2 c=36 h=9 w=11 k=20 r=1 s=1 dtype=f32 math=tf32 bias=1 impl=pointwise",
    "n=2 c=40 h=9 w=7 k=72 x_w=48 y_w=80 r=1 s=1 bias=1 impl=pointwise",
    "n=2 c=40 h=9 w=7 k=72 x_w=48 y_w=80 r=1 s=1 direction=data impl=pointwise",
    "n=8 c=8 h=2 w=3 k=24 r=2 s=3 layout=nchw impl=pointwise",
    "n=8 c=8 h=2 w=3 k=24 r=2 s=3 layout=nchw direction=data impl=pointwise",
    "n=8 c=8 h=2 w=3 k=24 r=2 s=3 layout=nchw direction=weight impl=pointwise",
    "n=2 c=24 h=5 w=5 k=136 r=1 s=1 epilogue=tril bias=1 impl=pointwise",
    "n=3 c=8 h=20 w=21 k=200 r=1 s=1 direction=data impl=pointwise config='swap=1 stays=1 tile_m=64 tile_n=64 "
    "consumers=2 pingpong=1 cluster_m=1 cluster_n=1 ctas=1 persistent=1 stages=8' # filters that stay, of dx^T",
    "n=3 c=72 h=9 w=11 k=256 r=1 s=1 bias=1 activation=silu impl=pointwise config='swap=1 tile_m=128 tile_n=96 "
    "consumers=2 pingpong=0 cluster_m=1 cluster_n=1 ctas=1 persistent=1 stages=4' # y^T",
    "n=4 c=53 h=8 w=9 k=16 r=1 s=1 bias=1 activation=relu impl=pointwise_unaligned",
    "n=8 c=163 h=1 w=1 k=40 r=5 s=3 pad_top=3 pad_left=1 pad_bottom=1 pad_right=1 activation=relu "
    "impl=pointwise_unaligned",
    "n=12 c=51 h=3 w=3 k=40 layout=nchw bias=1 impl=pointwise_unaligned                   # filters of an image",
    "n=7 c=5 h=3 w=2 k=72 r=3 s=2 out=f32 impl=pointwise_unaligned",
    "n=2 c=25 h=5 w=5 k=137 r=1 s=1 epilogue=tril impl=pointwise_unaligned",
    "n=8 c=75 h=24 w=24 k=71 r=1 s=1 bias=1 scale=1 activation=relu impl=pointwise_pitched",
    "n=8 c=75 h=24 w=24 k=37 r=1 s=1 direction=data dtype=bf16 impl=pointwise_pitched",
    "n=8 c=75 h=24 w=24 k=37 r=1 s=1 direction=weight impl=pointwise_pitched",
    "n=8 c=37 h=24 w=24 k=75 r=1 s=1 direction=data impl=pointwise_pitched config='tile_m=128 tile_n=64 consumers=2 "
    "pingpong=0 cluster_m=1 cluster_n=1 split=1 swap=0 stages=4'",
    "n=200 c=195 h=1 w=1 k=217 pad=1 dtype=bf16 impl=pointwise_pitched",
    "n=200 c=195 h=1 w=1 k=217 pad=1 direction=data impl=pointwise_pitched",
    "n=200 c=25 h=3 w=3 k=217 direction=weight impl=pointwise_pitched",
    "n=200 c=25 h=3 w=3 k=217 direction=data layout=nchw impl=pointwise_pitched",
    "n=8 c=75 h=5 w=5 k=233 r=1 s=1 epilogue=tril impl=pointwise_pitched",
    "n=2 c=3 h=19 w=17 k=41 r=1 s=1 direction=data impl=skinny config='runs=6 lanes=7 ahead=4' # lanes add in three "
    "steps",
    "n=2 c=53 h=19 w=17 k=4 r=1 s=1 bias=1 activation=relu impl=skinny config='runs=7 lanes=8 ahead=2'",
    "n=3 c=40 h=9 w=7 k=1 r=1 s=1 dtype=bf16 impl=skinny                               # one filter of one pixel",
    "n=3 c=40 h=9 w=7 k=3 r=1 s=1 bias=1 scale=1 residual=1 activation=relu impl=skinny config='runs=2 lanes=3 "
    "ahead=2'",
    "n=7 c=251 h=8 w=9 k=2 r=1 s=1 out=f32 impl=skinny                                  # sums over all lanes",
    "n=2 c=24 h=31 w=37 k=4 r=1 s=1 dtype=f32 math=tf32 impl=skinny config='lanes=6 runs=1 ahead=4'",
    "n=3 c=1 h=9 w=7 k=1 r=1 s=1 bias=1 impl=skinny",
    "n=3 c=5 h=9 w=7 k=72 r=1 s=1 bias=1 scale=1 residual=1 activation=relu out=f32 impl=skinny config='ahead=4'",
    "n=3 c=16 h=9 w=7 k=17 r=1 s=1 dtype=f32 residual=1 impl=skinny",
    "n=3 c=6 h=9 w=7 k=40 r=1 s=1 misalign=1 impl=skinny config='vec=1 vec_w=1 vec_few=1' # filters one by one",
    "n=3 c=6 h=1 w=1 k=40 pad=1 impl=skinny                                             # filters nine taps apart",
    "n=2 c=409 h=9 w=7 k=3 r=1 s=1 impl=skinny                                          # 13 single channels a lane",
    "n=2 c=4 h=9 w=7 k=2105 r=1 s=1 dtype=bf16 bias=1 impl=skinny config='lanes=250 runs=8' # two CTAs beside each "
    "other",
    "n=3 c=5 h=19 w=27 k=71 r=1 s=1 direction=data impl=skinny                          # sums over dy",
    "n=3 c=72 h=9 w=7 k=7 r=1 s=1 direction=data dtype=bf16 impl=skinny config='ahead=2'",
    "n=2 c=83 h=23 w=29 k=7 r=1 s=1 direction=data out=f32 impl=skinny",
    "n=3 c=72 h=9 w=7 k=7 r=1 s=1 direction=weight dtype=bf16 impl=skinny               # one slice",
    "n=9 c=1 h=39 w=37 k=56 r=1 s=1 direction=weight impl=skinny",
    "n=3 c=3 h=19 w=47 k=55 r=1 s=1 direction=weight dtype=f32 impl=skinny config='slices=7 ahead=2'",
    "n=2 c=520 h=9 w=7 k=8 r=1 s=1 direction=weight out=f32 impl=skinny config='slices=40 lanes=33 ahead=2'",
    "n=2 c=16 h=9 w=7 k=16 r=1 s=1 direction=weight dtype=bf16 impl=skinny",
    "n=2 c=40 d=2 h=3 w=7 k=3 r=1 s=1 x_w=48 x_h=336 x_d=1008 x_n=2016 impl=skinny     # pixels that lie apart",
    "n=2 c=3 h=3 w=7 k=40 r=1 s=1 x_w=6 x_h=42 x_n=126 y_w=44 y_h=308 y_n=924 direction=weight impl=skinny",
    "n=2 c=40 h=5 w=7 k=3 r=1 s=1 misalign=1 impl=skinny config='vec=1 vec_few=1 runs=8 lanes=5'",
    "n=2 c=6 h=5 w=7 k=24 r=1 s=1 epilogue=tril bias=1 impl=skinny",
    "n=2 c=24 h=5 w=7 k=6 r=1 s=1 epilogue=tril impl=skinny",
    "n=24 c=1 h=1 w=1 k=72 pad=1 layout=nchw dtype=bf16 bias=1 impl=skinny              # images that are rows",
    "n=9 c=7 h=1 w=1 k=72 pad=1 stride=2 scale=1 impl=skinny",
    "n=200 c=8 h=1 w=1 k=40 pad=1 direction=data out=f32 impl=skinny",
    "n=6 c=3 d=2 h=2 w=1 k=9 t=2 r=2 s=1 layout=nchw impl=skinny",
    "n=90 c=16 h=2 w=2 k=3 r=2 s=2 direction=weight dtype=bf16 impl=skinny config='slices=2'",

    /* few channels or filters */
    "n=3 c=3 h=19 w=37 k=64 r=7 s=7 pad=3 stride=2 impl=stem",
    "n=2 c=3 h=19 w=17 k=16 r=3 s=3 pad=1 stride=2 bias=1 activation=silu dtype=bf16 impl=stem",
    "n=2 c=5 h=19 w=17 k=72 r=3 s=5 pad_left=3 pad_top=1 stride_w=3 dilation_h=2 bias=1 out=f32 impl=stem",
    "n=2 c=8 h=9 w=20 k=104 pad=1 impl=stem",
    "n=2 c=8 h=19 w=37 k=55 pad=1 stride=2 impl=stem             # pixels of 16 bytes, stored element by element",
    "n=2 c=4 h=9 w=20 k=40 pad=1 dtype=bf16 impl=stem config='vec=4' # of 8 bytes",
    "n=2 c=8 h=9 w=20 k=25 pad=1 misalign=1 impl=stem config='vec=1'",
    "n=2 c=1 h=9 w=20 k=24 r=1 s=9 pad_left=4 pad_right=4 impl=stem",
    "n=2 c=3 h=19 w=37 k=61 r=7 s=7 pad=3 stride=2 layout=nchw bias=1 impl=stem",
    "n=2 c=4 h=16 w=36 k=96 r=4 s=4 stride=2 layout=nchw dtype=bf16 out=f32 impl=stem",
    "n=134 c=3 h=18 w=4 k=32 pad=1 stride=2 layout=nchw activation=relu impl=stem # several tiles a CTA",
    "n=134 c=3 h=18 w=4 k=32 pad=1 stride=2 layout=nchw impl=stem config='pairs=1 tile_w=16 tile_h=8'",
    "n=2 c=3 h=9 w=32 k=141 pad=1 layout=nchw dtype=bf16 impl=stem # rows of whole sectors",
    "n=134 c=3 h=18 w=2 k=32 pad=1 stride=2 impl=stem",
    "n=2 c=5 h=9 w=20 k=264 pad=1 bias=1 scale=1 impl=stem       # three CTAs of filters",
    "n=2 c=3 h=7 w=7 k=141 pad=1 bias=1 layout=nchw dtype=bf16 impl=stem",
    "n=2 c=5 h=19 w=37 k=61 pad=1 stride=2 bias=1 impl=stem      # stored element by element",
    "n=2 c=8 h=9 w=20 k=205 pad=1 dtype=bf16 impl=stem",
    "n=2 c=5 h=9 w=21 k=37 pad=1 out=f32 impl=stem               # runs of all pixels",
    "n=2 c=7 h=9 w=21 k=5 pad=1 impl=stem                        # of fewer elements than a warp",
    "n=2 c=3 h=9 w=21 k=40 pad=1 layout=nchw out=f32 impl=stem   # 32 channels, then 8",
    "n=2 c=1 h=5 w=141 k=61 pad=1 layout=nchw bias=1 impl=stem   # tiles of a row",
    "n=2 c=4 h=6 w=270 k=72 r=4 s=4 stride=2 layout=nchw dtype=bf16 out=f32 impl=stem config='pairs=0 tile_w=128 "
    "tile_h=1'",
    "n=2 c=24 h=3 w=133 k=48 pad=1 layout=nchw misalign=1 impl=stem",
    "n=2 c=3 h=3 w=137 k=72 pad=1 layout=nchw epilogue=tril impl=stem",
    "n=2 c=8 h=9 w=20 k=229 pad=1 misalign=1 dtype=bf16 impl=stem config='vec=1' # pixels begin anywhere",
    "n=2 c=24 h=9 w=20 k=80 pad=1 bias=1 activation=relu impl=stem config='tile_n=80 several=0' # by ldmatrix",
    "n=300 c=32 h=3 w=4 k=24 r=1 s=3 pad=1 stride=2 scale=1 dtype=bf16 impl=stem # several tiles a CTA",
    "n=2 c=64 h=9 w=20 k=48 pad=1 out=f32 impl=stem             # 1152 bytes of K",
    "n=2 c=20 h=19 w=17 k=136 r=3 s=5 pad=2 stride_w=3 dilation_h=2 bias=1 impl=stem # vectors of 4",
    "n=2 c=14 h=9 w=20 k=21 pad=1 misalign=1 impl=stem config='vec=1'",
    "n=2 c=10 h=9 w=20 k=21 pad=1 impl=stem                     # vectors of 2, the last half of a step is zeros",
    "n=2 c=29 h=19 w=20 k=27 pad=1 stride=2 dtype=bf16 impl=stem # lines one after the other",
    "n=2 c=40 h=9 w=20 k=27 pad=1 layout=nchw bias=1 impl=stem config='pairs=1 tile_w=16 tile_h=8'",
    "n=2 c=40 h=9 w=20 k=3 pad=1 direction=data impl=stem        # dy under filters turned round",
    "n=2 c=41 h=19 w=20 k=5 pad_left=3 pad_top=1 s=5 dilation_h=2 direction=data dtype=bf16 out=f32 impl=stem",
    "n=2 c=21 h=9 w=10 k=19 r=4 pad_top=5 pad_right=1 layout=nchw direction=data impl=stem "
    "config='pairs=1 tile_w=16 tile_h=8' # more padding than taps",
    "n=2 c=72 h=9 w=20 k=24 pad=1 direction=data dtype=bf16 impl=stem",
    "n=2 c=141 h=9 w=20 k=17 r=2 layout=nchw direction=data impl=stem # filters past the end",
    "c=16 h=5 w=5 k=9 pad=1 impl=stem # filters by cp.async",
    "n=3 c=3 h=19 w=37 k=64 r=7 s=7 pad=3 stride=2 scale=1 bias=1 impl=stem",
    "n=2 c=3 h=9 w=9 k=72 pad=1 stride=2 epilogue=tril impl=stem",
    "n=2 c=16 h=9 w=21 k=3 pad=1 impl=narrow                 # a tile past the last column",
    "n=1 c=40 h=37 w=39 k=5 stride=2 pad=1 bias=1 scale=1 activation=relu dtype=bf16 impl=narrow # odd units",
    "n=2 c=3 h=19 w=17 k=41 r=1 s=1 direction=data impl=narrow",
    "n=2 c=7 h=20 w=18 k=1 pad=1 direction=data impl=narrow",
    "n=1 c=7 h=20 w=18 k=70 pad_top=2 pad_left=1 r=3 s=4 dilation_h=2 direction=data impl=narrow out=f32 # turned "
    "round",
    "n=1 c=16 h=20 w=18 k=8 r=4 dilation_h=2 impl=narrow        # rows of a filter in two steps, apart",
    "n=1 c=136 h=18 w=18 k=16 pad=2 r=5 s=3 residual=1 bias=1 impl=narrow # rows of a filter in two steps, three "
    "chunks",
    "n=2 c=6 h=20 w=33 k=19 pad_left=5 r=2 s=9 dilation_w=2 stride_w=3 stride_h=2 impl=narrow out=f32",
    "n=135 c=12 h=17 w=17 k=8 pad=1 r=1 s=3 impl=narrow config='ctas=1' # more tiles than CTAs",
    "n=2 c=69 h=16 w=19 k=32 pad=1 bias=1 scale=1 impl=narrow # two chunks of a copy",
    "n=2 c=13 h=29 w=29 k=32 pad=1 dtype=bf16 impl=narrow config='copied=1 vec=8 channels=16'",
    "n=2 c=69 h=16 w=19 k=32 pad=1 bias=1 scale=1 impl=narrow config='copied=1 vec=8 channels=72 chunk=40'",
    "n=2 c=3 h=19 w=17 k=41 r=1 s=1 direction=data impl=narrow config='copied=1 vec=8 channels=48 chunk=48'",
    "n=2 c=16 h=9 w=11 k=5 pad=1 x_w=18 y_w=7 y_h=78 bias=1 residual=1 impl=narrow # vectors of 2",
    "n=1 c=8 h=9 w=11 k=6 pad=1 y_w=7 impl=narrow            # pixels at odd places",
    "n=2 c=8 h=3 w=4 k=30 pad=1 epilogue=tril dtype=bf16 impl=narrow",
    "n=2 c=16 h=9 w=9 k=40 pad=1 direction=data x_w=24 x_h=240 y_w=48 y_h=480 y_n=5760 impl=narrow # views change "
    "sides",
    "n=2 c=16 h=9 w=11 k=3 pad=1 impl=kn2row",
    "n=2 c=16 h=8 w=10 k=3 pad=1 layout=nchw impl=kn2row",
    "n=2 c=8 h=9 w=10 k=40 pad=1 direction=data impl=kn2row      # filters as they lie",
    "n=2 c=3 h=9 w=10 k=72 r=3 s=5 pad_left=3 pad_top=1 dilation_h=2 direction=data dtype=bf16 out=f32 impl=kn2row",
    "n=3 c=5 h=6 w=9 k=24 r=2 pad=4 direction=data impl=kn2row   # more padding than taps",
    "n=2 c=75 h=16 w=12 k=5 r=5 pad=2 stride=2 dilation=2 scale=1 bias=1 residual=1 activation=relu dtype=bf16 "
    "layout=nchw impl=kn2row # channels that are no whole 16 bytes",
    "n=3 c=136 h=8 w=7 k=1 r=2 s=4 pad_left=3 pad_bottom=1 stride_w=3 out=f32 layout=nchw impl=kn2row",
    "n=2 c=72 h=9 w=11 k=5 r=5 pad=2 stride=2 dilation=2 scale=1 bias=1 residual=1 activation=relu dtype=bf16 "
    "impl=kn2row",
    "n=3 c=136 h=13 w=7 k=1 r=2 s=4 pad_left=3 pad_bottom=1 stride_w=3 out=f32 impl=kn2row",
    "n=1 c=24 h=1 w=1 k=7 pad=1 bias=1 activation=silu impl=kn2row   # one tap sees a pixel",
    "n=2 c=16 h=3 w=70 k=4 r=1 s=64 pad_left=2 impl=kn2row           # the longest filters",
    "n=2 c=16 h=70 w=3 k=4 r=64 s=1 pad_bottom=2 impl=kn2row",
    "n=8 c=205 h=19 w=19 k=3 pad=1 bias=1 activation=relu impl=kn2row                # pixels that begin anywhere",
    "n=8 c=51 h=19 w=19 k=3 pad=1 stride=2 residual=1 layout=nchw impl=kn2row        # planes that do",
    "n=8 c=5 h=19 w=19 k=151 pad=1 direction=data impl=kn2row",

    /* a filter a channel */
    "n=2 c=72 h=9 w=11 k=72 groups=72 pad=1 impl=halo",
    "n=1 c=72 h=6 w=11 k=72 groups=72 r=7 s=7 pad=3 dtype=bf16 bias=1 residual=1 activation=gelu impl=halo",
    "n=2 c=24 h=37 w=21 k=24 groups=24 r=3 s=5 pad=2 stride=2 out=f32 scale=1 impl=halo",
    "n=2 c=40 h=9 w=10 k=40 groups=40 r=4 s=3 pad=1 direction=data dtype=bf16 impl=halo # turned round",
    "n=2 c=8 h=9 w=11 k=8 groups=8 r=2 pad=3 direction=data x_w=16 x_h=184 y_w=24 y_h=400 y_n=9000 impl=halo # more "
    "padding than filter",
    "n=70 c=40 h=8 w=9 k=40 groups=40 pad=1 impl=halo config='wide=1 high=16 images=1 stages=2'",
    "n=37 c=72 h=1 w=1 k=72 groups=72 r=5 s=5 pad=2 impl=halo # of 25 taps one sees more than padding",
    "n=13 c=40 h=3 w=3 k=40 groups=40 r=7 s=7 pad=3 dtype=bf16 direction=data impl=halo # 25 of 49, turned round",
    "n=9 c=32 h=7 w=5 k=32 groups=32 r=5 s=3 pad=2 residual=1 bias=1 impl=halo # several images a tile",
    "n=2 c=64 h=2 w=40 k=64 groups=64 r=7 s=3 pad_top=5 pad_bottom=2 pad_left=1 impl=halo",
    "n=2 c=24 h=9 w=11 k=24 groups=24 pad=1 x_w=40 y_w=32 y_h=400 residual=1 impl=halo",
    "n=2 c=40 h=19 w=31 k=40 groups=40 pad=1 stride=2 impl=halo config='wide=2 images=1 high=16 stages=2 ctas=2'",
    "n=3 c=24 h=15 w=14 k=24 groups=24 r=5 s=5 pad=2 stride=2 dtype=bf16 bias=1 impl=halo config='wide=1 images=2 "
    "high=16 stages=2 ctas=1'",
    "n=2 c=72 h=21 w=33 k=72 groups=72 r=7 s=7 pad=3 stride=2 residual=1 impl=halo config='wide=4 images=1 high=8 "
    "stages=2 ctas=1'",
    "n=2 c=24 h=9 w=20 k=24 groups=24 r=2 s=3 pad=1 stride_w=2 impl=halo config='wide=1 images=1 high=32 stages=2 "
    "ctas=1'",
    "n=2 c=24 h=19 w=20 k=24 groups=24 r=4 s=9 pad=4 stride_h=2 impl=halo config='wide=4 images=1 high=12 stages=2 "
    "ctas=1'",
    "n=2 c=40 h=9 w=31 k=40 groups=40 pad=1 impl=halo config='wide=2 images=1 high=16 stages=2 ctas=2'",
    "n=3 c=32 h=14 w=14 k=32 groups=32 pad=1 bias=1 activation=relu dtype=bf16 impl=halo config='wide=1 images=2 "
    "high=16 stages=2 ctas=1'",
    "n=2 c=72 h=11 w=23 k=72 groups=72 r=5 s=5 pad=2 residual=1 scale=1 impl=halo config='wide=2 images=1 high=24 "
    "stages=2 ctas=1'",
    "n=2 c=24 h=7 w=7 k=24 groups=24 r=7 s=7 pad=3 impl=halo config='wide=1 images=4 high=12 stages=2 ctas=1'",
    "n=2 c=40 h=9 w=31 k=40 groups=40 r=2 s=3 pad_top=1 direction=data dtype=bf16 impl=halo config='wide=4 images=1 "
    "high=8 stages=2 ctas=2'",
    "n=2 c=40 h=9 w=31 k=40 groups=40 pad=1 out=f32 bias=1 impl=halo config='wide=2 images=1 high=16 stages=2 ctas=2'",
    "n=40 c=40 h=18 w=45 k=40 groups=40 pad=1 dtype=bf16 impl=halo config='wide=2 images=1 high=16 stages=2 ctas=3'",
    "n=9 c=16 h=6 w=5 k=16 groups=16 pad=1 epilogue=tril bias=1 impl=halo config='wide=1 images=4 high=8 stages=2 "
    "ctas=2'",
    "n=40 c=72 h=20 w=45 k=72 groups=72 pad=1 dtype=bf16 impl=halo config='wide=8 images=1 high=4 stages=2 ctas=2' # "
    "several tiles a CTA",
    "n=2 c=40 h=9 w=31 k=40 groups=40 pad=1 fill=hard impl=halo config='wide=2 images=1 high=16 stages=2 ctas=2' # "
    "infinities that neighbours do not see",
    "n=2 c=40 h=5 w=5 k=40 groups=40 pad=1 epilogue=tril bias=1 impl=halo",
    "n=2 c=40 h=12 w=16 k=40 groups=40 pad=1 y_w=48 y_h=768 y_n=9216 impl=halo config='wide=2 images=1 high=16 "
    "stages=2 "
    "ctas=2'",
    "n=3 c=72 h=18 w=22 k=72 groups=72 r=7 s=7 pad=3 bias=1 residual=1 dtype=bf16 fill=hard impl=halo config='wide=1 "
    "images=1 high=32 stages=2 ctas=2'",
    "n=3 c=136 h=19 w=31 k=136 groups=136 pad=1 bias=1 impl=halo config='warps=8 wide=1 images=1 high=16 stages=2 "
    "ctas=1'",
    "n=3 c=72 h=19 w=31 k=72 groups=72 r=5 s=5 pad=2 stride=2 dtype=bf16 residual=1 scale=1 impl=halo config='warps=8 "
    "wide=2 images=1 high=8 stages=2 ctas=1'",
    "n=5 c=56 h=7 w=9 k=56 groups=56 r=7 s=7 pad=3 fill=hard direction=data impl=halo config='warps=8 wide=1 images=1 "
    "high=16 stages=2 ctas=1'",
    "n=9 c=24 h=7 w=7 k=24 groups=24 pad=1 out=f32 impl=halo config='warps=2 wide=1 images=4 high=8 stages=2 ctas=3'",
    "n=3 c=40 h=9 w=20 k=40 groups=40 pad=1 scale=1 activation=gelu_erf impl=halo config='wide=1 images=1 high=16 "
    "stages=2 ctas=3' # a row of a block",
    "n=3 c=3 h=56 w=56 k=3 groups=3 r=7 s=7 pad=3 layout=nchw bias=1 impl=bands # copies of 16 bytes, a block before y",
    "n=2 c=2 h=19 w=56 k=2 groups=2 pad=1 layout=nchw dtype=bf16 residual=1 fill=hard impl=bands",
    "n=7 c=3 h=28 w=28 k=3 groups=3 r=5 s=5 pad=2 layout=nchw scale=1 activation=silu impl=bands config='images=4'",
    "n=9 c=3 h=14 w=14 k=3 groups=3 r=5 s=5 pad=2 layout=nchw dtype=bf16 bias=1 residual=1 activation=gelu impl=bands "
    "config='images=8 warps=3'",
    "n=37 c=2 h=7 w=7 k=2 groups=2 r=7 s=7 pad=3 layout=nchw fill=hard impl=bands config='images=32'",
    "n=2 c=3 h=90 w=128 k=3 groups=3 r=5 s=5 pad=2 layout=nchw impl=bands config='warps=1' # the widest",
    "n=2 c=3 h=21 w=40 k=3 groups=3 r=4 s=3 pad=1 layout=nchw direction=data dtype=bf16 impl=bands # turned round",
    "n=2 c=3 h=9 w=24 k=3 groups=3 r=2 s=8 pad_left=3 pad_top=1 layout=nchw out=f32 residual=1 impl=bands",
    "n=2 c=3 h=9 w=24 k=3 groups=3 r=9 s=9 pad=4 layout=nchw fill=hard impl=bands config='warps=1'",
    "n=2 c=4 h=9 w=28 k=4 groups=4 r=5 s=5 direction=data pad=1 layout=nchw fill=hard impl=bands",
    "n=2 c=3 h=9 w=17 k=3 groups=3 pad=1 layout=nchw epilogue=tril impl=bands",
    "n=2 c=3 h=5 w=1 k=3 groups=3 pad=1 r=1 s=3 pad_left=7 layout=nchw dtype=bf16 impl=bands # columns of padding "
    "alone",
    "n=70 c=16 h=3 w=3 k=16 groups=16 pad=1 layout=nchw dtype=bf16 impl=bands config='images=3'",
    "n=5 c=9 h=7 w=7 k=9 r=5 s=5 groups=9 pad=2 bias=1 impl=sliding config='cols=4 even=0 async=0 ahead=5'",
    "n=2 c=7 h=7 w=9 k=7 groups=7 pad=1 stride=2 impl=sliding config='cols=4 even=0 right=1 async=0 ahead=4'",
    "n=3 c=5 h=9 w=16 k=5 groups=5 r=5 s=5 pad=2 layout=nchw dtype=bf16 residual=1 impl=sliding config='cols=4 run=4 "
    "skipped=2 left=1 right=1 ahead=5'",
    "n=3 c=5 h=9 w=16 k=5 groups=5 r=5 s=5 pad=2 layout=nchw misalign=1 impl=sliding config='cols=4 run=4 skipped=2 "
    "left=1 right=1 ahead=1'",
    "n=2 c=12 h=9 w=19 k=12 groups=12 pad=1 fill=hard impl=sliding config='vec=2 async=0 ahead=3'",
    "n=3 c=3 h=19 w=21 k=3 groups=3 pad=1 dtype=f32 bias=1 scale=1 residual=1 activation=relu impl=sliding "
    "config='cols=3 high=4 ahead=3'",
    "n=2 c=201 h=9 w=5 k=201 groups=201 pad=1 bias=1 impl=sliding config='high=5' # the first channels follow the last",
    "n=2 c=30 h=9 w=11 k=30 groups=30 pad_left=2 pad_top=1 r=2 s=4 stride_h=2 stride_w=3 scale=1 impl=sliding",
    "n=2 c=12 h=17 w=9 k=12 groups=12 pad=2 dilation=3 dtype=f32 out=f32 impl=sliding",
    "n=2 c=20 h=13 w=9 k=20 groups=20 pad=1 stride=4 out=f32 residual=1 impl=sliding # rows that no tap sees",
    "n=2 c=11 h=9 w=10 k=11 groups=11 r=4 s=3 pad=1 direction=data dtype=bf16 impl=sliding # turned round",
    "n=2 c=6 h=9 w=16 k=6 groups=6 r=3 s=5 pad=3 dilation_h=2 direction=data out=f32 impl=sliding",
    "n=1 c=1032 h=5 w=3 k=1032 groups=1032 pad=1 impl=sliding config='vec=4 cols=3 high=2'",
    "n=2 c=28 h=9 w=7 k=28 groups=28 pad=1 bias=1 residual=1 misalign=1 impl=sliding",
    "n=1 c=1030 h=4 w=3 k=1030 groups=1030 pad=1 misalign=1 fill=hard impl=sliding config='vec=2'",
    "n=2 c=1 h=9 w=33 k=1 r=7 s=7 pad=3 dtype=bf16 impl=sliding # a plane",
    "n=3 c=144 h=29 w=21 k=144 groups=144 pad=1 dtype=bf16 residual=1 impl=sliding config='vec=2 cols=8 high=6 even=0' "
    "# the last columns again",
    "n=2 c=72 h=13 w=28 k=72 groups=72 r=5 s=5 pad=2 bias=1 activation=silu impl=sliding config='vec=2 cols=7 high=5 "
    "ctas=2'",
    "n=2 c=8 h=1 w=1 k=8 groups=8 pad_left=5 pad_top=5 stride=8 impl=sliding # nothing but padding",
    "n=2 c=64 h=2 w=40 k=64 groups=64 r=7 s=3 pad_top=5 pad_bottom=2 pad_left=1 impl=sliding",
    "n=2 c=5 h=9 w=11 k=15 groups=5 pad=1 bias=1 residual=1 impl=sliding # three filters a channel",
    "n=2 c=140 h=5 w=6 k=280 groups=140 r=2 s=3 stride=2 scale=1 activation=relu fill=hard impl=sliding",
    "n=3 c=1 h=13 w=17 k=3 pad=1 dtype=bf16 misalign=1 impl=sliding",
    "n=1 c=31 h=5 w=3 k=31 groups=31 pad=1 epilogue=tril impl=sliding",
    "n=2 c=5 h=9 w=16 k=5 groups=5 pad=1 layout=nchw bias=1 residual=1 activation=relu impl=sliding # planes",
    "n=3 c=6 h=19 w=56 k=6 groups=6 pad=1 layout=nchw dtype=bf16 impl=sliding config='cols=8 high=6 run=8 "
    "skipped=7'",
    "n=2 c=6 h=14 w=28 k=6 groups=6 pad=2 r=5 s=5 layout=nchw scale=1 impl=sliding config='cols=8 run=4 even=0 "
    "skipped=2 left=1 right=1'",
    "n=2 c=6 h=8 w=32 k=6 groups=6 pad=1 layout=nchw dtype=bf16 out=f32 impl=sliding config='cols=8 run=8 skipped=7 "
    "left=1 "
    "right=1 even=1'",
    "n=1 c=7 h=9 w=13 k=7 groups=7 pad=2 dilation=2 layout=nchw dtype=f32 impl=sliding",
    "n=2 c=3 h=9 w=16 k=3 groups=3 r=4 s=5 pad=1 dilation=2 direction=data layout=nchw out=f32 impl=sliding",
    "n=2 c=3 h=9 w=16 k=9 groups=3 pad=1 layout=nchw misalign=1 residual=1 impl=sliding",
    "n=2 c=4 h=9 w=28 k=4 groups=4 direction=data pad=3 layout=nchw fill=hard impl=sliding # dy begins inside",
    "n=2 c=5 h=1 w=3 k=5 groups=5 pad=1 epilogue=tril layout=nchw impl=sliding",
    "n=1 c=201 h=4 w=5 k=201 groups=201 pad=1 misalign=1 impl=sliding",
    "n=2 c=5 h=9 w=19 k=5 groups=5 r=2 s=3 pad_left=2 pad_top=1 stride_w=3 dilation_w=2 residual=1 impl=sliding "
    "config='cols=3 high=2'",
    "n=2 c=24 h=9 w=10 k=24 groups=24 r=4 s=3 pad=1 direction=data dtype=bf16 impl=sliding config='vec=4 cols=2 "
    "high=4'",
    "n=2 c=3 h=31 w=60 k=3 groups=3 pad=1 stride=2 dtype=bf16 residual=1 impl=sliding config='high=4'",
    "n=2 c=3 h=17 w=11 k=3 groups=3 pad=1 dtype=f32 bias=1 impl=sliding config='ahead=5'",
    "n=3 c=3 h=29 w=24 k=1 pad=1 scale=1 bias=1 residual=1 activation=relu impl=sliding # one filter of three channels",
    "n=2 c=3 h=20 w=25 k=1 r=5 s=2 pad_left=2 dilation_h=2 misalign=1 impl=sliding",
    "n=3 c=24 h=19 w=24 k=24 groups=24 pad=1 residual=1 impl=sliding config='vec=4 cols=8 high=7 shared=1 ctas=2'",
    "n=3 c=16 h=9 w=5 k=16 groups=16 pad=1 bias=1 impl=sliding config='vec=2 cols=3 high=4 even=0 ahead=2 shared=1' # "
    "four neighbours share copies, strips end within a warp",
    "n=2 c=40 h=7 w=9 k=40 groups=40 r=5 s=5 pad=2 stride=2 dtype=bf16 residual=1 impl=sliding config='vec=2 cols=5 "
    "high=3 even=1 shared=1'",
    "n=2 c=24 h=8 w=7 k=24 groups=24 r=2 s=4 pad_left=3 dilation_w=2 dtype=f32 fill=hard impl=sliding config='vec=2 "
    "cols=4 high=3 shared=1' # two",
    "n=2 c=24 h=8 w=7 k=24 groups=24 pad=1 misalign=1 direction=data impl=sliding config='vec=4 cols=4 even=0 "
    "shared=1'",
    "n=1 c=72 h=6 w=11 k=72 groups=72 r=7 s=7 pad=3 dtype=bf16 bias=1 residual=1 activation=gelu impl=depthwise",
    "n=2 c=72 h=7 w=21 k=72 groups=72 r=3 s=5 pad=2 stride=2 out=f32 impl=depthwise # columns past the end",
    "n=2 c=8 h=9 w=9 k=8 groups=8 pad=2 stride=3 impl=depthwise # the last column of y would begin behind x",
    "n=2 c=8 h=9 w=9 k=8 groups=8 pad=2 stride=3 layout=nchw impl=depthwise",
    "n=2 c=24 h=11 w=17 k=24 groups=24 pad_left=3 pad_top=1 dilation=2 dtype=f32 impl=depthwise",
    "n=2 c=5 h=9 w=16 k=5 groups=5 r=7 s=7 pad=3 layout=nchw bias=1 residual=1 activation=relu impl=depthwise",
    "n=2 c=6 h=8 w=24 k=6 groups=6 pad=1 stride=2 layout=nchw dtype=bf16 out=f32 impl=depthwise",
    "n=1 c=7 h=9 w=13 k=7 groups=7 pad=2 dilation=2 layout=nchw dtype=f32 impl=depthwise",
    "n=2 c=40 h=9 w=10 k=40 groups=40 r=4 s=3 pad=1 direction=data dtype=bf16 impl=depthwise",
    "n=2 c=3 h=9 w=16 k=3 groups=3 r=4 s=5 pad=1 dilation=2 direction=data layout=nchw out=f32 impl=depthwise",
    "n=2 c=24 h=9 w=11 k=24 groups=24 pad=1 scale=1 bias=1 impl=depthwise",
    "n=2 c=5 h=9 w=16 k=5 groups=5 pad=3 r=7 s=7 layout=nchw scale=1 impl=depthwise",
    "n=3 c=1 h=29 w=37 k=1 pad=1 scale=1 bias=1 residual=1 dtype=bf16 impl=depthwise # a plane",
    "n=2 c=1 h=19 w=32 k=1 r=5 s=5 pad=1 direction=data out=f32 impl=depthwise",
    "n=3 c=3 h=29 w=24 k=1 pad=1 scale=1 bias=1 residual=1 activation=relu impl=depthwise # a filter of three channels",
    "n=2 c=7 h=20 w=25 k=1 r=5 s=3 stride=2 pad_left=2 dilation_h=2 misalign=1 impl=depthwise",
    "n=2 c=5 d=5 h=6 w=11 k=10 t=3 groups=5 pad=1 bias=1 residual=1 activation=relu impl=depthwise # volumes",
    "n=2 c=7 d=6 h=5 w=9 k=7 t=2 groups=7 pad_front=1 pad=1 stride=2 layout=nchw direction=data dtype=bf16 "
    "impl=depthwise",
    "n=2 c=24 h=9 w=17 k=24 groups=24 pad=1 stride=2 direction=data impl=depthwise # columns between the strides",
    "n=3 c=5 h=14 w=25 k=5 groups=5 r=4 s=5 pad_left=4 pad_top=2 stride_h=2 stride_w=3 dilation=2 layout=nchw "
    "direction=data dtype=f32 fill=hard impl=depthwise",
    "n=2 c=8 h=9 w=40 k=8 groups=8 s=2 pad_left=7 stride_w=9 direction=data out=f32 impl=depthwise # more than a "
    "stride",
    "n=2 c=6 h=9 w=13 k=6 groups=6 pad=1 x_w=8 y_w=10 y_h=160 impl=depthwise # a view",
    "n=1 c=6 h=9 w=33 k=6 groups=6 r=9 s=31 pad=15 dtype=bf16 impl=depthwise",
    "n=1 c=3 h=3 w=70 k=3 groups=3 s=64 layout=nchw impl=depthwise config='cols=2' # as many columns as may be",
    "n=2 c=16 h=8 w=8 k=16 groups=16 pad=1 misalign=1 impl=depthwise",
    "n=1 c=8 h=2 w=130 k=8 groups=8 r=1 s=2 dilation=64 impl=depthwise # far apart",
    "n=1 c=33 h=99 w=12 k=33 groups=33 r=99 s=5 pad=2 impl=depthwise",
    "n=2 c=16 h=8 w=16 k=16 groups=16 pad=1 layout=nchw residual=1 misalign=1 impl=depthwise",
    "n=1 c=40 h=5 w=5 k=40 groups=40 pad=1 epilogue=tril impl=depthwise",
    "n=2 c=5 h=1 w=3 k=5 groups=5 pad=1 epilogue=tril layout=nchw impl=depthwise",

    /* the gradient of these filters */
    "n=2 c=40 h=9 w=18 k=40 groups=40 pad=1 direction=weight impl=halo_weight # channels past the end, a warp without "
    "any",
    "n=3 c=32 h=19 w=37 k=32 groups=32 r=7 s=7 pad=3 direction=weight dtype=bf16 impl=halo_weight config='slices=2'",
    "n=5 c=72 h=14 w=14 k=72 groups=72 r=5 s=5 pad=2 direction=weight impl=halo_weight config='slices=3 stages=2'",
    "n=2 c=64 h=12 w=70 k=64 groups=64 r=3 s=8 pad_left=2 pad_top=1 direction=weight out=f32 impl=halo_weight",
    "n=2 c=24 h=16 w=24 k=24 groups=24 r=2 pad=4 direction=weight dtype=bf16 impl=halo_weight config='wide=1 high=4'",
    "n=2 c=32 h=17 w=38 k=32 groups=32 r=5 pad=2 stride_w=2 stride_h=3 dilation=2 direction=weight impl=halo_weight",
    "n=3 c=40 h=29 w=30 k=40 groups=40 pad=1 stride=2 direction=weight dtype=bf16 impl=halo_weight config='slices=2'",
    "n=3 c=72 h=9 w=11 k=72 groups=72 pad=1 direction=weight bias=1 impl=depthwise_weight",
    "n=3 c=100 h=9 w=13 k=100 groups=100 r=7 s=7 pad=3 direction=weight dtype=bf16 impl=depthwise_weight "
    "config='slices=3'",
    "n=2 c=10 d=3 h=9 w=12 k=10 groups=10 t=3 s=5 pad=1 stride=2 dilation=2 direction=weight out=f32 "
    "impl=depthwise_weight",
    "n=1 c=7 h=9 w=9 k=7 groups=7 pad=1 direction=weight dtype=f32 bias=1 impl=depthwise_weight",
    "n=2 c=5 h=19 w=21 k=5 groups=5 r=5 s=5 pad=2 stride=2 layout=nchw direction=weight bias=1 impl=depthwise_weight",
    "n=3 c=3 d=4 h=9 w=24 k=3 t=2 groups=3 pad=1 layout=nchw direction=weight dtype=bf16 out=f32 "
    "impl=depthwise_weight config='slices=3'",
    "n=2 c=16 h=9 w=40 k=16 groups=16 s=11 r=1 dilation_w=3 pad_left=4 stride_w=3 direction=weight bias=1 "
    "impl=depthwise_weight",
    "n=3 c=40 h=11 w=13 k=40 groups=40 pad=1 direction=weight bias=1 impl=depthwise_weight config='slices=3'",
    NULL,
};
