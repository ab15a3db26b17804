"""The gallery of the documentation: ten programs, eager beside compiled, on one device.

Each program is made without weights, traced, and predicted; the page and its drawings hold nothing
that a prediction did not say. Needs PyTorch, timm, transformers, diffusers and matplotlib:

    python -m lab.gallery [NAME ...]
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, final

import numpy as np

from silicast.composition.memory.activation_memory import alive_bytes
from silicast.composition.passes.program import GB, ProgramPass
from silicast.report.drawing.numbers import duration, percent, rounded
from silicast.report.drawing.plot_file import figure_class, save_plot
from silicast.report.reasons.why import bound_words, time_by_cause
from silicast.scenario.answer import Answer
from silicast.scenario.answers.graph.answerer import pass_of
from silicast.scenario.decode import decode
from silicast.scenario.run import run
from silicast.workload.front_ends import graph_of
from silicast.workload.front_ends.packages import packaged_graph, without_data
from silicast.workload.graphs.graph import Graph
from silicast.workload.graphs.op_graph import write_op_graph

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "explanation" / "gallery.md"
DRAWINGS = ROOT / "docs" / "_static" / "gallery"
DEVICE = "h100"
ENGINES = {"eager": "torch-eager", "compiled": "torch-compile"}
COLUMNS = 600
"""Of a drawn timeline: shorter kernels share one, which shows the one that takes most of it."""
WORTH = 0.1
"""Causes with a smaller share of the time are not named."""

KINDS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "products": ("#4477aa", ("gemm", "moe")),
    "convolutions": ("#228833", ("conv2d",)),
    "attention": ("#aa3377", ("attention_prefill", "attention_decode")),
    "norms and softmax": ("#ccbb44", ("layernorm", "rmsnorm", "softmax", "cross_entropy")),
    "pointwise": ("#66ccee", ("elementwise", "silu_mul", "rope")),
    "fused chains, moved data": ("#ee6677", ("data_movement", "embedding")),
    "others": ("#bbbbbb", ()),
}
"""Kinds of operations in drawings: colour and families."""


@final
@dataclass(frozen=True)
class Program:
    """One of the gallery.

    Attributes:
        title, text: heading, and what runs.
        graph: traces it.
    """

    name: str
    title: str
    text: str
    graph: Callable[[], Graph]


@final
@dataclass(frozen=True)
class Run:
    """A program in one way."""

    answer: Answer
    found: ProgramPass


def _packaged(name: str, **sizes: int) -> Callable[[], Graph]:
    return lambda: packaged_graph(name, sizes, dtype="bf16")[0]


def _own(make: Callable[[], tuple[Any, ...]]) -> Callable[[], Graph]:
    def graph() -> Graph:
        with without_data():
            module, *args = make()
        return graph_of(module, args, dtype="bf16")

    return graph


def _whisper() -> tuple[Any, ...]:
    import torch
    from transformers import WhisperConfig
    from transformers.models.whisper.modeling_whisper import WhisperEncoder

    config = WhisperConfig(
        d_model=1280,
        encoder_layers=32,
        encoder_attention_heads=20,
        encoder_ffn_dim=5120,
        num_mel_bins=128,
    )
    return WhisperEncoder(config), torch.empty(8, 128, 3000, device="meta")


def _dlrm() -> tuple[Any, ...]:
    """DLRM as MLPerf runs it (Criteo): 26 tables of 128 columns, here of a million rows each."""
    import torch
    from torch import nn

    def layers(*widths: int) -> Any:
        pairs = pairwise(widths)
        return nn.Sequential(*(x for a, b in pairs for x in (nn.Linear(a, b), nn.ReLU())))

    class Dlrm(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.bottom = layers(13, 512, 256, 128)
            self.tables = nn.ModuleList(nn.EmbeddingBag(10**6, 128, mode="sum") for _ in range(26))
            self.top = layers(128 + 27 * 26 // 2, 1024, 1024, 512, 256, 1)
            self.register_buffer("pairs", torch.tril_indices(27, 27, -1))

        def forward(self, dense: Any, sparse: Any) -> Any:
            rows = self.bottom(dense)
            embedded = [table(sparse[:, i]) for i, table in enumerate(self.tables)]
            features = torch.stack([rows, *embedded], dim=1)
            products = features @ features.transpose(1, 2)
            crossed = products[:, self.pairs[0], self.pairs[1]]
            return self.top(torch.cat([rows, crossed], dim=1))

    sparse = torch.zeros(8192, 26, 1, dtype=torch.int64, device="meta")
    return Dlrm(), torch.empty(8192, 13, device="meta"), sparse


def _gnn() -> tuple[Any, ...]:
    """GraphSAGE with means of neighbours (Hamilton et al. 2017), written with gathers and sums."""
    import torch
    from torch import nn

    class Sage(nn.Module):
        def __init__(self, widths: Sequence[int]) -> None:
            super().__init__()
            pairs = list(pairwise(widths))
            self.own = nn.ModuleList(nn.Linear(a, b) for a, b in pairs)
            self.near = nn.ModuleList(nn.Linear(a, b, bias=False) for a, b in pairs)

        def forward(self, x: Any, edges: Any, degree: Any) -> Any:
            for item, near in zip(self.own, self.near, strict=True):
                sums = torch.zeros_like(x).index_add(0, edges[1], x[edges[0]])
                x = torch.relu(item(x) + near(sums / degree))
            return x

    nodes, edges = 169_343, 1_166_243  # ogbn-arxiv
    return (
        Sage((128, 256, 256, 40)),
        torch.empty(nodes, 128, device="meta"),
        torch.zeros(2, edges, dtype=torch.int64, device="meta"),
        torch.empty(nodes, 1, device="meta"),
    )


def _lstm() -> tuple[Any, ...]:
    import torch
    from torch import nn

    module = nn.LSTM(1024, 1024, num_layers=2, batch_first=True)
    return module, torch.empty(64, 100, 1024, device="meta")


PROGRAMS = (
    Program("resnet", "ResNet-50", "64 images of 224 x 224 (timm).",
            _packaged("timm:resnet50", batch=64)),
    Program("vit", "ViT-B/16", "64 images of 224 x 224, 197 tokens each (timm).",
            _packaged("timm:vit_base_patch16_224", batch=64)),
    Program("convnext", "ConvNeXt-T", "64 images of 224 x 224 (timm).",
            _packaged("timm:convnext_tiny", batch=64)),
    Program("unet", "U-Net of a diffusion pipeline",
            "One step for one image and its guidance, 64 x 64 latent pixels (diffusers).",
            _packaged("diffusers:UNet2DConditionModel", batch=2, latent=64)),
    Program("dit", "DiT-XL/2",
            "One step for eight images and their guidance, 32 x 32 latent pixels (diffusers).",
            _packaged("diffusers:DiTTransformer2DModel", batch=16)),
    Program("whisper", "Whisper's encoder",
            "Eight recordings of 30 s, sizes of whisper-large-v3 (transformers).", _own(_whisper)),
    Program("dlrm", "DLRM", "8,192 clicks, 26 tables of a million rows.", _own(_dlrm)),
    Program("bert", "BERT", "32 texts of 384 tokens (transformers).",
            _packaged("transformers:bert-base-uncased", batch=32, seq_len=384)),
    Program("gnn", "A graph network",
            "GraphSAGE over all 169,343 nodes and 1,166,243 edges of ogbn-arxiv.", _own(_gnn)),
    Program("lstm", "An LSTM",
            "Two layers of 1,024, 64 sequences of 100 steps, a call a layer; each step counts as a "
            "product of its own, where cuDNN may run several in one kernel.", _own(_lstm)),
)  # fmt: skip


def predicted(program: Program) -> dict[str, Run]:
    """The program in every way: eager and compiled."""
    table = {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"{program.name}.json"
        write_op_graph(program.graph(), path)
        for way, engine in ENGINES.items():
            scenario = decode(
                {
                    "task": "graph",
                    "device": DEVICE,
                    "engine": engine,
                    "workload": {"graph": str(path)},
                }
            )
            table[way] = Run(run(scenario), pass_of(scenario).program)
    return table


def section(program: Program, runs: Mapping[str, Run]) -> Iterator[str]:
    """The program's part of the page."""
    yield from (f"## {program.title}", "", program.text, "")
    yield "| | time | 90 % interval | bound | kernels | weights | memory in all | what bounds it |"
    yield "|---|---|---|---|---|---|---|---|"
    for way, outcome in runs.items():
        e2e, memory = outcome.answer.metrics["e2e_ms"], outcome.found.memory
        low, high = (duration(x * 1e-3) for x in (e2e.p05, e2e.p95))
        cells = (
            way,
            duration(e2e.estimate * 1e-3),
            f"{low} to {high}",
            duration(outcome.answer.bound["e2e_ms"] * 1e-3),
            f"{len(outcome.found.model.graph.executions.order):,}",
            f"{rounded(memory.weights / GB)} GB",
            f"{rounded(memory.total / GB)} GB",
            _causes(outcome),
        )
        yield f"| {' | '.join(cells)} |"
    eager, compiled = (runs[way].answer.metrics["e2e_ms"].estimate for way in ENGINES)
    yield ""
    faster = f"{rounded(eager / compiled)} times as fast as eager"
    yield f"Compiled it is {faster}. Memory is highest at {_peaks(runs)}."
    yield from ("", f"![timeline and memory](../_static/gallery/{program.name}.svg)", "")


def _causes(outcome: Run) -> str:
    causes = [(name, share) for name, share in time_by_cause(outcome.answer.why) if share > 0.0]
    total = sum(share for _, share in causes)
    named = [(name, share / total) for name, share in causes if share >= WORTH * total]
    return ", ".join(f"{bound_words(name)} {percent(share)}" for name, share in named)


def _peaks(runs: Mapping[str, Run]) -> str:
    nodes = dict.fromkeys(outcome.found.memory.peak_node for outcome in runs.values())
    return " and ".join(f"`{node}`" for node in nodes)


def drawn(runs: Mapping[str, Run]) -> Any:
    """Timelines of both ways on one axis, and memory over time under them."""
    figure = figure_class()(figsize=(8.0, 3.6), layout="constrained")
    top, bottom = figure.subplots(2, 1, sharex=True, height_ratios=(2, 3))
    end = max(outcome.found.timeline.total_s for outcome in runs.values())
    unit, factor = ("ms", 1e3) if end < 1.0 else ("s", 1.0)
    seen: dict[str, None] = {}
    for row, (way, way_outcome) in enumerate(runs.items()):
        for kind, spans in _spans(way_outcome.found, end).items():
            scaled = [(start * factor, length * factor) for start, length in spans]
            top.broken_barh(scaled, (-row - 0.4, 0.8), color=KINDS[kind][0], linewidth=0)
            seen[kind] = None
        line = way_outcome.found.timeline
        held = alive_bytes(way_outcome.found.model.graph.executions)
        bottom.step(
            np.append(line.start_s, line.total_s) * factor,
            np.append(held, held[-1]) / GB,
            where="post",
            label=way,
            linewidth=1.0,
            color=("#222222", "#dd7700")[row],
        )
    top.set_yticks([0, -1], list(runs))
    top.set_ylim(-1.6, 0.6)
    handles = [_patch(KINDS[kind][0], kind) for kind in KINDS if kind in seen]
    top.legend(
        handles=handles,
        ncols=len(handles),
        fontsize=7,
        frameon=False,
        loc="lower center",
        bbox_to_anchor=(0.5, 1.0),
    )
    bottom.set_ylabel("results alive, GB", fontsize=8)
    bottom.set_ylim(bottom=0.0)
    bottom.set_xlim(0.0, end * factor)
    bottom.set_xlabel(unit)
    bottom.grid(visible=True, linewidth=0.4, alpha=0.5)
    bottom.legend(frameon=False, fontsize=7, ncols=2, loc="lower right", bbox_to_anchor=(1.0, 0.98))
    return figure


def _patch(color: str, label: str) -> Any:
    from matplotlib.patches import Patch

    return Patch(color=color, label=label)


def _spans(program_pass: ProgramPass, end: float) -> dict[str, list[tuple[float, float]]]:
    """Start and length of runs of kernels of one kind; what no kernel fills is left out."""
    line, executions = program_pass.timeline, program_pass.model.graph.executions
    names = list(KINDS)
    kinds = [names.index(_kind(execution.node.op.family)) for execution in executions.sequence]
    width = end / COLUMNS
    covered = np.zeros((len(names), COLUMNS))
    for kind, start, stop in zip(kinds, line.start_s, line.end_s, strict=True):
        first, last = int(start / width), min(int(stop / width), COLUMNS - 1)
        for column in range(first, last + 1):
            inside = min(stop, (column + 1) * width) - max(start, column * width)
            covered[kind, column] += max(inside, 0.0)
    most = np.where(covered.sum(axis=0) > 0.5 * width, covered.argmax(axis=0), -1)
    cuts = np.flatnonzero(np.diff(most)) + 1
    found_spans: dict[str, list[tuple[float, float]]] = {}
    for first, last in zip((0, *cuts), (*cuts, COLUMNS), strict=True):
        if most[first] >= 0:
            span = (first * width, (last - first) * width)
            found_spans.setdefault(names[most[first]], []).append(span)
    return found_spans


def _kind(family: str) -> str:
    return next((name for name, (_, families) in KINDS.items() if family in families), "others")


HEAD = """# Gallery: ten programs, eager and compiled

Ten programs as PyTorch runs them, in bf16 on an H100: predictions, made without a GPU and
without weights by `python -m lab.gallery` (PyTorch, timm, transformers, diffusers, matplotlib).
How to do the same with a program of your own:
[predict your own model](../how-to/predict-your-own-model.md).

Drawings show the device's timeline, eager above compiled on one axis of time; white is time in
which the device waits for the host. Under it: results that are alive, beside the weights. Memory in
all counts both, the allocator's reserve and what the framework itself takes.
"""


def main(words: Sequence[str] | None = None) -> None:
    """Writes drawings of the named programs, and the page if all are."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="left out, all, and the page")
    names = parser.parse_args(words).names
    parts: list[str] = [HEAD]
    DRAWINGS.mkdir(parents=True, exist_ok=True)
    for program in PROGRAMS:
        if names and program.name not in names:
            continue
        runs = predicted(program)
        save_plot(drawn(runs), DRAWINGS / f"{program.name}.svg")
        parts.append("\n".join(section(program, runs)))
        print(parts[-1], flush=True)
    if not names:
        PAGE.write_text("\n".join(parts).rstrip() + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
