"""How long a PyTorch model takes from torch.export to a prediction, and what has a model.

First a Llama-like model of 1.2 B parameters written here, forward and training; then models of
Hugging Face transformers with the sizes of their default configurations (some with fewer layers),
if that package is there. Wall and processor time of one process, torch imported before.

    python benchmarks/speed_torch_export.py [OUTPUT.json]

writes benchmarks/results/speed_torch_export.json when that is the argument; the table of
docs/explanation/front-ends.md is its list of models.
"""

from __future__ import annotations

import importlib.util
import json
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from silicast.composition.engines.engine import find_engine
from silicast.composition.passes.program import predict_program
from silicast.composition.step.machine import Machine
from silicast.core.errors import SilicastError
from silicast.hardware.catalog import find_device
from silicast.kernels.registry import implementation_for
from silicast.workload.front_ends import graph_of
from silicast.workload.graphs.graph import Graph

BUDGET_S = 10.0
DEVICE = "h100"
Made = tuple[Any, tuple[Any, ...], dict[str, Any]]


class Layer(nn.Module):  # type: ignore[misc]
    """Grouped attention and a gated feed-forward part, as Llama has them."""

    def __init__(self, width: int, inner: int, heads: int, groups: int) -> None:
        super().__init__()
        self.heads, self.groups = heads, groups
        each = width // heads
        self.q, self.o = nn.Linear(width, width, bias=False), nn.Linear(width, width, bias=False)
        self.k = nn.Linear(width, groups * each, bias=False)
        self.v = nn.Linear(width, groups * each, bias=False)
        self.gate, self.up = (nn.Linear(width, inner, bias=False) for _ in range(2))
        self.down = nn.Linear(inner, width, bias=False)
        self.norm1, self.norm2 = nn.RMSNorm(width), nn.RMSNorm(width)

    def forward(self, x: Any, cos: Any, sin: Any) -> Any:
        b, n, c = x.shape
        y = self.norm1(x)
        q = self.q(y).view(b, n, self.heads, -1).transpose(1, 2)
        k, v = (p(y).view(b, n, self.groups, -1).transpose(1, 2) for p in (self.k, self.v))
        q, k = (t * cos + self.turned(t) * sin for t in (q, k))
        a = functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        x = x + self.o(a.transpose(1, 2).reshape(b, n, c))
        y = self.norm2(x)
        return x + self.down(functional.silu(self.gate(y)) * self.up(y))

    @staticmethod
    def turned(x: Any) -> Any:
        left, right = x.chunk(2, dim=-1)
        return torch.cat((-right, left), dim=-1)


class OneBillion(nn.Module):  # type: ignore[misc]
    """Sizes of Llama-3.2-1B."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(128_256, 2048)
        self.layers = nn.ModuleList([Layer(2048, 8192, 32, 8) for _ in range(16)])
        self.norm, self.head = nn.RMSNorm(2048), nn.Linear(2048, 128_256, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, tokens: Any) -> Any:
        x = self.embed(tokens)
        positions = torch.arange(tokens.shape[1], device=tokens.device)[:, None]
        angle = positions / 500_000.0 ** (torch.arange(64, device=tokens.device) / 64)
        cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
        for layer in self.layers:
            x = layer(x, cos, sin)
        return self.head(self.norm(x))


def one_billion() -> Made:
    return OneBillion(), (torch.zeros(1, 2048, dtype=torch.int64),), {}


def published() -> dict[str, Callable[[], Made]]:
    """Models of transformers by name."""
    import transformers as t

    def ids(length: int = 128) -> Any:
        return torch.zeros(1, length, dtype=torch.int64)

    def pixels(side: int = 224) -> Any:
        return torch.zeros(1, 3, side, side)

    def text(model: Any, config: Any) -> Callable[[], Made]:
        return lambda: (model(config), (), {"input_ids": ids(), "use_cache": False})

    def image(model: Any, config: Any, side: int = 224) -> Callable[[], Made]:
        return lambda: (model(config), (pixels(side),), {})

    def both(model: Any, config: Any, **given: Any) -> Callable[[], Made]:
        words = {"decoder_input_ids": ids(32), "use_cache": False}
        return lambda: (model(config), (), {**given, **words})

    return {
        "Llama-3.2-1B (transformers)": text(
            t.LlamaForCausalLM,
            t.LlamaConfig(
                hidden_size=2048, intermediate_size=8192, num_hidden_layers=16,
                num_attention_heads=32, num_key_value_heads=8, vocab_size=128_256, head_dim=64,
                tie_word_embeddings=True,
            ),
        ),
        "GPT-2": text(t.GPT2LMHeadModel, t.GPT2Config()),
        "GPT-2, attention written out": text(
            t.GPT2LMHeadModel, t.GPT2Config(attn_implementation="eager")
        ),
        "Mistral, 2 layers": text(t.MistralForCausalLM, t.MistralConfig(num_hidden_layers=2)),
        "Qwen3, 2 layers": text(t.Qwen3ForCausalLM, t.Qwen3Config(num_hidden_layers=2)),
        "Gemma 3, 6 layers": text(t.Gemma3ForCausalLM, t.Gemma3TextConfig(num_hidden_layers=6)),
        "Phi-3, 2 layers": text(t.Phi3ForCausalLM, t.Phi3Config(num_hidden_layers=2)),
        "Mixtral, 1 layer": text(t.MixtralForCausalLM, t.MixtralConfig(num_hidden_layers=1)),
        "DeepSeek-V3, 2 layers of 8 experts": text(
            t.DeepseekV3ForCausalLM,
            t.DeepseekV3Config(num_hidden_layers=2, n_routed_experts=8, n_group=2, topk_group=1,
                               num_experts_per_tok=2),
        ),
        "Mamba-2, 2 layers": text(t.Mamba2ForCausalLM, t.Mamba2Config(num_hidden_layers=2)),
        "BERT": lambda: (t.BertModel(t.BertConfig()), (ids(),), {}),
        "ModernBERT": lambda: (t.ModernBertModel(t.ModernBertConfig()), (ids(),), {}),
        "T5": both(t.T5ForConditionalGeneration, t.T5Config(), input_ids=ids()),
        "BART, 2 layers": both(
            t.BartForConditionalGeneration, t.BartConfig(encoder_layers=2, decoder_layers=2),
            input_ids=ids(),
        ),
        "Whisper": both(
            t.WhisperForConditionalGeneration, t.WhisperConfig(),
            input_features=torch.zeros(1, 80, 3000),
        ),
        "CLIP": lambda: (
            t.CLIPModel(t.CLIPConfig()), (), {"input_ids": ids(77), "pixel_values": pixels()}
        ),
        "ViT": image(t.ViTForImageClassification, t.ViTConfig()),
        "DINOv2": image(t.Dinov2Model, t.Dinov2Config()),
        "SigLIP": image(t.SiglipVisionModel, t.SiglipVisionConfig()),
        "Swin": image(t.SwinForImageClassification, t.SwinConfig()),
        "ConvNeXt": image(t.ConvNextForImageClassification, t.ConvNextConfig()),
        "ResNet-50": image(t.ResNetForImageClassification, t.ResNetConfig()),
        "MobileNetV2": image(t.MobileNetV2ForImageClassification, t.MobileNetV2Config()),
        "EfficientNet-B7": image(t.EfficientNetForImageClassification, t.EfficientNetConfig()),
        "SegFormer": image(t.SegformerForSemanticSegmentation, t.SegformerConfig(), 512),
        "wav2vec 2.0": lambda: (
            t.Wav2Vec2Model(t.Wav2Vec2Config()), (torch.zeros(1, 16_000),), {}
        ),
        "DETR": image(
            t.DetrForObjectDetection,
            t.DetrConfig(
                use_timm_backbone=False, use_pretrained_backbone=False, backbone=None,
                backbone_config=t.ResNetConfig(out_features=["stage4"]),
            ), 512,
        ),
    }  # fmt: skip


def timed(make: Callable[[], Made], *, training: bool) -> dict[str, Any]:
    """One model to its prediction, with seconds and what has a model."""
    with torch.device("meta"):
        module, args, kwargs = make()
    start, worked = time.perf_counter(), time.process_time()
    try:
        graph = graph_of(module, args, kwargs, training=training, dtype="bf16")
    except SilicastError as error:
        return {"refused": error.message.partition(".")[0]}
    traced = time.perf_counter()
    program = predict_program(Machine(find_device(DEVICE), find_engine("torch-eager")), graph)
    done = time.perf_counter()
    return {
        "parameters": sum(p.numel() for p in module.parameters()),
        "export_s": round(traced - start, 2),
        "prediction_s": round(done - traced, 2),
        "total_s": round(done - start, 2),
        "total_cpu_s": round(time.process_time() - worked, 2),
        "e2e_ms": round(program.total.seconds * 1e3, 3),
        **modelled(graph),
    }


def modelled(graph: Graph) -> dict[str, Any]:
    """Shares of nodes and of bytes, in per cent, that have a model; what has none."""
    nodes = unknown = 0
    moved = strange = 0
    names: Counter[str] = Counter()
    for _, node in graph.nodes():
        model = implementation_for(node.op.family, "simt")
        assert model is not None
        size = model.compulsory_bytes(node.op)
        nodes, moved = nodes + 1, moved + size
        if node.op.variant.flag("unmodelled"):
            unknown, strange = unknown + 1, strange + size
            names[node.source] += 1
    return {
        "nodes": nodes, "nodes_with_model_pct": round(100 - 100 * unknown / nodes, 2),
        "bytes_with_model_pct": round(100 - 100 * strange / moved, 2), "without_model": dict(names),
    }  # fmt: skip


def rows() -> Iterator[tuple[str, dict[str, Any]]]:
    models = {"Llama-like, 1.2 B parameters": one_billion}
    if importlib.util.find_spec("transformers"):
        models |= published()
    for name, make in models.items():
        for training in (False, True):
            yield (
                f"{name}, {'training' if training else 'inference'}",
                timed(make, training=training),
            )


def main() -> None:
    results: dict[str, Any] = {"torch": torch.__version__, "budget_s": BUDGET_S, "device": DEVICE}
    results["models"] = models = {}
    for name, row in rows():
        models[name] = row
        print(f"{name:55} {json.dumps(row)}", flush=True)
    if len(sys.argv) > 1:
        Path(sys.argv[1]).write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
