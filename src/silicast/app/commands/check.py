"""`silicast check`."""

from __future__ import annotations

from pathlib import Path

import msgspec

from silicast.app import status
from silicast.app.arguments import described
from silicast.app.console import show, warn, write_json
from silicast.app.flags import Json
from silicast.scenario.reading.numbers import share_of


@described()
def check(
    *scenarios: Path,
    baseline: Path,
    max_regress: str = "3%",
    junit: Path | None = None,
    json: Json = False,
) -> int:
    """Predict scenarios again and compare them with earlier answers, for an engine's own tests.

    A case fails where a metric became worse by more than --max-regress, or is no longer answered.
    Exit status: 0 if none fails, 3 if one does, 2 if a file cannot be read.

    Args:
        scenarios: JSON Lines of scenarios, or single scenario files.
        baseline: answers that `silicast batch` wrote before the change.
        max_regress: by how much a metric may become worse.
        junit: a file for the checks as a report in JUnit's XML.
    """
    from silicast.report.measurements.drift import check_table
    from silicast.validation.regression import check_cases, write_junit

    most = share_of(max_regress, "--max-regress")
    checks = check_cases(scenarios, baseline, most)
    if junit is not None:
        write_junit(junit, checks)
        warn(f"{junit}: the report")
    if json:
        write_json([msgspec.to_builtins(each) for each in checks])
    else:
        show(check_table(checks, most))
    return status.NOT_ANSWERED if any(each.failure for each in checks) else status.ANSWERED
