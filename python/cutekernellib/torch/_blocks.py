"""Layers, MLPs and blocks of transformers and of ConvNeXt as operators, each described once; the gradient comes of the description.

They run the kernels of their parts. Weights are [out,in] as torch.nn.Linear has them or, where `turned`, [in,out] as transformers'
Conv1D does.
"""

from ._described import described


@described("x[*,K] weight[N,K] bias?[N]", "str activation, bool turned")
def linear(tape, x, weight, bias, activation, turned):
    return tape.linear(x, weight, bias, activation, turned=turned)


@described("x[*,K] up[I,K] up_bias?[I] down[N,I] down_bias?[N] residual?[*,N]", "str activation, bool turned")
def mlp(tape, x, up, up_bias, down, down_bias, residual, activation, turned):
    hidden = tape.linear(x, up, up_bias, activation, turned=turned)
    return tape.linear(hidden, down, down_bias, residual=residual, turned=turned)


@described("x[*,K] gate[I,K] up[I,K] down[N,I] residual?[*,N]", "")
def gated_mlp(tape, x, gate, up, down, residual):
    hidden = tape.silu_mul(tape.linear(x, gate), tape.linear(x, up))
    return tape.linear(hidden, down, residual=residual)


@described(
    "x[B,S,C] norm1[C] norm1_bias[C] qkv[J,C] qkv_bias?[J] proj[C,O] proj_bias?[C]"
    " norm2[C] norm2_bias[C] up[I,C] up_bias?[I] down[C,I] down_bias?[C]",
    "int heads, bool causal, float scale, float eps1, float eps2, str activation, bool turned",
)
def block(tape, x, norm1, norm1_bias, qkv, qkv_bias, proj, proj_bias, *rest):
    """h = x + proj(attention(qkv(norm1(x)))), y = h + down(activation(up(norm2(h))))"""
    *norm2, up, up_bias, down, down_bias, heads, causal, scale, eps1, eps2, activation, turned = rest
    joint, n = tape.linear(tape.layer_norm(x, norm1, norm1_bias, eps1), qkv, qkv_bias, turned=turned), proj.shape[not turned]
    if joint.columns != 3 * n or n % heads:
        raise ValueError(f"block: {joint.columns} columns of qkv are not q, k and v of {heads} heads, of which proj has {n}")
    o = tape.attention([(joint, i * n, n) for i in range(3)], x.shape[0], n // heads, causal, scale)
    normed, h = tape.layer_norm(tape.linear(o, proj, proj_bias, turned=turned), *norm2, eps2, residual=x)
    return mlp(tape, normed, up, up_bias, down, down_bias, h, activation, turned)


@described(
    "attended[B,S,C] x[B,S,C] norm[C] norm_bias[C] up[I,C] up_bias?[I] down[C,I] down_bias?[C]",
    "float eps, str activation, bool turned",
)
def block_tail(tape, attended, x, norm, norm_bias, up, up_bias, down, down_bias, eps, activation, turned):
    """What of it comes behind attention, which is the model's own where there is a cache or a mask."""
    normed, h = tape.layer_norm(attended, norm, norm_bias, eps, residual=x)
    return mlp(tape, normed, up, up_bias, down, down_bias, h, activation, turned)


def _head(tape, x, norm1, q, k, v, cos, sin, head_dim, eps):
    """Rotated queries and keys, and values, of layers without bias."""
    if q.shape[0] % head_dim or k.shape[0] % head_dim:
        raise ValueError(f"decoder_layer: {q.shape[0]} and {k.shape[0]} columns of q and k are not whole heads of {head_dim}")
    if tuple(cos.shape[1:]) != (x.shape[1], head_dim) or cos.shape[0] not in (1, x.shape[0]):
        raise ValueError(f"decoder_layer: tables{list(cos.shape)} are not [1 or B,S,{head_dim}] of x{list(x.shape)}")
    normed = tape.rms_norm(x, norm1, eps)
    q, k, v = (tape.linear(normed, weight) for weight in (q, k, v))
    return tape.rotate(q, cos, sin, head_dim), tape.rotate(k, cos, sin, head_dim), v


def _tail(tape, attended, x, o, norm2, gate, up, down, eps):
    """h = x + o(attended), and h + down(silu(gate(n)) * up(n)) of n = norm2(h)."""
    normed, h = tape.rms_norm(tape.linear(attended, o), norm2, eps, residual=x)
    return gated_mlp(tape, normed, gate, up, down, h)


@described(
    "x[B,S,C] norm1[C] q[Q,C] k[K,C] v[K,C] o[C,Q] norm2[C] gate[I,C] up[I,C] down[C,I] cos[T,S,D] sin[T,S,D]",
    "int head_dim, float scale, float eps1, float eps2",
)
def decoder_layer(tape, x, norm1, q, k, v, o, norm2, gate, up, down, cos, sin, head_dim, scale, eps1, eps2):
    """A layer such as Llama's, causal."""
    heads = _head(tape, x, norm1, q, k, v, cos, sin, head_dim, eps1)
    attended = tape.attention([(part, 0, part.columns) for part in heads], x.shape[0], head_dim, True, scale)
    return _tail(tape, attended, x, o, norm2, gate, up, down, eps2)


@described("x[B,S,C] norm1[C] q[Q,C] k[K,C] v[K,C] cos[T,S,D] sin[T,S,D]", "int head_dim, float eps", count=3)
def decoder_head(tape, *args):
    """What of it comes before attention."""
    return _head(tape, *args)


@described("attended[B,S,Q] x[B,S,C] o[C,Q] norm2[C] gate[I,C] up[I,C] down[C,I]", "float eps")
def decoder_tail(tape, *args):
    """What comes behind it."""
    return _tail(tape, *args)


@described(
    "x[N,C,H,W] filter[C,1,R,S] filter_bias?[C] norm[C] norm_bias[C] up[I,C] up_bias?[I] down[C,I] down_bias?[C] gamma?[C]",
    "int padding_h, int padding_w, float eps, str activation",
    is_image=True,
)
def conv_block(tape, x, filter, filter_bias, norm, norm_bias, up, up_bias, down, down_bias, gamma, h, w, eps, activation):
    """ConvNeXt's: x + gamma * down(activation(up(norm(conv(x)))))"""
    if tuple(filter.shape[2:]) != (2 * h + 1, 2 * w + 1):
        raise ValueError(f"conv_block: x{list(x.shape)} filter{list(filter.shape)} and padding {h}, {w} do not fit")
    normed = tape.layer_norm(tape.conv(x, filter, filter_bias, (h, w)), norm, norm_bias, eps)
    hidden = tape.linear(normed, up, up_bias, activation)
    if gamma is not None:
        down, down_bias = tape.scale(down, down_bias, gamma)
    return tape.linear(hidden, down, down_bias, residual=x)
