"""Problem lines from shapes: what NumPy's and torch's functions ask of the operators. Each result, bytes, is kept."""

import functools
import math

from ._library import line_of, problem

_kept = functools.lru_cache(8192)

# Names of element types elsewhere, as the library calls them.
DTYPES = {
    "float64": "f64",
    "float32": "f32",
    "float16": "f16",
    "bfloat16": "bf16",
    "float8_e4m3fn": "e4m3",
    "float8_e5m2": "e5m2",
    "int64": "i64",
    "int32": "i32",
    "int16": "i16",
    "int8": "i8",
    "uint8": "u8",
    "bool": "bool",
}


def dtype_name(dtype):
    """The library's name of an element type of NumPy, torch, CuPy or JAX."""
    name = getattr(dtype, "name", str(dtype)).rpartition(".")[2]
    if name not in DTYPES or not getattr(dtype, "isnative", True):
        raise NotImplementedError(f"element type {dtype} is none of {' '.join(DTYPES)}")
    return DTYPES[name]


def _told(x):
    """A number whose 0 would be the default, as a line has it: the smallest normal one does what 0 says."""
    return f"{x or 2.0**-126:.9g}"


def _direction(backward):
    return "backward" if backward else "forward"


def _shape(shape):
    """As lines have it; of no modes a single element."""
    return "x".join(map(str, shape)) or "1"


@_kept
def softmax(shape, dtype, axis, log=False, scale=1.0, backward=False):
    line = f"shape={_shape(shape)} axis={axis} dtype={dtype_name(dtype)} log={int(log)} direction={_direction(backward)}"
    return problem("softmax", line + (f" scale={_told(scale)}" if scale != 1 else ""))


@_kept
def norm(name, rows, cols, dtype, eps, affine, residual=False, backward=False):
    line = f"rows={rows} cols={cols} dtype={dtype_name(dtype)} affine={int(affine)} residual={int(residual)}"
    return problem(name, f"{line} direction=backward" if backward else f"{line} eps={_told(eps)}")


@_kept
def groupnorm(shape, groups, dtype, eps, affine, channels_last=False, backward=False):
    n, c, *pixels = shape
    line = f"n={n} c={c} h=1 w={math.prod(pixels)} groups={groups} dtype={dtype_name(dtype)} affine={int(affine)}"
    line += " layout=" + ("nhwc" if channels_last else "nchw")
    return problem("groupnorm", f"{line} direction=backward" if backward else f"{line} eps={_told(eps)}")


@_kept
def crossentropy(rows, cols, dtype, target, reduction, ignore_index, weighted=False, smoothing=0.0, backward=False):
    line = f"rows={rows} cols={cols} dtype={dtype_name(dtype)} target={dtype_name(target)} reduction={reduction}"
    line += f" weighted={int(weighted)} smoothing={smoothing:.9g}"
    return problem("crossentropy", f"{line} ignore_index={ignore_index} direction={_direction(backward)}")


@_kept
def gemm(m, n, k, dtype, bias=False, activation="identity", output=None, **fields):
    line = f"m={m} n={n} k={k} a={dtype_name(dtype)} bias={int(bias)} activation={activation} {line_of(fields)}"
    return problem("gemm", f"{line} d={dtype_name(output)}" if output else line)


@_kept
def rope(tokens, heads, k_heads, head_dim, dtype, positions, theta, style="half", rotary_dim=0, inverse=False):
    line = f"tokens={tokens} heads={heads} k_heads={k_heads} head_dim={head_dim} dtype={dtype_name(dtype)}"
    line += f" positions={dtype_name(positions)} theta={theta:.9g} style={style} rotary_dim={rotary_dim}"
    return problem("rope", f"{line} inverse={int(inverse)}")


def _attention_strides(letter, strides):
    *batch, head, token, _ = strides
    return f" ld{letter}={token} ld{letter}_head={head}" + (f" ld{letter}_batch={batch[0]}" if batch else "")


def _attention_options(scale, left, softcap, sinks):
    scale = "" if scale is None else f" scale={_told(scale)}"
    return f"{scale} left={left} softcap={softcap:.9g} sinks={int(sinks)}"


@_kept
def attention(
    q,
    k,
    v,
    strides,
    dtype,
    causal,
    scale,
    left=0,
    right=0,
    softcap=0.0,
    sinks=False,
    mask=None,
    mask_strides=None,
    lse=False,
    backward=False,
    mask_gradient=False,
):
    """q, k, v: shapes [B,H,S,D]; strides of q, k, v and o, whose last is 1."""
    line = f"batch={q[0]} heads={q[1]} kv_heads={k[1]} q={q[2]} kv={k[2]} d={q[3]} dv={v[3]} dtype={dtype_name(dtype)}"
    line += f" causal={int(causal)} right={right} lse={int(lse)} direction={_direction(backward)}"
    line += _attention_options(scale, left, softcap, sinks) + "".join(map(_attention_strides, "qkvo", strides))
    if mask:
        batch, head, token, _ = mask_strides
        line += f" mask={mask} ldmask={token} ldmask_head={head} ldmask_batch={batch} dmask={int(mask_gradient)}"
    return problem("attention", line)


@_kept
def attention_ragged(batch, longest, q, k, v, strides, dtype, causal, scale, left, right, softcap, sinks, backward=False):
    """q, k, v: shapes [H,total,D] of all sequences; longest: of q and kv."""
    line = f"ragged=1 batch={batch} heads={q[0]} kv_heads={k[0]} q={longest[0]} kv={longest[1]} q_total={q[1]} kv_total={k[1]}"
    line += f" d={q[2]} dv={v[2]} dtype={dtype_name(dtype)} causal={int(causal)} right={right}"
    line += f" lse={int(not backward)} direction={_direction(backward)}"
    return problem(
        "attention",
        line + _attention_options(scale, left, softcap, sinks) + "".join(map(_attention_strides, "qkvo", strides)),
    )


@_kept
def attention_decode(q, cache, kv, dv, pages, strides, dtype, scale, left, softcap, sinks, new_strides=None, latent=False):
    """q: shape [B,H,T,D]; cache: heads of k and v, and their keys, of a page where there are pages; kv: the most keys.

    strides: of q, k, v and o, that of v None in a latent cache. new_strides: of new keys and values, which the call stores.
    """
    line = f"batch={q[0]} heads={q[1]} kv_heads={cache[0]} q={q[2]} kv={kv} d={q[3]} dv={dv} dtype={dtype_name(dtype)}"
    line += f" page={cache[1]} pages={pages}" if pages is not None else ""
    line += " append=1" if new_strides else ""
    names = zip(("q", "k", "v", "o", "k_new", "v_new"), (*strides, *(new_strides or ())))
    line += "".join(_attention_strides(letter, s) for letter, s in names if s)
    return problem("attention_decode", f"{line} latent={int(latent)}" + _attention_options(scale, left, softcap, sinks))


@_kept
def conv(x, w, dtype, stride, padding, dilation, groups, channels_last, bias=False, activation="identity", direction="forward"):
    """x, w: shapes [N,C,H,W] and [K,C/groups,R,S]; stride, padding and dilation of rows and columns."""
    line = f"n={x[0]} c={x[1]} h={x[2]} w={x[3]} k={w[0]} r={w[2]} s={w[3]} groups={groups} dtype={dtype_name(dtype)}"
    line += f" stride_h={stride[0]} stride_w={stride[1]} dilation_h={dilation[0]} dilation_w={dilation[1]}"
    line += f" pad_top={padding[0]} pad_bottom={padding[0]} pad_left={padding[1]} pad_right={padding[1]}"
    line += f" layout={'nhwc' if channels_last else 'nchw'} bias={int(bias)} direction={direction}"
    return problem("conv", line + (f" activation={activation}" if direction == "forward" else ""))


@_kept
def elementwise(expr, shape, dtypes, strides, output):
    """dtypes and strides: of the inputs in the order of their names, None for a number; strides has the output's at its end."""
    numbers = [name for name, dtype in dtypes if dtype is None]
    line = f"expr='{expr}' shape={_shape(shape)} out={dtype_name(output)}"
    line += " in=" + ",".join("f32" if dtype is None else dtype_name(dtype) for _, dtype in dtypes)
    line += " strides=" + ",".join(_shape(s) if s else "" for s in strides)
    if numbers:
        line += " scalars=" + ",".join(f"{name}=1" for name in numbers)
    return problem("elementwise", line)


@_kept
def reduce(op, shape, strides, axes, dtype, correction=0):
    line = f"op={op} shape={_shape(shape)} dtype={dtype_name(dtype)} correction={correction}"
    line += f" stride={_shape(strides)}" if shape else ""
    return problem("reduce", f"{line} axes={','.join(map(str, axes))}" if axes else line)


@_kept
def permute(shape, strides, order, dtype):
    order, strides = ",".join(map(str, order)), ",".join(map(str, strides))
    return problem("permute", f"shape={_shape(shape)} order={order} stride_x={strides} dtype={dtype_name(dtype)}")


@_kept
def transpose(batch, rows, cols, ld, inc, dtype):
    size = f"batch={batch} rows={rows} cols={cols} ldx={ld} incx={inc}" if batch * rows * cols else "rows=0"
    return problem("transpose", f"{size} dtype={dtype_name(dtype)}")


@_kept
def add(n, dtype):
    return problem("add", f"n={n} dtype={dtype_name(dtype)}")
