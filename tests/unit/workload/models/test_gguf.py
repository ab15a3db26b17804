"""Models from GGUF files: sizes and bytes counted by hand, and damaged files refused."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

import silicast
from silicast.core.errors import SilicastError
from silicast.formats.gguf import read_gguf
from silicast.workload.models.counting import parameters, weight_bytes
from silicast.workload.models.lookup import find_model
from silicast.workload.transformers.plan import Plan
from tests.gguf_file import F32, FACTS, HIDDEN, LAYERS, Q4_K, SHAPES, gguf_bytes, tiny_tensors
from tests.sampling import examples

BYTES_OF = {Q4_K: 144 / 256, 14: 210 / 256}
WHOLE = gguf_bytes(FACTS, tiny_tensors())


def written(folder: Path, content: bytes, name: str = "tiny.gguf") -> str:
    path = folder / name
    path.write_bytes(content)
    return str(path)


def test_sizes_and_formats_are_those_of_the_file(tmp_path: Path) -> None:
    model = find_model(written(tmp_path, WHOLE))
    assert (model.name, model.layers, model.hidden, model.heads) == ("Tiny", LAYERS, HIDDEN, 8)
    assert (model.kv_heads, model.head_dim, model.vocab, model.tied) == (2, 64, 1000, True)
    assert model.default_precision.recipe == "q4_k"
    assert model.default_precision.embedding == "q6_k"
    assert dict(model.formats[0]) == {}
    assert dict(model.formats[1])["v"] == "q6_k"


def test_weights_take_the_bytes_of_the_files_tensors(tmp_path: Path) -> None:
    """Norms, which the file keeps in 32 bits, are counted in 16."""
    model = find_model(written(tmp_path, WHOLE))
    by_hand = 0.0
    for shape, kind in tiny_tensors().values():
        by_hand += math.prod(shape) * (2.0 if kind == F32 else BYTES_OF[kind])
    assert weight_bytes(model, Plan(), model.default_precision) == pytest.approx(by_hand, rel=1e-6)


def test_a_file_is_predicted_as_it_is(tmp_path: Path) -> None:
    """The last layer's values have 2 bits and 1/16 a weight more: 128 x 512 of them."""
    path = written(tmp_path, WHOLE)
    spec: dict[str, Any] = {"format": 1, "task": "inference", "device": "RTX 4090"}
    spec["workload"] = {"batch": 1, "input_len": 8, "output_len": 8}
    answer = silicast.predict({**spec, "model": path, "engine": "llama.cpp"})
    plain = {**tiny_tensors(), f"blk.{LAYERS - 1}.attn_v.weight": (SHAPES["attn_v"], Q4_K)}
    other = silicast.predict(
        {
            **spec,
            "model": written(tmp_path, gguf_bytes(FACTS, plain), "plain.gguf"),
            "engine": "llama.cpp",
        }
    )
    more = answer.why["memory_gb"]["weights"] - other.why["memory_gb"]["weights"]
    assert more * 1e9 == pytest.approx(128 * 512 * (210 - 144) / 256, abs=1.0)


def test_a_model_cut_into_files_has_the_tensors_of_all(tmp_path: Path) -> None:
    tensors = list(tiny_tensors().items())
    facts = {**FACTS, "split.count": 2}
    for number, some in ((1, tensors[:5]), (2, tensors[5:])):
        written(tmp_path, gguf_bytes(facts, dict(some)), f"tiny-0000{number}-of-00002.gguf")
    cut = read_gguf(tmp_path / "tiny-00002-of-00002.gguf")
    assert cut.tensors == read_gguf(Path(written(tmp_path, WHOLE))).tensors
    (tmp_path / "tiny-00001-of-00002.gguf").unlink()
    with pytest.raises(SilicastError, match="tiny-00001-of-00002"):
        find_model(str(tmp_path / "tiny-00002-of-00002.gguf"))


@pytest.mark.parametrize(
    ("facts", "tensors", "field", "words"),
    [
        ({"general.architecture": "mamba"}, {}, "general.architecture", "mamba"),
        ({"qwen3.embedding_length": "x"}, {}, "hidden_size", ""),
        ({"qwen3.feed_forward_length": [1024, 512]}, {}, "feed_forward_length", "between layers"),
        ({}, {"blk.0.ffn_up.weight": ((HIDDEN, 1024), 99)}, "blk.0.ffn_up", "type 99"),
    ],
)
def test_what_is_not_known_is_named(
    tmp_path: Path, facts: dict[str, Any], tensors: dict[str, Any], field: str, words: str
) -> None:
    path = written(tmp_path, gguf_bytes({**FACTS, **facts}, {**tiny_tensors(), **tensors}))
    with pytest.raises(SilicastError) as caught:
        find_model(path)
    assert caught.value.file == path
    assert field in caught.value.field
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "does not begin"),
        (b"PK\x03\x04" + WHOLE, "does not begin"),
        (gguf_bytes(FACTS, tiny_tensors(), version=1), "version 1"),
        (gguf_bytes(FACTS, tiny_tensors(), version=3 << 24), "big-endian"),
        (WHOLE[:8] + b"\xff" * 8 + WHOLE[16:], "tensors"),
        (WHOLE[:24] + b"\xff" * 8 + WHOLE[32:], "MiB"),
    ],
)
def test_damaged_files_are_refused(tmp_path: Path, content: bytes, words: str) -> None:
    with pytest.raises(SilicastError, match=words):
        find_model(written(tmp_path, content))


@examples(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(end=st.integers(0, len(WHOLE) - 1))
def test_every_file_that_is_cut_off_is_refused(tmp_path: Path, end: int) -> None:
    with pytest.raises(SilicastError):
        read_gguf(Path(written(tmp_path, WHOLE[:end])))


@pytest.mark.parametrize(("engine", "device"), [("vllm", "RTX 4090"), ("mlx", "M2 Ultra")])
def test_an_engine_that_runs_no_such_file_says_so(tmp_path: Path, engine: str, device: str) -> None:
    with pytest.raises(SilicastError, match=r"engine llama\.cpp runs such files"):
        silicast.predict(
            {
                "format": 1,
                "task": "inference",
                "device": device,
                "model": written(tmp_path, WHOLE),
                "engine": engine,
                "workload": {"batch": 1, "input_len": 8, "output_len": 8},
            }
        )


def test_tensors_that_contradict_the_head_are_named(tmp_path: Path) -> None:
    whole = find_model(written(tmp_path, WHOLE))
    assert whole.assumed == ()
    head = {**FACTS, "qwen3.feed_forward_length": 4 * int(FACTS["qwen3.feed_forward_length"])}
    other = find_model(written(tmp_path, gguf_bytes(head, tiny_tensors()), "other.gguf"))
    (doubt,) = other.assumed
    assert f"its head describes {parameters(other):,}" in doubt


def test_a_file_cut_off_within_its_weights_is_refused(tmp_path: Path) -> None:
    """A head alone is enough, and some of the weights are a broken download."""
    weights = round(
        sum(math.prod(s) * {**BYTES_OF, F32: 4.0}[k] for s, k in tiny_tensors().values())
    )
    assert find_model(written(tmp_path, WHOLE + bytes(weights), "a.gguf")).layers == LAYERS
    with pytest.raises(
        SilicastError, match=f"holds {weights - 1:,} bytes of weights, of {weights:,}"
    ):
        find_model(written(tmp_path, WHOLE + bytes(weights - 1), "b.gguf"))


def test_formats_that_a_back_end_cannot_multiply_are_refused() -> None:
    spec: dict[str, Any] = {"format": 1, "task": "inference", "model": "Llama-3.1-8B"}
    spec |= {"engine": "llama.cpp", "precision": {"weights": "TQ1_0"}}
    spec["workload"] = {"batch": 1, "input_len": 8, "output_len": 8}
    answer = silicast.predict({**spec, "device": "Core i7-13700K"})
    assert answer.metrics["decode_step_ms"].estimate > 0
    for device in ("RTX 4090", "M4", "RX 7900 XTX", "Arc B580"):
        with pytest.raises(SilicastError, match="no kernels for weights in tq1_0") as caught:
            silicast.predict({**spec, "device": device})
        assert caught.value.field == "precision.weights"


@pytest.mark.parametrize(
    ("name", "hint"), [("UD-Q4_K_XL", "--model FILE.gguf"), ("Q9_K", "Q6_K"), ("IQ4_KS", "IQ4_XS")]
)
def test_unknown_formats_of_files_are_named_with_the_nearest(name: str, hint: str) -> None:
    spec: dict[str, Any] = {"format": 1, "task": "inference", "model": "Llama-3.1-8B"}
    spec |= {"device": "RTX 4090", "engine": "llama.cpp", "precision": {"weights": name}}
    spec["workload"] = {"batch": 1, "input_len": 8, "output_len": 8}
    with pytest.raises(SilicastError, match=f"no weight format '{name}'") as caught:
        silicast.predict(spec)
    assert hint in caught.value.hint


def test_llama_cpp_splits_models_by_layers_alone() -> None:
    spec: dict[str, Any] = {"format": 1, "task": "inference", "model": "Llama-3.1-70B"}
    spec |= {"device": "RTX 4090", "engine": "llama.cpp", "precision": {"weights": "Q4_K_M"}}
    spec["workload"] = {"batch": 1, "input_len": 64, "output_len": 8}
    with pytest.raises(SilicastError, match="by layers") as caught:
        silicast.predict({**spec, "parallel": {"tp": 2}})
    assert caught.value.field == "parallel.tp"
    assert caught.value.hint == "state pp = 2, or engine.options.split_mode = row"
    alone = silicast.predict(spec)
    assert any("or pp = 2" in each for each in alone.warnings)
    split = silicast.predict({**spec, "parallel": {"pp": 2}})
    assert not any("does not fit" in each for each in split.warnings)
    step = [each.metrics["decode_step_ms"].estimate for each in (alone, split)]
    assert step[0] < step[1] < 1.05 * step[0]  # one after the other, with a transfer between
