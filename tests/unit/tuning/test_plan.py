"""Files of tuned configurations: names, content, refusals."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from silicast.core.errors import SilicastError
from silicast.tuning.files import read_tuned_file
from silicast.tuning.plan import plan_data, tune_experts, tune_products

MODEL, DEVICE = "qwen3-30b-a3b", "H20"


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_what_is_written_is_read_back(engine: str, tmp_path: Path) -> None:
    plan = tune_experts(MODEL, DEVICE, engine, tp=[1, 2], tokens=[1, 64, 4096])
    for path, one in zip(plan.write(tmp_path), plan.files, strict=True):
        entries = read_tuned_file(path)
        assert list(entries) == [1, 64, 4096]
        assert [x.configuration for x in one.entries] == list(entries.values())
        keys = json.loads(path.read_text())
        assert ("triton_version" in keys) == (engine == "vllm")
        assert set(keys["1"]) == {
            "BLOCK_SIZE_M",
            "BLOCK_SIZE_N",
            "BLOCK_SIZE_K",
            "GROUP_SIZE_M",
            "num_warps",
            "num_stages",
        }


def test_names_are_those_of_the_engines(tmp_path: Path) -> None:
    named = {
        engine: tune_experts("deepseek-v3", "h100", engine, tp=[8], tokens=[1]).files[0]
        for engine in ("vllm", "sglang")
    }
    start = "E=256,N=256,device_name=NVIDIA_H100_80GB_HBM3,dtype=fp8_w8a8,block_shape="
    assert named["vllm"].name == f"{start}[128,128].json"
    assert named["sglang"].name == f"{start}[128, 128].json"
    assert named["sglang"].folder == "configs/triton_3_5_1"
    assert all(e.configuration.number("tile_k") == 128 for e in named["vllm"].entries)


def test_an_own_file_leaves_nothing_and_a_poor_one_something(tmp_path: Path) -> None:
    (path,) = tune_experts(MODEL, DEVICE, "vllm", tp=[1], tokens=[64, 512]).write(tmp_path)
    again = tune_experts(MODEL, DEVICE, "vllm", tp=[1], tokens=[64, 512], existing=path)
    assert [each.left_pct for each in again.files[0].entries] == pytest.approx([0.0, 0.0])
    poor = {"BLOCK_SIZE_M": 128, "BLOCK_SIZE_N": 32, "BLOCK_SIZE_K": 32, "GROUP_SIZE_M": 1}
    path.write_text(json.dumps({"1": poor}))
    judged = tune_experts(MODEL, DEVICE, "vllm", tp=[1], tokens=[64], existing=path)
    (entry,) = plan_data(judged)["files"][0]["entries"]
    assert entry["existing"]["left_pct"] > 5.0


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("{", "not valid JSON"),
        ("[]", "expected a table, found a list"),
        ("{}", "holds no entries"),
        ('{"few": {}}', "expected numbers of tokens as keys"),
        ('{"1": {"BLOCK_M": 64}}', "has no BLOCK_SIZE_M"),
        ('{"1": {"BLOCK_SIZE_M": 60, "BLOCK_SIZE_N": 64, "BLOCK_SIZE_K": 64}}', "found 60"),
    ],
)
def test_a_file_of_another_format_is_refused(content: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "file.json"
    path.write_text(content)
    with pytest.raises(SilicastError, match=said) as raised:
        read_tuned_file(path)
    assert raised.value.file == str(path)


@pytest.mark.parametrize(
    ("model", "device", "engine", "tp", "field"),
    [
        ("Llama-3.1-8B", DEVICE, "vllm", 1, "model"),
        (MODEL, DEVICE, "trtllm", 1, "engine"),
        (MODEL, DEVICE, "vllm", 7, "tp"),
        (MODEL, "TPU-v5p", "vllm", 1, "device"),
    ],
)
def test_what_cannot_be_tuned_is_refused(
    model: str, device: str, engine: str, tp: int, field: str
) -> None:
    with pytest.raises(SilicastError) as raised:
        tune_experts(model, device, engine, tp=[tp], tokens=[1])
    assert raised.value.field.endswith(field)


def test_plain_products_with_scaled_blocks(tmp_path: Path) -> None:
    plan = tune_products("deepseek-v3", "h100", "sglang", tokens=[1, 512])
    assert all(one.name.startswith("N=") for one in plan.files)
    assert all(one.name.endswith("dtype=fp8_w8a8,block_shape=[128, 128].json")
               for one in plan.files)  # fmt: skip
    assert len({one.name for one in plan.files}) == len(plan.files) > 2
    assert all(e.configuration.number("tile_k") == 128 for o in plan.files for e in o.entries)
    with pytest.raises(SilicastError, match="plain products in bf16"):
        tune_products("deepseek-v3", "h100", "sglang", dtype="bf16")


def test_routing_is_said_and_can_be_stated() -> None:
    even = tune_experts(MODEL, DEVICE, "vllm", tp=[1], tokens=[64])
    skewed = tune_experts(MODEL, DEVICE, "vllm", tp=[1], tokens=[64], routing="power_law_1.2")
    assert (even.routing, skewed.routing) == ("balanced", "power_law_1.2")
    assert not even.warnings
    assert "power_law_1.2" in skewed.warnings[0]
    assert "spread of 10%" in skewed.warnings[0]
    narrow, wide = (plan.files[0].entries[0] for plan in (even, skewed))
    assert wide.p95_us / wide.estimate_us > narrow.p95_us / narrow.estimate_us > 1.0
    assert wide.p05_us / wide.estimate_us < narrow.p05_us / narrow.estimate_us < 1.0
    # fewer experts are hit, so that fewer weights are read
    assert skewed.files[0].entries[0].estimate_us < even.files[0].entries[0].estimate_us
    shares = tune_experts(MODEL, DEVICE, "vllm", tp=[1], tokens=[64], routing=[1.0] * 128)
    assert shares.files[0].entries[0].estimate_us == pytest.approx(
        even.files[0].entries[0].estimate_us, rel=1e-3
    )


@pytest.mark.parametrize(
    ("stated", "said"),
    [("wild", "unknown routing"), ([1.0, 2.0], "128 experts, found 2"), ([0.0] * 128, "not all")],
)
def test_a_routing_that_is_none_is_refused(stated: str | list[float], said: str) -> None:
    with pytest.raises(SilicastError, match=said) as refused:
        tune_experts(MODEL, DEVICE, "vllm", tp=[1], tokens=[64], routing=stated)
    assert refused.value.field == "routing"


def test_no_degree_is_refused() -> None:
    for tune in (tune_experts, tune_products):
        with pytest.raises(SilicastError, match="states no degree"):
            tune(MODEL, DEVICE, "vllm", tp=[], tokens=[64])


def test_an_existing_entry_that_cannot_run_is_named_and_not_timed(tmp_path: Path) -> None:
    names = ("BLOCK_SIZE_M", "BLOCK_SIZE_N", "BLOCK_SIZE_K", "num_stages")
    path = tmp_path / "mine.json"
    path.write_text(json.dumps({"1": dict(zip(names, (256, 256, 256, 5), strict=True))}))
    judged = tune_experts(MODEL, DEVICE, "vllm", tp=[1], tokens=[64], existing=path)
    (entry,) = judged.files[0].entries
    assert entry.existing is not None
    assert entry.existing_us is None
    assert entry.left_pct is None
    assert any("1,310,720 bytes of shared memory" in text for text in judged.warnings)


def test_the_first_of_a_ranking_are_told_in_its_order() -> None:
    """As many as were asked for, all different; what is written is the first of them."""
    experts = tune_experts(MODEL, DEVICE, "vllm", tp=[1], tokens=[64], top=10)
    products = tune_products(MODEL, DEVICE, "vllm", tokens=[64], top=10)
    for plan in (experts, products):
        (entry,) = plan.files[0].entries
        assert len({one.values for one, _ in entry.first}) == 10
        assert entry.first[0] == (entry.configuration, pytest.approx(entry.estimate_us))
        assert len(plan_data(plan)["files"][0]["entries"][0]["first"]) == 10
    (alone,) = tune_products(MODEL, DEVICE, "vllm", tokens=[64]).files[0].entries
    assert alone.configuration == products.files[0].entries[0].configuration
