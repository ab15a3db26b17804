"""Times `silicast server` on loopback: answers a second, and how long single requests wait.

    python benchmarks/speed_server.py OUT.json [SECONDS]     SECONDS: of each load, 10 unless stated

Starts a server with two processes in a process of its own and asks it from this one, so both share
the cores. First many clients send kernels one by one (`/v1/predict`), then lines of 100 kernels
(`/v1/batch`). All kernels differ. Requests go to 127.0.0.1 alone.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from socket import create_server
from typing import Any

GOALS = {"answers_per_s": 1000.0, "p99_ms": 100.0}
CLIENTS, LINES, SECONDS = 16, 100, 10.0
STARTS_WITHIN_S = 30.0


def kernels() -> Any:
    for number in itertools.count(1):
        sizes = {"op": "gemm", "m": number % 8192 + 1, "n": 4096 + 64 * (number // 8192), "k": 4096}
        yield {"task": "kernel", "device": "h100", "kernel": sizes}


class Connection:
    """Requests over one connection that is kept."""

    def __init__(self, port: int) -> None:
        self._port = port

    async def __aenter__(self) -> Connection:
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._writer.close()

    async def post(self, path: str, kind: str, body: bytes) -> tuple[int, bytes]:
        head = (
            f"POST {path} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: {kind}\r\n"
            f"content-length: {len(body)}\r\n\r\n"
        )
        self._writer.write(head.encode() + body)
        said = (await self._reader.readuntil(b"\r\n\r\n")).decode("latin-1").casefold()
        length = int(said.partition("content-length:")[2].split("\r\n", 1)[0])
        return int(said.split(" ", 2)[1]), await self._reader.readexactly(length)


def server_cpu_s() -> float:
    """Processor seconds of the processes that this one started, and of those that they did."""
    times, parents = dict[int, float](), dict[int, int]()
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:  # it has ended
            continue
        number = int(path.parent.name)
        parents[number] = int(fields[1])
        times[number] = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    family = {os.getpid()}
    while more := {child for child, parent in parents.items() if parent in family} - family:
        family |= more
    return sum(times[each] for each in family if each != os.getpid())


async def load(port: int, path: str, kind: str, lines: int, seconds: float) -> dict[str, Any]:
    """Clients that ask again as soon as they are answered."""
    cases, waits, statuses = kernels(), list[float](), Counter[int]()
    right = 0
    start, before, mine = time.perf_counter(), server_cpu_s(), time.process_time()
    end = start + seconds

    async def client() -> None:
        nonlocal right
        async with Connection(port) as connection:
            while time.perf_counter() < end:
                body = "\n".join(json.dumps(next(cases)) for _ in range(lines)).encode()
                since = time.perf_counter()
                status, reply = await connection.post(path, kind, body)
                waits.append(time.perf_counter() - since)
                statuses[status] += 1
                right += reply.count(b'"ok":true')

    await asyncio.gather(*(client() for _ in range(CLIENTS)))
    wall, spent = time.perf_counter() - start, server_cpu_s() - before
    mine = time.process_time() - mine
    waits.sort()
    return {
        "clients": CLIENTS,
        "lines_a_request": lines,
        "requests": len(waits),
        "answers": right,
        "answers_per_s": right / wall,
        "server_cpu_ms_per_answer": 1e3 * spent / right,
        "client_cpu_ms_per_answer": 1e3 * mine / right,
        "statuses": dict(statuses),
        "p50_ms": 1e3 * waits[len(waits) // 2],
        "p99_ms": 1e3 * waits[int(len(waits) * 0.99)],
    }


async def ready(port: int) -> None:
    """Waits until a server answers: it listens before its processes are there."""
    end = time.monotonic() + STARTS_WITHIN_S
    while True:
        try:
            async with Connection(port) as connection:
                await connection.post("/v1/setup", "application/json", b"{}")
                return
        except OSError:
            if time.monotonic() > end:
                raise
            await asyncio.sleep(0.1)


@contextmanager
def running_server(*flags: str) -> Iterator[int]:
    """A server of its own; its port."""
    with create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "silicast", "server", "--port", str(port), *flags]
    server = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    try:
        yield port
    finally:
        server.terminate()
        server.wait()


async def measured(port: int, seconds: float) -> dict[str, Any]:
    await ready(port)
    await load(port, "/v1/predict", "application/json", 1, 1.0)  # what loads on first use
    return {
        "predict": await load(port, "/v1/predict", "application/json", 1, seconds),
        "batch": await load(port, "/v1/batch", "application/x-ndjson", LINES, seconds),
    }


def main(out: str, seconds: str = str(SECONDS)) -> None:
    with running_server() as port:
        loads = asyncio.run(measured(port, float(seconds)))
    table = {
        "goals": GOALS,
        "processors": os.cpu_count(),
        "load_average": os.getloadavg()[0],
        **loads,
    }
    Path(out).write_text(json.dumps(table, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(table, indent=1))


if __name__ == "__main__":
    main(*sys.argv[1:])
