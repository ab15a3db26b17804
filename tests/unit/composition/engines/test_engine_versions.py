"""Engines as earlier versions of them were."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from silicast.composition.engines.engine import default_engine, engine_index, find_engine
from silicast.composition.engines.engine_options import OPTIONS, with_options
from silicast.composition.engines.engine_versions import as_of, check_release, lacking, otherwise
from silicast.composition.passes.deployment import Deployment, board_of, captured_sizes
from silicast.composition.step.machine import Machine
from silicast.composition.step.step import StepModel
from silicast.core.errors import SilicastError
from silicast.core.releases import release_of
from silicast.hardware.catalog import find_device
from silicast.workload.models.lookup import find_model
from silicast.workload.transformers.plan import Plan


@pytest.mark.parametrize(
    ("version", "name", "asynchronous", "fused"),
    [
        ("", "vllm", True, True),
        ("0.19.1", "vllm", True, True),
        ("0.17", "vllm", True, True),
        ("0.16.9", "vllm", True, False),
        ("v0.15.1", "vllm", True, False),
        ("0.13.0rc1", "vllm", False, False),
        ("0.8.0", "vllm", False, False),
        ("0.7.3", "vllm-v0", False, False),
        ("nightly", "vllm", True, True),
    ],
)
def test_versions_of_vllm(version: str, name: str, asynchronous: bool, fused: bool) -> None:
    result = as_of(find_engine("vllm"), version)
    assert result.name == name
    assert result.host.asynchronous == asynchronous
    assert bool(result.fusion.all_reduce_mb) == fused


def test_what_a_version_lacks_is_named() -> None:
    assert lacking(find_engine("vllm"), "0.15") == ("fused_all_reduce",)
    assert lacking(find_engine("vllm"), "0.10.1")[-1] == "nvls"
    assert lacking(find_engine("sglang"), "0.5.7") == ("fused_all_reduce",)
    assert lacking(find_engine("sglang"), "0.5.8") == lacking(find_engine("sglang"), "") == ()


@pytest.mark.parametrize(
    ("version", "collectives", "decode"),
    [("0.2.0", "nccl", "stream"), ("0.2.7", "nccl", "graph"), ("0.3.0", "vllm", "graph")],
)
def test_first_versions_of_vllm(version: str, collectives: str, decode: str) -> None:
    result = as_of(find_engine("vllm"), version)
    assert (result.collectives, result.launch.decode) == (collectives, decode)


@pytest.mark.parametrize(
    ("version", "library"),
    [
        *((version, "vllm_paged") for version in ("0.2.7", "0.3.3", "0.4.2")),
        ("0.4.3", "fa2"),
        ("0.6.6", "fa2"),
    ],
)
def test_vllm_decodes_with_paged_attention_of_its_own_before_flash_attention(
    version: str, library: str
) -> None:
    kernels = as_of(find_engine("vllm"), version).kernels
    for maker, architecture, decodes in (
        ("NVIDIA", "hopper", library),
        ("AMD", "cdna3", library),
        ("Google", "tpu-v5e", "fa2"),
        ("cpu", "", "fa2"),
    ):
        assert kernels.library("attention_decode", architecture, maker=maker) == decodes
        assert kernels.library("attention_prefill", architecture, maker=maker) == "fa2"


def test_a_release_that_nothing_was_measured_of_is_less_certain() -> None:
    vllm = find_engine("vllm")
    for version, known in (("0.2.0", False), ("0.3.9", False), ("0.14.0", True), ("", True)):
        assert (as_of(vllm, version).release_log_sd("ada") == 0.0) == known, version
    old = as_of(vllm, "0.2.0")
    assert old.name == "vllm-0.2"
    assert old.release_log_sd("ada") == vllm.unmeasured[0].log_sd
    later = as_of(vllm, "0.9.1").release_log_sd("ada")
    assert 0 < later < old.release_log_sd("hopper") < old.release_log_sd("ada")


def test_kernels_of_releases_before_0_4_alone_are_taken_as_slower() -> None:
    """1.18 on A100 and 1.38 on H100; their root mean square is 0.26, and about their mean, which
    the factors hold, 0.08 is left, beside the 0.13 of all releases before 0.14.
    """
    vllm = find_engine("vllm")
    releases = ("0.2.7", "0.3.3", "0.4", "0.5.5", "0.6", "")
    seen = [as_of(vllm, version).taken_as.factor("hopper") for version in releases]
    assert seen == [1.38, 1.38, 1.0, 1.0, 1.0, 1.0]
    old = as_of(vllm, "0.3.3")
    assert (
        old.taken_as.factor("ampere"),
        old.taken_as.factor("ada"),
        old.taken_as.factor("cdna3"),
    ) == (1.18, 1.0, 1.0)
    logs = np.log([1.18, 1.38])
    assert old.release_log_sd("cdna3") == pytest.approx(np.sqrt(np.mean(logs**2)), abs=0.005)
    left = np.hypot(np.std(logs), as_of(vllm, "0.9").release_log_sd("hopper"))
    assert old.release_log_sd("hopper") == pytest.approx(left, abs=0.005)


def test_releases_of_vllm_have_their_own_graphs_streams_and_routing() -> None:
    vllm = find_engine("vllm")
    seen = [
        (engine.launch.decode, bool(engine.overlap), engine.experts.one_kernel)
        for engine in (as_of(vllm, version) for version in ("0.9.2", "0.10.2", "0.11.0", "0.12"))
    ]
    assert seen == [
        ("piecewise", False, False),
        ("piecewise", False, True),
        ("graph", False, True),
        ("graph", True, True),
    ]
    assert otherwise(vllm, "0.11") == (
        "no second stream",
        "other sizes of batches are captured as graphs",
    )
    assert otherwise(vllm, "0.12") == ()


def test_every_engine_names_known_options_and_predecessors() -> None:
    for name in engine_index().names:
        engine = find_engine(name)
        assert set(engine.since) <= set(OPTIONS), name
        for options in (*engine.before.values(), *engine.from_.values()):
            stated = {key for key, value in options.items() if not isinstance(value, dict)}
            assert stated <= set(OPTIONS) | set(engine.switches), name
        for bounds, newest_first in ((engine.before, True), (engine.from_, False)):
            releases = [release_of(bound) or (0, 0, 0, 0.0) for bound in bounds]
            assert releases == sorted(releases, reverse=newest_first), name
        for version, earlier in engine.earlier.items():
            assert release_of(version), name
            assert earlier in engine_index().names, name


@pytest.mark.parametrize(
    ("version", "share", "padded", "a100", "b200_tokens", "b200_graph", "b200_attention"),
    [
        ("0.8.5", 0.9, 264, 1024, 8192, 512, "fa2"),
        ("0.9.2", 0.9, 264, 0, 8192, 512, "trtllm"),
        ("0.11.0", 0.9, 264, 0, 8192, 512, "trtllm"),
        ("0.12.0", 0.9, 272, 0, 8192, 512, "trtllm"),
        ("", 0.9, 272, 0, 8192, 512, "trtllm"),
        ("0.20.0", 0.92, 272, 0, 8192, 512, "trtllm"),
        ("0.33.0", 0.92, 272, 0, 16384, 1024, "trtllm"),
    ],
)
def test_defaults_of_vllm_are_those_of_its_release(
    version: str,
    share: float,
    padded: int,
    a100: int,
    b200_tokens: int,
    b200_graph: int,
    b200_attention: str,
) -> None:
    """As its packages have them (config, engine/arg_utils.py, platforms/cuda.py)."""
    engine, b200 = as_of(find_engine("vllm"), version), find_device("B200")
    assert engine.serving is not None
    assert engine.memory.usable_fraction == share
    assert min(s for s in captured_sizes(engine, find_device("H100"), 1) if s >= 260) == padded
    assert board_of(engine.serving, find_device("A100")).max_sequences == a100
    assert board_of(engine.serving, b200).step_tokens == b200_tokens
    assert captured_sizes(engine, b200, 1)[-1] == b200_graph
    assert captured_sizes(engine, find_device("H100"), 1)[-1] == 512
    assert engine.kernels.library("attention_decode", "blackwell") == b200_attention
    assert engine.kernels.library("attention_decode", "hopper") == "fa3"


@pytest.mark.parametrize(
    ("version", "board", "tp", "most"),
    [
        ("0.4.7", "RTX 4090", 1, 8),
        ("0.4.7", "H100", 1, 160),
        ("0.4.7", "H200", 8, 256),
        ("0.5.9", "RTX 4090", 2, 24),
        ("0.5.9", "RTX 4090", 4, 80),
        ("0.5.23", "RTX 4090", 2, 48),
        ("", "RTX 4090", 4, 160),
        ("", "L40S", 1, 32),
        ("", "H100", 2, 256),
        ("", "H100", 4, 512),
        ("", "B200", 1, 512),
    ],
)
def test_sglang_captures_graphs_by_board_degree_and_release(
    version: str, board: str, tp: int, most: int
) -> None:
    """As server_args.py of its packages has it."""
    engine = as_of(find_engine("sglang"), version)
    assert captured_sizes(engine, find_device(board), tp)[-1] == most


def test_tables_of_a_release_change_what_they_state_alone() -> None:
    plain = msgspec.structs.replace(
        find_engine("vllm"), since={}, earlier={}, unmeasured=[], from_={}, before={}
    )
    tables = {
        "0.9": {"launch": {"decode": "stream"}, "host": {"step_us": 1.0}},
        "0.8": {"host": {"step_us": 2.0}},
    }
    engine = msgspec.structs.replace(plain, before=tables)
    for version, decode, step_us in (("0.7", "stream", 2.0), ("0.8", "stream", 1.0)):
        result = as_of(engine, version)
        assert (result.launch.decode, result.host.step_us) == (decode, step_us)
        assert result.launch.graph_batch_sizes == plain.launch.graph_batch_sizes
        host = msgspec.structs.replace(result.host, step_us=plain.host.step_us)
        assert host == plain.host
        assert result.kernels == plain.kernels
    assert as_of(engine, "0.9").host == plain.host


def test_a_table_of_a_release_with_a_wrong_field_is_refused_where_it_is_asked_for() -> None:
    vllm = find_engine("vllm")
    wrong = msgspec.structs.replace(vllm, before={"0.9": {"launch": {"graph_batch_size": [1]}}})
    assert as_of(wrong, "0.9") is not None
    with pytest.raises(SilicastError, match=r"launch\.graph_batch_size") as caught:
        as_of(wrong, "0.8.5")
    assert "graph_batch_sizes" in caught.value.hint


def test_the_largest_captured_graph_can_be_stated() -> None:
    sglang, board = find_engine("sglang"), find_device("RTX 4090")
    for name, most in (("cuda_graph_max_bs", 100), ("max_cudagraph_capture_size", 600)):
        engine = with_options(sglang, {name: most})
        sizes = captured_sizes(engine, board, 1)
        assert sizes[-1] == most
        assert list(sizes) == sorted(set(sizes))
    with pytest.raises(SilicastError, match=r"cuda_graph_max_bs"):
        with_options(sglang, {"cuda_graph_max_bs": 0})


@pytest.mark.parametrize("engine", ["fsdp", "maxtext"])
def test_rotations_are_left_apart_only_in_layers_of_a_library(engine: str) -> None:
    assert not with_options(find_engine("megatron"), {"fused_rope": False}).training.fused_rope
    with pytest.raises(SilicastError, match="layers are those of the model's code"):
        with_options(find_engine(engine), {"fused_rope": False})


def test_without_custom_all_reduce_sums_are_the_usual_library_s() -> None:
    engine = with_options(find_engine("vllm"), {"custom_all_reduce": False})
    assert (engine.collectives, engine.fusion.all_reduce_mb) == ("nccl", {})
    assert with_options(find_engine("vllm"), {"custom_all_reduce": True}) == find_engine("vllm")


def test_every_task_that_runs_an_engine_has_a_default_one() -> None:
    for task in ("inference", "serving", "graph", "training", "capacity", "plan"):
        assert default_engine(task), task
        named = [x for x in engine_index().names if task in find_engine(x).default_for]
        assert len(named) == 1, task
    assert default_engine("kernel") == ""


@pytest.mark.parametrize(("model", "more"), [("DeepSeek-V3", 26), ("Mixtral-8x7B", 0)])
def test_releases_without_a_routing_kernel_choose_grouped_experts_by_small_ones(
    model: str, more: int
) -> None:
    config, board = find_model(model), find_device("H100")

    def nodes(version: str) -> list[str]:
        machine = Machine(board, as_of(find_engine("vllm"), version))
        deployment = Deployment(machine, config, Plan(tp=8), config.default_precision)
        graph = StepModel.from_deployment(deployment).graph.graph
        block = max(graph.blocks, key=lambda block: len(block.layers))
        inputs = {node.name: node.inputs for node in block.nodes}
        assert ("router_softmax" in inputs["experts"]) == (version == "0.12" or not more)
        return [node.name for node in block.nodes]

    assert len(nodes("0.10.1")) - len(nodes("0.12")) == more


def test_a_release_before_fused_latents_makes_them_with_two_products_of_the_same_weights() -> None:
    config, board = find_model("DeepSeek-V3"), find_device("H100")

    def columns(version: str) -> dict[str, object]:
        machine = Machine(board, as_of(find_engine("vllm"), version))
        deployment = Deployment(machine, config, Plan(tp=8), config.default_precision)
        graph = StepModel.from_deployment(deployment).graph.graph
        block = max(graph.blocks, key=lambda block: len(block.layers))
        inputs = {node.name: node.inputs for node in block.nodes}
        assert inputs["q_a_norm"] == (("kv_a",) if version == "0.9.1" else ("qkv_a",))
        nodes = [node for node in block.nodes if node.name in ("qkv_a", "kv_a")]
        return {node.name: dict(node.op.dims)["n"] for node in nodes}

    assert columns("0.9.1") == {"qkv_a": 1056, "kv_a": 1056}
    assert columns("0.10.0") == {"qkv_a": 1536 + 512 + 64}


def test_a_release_takes_the_kernels_that_its_own_switch_chose_by_default() -> None:
    vllm = find_engine("vllm")
    kernels = {version: as_of(vllm, version).kernels for version in ("0.10.2", "0.11.0")}
    chosen = {v: k.kernel("gemm", "hopper", "fp8_block") for v, k in kernels.items()}
    assert chosen == {"0.10.2": "CutlassFp8BlockScaledMMKernel", "0.11.0": ""}
    assert kernels["0.10.2"].kernel("gemm", "hopper", "bf16") == ""
    assert all(each.holds("gemm", "quantize") for each in kernels.values())


@pytest.mark.parametrize("version", ["banana", "-1", "vllm"])
def test_what_is_no_release_is_refused_with_those_that_are_known(version: str) -> None:
    with pytest.raises(SilicastError) as caught:
        check_release(find_engine("vllm"), version)
    assert caught.value.field == "engine.version"
    assert "0.2 to 0.33" in str(caught.value.hint)


@pytest.mark.parametrize("version", ["latest", "nightly-20251201", "main", "c1d2e3f4a5"])
def test_builds_without_a_number_take_the_defaults_and_say_so(version: str) -> None:
    (remark,) = check_release(find_engine("vllm"), version)
    assert version in remark
    assert "defaults of 0.19 are taken" in remark


def test_releases_beyond_the_latest_known_one_are_remarked() -> None:
    vllm = find_engine("vllm")
    for version in ("0.33.9", "v0.19.0", "0.15.1rc2", "0.1.dev19262", "0.2.7"):
        assert check_release(vllm, version) == [], version
    for version in ("19", "0.34.0", "v1.0"):
        (remark,) = check_release(vllm, version)
        assert "0.33 is the latest known release" in remark
        assert as_of(vllm, version).memory == as_of(vllm, "0.33").memory
    for name in ("llama.cpp", "fsdp", "trtllm"):
        assert check_release(find_engine(name), find_engine(name).version) == []


def test_every_release_says_in_words_what_it_does_otherwise() -> None:
    for name in ("vllm", "sglang"):
        engine = find_engine(name)
        for bound in (*engine.before, *engine.from_, "0.1", engine.releases[-1]):
            for words in otherwise(engine, bound):
                assert "." not in words.replace("0.", ""), words


def test_an_engine_carries_the_release_that_was_stated() -> None:
    vllm = find_engine("vllm")
    assert [as_of(vllm, v).release for v in ("", "v0.13.0", "0.7.3")] == ["", "0.13.0", "0.7.3"]


@pytest.mark.parametrize(
    ("engine", "name"),
    [
        ("vllm", "cudagraph_capture_sizes"),
        ("vllm", "compilation_config.cudagraph_capture_sizes"),
        ("sglang", "cuda_graph_bs"),
        ("trtllm", "cuda_graph_config.batch_sizes"),
    ],
)
def test_captured_sizes_may_be_listed_on_any_board(engine: str, name: str) -> None:
    stated = with_options(find_engine(engine), {name: [64, 1, 8, 8]})
    for board in ("RTX 4090", "B200"):
        assert captured_sizes(stated, find_device(board), 1) == (1, 8, 64)
    for wrong in ([], 8, ["many"], [0]):
        with pytest.raises(SilicastError, match="cudagraph_capture_sizes"):
            with_options(find_engine(engine), {name: wrong})
