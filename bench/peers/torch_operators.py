"""torch_operators.py - what each operator is in PyTorch, as the functions that torch_peer.py calls.

A function of a problem's fields and of the names of its inputs gives run(tensors) -> {output: tensor}, or several such by the
names of their variants; the same for outputs that are computed for the check alone, or None; and, if need be, what an earlier
pass would have kept.
"""
import os
import re
import warnings

try:
    import torch
    import torch.nn.functional as F
except ImportError:
    torch = None


class Unsupported(Exception):
    """The problem has no counterpart in torch."""


DTYPES = {} if torch is None else {
    "f64": torch.float64, "f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16, "i64": torch.int64,
    "i32": torch.int32, "i16": torch.int16, "i8": torch.int8, "u8": torch.uint8, "bool": torch.bool,
    "e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2,
}


def softmax(p, names):
    backward, log, scale = p["direction"] == "backward", p["log"] == "1", float(p["scale"])
    dim = 1
    if backward:
        rule = torch._log_softmax_backward_data if log else torch._softmax_backward_data

        def gradient(t):
            dx = rule(t["dy"], t["y"], dim, t["y"].dtype)
            return {"dx": dx * scale if scale != 1 else dx}
        return gradient, None
    if p["mask_repeat"] not in ("0", "1"):
        raise Unsupported("a mask with mask_repeat")
    function = F.log_softmax if log else F.softmax

    def forward(t):
        x = t["x"] * scale if scale != 1 else t["x"]
        if p["mask"] == "none":
            return {"y": function(x, dim)}
        mask = t["mask"]
        x = x.view(-1, *mask.shape)
        x = x.masked_fill(~mask, float("-inf")) if p["mask"] == "bool" else x + mask
        return {"y": function(x, -1).view(t["x"].shape)}
    return forward, None


def crossentropy(p, names):
    reduction, ignore, smoothing = p["reduction"], int(p["ignore_index"]), float(p["smoothing"])

    def weight(t):
        return t["weight"].float() if "weight" in t else None
    if p["direction"] == "forward":
        options = {"reduction": reduction, "ignore_index": ignore, "label_smoothing": smoothing}

        def forward(t):
            loss = F.cross_entropy(t["x"].float(), t["target"].long(), weight(t), **options)
            return {"loss": loss.view(-1)}

        def rest(t):
            counts = (t["target"] != ignore).float()
            if "weight" in t:
                counts = counts * weight(t)[t["target"].long().clamp(min=0)]
            sums = {"weight_sum": weight(t).sum().view(1)} if "weight" in t and smoothing else {}
            return {"lse": torch.logsumexp(t["x"].float(), 1), "count": counts.sum().view(1), **sums}
        return forward, rest
    if smoothing:
        raise Unsupported("a gradient with smoothing by itself")
    code = {"none": 0, "mean": 1}[reduction]

    def gradient(t):
        count = t["count"][0] if code else t["one"]
        dloss = t["dloss"][0] if code else t["dloss"]
        d = torch.ops.aten.nll_loss_backward(dloss, t["log_p"], t["classes"], weight(t), code, ignore, count)
        return {"dx": torch._log_softmax_backward_data(d, t["log_p"], 1, torch.float32).to(t["x"].dtype)}

    def saved(t):
        """What autograd would have kept of the forward pass."""
        return {"log_p": t["x"].float() - t["lse"][:, None], "classes": t["target"].long(),
                "one": torch.ones((), device="cuda")}
    return gradient, None, saved


def norm(p, names, centred):
    if p["direction"] == "backward":
        return norm_backward(centred)
    eps = float(p["eps"]) or 1e-5

    def forward(t):
        h = t["x"] + t["residual"] if "residual" in t else t["x"]
        shape = h.shape[-1:]
        y = (F.layer_norm(h, shape, t.get("gamma"), t.get("beta"), eps) if centred
             else F.rms_norm(h, shape, t.get("gamma"), eps))
        return {"y": y, "sum": h} if "residual" in t else {"y": y}

    def rest(t):
        h = (t["x"] + t["residual"] if "residual" in t else t["x"]).float()
        mean = h.mean(1) if centred else torch.zeros(h.shape[0], device=h.device)
        return {"mean": mean, "rstd": torch.rsqrt(((h - mean[:, None]) ** 2).mean(1) + eps)}
    return forward, rest


def rms_gradient(t):
    """What autograd calls; where this torch has no such kernel, the same formula in a few of them."""
    x, dy, rstd, gamma = t["x"], t["dy"], t["rstd"][:, None], t.get("gamma")
    if hasattr(torch.ops.aten, "_fused_rms_norm_backward"):
        return torch.ops.aten._fused_rms_norm_backward(dy, x, x.shape[-1:], rstd, gamma, [True, gamma is not None])
    n = x.float() * rstd
    g = dy.float() * gamma.float() if gamma is not None else dy.float()
    dx = ((g - n * (g * n).mean(1, keepdim=True)) * rstd).to(x.dtype)
    return dx, (dy.float() * n).sum(0).to(x.dtype)


def layer_gradient(t):
    x, gamma = t["x"], t.get("gamma")
    return torch.ops.aten.native_layer_norm_backward(t["dy"], x, x.shape[-1:], t["mean"][:, None], t["rstd"][:, None], gamma,
                                                     gamma, [True, gamma is not None, gamma is not None])


def norm_backward(centred):
    def gradient(t):
        dx, *of_weights = layer_gradient(t) if centred else rms_gradient(t)
        out = {"dx": dx + t["dsum"] if "dsum" in t else dx}
        if "gamma" in t:
            out.update(zip(("dgamma", "dbeta"), of_weights))
        return out
    return gradient, None


def groupnorm(p, names):
    n, c, h, w, groups = (int(p[name]) for name in ("n", "c", "h", "w", "groups"))
    eps, nhwc = float(p["eps"]) or 1e-5, p["layout"] == "nhwc"

    def image(x):
        return x.view(n, h, w, c).permute(0, 3, 1, 2) if nhwc else x.view(n, c, h, w)

    def forward(t):
        y = F.group_norm(image(t["x"]), groups, t.get("gamma"), t.get("beta"), eps)
        return {"y": y.permute(0, 2, 3, 1) if nhwc else y}

    def rest(t):
        x = image(t["x"]).float().reshape(n * groups, -1)
        return {"mean": x.mean(1), "rstd": torch.rsqrt(x.var(1, correction=0) + eps)}

    def gradient(t):
        dy, x, gamma = image(t["dy"]).contiguous(), image(t["x"]).contiguous(), t.get("gamma")
        mean, rstd, affine = t["mean"].view(n, groups), t["rstd"].view(n, groups), gamma is not None
        dx, *of_weights = torch.ops.aten.native_group_norm_backward(
            dy, x, mean.to(x.dtype), rstd.to(x.dtype), gamma, n, c, h * w, groups, [True, affine, affine])
        out = {"dx": dx.permute(0, 2, 3, 1) if nhwc else dx}
        if affine:
            out.update(zip(("dgamma", "dbeta"), of_weights))
        return out
    return (gradient, None) if p["direction"] == "backward" else (forward, rest)


def add(p, names):
    alpha, beta = float(p["alpha"]), float(p["beta"])
    if alpha == 1 and beta != 0:
        return lambda t: {"y": torch.add(t["a"], t["b"], alpha=beta)}, None
    return lambda t: {"y": alpha * t["a"] + beta * t["b"]}, None


def functions():
    tanh_form = {name: lambda x: F.gelu(x, approximate="tanh") for name in ("gelu", "gelu_tanh")}
    return {**tanh_form, "gelu_erf": F.gelu, "neg": torch.neg, "abs": torch.abs, "relu": F.relu, "silu": F.silu,
            "sigmoid": torch.sigmoid, "tanh": torch.tanh, "erf": torch.erf, "exp": torch.exp, "log": torch.log,
            "sqrt": torch.sqrt, "rsqrt": torch.rsqrt, "max": torch.maximum, "min": torch.minimum, "pow": torch.pow,
            "add": torch.add, "sub": torch.sub, "mul": torch.mul, "div": torch.div, "cast": lambda x: x}


def elementwise(p, names):
    known = functions()
    if p["inplace"] != "0":
        raise Unsupported("elementwise in place")
    for pair in filter(None, p["scalars"].split(",")):
        name, value = pair.split("=")
        known[name] = float(value)
    for word in re.findall(r"[A-Za-z_]\w*", p["expr"]):
        if word not in known and word not in names:
            raise Unsupported(f"'{word}' of the expression")
    code = compile(p["expr"].replace("^", "**"), "expr", "eval")
    dtype = DTYPES[p["out"] if p["out"] in DTYPES else p["dtype"]]

    def fill(t):
        return {"y": torch.full(sizes(p["shape"]), eval(code, {"__builtins__": {}}, known), dtype=dtype, device="cuda")}
    return (lambda t: {"y": eval(code, {"__builtins__": {}}, {**known, **t}).to(dtype)}) if names else fill, None


def sizes(text):
    """"8192x2^10" as a list."""
    return [eval(part.replace("^", "**")) for part in text.split("x")]


def reduce(p, names):
    op, correction = p["op"] if p["fold"] in ("", "none") else p["fold"], int(p["correction"])
    rank = len(sizes(p["shape"]))
    axes = [int(a) for a in p["axes"].split(",")] if p["axes"] else list(range(rank))
    whole = len(axes) == rank
    if op in ("prod", "argmax", "argmin", "any", "all") and len(axes) > 1 and not whole:
        raise Unsupported(f"{op} over several axes")
    one = None if whole else axes[0]
    table = {
        "sum": lambda x: x.sum(axes), "mean": lambda x: x.mean(axes), "max": lambda x: x.amax(axes),
        "min": lambda x: x.amin(axes), "var": lambda x: x.var(axes, correction=correction),
        "std": lambda x: x.std(axes, correction=correction), "logsumexp": lambda x: torch.logsumexp(x, axes),
        "norm1": lambda x: torch.linalg.vector_norm(x, 1, axes), "norm2": lambda x: torch.linalg.vector_norm(x, 2, axes),
        "prod": lambda x: x.prod() if whole else x.prod(one), "any": lambda x: x.any() if whole else x.any(one),
        "all": lambda x: x.all() if whole else x.all(one), "argmax": lambda x: x.argmax(one),
        "argmin": lambda x: x.argmin(one), "maxabs": lambda x: torch.linalg.vector_norm(x, torch.inf, axes),
        "rms": lambda x: x.square().mean(axes).sqrt(),
    }
    if op not in table:
        raise Unsupported(f"reduce op={op}")
    return lambda t: {"y": table[op](t["x"])}, None


def transpose(p, names):
    return lambda t: {"y": t["x"].transpose(-2, -1).clone(memory_format=torch.contiguous_format)}, None


def permute(p, names):
    rank = len(sizes(p["shape"]))
    order = [int(a) for a in p["order"].split(",")] if p["order"] else list(range(rank))[::-1]
    # contiguous() would return x itself where nothing is permuted
    return lambda t: {"y": t["x"].permute(order).clone(memory_format=torch.contiguous_format)}, None


def rope(p, names):
    if p["inplace"] != "0":
        raise Unsupported("rope in place")
    dim, inverse = int(p["rotary_dim"]), p["inverse"] == "1"
    interleaved = p["style"] == "interleaved"

    def rotate(x, cosine, sine):
        n = dim or x.shape[-1]
        a, b = (x[..., 0:n:2], x[..., 1:n:2]) if interleaved else (x[..., :n // 2], x[..., n // 2:n])
        pair = (a * cosine - b * sine, b * cosine + a * sine)
        y = torch.stack(pair, -1).flatten(-2) if interleaved else torch.cat(pair, -1)
        return torch.cat((y.to(x.dtype), x[..., n:]), -1)

    # Cosine and sine of all positions are a table made once, as models keep it; a call looks its positions up.
    n, low = dim or int(p["head_dim"]), int(float(p["position_min"]))
    i = torch.arange(0, n, 2, device="cuda", dtype=torch.float64)
    positions = torch.arange(low, int(float(p["position_max"])) + 2, device="cuda", dtype=torch.float64)
    angle = positions[:, None, None] * (float(p["scale"]) * float(p["theta"]) ** (-i / n))
    cosines, sines = angle.cos().float(), (-angle if inverse else angle).sin().float()

    def forward(t):
        row = t["positions"] - low
        cosine, sine = cosines[row], sines[row]
        return {"y" + name: rotate(t[name], cosine, sine) for name in ("q", "k") if name in t}
    return forward, None


def attention(p, names):
    """Each backend of scaled_dot_product_attention by its name, as a variant of its own."""
    causal, scale = p["causal"] == "1", float(p["scale"])
    if p["lse"] == "1" or any(float(p[name]) for name in ("left", "right", "softcap", "sinks")) or p["mask"] != "none" \
            or p["score"] != "none" or p["ragged"] == "1":
        raise Unsupported("the log-sum-exp, a window, a soft cap, sinks, a mask, a score or a ragged batch")
    if causal and p["q"] != p["kv"]:
        raise Unsupported("causal with q != kv, which torch aligns at the top left,")
    if p["direction"] == "backward":
        return attention_backward(p, causal, scale)
    from torch.nn.attention import SDPBackend, sdpa_kernel
    warnings.simplefilter("ignore")  # a backend that does not take a problem says why at length

    def by(backend):
        def forward(t):
            with sdpa_kernel(backend):
                return {"o": F.scaled_dot_product_attention(t["q"], t["k"], t["v"], is_causal=causal, scale=scale,
                                                            enable_gqa=p["kv_heads"] != p["heads"])}
        return forward
    return {"cudnn": by(SDPBackend.CUDNN_ATTENTION), "flash": by(SDPBackend.FLASH_ATTENTION),
            "efficient": by(SDPBackend.EFFICIENT_ATTENTION)}, None


def attention_backward(p, causal, scale):
    """What autograd calls, on the o and lse of the problem; what else it would have kept is of a forward pass beforehand."""
    if p["kv_heads"] != p["heads"]:
        raise Unsupported("the backward direction of grouped heads")
    aten = torch.ops.aten

    def saved(t):
        kept = {}
        try:
            kept["flash"] = aten._scaled_dot_product_flash_attention(t["q"], t["k"], t["v"], 0.0, causal, False, scale=scale)
            kept["cudnn"] = aten._scaled_dot_product_cudnn_attention(t["q"], t["k"], t["v"], None, True, 0.0, causal, False,
                                                                     scale=scale)
        except RuntimeError:
            pass  # a backend that does not take the problem says so when it runs
        return kept

    def flash(t):
        _, _, cum_q, cum_k, max_q, max_k, seed, offset, _ = t["flash"]
        return aten._scaled_dot_product_flash_attention_backward(t["dout"], t["q"], t["k"], t["v"], t["o"], t["lse"], cum_q,
                                                                 cum_k, max_q, max_k, 0.0, causal, seed, offset, scale=scale)

    def cudnn(t):
        _, _, cum_q, cum_k, max_q, max_k, seed, offset, _ = t["cudnn"]
        return aten._scaled_dot_product_cudnn_attention_backward(t["dout"], t["q"], t["k"], t["v"], t["o"],
                                                                 t["lse"].unsqueeze(-1), seed, offset, None, cum_q, cum_k,
                                                                 max_q, max_k, 0.0, causal, scale=scale)
    return {name: (lambda t, f=f: dict(zip(("dq", "dk", "dv"), f(t)))) for name, f in (("cudnn", cudnn), ("flash", flash))}, \
        None, saved


def attention_decode(p, names):
    """The backends on a contiguous copy of the cache, made beforehand; "packed": heads that share keys as if they were tokens."""
    if p["lse"] == "1" or p["q"] != "1" or p["shortest"] != "-1" or any(float(p[n]) for n in ("left", "softcap", "sinks")) \
            or p["append"] == "1" or p["latent"] == "1" or p["cache"] != p["dtype"]:
        raise Unsupported("several new tokens, lengths, the log-sum-exp, a window, a soft cap, sinks, a cache of 8 bits, a latent one or "
                          "one that grows")
    from torch.nn.attention import SDPBackend, sdpa_kernel
    warnings.simplefilter("ignore")
    scale, kv = float(p["scale"]), int(p["kv"])

    def contiguous(x, table):
        return x[table.long()].transpose(1, 2).flatten(2, 3)[:, :, :kv].contiguous()

    def saved(t):
        return {name: contiguous(t[name], t["table"]) for name in ("k", "v")} if "table" in t else {}

    def by(backend, packed):
        def forward(t):
            q = t["q"].reshape(t["q"].shape[0], t["k"].shape[1], -1, t["q"].shape[3]) if packed else t["q"]
            with sdpa_kernel(backend):
                return {"o": F.scaled_dot_product_attention(q, t["k"], t["v"], scale=scale, enable_gqa=not packed)}
        return forward
    backends = {"cudnn": SDPBackend.CUDNN_ATTENTION, "flash": SDPBackend.FLASH_ATTENTION}
    return {name + (" packed" if packed else ""): by(backend, packed) for name, backend in backends.items()
            for packed in (False, True)}, None, saved


def conv(p, names):
    """cuDNN by torch, which times its engines and keeps the fastest: all, or as many as CKL_CUDNN_ENGINES says; NHWC as channels_last.

    "fused": cuDNN's own bias, residual and ReLU. "cudnn": where torch prefers kernels of its own. "channels_last": NCHW images
    turned on the way in and out, the filters beforehand.
    """
    modes = ("h", "w") if p["d"] == p["t"] == "1" else ("d", "h", "w")
    ends = {"d": ("front", "back"), "h": ("top", "bottom"), "w": ("left", "right")}
    pads = [[int(p["pad_" + side]) for side in ends[m]] for m in modes]
    if any(first != last for first, last in pads):
        raise Unsupported("padding that differs between two sides")
    if p["epilogue"] not in ("", "none"):
        raise Unsupported("a custom epilogue")
    cudnn, aten = torch.backends.cudnn, torch.ops.aten
    cudnn.benchmark, cudnn.benchmark_limit, cudnn.allow_tf32 = True, int(os.environ.get("CKL_CUDNN_ENGINES", "0")), False
    nhwc, groups, rank = p["layout"] == "nhwc", int(p["groups"]), len(modes)
    stride, dilation = ([int(p[name + m]) for m in modes] for name in ("stride_", "dilation_"))
    pad, bias, residual = [first for first, _ in pads], p["bias"] == "1", p["residual"] == "1"
    dtype = DTYPES[p["out"] if p["out"] in DTYPES else p["dtype"]]
    last = torch.channels_last if rank == 2 else torch.channels_last_3d
    functions = {"identity": lambda v: v, "relu": F.relu, "gelu": lambda v: F.gelu(v, approximate="tanh"), "gelu_erf": F.gelu,
                 "silu": F.silu}

    def image(x):
        x = x.squeeze(1 if nhwc else 2) if rank == 2 else x
        return x.movedim(-1, 1) if nhwc else x

    def back(x):
        return (x.movedim(1, -1) if nhwc else x).to(dtype)

    def finish(y, t):
        y = y + image(t["residual"]) if residual else y
        return {"y": back(functions[p["activation"]](y))}

    def forward(t):
        function = F.conv2d if rank == 2 else F.conv3d
        return finish(function(image(t["x"]), t["filters"], t.get("bias_cast"), stride, pad, dilation, groups), t)

    def by_cudnn(t):
        y = aten.cudnn_convolution(image(t["x"]), t["filters"], pad, stride, dilation, groups, True, False, False)
        return finish(y + t["bias_cast"].view(-1, *[1] * rank) if bias else y, t)

    def channels_last(t):
        x = t["x"].squeeze(2) if rank == 2 else t["x"]
        function = F.conv2d if rank == 2 else F.conv3d
        y = function(x.contiguous(memory_format=last), t["filters_last"], t.get("bias_cast"), stride, pad, dilation, groups)
        return {name: v.contiguous() for name, v in finish(y, t).items()}

    def fused(t):
        x, w, b = image(t["x"]), t["filters"], t.get("bias_cast")
        if residual:
            return {"y": back(torch.cudnn_convolution_add_relu(x, w, image(t["residual"]), 1.0, b, stride, pad, dilation, groups))}
        return {"y": back(torch.cudnn_convolution_relu(x, w, b, stride, pad, dilation, groups))}

    def gradient(t, turn=lambda x: x):
        of_data = p["direction"] == "data"
        x, w = (t["like"], t["filters"]) if of_data else (turn(image(t["x"])), t["like"])
        dx, dw, dbias = aten.convolution_backward(turn(image(t["dy"])), x, w, [w.shape[0]], stride, pad, dilation, False,
                                                  [0] * rank, groups, [of_data, not of_data, bias])
        return {"dx": back(dx).contiguous()} if of_data else {"dw": back(dw).contiguous(), "dbias": dbias}

    def gradient_last(t):
        return gradient({**t, "filters": t.get("filters_last"), "like": t["like_last"]},
                        lambda x: x.contiguous(memory_format=last))

    def saved(t):
        """What a model has at hand: filters and bias in the types and order that cuDNN likes, of gradients a tensor of the shape."""
        kept = {"bias_cast": t["bias"].to(t["x"].dtype)} if "bias" in t else {}
        if "w" in t:
            kept["filters"] = image(t["w"])
            kept["filters_last"] = image(t["w"]).contiguous(memory_format=last)
        if p["direction"] == "forward":
            return kept
        sizes_x = [int(p["n"]), int(p["c"]), *[int(p[m]) for m in modes]]
        sizes_w = [int(p["k"]), int(p["c"]) // groups, *[int(p[m]) for m in ("t", "r", "s")[3 - rank:]]]
        like = torch.empty(sizes_x if p["direction"] == "data" else sizes_w, dtype=t["dy"].dtype, device="cuda")
        kept["like_last"] = like.contiguous(memory_format=last)
        kept["like"] = kept["like_last"] if nhwc else like
        return kept

    if p["direction"] != "forward":
        return {"eager": gradient, **({} if nhwc else {"channels_last": gradient_last})}, None, saved
    variants = {"eager": forward}
    if groups > 1:
        variants["cudnn"] = by_cudnn
    if p["activation"] == "relu" and (bias or residual):
        variants["fused"] = fused
    if not nhwc:
        variants["channels_last"] = channels_last
    return variants, None, saved


def gemm(p, names):
    """What cublaslt.c does not say: grouped products of 16 bits or of 8 with scales of rows, and scales of blocks."""
    others = ("gated", "scale_d", "preactivation", "gather", "scatter", "weighted", "pointers", "amax", "host_offsets")
    plain = all(p[key] == "0" for key in others) and p["activation"] == "identity" and p["bias_gradient"] == "none"
    plain = plain and p["epilogue"] in ("", "none")
    if not plain or p["layout"] not in ("nt", "nn") or names & {"c", "bias", "device_alpha"}:
        raise Unsupported("this product")
    grouped, scales, out = p["groups"] != "0", (p["scale_a"], p["scale_b"]), DTYPES[p["d"]]

    def b_of(t):
        return t["b"] if p["layout"] == "nn" else t["b"].transpose(-2, -1)

    def groups(t):
        return {"d": torch._grouped_mm(t["a"], b_of(t), offs=t["offsets"][1:])}

    def scaled_groups(t):
        return {"d": torch._scaled_grouped_mm(t["a"], b_of(t), t["scale_a"], t["scale_b"], offs=t["offsets"][1:], out_dtype=out)}

    def blocks(t):
        return {"d": torch._scaled_mm(t["a"], b_of(t), t["scale_a"].t(), t["scale_b"].t(), out_dtype=out)}
    known = {(True, ("none", "none")): groups, (True, ("row", "row")): scaled_groups, (False, ("block", "square")): blocks}
    if (grouped, scales) not in known:
        raise Unsupported("this product")
    # Eager alone: of grouped products torch.compile tries Triton kernels that access memory out of bounds (torch 2.11, H200), which
    # ends this process's use of the GPU.
    return {"eager": known[grouped, scales]}, None


OPERATORS = {
    "attention": attention, "attention_decode": attention_decode, "conv": conv, "gemm": gemm,
    "softmax": softmax, "crossentropy": crossentropy, "add": add, "elementwise": elementwise, "reduce": reduce,
    "transpose": transpose, "permute": permute, "groupnorm": groupnorm, "rope": rope,
    "layernorm": lambda p, names: norm(p, names, True), "rmsnorm": lambda p, names: norm(p, names, False),
}


# Liger's Triton kernels, where the package is installed: a function of the fields and inputs gives run(tensors), or None.

def liger_norm(p, names, centred):
    from liger_kernel.ops import layer_norm, rms_norm, utils
    if "gamma" not in names or names & {"residual", "dsum"}:
        return None
    eps = float(p["eps"]) or 1e-5
    if p["direction"] == "forward" and centred:
        return lambda t: {"y": layer_norm.layer_norm_forward(t["x"], t["gamma"], t["beta"], eps)[0]}
    if p["direction"] == "forward":
        return lambda t: {"y": rms_norm.rms_norm_forward(t["x"], t["gamma"], eps, 0.0, "llama", None)[0]}

    def gradient(t):
        if centred:
            return layer_norm.layer_norm_backward(t["dy"], t["x"], t["gamma"], t["beta"], t["mean"], t["rstd"])
        block, warps = utils.calculate_settings(t["x"].shape[-1])
        llama = rms_norm._str_to_casting_mode["llama"]
        return rms_norm.rms_norm_backward(t["dy"], t["x"], t["gamma"], t["rstd"], 0.0, llama, block, warps, False, None)

    def named(t):
        return dict(zip(("dx", "dgamma", "dbeta"), gradient({"beta": t["gamma"], **t})))
    return named


def liger_softmax(p, names):
    from liger_kernel.ops import softmax as kernels
    along_rows = int(p["axis"]) in (-1, len(sizes(p["shape"])) - 1)
    if p["direction"] == "backward" or p["log"] == "1" or float(p["scale"]) != 1 or p["mask"] != "none" or not along_rows:
        return None
    return lambda t: {"y": kernels._softmax_forward(t["x"].flatten(1))[0]}


LIGER = {
    "softmax": liger_softmax,
    "layernorm": lambda p, names: liger_norm(p, names, True), "rmsnorm": lambda p, names: liger_norm(p, names, False),
}


def liger(op, fields, names):
    try:
        return LIGER[op](fields, names) if op in LIGER else None
    except ImportError:
        return None
