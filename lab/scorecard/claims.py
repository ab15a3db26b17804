"""Claims about tools, ours among them, recounted from the rows that the measured tables hold.

How: "formula" = the tool's own arithmetic is evaluated; "stored" = predictions that the tool made
are held against measurements; "replayed" = our simulator runs the setting; "published" = nothing
was recounted.
"""

from __future__ import annotations

import csv
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean, median
from typing import Any, final

import numpy as np

from lab.scorecard.committed import summary_of
from lab.scorecard.suite import suite_facts
from lab.scorecard.suites.end_to_end import cases as whole_models
from lab.scorecard.tables import csv_records, read_columns, read_records
from silicast.core.decode import Strict, read_table
from silicast.scenario.answer import Answer
from silicast.scenario.run import reply_to

PAGE = "docs/how-to/check-the-accuracy.md"
MIB = 1 << 20
EXACT = 0.01
"""Percentage points within which a recount equals a claim."""


@final
class Claim(Strict, frozen=True):
    """One claim.

    Attributes:
        tool, claim, claimed, source, date: who says what, where and when.
        recount: what the rows say, "" = nothing was recounted; rows: how many there are.
        how: "formula", "stored", "replayed" or "published".
        verdict: what follows; effort: what it takes to run the tool.
    """

    tool: str
    claim: str
    claimed: str
    source: str
    verdict: str
    date: str = ""
    recount: str = ""
    rows: int = 0
    how: str = "published"
    effort: str = ""


@final
class PublishedClaims(Strict, frozen=True):
    """``claims.toml``."""

    published: list[Claim]


SURVEY_6 = {
    ("V100", "inf"): 5.87,
    ("V100", "train"): 8.91,
    ("A100-PCIE-40GB", "inf"): 8.63,
    ("T4", "inf"): 18.51,
    ("P4", "inf"): 27.10,
    ("MI100", "inf"): 10.80,
}
"""The survey's table 6: board and mode -> mean error of NeuSight, percent."""
SURVEY_7_NS = {
    "all_reduce": 57_426,
    "all_gather": 44_058,
    "reduce_scatter": 28_950,
    "all_to_all": 114_000,
}
"""The survey's table 7: nanoseconds of ASTRA-sim for 1 MiB on 8 devices."""
RING = {
    "all_reduce": (14, MIB // 4 // 8, 377),
    "all_gather": (7, MIB // 4, 385),
    "reduce_scatter": (7, MIB // 4 // 8, 307),
    "all_to_all": (28, MIB // 4 // 8, 328),
}
"""Steps, bytes of a step and split, and nanoseconds that all steps spend at their ends."""
LINK_NS, LINK_BYTES_PER_NS, SPLITS, ACTIVE = 936.25, 400 * 2**30 / 1e9, 4, 2


def neusight(data: Path) -> Iterator[Claim]:
    """Table 6: whole models, by board and mode."""
    errors: dict[tuple[str, str], list[float]] = defaultdict(list)
    for row in read_records(data / "neusight" / "model_e2e.parquet"):
        if row["in_146"] and row["neusight_e2e_ms"]:
            board = row["gpu"].removesuffix("-PCIE-32GB")
            errors[board, row["mode"]].append(
                100.0 * abs(row["neusight_e2e_ms"] / row["meas_e2e_ms"] - 1.0)
            )
    for key, claimed in SURVEY_6.items():
        of_key = errors.get(key, [])
        value = fmean(of_key) if of_key else math.nan
        yield Claim(
            tool="NeuSight",
            claim=f"whole models on {key[0]}, {key[1]}",
            claimed=f"{claimed} %",
            source="survey, table 6",
            recount=f"{value:.2f} %",
            rows=len(of_key),
            how="stored",
            verdict="equal" if abs(value - claimed) < EXACT else "differs",
            effort="trained weights are not published",
        )


def astra_ns(op: str) -> float:
    """ASTRA-sim's own arithmetic for 1 MiB on its switch of 8 devices, nanoseconds.

    >>> [astra_ns(op) == ns for op, ns in SURVEY_7_NS.items()]
    [True, True, True, True]
    """
    steps, size, ends = RING[op]
    wire = math.floor(LINK_NS + size / LINK_BYTES_PER_NS)
    return SPLITS / ACTIVE * (steps * 2 * wire + ends)


def astra(data: Path) -> Iterator[Claim]:
    """Table 7: the tool's times, which the survey takes for measured ones."""
    measured = {
        row["op"]: float(row["nccl_us"])
        for row in csv_records(data / "training" / "peer_astrasim_hgx_h100_vs_nccl.csv")
        if int(row["astra_comm_size"]) == MIB
    }
    for op, claimed in SURVEY_7_NS.items():
        value, nccl = astra_ns(op), 1e3 * measured[op]
        yield Claim(
            tool="ASTRA-sim",
            claim=f"{op} of 1 MiB on 8 H100",
            claimed=f"{claimed:,} ns",
            source="survey, table 7",
            recount=f"{value:,.0f} ns; NCCL takes {nccl:,.0f}",
            rows=1,
            how="formula",
            verdict=f"equal; {100.0 * (value / nccl - 1.0):+.0f} % off what NCCL measures"
            if value == claimed
            else "differs",
            effort="built from sources with pinned submodules, 200 s",
        )


def vidur(_data: Path) -> Iterator[Claim]:
    """Table 8's setting in our simulator: 2 requests a second, 128 to 512 tokens, 20 : 1."""
    times: dict[str, float] = {}
    restarts = 0.0
    for policy in ("vllm-v0", "sarathi"):
        reply = reply_to(_table_8(policy))
        if not isinstance(reply, Answer):
            yield Claim(
                tool="Vidur",
                claim="Sarathi against vLLM",
                claimed="12.2 %",
                how="replayed",
                source="survey, table 8",
                verdict=f"not answered: {reply.error.message}",
            )
            return
        times[policy] = reply.metrics["e2e_mean_ms"].estimate
        restarts += reply.metrics["preemptions"].estimate
    gain = 100.0 * (1.0 - times["sarathi"] / times["vllm-v0"])
    yield Claim(
        tool="Vidur",
        claim="Sarathi's mean latency below vLLM's",
        claimed="12.2 %",
        source="survey, table 8",
        recount=f"{gain:.1f} % on equal requests (Vidur itself: 1.6 %)",
        rows=200,
        how="replayed",
        effort="Python; profiles of each board",
        verdict="misread: 200 requests of one policy stand against 50 of the other",
    )
    yield Claim(
        tool="Vidur",
        claim="requests that vLLM preempts",
        claimed="53",
        source="survey, table 8",
        recount=f"{restarts:.0f} restarts",
        rows=200,
        how="replayed",
        verdict="misread: 53 waited while they held memory; none was restarted",
        effort="Python; profiles of each board",
    )


def _table_8(policy: str) -> dict[str, Any]:
    draw = np.random.default_rng(42)
    arrivals = np.cumsum(draw.exponential(0.5, 200))
    totals = draw.integers(128, 513, 200)
    rows = [
        {
            "arrival_s": float(at),
            "input_len": int(total) - max(1, round(int(total) / 21)),
            "output_len": max(1, round(int(total) / 21)),
        }
        for at, total in zip(arrivals, totals, strict=True)
    ]
    return {
        "task": "serving",
        "model": "Llama-2-7b",
        "device": "A100-SXM-80GB",
        "engine": {"name": "vllm-v0", "options": {"policy": policy}},
        "workload": {"arrival": {"kind": "trace", "rows": rows}},
    }


def timeloop(data: Path) -> Iterator[Claim]:
    """The survey's run of a mapper, beside runs of the same search."""
    rows = list(csv_records(data / "accel" / "resnet50_conv1_tool_runs.csv"))
    survey = next(row for row in rows if row["tool"].startswith("survey"))
    ours = [
        row for row in rows if row["tool"].startswith("timeloop") and "conv1" in row["workload"]
    ]
    best = min(float(row["fj_per_mac"]) for row in ours)
    yield Claim(
        tool="Timeloop",
        claim="ResNet-50's first layer on an Eyeriss-like chip",
        claimed=f"{float(survey['fj_per_mac']) / 1e3:g} pJ/MAC",
        source="survey, section 7.4",
        recount=f"{best / 1e3:.2f} to {max(float(r['fj_per_mac']) for r in ours) / 1e3:.2f} pJ/MAC "
        "with the length of the search",
        rows=len(ours),
        how="stored",
        effort="built from sources; minutes of search a layer",
        verdict="not a property of the chip: it moves with the search; the printed shares are those"
        " of another layer's shipped output",
    )


def stored(data: Path) -> Iterator[Claim]:
    """Tools whose predictions are stored beside measurements."""
    peers: dict[str, list[float]] = defaultdict(list)
    for case in whole_models(data):
        for name, value in case.peers["total_ms"].items():
            if math.isfinite(value) and math.isfinite(case.measured["total_ms"]):
                peers[name].append(100.0 * abs(value / case.measured["total_ms"] - 1.0))
    for name, errors in sorted(peers.items()):
        claimed = {"pipeweave": "8.5 %"}.get(name.casefold(), "none")
        yield _stored(name, "static batches, total", claimed, "PipeWeave's repository", errors)
    tables = read_records(data / "aiconfigurator" / "aiconfigurator_predictions_0.12.0.parquet")
    for metric, word in (("tpot", "TPOT"), ("ttft", "TTFT")):
        errors = [
            100.0 * abs(row[f"aic_{metric}_ms"] / row[f"silicon_{metric}_ms"] - 1.0)
            for row in tables
            if row[f"aic_{metric}_ms"] and row[f"silicon_{metric}_ms"]
        ]
        if errors:
            yield _stored(
                "aiconfigurator 0.12", f"{word}, silicon sample", "none", "run by us", errors
            )
    with (data / "training" / "peer_calculon_scored.csv").open() as stream:
        errors = [abs(float(row["err_pct"])) for row in csv.DictReader(stream)]
    yield _stored("Calculon", "training steps, dense", "3.65 % (its paper)", "run by us", errors)


def simumax(data: Path) -> Iterator[Claim]:
    """Training steps that SimuMax publishes beside its own measurements."""
    times: dict[tuple[str, str], float] = {}
    for row in read_records(data / "training" / "training_measured.parquet"):
        if row["source"].startswith("MooreThreads/SimuMax"):
            times[row["config_id"], row["metric"]] = float(row["value"])
    errors = [
        100.0 * abs(value / times[name, "step_time"] - 1.0)
        for (name, metric), value in times.items()
        if metric == "peer_pred_step_time" and (name, "step_time") in times
    ]
    if errors:
        yield _stored("SimuMax 1.2", "training steps on B200", "1-5 %", "its release", errors)


def llm_serving_sim(data: Path) -> Iterator[Claim]:
    """Requests of a run of vLLM that LLMServingSim simulated."""
    folder = data / "serving"
    simulated = read_columns(folder / "llmservingsim_sim_requests.parquet", ("TTFT", "TPOT"))
    measured = read_columns(
        folder / "llmservingsim_vllm_requests.parquet", ("ttft_from_queued_s", "tpot_s")
    )
    for name, column, claimed in (
        ("TTFT", "ttft_from_queued_s", "0.6 to 13.6 % by run"),
        ("TPOT", "tpot_s", "1.7 % at most"),
    ):
        ours_s, theirs_s = float(np.mean(measured[column])), float(np.mean(simulated[name])) / 1e9
        yield Claim(
            tool="LLMServingSim 2",
            claim=f"mean {name} of a run on an RTX 4090",
            claimed=claimed,
            source="its repository",
            rows=len(measured[column]),
            how="stored",
            recount=f"{100.0 * (theirs_s / ours_s - 1.0):+.1f} %",
            verdict="recounted on the one run that the tables hold",
            effort="profiles of the same board, model and engine",
        )


def _stored(tool: str, claim: str, claimed: str, source: str, errors: Sequence[float]) -> Claim:
    return Claim(
        tool=tool,
        claim=claim,
        claimed=claimed,
        source=source,
        rows=len(errors),
        how="stored",
        recount=f"{fmean(errors):.1f} % mean, {median(errors):.1f} % median",
        verdict="recounted on all stored rows",
    )


def ours() -> Iterator[Claim]:
    """What this repository says of itself, wherever another tool answers the same rows.

    Nothing is counted here: figures are those of the committed results.
    """
    for name in suite_facts():
        for scored in summary_of(name).get("metrics", ()):
            if not scored["peers"]:
                continue
            figures = scored["silicast"]
            peers = [
                f"{peer} {scored['others'][peer]['mean_ape']:.1f} %" for peer in scored["peers"]
            ]
            yield Claim(
                tool="Silicast",
                claim=f"suite {name}, {scored['metric']}",
                claimed=f"{figures['mean_ape']:.1f} % mean, {figures['median_ape']:.1f} % median, "
                f"{figures['bias_pct']:+.1f} % bias",
                source=f"docs/accuracy/{name}.md",
                rows=int(figures["rows"]),
                verdict=f"others on these rows: {', '.join(peers)}; "
                f"`silicast validate {name}` counts all again",
                effort="pip install silicast",
            )


def all_claims(data: Path) -> list[Claim]:
    """Every claim, recounted where rows are there.

    Raises:
        SilicastError: a table is not in the data folder.
    """
    counted: Iterable[Callable[[Path], Iterator[Claim]]] = (
        neusight,
        astra,
        vidur,
        timeloop,
        stored,
        simumax,
        llm_serving_sim,
    )
    published = read_table(Path(__file__).with_suffix(".toml"), PublishedClaims, PAGE).published
    return [*(claim for count in counted for claim in count(data)), *ours(), *published]


def claim_rows(claims: Sequence[Claim]) -> list[Mapping[str, str]]:
    """Claims as cells of a table."""
    return [
        {
            "tool": claim.tool,
            "claim": claim.claim,
            "claimed": claim.claimed,
            "recount": claim.recount or "-",
            "rows": str(claim.rows or "-"),
            "how": claim.how,
            "verdict": claim.verdict,
            "effort": claim.effort,
            "source": f"{claim.source} {claim.date}".strip(),
        }
        for claim in claims
    ]
