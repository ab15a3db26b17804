"""Sends hostile requests to `silicast server`: nothing may answer 5xx, open a file or connect.

    python benchmarks/server_hostile.py OUT.json [REQUESTS] [ST [EXAMPLES]]

REQUESTS (40,000 unless stated) are scenarios and spaces over them with random edits:
fields dropped, doubled, renamed, swapped, other types, other sizes. 200 payloads name files,
folders and addresses; the kernel (inotify) tells which files of theirs were opened, a listener who
connected. ST is the command of schemathesis 4; it draws EXAMPLES (500) an operation from
/openapi.json and holds replies against it. The counts are those of the server's own /metrics.
Requests go to 127.0.0.1 alone.
"""

from __future__ import annotations

import asyncio
import copy
import ctypes
import itertools
import json
import os
import random
import re
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from socket import create_server
from tempfile import TemporaryDirectory
from typing import Any
from urllib.request import urlopen

from benchmarks.speed_server import Connection, ready, running_server

REQUESTS, EXAMPLES, CLIENTS, PAYLOADS = 40_000, 500, 4, 200
LIMITS = ("--seconds", "1", "--sweep-points", "8")
"""A mutated scenario may ask for hours: the server's own limit ends it."""
UNCHECKED = "positive_data_acceptance,negative_data_rejection"
"""Scenarios of right types may be refused; what is too large is a 413, which schemathesis takes for
an acceptance."""
LINES_OF_JSON = """import schemathesis

@schemathesis.serializer("application/x-ndjson")
def lines(_context, value):
    return value if isinstance(value, bytes) else str(value).encode("utf-8", "replace")
"""
"""Schemathesis does not know how such a body is written."""
IN_OPEN = 0x20
SAID = 20
VALUES: tuple[Any, ...] = (
    None,
    True,
    0,
    -1,
    1,
    2.5,
    1e308,
    2**63,
    -(2**63),
    "",
    "h100",
    "nothing",
    "\x00",
    "é\u202e",
    "1GiB",
    "-inf",
    "fp8",
    [],
    {},
    [[]],
    {"": 1},
    ["h100", 3],
    {"base": "h100"},
    "9" * 400,
)
FIELDS = ("model", "device", "engine", "calibration", "precision", "draft", "tier", "host")


def seeds() -> list[dict[str, Any]]:
    """Scenarios that are answered in a moment, so that edits of them mostly are."""
    device = {"task": "kernel", "device": "h100"}
    heads = {"batch": 4, "num_heads": 32, "num_kv_heads": 8, "head_dim": 128}
    lengths = {"input_len": 64, "output_len": 4}
    model = {"model": "Llama-3.1-8B", "device": "h100"}
    closed = {"arrival": {"kind": "closed", "concurrency": 2}, "requests": 4, **lengths}
    return [
        {**device, "kernel": {"op": "gemm", "m": 64, "n": 64, "k": 64, "dtype": "fp8"}},
        {**device, "kernel": {"op": "rmsnorm", "tokens": 64, "hidden": 4096}},
        {**device, "workload": {"kernel": {**heads, "op": "attention_decode", "kv_len": 99}}},
        {**device, "kernel": {"op": "gemm", "m": 8, "n": 64, "k": 64}, "limits": {"power_w": 500}},
        {
            "task": "collective",
            "device": "h100",
            "workload": {"op": "all_reduce", "bytes": 1 << 20, "gpus": 8},
        },
        {
            "task": "inference",
            **model,
            "engine": "vllm",
            "parallel": {"tp": 2},
            "precision": {"recipe": "fp8"},
            "workload": {"batch": 2, **lengths},
        },
        {
            "task": "serving",
            **model,
            "engine": {"name": "sglang"},
            "workload": closed,
            "cluster": {"price_per_gpu_hour": 2.5},
        },
        {
            "task": "training",
            "model": "Llama-3-8B",
            "device": "h100",
            "cluster": {"gpus": 8},
            "parallel": {"tp": 2, "dp": 4},
            "workload": {"seq_len": 2048, "global_batch": 8},
        },
    ]


def nodes(tree: Any) -> list[tuple[Any, Any]]:
    """All containers of a tree, each with a key of it."""
    containers = []
    for key in tree if isinstance(tree, dict) else range(len(tree)):
        containers.append((tree, key))
        if isinstance(tree[key], dict | list):
            containers += nodes(tree[key])
    return containers


def edited(tree: dict[str, Any], draw: random.Random) -> dict[str, Any]:
    """A copy with some random edits."""
    tree = copy.deepcopy(tree)
    for _ in range(draw.randint(1, 3)):
        if not (places := nodes(tree)):
            break
        holder, key = draw.choice(places)
        kind = draw.randrange(6)
        if kind == 0:
            del holder[key]
        elif kind == 1 and isinstance(holder, dict):
            holder[draw.choice(["x", "", "id", f"{key} ", str(key).upper()])] = holder.pop(key)
        elif kind == 2:
            other, name = draw.choice(places)
            holder[key] = copy.deepcopy(other[name]) if name in range_of(other) else 1
        elif kind == 3 and isinstance(holder[key], int | float):
            holder[key] *= draw.choice([-1, 0, 0.5, 1e3, 1e9, 7])
        else:
            holder[key] = copy.deepcopy(draw.choice(VALUES))
    return tree


def range_of(holder: Any) -> Any:
    return holder if isinstance(holder, dict) else range(len(holder))


def requests(count: int) -> Any:
    """Paths, kinds and bodies."""
    draw, scenarios = random.Random(1), seeds()
    routes = ["/v1/predict"] * 7 + ["/v1/batch", "/v1/sweeps", "/v1/report", "/v1/setup"]
    setup = {"model": "Llama-3.1-8B", "device": "h100", "tp": 1, "input_len": 8, "output_len": 2}
    for _ in range(count):
        route, base = draw.choice(routes), draw.choice(scenarios)
        tree = edited(setup if route == "/v1/setup" else base, draw)
        if route == "/v1/sweeps":
            axis = {"field": draw.choice(["device", "workload.batch"]), "values": ["h100", "l4", 8]}
            tree = edited({"scenario": tree, "axis": [axis], "constraint": []}, draw)
        body = json.dumps(tree).encode()
        if draw.random() < 0.05:
            at = draw.randrange(len(body) + 1)
            body = body[:at] + draw.randbytes(3) + body[at + draw.randrange(3) :]
        kind = "application/x-ndjson" if route == "/v1/batch" else "application/json"
        yield route, kind, body


def payloads(target: str, address: str) -> list[str]:
    """What names a file, a folder or an address, in many spellings."""
    ups = [f"{'../' * n}{target.lstrip('/')}" for n in (1, 2, 8, 16)]
    names = [
        target,
        f"/{target}",
        f"//{target}",
        f"{target}\x00.toml",
        f"{target}/../{target}",
        *ups,
    ]
    names += [name.replace("/", "\\") for name in ups] + [f"~root/../..{target}", f"./{ups[3]}"]
    names += [name.replace("../", each) for name in ups for each in ("..%2f", "%2e%2e/", "....//")]
    names += [f"Llama-3.1-8B/{name}" for name in ups] + [f"h100/{name}" for name in ups]
    schemes = ("http", "https", "ftp", "gopher", "file", "dict", "ldap", "jar:http", "s3", "data")
    names += [f"{scheme}://{address}/x" for scheme in schemes]
    names += [f"file://{target}", f"file:{target}", f"//{address}/x", f"{address}/x", f"@{target}"]
    names += [f"{target}{end}" for end in ("", " ", "?x", "#x", ";ls", "|id", "`id`", "$(id)")]
    names += ["/proc/self/environ", "/dev/zero", "/dev/stdin", "/etc/passwd", "C:\\x", "\\\\h\\s"]
    return list(dict.fromkeys(names))


async def attack(port: int, folder: Path) -> dict[str, Any]:
    """The payloads, each as one field of a scenario that is otherwise right."""
    (folder / "secret.json").write_text('{"model_type": "s3cret"}')
    libc = ctypes.CDLL(None)
    watch = libc.inotify_init1(os.O_NONBLOCK)
    libc.inotify_add_watch(watch, os.fsencode(folder), IN_OPEN)
    static = {
        "task": "inference",
        "model": "Llama-3.1-8B",
        "device": "h100",
        "workload": {"batch": 1, "input_len": 64, "output_len": 8},
    }
    statuses, leaks = Counter[int](), 0
    with create_server(("127.0.0.1", 0)) as target:
        target.setblocking(False)
        named = payloads(str(folder / "secret.json"), f"127.0.0.1:{target.getsockname()[1]}")
        turns = list(itertools.islice(itertools.product(FIELDS, named), PAYLOADS * len(FIELDS)))
        random.Random(2).shuffle(turns)
        async with Connection(port) as connection:
            for field, name in turns[:PAYLOADS]:
                body = json.dumps({**static, field: name}).encode()
                status, reply = await connection.post("/v1/predict", "application/json", body)
                statuses[status] += 1
                leaks += b"s3cret" in reply or b"root:" in reply
        connected = 0
        try:
            target.accept()
            connected = 1
        except BlockingIOError:
            pass
    try:
        opened = len(os.read(watch, 1 << 16)) // 16
    except BlockingIOError:
        opened = 0
    os.close(watch)
    return {
        "payloads": PAYLOADS,
        "statuses": dict(statuses),
        "files_opened": opened,
        "connections": connected,
        "contents_told": leaks,
    }


async def mutated(port: int, count: int) -> dict[str, Any]:
    waiting = requests(count)
    statuses, defects = Counter[str](), list[dict[str, Any]]()
    slowest = 0.0

    async def client() -> None:
        nonlocal slowest
        async with Connection(port) as connection:
            for path, kind, body in waiting:
                since = time.perf_counter()
                status, reply = await connection.post(path, kind, body)
                slowest = max(slowest, time.perf_counter() - since)
                statuses[str(status)] += 1
                if status >= 500 or b'"kind":"internal"' in reply:
                    sent = body.decode("utf-8", "replace")
                    defects.append({"path": path, "body": sent, "reply": reply.decode()[:400]})

    await asyncio.gather(*(client() for _ in range(CLIENTS)))
    messages = Counter(re.sub(r"\d+", "N", each["reply"])[:160] for each in defects)
    return {
        "requests": count,
        "statuses": dict(sorted(statuses.items())),
        "slowest_s": slowest,
        "defects": len(defects),
        "messages": dict(messages.most_common(SAID)),
        "examples": defects[:SAID],
    }


def counted(port: int) -> dict[str, int]:
    """Requests by status, as the server has counted them."""
    with urlopen(f"http://127.0.0.1:{port}/metrics") as reply:
        text = reply.read().decode()
    totals = Counter[str]()
    for status, count in re.findall(r'status="(\d+)"\} (\d+)', text):
        totals[status] += int(count)
    return dict(sorted(totals.items()))


def drawn(port: int, command: str, examples: str, folder: Path) -> dict[str, Any]:
    """What schemathesis draws from the description."""
    before = sum(counted(port).values())
    folder.joinpath("lines_of_json.py").write_text(LINES_OF_JSON)
    told = {"SCHEMATHESIS_HOOKS": "lines_of_json", "PYTHONPATH": str(folder)}
    done = subprocess.run(
        [
            command,
            "run",
            f"http://127.0.0.1:{port}/openapi.json",
            "--checks",
            "all",
            "--exclude-checks",
            UNCHECKED,
            "--continue-on-failure",
            "--max-examples",
            examples,
            "--workers",
            "2",
            "--seed",
            "1",
            "--phases",
            "examples,coverage,fuzzing",
            "--request-timeout",
            "20",
        ],
        env={**os.environ, **told},
        cwd=folder,
        check=False,
        capture_output=True,
        text=True,
    )
    version = subprocess.run([command, "--version"], check=False, capture_output=True, text=True)
    return {
        "version": version.stdout.strip(),
        "exit_status": done.returncode,
        "requests": sum(counted(port).values()) - before,
        "said": done.stdout.splitlines()[-SAID:],
    }


def main(out: str, count: str = str(REQUESTS), st: str = "", examples: str = str(EXAMPLES)) -> None:
    with running_server(*LIMITS) as port, TemporaryDirectory() as folder:
        asyncio.run(ready(port))
        table: dict[str, Any] = {"attack": asyncio.run(attack(port, Path(folder)))}
        table["mutated"] = asyncio.run(mutated(port, int(count)))
        if st:
            table["schemathesis"] = drawn(port, st, examples, Path(folder))
        table["by_status"] = counted(port)
    table["requests"] = sum(table["by_status"].values())
    Path(out).write_text(json.dumps(table, indent=1) + "\n", encoding="utf-8")
    print(json.dumps({**table, "mutated": {**table["mutated"], "examples": []}}, indent=1))


if __name__ == "__main__":
    main(*sys.argv[1:])
