"""Models with latent attention under the engines: what runs, and sane sizes of times."""

from __future__ import annotations

import pytest

from silicast.composition.engines.engine import find_engine
from silicast.composition.engines.engine_lowering import engine_op
from silicast.composition.passes.deployment import Deployment
from silicast.composition.passes.static_batch import predict_static_batch
from silicast.composition.step.machine import Machine
from silicast.core.prediction import Part
from silicast.hardware.catalog import find_device
from silicast.workload.graphs.op import Op, Variant
from silicast.workload.models.lookup import find_model
from silicast.workload.transformers.plan import Plan


def leaves(part: Part) -> dict[str, Part]:
    if not part.children:
        return {part.name: part}
    return {name: leaf for child in part.children for name, leaf in leaves(child).items()}


@pytest.mark.parametrize(
    ("engine", "device", "library"),
    [
        ("sglang", "H100", "sglang"),
        ("vllm", "H100", "vllm"),
        ("vllm", "B200", "trtllm"),
        ("trtllm", "A100", "trtllm"),
    ],
)
def test_a_node_is_the_bare_kernel_of_the_engine(engine: str, device: str, library: str) -> None:
    machine = Machine(find_device(device), find_engine(engine))
    for family in ("mla_prefill", "mla_decode"):
        variant = engine_op(Op.make(family), machine).variant
        assert variant.library == library
        assert not variant.flag("append", default=True)
        assert not variant.flag("project", default=True)


@pytest.mark.parametrize("family", ["sparse_attention", "indexer_logits"])
def test_a_decode_step_reads_cached_keys_from_memory_and_a_prefill_its_own(family: str) -> None:
    machine = Machine(find_device("H100"), find_engine("vllm"))
    decode = Op.make(family, Variant("bf16", flags=(("decode", True),)))
    assert engine_op(decode, machine).variant.cache == "cold"
    assert engine_op(Op.make(family), machine).variant.cache == ""


@pytest.mark.parametrize("engine", ["sglang", "vllm", "trtllm"])
def test_deepseek_v3_on_eight_h200(engine: str) -> None:
    """A decode step of 64 sequences reads 37 billion active weights at least in part: between the
    bound, some milliseconds, and a few times what its slowest published runs take (60 ms).
    """
    wanted = Deployment.from_model(
        find_model("DeepSeek-V3"), find_device("H200"), find_engine(engine), plan=Plan(tp=8)
    )
    static_batch = predict_static_batch(wanted, [1024] * 64, 16)
    assert static_batch.decode_step is not None
    step = static_batch.decode_step.part
    assert 5e9 < step.bound_ps < step.exposed_ps < 120e9
    parts = leaves(step)
    assert "mla_prefill" not in parts
    assert parts["mla_decode"].exposed_ps < 0.3 * step.exposed_ps
    assert {"q_absorb", "v_absorb"} <= set(parts)
    prefill = leaves(static_batch.prefill.part)
    assert "mla_decode" not in prefill
    assert 0 < prefill["mla_prefill"].exposed_ps < 0.5 * static_batch.prefill.part.exposed_ps
