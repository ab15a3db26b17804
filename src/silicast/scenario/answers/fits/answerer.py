"""Task ``fits``: which models of the catalog fit a device, or which devices hold a model."""

from __future__ import annotations

import math
from typing import Any, ClassVar, final

from silicast.composition.engines.engine import Engine, find_engine, mixing_engines
from silicast.composition.step.machine import Machine
from silicast.core.errors import SilicastError, unsupported
from silicast.core.prediction import Domain, Quantity
from silicast.hardware.device import Device
from silicast.hardware.platforms import listed, runs_on
from silicast.scenario.answer import Answer, answer
from silicast.scenario.answerer import Answerer, ignored, refuse_unmodelled, register
from silicast.scenario.answers.fits.candidates import (
    WIDE_BITS,
    FittingPair,
    PossiblePair,
    devices_of_catalog,
    fits_of,
    is_wide,
    made_for,
    mixes_to_try,
    models_of_catalog,
    on_device,
    quickest_token_s,
)
from silicast.scenario.answers.fits.training_fits import training_ways
from silicast.scenario.answers.inference.answerer import by_names
from silicast.scenario.decode import Scenario
from silicast.scenario.resolve import device_of, engine_of, evidence_of, model_of
from silicast.scenario.workloads import FitsWorkload
from silicast.workload.models.model import ModelConfig

UNUSED = ("cluster", "host", "seed", "router", "precision", "parallel")
GB = 1e9


@register
@final
class FitsAnswerer(Answerer):
    """Metrics of the best pair: ``output_tokens_per_s`` of all users together, ``decode_step_ms``
    and ``memory_gb``. ``why.fits`` lists the pairs, best first: of a device, models by their
    parameters among those that are quick enough; of a model, devices by their speed. With ``train``
    those of a training step, and ``why.trains`` lists the ways of training.
    """

    task: ClassVar[str] = "fits"

    def answer(self, scenario: Scenario) -> Answer:
        work = scenario.workload
        assert isinstance(work, FitsWorkload)
        if work.train:
            refuse_unmodelled(scenario, "speculative", "colocation", "pools", "links")
            return training_ways(scenario, work)
        refuse_unmodelled(scenario, "speculative", "lora", "colocation", "pools", "links")
        engine = _engine(scenario)
        if scenario.raw.model is not None:
            _check_writes(model_of(scenario), work.context)
        if scenario.raw.device is not None:
            pairs, why = _models(scenario, work, engine)
        else:
            pairs, why = _devices(scenario, work, engine)
        if not pairs:
            raise SilicastError(
                why["none"], field="workload", hint="less context, fewer users, or a larger device"
            )
        return _answer(scenario, work, pairs, why)


def _engine(scenario: Scenario) -> Engine:
    """The engine, by default the one for local use.

    Raises:
        SilicastError: an engine that runs checkpoints as they are: nothing is left to choose.
    """
    engine = engine_of(scenario)
    if not engine.weight_mix:
        raise unsupported(
            f"{engine.name} runs checkpoints as they are published",
            "engine",
            f"{' and '.join(mixing_engines())} choose among formats; for {engine.name} ask task "
            "inference",
        )
    return engine


def _models(
    scenario: Scenario, work: FitsWorkload, engine: Engine
) -> tuple[list[FittingPair], dict[str, Any]]:
    """Models that fit the device: those with most parameters that are quick enough, timed."""
    device = device_of(scenario)
    _check_runs(engine, device)
    machine = Machine(device, engine, evidence=evidence_of(scenario, device))
    models = (
        [model_of(scenario)] if scenario.raw.model is not None else models_of_catalog(work.context)
    )
    least = work.least_tokens_per_s
    fits = list(on_device(machine, models, work.context, work.users, least))
    fits.sort(key=lambda fit: not fit.is_wide)  # stable: by parameters within each
    pairs: list[FittingPair] = []
    slow = 0
    for fit in fits:
        if len(pairs) == work.most:
            break
        pair = fit.quick()
        if pair is None:
            slow += 1
        else:
            pairs.append(pair)
    fitting = len(fits)
    none = f"no model of {len(models)} fits {device.name} with {work.users} x {work.context} tokens"
    if fitting:
        none = f"all {fitting} models that fit {device.name} make {_fewer(work)}"
    return pairs, {"tried": len(models), "fitting": fitting, "slow": slow, "none": none}


def _check_writes(model: ModelConfig, context: int) -> None:
    """Raises where a model writes no text, or is not made for so long a context."""
    if not model.causal or model.encoder is not None:
        raise unsupported(
            f"{model.name} is no decoder: fits compares models by tokens they write",
            "model",
            "task inference predicts one on a stated device",
        )
    if not made_for(model, context):
        raise SilicastError(
            f"{model.name} is made for {model.max_positions} tokens, found {context}",
            field="workload.context",
            hint="less context",
        )


def _check_runs(engine: Engine, device: Device) -> None:
    if not runs_on(device, engine.runs_on):
        others = [name for name in mixing_engines() if runs_on(device, find_engine(name).runs_on)]
        raise unsupported(
            f"{engine.name} does not run on {device.name}",
            "device",
            f"it runs on {listed(engine.runs_on)}; "
            + (
                f"--engine {others[0]} runs here"
                if others
                else "`silicast infer --model NAME "
                f"--device {device.name}` predicts one model here, as if its engine ran"
            ),
        )


def _devices(
    scenario: Scenario, work: FitsWorkload, engine: Engine
) -> tuple[list[FittingPair], dict[str, Any]]:
    """Devices that hold the model, the quickest first; only as many as are asked for are timed in
    full, those that could be quicker first.
    """
    model = model_of(scenario)
    devices = [
        each for each in devices_of_catalog(servers=work.servers) if runs_on(each, engine.runs_on)
    ]
    mixes = mixes_to_try(engine.weight_mix)
    fits: list[PossiblePair] = []
    for device in devices:
        machine = Machine(device, engine, evidence=evidence_of(scenario, device))
        of_device = fits_of(model, machine, mixes, work.context, work.users)
        pair = PossiblePair.from_fits(of_device, work.context, work.users, work.least_tokens_per_s)
        fits += [pair] if pair else []
    fits.sort(key=lambda fit: (not fit.is_wide, quickest_token_s(fit.widest)))
    pairs: list[FittingPair] = []
    slow = 0
    for fit in fits:
        best = sorted(pair.token_s.estimate for pair in pairs)
        last_s = best[work.most - 1] if len(best) >= work.most else math.inf
        behind = last_s < math.inf and not (fit.is_wide and fit.may_reach(last_s))
        if behind and fit.may_reach(math.inf):
            continue
        timed_pair = fit.quick()
        if timed_pair is None:
            slow += 1
        else:
            pairs.append(timed_pair)
    pairs.sort(key=lambda pair: (not is_wide(pair.deployment), pair.token_s.estimate))
    none = f"{model.name} fits none of {len(devices)} devices with this context"
    if fits:
        none = f"{model.name} makes {_fewer(work)} on all {len(fits)} devices that hold it"
    why = {"tried": len(devices), "fitting": len(fits), "slow": slow}
    return pairs[: work.most], {**why, "none": none}


def _fewer(work: FitsWorkload) -> str:
    return f"fewer than {work.least_tokens_per_s:g} tokens/s (--least-tokens-per-s)"


def _answer(
    scenario: Scenario, work: FitsWorkload, pairs: list[FittingPair], why: dict[str, Any]
) -> Answer:
    best = pairs[0]
    rate = Quantity(
        work.users / best.token_s.estimate,
        work.users / best.token_s.p95,
        work.users / best.token_s.p05,
    )
    size = best.memory.total / GB
    why.pop("none")
    memory, named = by_names(Quantity(size, size, size), best.memory.weights, best.deployment)
    assumed = best.deployment.model.assumed if scenario.raw.model is not None else ()
    order = "parameters" if scenario.raw.device is not None else "tokens a second"
    domains: list[Domain] = [pair.domain for pair in pairs]
    return answer(
        metrics={
            "output_tokens_per_s": rate,
            "decode_step_ms": best.token_s.times(1e3),
            "memory_gb": memory,
        },
        bound={},
        tier="analytic",
        domain=next((name for name in ("out", "near") if name in domains), "in"),
        warnings=[*ignored(scenario, *UNUSED), *assumed, *named],
        why={
            **why,
            "order": f"{order}, formats below {WIDE_BITS:g} bits a weight behind others",
            "context": work.context,
            "users": work.users,
            "fits": [_row(pair, work.users) for pair in pairs],
        },
    )


def _row(pair: FittingPair, users: int) -> dict[str, Any]:
    """One pair for people and programs; rates of one user."""
    memory, token = pair.memory, pair.token_s
    return {
        "model": pair.deployment.model.name,
        "device": pair.deployment.device.name,
        "weights": pair.weights,
        "parameters_b": round(pair.parameters / 1e9, 2),
        "active_b": round(pair.active / 1e9, 2),
        "memory_gb": round(memory.total / GB, 6),
        "weights_gb": round(memory.weights / GB, 6),
        "kv_cache_gb": round(memory.kv_cache / GB, 6),
        "usable_gb": round(memory.usable / GB, 6),
        "tokens_per_s": _three(1.0 / token.estimate, 1.0 / token.p95, 1.0 / token.p05),
        "output_tokens_per_s": round(users / token.estimate, 1),
        "prompt_tokens_per_s": round(pair.prompt_tokens_per_s),
        "domain": pair.domain,
    }


def _three(estimate: float, low: float, high: float) -> dict[str, float]:
    return {"estimate": round(estimate, 1), "p05": round(low, 1), "p95": round(high, 1)}
