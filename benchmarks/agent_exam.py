"""An exam for the tools that agents use: 30 questions whose answers are known from elsewhere.

    python benchmarks/agent_exam.py

starts `silicast mcp`, asks it over the Model Context Protocol what `benchmarks/agent_exam.toml`
says, and holds the answers against what is right. Also times the first answer of a cold server,
by the clock and by the seconds of processor that the server took, which other work on the machine
does not stretch. Needs the extra `mcp`; writes benchmarks/results/agent_exam.json. A minute on one
core.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
import tomllib
from importlib import import_module
from pathlib import Path
from typing import Any

from benchmarks.speed_server import server_cpu_s

QUESTIONS = Path(__file__).with_suffix(".toml")
RESULT = Path(__file__).parent / "results" / "agent_exam.json"


def at(answer: Any, path: str) -> Any:
    """A value in an answer; None where there is none.

    >>> at({"rows": [{"device": "h100"}]}, "rows.0.device")
    'h100'
    """
    for name in path.split("."):
        if isinstance(answer, list) and name.isdigit() and int(name) < len(answer):
            answer = answer[int(name)]
        elif isinstance(answer, dict):
            answer = answer.get(name)
        else:
            return None
    return answer


def is_right(answer: Any, check: dict[str, Any]) -> bool:
    """Whether an answer is what a check says."""
    value = at(answer, check["path"])
    if "equals" in check:
        return bool((value or "") == check["equals"])
    if "contains" in check:
        return check["contains"] in json.dumps(value)
    if not isinstance(value, int | float):
        return False
    return bool(value >= check.get("least", value) and value <= check.get("most", value))


def questions() -> list[dict[str, Any]]:
    return list(tomllib.loads(QUESTIONS.read_text())["question"])


async def asked() -> tuple[list[dict[str, Any]], dict[str, float]]:
    """Rows of the questions, and the seconds until the first answer."""
    from mcp import ClientSession, StdioServerParameters
    from mcp.client.stdio import stdio_client

    import_module("jsonschema")  # a second, which the client would take at the first answer
    rows = []
    server = StdioServerParameters(
        command=sys.executable, args=["-m", "silicast", "mcp"], env=dict(os.environ)
    )
    start = time.perf_counter()
    async with stdio_client(server) as streams, ClientSession(*streams) as session:
        await session.initialize()
        names = {tool.name for tool in (await session.list_tools()).tools}
        first: dict[str, float] = {}
        for question in questions():
            assert question["tool"] in names
            result = await session.call_tool(question["tool"], question["arguments"])
            first = first or {
                "first_answer_s": round(time.perf_counter() - start, 2),
                "first_answer_cpu_s": round(server_cpu_s(), 2),
            }
            answer = json.loads(result.content[0].text)
            wrong = [check for check in question["check"] if not is_right(answer, check)]
            rows.append({"text": question["text"], "right": not wrong, "wrong": wrong})
            if wrong:
                print(question["text"], wrong, [at(answer, each["path"]) for each in wrong])
    return rows, first


def main() -> None:
    rows, first = asyncio.run(asked())
    right = sum(row["right"] for row in rows)
    result = {"questions": len(rows), "right": right, **first, "rows": rows}
    RESULT.write_text(json.dumps(result, indent=1) + "\n")
    print(f"{right} of {len(rows)} right; {first}")


if __name__ == "__main__":
    main()
