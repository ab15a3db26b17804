"""Makes every shipped number from measured tables: ``make artefacts``.

    python -m lab.artefacts                   make what is stale, and what rests on it
    python -m lab.artefacts gemm moe          only these stages, and what they rest on if stale
    python -m lab.artefacts --check           say what is stale and why; status 1 if anything is
    python -m lab.artefacts --from-nothing    remove every artefact first
    python -m lab.artefacts --jobs 2          stages at a time
    python -m lab.artefacts --accept power sparse     a change of code that moves no number: runs
                                              these stages again, and if they make the same
                                              numbers accepts the code for all others
    python -m lab.artefacts --accept sparse --moved physics/gemm_mfma
                                              likewise constants that moved for architectures
                                              which the others do not rest on

Stages and their order stand in ``lab/chain.toml``. What a stage reads is observed while it runs and
written into the cards of what it makes, as hashes of its code, its tables and the constants that it
rests on. A stage whose hashes agree is not run again; one that makes the same numbers as before
makes nothing else stale.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Collection, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

import msgspec

from lab.chain import (
    CARDS_OF_HELD_OUT,
    before,
    content,
    maker_of,
    path_of,
    read,
    shipped,
    stages,
    with_stages,
)
from lab.reads import table_hash
from lab.scorecard.suite import data_folder
from lab.source_code import ROOT, code_hash
from silicast.core.errors import SilicastError
from silicast.core.files import write_atomically
from silicast.core.provenance import Provenance

AGAIN = "run `make artefacts`"
OTHER_CODE = "the code that makes"
_WRITING = threading.Lock()
"""Stages that run side by side write into one file of held-out provenance."""


def provenance_of(artefact: str) -> Provenance | None:
    """What an artefact was made from, as its card says; None = not recorded."""
    if artefact.startswith("held_out"):
        provenance = _cards_of_held_out().get(artefact)
    else:
        content_of_file = read(artefact)
        provenance = content_of_file.get("card", content_of_file).get("provenance")
    return None if provenance is None else msgspec.convert(provenance, Provenance)


def reasons(name: str, data: Path | None) -> list[str]:
    """Why a stage must run again; nothing if all that it made agrees with what it was made from.

    Args:
        data: the folder of measured tables, None = not there: tables are not compared.
    """
    stage, reasons = stages()[name], []
    for artefact in stage.makes:
        if not path_of(artefact).is_file():
            reasons.append(f"{artefact} is not there")
            continue
        provenance = provenance_of(artefact)
        if provenance is None:
            reasons.append(f"{artefact} does not say what it was made from")
            continue
        if provenance.content != content(artefact):
            reasons.append(f"{artefact} was changed by hand")
        if code_hash(stage.modules) not in (provenance.code, provenance.accepted):
            reasons.append(f"{OTHER_CODE} {artefact} changed")
        reasons += [
            f"{needed} that {artefact} rests on {why}" for needed, why in _moved(provenance, data)
        ]
    return reasons


def _moved(provenance: Provenance, data: Path | None) -> Iterator[tuple[str, str]]:
    """Inputs that are not what they were, and what became of them."""
    for artefact, value in provenance.constants.items():
        if not path_of(artefact).is_file():
            yield artefact, "is not there"
        elif content(artefact) != value:
            yield artefact, "changed"
    if data is not None:
        for table, value in provenance.data.items():
            if table_hash(data / table) != value:
                yield table, "changed"


def run_stage(name: str) -> list[str]:
    """Runs a stage and writes provenance into the cards of what it made.

    Returns:
        Artefacts that it read although it does not come after the stage that makes them: declare
        it in ``lab/chain.toml``.

    Raises:
        SilicastError: a command failed, or an artefact was not made.
    """
    stage = stages()[name]
    earlier = {artefact: _dated(artefact) for artefact in stage.makes}
    seen: dict[str, set[str]] = {"data": set(), "constants": set()}
    for command in stage.commands:
        for kind, names in _traced(name, command).items():
            seen[kind].update(names)
    read_first = seen["constants"] - set(stage.makes) - set(stage.also_reads)
    made_by = code_hash(stage.modules)
    tables = {table: table_hash(data_folder() / table) for table in sorted(seen["data"])}
    constants = {artefact: content(artefact) for artefact in sorted(read_first)}
    for artefact in stage.makes:
        if not path_of(artefact).is_file():
            raise SilicastError(f"stage {name} did not make {artefact}", file="lab/chain.toml")
        provenance = Provenance(content(artefact), made_by, tables, constants)
        with _WRITING:
            _write_card(artefact, provenance, earlier[artefact])
    return [
        f"reads {needed}: add {maker_of(needed) or 'a stage that makes it'!r} to `after`"
        for needed in constants
        if maker_of(needed) not in before(name)
    ]


def _traced(name: str, command: str) -> Mapping[str, list[str]]:
    """Tables and artefacts that a command read."""
    with tempfile.TemporaryDirectory() as folder:
        record = Path(folder) / "record.json"
        log = ROOT / "build" / "artefacts" / f"{name}.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("a", encoding="utf-8") as out:
            out.write(f"$ python -m {command}\n")
            out.flush()
            environment = {
                **os.environ,
                "OPENBLAS_NUM_THREADS": "1",
                "OMP_NUM_THREADS": "1",
                "PYTHONHASHSEED": "0",
            }
            done = subprocess.run(
                [sys.executable, "-m", "lab.traced", str(record), name, *command.split()],
                cwd=ROOT,
                stdout=out,
                stderr=subprocess.STDOUT,
                env=environment,
                check=False,
            )
        if done.returncode:
            raise SilicastError(
                f"stage {name}: `python -m {command}` ended with status {done.returncode}",
                file=str(log),
                hint="its output is in this file",
            )
        traced: dict[str, list[str]] = json.loads(record.read_text(encoding="utf-8"))
    return traced


def _dated(artefact: str) -> tuple[str, str]:
    """Hash and date of an artefact that is there: the date stays if its numbers do."""
    if not path_of(artefact).is_file() or artefact.startswith("held_out"):
        return "", ""
    content_of_file = read(artefact)
    return content(artefact), content_of_file.get("card", content_of_file)["date"]


def _write_card(artefact: str, provenance: Provenance, earlier: tuple[str, str]) -> None:
    """Adds provenance and date to the card of an artefact."""
    if artefact.startswith("held_out"):
        cards = {**_cards_of_held_out(), artefact: msgspec.to_builtins(provenance)}
        _write(CARDS_OF_HELD_OUT, dict(sorted(cards.items())))
        return
    content_of_file = read(artefact)
    card = content_of_file.get("card", content_of_file)
    before_, date = earlier
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    card["date"] = date if date and before_ == provenance.content else today
    card["provenance"] = msgspec.to_builtins(provenance)
    _write(path_of(artefact), content_of_file)


def _cards_of_held_out() -> dict[str, Any]:
    if not CARDS_OF_HELD_OUT.is_file():
        return {}
    cards: dict[str, Any] = msgspec.json.decode(CARDS_OF_HELD_OUT.read_bytes())
    return cards


def _write(path: Path, value: Mapping[str, Any]) -> None:
    write_atomically(path, msgspec.json.format(msgspec.json.encode(value), indent=1) + b"\n")


def stale(data: Path | None) -> dict[str, list[str]]:
    """Stage -> why it must run again; artefacts that no stage makes stand under ""."""
    table = {name: why for name in stages() if (why := reasons(name, data))}
    orphans = [
        f"{artefact} is made by no stage" for artefact in shipped() if not maker_of(artefact)
    ]
    return {**table, **({"": orphans} if orphans else {})}


def make(wanted: set[str], jobs: int) -> list[str]:
    """Runs the stages that are stale, each after those that it rests on.

    Returns:
        What the order of stages lacks, see :func:`run_stage`.
    """
    needed = set(wanted).union(*(before(name) for name in wanted))
    left = [name for name in stages() if name in needed]
    running: dict[Future[list[str]], tuple[str, float]] = {}
    finished: set[str] = set()
    lacking: list[str] = []
    with ThreadPoolExecutor(jobs) as pool:
        while left or running:
            for name in [stage for stage in left if before(stage) & needed <= finished]:
                if len(running) >= jobs:
                    break
                left.remove(name)
                if why := reasons(name, data_folder()):
                    print(f"{name}: {'; '.join(why[:3])}", flush=True)
                    running[pool.submit(run_stage, name)] = (name, time.monotonic())
                else:
                    finished.add(name)
            for future in wait(running, return_when=FIRST_COMPLETED).done if running else ():
                name, start = running.pop(future)
                lacking += [f"{name} {line}" for line in future.result()]
                print(f"{name}: made in {time.monotonic() - start:.0f} s", flush=True)
                finished.add(name)
    return lacking


def accept(sample: set[str], moved: Collection[str] = ()) -> None:
    """Accepts changed code and moved constants for numbers that they do not move, as a sample of
    stages shows.

    Stages that are stale for another reason stay so. A card then states both hashes of the code: of
    that which made its numbers, and of that which was accepted.

    Args:
        sample: stages to run again; they rest on what moved, as those do that are not run.
        moved: artefacts whose other numbers are accepted.

    Raises:
        SilicastError: no stage is named, or one of those named makes other numbers.
    """
    if not sample:
        raise SilicastError("names no stage", field="--accept", hint="name stages to run again")
    accepted = (OTHER_CODE, *(f"{name} that " for name in moved if path_of(name).is_file()))
    changed = [
        name
        for name in stages()
        if (why := reasons(name, data_folder())) and all(x.startswith(accepted) for x in why)
    ]
    for name in (stage for stage in stages() if stage in sample):
        earlier = {artefact: content(artefact) for artefact in stages()[name].makes}
        run_stage(name)
        others = [artefact for artefact, value in earlier.items() if content(artefact) != value]
        if others:
            raise SilicastError(
                f"stage {name} makes other numbers: {', '.join(others)}",
                field="--accept",
                hint=AGAIN,
            )
        print(f"{name}: the same numbers", flush=True)
    for name in changed:
        for artefact in stages()[name].makes:
            _accept(artefact, code_hash(stages()[name].modules), moved)


def _accept(artefact: str, code: str, moved: Collection[str]) -> None:
    """Writes into a card that code and constants of these hashes give its numbers too."""
    provenance = provenance_of(artefact)
    if provenance is None:
        return
    now = {needed: content(needed) for needed in moved if needed in provenance.constants}
    accepted = code if provenance.code != code else provenance.accepted
    again = msgspec.structs.replace(
        provenance, accepted=accepted, constants={**provenance.constants, **now}
    )
    if again != provenance:
        _write_card(artefact, again, _dated(artefact))


def remove_all() -> None:
    """Removes every artefact, to make all of them from measured tables alone."""
    for name in stages():
        for artefact in stages()[name].makes:
            for suffix in (".json", ".safetensors"):
                path_of(artefact).with_suffix(suffix).unlink(missing_ok=True)
    CARDS_OF_HELD_OUT.unlink(missing_ok=True)


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("stages", nargs="*", help="stages or artefacts; default: all")
    parser.add_argument("--check", action="store_true", help="only say what is stale and why")
    parser.add_argument("--moved", nargs="+", default=[], help="constants to accept likewise")
    parser.add_argument("--from-nothing", action="store_true", help="remove all artefacts first")
    parser.add_argument("--accept", action="store_true", help="code changed, numbers did not")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="stages at a time")
    options = parser.parse_args()
    try:
        wanted = with_stages(options.stages) or set(stages())
        if options.check:
            return _report(stale(_data_if_there()))
        if options.accept:
            accept(with_stages(options.stages), options.moved)
            return 0
        if options.from_nothing:
            remove_all()
        lacking = make(wanted, options.jobs)
    except SilicastError as error:
        print(f"artefacts: {error}", file=sys.stderr)
        return 1
    for line in lacking:
        print(f"artefacts: lab/chain.toml: {line}", file=sys.stderr)
    return 1 if lacking else 0


def _data_if_there() -> Path | None:
    try:
        return data_folder()
    except SilicastError:
        return None


def _report(table: Mapping[str, list[str]]) -> int:
    for name, why in table.items():
        for line in why:
            print(f"{name or 'no stage'}: {line}")
    if table:
        print(AGAIN)
    return 1 if table else 0


if __name__ == "__main__":
    sys.exit(main())
