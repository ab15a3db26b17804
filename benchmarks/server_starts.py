"""Whether servers start, and the tokens of their KV cache, against what engines printed.

    python -m benchmarks.server_starts [OUT.json]

Launches are those of ``server_starts.toml``, each with its source, and of measured tables:
``blis_vllm_step_traces_h100`` has the blocks that vLLM 0.15.1 printed, and every run of suites
``serving`` and ``serving-throughput`` started. Nothing is simulated. Of a size that is printed in
GiB, the tokens in proportion. Exit status 1: a launch of the file that ran is refused, or one that
did not start is predicted to. Measured runs that are refused are listed: the share of memory that
they were launched with is not recorded.
"""

from __future__ import annotations

import json
import statistics
import sys
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from lab.scorecard.suite import data_folder
from lab.scorecard.suites import serving, serving_throughput
from lab.scorecard.tables import read_records
from silicast.core.errors import SilicastError
from silicast.core.files import write_atomically
from silicast.scenario.answers.serving.answerer import prepared
from silicast.scenario.decode import decode
from silicast.serving.capacity.printed_cache import printed_cache

SERVERS = Path(__file__).with_suffix(".toml")
BLIS = "serving/blis_vllm_step_traces_h100.parquet"
BLIS_MODELS = {"llama-2-70b": "Llama-2-70b", "codellama-34b": "CodeLlama-34b"}
BLOCK_TOKENS = 16
NEAR_PCT = 5.0
SHORT = {"requests": 1, "input_len": 500, "output_len": 8}

Tree = dict[str, Any]


def launches(data: Path) -> list[Tree]:
    """Servers that printed their cache, or did not start."""
    servers: list[Tree] = tomllib.loads(SERVERS.read_text(encoding="utf-8"))["servers"]
    printed = {
        (row["model"], row["tp"], row["kv.blocks_total_gpu"])
        for row in read_records(data / BLIS)
        if row["model"] in BLIS_MODELS
    }
    servers += [
        {
            "source": f"inference-sim/inference-sim, step traces of {model}",
            "model": BLIS_MODELS[model],
            "device": "h100",
            "version": "0.15.1",
            "parallel": {"tp": tp},
            "blocks": blocks,
        }
        for model, tp, blocks in sorted(printed)
    ]
    return servers


def scenario(server: Mapping[str, Any]) -> Tree:
    """One short request to a server."""
    engine = {"name": "vllm", "version": server["version"], "options": server.get("options", {})}
    return {
        "task": "serving",
        "model": server["model"],
        "device": server["device"],
        "parallel": server.get("parallel", {}),
        "engine": engine,
        "workload": {**SHORT, "arrival": {"kind": "closed", "concurrency": 1}},
    }


def cache(tree: Mapping[str, Any]) -> tuple[int, float]:
    """Tokens and GiB of a server's cache.

    Raises:
        SilicastError: it does not start.
    """
    spec = prepared(decode(dict(tree))).served.fleet.entry
    printed = printed_cache(spec.deployment, spec.spec.limits, spec.spec.layout)
    return printed.tokens, printed.gib


def row_of(server: Mapping[str, Any]) -> Tree:
    """What is predicted of a server beside what it printed."""
    row = {name: server[name] for name in ("source", "model", "device", "version")}
    row |= {"solved": server.get("solved", False), "started": server.get("starts", True)}
    try:
        tokens, gib = cache(scenario(server))
    except SilicastError as error:
        return row | {"starts": False, "refusal": error.message}
    row |= {"starts": True, "tokens": tokens}
    printed = server.get("tokens") or server.get("blocks", 0) * BLOCK_TOKENS
    if not (printed or "gib" in server):
        return row
    ratio = gib / server["gib"] if "gib" in server else tokens / printed
    return row | {"printed": printed or round(tokens / ratio), "off_pct": 100.0 * (ratio - 1.0)}


def refused(data: Path) -> Iterator[tuple[str, str]]:
    """Deployment -> why it is refused ("" = it starts), of all that measured runs ran on."""
    seen: set[str] = set()
    for case in (*serving.cases(data), *serving_throughput.cases(data)):
        tree = dict(case.scenario)
        work = tree["workload"]
        lengths = {name: work[name] for name in ("input_len", "output_len")}
        tree["workload"] = {
            **lengths,
            "requests": 1,
            "arrival": {"kind": "closed", "concurrency": 1},
        }
        name = json.dumps(tree, sort_keys=True)
        if name in seen:
            continue
        seen.add(name)
        try:
            cache(tree)
        except SilicastError as error:
            yield name, str(error)
        else:
            yield name, ""


def main() -> int:
    """Prints and writes the figures."""
    data = data_folder()
    rows = [row_of(server) for server in launches(data)]
    ran = dict(refused(data))
    off: dict[str, list[float]] = {name: [] for name in ("solved", "others")}
    for row in rows:
        if "off_pct" in row:
            off["solved" if row["solved"] else "others"].append(abs(row["off_pct"]))
    every = [*off["solved"], *off["others"]]
    wrong = [row["source"] for row in rows if row["starts"] != row["started"]]
    why = {name: reason for name, reason in ran.items() if reason}
    result = {
        "printed_caches": len(every),
        "within_5_pct": sum(each <= NEAR_PCT for each in every),
        "mean_off_pct": statistics.fmean(every),
        "mean_off_pct_of_rows_not_solved_from": statistics.fmean(off["others"]),
        "starts_or_not": len(rows),
        "starts_or_not_right": len(rows) - len(wrong),
        "wrong": wrong,
        "deployments_of_measured_runs": len(ran),
        "of_those_refused": len(why),
        "refusals": sorted(set(why.values())),
        "servers": rows,
    }
    text = msgspec.json.format(msgspec.json.encode(_rounded(result)), indent=1).decode() + "\n"
    if len(sys.argv) > 1:
        write_atomically(Path(sys.argv[1]), text.encode())
    print(text)
    return 1 if wrong else 0


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return round(value, 2)
    if isinstance(value, dict):
        return {name: _rounded(each) for name, each in value.items()}
    return [_rounded(each) for each in value] if isinstance(value, list) else value


if __name__ == "__main__":
    sys.exit(main())
