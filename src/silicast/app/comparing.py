"""What is compared: devices, plans or users in `compare`, several devices in other commands.

`silicast compare` and `silicast.compare` ask about a batch on many devices, or about users;
`capacity` and `train` ask one question on several: `--device h100,h200`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Literal

from silicast.app import status
from silicast.app.console import progress, show, warn, write_json
from silicast.app.predict import Tree, predicted, refused, require_measured
from silicast.core.errors import SilicastError

if TYPE_CHECKING:
    from silicast.report.tasks.training import WholeRun
    from silicast.scenario.answers.inference.comparison import Candidate


GPUS = "--gpus"
USUAL_SPEED = 20.0
"""Tokens a second of a user where none is stated: somewhat quicker than people read."""


def demand_of(
    users: int | None, tokens_per_user: float | None, batch: int
) -> tuple[int, float] | None:
    """Users and what each wants; None = a batch is asked for."""
    if users is None:
        if tokens_per_user is not None:
            raise SilicastError("is of --users: give both", field="--tokens-per-user")
        return None
    if batch != 1:
        raise SilicastError(
            f"stands in place of one batch, and --batch is {batch}",
            field="--users",
            hint="keep one of them",
        )
    if users < 1:
        raise SilicastError(f"expected at least 1, found {users}", field="--users")
    speed = USUAL_SPEED if tokens_per_user is None else tokens_per_user
    if not 0.0 < speed < float("inf"):
        raise SilicastError(f"expected more than 0, found {speed:g}", field="--tokens-per-user")
    return users, speed


def _gpus_of(text: str | None, plans: list[dict[str, int]]) -> int | Literal["node", "best"] | None:
    if text is None:
        return None
    if any(name in plan for plan in plans for name in ("tp", "pp")):
        raise SilicastError("stands beside tp or pp", field=GPUS, hint="keep one of them")
    if text in ("node", "best"):
        return "node" if text == "node" else "best"
    if not text.isdecimal() or not int(text):
        raise SilicastError(
            f"expected node, best or how many, found {text[:40]!r}",
            field=GPUS,
            hint="for example 8",
        )
    return int(text)


def candidates(
    scenario: dict[str, Any],
    devices: list[str],
    plans: list[dict[str, int]],
    demand: tuple[int, float] | None,
    price: list[str] | None,
    price_where: str | None,
    gpus: str | None = None,
) -> Iterator[Candidate]:
    """Each device under each plan, with its price.

    Args:
        demand: users and the tokens a second that each sees; None = a batch is asked for.
        price: device=2.5 or files; price_where: which prices of files count.
        gpus: "node", "best" or how many of each; None = the fewest that fit.

    Raises:
        SilicastError: ``gpus`` beside users or of another form, a price that cannot be read, or is
            of no device among these.
    """
    from silicast.scenario.answers.inference.comparison import carrying, compared

    prices = None
    if price:
        from silicast.exploration.prices import price_list

        prices = price_list(price, price_where, devices)
    elif price_where is not None:
        raise SilicastError("chooses among prices: give --price", field="--price-where")
    if demand is None:
        return compared(scenario, devices, plans, prices, _gpus_of(gpus, plans))
    if gpus is not None:
        raise SilicastError(
            "stands beside --users, which counts the devices", field=GPUS, hint="keep one of them"
        )
    return carrying(scenario, devices, *demand, plans, prices)


def devices_of(text: str) -> list[str]:
    """Names with commas between them.

    >>> devices_of("h100, h200"), devices_of("h100")
    (['h100', 'h200'], ['h100'])
    """
    return list(dict.fromkeys(name.strip() for name in text.split(",") if name.strip())) or [text]


def refuse_with_several(given: Mapping[str, object]) -> None:
    """Refuses flags that are of one device.

    Args:
        given: flag -> its value; None = left out.

    Raises:
        SilicastError: one is given.
    """
    for flag, value in given.items():
        if value is not None:
            raise SilicastError(
                "is of one device", field=flag, hint=f"leave {flag} out, or one device"
            )


def answered_for(
    devices: list[str],
    scenario_of: Callable[[str], Tree],
    task: str,
    *,
    json: bool,
    strict: bool = False,
    run_of: Callable[[str, Tree], WholeRun] | None = None,
) -> int:
    """Answers a question for each device and shows them side by side.

    Args:
        scenario_of: device -> its scenario.
        task: whose table is shown, "capacity" or "training".
        run_of: device and its answer -> a whole run of training on it.

    Raises:
        SilicastError: no device can answer and no JSON was asked for.
    """
    from silicast.report.answers import title
    from silicast.report.tasks.side_by_side import side_by_side

    replies: dict[str, Tree] = {}
    head = ""
    try:
        with progress("devices", len(devices)) as advance:
            for name in devices:
                scenario = scenario_of(name)
                head = head or title({**scenario, "device": " / ".join(devices)})
                replies[name] = predicted(scenario)
                if strict:
                    require_measured(replies[name])
                advance(len(replies))
    except KeyboardInterrupt:
        if not replies:
            raise
        warn(f"interrupted: {len(replies)} of {len(devices)} were predicted")
    if json:
        write_json([{"device": name, **reply} for name, reply in replies.items()])
    elif not any(reply["ok"] for reply in replies.values()):
        raise refused(next(iter(replies.values())))
    else:
        answered = {name: reply for name, reply in replies.items() if reply["ok"]}
        runs = {name: run_of(name, reply) for name, reply in answered.items()} if run_of else {}
        show(side_by_side(head, task, replies, runs))
    if len(replies) < len(devices):
        return status.INTERRUPTED
    whole = all(reply["ok"] for reply in replies.values())
    return status.ANSWERED if whole else status.NOT_ANSWERED
