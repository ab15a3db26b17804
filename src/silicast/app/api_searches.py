"""From Python: what fits, nas and recommend search, and spaces of designs for agents."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from silicast.app.api import Predicted, as_flags, predict, refuse_unknown
from silicast.app.arguments import described
from silicast.core.packages import missing_package

if TYPE_CHECKING:
    from silicast.exploration.environment import DesignEnvironment
    from silicast.measurement.calibrating.sampled_search import SampledSearch


@described("fits")
def fits(
    *,
    device: str | dict[str, Any] = "",
    model: str | dict[str, Any] = "",
    context: int = 4096,
    users: int = 1,
    engine: str | None = None,
    most: int = 20,
    least_tokens_per_s: float = 5.0,
    servers: bool = False,
    train: bool = False,
    gpus: int = 1,
) -> Predicted:
    """Models that fit a device, in which format and how fast; or the devices of a model.

    Returns:
        The answer; ``why["fits"]`` lists the pairs, best first. With ``train``, ``why["trains"]``
        lists full fine-tuning, LoRA and QLoRA: whether each fits, with which batch and length.

    Raises:
        SilicastError: neither a device nor a model, an unknown one, or nothing fits.

    >>> import silicast
    >>> best = silicast.fits(device="RTX 4090", context=8192).why["fits"][0]
    >>> best["memory_gb"] <= best["usable_gb"], best["tokens_per_s"]["estimate"] > 5.0
    (True, True)
    """
    arguments = dict(locals())
    from silicast.app.commands.fits import fits_scenario

    return predict(fits_scenario(**arguments))


@described()
def nas(
    space: str,
    /,
    *,
    device: str,
    samples: str | Path | Sequence[str | Path] = (),
    budget_ms: float | None = None,
    accuracy: str | Path | Callable[[Sequence[str]], Sequence[float]] | None = None,
    evaluations: int = 20_000,
    top: int = 10,
    seed: int = 0,
) -> SampledSearch:
    """The networks of a search space that are best within a budget of time on a device.

    Args:
        space: nasbench201 or fbnet.
        device: that runs them: any name.
        samples: tables of latencies of about ten networks on the device (columns model and
            latency_ms), or calibrations made of such.
        budget_ms: most time of one inference.
        accuracy: a table of networks (columns model and accuracy) to choose from, or a function of
            names; left out, the networks with most multiplications within the budget are searched.
        evaluations: networks that a search looks at, at most.
        top: networks that are returned.

    Raises:
        SilicastError: an unknown space, samples that cannot be right, or a budget without samples
            of a device that is not known.

    >>> import silicast
    >>> best = silicast.nas("nasbench201", device="my board", top=1)
    >>> best.names[0].count("nor_conv_3x3"), best.networks.evaluated
    (6, 15625)
    """
    from silicast.measurement.calibrating.sampled_search import search_space

    files = [samples] if isinstance(samples, str | Path) else list(samples)
    return search_space(
        space,
        device,
        [Path(each) for each in files],
        budget_ms=budget_ms,
        accuracy=Path(accuracy) if isinstance(accuracy, str | Path) else accuracy,
        evaluations=evaluations,
        count=top,
        seed=seed,
    )


def design_environment(space: str | Path, *, steps: int = 100) -> DesignEnvironment:
    """An environment of gymnasium over the designs that ``silicast design search`` searches.

    Args:
        space: parameter file; each of its objectives states a ``reference``.
        steps: designs of an episode.

    Raises:
        SilicastError: the file is none, an objective has no reference, or gymnasium is not
            installed.
    """
    try:
        from silicast.exploration.environment import DesignEnvironment
    except ModuleNotFoundError as error:
        if error.name != "gymnasium":
            raise
        raise missing_package("gymnasium", "a design environment") from None
    from silicast.exploration.space_file import read_space
    from silicast.scenario.designs.design_models import design_problem

    return DesignEnvironment(design_problem(read_space(Path(space))), steps)


@described("serve", paths=True)
def recommend(
    *,
    model: str,
    device: str,
    gpus: int,
    slo: str,
    rate: float | None = None,
    trace: str | Path | None = None,
    input_len: int | None = None,
    output_len: int | None = None,
    range_ratio: float | None = None,
    engine: str | None = None,
    dtype: str | None = None,
    kv_dtype: str | None = None,
    vary: Mapping[str, Sequence[Any]] | None = None,
    seed: int = 0,
    price: float | str | None = None,
    price_where: str | None = None,
    **fields: Any,
) -> Predicted:
    """The plan that serves a traffic with the fewest devices, as ``silicast recommend`` finds it;
    ``why["recommendation"]`` has its scenario and the other plans.

    Args:
        gpus: the most devices to use.
        slo: what must be kept: ``"ttft_p99=2s,tpot_p99=40ms"``.
        engine: one, or several with commas between them; None = the default engine.
        dtype: format of the matrix products, or several; None = the checkpoint's.
        vary: field of a scenario of task serving -> its values to choose among:
            ``{"engine.options.max_num_seqs": [64, 256]}``.
        price: USD for an hour of the device, or as the command takes it.
        fields: further fields of a scenario.

    Raises:
        SilicastError: see :func:`silicast.predict`.

    >>> import silicast
    >>> answer = silicast.recommend(model="Llama-3.2-1B", device="h100", gpus=1, rate=4.0,
    ...                             slo="ttft_p99=1s", input_len=32, output_len=4)
    >>> answer.why["recommendation"]["best"]["plan"]
    'tp 1 x 1'
    """
    arguments = {**locals(), **as_flags(trace, price)}
    from silicast.app.recommending import names_of, recommend_scenario

    refuse_unknown(recommend, fields)
    scenario = recommend_scenario(
        arguments, gpus, names_of(engine, "engine"), names_of(dtype, "dtype"), vary
    )
    return predict({**scenario, **fields})
