"""Automatic mixed precision as a GPU does it: which operators run in 16 bits, which in 32.

The lists are those of ``torch.autocast("cuda")`` (``aten/src/ATen/autocast_mode.h``); those of the
CPU, where a program is traced, differ. Casts become operators of the program: a tensor in 32 bits
that a convolution reads is cast before it, and a norm's result in 32 bits again before the next.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, final

import torch
from torch.utils._pytree import tree_leaves, tree_map

FORMATS = {"fp16": torch.float16, "bf16": torch.bfloat16}
"""Formats of autocast -> PyTorch's."""


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


_NARROW = _names(
    "_convolution conv1d conv2d conv3d conv_tbc conv_transpose1d conv_transpose2d "
    "conv_transpose3d convolution cudnn_convolution prelu addmm addmv addr matmul einsum mm mv "
    "linalg_vecdot linear addbmm baddbmm bmm chain_matmul linalg_multi_dot thnn_fused_lstm_cell "
    "thnn_fused_gru_cell lstm_cell gru_cell rnn_tanh_cell rnn_relu_cell lstm gru rnn_tanh rnn_relu "
    "scaled_dot_product_attention multi_head_attention_forward"
)
"""Run in 16 bits. Recurrent layers do in cuDNN, einsum by the products that it becomes."""
_WIDE = _names(
    "acos asin cosh erfinv exp expm1 log log10 log2 log1p reciprocal rsqrt sinh tan pow softplus "
    "layer_norm native_layer_norm group_norm frobenius_norm nuclear_norm cosine_similarity "
    "poisson_nll_loss cosine_embedding_loss nll_loss nll_loss2d hinge_embedding_loss kl_div "
    "l1_loss smooth_l1_loss huber_loss mse_loss margin_ranking_loss multilabel_margin_loss "
    "soft_margin_loss triplet_margin_loss multi_margin_loss binary_cross_entropy_with_logits dist "
    "pdist cdist renorm logsumexp cross_entropy_loss cross_entropy norm upsample_nearest1d "
    "upsample_nearest2d upsample_nearest3d upsample_linear1d upsample_bilinear2d "
    "upsample_trilinear3d upsample_bicubic2d _upsample_bilinear2d_aa _upsample_bicubic2d_aa "
    "rms_norm"
)
"""Run in 32 bits."""
_WIDE_RESULT = _names(
    "prod softmax log_softmax cumprod cumsum linalg_vector_norm linalg_matrix_norm sum"
)
"""Read 16 bits and write 32, unless the program names a format: they cast inside their kernels."""
_WIDEST = _names(
    "addcdiv addcmul atan2 bilinear cross dot vdot grid_sampler index_put tensordot scatter_add "
    "cat stack index_copy"
)
"""Run in the widest format of their tensors."""


@final
class CudaAutocast:
    """Casts before operators, as a GPU's autocast dispatches them.

    Attributes:
        dtype: the 16-bit format; None = off.
    """

    def __init__(self, dtype: torch.dtype | None) -> None:
        self.dtype = dtype
        self._cast_weights: dict[int, tuple[Any, Any]] = {}

    def cast(self, target: Any, args: Any, kwargs: Any) -> tuple[Any, Any]:
        """The operands that an operator runs on."""
        if self.dtype is None:
            return args, kwargs
        name = str(target).split(".")[1] if "." in str(target) else str(target)
        if name in _WIDE_RESULT:
            return args, _with_wide_result(target, args, kwargs)
        wanted = self._format(name, (args, kwargs))
        if wanted is None:
            return args, kwargs
        to = self._to(wanted)
        return tree_map(to, args), tree_map(to, kwargs)

    def _format(self, name: str, operands: Any) -> torch.dtype | None:
        if name in _NARROW:
            return self.dtype
        if name in _WIDE:
            return torch.float32
        if name in _WIDEST:
            tensors = [x for x in tree_leaves(operands) if isinstance(x, torch.Tensor)]
            return torch.float32 if any(x.dtype == torch.float32 for x in tensors) else None
        return None

    def _to(self, wanted: torch.dtype) -> Callable[[Any], Any]:
        eligible = (torch.float32, torch.float16, torch.bfloat16)

        def convert(x: Any) -> Any:
            if not isinstance(x, torch.Tensor) or x.dtype not in eligible or x.dtype == wanted:
                return x
            is_cached = isinstance(x, torch.nn.Parameter) and wanted == self.dtype
            if is_cached and id(x) in self._cast_weights:
                return self._cast_weights[id(x)][1]
            cast = x.to(wanted)
            if is_cached:
                self._cast_weights[id(x)] = (x, cast)
            return cast

        return convert


def _with_wide_result(target: Any, args: Any, kwargs: Any) -> Any:
    """The named operands of an operator that reads 16 bits, its result in 32 asked for."""
    names = [argument.name for argument in target._schema.arguments]  # noqa: SLF001
    operands = {**dict(zip(names, args, strict=False)), **kwargs}
    narrow = any(x.dtype in FORMATS.values() for x in args[:1] if isinstance(x, torch.Tensor))
    if not narrow or "dtype" not in names or operands.get("dtype") is not None:
        return kwargs
    return {**kwargs, "dtype": torch.float32}
