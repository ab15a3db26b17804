"""Compares the parameter counts of the catalog's models with the published ones.

    python benchmarks/parameters.py            writes docs/reference/parameters.md
    python benchmarks/parameters.py --check    compares with the committed page

Deterministic; seconds.
"""

from __future__ import annotations

import sys
from pathlib import Path

from silicast.workload.counting import parameters
from silicast.workload.model_file import ModelHeader
from silicast.workload.models import catalog_tables, find_model
from silicast.workload.published_parameters import counted_as, difference

PAGE = Path(__file__).resolve().parents[1] / "docs" / "reference" / "parameters.md"
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


def page() -> str:
    """The page's text."""
    stated, others, equal = [], [], 0
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
        stated.append(f"| {table.name} | {ours:,} | {printed} | {gap} | {source} |")
    head = HEAD.format(equal=equal, stated=len(stated))
    return head + "\n".join(stated) + "\n" + OTHERS + "\n".join(others) + "\n"


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
