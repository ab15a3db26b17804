"""Speculative decoding and adapters as servers are told of them."""

from __future__ import annotations

from typing import Any

from silicast.core.errors import SilicastError, unmodelled
from silicast.formats.fields import Fields
from silicast.formats.server_launches.model_facts import ModelFacts, ModelLookup

Tree = dict[str, Any]
_METHODS = {
    "eagle": "eagle",
    "eagle3": "eagle",
    "ngram": "ngram",
    "nextn": "mtp",
    "mtp": "mtp",
    "draft": "draft",
    "draft_model": "draft",
    "drafttarget": "draft",
    "standalone": "draft",
}
_TABLES = ("speculative-config", "speculative-decoding-config")
_METHOD = ("method", "decoding-type")
_DRAFTED = ("num-speculative-tokens", "num-nextn-predict-layers", "max-draft-len")
_DRAFTER = ("model", "speculative-model", "speculative-model-dir", "draft-model")


def speculative_of(
    engine: str, fields: Fields, model: ModelFacts | None, lookup: ModelLookup, remarks: list[str]
) -> Tree:
    """Table ``speculative`` of the flags, {} where nothing is drafted.

    Raises:
        SilicastError: a method that is not modelled, or no number of drafted tokens.
    """
    method, drafter = _first(fields, _METHOD), _first(fields, _DRAFTER)
    method = str(method or fields.get("speculative-algorithm") or "").casefold()
    drafter = drafter or fields.get("speculative-model", "speculative-draft-model-path")
    k = _first(fields, _DRAFTED)
    k = k or fields.get("num-speculative-tokens", "speculative-num-steps")
    tokens, branches = (
        fields.get("speculative-num-draft-tokens"),
        fields.get("speculative-eagle-topk"),
    )
    if not (method or drafter or k):
        return {}
    if not method:
        method = "ngram" if drafter in ("[ngram]", "ngram") else "draft"
    kind = "mtp" if method.endswith("_mtp") else _METHODS.get(method)
    if kind == "eagle" and not drafter and model is not None and model.drafts:
        kind = "mtp"
    field = "--speculative-config" if engine == "vllm" else "--speculative-algorithm"
    if kind is None:
        raise unmodelled(
            f"drafts by {method[:40]!r} are not modelled",
            field,
            f"modelled: {', '.join(sorted(_METHODS))}",
            file=fields.file,
        )
    if kind == "ngram" and not k and isinstance(tokens, int):
        k = tokens - 1
    if not isinstance(k, int) or isinstance(k, bool) or k < 1:
        raise SilicastError(
            "the number of drafted tokens is left to the engine",
            field=field,
            file=fields.file,
            hint="state it: num_speculative_tokens of vllm, --speculative-num-steps of sglang",
        )
    table: Tree = {"method": kind, "k": k}
    if isinstance(tokens, int) and tokens > k + 1 and branches not in (None, 1):
        table["tree"] = tokens
    if isinstance(drafter, str) and (
        kind == "draft" or (kind == "eagle" and lookup(drafter) is not None)
    ):
        table["draft"] = drafter
    elif isinstance(drafter, str) and kind == "eagle":
        remarks.append(f"{drafter[:80]} drafts: taken as one layer of the model")
    return table


def lora_of(fields: Fields) -> Tree:
    """Table ``lora`` of the flags, {} where there are no adapters."""
    rank = fields.integer("max-lora-rank", default=16, least=1)
    most = fields.integer("max-loras", "max-loras-per-batch", default=1, least=1)
    names = fields.get("lora-modules", "lora-paths")
    is_on = fields.flag("enable-lora") or names is not None
    return {"rank": rank, "adapters": most} if is_on else {}


def _first(fields: Fields, names: tuple[str, ...]) -> Any:
    return fields.get(*(f"{table}.{name}" for table in _TABLES for name in names))
