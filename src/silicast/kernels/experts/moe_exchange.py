"""Dispatch and combine: tokens travel to the ranks of their experts and their results back.

Every rank holds ``tokens`` tokens of its own. A high-throughput exchange sends a token once to
each other rank that serves one of its choices, a low-latency one sends every choice:

    t = base + max(tokens x (copies + own) x (hidden + header) / min(link x efficiency,
                   SMs x rate of an SM),  bytes that leave the node / network)

where ``own`` is what a token costs beside its copies to others (it is read, staged, and kept), and
experts take the place of SMs in a low-latency exchange. To another node a high-throughput exchange
sends a token once, and that node's ranks pass it on: ``forward_copies`` more for the SMs; a
low-latency one sends every choice. The base grows with the token's length and with the experts,
whose counters are read; else it is the library's host, launch and synchronisation time as its
benchmarks measure it. ``Variant.kernel`` names the exchange
("deepep_ll", "deepep_ht", "NVLinkTwoSided"). Without one, short exchanges take the low-latency
path and long ones the other; engines put the border at 128 to 512 tokens a rank, so there the time
is an expectation over both and their distance is part of the interval. Optional dimensions:
``nodes`` (default: what the ranks need), ``sms`` (of the exchange). Where a cluster states its
network (:meth:`~silicast.hardware.cluster.Cluster.networked`), the bytes between nodes take its
rate, and the base of what leaves the node its latency, both in relation to the network of the
measured exchanges.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import ClassVar, final

import numpy as np

from silicast.core.dtypes import BITS, recipe_for
from silicast.core.errors import unsupported
from silicast.core.numerics import F64, I64, exp_fixed, log_fixed
from silicast.hardware.device import NETWORK, Device, Link
from silicast.kernels.implementation import Analysis, Demand, Implementation
from silicast.kernels.physics.constants import load_physics
from silicast.kernels.registry import register
from silicast.workload.graphs.op import Op, OpBatch, Variant
from silicast.workload.libraries.catalog import kernel_rule, library
from silicast.workload.libraries.library_file import RuleFacts

PHYSICS = "moe_exchange"
LOW_LATENCY_TOKENS = (128, 512)
"""Tokens a rank up to which every engine takes the low-latency path, and from which on none does,
where no kernel is named."""
UNNAMED = "by_tokens"
"""Style of an exchange that is not named."""

GRACE = "grace"
"""The host in the catalog: launches take longer on it."""

MEASURED_NETWORK = "infiniband"
MEASURED_RATE = 50e9
"""Kind and bytes per second of the adapter of each device where exchanges between nodes were
measured: one of 400 Gb/s (DeepEP's benchmarks on H100 and H200)."""

COMPULSORY_SHARE = 0.25
"""Of the expected remote bytes: some draws stay on fewer ranks, some formats are narrower."""

USUAL_SMS = 20
"""SMs of a high-throughput exchange that states none: DeepEP's default (``Buffer.num_sms``)."""

PATHS = ("low_latency", "throughput", "one_sided")


def path_of(kernel: str) -> str:
    """The path of a kernel's name; "" where the name does not say.

    >>> path_of("trtllm_deepep_ht"), path_of("deepep")
    ('throughput', '')
    """
    rule = kernel_rule("dispatch", RuleFacts(kernel=kernel.casefold()))
    return rule.style if rule else ""


def payload_bytes(variant: Variant, phase: str) -> float:
    """Bytes of one element on the wire: results return in bf16; narrow elements have scales.

    >>> payload_bytes(Variant(library="sglang"), "dispatch")
    1.03125
    """
    if phase == "combine":
        return 2.0
    sent = library(variant.library).dispatch_dtype or variant.dtype
    recipe = recipe_for(sent, field="dtype")
    bits = BITS[recipe.activations]
    if bits >= 16.0:
        return bits / 8.0
    return bits / 8.0 + (4.0 / 128.0 if bits == 8.0 else 1.0 / 16.0)


@final
@dataclass(frozen=True)
class ExpertFabric:
    """What joins the ranks.

    Attributes:
        link: bytes per second that leave a device inside its node.
        per_node: devices that the link joins.
        hz: clock of the SMs that carry out the exchange.
        grace: the host is NVIDIA's Grace.
        network_rate, network_wait: bytes per second and latency of the network between nodes, each
            over those of the network that exchanges were measured on.
        network_log_sd: of what the network adds; 0 on the measured kind.
    """

    link: float
    per_node: int
    hz: float
    grace: bool = False
    network_rate: float = 1.0
    network_wait: float = 1.0
    network_log_sd: float = 0.0


@lru_cache(maxsize=256)
def fabric_of(device: Device) -> ExpertFabric:
    """The device's fastest link to its peers, and the network of its cluster where it states one.

    Raises:
        SilicastError: the device has none.
    """
    links = sorted((name, link) for name, link in device.links.items() if name != NETWORK)
    fastest: Link | None = max(
        (link for _, link in links), key=lambda link: link.bandwidth_bytes_per_s, default=None
    )
    if fastest is None:
        raise unsupported(f"{device.name} has no link to other devices", "device")
    per_node = max(fastest.domain or device.default_gpus_per_node, 1)
    fabric = ExpertFabric(
        fastest.bandwidth_bytes_per_s, per_node, device.clocks.max_hz, device.default_host == GRACE
    )
    network = device.links.get(NETWORK)
    return fabric if network is None else _over(network, fabric)


def _over(network: Link, fabric: ExpertFabric) -> ExpertFabric:
    """The fabric with a stated network: bytes as its adapters and its share of the wire give them,
    latency as its hops, which collectives show.
    """
    table = load_physics(NETWORK)
    of_network, measured = table.constants(network.name), table.constants(MEASURED_NETWORK)
    rate = network.bandwidth_bytes_per_s / MEASURED_RATE
    is_other = network.name != MEASURED_NETWORK
    return replace(
        fabric,
        per_node=max(network.domain, 1),
        network_rate=rate * of_network["network_efficiency"] / measured["network_efficiency"],
        network_wait=of_network["network_step_us"] / measured["network_step_us"],
        network_log_sd=of_network["network_log_sd_unmeasured"] if is_other else 0.0,
    )


class ExpertExchange(Implementation):
    """Base class of dispatch and combine."""

    phase: ClassVar[str]
    group: ClassVar[str] = PHYSICS
    anywhere: ClassVar[bool] = True
    leaves_node: ClassVar[bool] = True
    dtypes: ClassVar[tuple[str, ...]] = ("bf16", "fp8", "nvfp4")
    dims: ClassVar[Mapping[str, tuple[int, int]]] = {
        "tokens": (1, 1 << 20),
        "hidden": (1, 1 << 17),
        "topk": (1, 64),
        "experts": (1, 1 << 12),
        "ep": (1, 1 << 12),
    }

    @final
    def analyse(self, batch: OpBatch, device: Device) -> Analysis:
        return analyse_exchange(batch, device, self.phase, constants_of(device))

    @final
    def shared_log_sd(self, variant: Variant, device: Device) -> Mapping[str, float]:
        del variant  # the same for all
        c = constants_of(device)
        return {"device": c["device_log_sd"], f"family:{self.family}": c["family_log_sd"]}

    @final
    def style(self, variant: Variant, device: Device) -> str:  # noqa: ARG002
        """See :meth:`Implementation.style`: the path, and of those over NVLink alone the kernel."""
        path = path_of(variant.kernel)
        return variant.kernel.casefold() if path == "one_sided" else path or UNNAMED

    @final
    def flops(self, op: Op) -> int:
        """Tokens are moved; adding up the choices is not counted."""
        del op
        return 0

    @final
    def compulsory_bytes(self, op: Op) -> int:
        """The tokens of a rank, once."""
        dims = dict(op.dims)
        tokens, hidden = dims["tokens"], dims["hidden"]
        if not isinstance(tokens, int) or not isinstance(hidden, int):
            raise ValueError("an exchange has plain sizes")
        return int(tokens * hidden * payload_bytes(op.variant, self.phase))


def constants_of(device: Device) -> Mapping[str, float]:
    """Constants of the device's architecture."""
    return load_physics(PHYSICS).constants(device.architecture)


@final
@dataclass(frozen=True)
class Remote:
    """Copies of a token that leave their rank, arrays of shape (rows,).

    Attributes:
        once: to other ranks of any node, one copy a rank.
        every: the same with one copy a choice.
        out_once: to other nodes, one copy a node.
        out_every: the same with one copy a choice.
    """

    once: F64
    every: F64
    out_once: F64
    out_every: F64


def remote_of(topk: I64, ep: I64, per_node: I64) -> Remote:
    """Expected copies under even routing; ``per_node``: ranks of the group on one node."""
    nodes = np.maximum(ep / per_node, 1.0)
    return Remote(
        (ep - 1) * _hit(ep, topk),
        topk * ((ep - 1) / ep),
        (nodes - 1.0) * _hit(nodes, topk),
        topk * ((nodes - 1.0) / nodes),
    )


def _hit(indices: I64 | F64, topk: I64) -> F64:
    """Probability that one of ``indices`` serves at least one of a token's choices."""
    missed = np.maximum((indices - 1) / indices, 1e-9)
    return 1.0 - exp_fixed(np.maximum(topk * log_fixed(missed), -20.0))


def analyse_exchange(
    batch: OpBatch, device: Device, phase: str, table: Mapping[str, float]
) -> Analysis:
    """The model itself under a flat table of constants."""
    dims, variant, fabric = batch.dims, batch.variant, fabric_of(device)
    tokens, ep = dims["tokens"], dims["ep"]
    local = np.minimum(ep, fabric.per_node)
    if "nodes" in dims:
        local = np.maximum(ep // np.maximum(dims["nodes"], 1), 1)
    remote = remote_of(np.minimum(dims["topk"], dims["experts"]), ep, local)
    token_bytes = tokens * dims["hidden"] * payload_bytes(variant, phase)
    path = path_of(variant.kernel)
    if path:
        result = exchange_time(path, remote, batch, phase, table, fabric)
        doubt = np.zeros_like(result.time_s)
    else:
        result, doubt = _either(remote, batch, phase, table, fabric)
    time = result.time_s
    compulsory = tokens * dims["hidden"] * remote.once * COMPULSORY_SHARE
    link = np.maximum(compulsory / fabric.link, 1.0 / device.clocks.max_hz)
    beyond = fabric.network_log_sd * result.exposed_network_s / time
    independent_log_sd = np.sqrt(table["independent_log_sd"] ** 2 + doubt * doubt + beyond * beyond)
    return Analysis(
        time_s=time,
        bound_s=link,
        resource_s={"link": link, "launch": np.full_like(time, table["launch_s"])},
        demand=Demand(
            tasks=tokens.astype(np.float64),
            waves=tokens / device.cores,
            occupancy=np.minimum(tokens / device.cores, 1.0),
            pipe_work={},
            level_bytes={"link": token_bytes * remote.once},
        ),
        features={
            "copies": remote.once,
            "out": remote.out_once,
            "link_share": link / time,
            "stream_share": result.stream_s / time,
            "network_share": result.network_s / time,
            "ranks_of_node": local / fabric.per_node,
        },
        independent_log_sd=independent_log_sd,
    )


@final
@dataclass(frozen=True)
class PathTime:
    """Times of a path, arrays of shape (rows,), seconds: total, over the link, between nodes, and
    the network's latency.
    """

    time_s: F64
    stream_s: F64
    network_s: F64
    wait_s: F64

    @property
    def exposed_network_s(self) -> F64:
        """What the network adds to the total."""
        return np.maximum(self.network_s - self.stream_s, 0.0) + self.wait_s


def _either(
    remote: Remote, batch: OpBatch, phase: str, table: Mapping[str, float], fabric: ExpertFabric
) -> tuple[PathTime, F64]:
    """The expectation over the path of short exchanges and that of long ones, and the log sd that
    their distance adds.
    """
    first, last = LOW_LATENCY_TOKENS
    octaves = log_fixed(np.maximum(batch.dims["tokens"] / first, 1.0)) / math.log(last / first)
    share = np.minimum(octaves, 1.0)
    low = exchange_time("low_latency", remote, batch, phase, table, fabric)
    high = exchange_time("throughput", remote, batch, phase, table, fabric)
    mixed = PathTime(
        *(
            (1.0 - share) * getattr(low, name) + share * getattr(high, name)
            for name in ("time_s", "stream_s", "network_s", "wait_s")
        )
    )
    apart = np.abs(log_fixed(high.time_s / low.time_s))
    return mixed, np.sqrt(share * (1.0 - share)) * apart


def exchange_time(
    path: str,
    remote: Remote,
    batch: OpBatch,
    phase: str,
    table: Mapping[str, float],
    fabric: ExpertFabric,
) -> PathTime:
    """Time of one path."""

    def constant(name: str) -> float:
        general = table[f"{phase}.{path}.{name}"]
        return table.get(f"{phase}.{path}.{name}:{batch.variant.library}", general)

    every = path == "low_latency"
    copies, out = (remote.every, remote.out_every) if every else (remote.once, remote.out_once)
    tokens = batch.dims["tokens"]
    token_bytes = batch.dims["hidden"] * payload_bytes(batch.variant, phase)
    own_copies = constant("own_copies")
    copies = copies + own_copies + out * constant("forward_copies")
    moved = tokens * copies * (token_bytes + constant("header_bytes"))
    rate = np.full_like(moved, fabric.link * constant("efficiency"))
    if every:  # a few warps serve each expert
        rate = np.minimum(rate, batch.dims["experts"] * constant("expert_bytes_per_s"))
    if path == "throughput":
        sms = batch.dims.get("sms", np.zeros_like(tokens))
        sms = np.where(sms > 0, sms, USUAL_SMS)
        rate = np.minimum(rate, sms * fabric.hz * constant("sm_bytes_per_clock"))
    network_per_s = constant("network_bytes_per_s") * fabric.network_rate
    network_s: F64 = tokens * out * token_bytes / network_per_s
    leaves = (out > 0.0).astype(np.float64)
    wait_s: F64 = constant("network_base_s") * fabric.network_wait * leaves
    base: F64 = constant("base_s") + wait_s
    if fabric.grace:
        base = base + constant("grace_base_s")
    base = base + batch.dims["hidden"] * constant("element_s")
    base = base + batch.dims["experts"] * constant("expert_s")
    stream_s: F64 = moved / rate
    return PathTime(np.maximum(stream_s, network_s) + base, stream_s, network_s, wait_s)


@register
@final
class Dispatch(ExpertExchange):
    """Tokens to the ranks of their experts."""

    family: ClassVar[str] = "dispatch"
    phase: ClassVar[str] = "dispatch"


@register
@final
class Combine(ExpertExchange):
    """Results of the experts back to the ranks of their tokens, added up there."""

    family: ClassVar[str] = "combine"
    phase: ClassVar[str] = "combine"
