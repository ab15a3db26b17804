"""Flash attention off, split rows and cache formats of llama.cpp."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import silicast
from silicast.composition.engines.attention_scores import with_scores
from silicast.composition.engines.cut_rows import with_rows_cut
from silicast.composition.engines.engine import find_engine
from silicast.composition.engines.engine_options import with_options
from silicast.composition.passes.deployment import Deployment
from silicast.composition.step.states import BatchStates
from silicast.composition.step.step import StepModel
from silicast.core.dtypes import BITS, MIXED_CACHES
from silicast.core.errors import SilicastError
from silicast.hardware.catalog import find_device
from silicast.workload.graphs.graph import Block, Node
from silicast.workload.graphs.op import Op, Variant
from silicast.workload.models.lookup import find_model
from silicast.workload.transformers.plan import Plan
from tests.gguf_file import FACTS, gguf_bytes, tiny_tensors


def predicted(**changes: Any) -> Any:
    scenario: dict[str, Any] = {
        "format": 1,
        "task": "inference",
        "device": "RTX 4090",
        "model": "Llama-2-7B",
        "engine": {"name": "llama.cpp", "options": changes.pop("options", {})},
        "precision": {"weights": "Q4_K_M"} | changes.pop("precision", {}),
        "workload": {"batch": 1, "input_len": 2048, "output_len": 64},
    }
    return silicast.predict(scenario | changes)


def ops(model: str, options: dict[str, Any], plan: Plan = Plan()) -> dict[str, Op]:
    """The ops of a layer by name, sizes bound to prompts of 100 behind 300, and 20 tokens."""
    engine = with_options(find_engine("llama.cpp"), options)
    deployment = Deployment.from_model(find_model(model), find_device("RTX 4090"), engine, plan)
    timer = StepModel.from_deployment(deployment).timer
    symbols = timer.symbols_of_one([(100, 400), (20, 20)], 3, 51, -1)
    return {
        node.name: node.op.bind(symbols) if node.name.endswith("_softmax") else node.op
        for node in timer.nodes
    }


def test_scores_are_two_products_and_a_softmax() -> None:
    """Llama 3 8B: 32 heads, 8 of keys, 128 wide; three sequences of at most 51 tokens decode."""
    whole = ops("Llama-3.1-8B", {"fused_attention": False})
    scores, values = whole["attention_decode_scores"], whole["attention_decode_values"]
    assert scores.family == values.family == "quantized_gemm"
    assert dict(scores.dims) | {"batch": 0} == {
        "batch": 0, "m": 4, "n": "decode_longest", "k": 128,
    }  # fmt: skip
    assert dict(values.dims) | {"batch": 0} == {
        "batch": 0, "m": 4, "n": 128, "k": "decode_longest",
    }  # fmt: skip
    assert dict(whole["attention_decode_softmax"].dims) == {"rows": 3 * 32, "cols": 51}
    assert dict(whole["attention_prefill_softmax"].dims) == {"rows": 120 * 32, "cols": 400}
    assert whole["attention_decode_softmax"].variant.dtype == "fp32"
    assert whole["attention_decode"].dim("elements").factor == 32 * 128  # type: ignore[union-attr]


def test_work_of_scores_is_attentions() -> None:
    """Two products of 2 x heads x width x queries x keys, whatever the heads share."""
    engine = with_options(find_engine("llama.cpp"), {"fused_attention": False})
    model = find_model("Llama-3.1-8B")
    deployment = Deployment.from_model(model, find_device("RTX 4090"), engine)
    timer = StepModel.from_deployment(deployment).timer
    symbols = timer.symbols_of_one([(100, 400)], 0, 0, -1)
    for node in timer.nodes:
        if node.name in ("attention_prefill_scores", "attention_prefill_values"):
            sizes = dict(node.op.bind(symbols).dims)
            work = 2 * sizes["m"] * sizes["n"] * sizes["k"] * sizes["batch"]  # type: ignore[operator]
            assert work == 2 * 32 * 128 * 100 * 400


def test_windows_keep_one_kernel() -> None:
    names = ops("gpt-oss-20b", {"fused_attention": False})
    assert "attention_decode_scores" in names, "every other layer sees all"
    windowed = [op for op in names.values() if op.family == "attention_decode"]
    assert windowed or names["attention_decode"].family == "elementwise"
    said = predicted(model="gpt-oss-20b", precision={"weights": "MXFP4_MOE"}, options={"fa": 0})
    assert any("with a window" in each for each in said.warnings)


def test_longest_keys_of_prompts() -> None:
    states = BatchStates.chunked([700, 300], 512).after(50)
    assert states.prefill_longest_kv.tolist() == [562, 750]
    assert states.prefill_longest.tolist() == [512, 300]


def test_flash_attention_off_is_slower_and_larger() -> None:
    on, off = predicted(), predicted(options={"flash_attn": "off"})
    for name in ("prefill_ms", "decode_step_ms"):
        assert off.metrics[name].estimate > on.metrics[name].estimate
    more = off.metrics["memory_gb"].estimate - on.metrics["memory_gb"].estimate
    assert more == pytest.approx(4 * 32 * 512 * (2048 + 64) / 1e9)
    assert predicted(options={"fa": 0}).metrics == off.metrics
    assert predicted(options={"fa": 1}).metrics == on.metrics


def test_values_are_quantised_under_flash_attention_alone() -> None:
    with pytest.raises(SilicastError, match="keeps no values in q8_0") as refused:
        predicted(options={"fa": "off"}, precision={"kv_cache": "q8_0"})
    assert refused.value.field == "precision.kv_cache"
    assert predicted(options={"fa": "off"}, precision={"kv_cache": "q8_0/f16"}).metrics


def test_keys_and_values_in_formats_of_their_own() -> None:
    """q8_0 has 8.5 bits, f16 16: a cache of both 12.25 a number."""
    assert BITS["q8_0/fp16"] == 12.25
    turned = {name: "/".join(reversed(name.split("/"))) for name in MIXED_CACHES}
    assert all(BITS[name] == BITS[other] for name, other in turned.items())

    def cache(kv: str) -> float:
        return float(predicted(precision={"kv_cache": kv}).why["memory_gb"]["kv_cache"])

    assert cache("q8_0/f16") == pytest.approx(cache("f16") * 12.25 / 16)
    for wrong in ("q8_0/", "q8_0/f16/f16", "q8_0/fp8", "f16/q4_k"):
        with pytest.raises(SilicastError) as refused:
            predicted(precision={"kv_cache": wrong})
        assert refused.value.field == "precision.kv_cache"


def test_cut_rows_move_inputs_out_and_results_back() -> None:
    """Of a product of 4096 x 4096 over four devices: three inputs of 16 bits out,
    three quarters of the outputs in 32 bits back.
    """
    whole = ops("Llama-2-7B", {"cut_rows": True}, Plan(pp=4))
    plain = ops("Llama-2-7B", {}, Plan(pp=4))
    assert dict(plain["o"].dims)["n"] == 4096
    assert dict(whole["o_rows_part"].dims)["n"] == 1024
    assert whole["o"].dim("bytes").factor == 3 * 1024 * 4  # type: ignore[union-attr]
    assert whole["o_rows_out"].dim("bytes").factor == 3 * 4096 * 2  # type: ignore[union-attr]
    assert whole["attention_decode"] == plain["attention_decode"], "whole, where its cache is"


def test_cut_rows_of_an_uneven_product_are_rounded_up() -> None:
    """4,097 outputs over four devices: 1,025 on each, the 3,072 of the others come back. Products
    of several matrices are not cut.
    """
    sizes: dict[str, Any] = {"m": "tokens", "n": 4097, "k": 64}
    nodes = with_rows_cut(
        Block("layer", (Node("up", Op.make("gemm", Variant("fp16"), **sizes)),)), 4
    )
    _, part, back = nodes.nodes
    assert dict(part.op.dims)["n"] == 1025
    assert back.op.dim("bytes").factor == 3072 * 4  # type: ignore[union-attr]
    several = Block("layer", (Node("up", Op.make("gemm", Variant("fp16"), **sizes, batch=2)),))
    assert with_rows_cut(several, 4) == several


def test_scores_are_of_keys_and_results_of_values() -> None:
    op = Op.make(
        "attention_decode", Variant("fp16", "q8_0/fp16"), num_heads=8, num_kv_heads=2,
        head_dim=64, window=0, kv_len="decode_kv",
    )  # fmt: skip
    scores, _, values, _ = with_scores(Block("layer", (Node("attention", op),))).nodes
    assert (scores.op.variant.dtype, values.op.variant.dtype) == ("q8_0", "fp16")


def test_cut_rows_decode_faster_and_read_prompts_slower() -> None:
    """Over PCIe: a token is a few kilobytes, a prompt megabytes a product."""
    layers = predicted(parallel={"pp": 2})
    rows = predicted(parallel={"tp": 2}, options={"split_mode": "row"})
    assert rows.metrics["decode_step_ms"].estimate < layers.metrics["decode_step_ms"].estimate
    assert rows.metrics["prefill_ms"].estimate > layers.metrics["prefill_ms"].estimate
    assert rows.metrics["memory_gb"] == layers.metrics["memory_gb"]
    assert rows.metrics == predicted(parallel={"pp": 2}, options={"sm": "row"}).metrics


def test_pieces_that_overlap_are_said_to_be_left_out() -> None:
    """By layers pieces of a prompt overlap over cards, which no task models; by rows they do not,
    and one piece has nothing to overlap with.
    """
    short = {"batch": 1, "input_len": 512, "output_len": 2}
    layers = predicted(parallel={"pp": 2}).warnings
    assert any("upper ends" in said for said in layers)
    assert not any("serve --concurrency" in said for said in layers)
    rows = predicted(parallel={"tp": 2}, options={"split_mode": "row"}).warnings
    for other in (rows, predicted(parallel={"pp": 2}, workload=short).warnings):
        assert not any("one after the other" in said or "upper" in said for said in other)
    vllm = predicted(
        parallel={"pp": 2}, engine="vllm", precision={"weights": "bf16"}, model="Llama-3.1-8B",
        device="H100",
        workload={"batch": 8, "input_len": 4096, "output_len": 2},
    )  # fmt: skip
    assert any("serve --concurrency" in said for said in vllm.warnings)


def test_tensor_ranks_need_rows() -> None:
    with pytest.raises(SilicastError, match="by layers") as refused:
        predicted(parallel={"tp": 2})
    assert "split_mode = row" in refused.value.hint
    alone = predicted(options={"split_mode": "row"})
    assert any("one is stated" in said for said in alone.warnings)
    assert alone.metrics == predicted().metrics
    for option in ("cut_rows", "fused_attention"):
        with pytest.raises(SilicastError, match="has no switch for it"):
            with_options(find_engine("vllm"), {option: False})


def test_a_name_of_a_mix_says_how_files_of_others_differ(tmp_path: Path) -> None:
    """By the name alone weights take 3 % less to 7 % more; in one format, or as read, what is
    stated.
    """
    named = predicted()
    weights, memory = named.why["memory_gb"]["weights"], named["memory_gb"]
    q8 = predicted(precision={"weights": "Q8_0"})
    assert any("publishers' files" in said for said in named.warnings)
    assert not any("publishers' files" in said for said in q8.warnings)
    rough = sum(named.why["memory_gb"][part] for part in ("activations", "framework"))
    assert memory.estimate - memory.p05 == pytest.approx(0.03 * weights + 0.3 * rough)
    assert memory.p95 - memory.estimate == pytest.approx(0.07 * weights + 0.5 * rough)
    path = tmp_path / "tiny-Q4_K_M.gguf"
    path.write_bytes(gguf_bytes(FACTS, tiny_tensors()))
    read = silicast.infer(model=str(path), device="RTX 4090", engine="llama.cpp", output_len=8)
    assert not any("publishers' files" in said for said in read.predicted.warnings)
