"""Host time of engine steps, each term by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from silicast.composition.deployment import Deployment
from silicast.composition.engine import find_engine
from silicast.composition.engine_options import with_options
from silicast.composition.host_time import HostTimes
from silicast.composition.states import BatchStates
from silicast.composition.step import StepModel
from silicast.core.errors import SilicastError
from silicast.hardware.catalog import find_device
from silicast.hardware.host import Host
from silicast.workload.models import find_model
from silicast.workload.plan import Plan


def model(engine: str = "vllm", options: dict[str, Any] | None = None, **plan: Any) -> StepModel:
    return StepModel(
        Deployment(
            find_model("Llama-3.1-8B"),
            find_device("H100"),
            with_options(find_engine(engine), options or {}),
            plan=Plan(**plan),
        )
    )


def decode(count: int) -> BatchStates:
    return BatchStates.decode([100] * count, np.array([1]))


def test_work_is_constant_requests_and_transport() -> None:
    off = {"async_scheduling": False}
    host = find_engine("vllm").host
    one, four = (model(options=off).steps(decode(n)).host_s[0] for n in (1, 4))
    spread = model(options=off, tp=2).steps(decode(1)).host_s[0]
    assert one == pytest.approx((host.gap_us + host.step_us + host.request_us) * 1e-6)
    assert four - one == pytest.approx(3 * host.request_us * 1e-6)
    assert spread - one == pytest.approx(host.transport_us * 1e-6)


def test_asynchronous_work_hides_beside_the_device() -> None:
    host = find_engine("vllm").host
    times = model().steps(decode(4))
    assert times.host_s[0] == pytest.approx(host.gap_us * 1e-6)
    assert times.host_hidden_s[0] == pytest.approx((host.step_us + 4 * host.request_us) * 1e-6)
    usual = model()
    slow = StepModel(replace(usual.deployment, host=Host("slow", 0.01))).steps(decode(4))
    work = (host.step_us + 4 * host.request_us) * 1e-4
    assert slow.host_s[0] == pytest.approx(host.gap_us * 1e-4 + work - slow.device_s[0])
    assert slow.total_s[0] == pytest.approx(host.gap_us * 1e-4 + work), "the host sets the pace"


def test_version_0_does_all_its_work_between_two_steps() -> None:
    old, new = (model(engine).steps(decode(8)).host_s[0] for engine in ("vllm-v0", "vllm"))
    host = find_engine("vllm-v0").host
    assert old == pytest.approx((host.step_us + 8 * host.request_us) * 1e-6)
    assert new < old


def test_a_pass_in_pieces_launches_attention_and_pieces() -> None:
    host, layers = find_engine("vllm").host, 32
    small, large = (model().steps(BatchStates.prefill([n])).dispatch_s[0] for n in (512, 513))
    attention = 2 * layers * host.dispatch_us  # it and what writes the cache
    assert small == pytest.approx((attention + (layers + 1) * host.piece_us) * 1e-6)
    assert large > small, "no graph was captured: kernels are launched one by one"


@given(
    device=st.floats(1e-6, 1.0), dispatch=st.floats(0.0, 1.0), work=st.floats(0.0, 1.0),
    gap=st.floats(0.0, 1e-3), asynchronous=st.booleans(),
)  # fmt: skip
def test_laws_of_a_step(
    device: float, dispatch: float, work: float, gap: float, asynchronous: bool
) -> None:
    times = HostTimes(np.array([dispatch]), np.array([work]), gap, asynchronous)
    busy = np.array([device])
    total = float(times.total_s(busy)[0])
    assert total >= max(device, dispatch, work) + gap - 1e-12
    assert total <= max(device, dispatch) + work + gap + 1e-12
    both = times.waited_s(busy) + times.hidden_s(busy)
    assert float(both[0]) == pytest.approx(work + gap)


@pytest.mark.parametrize(
    ("options", "field", "hint"),
    [
        ({"async_sheduling": True}, "engine.options.async_sheduling", "async_scheduling"),
        ({"cuda_graph": "some"}, "engine.options.cuda_graph", ""),
        ({"overlap": "yes"}, "engine.options.overlap", ""),
    ],
)
def test_options_that_do_not_exist(options: dict[str, Any], field: str, hint: str) -> None:
    with pytest.raises(SilicastError) as caught:
        with_options(find_engine("vllm"), options)
    assert caught.value.field == field
    assert hint in caught.value.hint


def test_options_change_how_a_step_is_launched() -> None:
    full, pieces, off = (
        model(options={"cuda_graph": mode}).steps(decode(4)).dispatch_s[0]
        for mode in ("full", "piecewise", "off")
    )
    assert 0.0 == full < pieces < off
    assert model(options={"cuda_graph": False}).steps(decode(4)).dispatch_s[0] == off
