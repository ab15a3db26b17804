"""Compares the parameter counts of the catalog's models with the published ones.

    python benchmarks/parameters.py            writes docs/reference/parameters.md
    python benchmarks/parameters.py --check    compares with the committed page

Deterministic; seconds.
"""

from __future__ import annotations

import sys
from decimal import ROUND_HALF_UP, Decimal
from pathlib import Path

from silicast.workload.models.counting import parameters
from silicast.workload.models.lookup import catalog_tables, find_model
from silicast.workload.models.model import ModelConfig
from silicast.workload.models.model_file import ModelHeader, ParametersTable

PAGE = Path(__file__).resolve().parents[1] / "docs" / "reference" / "parameters.md"
TOLERANCE = 0.005
"""Largest difference between our count and a published one."""
HEAD = """\
# Parameter counts

Every model of the catalog: what Silicast counts from its sizes, and what its publisher states.
{equal} of {stated} published counts are met to the last parameter or round to the printed number,
the others differ by less than 0.5 %. Where a publisher leaves parts out (layers for multi-token
prediction, an encoder of images, the embedding) our count beside it leaves them out too.
`python benchmarks/parameters.py` writes this page; a test compares.

| model | counted | published | difference | published by |
|---|---|---|---|---|
"""
OTHERS = """
## Without a count of their own

Quantised and cut checkpoints, later versions of the same structure, and shapes that nobody
published a count of.

| model | counted | why |
|---|---|---|
"""


def counted_as(model: ModelConfig, published: ParametersTable) -> int:
    """Parameters of ``model`` in the parts that the published count covers.

    >>> from silicast.workload.models.lookup import find_model
    >>> counted_as(find_model("Llama-3.1-8B"), ParametersTable(source=""))
    8030261248
    """
    table = model.vocab * model.hidden
    total = parameters(model, mtp=published.mtp)
    total += 2 * table * model.mtp_layers if published.mtp_copies else 0
    total -= 0 if published.encoder else model.encoder_parameters
    return total - (0 if published.embedding else table)


def difference(model: ModelConfig, published: ParametersTable) -> float:
    """Relative difference of our count from the published one; 0 where the published one is
    rounded and ours rounds to it.

    Raises:
        ValueError: no count is stated.
    """
    ours = counted_as(model, published)
    if published.exact is not None:
        return ours / published.exact - 1.0
    if published.rounded is None:
        raise ValueError(f"no published count of {model.name}")
    printed = Decimal(published.rounded[:-1])
    unit = {"B": 10**9, "M": 10**6, "T": 10**12}[published.rounded[-1]]
    if (Decimal(ours) / unit).quantize(printed, ROUND_HALF_UP) == printed:
        return 0.0
    return float(Decimal(ours) / (printed * unit)) - 1.0


def page() -> str:
    """The page's text."""
    lines, others, equal = [], [], 0
    for _, table in catalog_tables():
        model = find_model(table.name)
        stated_by = table.parameters
        if stated_by is None or (stated_by.exact is None and stated_by.rounded is None):
            others.append(f"| {table.name} | {parameters(model):,} | {_why(table)} |")
            continue
        off = difference(model, stated_by)
        equal += off == 0.0
        exact = stated_by.exact
        printed = f"{exact:,}" if exact is not None else stated_by.rounded
        gap = "0" if off == 0.0 else f"{off:+.2%}"
        ours = counted_as(model, stated_by)
        source = stated_by.source.replace("|", "/")
        lines.append(f"| {table.name} | {ours:,} | {printed} | {gap} | {source} |")
    head = HEAD.format(equal=equal, stated=len(lines))
    return head + "\n".join(lines) + "\n" + OTHERS + "\n".join(others) + "\n"


def _why(table: ModelHeader) -> str:
    if not table.base:
        return (table.source or "").replace("|", "/")
    same = parameters(find_model(table.name)) == parameters(find_model(table.base))
    return f"as {table.base}" if same else f"{table.base}, changed"


def main() -> int:
    text = page()
    if "--check" in sys.argv[1:]:
        return int(not PAGE.exists() or PAGE.read_text(encoding="utf-8") != text)
    PAGE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
