"""Which measured rows corrections are trained on, per family; held-out ones are marked as such.

The rows and their split are those of the suites, so that no suite scores a row that was learned.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import final

from silicast.core.errors import SilicastError
from silicast.kernels.implementation import implementation_for
from silicast.learning.artefact import FORMAT, Card, folder, write_artefact
from silicast.learning.boosting import Settings
from silicast.learning.training import MeasuredKernels, train_family
from silicast.validation.gemm_rows import Rows as GemmRows
from silicast.validation.gemm_rows import (
    bf16_rows,
    fp32_rows,
    pipeweave_rows,
    quantised_rows,
    vidur_rows,
)
from silicast.validation.suites import (
    _attention_rows,
    _linear_attention_rows,
    _mla_rows,
    _moe_rows,
    _sparse_rows,
    _streaming_rows,
)
from silicast.validation.suites._encoder_rows import encoder_campaigns
from silicast.workload.op import OpBatch

PER_GROUP = 250
"""Rows read of each group of equal words in a table of modules, at most."""
MANY = 40_000
"""Rows read of each device and campaign, at most."""

Read = Callable[[Path], Iterator[MeasuredKernels]]


@final
@dataclass(frozen=True)
class Source:
    """Rows of one family.

    Attributes:
        family: op family.
        tables: files that are read, relative to the data folder.
        split: which rows are held out.
        read: the rows.
        settings: how its corrections are trained.
    """

    family: str
    tables: tuple[str, ...]
    split: str
    read: Read
    settings: Settings = Settings()


def _gemm(data: Path) -> Iterator[MeasuredKernels]:
    parts = [
        *bf16_rows(data, MANY),
        *quantised_rows(data, ("fp8", "fp8_block", "nvfp4", "fp8_static"), MANY // 2),
        *quantised_rows(data, ("int4_wo", "int8_wo", "sq"), MANY // 2),
        *pipeweave_rows(data, MANY),
        *fp32_rows(data, MANY),
        *vidur_rows(data, MANY),
    ]
    for part in parts:
        yield _of_gemm(part)


def _of_gemm(part: GemmRows) -> MeasuredKernels:
    batch = OpBatch("gemm", part.variant, part.dims)
    return MeasuredKernels(batch, part.device, part.seconds, part.held_out)


def _attention(table: str) -> Read:
    def read(data: Path) -> Iterator[MeasuredKernels]:
        for campaign in _attention_rows.read_campaigns(data, table, 3 * MANY):
            if campaign.newest:
                seconds = campaign.latency_us * 1e-6
                yield MeasuredKernels(campaign.batch, campaign.device.name, seconds, campaign.held)

    return read


def _prefill(data: Path) -> Iterator[MeasuredKernels]:
    """Causal attention of decoders, and attention of encoders."""
    yield from _attention("context")(data)
    for campaign in encoder_campaigns(data):
        if campaign.newest:
            seconds = campaign.latency_us * 1e-6
            yield MeasuredKernels(campaign.batch, campaign.device.name, seconds, campaign.held)


def _sparse(*tables: str) -> Read:
    def read(data: Path) -> Iterator[MeasuredKernels]:
        for table in tables:
            lower = _sparse_rows.MODULE_TABLES[table]
            for part in _sparse_rows.table_rows(data, table, lower, PER_GROUP):
                held = _sparse_rows.shape_held_out(part.sizes)
                yield MeasuredKernels(part.batch, part.device, part.seconds, held)

    return read


def _moe(data: Path) -> Iterator[MeasuredKernels]:
    parts = [*_moe_rows.aic_rows(data, MANY // 10), *_moe_rows.pipeweave_rows(data, MANY)]
    for part in parts:
        batch = OpBatch("moe", part.variant, part.dims)
        yield MeasuredKernels(batch, part.device, part.seconds, part.held_out)


def _latent(table: str) -> Read:
    def read(data: Path) -> Iterator[MeasuredKernels]:
        for part in _mla_rows.read_mla(data, table):
            yield MeasuredKernels(part.batch, part.device.name, part.latency_us * 1e-6, part.held)

    return read


def _blocks(data: Path) -> Iterator[MeasuredKernels]:
    for table in ("mla_context_module", "mla_generation_module"):
        for part in _mla_rows.read_mla_modules(data, table):
            yield MeasuredKernels(part.batch, part.device.name, part.latency_us * 1e-6, part.held)


def _recurrent(family: str) -> Read:
    def read(data: Path) -> Iterator[MeasuredKernels]:
        for part in _linear_attention_rows.read_rows(data, family):
            yield MeasuredKernels(part.batch, part.device, part.seconds, part.held_out)

    return read


def _streaming(family: str) -> Read:
    def read(data: Path) -> Iterator[MeasuredKernels]:
        for part in _streaming_rows.load_rows(data):
            if part.batch.family == family:
                seconds = part.measured_us * 1e-6
                yield MeasuredKernels(part.batch, part.device, seconds, ~part.fitted)

    return read


_AIC = "aiconfigurator/"
_HEADS = "one head geometry in four, by hash, is held out"
_DEEP = Settings(trees=160, depth=8, rate=0.2)
_SMALL = Settings(trees=120, depth=6, rate=0.15)
_STREAMS = (
    "pipeweave/kernel_elementwise_sample.parquet", "neusight/kernels_nvidia.parquet",
    _AIC + "computescale.parquet", _AIC + "scale_matrix.parquet",
    "serving/llmservingsim_profile_dense.parquet",
)  # fmt: skip

_MODULES = {
    "dsa": ("dsa_context_module", "dsa_generation_module"),
    "csa": ("dsv4_csa_context_module", "dsv4_csa_generation_module"),
    "hca": ("dsv4_hca_context_module", "dsv4_hca_generation_module"),
    "msa": ("msa_context_module", "msa_generation_module"),
}

SOURCES: Mapping[str, Source] = {
    source.family: source
    for source in (
        Source(
            "gemm",
            (
                "kernels/aic_gemm_bf16_repeats.parquet", _AIC + "gemm.parquet",
                "pipeweave/kernel_gemm_fp8.parquet", "neusight/kernels_nvidia.parquet",
                "serving/vidur_linear_ops.parquet",
            ),
            "one (n, k) pair in five, by hash, is held out on every device; PipeWeave's and "
            "NeuSight's own test splits",
            _gemm,
            _DEEP,
        ),
        Source("attention_prefill", (_AIC + "context_attention.parquet",
               _AIC + "encoder_attention.parquet"), _HEADS, _prefill, _DEEP),
        Source("attention_decode", (_AIC + "generation_attention.parquet",), _HEADS,
               _attention("generation"), _DEEP),
        Source("moe", (_AIC + "moe.parquet", "pipeweave/kernel_moe_w13.parquet"),
               "one layer in five, by hash, is held out on every device", _moe, _DEEP),
        Source("mla_prefill", (_AIC + "context_mla.parquet",), "pairs of heads and batch",
               _latent("context_mla"), _DEEP),
        Source("mla_decode", (_AIC + "generation_mla.parquet",), "pairs of heads and batch",
               _latent("generation_mla"), _DEEP),
        Source("mla_module", (_AIC + "mla_context_module.parquet",
               _AIC + "mla_generation_module.parquet"), "pairs of heads and batch", _blocks, _DEEP),
        *(
            Source(name, (_AIC + f"{name}.parquet",), "one shape in several, by hash",
                   _recurrent(name), _SMALL)
            for name in ("gdn", "kda", "mamba2")
        ),
        *(
            Source(f"{name}_module", tuple(f"{_AIC}{table}.parquet" for table in tables),
                   "one shape in five, by hash", _sparse(*tables), _DEEP)
            for name, tables in _MODULES.items()
        ),
        *(
            Source(name, _STREAMS, "every second size or the sources' own test split",
                   _streaming(name), _SMALL)
            for name in ("rmsnorm", "layernorm", "softmax", "elementwise", "silu_mul", "quantize")
        ),
    )
}  # fmt: skip


def train_kernels(
    data: Path,
    families: Sequence[str] = (),
    *,
    output: Path | None = None,
    said: Callable[[str], None] = lambda _: None,
) -> list[Card]:
    """Trains the corrections of ``families`` (all if none is named) and writes their artefacts.

    Args:
        data: folder of measured tables.
        output: folder to write to, None = the catalog's own.
        said: called with a line of progress.

    Raises:
        SilicastError: an unknown family, or a table is not there.
    """
    cards = []
    for name in families or SOURCES:
        source = SOURCES.get(name)
        if source is None:
            raise SilicastError(
                f"no measured rows for {name!r}",
                kind="unknown_name",
                field="family",
                hint=f"one of {', '.join(SOURCES)}",
            )
        for table in source.tables:
            if not (data / table).is_file():
                raise SilicastError("no such table", kind="io", file=str(data / table))
        model = implementation_for(name, "simt")
        assert model is not None
        trained, parts = train_family(model, list(source.read(data)), source.settings, said)
        card = Card(
            format=FORMAT,
            family=name,
            data=list(source.tables),
            split=source.split,
            command=f"silicast train-kernels {name}",
            date=datetime.datetime.now(datetime.UTC).date().isoformat(),
            sha256="",
            trained=trained,
        )
        cards.append(write_artefact((output or folder()) / f"{name}.json", card, parts))
    return cards
