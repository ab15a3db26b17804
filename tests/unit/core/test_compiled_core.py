"""The compiled core: when it runs, and that answers are the same bits with it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import warnings
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from silicast.core.compiled_core import HELD, MODES, SWITCH, CoreFinder, sources_hash
from silicast.core.errors import SilicastError
from tests.architecture.source_tree import ROOT
from tests.sampling import number

VERSION = "1.2.3"
MODULE = "silicast.serving.simulation.event_loop"
CORE = ROOT / "core"
SIMULATIONS = 150
CORPUS = number(120)
"""Scenarios of all tasks."""


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    """Files that a core is made from."""
    file = tmp_path / "sources" / f"{MODULE.replace('.', '/')}.py"
    file.parent.mkdir(parents=True)
    file.write_text("LOOP = 1\n", encoding="utf-8")
    return tmp_path / "sources"


@pytest.fixture
def core(sources: Path, tmp_path: Path) -> SimpleNamespace:
    """One that fits to them, but whose module is no extension module."""
    suffix = EXTENSION_SUFFIXES[0]
    file = tmp_path / "core" / f"{MODULE.replace('.', '/')}{suffix}"
    file.parent.mkdir(parents=True)
    file.write_bytes(b"no extension module")
    return SimpleNamespace(
        __file__=str(tmp_path / "core" / "__init__.py"),
        VERSION=VERSION,
        SUFFIX=suffix,
        SOURCES_HASH=sources_hash([MODULE], str(sources)),
        FIRST=MODULE,
        MODULES=(MODULE,),
    )


def refusal(core: Any, sources: Path, mode: str = "auto") -> str:
    """Why Python answers; it is said by a warning, and the module is not found."""
    finder = CoreFinder(core, mode, VERSION, str(sources))
    with pytest.warns(RuntimeWarning, match="Python answers"):
        assert finder.find_spec(MODULE) is None
    with warnings.catch_warnings():  # once
        warnings.simplefilter("error")
        assert finder.find_spec(MODULE) is None
    assert finder.description == f"pure Python: {finder.refusal()}"
    return finder.refusal()


def test_a_core_of_another_version_is_refused(core: SimpleNamespace, sources: Path) -> None:
    core.VERSION = "1.2.2"
    assert "version 1.2.2, silicast of 1.2.3" in refusal(core, sources)


def test_a_core_of_another_processor_is_refused(core: SimpleNamespace, sources: Path) -> None:
    core.SUFFIX = ".cpython-39-sparc.so"
    assert "another Python or processor" in refusal(core, sources)


def test_a_core_of_other_files_is_refused(core: SimpleNamespace, sources: Path) -> None:
    (sources / f"{MODULE.replace('.', '/')}.py").write_text("LOOP = 2\n", encoding="utf-8")
    assert "other files" in refusal(core, sources)
    (sources / f"{MODULE.replace('.', '/')}.py").unlink()
    assert "other files" in refusal(core, sources)


def test_a_core_that_is_damaged_is_refused(core: SimpleNamespace, sources: Path) -> None:
    assert "cannot be loaded" in refusal(core, sources)


def test_a_core_that_is_not_whole_is_refused(core: SimpleNamespace, sources: Path) -> None:
    core.SIZES = (20,)
    assert f"damaged ({MODULE} has 19 bytes of 20)" in refusal(core, sources)
    Path(CoreFinder(core, "auto", VERSION, str(sources))._file(MODULE)).unlink()
    assert f"damaged ({MODULE} is missing)" in refusal(core, sources)
    assert "states no VERSION" in refusal(SimpleNamespace(__file__="x"), sources)


def test_other_modules_are_not_looked_for(core: SimpleNamespace, sources: Path) -> None:
    assert CoreFinder(core, "require", VERSION, str(sources)).find_spec("json") is None


def test_off_is_silent(core: SimpleNamespace, sources: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert CoreFinder(core, "off", VERSION, str(sources)).find_spec(MODULE) is None
        assert CoreFinder(None, "auto", VERSION, str(sources)).find_spec(MODULE) is None


@pytest.mark.parametrize("mode", ["require", "always"])
def test_what_is_required_and_not_there_is_an_error(mode: str) -> None:
    finder = CoreFinder(None, mode, VERSION)
    with pytest.raises(SilicastError) as caught:
        finder.find_spec(HELD[0])
    assert caught.value.field == SWITCH
    wanted = "not installed" if mode in MODES else "expected auto, off, require, found 'always'"
    assert wanted in str(caught.value)


def test_every_module_of_the_core_is_a_file_and_every_type_is_of_one() -> None:
    lines = (CORE / "modules.txt").read_text(encoding="utf-8").splitlines()
    modules = {line for line in lines if line and not line.startswith("#")}
    assert set(HELD) <= modules
    for module in modules:
        assert (ROOT / "src" / f"{module.replace('.', '/')}.py").is_file(), module
    typed = {path.relative_to(CORE / "types") for path in (CORE / "types").rglob("*.pxd")}
    named = {".".join(path.with_suffix("").parts) for path in typed if path.stem != "__init__"}
    assert named <= modules


def run(mode: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Python in a process of its own."""
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        env={**os.environ, SWITCH: mode},
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_command_says_once_that_its_core_is_old_and_answers(tmp_path: Path) -> None:
    folder = tmp_path / "silicast_core"
    folder.mkdir()
    lines = [f"MODULES = {HELD!r}", "VERSION = '0.0.1'", "SUFFIX = SOURCES_HASH = FIRST = ''"]
    (folder / "__init__.py").write_text("\n".join(lines), encoding="utf-8")
    command = [sys.executable, "-m", "silicast", "serve", "--model", "Qwen3-0.6B"]
    command += ["--device", "h100", "--concurrency", "1", "--requests", "1", "--output-len", "2"]
    path = os.pathsep.join((str(tmp_path), str(ROOT / "src"), os.environ.get("PYTHONPATH", "")))
    environment = {**os.environ, "PYTHONPATH": path, SWITCH: "auto"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    (line,) = done.stderr.splitlines()
    assert line.startswith("warning: silicast-core is of version 0.0.1, silicast of ")
    assert "Qwen3-0.6B" in done.stdout


def with_core() -> None:
    """Skips where none is installed that is made from these files."""
    done = run("require", "-c", f"import {HELD[0]}")
    if done.returncode:
        last = done.stderr.strip().splitlines()[-1]
        pytest.skip(f"NOT CHECKED: no compiled core (`make core`): {last}")


def test_simulations_have_the_same_bits(tmp_path: Path) -> None:
    """All policies, with times, steps, gaps, blocks and preemptions."""
    with_core()
    digests = []
    for mode in ("require", "off"):
        file = tmp_path / f"{mode}.json"
        command = ("-m", "benchmarks.same_simulations", "write", str(file), str(SIMULATIONS))
        assert run(mode, *command).returncode == 0
        digests.append(json.loads(file.read_text(encoding="utf-8")))
    assert digests[0] == digests[1]
    assert len(set(digests[0])) > SIMULATIONS // 2


SERVED: list[dict[str, Any]] = [
    {"model": "Llama-3.1-8B", "device": "h100", "engine": "vllm"},
    {"model": "Llama-3.1-8B", "device": "l40s", "engine": "sglang"},
    {"model": "Qwen3-30B-A3B", "device": "h200", "engine": "trtllm"},
    {"model": "Gemma-3-27B", "device": "h100", "engine": "vllm", "parallel": {"tp": 2}},
]
"""With and without a window, experts and links."""


def test_answers_have_the_same_bits(tmp_path: Path) -> None:
    """Prices of steps among them: times, clocks, energies and intervals."""
    with_core()
    arrival = {"kind": "poisson", "rate_per_s": 6.0}
    lengths = {"input_len": 700, "output_len": 90, "range_ratio": 0.5, "requests": 80}
    work = {"arrival": arrival, **lengths}
    scenarios = tmp_path / "scenarios.jsonl"
    lines = [json.dumps({"task": "serving", **each, "workload": work}) for each in SERVED]
    scenarios.write_text("\n".join(lines) + "\n", encoding="utf-8")
    replies = []
    for mode in ("require", "off"):
        done = run(mode, "-m", "silicast", "batch", str(scenarios))
        assert done.returncode == 0, done.stderr
        replies.append(done.stdout)
    assert replies[0] == replies[1]
    assert len(replies[0].splitlines()) == len(SERVED)


def test_a_corpus_of_all_tasks_has_the_same_bytes() -> None:
    with_core()
    done = run("require", "-m", "benchmarks.same_answers", "core", str(CORPUS))
    assert done.returncode == 0, done.stdout
    assert "the same bytes" in done.stdout


INTERRUPTED = """
import signal, time
import numpy as np
from tests.property.serving_cases import PlainPrices, ServingCase
from silicast.serving.simulation.scheduler import Limits
from silicast.serving.traffic.requests import Requests

count = 400_000
at = np.arange(count, dtype=np.int64) * 10_000_000
requests = Requests.from_arrays(at, np.full(count, 200), np.full(count, 100))
simulation = ServingCase(requests, PlainPrices(), Limits(64, 8192, 100_000)).simulation()
signal.signal(signal.SIGPROF, signal.default_int_handler)
start = time.process_time()
signal.setitimer(signal.ITIMER_PROF, 0.5)
try:
    simulation.run()
except KeyboardInterrupt:
    print(time.process_time() - start)
"""


def test_an_interrupt_stops_the_loop_within_a_fifth_of_a_second() -> None:
    """The interrupt comes after half a second of processor time."""
    with_core()
    done = run("require", "-c", INTERRUPTED)
    assert 0.4 < float(done.stdout) < 0.7, done.stderr


def test_the_version_says_what_runs() -> None:
    with_core()
    assert run("require", "-m", "silicast", "--version").stdout.endswith("(compiled core)\n")
    assert run("off", "-m", "silicast", "--version").stdout.endswith("(pure Python)\n")
