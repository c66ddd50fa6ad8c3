"""How functions become operators: torch.ops.cutekernellib with schemas, fake kernels for shapes, and gradients; and the ways around it.

Each operator has one implementation for tensors of a GPU, on torch's current stream, and of the host, on the emulated GPU.
torch's dispatcher calls what is registered in Python by way of C++ and back, and so does its autograd: some 11 us a call. So plain
tensors of a GPU that nothing but the GPU wants to see go to the function at once, or by a function of autograd of the same parts.
"""

import atexit
import functools
import types

import torch

from .._library import leave, module, operators, warn_of_emulator

_library = torch.library.Library("cutekernellib", "DEF")
atexit.unregister(leave)
atexit.register(leave)  # before torch takes the operators away
_compiler, _is_dynamo_tracing = torch.compiler, torch.compiler.is_dynamo_compiling
_is_transforming = torch._C._are_functorch_transforms_active
_dispatch_modes = torch._C._len_torch_dispatch_stack
_tracing_state = torch._C._get_tracing_state  # of torch.jit.trace, where shapes are tensors
_forward_ad = torch.autograd.forward_ad
_PLAIN = (torch.Tensor, torch.nn.Parameter)

registered = torch.ops.cutekernellib
direct = types.SimpleNamespace()  # the functions by name
differentiable = types.SimpleNamespace()  # the same as functions of autograd alone
_direct_of, _differentiable_of = vars(direct), vars(differentiable)  # looked up without a call
run = types.SimpleNamespace(**{name: operator.run for name, operator in operators.items()})


def operator(schema, fake, gradient=None, setup=None, results=1):
    """Registers the function that follows. fake: memory for its outputs; gradient(ops, ctx, *gradients): calls the operators of ops.

    results: so many outputs have gradients; those behind them are there for setup(ctx, inputs, output) to keep.
    """

    def register(function):
        name = schema.partition("(")[0]
        _library.define(schema, tags=(torch.Tag.pt2_compliant_tag,))
        _library.impl(name, function, "CUDA")
        _library.impl(name, lambda *args: warn_of_emulator() or function(*args), "CPU")
        torch.library.register_fake(f"cutekernellib::{name}", fake, lib=_library)
        setattr(direct, name, function)
        if gradient:
            _register_gradient(name, gradient, setup, results)
            if "Tensor[]" in schema:  # a function of autograd does not look into lists
                setattr(differentiable, name, getattr(registered, name))
            else:
                setattr(differentiable, name, _differentiable(name, function, gradient, setup, results))
        elif name.endswith("_backward"):
            torch.library.register_autograd(f"cutekernellib::{name}", _no_second_gradient(name), lib=_library)
        return function

    return register


def _register_gradient(name, gradient, setup, results):
    def keep(ctx, inputs, output):
        setup(ctx, inputs, output)
        if isinstance(output, tuple) and len(output) > results:
            ctx.set_materialize_grads(False)
            ctx.mark_non_differentiable(*output[results:])

    def backward(ctx, *gradients):
        return gradient(registered, ctx, *gradients[:results])

    torch.library.register_autograd(f"cutekernellib::{name}", backward, setup_context=keep, lib=_library)


def _no_second_gradient(name):
    """Says so. By itself torch warns of an operator without a gradient, and takes zeros."""

    def backward(ctx, *gradients):
        raise NotImplementedError(f"{name.removesuffix('_backward')}: there is no second gradient")

    return backward


def _differentiable(name, function, gradient, setup, results):
    """The operator as a function of autograd, which gives a tuple if the operator does, without what is only kept."""

    def forward(ctx, *args):
        output = function(*args)
        setup(ctx, args, output)
        return output[:results] if isinstance(output, tuple) else output

    def backward(ctx, *gradients):
        traced = torch.is_grad_enabled() or _compiler.is_compiling()  # registered, they say that there is no second gradient
        return gradient(registered if traced else direct, ctx, *gradients)

    methods = {"forward": staticmethod(forward), "backward": staticmethod(backward)}
    function_of_autograd = type(name, (torch.autograd.Function,), methods)
    # past Function.apply, which looks at transforms, as way() does
    return super(torch.autograd.Function, function_of_autograd).apply


def without_gradient(name, function):
    """The operator's function where nobody asks for a gradient: it leaves out outputs that are only kept."""
    setattr(direct, name, function)


def way(name, *tensors, transformed=True):
    """How a call of these tensors goes: to the function, through autograd, or where anything else wants to see it, the dispatcher.

    transformed: also by torch.func and forward-mode derivatives; if not, None there, where torch's own functions are wanted.
    """
    if _is_dynamo_tracing() or _compiler._is_compiling_flag:  # is_compiling() in one call of a function
        return getattr(registered, name)
    if _is_transforming() or _forward_ad._current_level >= 0:
        if not transformed:
            return None
        if _forward_ad._current_level >= 0:
            raise NotImplementedError(f"{name}: there is no forward-mode derivative")  # torch.library would make zeros
        return getattr(registered, name)
    if _dispatch_modes() or _tracing_state():
        return getattr(registered, name)
    is_plain, needs_gradient = True, False
    for x in tensors:
        if x is None:
            continue
        if type(x) in _PLAIN:
            is_plain &= x.is_cuda
        elif isinstance(x, torch.Tensor):
            is_plain = False
        else:
            raise TypeError(f"{name}: torch's tensors are wanted, not {type(x).__name__}")
        needs_gradient |= x.requires_grad
    if not is_plain:
        return getattr(registered, name)
    return (_differentiable_of if needs_gradient and torch.is_grad_enabled() else _direct_of)[name]


def is_transformed():
    """Are torch.func or forward-mode derivatives at work, which want torch's own functions?"""
    return not _compiler.is_compiling() and (_is_transforming() or _forward_ad._current_level >= 0)


def like(x, dtype=None):
    """Memory without gaps for a tensor of this shape, and no strides to look at."""
    return torch.empty_like(x, dtype=dtype, memory_format=torch.contiguous_format)


def dense(*tensors):
    """Without gaps, in the order of their modes: what a problem says of a tensor if it says nothing of strides."""
    return [x if x is None else x.contiguous() for x in tensors]


def is_channels_last(x):
    return x.dim() == 4 and not x.is_contiguous() and x.is_contiguous(memory_format=torch.channels_last)


def image(x, last):
    """x without gaps, with its channels last or in the order of its modes."""
    return x.contiguous(memory_format=torch.channels_last if last else torch.contiguous_format)


def image_like(x, shape=None):
    """Memory for an image, or tensor of any modes, in the order of x."""
    order = torch.channels_last if is_channels_last(x) else torch.contiguous_format
    return torch.empty(x.shape if shape is None else shape, dtype=x.dtype, device=x.device, memory_format=order)


@functools.lru_cache(8192)
def has_kernel(name, desc, device):
    """Does anything take the problem but the kernel that follows its definition? A tensor of the host is taken by any."""
    return device.type != "cuda" or not module.ckl_plan(name, desc, 2, device.index).split()[1].startswith("naive")
