"""Calculon (github.com/calculon-ai/calculon): an application, an execution and a system in JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, final

from silicast.formats.fields import Fields
from silicast.formats.training_configs.decoder_config import DecoderSizes, config_of
from silicast.formats.training_configs.device_name import device_named
from silicast.formats.training_configs.reader import Tree, parallel_of, register
from silicast.formats.training_configs.three_files import ThreeFiles

VOCABULARY = 51_200
"""Calculon's models have no vocabulary; that of its GPT examples."""
RECOMPUTE = {"none": "none", "attn_only": "selective", "full": "full"}
FORMATS = {
    "float8": "fp8",
    "float16": "fp16",
    "bfloat16": "bf16",
    "float32": "fp32",
    "float64": "fp64",
}


@register
@final
class Calculon(ThreeFiles):
    """Reads the three files of a run, in any order."""

    name: ClassVar[str] = "Calculon"
    files: ClassVar[str] = "application, execution and system (JSON)"
    parts: ClassVar[Mapping[str, Sequence[str]]] = {
        "execution": ("num_procs", "tensor_par", "pipeline_par"),
        "application": ("hidden", "attn_heads", "num_blocks"),
        "system": ("matrix", "mem1", "networks"),
    }

    def scenario(self, run: Fields, model: Fields) -> tuple[Tree, list[str]]:
        made, remarks = _model(model)
        tp, pp = run.count("tensor_par"), run.count("pipeline_par")
        dp = run.count("data_par")
        gpus = run.count("num_procs", default=tp * pp * dp)
        if gpus != tp * pp * dp:
            raise run.error(f"{gpus} is not {tp} x {pp} x {dp}", "num_procs")
        if not run.flag("training", default=True):
            raise run.error("false: an execution of inference", "training", "silicast infer")
        sharded = run.flag("optimizer_sharding")
        chunks = run.count("pipeline_interleaving", default=1)
        kind = run.text("tensor_par_comm_type", default="ar")
        parallel = parallel_of(
            tp=tp,
            pp=pp,
            dp=dp,
            virtual_stages=chunks,
            zero=int(sharded),
            sp=kind == "rs_ag" and tp > 1,
        )
        if kind == "p2p_rs_ag":
            remarks.append("tensor_par_comm_type: p2p_rs_ag is taken as an all-reduce")
        scenario: Tree = {
            "model": made,
            "parallel": parallel,
            "engine": {"name": "megatron"},
            "precision": {"recipe": run.choice("datatype", FORMATS, "float16")},
            "cluster": {"gpus": gpus},
            "workload": {
                "seq_len": model.count("seq_size"),
                "global_batch": run.count("batch_size"),
                "micro_batch": run.count("microbatch_size"),
                "recompute": run.choice("activation_recompute", RECOMPUTE, "none"),
                "overlap": {
                    "gradients": run.flag("data_par_overlap"),
                    "tensor": run.text("tensor_par_overlap", default="none") != "none",
                },
            },
        }
        return scenario, remarks

    def join(self, system: Fields, scenario: Tree) -> list[str]:
        """Links into the scenario; the device, where the file's name is one's."""
        system.get("matrix", "mem1")
        remarks = device_named(Path(system.file).stem, scenario)
        remarks.append(
            "matrix, vector, mem1: rates and efficiencies of Silicast's own device are used"
        )
        tables = system.tables("networks")
        if not tables:
            return remarks
        inner, outer = tables[0], tables[-1]
        if len(tables) > 2:
            remarks.append(f"networks: the first and the last of {len(tables)} are used")
        scenario["cluster"]["gpus_per_node"] = inner.count("size")
        if outer is not inner and (rate := outer.number("bandwidth", default=0.0)):
            scenario["cluster"]["inter_node"] = {
                "bandwidth_gb_per_s": rate,
                "latency_us": outer.number("latency", default=0.0) * 1e6,
            }
        outer.get("size")
        return remarks


def _model(fields: Fields) -> tuple[dict[str, Any], list[str]]:
    hidden, heads = fields.count("hidden"), fields.count("attn_heads")
    width = fields.count("attn_size", default=0, least=0)
    head_dim = 0 if width * heads == hidden else width
    model = DecoderSizes(
        layers=fields.count("num_blocks"), hidden=hidden, heads=heads, vocab=VOCABULARY,
        intermediate=fields.count("feedforward", default=4 * hidden), head_dim=head_dim,
        max_positions=fields.count("seq_size"), gated=False, activation="gelu", norm="layernorm",
        position="learned", tied=True, biases=True,
        name=fields.text("name", default=Path(fields.file).stem),
    )  # fmt: skip
    made, remarks = config_of(model)
    remarks.append(f"vocabulary: not stated; {VOCABULARY} is assumed (Calculon has no head)")
    return made, remarks
