"""`silicast reproduce`."""

from __future__ import annotations

from pathlib import Path

from silicast.app import status
from silicast.app.arguments import described
from silicast.app.console import show, write_json
from silicast.app.flags import Calibrations, Json


@described()
def reproduce(
    hash: str,  # noqa: A002 - the word of the command
    /,
    *,
    store: Path,
    folder: Path = Path(),
    calibration: Calibrations = None,
    json: Json = False,
) -> int:
    """Answer a stored question again, and say whether the answer is the same.

    Exit status: 0 if it is, byte for byte, 3 if it is not.

    Args:
        hash: the key of a row of `silicast results`, or its beginning.
        store: the folder of the store.
        folder: where relative paths of the scenario start.
    """
    import msgspec

    from silicast.report.tasks.sweep import reproduced_report
    from silicast.runner.results import reproduced
    from silicast.runner.store import AnswerStore
    from silicast.scenario.run import package_hash

    made = reproduced(AnswerStore(store).checked(), hash, folder, tuple(calibration or ()))
    if json:
        write_json({**msgspec.to_builtins(made), "same": made.same})
    else:
        show(reproduced_report(made, package_hash()))
    return status.ANSWERED if made.same else status.NOT_ANSWERED
