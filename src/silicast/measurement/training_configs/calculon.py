"""Calculon (github.com/calculon-ai/calculon): an application, an execution and a system in JSON."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, final

from silicast.core.errors import SilicastError
from silicast.measurement.training_configs.config_file import ConfigFile, Fields, not_used
from silicast.measurement.training_configs.decoder_config import Decoder, config_of
from silicast.measurement.training_configs.device_name import device_named
from silicast.measurement.training_configs.reader import TrainingConfig, Tree, parallel_of, register

APPLICATION = ("hidden", "attn_heads", "num_blocks")
EXECUTION = ("num_procs", "tensor_par", "pipeline_par")
SYSTEM = ("matrix", "mem1", "networks")
VOCABULARY = 51_200
"""Calculon's models have no vocabulary; that of its GPT examples."""
RECOMPUTE = {"none": "none", "attn_only": "selective", "full": "full"}
FORMATS = {
    "float8": "fp8", "float16": "fp16", "bfloat16": "bf16", "float32": "fp32", "float64": "fp64",
}  # fmt: skip


@register
@final
class Calculon(TrainingConfig):
    """Reads the three files of a run, in any order."""

    name: ClassVar[str] = "Calculon"
    files: ClassVar[str] = "application, execution and system (JSON)"

    def recognises(self, files: Sequence[ConfigFile]) -> bool:
        """An execution among them."""
        return _with(files, EXECUTION) is not None or (
            _with(files, APPLICATION) is not None and _with(files, SYSTEM) is not None
        )

    def read(self, files: Sequence[ConfigFile]) -> tuple[Tree, list[str]]:
        """See :class:`TrainingConfig`."""
        run = _needed(files, EXECUTION, "execution")
        application = _needed(files, APPLICATION, "application")
        model, said = _model(application)
        tp, pp = run.whole("tensor_par"), run.whole("pipeline_par")
        dp = run.whole("data_par")
        gpus = run.whole("num_procs", default=tp * pp * dp)
        if gpus != tp * pp * dp:
            raise run.error(f"{gpus} is not {tp} x {pp} x {dp}", "num_procs")
        if not run.flag("training", default=True):
            raise run.error("false: an execution of inference", "training", "silicast infer")
        sharded = run.flag("optimizer_sharding")
        chunks = run.whole("pipeline_interleaving", default=1)
        kind = run.text("tensor_par_comm_type", default="ar")
        parallel = parallel_of(
            tp=tp, pp=pp, dp=dp, virtual_stages=chunks, zero=int(sharded),
            sp=kind == "rs_ag" and tp > 1,
        )  # fmt: skip
        if kind == "p2p_rs_ag":
            said.append("tensor_par_comm_type: p2p_rs_ag is taken as an all-reduce")
        scenario: Tree = {
            "model": model, "parallel": parallel, "engine": {"name": "megatron"},
            "precision": {"recipe": run.choice("datatype", FORMATS, "float16")},
            "cluster": {"gpus": gpus},
            "workload": {
                "seq_len": application.whole("seq_size"),
                "global_batch": run.whole("batch_size"),
                "micro_batch": run.whole("microbatch_size"),
                "recompute": run.choice("activation_recompute", RECOMPUTE, "none"),
                "overlap": {
                    "gradients": run.flag("data_par_overlap"),
                    "tensor": run.text("tensor_par_overlap", default="none") != "none",
                },
            },
        }  # fmt: skip
        tables = [application, run]
        if _with(files, SYSTEM) is None:
            return scenario, [*said, "system: not given", *not_used(tables)]
        system = _needed(files, SYSTEM, "system")
        said += _system(system, scenario)
        return scenario, [*said, *not_used([*tables, system])]


def _with(files: Sequence[ConfigFile], names: Sequence[str]) -> ConfigFile | None:
    return next((f for f in files if f.table and all(name in f.table for name in names)), None)


def _needed(files: Sequence[ConfigFile], names: Sequence[str], what: str) -> Fields:
    file = _with(files, names)
    if file is None or file.table is None:
        raise SilicastError(
            f"the {what} is missing", file=str(files[0].path), field=what,
            hint=f"the file that holds {', '.join(names)}",
        )  # fmt: skip
    return Fields(file.table, str(file.path))


def _model(fields: Fields) -> tuple[dict[str, Any], list[str]]:
    hidden, heads = fields.whole("hidden"), fields.whole("attn_heads")
    width = fields.whole("attn_size", default=0, least=0)
    own = 0 if width * heads == hidden else width
    model = Decoder(
        layers=fields.whole("num_blocks"), hidden=hidden, heads=heads, vocab=VOCABULARY,
        intermediate=fields.whole("feedforward", default=4 * hidden), head_dim=own,
        max_positions=fields.whole("seq_size"), gated=False, activation="gelu", norm="layernorm",
        position="learned", tied=True, biases=True,
        name=fields.text("name", default=Path(fields.file).stem),
    )  # fmt: skip
    made, said = config_of(model)
    said.append(f"vocabulary: not stated; {VOCABULARY} is assumed (Calculon has no head)")
    return made, said


def _system(fields: Fields, scenario: Tree) -> list[str]:
    """Links between processors into the scenario; the device, where the file's name is one's."""
    fields.raw("matrix", "mem1")
    said = device_named(Path(fields.file).stem, scenario)
    said.append("matrix, vector, mem1: rates and efficiencies of Silicast's own device are used")
    networks = fields.raw("networks")
    rows = networks if isinstance(networks, list) else []
    tables = [
        Fields(row if isinstance(row, dict) else {}, fields.file, f"networks.{n}")
        for n, row in enumerate(rows)
    ]
    if not tables:
        return said
    inner, outer = tables[0], tables[-1]
    if len(tables) > 2:
        said.append(f"networks: the first and the last of {len(tables)} are used")
    scenario["cluster"]["gpus_per_node"] = inner.whole("size")
    if outer is not inner and (rate := outer.number("bandwidth")):
        scenario["cluster"]["inter_node"] = {
            "bandwidth_gb_per_s": rate, "latency_us": outer.number("latency") * 1e6,
        }  # fmt: skip
    outer.used.add("size")
    return [*said, *not_used(tables)]
