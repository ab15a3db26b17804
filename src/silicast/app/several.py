"""One question on several devices: `--device h100,h200` of `capacity` and `train`."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from silicast.app import status
from silicast.app.console import progress, show, warn, write_json
from silicast.app.predict import Tree, predicted, refused, require_measured
from silicast.core.errors import SilicastError


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
) -> int:
    """Answers a question for each device and shows them side by side.

    Args:
        scenario_of: device -> its scenario.
        task: whose table is shown, "capacity" or "training".

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
        show(side_by_side(head, task, replies))
    if len(replies) < len(devices):
        return status.INTERRUPTED
    whole = all(reply["ok"] for reply in replies.values())
    return status.ANSWERED if whole else status.NOT_ANSWERED
