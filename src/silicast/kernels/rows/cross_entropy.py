"""Cross-entropy of rows of logits: the loss, and with the flag ``backward`` the gradient too.

Fused kernels (Triton, torch.compile) hold statistics in fp32 and read the logits once for the
loss; for the gradient they read them again and write it in the format of the logits. The style
"chain" is a framework's own operators: an fp32 copy of the logits, log-probabilities in fp32, the
loss picked from those, and backward the same way.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, final

from msgspec.structs import replace

from silicast.hardware.device import Device
from silicast.kernels.movement.streaming import Sizes, Stream, StreamingKernel, element_bytes
from silicast.kernels.registry import register
from silicast.workload.graphs.op import Variant

FP32_BYTES = 4
INDEX_BYTES = 8


@register
@final
class CrossEntropy(StreamingKernel):
    """Dimensions: rows (tokens with a target), vocab (of this rank's logits)."""

    family: ClassVar[str] = "cross_entropy"
    dims: ClassVar[Mapping[str, tuple[int, int]]] = {"rows": (1, 1 << 22), "vocab": (2, 1 << 21)}

    def stream(self, sizes: Sizes, variant: Variant) -> Stream:
        """Logits and targets in, a loss a row out; the gradient out if asked for."""
        size, backward = element_bytes(variant.dtype), variant.flag("backward")
        rows, elements = sizes["rows"], sizes["rows"] * sizes["vocab"]
        fused = Stream(
            read_bytes=elements * size + rows * INDEX_BYTES,
            write_bytes=rows * FP32_BYTES + (elements * size if backward else 0),
            flops=elements * (7 if backward else 4),
            fma=elements * (8 if backward else 4),
            xu=elements * (2 if backward else 1),
            tasks=rows,
            trips=2.0,
            reductions=2.0,
        )
        if self.kernel_style(variant) == "chain":
            return self._chain(fused, elements, upcast=size < FP32_BYTES, backward=backward)
        return replace(fused, reread_bytes=elements * size) if backward else fused

    @staticmethod
    def _chain(fused: Stream, elements: object, *, upcast: bool, backward: bool) -> Stream:
        """What the chain writes and reads again between its kernels.

        Forward: the fp32 copy (written, swept), log-probabilities (written). Backward: zeros with
        the picked gradient (written, read), log-probabilities read, and the fp32 gradient
        (written, read by the cast).
        """
        passes, kernels = (2 if upcast else 0) + 1, 3.0 if upcast else 2.0
        if backward:
            passes += 3 + (2 if upcast else 0)
            kernels += 3.0 if upcast else 2.0
        return replace(
            fused,
            kernels=kernels,
            trips=2.0 * kernels,
            reductions=4.0 if backward else 2.0,
            between_bytes=elements * (passes * FP32_BYTES),  # type: ignore[operator]
        )

    def is_measured(self, variant: Variant, device: Device) -> bool:  # noqa: ARG002
        """Never: no table holds losses."""
        return False
