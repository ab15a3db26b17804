"""``[parallel]`` of an engine's file: its plan where the user states none, and what it offers."""

from __future__ import annotations

from typing import Literal

from silicast.core.decode import Strict
from silicast.workload.transformers.plan import ExtraLayers


class EngineParallelTable(Strict, frozen=True):
    """Defaults of a parallel plan.

    Attributes:
        gathers_dense: with attention_dp, dense layers are cut over all ranks, whose groups gather
            their tokens for them; else each group runs its own.
        encoder: of images, before a decoder: each tensor rank holds it "whole" and runs all of it;
            ranks share its "weights"; or each holds it whole and runs a share of the images
            ("data").
        extra_layers: the pipeline stages that hold one layer more where stages do not divide them.
        mixes_prefill: a step may hold sequences in prefill and in decode; else prefill goes first.
        expert_copies: beside the experts; expert_places: for both together, 0 = not stated.
        schedules: of a training pipeline that it has; [] = any.
        tensor: it cuts products over devices; else models are split over them by layers.
        rows: of such, products are cut by rows over all devices besides.
        one_batch: a step goes through all stages before the next one starts.
        context: how context ranks may see each other's keys, the usual way first; [] =
            by any, usually as a ring.
        zero: stage of ZeRO in training; gradient_bits: in which data ranks sum gradients.
        bucket_parameters, bucket_parameters_a_rank: of so many parameters, the larger of the first
            and of the second for each data rank, gradients are summed and weights gathered at
            once; 0 = of a layer, and of a layer where that has more.
        zero_whole_weights: the stage that a search of plans takes where ranks keep whole weights.
        dispatch: how training brings tokens to their experts ("all_to_all", "kernel").
        overlaps_tensor: transfers of tensor ranks run beside products of the forward pass where
            nothing is stated: never, or of models without experts.
        overlaps_transfers: results go to the next pipeline stage beside other micro-batches where
            nothing is stated: always, or where ranks hold several chunks.
        host_link_share, host_memory_share: of the peak rates of the link to the host and of the
            host's memory, what copies and an update by the CPU reach. Judged: PCIe carries 80 to
            90 % of its peak beside its headers; CPU-Adam of ZeRO-Offload (arXiv 2101.06840, table
            4: 0.22 to 0.26 s for 10^9 parameters) moves 30 bytes a parameter at half of 256 GB/s.
    """

    dispatch: Literal["all_to_all", "kernel"] = "all_to_all"
    overlaps_tensor: Literal["never", "dense"] = "never"
    overlaps_transfers: Literal["always", "chunks"] = "always"
    schedules: list[str] = []
    tensor: bool = True
    rows: bool = False
    one_batch: bool = False
    context: list[str] = []
    zero: int = 0
    zero_whole_weights: int = 1
    gradient_bits: int = 32
    bucket_parameters: int = 0
    bucket_parameters_a_rank: int = 0
    mixes_prefill: bool = True
    gathers_dense: bool = False
    encoder: Literal["whole", "weights", "data"] = "whole"
    extra_layers: ExtraLayers = "before_last"
    expert_copies: int = 0
    expert_places: int = 0
    host_link_share: float = 0.85
    host_memory_share: float = 0.5

    def has_schedule(self, name: str) -> bool:
        """Whether its pipeline may run in a schedule."""
        return not self.schedules or name in self.schedules
