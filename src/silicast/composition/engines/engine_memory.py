"""Memory that an engine takes beside weights and cache, as tables of its file."""

from __future__ import annotations

from typing import Literal

import msgspec

from silicast.core.decode import Strict


class LaunchMemoryTable(Strict, frozen=True):
    """What some releases of a server set aside when they profile themselves at the start.

    Attributes:
        since: the first release; "" = all before the next.
        sampler_bytes: a logit of the profiled rows, at the sampler's worst point, logits included;
            of a share of what is "empty", nothing is profiled.
        process_gib: what its process holds outside of the allocator, as far as it counts; 2^30
            bytes.
        group_gib: on top, buffers of the collectives of several devices, as far as they count.
        graph_gib: likewise of captured graphs.
        unfused: layers keep their normed input while they run.
        log_sd: log standard deviation of all that is set aside beside weights.
        expert_multiples: architecture -> format of the experts' weights -> whole multiples to which
            their width and the hidden size are padded when they are loaded.
    """

    process_gib: float
    sampler_bytes: float = 0.0
    since: str = ""
    group_gib: float = 0.0
    graph_gib: float = 0.0
    unfused: bool = False
    log_sd: float = 0.15
    expert_multiples: dict[str, dict[str, tuple[int, int]]] = {}

    def at_start_gib(self, gpus: int) -> float:
        """What a device holds before anything is loaded, 2^30 bytes, of a replica of so many.

        >>> table = LaunchMemoryTable(process_gib=0.5, group_gib=0.25)
        >>> table.at_start_gib(1), table.at_start_gib(8)
        (0.5, 0.75)
        """
        return self.process_gib + self.collectives_gib(gpus)

    def collectives_gib(self, gpus: int) -> float:
        """Buffers of collectives on a device of a replica of so many, 2^30 bytes.

        >>> LaunchMemoryTable(process_gib=0.5, group_gib=0.25).collectives_gib(8)
        0.25
        """
        return self.group_gib if gpus > 1 else 0.0


class HostLayersTable(Strict, frozen=True):
    """Layers in the host's memory (:mod:`silicast.composition.engines.host_weights`).

    Attributes:
        usual_cpu: of the catalog; it runs these layers where a scenario names none.
        copies_from_tokens: steps with fewer tokens run on the CPU, others copy the weights.
        handover_us: of results from device to CPU, and back.
        table: the table of embeddings stays there in any case.
        device_layers: of the model's layers and its head, those on the device; -1 = all.
        expert_layers: first layers whose routed experts are the host's.
    """

    usual_cpu: str
    copies_from_tokens: int
    handover_us: float
    table: bool = False
    device_layers: int = -1
    expert_layers: int = 0

    def host_layers(self, layers: int) -> int:
        """Of a model's layers, the first ones that the host holds whole.

        >>> HostLayersTable("Core i7-13700K", 32, 20.0, device_layers=26).host_layers(32)
        7
        """
        return 0 if self.device_layers < 0 else max(layers + 1 - self.device_layers, 0)

    def beyond(self, layers: int) -> list[str]:
        """Counts that are larger than a model's layers, in words.

        >>> HostLayersTable("Core i7-13700K", 32, 20.0, device_layers=99).beyond(32)
        ['n_gpu_layers = 99: there are 33 with the head, all of them on the device']
        """
        remarks = []
        if self.device_layers > layers + 1:
            every = f"there are {layers + 1} with the head, all of them on the device"
            remarks.append(f"n_gpu_layers = {self.device_layers}: {every}")
        if self.expert_layers > layers:
            remarks.append(f"n_cpu_moe = {self.expert_layers}: there are {layers}, all on the CPU")
        return remarks


class HostWeightsTable(Strict, frozen=True):
    """Weights of the first layers that stay in the host's memory while the device computes with
    them ("cpu_offload_gb"; :mod:`silicast.composition.engines.host_weights`).

    Attributes:
        read: kernels read them over the link ("in_place"), or each tensor is copied to the device
            before its layer runs, one after the other ("copied").
        gib: of the weights of each device, 2^30 bytes; 0 = none.
    """

    read: Literal["in_place", "copied"]
    gib: float = 0.0


class MemoryTable(Strict, frozen=True):
    """Device memory of the engine beside weights and cache.

    Attributes:
        usable_fraction: share of the device's memory that it may fill by default.
        fraction_of: a server's share is of the "device", for everything; of what is "empty" when it
            starts, for weights and cache; or of what is "free" beside all else, for the cache.
        framework_gb: context, libraries, communication buffers and graphs, per device.
        page_tokens: tokens of one block of the KV cache.
        prefill_chunk_tokens: most new tokens of one step; 0 = no limit.
        workspaces_mb: architecture -> what libraries of products hold of the allocator's memory for
            their intermediate sums, 10^6 bytes a device, on top of ``framework_gb``.
        narrow_workspaces_mb: by how much less where they are not wide, as training states.
        cuts_static_batches: prompts of a static batch run in steps of so many tokens, too.
        process_gb: in place of ``framework_gb``, of a process that computes in the host's memory.
        launch: what a server sets aside beside weights and cache, by release, in place of
            ``framework_gb``; [] = only that.
        offload: how it runs layers whose weights stay in the host's memory; None = it does not.
        host_weights: how the device computes with weights that do; None = it does not.
    """

    usable_fraction: float
    framework_gb: float
    page_tokens: int
    fraction_of: Literal["device", "empty", "free"] = "device"
    prefill_chunk_tokens: int = 0
    cuts_static_batches: bool = False
    process_gb: float = 0.0
    workspaces_mb: dict[str, float] = {}
    narrow_workspaces_mb: dict[str, float] = {}
    launch: list[LaunchMemoryTable] = []
    offload: HostLayersTable | None = None
    host_weights: HostWeightsTable | None = None

    @property
    def reads_host(self) -> bool:
        """Whether the device computes with weights of its host's memory."""
        return self.host_weights is not None and self.host_weights.gib > 0.0

    def with_host_weights(self, gib: float) -> MemoryTable:
        """The same with so much of each device's weights in the host's memory; it must be able to
        compute with them.
        """
        assert self.host_weights is not None
        held = msgspec.structs.replace(self.host_weights, gib=gib)
        return msgspec.structs.replace(self, host_weights=held)
