"""Flags of `silicast serve` to a scenario: the same structure that a scenario file holds."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, final

from cyclopts import Parameter

from silicast.app.arguments import described, placed
from silicast.app.flags import engine_of, table_of
from silicast.app.price_flag import price_of, with_price
from silicast.app.slo_flag import slo_of
from silicast.core.errors import SilicastError


@final
@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
@described("serve")
class ServeFlags:
    """What serves which requests.

    Attributes:
        output_len: tokens generated for a request; left out, 128, or none of an encoder
            or an engine that answers in one pass.
    """

    model: str | None = None
    device: str
    rate: float | None = None
    concurrency: int | None = None
    trace: Path | None = None
    skip_bad_rows: bool = False
    input_len: int | None = None
    output_len: int | None = None
    requests: int | None = None
    range_ratio: float | None = None
    arrival: str | None = None
    prefix_share: float | None = None
    speculative: str | None = None
    lora: str | None = None
    slo: str | None = None
    engine: str | None = None
    engine_version: str | None = None
    option: Annotated[list[str] | None, Parameter(negative="")] = None
    from_log: Path | None = None
    from_launch: Path | None = None
    dtype: str | None = None
    kv_dtype: str | None = None
    power_w: float | None = None
    replicas: int | None = None
    prefill: int | None = None
    decode: int | None = None
    seed: int = 0
    price: str | None = None
    price_where: str | None = None


def serving_scenario(
    serve_flags: ServeFlags, parallel: dict[str, int], sweep: dict[str, Any] | None = None
) -> dict[str, Any]:
    """The scenario that the flags stand for; what was left out stays left out.

    Args:
        sweep: an arrival in place of the flags' own.

    Raises:
        SilicastError: not exactly one of ``rate``, ``concurrency``, ``trace`` and a sweep, or a
            trace that is not there; nothing names the model.
    """
    launched = _launched(serve_flags)
    model = serve_flags.model or str(launched.get("model", ""))
    if not model:
        raise SilicastError("is missing", field="--model", hint="or give --from-launch FILE")
    workload: dict[str, Any] = {"arrival": _arrival(serve_flags, sweep)}
    if serve_flags.trace is None:
        from silicast.scenario.reading.usual_lengths import usual_lengths

        workload |= usual_lengths(
            model, serve_flags.input_len, serve_flags.output_len, engine=serve_flags.engine
        )
    for name in ("input_len", "output_len", "requests", "range_ratio"):
        if getattr(serve_flags, name) is not None:
            workload[name] = getattr(serve_flags, name)
    if serve_flags.slo is not None:
        workload["slo"] = slo_of(serve_flags.slo)
    scenario: dict[str, Any] = {
        "format": 1,
        "task": "serving",
        "model": model,
        "device": serve_flags.device,
        "workload": workload,
    }
    if parallel:
        scenario["parallel"] = parallel
    engine = engine_of(
        serve_flags.engine, serve_flags.engine_version, serve_flags.option, "serving"
    )
    if engine is not None:
        scenario["engine"] = engine
    names = ("dtype", "kv_dtype", "power_w", "prefix_share")
    placed(scenario, {name: getattr(serve_flags, name) for name in names})
    for name in ("speculative", "lora"):
        if (text := getattr(serve_flags, name)) is not None:
            scenario[name] = table_of(name, text)
    scenario = _with_files(scenario, serve_flags, launched)
    if pools := _pools(serve_flags, launched):
        scenario["pools"] = pools
    if serve_flags.seed:
        scenario["seed"] = serve_flags.seed
    return with_price(
        scenario, price_of(serve_flags.price, serve_flags.price_where, serve_flags.device)
    )


def _launched(serve_flags: ServeFlags) -> dict[str, Any]:
    """What the launch file describes; {} = none is given."""
    if serve_flags.from_launch is None:
        return {}
    from silicast.app.from_launch import launched_by

    return launched_by(serve_flags.from_launch)


def _with_files(
    scenario: dict[str, Any], serve_flags: ServeFlags, launched: dict[str, Any]
) -> dict[str, Any]:
    """The scenario with what a launch file states, and over it a log of the server."""
    if serve_flags.from_log is not None:
        from silicast.app.from_log import with_log

        scenario = with_log(scenario, serve_flags.from_log)
    if serve_flags.from_launch is not None:
        from silicast.app.from_launch import with_launch

        scenario = with_launch(scenario, launched, serve_flags.from_launch)
    return scenario


def _pools(serve_flags: ServeFlags, launched: dict[str, Any]) -> dict[str, Any]:
    """Replicas alike, or pools that prefill and decode; nothing of one replica."""
    apart = {"prefill": serve_flags.prefill, "decode": serve_flags.decode}
    roles = [name for name, count in apart.items() if count is not None]
    theirs = any("role" in pool for pool in launched.get("pools", {}).values())
    count = serve_flags.replicas
    if theirs and (roles or count is not None):
        raise SilicastError(
            "the launch has pools of its own",
            field=f"--{roles[0]}" if roles else "--replicas",
            file=str(serve_flags.from_launch),
            hint="leave it out, or silicast import FILE -o scenario.json, and change it there",
        )
    if not roles:
        usual = count is None or (count == 1 and "pools" not in launched)
        return {} if usual else {"replicas": {"count": count}}
    missing = [f"--{name}" for name in apart if name not in roles]
    if missing or count is not None:
        raise SilicastError(
            "stands beside --replicas" if not missing else f"goes with {missing[0]}",
            field=f"--{roles[0]}",
            hint="give --prefill and --decode, or --replicas",
        )
    return {name: {"role": name, "count": count} for name, count in apart.items()}


def _arrival(serve_flags: ServeFlags, sweep: dict[str, Any] | None) -> dict[str, Any]:
    trace = None if serve_flags.trace is None else {"kind": "trace", "path": str(serve_flags.trace)}
    if serve_flags.skip_bad_rows:
        if trace is None:
            raise SilicastError("goes with --trace", field="--skip-bad-rows")
        trace["bad_rows"] = "skip"
    ways: dict[str, dict[str, Any] | None] = {
        "--rate": None
        if serve_flags.rate is None
        else {"kind": serve_flags.arrival or "poisson", "rate_per_s": serve_flags.rate},
        "--concurrency": None
        if serve_flags.concurrency is None
        else {"kind": "closed", "concurrency": serve_flags.concurrency},
        "--trace": trace,
        "--sweep": sweep,
    }
    flags = [flag for flag, way in ways.items() if way is not None]
    if serve_flags.arrival is not None and serve_flags.rate is None:
        raise SilicastError("goes with --rate", field="--arrival")
    if len(flags) != 1:
        raise SilicastError(
            f"{' and '.join(flags)} are both given" if flags else "nothing says how requests come",
            field=flags[0] if flags else "--rate",
            hint=f"give one of {', '.join(ways)}",
        )
    if serve_flags.trace is not None and not serve_flags.trace.is_file():
        wrong = "is no plain file" if serve_flags.trace.exists() else "does not exist"
        wrong = "is a folder, not a file" if serve_flags.trace.is_dir() else wrong
        raise SilicastError(wrong, kind="io", field="--trace", file=str(serve_flags.trace))
    arrival = ways[flags[0]]
    assert arrival is not None
    return arrival
