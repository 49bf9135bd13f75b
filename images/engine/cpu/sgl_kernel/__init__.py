"""Stand-in for SGLang's CUDA kernels, on PYTHONPATH only where the engine runs with `--device cpu`.

SGLang imports names ending in `_cpu` from here when it starts (KV moves, speculative decoding); a plain llama on the
CPU calls none of them, and a call says so instead of returning rubbish. PyPI's torch is a CUDA build, which takes
pinned memory for granted: without a driver pinning becomes a no-op here, or LoRA layers fail with "Found no NVIDIA
driver". Nothing else of torch or SGLang is touched.
"""

import functools
from collections.abc import Callable
from typing import Any

import torch

__version__ = "0.0.0+openclaw.cpu"


def __getattr__(name: str) -> Callable[..., Any]:
    """A function that refuses to run for any CPU kernel; AttributeError for every other name."""
    if not name.endswith("_cpu"):
        raise AttributeError(f"module 'sgl_kernel' (stand-in for the CPU) has no attribute {name!r}")

    def kernel(*_args: object, **_kwargs: object) -> None:
        raise NotImplementedError(f"sgl_kernel.{name} is not available: this engine image has no CPU kernels")

    kernel.__name__ = name
    return kernel


def _without_pinning(create: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(create)
    def unpinned(*args: Any, **kwargs: Any) -> Any:
        kwargs.pop("pin_memory", None)
        return create(*args, **kwargs)

    return unpinned


def _make_pinning_a_no_op() -> None:
    creators = ("tensor", "empty", "zeros", "ones", "full", "empty_like", "zeros_like", "ones_like", "full_like")
    for name in creators:
        setattr(torch, name, _without_pinning(getattr(torch, name)))
    torch.Tensor.pin_memory = lambda self, *_args, **_kwargs: self  # type: ignore[method-assign,assignment]


if not torch.cuda.is_available():
    _make_pinning_a_no_op()
