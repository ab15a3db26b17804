"""Breaks core formulas one at a time and counts how many of the mutants the tests notice.

    python -m lab.mutants [PACKAGE ...] [--count 25]

`lab/mutants.toml` lists modules and their tests. cosmic-ray makes the mutants: one operator, number
or comparison changed, a term left out, a maximum for a minimum. A sample of each package is drawn
by the hash of what is changed, so that it stays the same while other lines change. Everything runs
in a copy of the tree under build/mutants; what was run there and has not changed is not run again.
A mutant whose tests take far more CPU time than usual is killed. Each package that is through is
recorded in benchmarks/results/mutants.json and docs/accuracy/mutants.md.
"""

from __future__ import annotations

import argparse
import ast
import datetime
import hashlib
import os
import resource
import shutil
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, Literal, final

import msgspec
from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code
from cosmic_ray.operators.operator import Operator
from cosmic_ray.plugins import get_operator

ROOT = Path(__file__).parents[1]
TABLE = ROOT / "lab" / "mutants.toml"
FOLDER = ROOT / "build" / "mutants"
TREE, RESULTS = FOLDER / "tree", FOLDER / "results.jsonl"
RECORD = ROOT / "benchmarks" / "results" / "mutants.json"
PAGE = ROOT / "docs" / "accuracy" / "mutants.md"
COPIED = ("src", "tests", "lab", "benchmarks", "docs", "examples", "pyproject.toml", "README.md")

HEADER = """# Mutants

Whether the tests notice a wrong formula: `make mutants` changes one operator, number or comparison
of a core formula at a time, leaves a term out or takes a maximum for a minimum, and runs the tests
that `lab/mutants.toml` names for the module. Each package's mutants are a sample of the positions
where something can be changed. The score is the share killed of those that are not equivalent.
"""
Change = tuple[str, str, str, str]
"""Module, function, line before and after."""

COUNT = 25
"""Mutants of a package, unless told otherwise."""
SLACK_S = 30.0
"""CPU seconds that a mutant's tests may take beyond those of all tests of its package's sample."""

REPLACED = (
    "BinaryOperator_Add_Sub", "BinaryOperator_Sub_Add", "BinaryOperator_Mul_Div",
    "BinaryOperator_Div_Mul", "BinaryOperator_FloorDiv_Div", "BinaryOperator_Mod_FloorDiv",
    "BinaryOperator_Pow_Mul", "BinaryOperator_BitAnd_BitOr", "ComparisonOperator_Lt_LtE",
    "ComparisonOperator_LtE_Lt", "ComparisonOperator_Gt_GtE", "ComparisonOperator_GtE_Gt",
    "ComparisonOperator_Eq_NotEq", "ComparisonOperator_NotEq_Eq", "ComparisonOperator_Is_IsNot",
    "ComparisonOperator_IsNot_Is", "UnaryOperator_USub_UAdd", "UnaryOperator_Delete_Not",
    "AndWithOr", "OrWithAnd", "TrueWithFalse", "FalseWithTrue", "BreakWithContinue",
)  # fmt: skip


class DropTerm(Operator):
    """Leaves a term out of a sum: ``a + b`` becomes ``a``."""

    def mutation_positions(self, node: Any) -> Iterator[tuple[Any, Any]]:
        if node.type == "arith_expr":
            for term in node.children[2::2]:
                yield term.start_pos, term.end_pos

    def mutate(self, node: Any, index: int) -> Any:
        del node.children[2 * index + 1 : 2 * index + 3]
        return node

    @classmethod
    def examples(cls) -> tuple[Any, ...]:
        return ()


class SwapExtremes(Operator):
    """The smallest for the largest, and the other way round."""

    OTHER: ClassVar = {"max": "min", "min": "max", "maximum": "minimum", "minimum": "maximum"}

    def mutation_positions(self, node: Any) -> Iterator[tuple[Any, Any]]:
        if node.type == "name" and node.value in self.OTHER and _is_called(node):
            yield node.start_pos, node.end_pos

    def mutate(self, node: Any, index: int) -> Any:
        node.value = self.OTHER[node.value]
        return node

    @classmethod
    def examples(cls) -> tuple[Any, ...]:
        return ()


def _is_called(name: Any) -> bool:
    after = name.get_next_leaf()
    return after is not None and after.value == "("


@final
@dataclass(frozen=True)
class Position:
    """Where an operator may change a module, in an order that does not depend on other lines.

    Attributes:
        function: qualified name of the definition around it.
        occurrence: of the operator in the module.
    """

    module: str
    function: str
    operator: Operator
    occurrence: int
    order: str


@final
@dataclass(frozen=True)
class Mutant:
    """One change of a module.

    Attributes:
        function: qualified name of the definition around it.
        before, after: the lines that are changed, without indentation.
        code: the whole changed module.
    """

    module: str
    function: str
    before: str
    after: str
    code: str

    @property
    def change(self) -> Change:
        """Names it."""
        return self.module, self.function, self.before, self.after


class Equivalent(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A mutant that no input can tell from the original, and why."""

    module: str
    function: str
    before: str
    after: str
    why: str

    @property
    def change(self) -> Change:
        """Names the mutant."""
        return self.module, self.function, self.before, self.after


class Result(msgspec.Struct, frozen=True):
    """How one mutant ended.

    Attributes:
        state: hash of the module and of its tests.
    """

    state: str
    package: str
    module: str
    function: str
    before: str
    after: str
    outcome: Literal["killed", "survived"]

    @property
    def change(self) -> Change:
        """Names the mutant."""
        return self.module, self.function, self.before, self.after


class Package(msgspec.Struct, frozen=True):
    """What the tests of a package noticed when it was last run.

    Attributes:
        commit: of the tree.
        positions: where an operator may change its modules.
        results: of the sample.
    """

    date: str
    commit: str
    positions: int
    results: list[Result]


class Table(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is broken, and the tests of it: package -> module -> files."""

    packages: dict[str, dict[str, list[str]]]
    equivalent: list[Equivalent] = []


@cache
def table() -> Table:
    """The table of the repository."""
    return msgspec.toml.decode(TABLE.read_bytes(), type=Table)


def path_of(module: str) -> str:
    """Relative to the root."""
    return "src/" + module.replace(".", "/") + ".py"


def positions_of(module: str, source: str) -> Iterator[Position]:
    """Everything that an operator may change in a module."""
    nodes, lines = list(ast_nodes(get_ast(source))), source.splitlines()
    functions = _functions(source)
    for operator in _operators():
        indices = [
            (node, mutation_position)
            for node in nodes
            for mutation_position in operator.mutation_positions(node)
        ]
        for occurrence, (node, (start, _)) in enumerate(indices):
            line = lines[start[0] - 1]
            if line.lstrip().startswith("@") or line[: start[1]].endswith("strict="):
                continue  # how Python treats a formula
            if node.search_ancestor("fstring"):
                continue  # what a message says
            if node.type == "operator" and node.parent.type in ("param", "parameters"):
                continue  # whether an argument is passed by name
            function = functions[start[0]]
            parts = (
                module,
                function,
                lines[start[0] - 1].strip(),
                start[1],
                type(operator).__name__,
                sum(span[1][0] == start for span in indices[:occurrence]),
            )
            order = hashlib.sha256(repr(parts).encode()).hexdigest()
            yield Position(module, function, operator, occurrence, order)


def _operators() -> list[Operator]:
    names = [f"core/Replace{name}" for name in REPLACED]
    operators = [get_operator(name)() for name in (*names, "core/NumberReplacer")]
    return [*operators, DropTerm(), SwapExtremes()]


def _functions(source: str) -> dict[int, str]:
    """Line -> qualified name of the innermost definition around it; "" = of the module."""
    functions: dict[int, str] = defaultdict(str)

    def enter(node: ast.AST, name: str) -> None:
        for child in ast.iter_child_nodes(node):
            inner = name
            if isinstance(child, ast.FunctionDef | ast.ClassDef):
                inner = f"{name}.{child.name}".lstrip(".")
                for line in range(child.lineno, (child.end_lineno or 0) + 1):
                    functions[line] = inner
            enter(child, inner)

    enter(ast.parse(source), "")
    return functions


def _changed_lines(source: str, code: str) -> tuple[str, str]:
    old, new = source.splitlines(), code.splitlines()
    start = next(n for n, (a, b) in enumerate(zip(old, new, strict=False)) if a != b)
    end = next(
        n for n, (a, b) in enumerate(zip(reversed(old), reversed(new), strict=False)) if a != b
    )
    start = min(start, len(old) - end, len(new) - end)
    sides = (lines[start : len(lines) - end] for lines in (old, new))
    before, after = (" ".join(line.strip() for line in lines) for lines in sides)
    return before, after


def sources_of(package: str) -> dict[str, str]:
    """Module -> its text, in the copied tree."""
    return {
        module: (TREE / path_of(module)).read_text(encoding="utf-8")
        for module in table().packages[package]
    }


def sample(package: str, count: int) -> list[Mutant]:
    """Different mutants of a package that compile, the same ones as long as their lines stay."""
    sources = sources_of(package)
    indices = [position for module in sources for position in positions_of(module, sources[module])]
    seen = {ast.dump(ast.parse(source)) for source in sources.values()}
    mutants: list[Mutant] = []
    for position in sorted(indices, key=lambda position_: position_.order):
        source = sources[position.module]
        code = mutate_code(source, position.operator, position.occurrence)
        try:
            meaning = ast.dump(ast.parse(code))
        except SyntaxError:
            continue
        if meaning not in seen:
            seen.add(meaning)
            lines = _changed_lines(source, code)
            mutants.append(Mutant(position.module, position.function, *lines, code))
        if len(mutants) == count:
            break
    return mutants


def copy_tree() -> None:
    """The tree as it is, where mutants may be written."""
    shutil.rmtree(TREE, ignore_errors=True)
    ignored = shutil.ignore_patterns("__pycache__", "_build", ".*_cache")
    for name in COPIED:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, TREE / name, ignore=ignored)
        else:
            shutil.copy(ROOT / name, TREE / name)


def tests_pass(files: Sequence[str], seconds: float) -> tuple[bool, float]:
    """Whether the tests in files pass in so many CPU seconds; and those that they took."""

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_CPU, (int(seconds), int(seconds) + 5))

    # bytecode is kept: a mutant is written seconds after the last run, so that none is stale
    environment = os.environ | {"PYTHONPATH": f"{TREE / 'src'}:{TREE}"}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider"]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [*command, "-m", "not full", *files],
        cwd=TREE,
        env=environment,
        check=False,
        capture_output=True,
        preexec_fn=limit,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    taken = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    return done.returncode == 0, taken


def run(package: str, count: int) -> Iterator[Result]:
    """Ends of a package's mutants; those of an earlier run where nothing of them has changed.

    Raises:
        SystemExit: tests of a module fail before it is changed.
    """
    known_results = {earlier.change: earlier for earlier in results()}
    tests = {
        module: [path_of(module), *files] for module, files in table().packages[package].items()
    }
    states = {module: _state(files) for module, files in tests.items()}
    mutants = sample(package, count)
    new = [
        x
        for x in mutants
        if x.change not in known_results or known_results[x.change].state != states[x.module]
    ]
    seconds = 0.0
    if new:
        files = dict.fromkeys(file for mutant in new for file in tests[mutant.module])
        passed, seconds = tests_pass(list(files), 3600.0)
        if not passed:
            sys.exit(f"mutants: tests of {package} fail as it is")
    for mutant in mutants:
        if mutant not in new:
            yield known_results[mutant.change]
            continue
        path = TREE / path_of(mutant.module)
        original = path.read_text(encoding="utf-8")
        try:
            path.write_text(mutant.code, encoding="utf-8")
            passed, _ = tests_pass(tests[mutant.module], seconds + SLACK_S)
        finally:
            path.write_text(original, encoding="utf-8")
        outcome: Literal["killed", "survived"] = "survived" if passed else "killed"
        result = Result(states[mutant.module], package, *mutant.change, outcome=outcome)
        with RESULTS.open("ab") as file:
            file.write(msgspec.json.encode(result) + b"\n")
        yield result


def results() -> list[Result]:
    """Of all runs in this tree."""
    if not RESULTS.exists():
        return []
    return [msgspec.json.decode(line, type=Result) for line in RESULTS.read_bytes().splitlines()]


def _state(files: Sequence[str]) -> str:
    digest = hashlib.sha256()
    for file in files:
        digest.update((TREE / file).read_bytes())
    return digest.hexdigest()[:16]


def record(package: str, ends: list[Result]) -> None:
    """Adds a package's run to what is committed, and writes the page anew."""
    described = subprocess.run(
        ["git", "describe", "--always", "--dirty"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    positions = sum(
        1 for module, source in sources_of(package).items() for _ in positions_of(module, source)
    )
    today = f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d}"
    packages = recorded()
    packages[package] = Package(today, described.stdout.strip(), positions, ends)
    RECORD.write_bytes(msgspec.json.format(msgspec.json.encode(packages), indent=1) + b"\n")
    PAGE.write_text(page(packages), encoding="utf-8")


def recorded() -> dict[str, Package]:
    """What is committed: package -> its last run."""
    if not RECORD.exists():
        return {}
    return msgspec.json.decode(RECORD.read_bytes(), type=dict[str, Package])


def page(packages: Mapping[str, Package]) -> str:
    """The page of the documentation."""
    why = {mutant.change: mutant.why for mutant in table().equivalent}
    lines = [HEADER, "| package | positions | sample | killed | equivalent | survived | score |"]
    lines += ["|---|---:|---:|---:|---:|---:|---:|"]
    total = [0, 0, 0, 0, 0]
    runs = [(name, packages[name]) for name in table().packages if name in packages]
    for name, run_ in runs:
        tally = _tally(run_, why)
        total = [a + b for a, b in zip(total, tally, strict=True)]
        lines.append(_row(f"{name} ({run_.date}, {run_.commit})", tally))
    lines += [_row("all", total), "", "## Survivors", ""]
    survivors = [
        result for _, run_ in runs for result in run_.results if result.outcome != "killed"
    ]
    lines += [_listed(survivor) for survivor in survivors if survivor.change not in why] or [
        "None."
    ]
    lines += ["", "## Equivalent: no input tells them from the original", ""]
    lines += [
        f"{_listed(survivor)}\n  {why[survivor.change]}"
        for survivor in survivors
        if survivor.change in why
    ] or ["None."]
    return "\n".join(lines) + "\n"


def _tally(run_: Package, why: Mapping[Change, str]) -> list[int]:
    killed = sum(result.outcome == "killed" for result in run_.results)
    same = sum(result.outcome != "killed" and result.change in why for result in run_.results)
    count = len(run_.results)
    return [run_.positions, count, killed, same, count - killed - same]


def _row(name: str, tally: Sequence[int]) -> str:
    _, count, killed, same, _ = tally
    score = f"{100 * killed / max(count - same, 1):.0f} %"
    return "| " + " | ".join([name, *map(str, tally), score]) + " |"


def _listed(result: Result) -> str:
    return (
        f"- `{result.module}.{result.function}`: `{result.before}` "
        f"as `{result.after or '(nothing)'}`"
    )


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("packages", nargs="*", help="default: all")
    parser.add_argument("--count", type=int, default=COUNT, help="mutants of each package")
    options = parser.parse_args()
    copy_tree()
    for package in options.packages or table().packages:
        ends = []
        for result in run(package, options.count):
            ends.append(result)
            print(f"{result.outcome:8} {result.module} {result.function}", flush=True)
            if result.outcome == "survived":
                print(f"    - {result.before}\n    + {result.after}", flush=True)
        record(package, ends)
    return 0


if __name__ == "__main__":
    sys.exit(main())
