"""A trainer whose run is one file, with DeepSpeed's JSON and accelerate's YAML beside it."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, final

from silicast.core.plain_data import MAX_TOML_BYTES
from silicast.formats.effects import effects_of
from silicast.formats.fields import Fields
from silicast.formats.source import Source
from silicast.formats.training_configs.accelerate_config import (
    AccelerateConfig,
    Sharding,
    deepspeed_sharding,
    fsdp_of,
    fsdp_words,
    is_accelerate,
    read_accelerate,
)
from silicast.formats.training_configs.deepspeed_config import (
    DeepSpeedConfig,
    is_deepspeed,
    named_deepspeed,
    read_deepspeed,
)
from silicast.formats.training_configs.reader import Stated, TrainingConfig, Tree
from silicast.formats.training_configs.trainer_run import TrainerRun, is_on

NAMES = ("deepspeed", "deepspeed_config", "ds_config", "deepspeed_config_file")
PACKED = ("sft", "lora")
"""Tasks whose sequences a trainer may pack."""


@final
@dataclass(frozen=True)
class BesideFiles:
    """What files beside a trainer's own say."""

    deepspeed: DeepSpeedConfig | None = None
    accelerate: AccelerateConfig | None = None


class FineTuning(TrainingConfig):
    """Reads a run's file and the files that it names.

    Class attributes:
        tool: of ``catalog/launch_fields.toml``.
        packing: fields that pack sequences.
    """

    tool: ClassVar[str]
    packing: ClassVar[tuple[str, ...]] = ("packing", "neat_packing")

    @abstractmethod
    def is_run(self, table: Mapping[str, Any]) -> bool:
        """Whether a table describes a run of this trainer."""

    @abstractmethod
    def run(
        self, fields: Fields, beside: BesideFiles, devices: int, remarks: list[str]
    ) -> TrainerRun:
        """The run; remarks are added to ``remarks``.

        Raises:
            SilicastError: a field is wrong, or contradicts another.
        """

    def fields(
        self,
        files: Sequence[Source],
        stated: Stated,  # noqa: ARG002 - for scripts
        remarks: list[str],  # noqa: ARG002 - for scripts
    ) -> Fields:
        """The run's fields."""
        main = next(file for file in files if self.is_run(file.table or {}))
        return Fields(main.table or {}, file=str(main.path), loose=True)

    def configurations(
        self,
        files: Sequence[Source],
        stated: Stated,  # noqa: ARG002 - for scripts
    ) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """Tables of the files, with their names."""
        for file in files:
            yield str(file.path), file.table or {}

    def recognises(self, files: Sequence[Source]) -> bool:
        """One run, besides DeepSpeed's or accelerate's files."""
        tables = [file.table for file in files]
        if any(table is None for table in tables):
            return False
        others = [table for table in tables if table is not None and not self.is_run(table)]
        known = all(is_deepspeed(table) or is_accelerate(table) for table in others)
        return known and len(others) == len(tables) - 1

    @final
    def read(self, files: Sequence[Source], stated: Stated) -> tuple[Tree, list[str]]:
        remarks: list[str] = []
        tables: list[Fields] = []
        beside = beside_of(self.configurations(files, stated), tables, remarks)
        fields = self.fields(files, stated, remarks)
        beside = _with_named(fields, beside, tables, remarks)
        run = self.run(fields, beside, stated.devices, remarks)
        packs = [is_on(fields.get(name)) for name in self.packing]
        if run.task in PACKED and not any(packs):
            remarks.append(f"{self.packing[0]}: off; every sequence is taken at its full length")
        tree = run.scenario(fields, remarks)
        return tree, [*remarks, *effects_of(self.tool).unused([fields, *tables], tree)]


def beside_of(
    files: Iterable[tuple[str, Mapping[str, Any]]], tables: list[Fields], remarks: list[str]
) -> BesideFiles:
    """What DeepSpeed's and accelerate's files among them say; their tables are added to
    ``tables``, remarks to ``remarks``.
    """
    deepspeed = accelerate = None
    for name, table in files:
        fields = Fields(table, file=name, loose=True)
        if is_accelerate(table):
            accelerate = read_accelerate(fields)
            tables.append(fields)
        elif is_deepspeed(table):
            deepspeed = read_deepspeed(fields, remarks)
            tables.append(fields)
    return BesideFiles(deepspeed, accelerate)


def _with_named(
    fields: Fields, beside: BesideFiles, tables: list[Fields], remarks: list[str]
) -> BesideFiles:
    """With the DeepSpeed JSON that a run names, where it lies beside the run's file.

    Raises:
        SilicastError: it is no configuration of DeepSpeed, or cannot be read.
    """
    name = _named_file(fields, beside.accelerate or AccelerateConfig())
    if beside.deepspeed is not None or not name:
        return beside
    path = Path(fields.file).parent / name
    try:
        is_there = path.is_file()
    except (OSError, ValueError):
        is_there = False
    if not is_there:
        return beside
    file = Source(path, MAX_TOML_BYTES, "a configuration of DeepSpeed")
    table = file.table
    if table is None or not is_deepspeed(table):
        raise file.error("is no configuration of DeepSpeed", hint="a JSON with zero_optimization")
    remarks.append(f"deepspeed: {name[-60:]} is read, as the run names it")
    read = Fields(table, file=str(path), loose=True)
    tables.append(read)
    return replace(beside, deepspeed=read_deepspeed(read, remarks))


def _named_file(fields: Fields, accelerate: AccelerateConfig) -> str:
    """The name of the DeepSpeed JSON of a run; "" = it names none."""
    deepspeed = fields.get(*NAMES)
    if isinstance(deepspeed, Mapping) or accelerate.deepspeed is not None:
        return ""
    return accelerate.deepspeed_file or (
        "" if deepspeed is True or not is_on(deepspeed) else str(deepspeed)
    )


def sharding_of(
    fields: Fields, beside: BesideFiles, accelerate: AccelerateConfig, remarks: list[str]
) -> tuple[Sharding, DeepSpeedConfig]:
    """How states are shared, and DeepSpeed's file.

    Raises:
        SilicastError: by DeepSpeed and by FSDP.
    """
    fsdp = fields.get("fsdp")
    named = (
        is_on(fields.get(*NAMES))
        or beside.deepspeed
        or accelerate.deepspeed
        or accelerate.deepspeed_file
    )
    if named and is_on(fsdp) and fsdp not in ("", []):
        raise fields.error("contradicts deepspeed", "fsdp", "keep one of them")
    config = _deepspeed(fields, beside, accelerate, remarks)
    if config is None:
        return _fully_sharded(fields, accelerate.sharding, remarks), DeepSpeedConfig()
    if fields.has("zero_stage"):
        config = replace(config, zero=fields.count("zero_stage", least=0))
    if is_on(fields.get("offload")):
        config = replace(config, offload={"optimizer": 1.0, **config.offload})
    return deepspeed_sharding(config), config


def _deepspeed(
    fields: Fields, beside: BesideFiles, accelerate: AccelerateConfig, remarks: list[str]
) -> DeepSpeedConfig | None:
    """The file that is given, that a table holds, or that is named; None = another way."""
    entry = fields.get(*NAMES)
    if isinstance(entry, Mapping):
        return read_deepspeed(fields.table("deepspeed"), remarks)
    if beside.deepspeed is not None:
        return beside.deepspeed
    if accelerate.deepspeed is not None:
        return accelerate.deepspeed
    if name := _named_file(fields, accelerate):
        config = named_deepspeed(name, remarks)
        if config is None:
            if fields.has("zero_stage"):
                return DeepSpeedConfig()
            run = Path(fields.file).name
            raise fields.error(
                f"{name[-60:]} is not given, and its name says no stage of ZeRO",
                next((key for key in NAMES if fields.has(key)), NAMES[0]),
                f"name both files: silicast import {run} {name[-60:]}",
            )
        return config
    return DeepSpeedConfig() if is_on(entry) else None


def _fully_sharded(fields: Fields, sharding: Sharding, remarks: list[str]) -> Sharding:
    """FSDP by a trainer's own words, over what accelerate's file says."""
    fsdp, section = fields.get("fsdp"), fields.get("fsdp_config")
    words = " ".join(map(str, fsdp)) if isinstance(fsdp, list) else str(fsdp or "")
    if isinstance(section, Mapping):
        sharding = fsdp_of(fields.table("fsdp_config"))
        if fields.has("fsdp") and not (words and is_on(fsdp)):
            sharding = replace(sharding, zero=0)
    elif section:
        remarks.append(f"fsdp_config: {str(section)[-60:]} is not given; full sharding is taken")
        sharding = replace(sharding, zero=3)
    return fsdp_words(words, sharding) if words and is_on(fsdp) else sharding
