"""What joins the pools of a serving scenario."""

from __future__ import annotations

from typing import Any

import pytest

from silicast.core.errors import SilicastError
from silicast.scenario.decode import decode
from silicast.scenario.resolving.fleets import fleet_of
from silicast.serving.simulation.event_loop import KvLink
from silicast.serving.simulation.launch import Expected

SPLIT: dict[str, Any] = {
    "task": "serving", "model": "Llama-3.1-8B", "device": "h100",
    "pools": {"a": {"role": "prefill"}, "b": {"role": "decode"}},
    "workload": {
        "arrival": {"kind": "closed", "concurrency": 2}, "requests": 4, "input_len": 500,
        "output_len": 5,
    },
}  # fmt: skip
NDR, HDR, NVLINK = 50e9, 25e9, 450e9


def joined(**fields: Any) -> tuple[KvLink, list[str]]:
    fleet, remark = fleet_of(decode({**SPLIT, **fields}), Expected(500, 2))
    assert fleet.link is not None
    return fleet.link, remark


@pytest.mark.parametrize(
    ("link", "rate"),
    [
        ({}, NDR),
        ({"kind": "NVLink"}, NVLINK),
        ({"kind": "infiniband-hdr"}, HDR),
        ({"kind": "rdma", "bandwidth_gb_per_s": 7}, 7e9),
        ({"kind": "nvlink", "bandwidth_gb_per_s": 7}, 7e9),
    ],
)
def test_a_link_is_as_fast_as_stated_or_as_its_kind(link: dict[str, Any], rate: float) -> None:
    assert joined(links={"l": link})[0].bytes_per_s == rate


def test_a_kind_that_nothing_has_needs_a_bandwidth() -> None:
    with pytest.raises(SilicastError) as caught:
        joined(links={"l": {"kind": "infiniband-hdrr"}})
    assert caught.value.field == "links.l.kind"
    assert "did you mean infiniband-hdr" in caught.value.hint


@pytest.mark.parametrize(
    ("pods", "rate"), [({}, NDR / 4), ({"gpus_per_pod": 8}, NDR), ({"inter_node": "efa-v3"}, None)]
)
def test_caches_that_leave_a_pod_share_its_uplinks(
    pods: dict[str, Any], rate: float | None
) -> None:
    plain = joined(cluster=pods)[0].bytes_per_s
    over = joined(cluster={**pods, "oversubscription": 4})[0].bytes_per_s
    assert over == (plain / 4 if rate is None else rate)
