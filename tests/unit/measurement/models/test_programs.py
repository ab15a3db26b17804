"""Models that are measured compute what they are named after, and trace to what they run."""

from __future__ import annotations

from dataclasses import replace

import pytest

torch = pytest.importorskip("torch", reason="measuring models needs torch (extra `torch`)")

from silicast.kernels.registry import implementation_for  # noqa: E402
from silicast.measurement.models.model_case import LARGE, SMALL, ModelCase, Place, model_cases  # noqa: E402
from silicast.workload.front_ends import graph_of  # noqa: E402
from silicast.workload.graphs.graph import Graph  # noqa: E402

CPU, META = Place("cpu", "fp32"), Place("meta", "fp32")
TINY = {
    "decoder-decode-b1": {"hidden": 32, "layers": 2, "heads": 4, "kv_heads": 2,
                          "intermediate": 64, "vocab": 50, "batch": 2, "new": 1, "past": 5},
    "decoder-prefill-b1": {"hidden": 32, "layers": 2, "heads": 4, "kv_heads": 2,
                           "intermediate": 64, "vocab": 50, "batch": 2, "new": 6, "past": 0},
    "vit-s16-b1": {"width": 48, "depth": 2, "heads": 3, "batch": 2},
    "mixture-t16": {"hidden": 16, "intermediate": 24, "experts": 4, "topk": 2, "tokens": 10},
}  # fmt: skip


def tiny(name: str) -> ModelCase:
    return replace(model_cases()[name], sizes=TINY[name])


def graph(case: ModelCase, position: Place = META) -> Graph:
    program = case.program(position)
    return graph_of(program.traced or program.module, program.args)


def test_every_model_has_cases_for_a_cpu_and_for_a_gpu() -> None:
    result = model_cases()
    for scale in (SMALL, LARGE):
        models = {name.partition("-")[0] for name, case in result.items() if case.scale == scale}
        assert models == {"decoder", "vit", "resnet50", "mixture"}


@pytest.mark.parametrize(
    ("name", "millions"),
    [("decoder-8b-decode-b1", 8030.3), ("decoder-decode-b1", 124.669), ("resnet50-b1", 25.557),
     ("vit-b16-b8", 86.568), ("vit-s16-b1", 22.051)],
)  # fmt: skip
def test_sizes_are_the_published_ones(name: str, millions: float) -> None:
    """Llama-3.1-8B, ResNet-50 and ViT-B/16 as published, ViT-S/16 as timm counts it; and ours."""
    module = model_cases()[name].program(META).module
    count = sum(each.numel() for each in module.parameters())
    assert count / 1e6 == pytest.approx(millions, rel=1e-4)


def test_decoding_with_the_cache_gives_what_a_prefill_of_all_tokens_gives() -> None:
    whole, last = tiny("decoder-prefill-b1").program(CPU), tiny("decoder-decode-b1").program(CPU)
    last.module.load_state_dict(whole.module.state_dict())
    tokens = torch.randint(50, (2, 6))
    _, cos, sin, caches = whole.args
    with torch.no_grad():
        expected = whole.module(tokens, cos, sin, caches)
        cut = caches.clone()
        cut[:, :, :, :, 5:] = 0.0
        module = last.module(tokens[:, 5:], *last.args[1:3], cut)
    torch.testing.assert_close(module, expected)
    torch.testing.assert_close(cut, caches)


def test_a_decoder_does_not_look_ahead() -> None:
    program = tiny("decoder-prefill-b1").program(CPU)
    tokens, *remaining = program.args
    with torch.no_grad():
        first = program.module.layers[0](
            program.module.embed(tokens), *remaining[:2], remaining[2][0].clone(), 0
        )
        tokens = tokens.clone()
        tokens[:, -1] = 7
        other = program.module.layers[0](
            program.module.embed(tokens), *remaining[:2], remaining[2][0].clone(), 0
        )
    torch.testing.assert_close(first[:, :-1], other[:, :-1])
    assert not torch.allclose(first[:, -1], other[:, -1])


def test_a_mixture_is_the_weighted_sum_of_each_tokens_experts() -> None:
    program = tiny("mixture-t16").program(CPU)
    model, (x,) = program.module, program.args
    with torch.no_grad():
        y = model.norm(x)
        weights, chosen = torch.topk(torch.softmax(model.router(y), -1), 2, -1)
        weights = weights / weights.sum(-1, keepdim=True)
        expected = x.clone()
        for token in range(len(x)):
            for weight, expert in zip(weights[token], chosen[token].tolist(), strict=True):
                expected[token] += weight * model.experts[expert](y[token : token + 1])[0]
        torch.testing.assert_close(model(x), expected)


@pytest.mark.parametrize("name", [*TINY])
def test_the_trace_has_a_model_for_every_operation_on_every_kind_of_device(name: str) -> None:
    nodes = [node for _, node in graph(tiny(name)).nodes()]
    assert nodes
    for node in nodes:
        assert not node.op.variant.flag("unmodelled"), node.source
        for execution_model in ("simt", "vector_cpu"):
            model = implementation_for(node.op.family, execution_model)
            assert model is not None
            assert {name for name, _ in node.op.dims} <= {*model.dims} | {"residual"}, node.op


def test_views_and_modules_are_no_operations() -> None:
    """26 operations a layer of the decoder, one each for embedding, last norm and head."""
    nodes = [node for _, node in graph(tiny("decoder-decode-b1")).nodes()]
    assert len(nodes) == 2 * 26 + 3
    assert not [n for n in nodes if n.source.split(".")[1] in ("view", "transpose", "slice", "t")]


def test_the_cache_is_written_in_place() -> None:
    nodes = [node for _, node in graph(tiny("decoder-decode-b1")).nodes()]
    copies = [node for node in nodes if node.source == "aten.copy_.default"]
    assert len(copies) == 4
    assert all(node.output_bytes == 0 for node in copies)
    (heads, positions, width), batch = (2, 1, 8), 2
    assert {node.op.dim("elements") for node in copies} == {batch * heads * positions * width}
    read = [node.op.dim("kv_len") for node in nodes if node.op.family == "attention_decode"]
    assert read == [5, 5]


def test_a_traced_mixture_shares_its_tokens_evenly_and_runs_what_the_model_runs() -> None:
    case = tiny("mixture-t16")
    nodes = [node for _, node in graph(case).nodes()]
    products = [dict(n.op.dims) for n in nodes if n.op.family == "gemm"]
    rows = [int(str(dims["m"])) for dims in products if dims["n"] == 24]
    assert sum(rows) == 2 * 10 * 2
    assert max(rows) - min(rows) <= 1


@pytest.mark.full
@pytest.mark.parametrize("name", ["resnet50-b1", "decoder-8b-decode-b1", "mixture-8x7b-t16"])
def test_cases_as_they_are_measured_trace_without_memory(name: str) -> None:
    result = graph(model_cases()[name], Place("meta", "bf16"))
    assert not [n for _, n in result.nodes() if n.op.variant.flag("unmodelled")]


def test_a_format_without_a_name_in_torch_is_refused() -> None:
    from silicast.core.errors import SilicastError

    with pytest.raises(SilicastError, match="fp4") as caught:
        model_cases()["vit-s16-b1"].program(Place("meta", "fp4"))
    assert caught.value.field == "dtype"
