"""`silicast scorecard`."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter

from silicast.app import status
from silicast.app.arguments import described
from silicast.app.console import show, warn, write_json
from silicast.app.flags import Json

if TYPE_CHECKING:
    from silicast.validation.leaderboard import SetScore

scorecard = App(
    name="scorecard",
    help="Score tools on the same measured cases, this one and others alike.",
    help_format="plaintext",
)

BOARD = Path("scorecard.html")
Boards = dict[str, list["SetScore"]]


@scorecard.command(name="cases")
@described()
def cases(*, output: Annotated[Path, Parameter(alias="-o")]) -> int:
    """Write cases without their truths, the truths, and what peers predict of them.

    Needs a checkout and the measured tables in SILICAST_DATA. Publish the hash that is printed
    before anybody submits, and keep truths.jsonl.

    Args:
        output: a folder for cases.jsonl, truths.jsonl and peers/.
    """
    from silicast.validation.checkout import scorecard as suites_of_checkout
    from silicast.validation.leaderboard import commitment_of

    with suites_of_checkout() as suites:
        counts = suites.public_cases(output, secrets.token_hex(16))
    truths = output.joinpath("truths.jsonl")
    show(
        f"{output}: {counts['cases']} cases, {counts['peers']} peers",
        f"hash of the truths: {commitment_of(truths)}",
    )
    return status.ANSWERED


@scorecard.command(name="check")
@described()
def check_submission(submission: Path, /, *, cases: Path, json: Json = False) -> int:
    """Check a submission: ids, metrics, numbers and intervals, before anything is scored.

    Args:
        submission: JSON Lines as `silicast batch` writes them, or a CSV file with the columns id,
            metric, estimate, p05 and p95; NAME.card.json beside it says which tool it is of.
        cases: the file of cases.
    """
    from silicast.validation.submissions import case_ids, read_submission

    read = read_submission(submission, case_ids(cases))
    if json:
        write_json({"card": read.card, "values": len(read.values), "remarks": read.remarks})
    else:
        show(f"{read.card.tool} {read.card.version}: {len(read.values)} values", *read.remarks)
    return status.ANSWERED


@scorecard.command(name="score")
@described()
def score(
    *submissions: Path,
    cases: Path,
    truth: Path,
    commitment: str = "",
    ledger: Path | None = None,
    json: Json = False,
) -> int:
    """Score submissions against truths: errors, intervals, choices, and how sure ranks are.

    Args:
        submissions: files that `scorecard check` accepts.
        cases: the file of cases.
        truth: the file of truths.
        commitment: the published hash of the truths; another file is refused.
        ledger: a file in which scored tools are noted: each is scored once a week.
    """
    from silicast.report.measurements.leaderboard import boards_table
    from silicast.validation.leaderboard import totals

    boards = _boards(submissions, cases, truth, commitment, ledger)
    if json:
        write_json(totals(boards))
    else:
        show(boards_table(boards))
    return status.ANSWERED


@scorecard.command(name="page")
@described()
def board_page(
    *submissions: Path,
    cases: Path,
    truth: Path,
    output: Annotated[Path, Parameter(alias="-o")] = BOARD,
    commitment: str = "",
) -> int:
    """Write the boards as one page.

    Args:
        submissions: files that `scorecard check` accepts.
        cases: the file of cases.
        truth: the file of truths.
        output: the file to write, .html.
        commitment: the published hash of the truths; another file is refused.
    """
    from silicast.core.files import write_atomically
    from silicast.report.measurements.leaderboard import boards_page
    from silicast.validation.leaderboard import commitment_of

    boards = _boards(submissions, cases, truth, commitment, None)
    write_atomically(output, boards_page(boards, commitment_of(truth)).encode())
    warn(f"{output}: the page")
    return status.ANSWERED


def _boards(
    submissions: tuple[Path, ...], cases: Path, truth: Path, commitment: str, ledger: Path | None
) -> Boards:
    from silicast.core.errors import SilicastError
    from silicast.validation.leaderboard import enter, leaderboard, now, read_truths
    from silicast.validation.submissions import case_ids, read_submission

    if not submissions:
        raise SilicastError("names no submission", field="SUBMISSIONS")
    ids = case_ids(cases)
    read = [read_submission(path, ids) for path in submissions]
    truths = read_truths(truth, set(ids), commitment)
    if ledger is not None:
        enter(ledger, [each.card.tool for each in read], now())
    for each in read:
        for remark in each.remarks:
            warn(f"{each.card.tool}: {remark}")
    return leaderboard(read, truths)
