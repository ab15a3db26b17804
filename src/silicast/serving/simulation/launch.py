"""The limits with which an engine starts on a deployment: sequences, tokens of a step, cache."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, final

from silicast.composition.engines.engine import BoardTable, ServingTable
from silicast.composition.passes.deployment import Deployment, board_of
from silicast.core.errors import SilicastError
from silicast.serving.kv.host_cache import HostLink
from silicast.serving.kv.kv_pool import KvLayout
from silicast.serving.simulation.limits import UNBOUNDED, Limits
from silicast.serving.simulation.start import ServerStart, pooled

UNLIMITED = 16384
"""New tokens of a step where an engine states no limit."""
MIB = float(1 << 20)


@final
@dataclass(frozen=True)
class Expected:
    """The traffic that an engine is launched for.

    Attributes:
        prompt_tokens: of the longest prompt.
        clients: that wait for their answers; 0 = requests come at any time.
        total_tokens: of the longest request, its output included; 0 = not known.
    """

    prompt_tokens: int
    clients: int = 0
    total_tokens: int = 0


def launched_tokens(deployment: Deployment, expected: Expected, sequences: int) -> int:
    """Most new tokens of a step as an engine is launched for a traffic; 0 = nothing follows from
    it, or somebody stated the limit.

    Args:
        sequences: most that run at once in a group of ranks.
    """
    launch = serving_table(deployment).launch
    if launch is None:
        return 0
    if expected.clients:
        sequences = min(sequences, -(-expected.clients // deployment.plan.attention_dp))
    return launch.tokens(expected.prompt_tokens, sequences)


def limits_of(
    deployment: Deployment,
    expected: Expected | None = None,
    *,
    memory_share: float = 1.0,
    **stated: Any,
) -> Limits:
    """The limits with which a deployment's engine starts each group of ranks.

    Args:
        expected: the traffic it is launched for; None = not known.
        memory_share: of the memory that the engine would fill if it were alone on its devices.
        stated: fields of :class:`~silicast.serving.simulation.scheduler.Limits` that are set, by
        name.

    Raises:
        SilicastError: the engine does not serve, or the model does not fit.
    """
    table = serving_table(deployment)
    board = _board(deployment)
    groups = deployment.plan.attention_dp
    memory = deployment.engine.memory
    sequences = board.max_sequences or table.max_sequences
    if table.shares_sequences:
        sequences = max(sequences // groups, 1)
    usual = 0 if stated.get("sequences") else board.max_sequences
    sequences = stated.pop("sequences", 0) or sequences
    tokens = board.step_tokens or table.step_tokens or memory.prefill_chunk_tokens or UNLIMITED
    if expected is not None:
        tokens = launched_tokens(deployment, expected, sequences) or tokens
    tokens = stated.pop("step_tokens", 0) or tokens
    model_tokens = stated.pop("model_tokens", 0) or table.model_tokens or UNBOUNDED
    blocks = stated.pop("blocks", 0) or table.blocks
    if not blocks:
        share = _share(table, board, deployment, tokens)
        if memory_share < 1.0:
            share = (share or memory.usable_fraction) * memory_share
        start = ServerStart(deployment, sequences, tokens, share, memory_share >= 1.0)
        total = expected.total_tokens if expected is not None else 0
        needed = table.model_tokens or min(total, model_tokens)
        if usual and start.blocks and not start.holds(needed):
            fewer = replace(start, sequences=min(table.max_sequences, sequences))
            start = fewer if fewer.holds(needed) else start
        start.require(table.model_tokens)
        drafted = int(stated.get("drafted", 0))
        caching = bool(stated.get("prefix_caching", table.prefix_caching))
        sequences, blocks = pooled(start, drafted, caching=caching)
    options: dict[str, Any] = {
        "prefix_caching": table.prefix_caching,
        "options": table.options,
        "host": host_link(deployment),
    }
    return Limits(sequences, tokens, blocks, model_tokens, **(options | stated))


def start_of(deployment: Deployment, limits: Limits) -> ServerStart:
    """The start that gave a deployment these limits."""
    table = serving_table(deployment)
    share = _share(table, _board(deployment), deployment, limits.step_tokens)
    return ServerStart(deployment, limits.sequences, limits.step_tokens, share)


def usual_sequences(deployment: Deployment) -> int:
    """Most sequences of a group of ranks where nobody states them; 0 = somebody did."""
    return _board(deployment).max_sequences


def _board(deployment: Deployment) -> BoardTable:
    """What the engine sets by the board."""
    return board_of(serving_table(deployment), deployment.device, deployment.plan.tp)


def host_link(deployment: Deployment) -> HostLink | None:
    """What joins the devices of a group to their host's memory: NVLink-C2C where a module has it,
    else PCIe; None where the device file has neither.
    """
    links, plan, table = deployment.device.links, deployment.plan, serving_table(deployment)
    link = links.get("nvlink_c2c") or links.get("pcie")
    if link is None:
        return None
    layers = -(-deployment.model.layers // plan.pp)
    return HostLink(
        KvLayout.from_deployment(deployment).block_bytes,
        plan.gpus // plan.attention_dp,
        link.bandwidth_bytes_per_s * table.host_link_share,
        2 * layers * table.host_call_us * 1e3,
    )


def serving_table(deployment: Deployment) -> ServingTable:
    """What the engine says about serving.

    Raises:
        SilicastError: it does not serve.
    """
    table = deployment.engine.serving
    if table is None:
        raise SilicastError(f"{deployment.engine.name} serves no requests", field="engine")
    return table


def _share(
    table: ServingTable, board: BoardTable, deployment: Deployment, step_tokens: int
) -> float:
    """The share of memory that an engine works out for itself; 0 = it is stated."""
    aside, plan = table.set_aside, deployment.plan
    if aside is None:
        return 0.0
    rows = aside.row_mib + (aside.group_row_mib * plan.attention_dp if plan.attention_dp > 1 else 0)
    mib = aside.fixed_mib + aside.token_mib * step_tokens
    mib += rows * board.graph_rows + aside.gpu_mib * plan.gpus
    whole = deployment.device.dram.capacity_bytes / MIB
    return max(1.0 - max(mib, board.set_aside_mib) / whole, 0.0)
