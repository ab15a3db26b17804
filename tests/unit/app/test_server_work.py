"""Work that a server does for strangers: sweeps, shared kernels, reports; bounded and killable."""

from __future__ import annotations

import asyncio
import ctypes
import itertools
import json
import os
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest

pytest.importorskip("starlette", reason="needs the extra `server`")
pytest.importorskip("httpx2", reason="needs what starlette's client is made with")
pytest.importorskip("uvicorn", reason="needs the extra `server`")

import uvicorn
from starlette.testclient import TestClient

import silicast
from silicast.app.server.connections import bounded_connections
from silicast.app.server.routes import build_server
from silicast.app.server.settings import ServerSettings
from silicast.core.errors import SilicastError
from silicast.runner.pool import AnswerPool, TooBusyError, TooSlowError
from silicast.runner.replies import Replied, replies
from silicast.runner.sweep_jobs import SweepLimits
from tests.unit.app.test_server import KERNEL, SLOW

GEMM = {"op": "gemm", "n": 64, "k": 64}
SPACE = {
    "scenario": {"task": "kernel", "kernel": GEMM},
    "axis": [
        {"field": "device", "values": ["h100", "a100"]},
        {"field": "kernel.m", "range": [8, 32], "factor": 2},
    ],
    "constraint": [{"forbid": {"device": ["a100"], "kernel.m": [32]}}],
}
STATIC = {
    "task": "inference",
    "model": "Llama-3.1-8B",
    "device": "h100",
    "workload": {"batch": 1, "input_len": 64, "output_len": 8},
}
FOREVER = {"scenario": SLOW, "axis": [{"field": "device", "values": ["h100", "a100"]}]}
LIMITS = SweepLimits(points=20, jobs=1, seconds=60.0)
SETTINGS = ServerSettings(processes=2, waiting=2, seconds=30.0, points=4, sweeps=LIMITS)


@pytest.fixture(scope="module")
def client() -> Iterator[TestClient]:
    with TestClient(build_server(SETTINGS)) as session:
        yield session


def _until(wanted: Callable[[], bool], seconds: float = 200.0) -> None:
    end = time.monotonic() + seconds
    while not wanted():
        assert time.monotonic() < end
        time.sleep(0.02)


def _ended(client: TestClient, name: str) -> dict[str, Any]:
    """Status of a sweep that has ended; on a busy machine a question may exceed its time limit."""
    answers = []

    def ended() -> bool:
        answers.append(client.get(f"/v1/sweeps/{name}"))
        if answers[-1].status_code != 200:
            return False
        return bool(answers[-1].json()["state"] != "running")

    _until(ended)
    return dict(answers[-1].json())


def test_a_sweep_answers_all_legal_points_as_the_library_does(client: TestClient) -> None:
    begun = client.post("/v1/sweeps", json=SPACE)
    assert begun.status_code == 202
    assert begun.headers["location"] == f"/v1/sweeps/{begun.json()['id']}"
    status = _ended(client, begun.json()["id"])
    assert (status["state"], status["points"], status["answered"]) == ("done", 5, 5)
    assert status["ruled_out"] == {"not device a100 with kernel.m 32": 1}
    path = f"/v1/sweeps/{status['id']}/answers"
    first = client.get(path).text.splitlines()
    rows = [json.loads(row) for row in (*first, *client.get(f"{path}?after=4").text.splitlines())]
    assert len(first) == SETTINGS.points, "no more rows at once than a batch may have"
    wanted = [*itertools.product(["h100"], [8, 16, 32]), *itertools.product(["a100"], [8, 16])]
    assert [(row["fields"]["device"], row["fields"]["kernel.m"]) for row in rows] == wanted
    for (device, m), row in zip(wanted, rows, strict=True):
        answer = silicast.predict({"task": "kernel", "device": device, "kernel": {**GEMM, "m": m}})
        assert row["reply"]["metrics"] == json.loads(
            msgspec.json.encode(answer.to_dict()["metrics"])
        )


def test_a_point_that_is_refused_is_a_row(client: TestClient) -> None:
    axis = [{"field": "device", "values": ["h100", "nothing-of-that-name"]}]
    space = {"scenario": {"task": "kernel", "kernel": {**GEMM, "m": 8}}, "axis": axis}
    status = _ended(client, client.post("/v1/sweeps", json=space).json()["id"])
    assert (status["answered"], status["refused"]) == (1, 1)
    (last,) = client.get(f"/v1/sweeps/{status['id']}/answers?after=1").text.splitlines()
    assert json.loads(last)["reply"]["error"]["kind"] == "unknown_name"


def test_cancelling_kills_what_runs(client: TestClient) -> None:
    name = client.post("/v1/sweeps", json=FOREVER).json()["id"]
    assert client.post("/v1/sweeps", json=FOREVER).status_code == 429
    assert "silicast_sweeps_running 1" in client.get("/metrics").text
    assert client.post("/v1/predict", json=KERNEL).status_code == 200, "a sweep leaves a process"
    start = time.monotonic()
    assert client.delete(f"/v1/sweeps/{name}").json()["state"] == "cancelled"
    assert client.get(f"/v1/sweeps/{name}").json()["state"] == "cancelled"
    again = client.post("/v1/sweeps", json=SPACE).json()["id"]
    assert _ended(client, again)["state"] == "done"
    assert time.monotonic() - start < SETTINGS.seconds / 2
    assert client.delete(f"/v1/sweeps/{again}").json()["state"] == "done", "it had ended"


@pytest.mark.parametrize(
    ("change", "status", "field"),
    [
        ({"axis": [{"field": "kernel.m", "range": [1, 100], "step": 1}]}, 413, "axis"),
        ({"axis": [{"field": "kernel.m", "range": [1, 1e9], "step": 1}]}, 413, "axis[0].step"),
        ({"axis": []}, 422, "axis"),
        ({"axis": [{"field": "device", "values": ["/etc/passwd"]}]}, 422, "device"),
        ({"axis": [{"field": "no.field", "values": [1]}]}, 422, "no"),
        ({"scenario": {"calibration": "../x.json"}}, 422, "calibration"),
        ({"what": 1}, 422, "what"),
    ],
)
def test_spaces_that_make_no_sense_are_refused(
    client: TestClient, change: dict[str, Any], status: int, field: str
) -> None:
    response = client.post("/v1/sweeps", json={**SPACE, "constraint": [], **change})
    assert (response.status_code, response.json()["error"]["field"]) == (status, field)
    assert client.post("/v1/sweeps", content=b"{}").status_code == 415
    assert client.get("/v1/sweeps/nothing").status_code == 404
    assert client.get("/v1/sweeps/nothing/answers").status_code == 404
    assert client.delete("/v1/sweeps/nothing").status_code == 404


def test_a_sweep_that_needs_too_long_or_too_much_is_stopped() -> None:
    limits = SweepLimits(points=20, seconds=60.0, answer_bytes=10)
    settings = ServerSettings(processes=1, seconds=1.0, sweeps=limits)
    with TestClient(build_server(settings)) as session:
        status = _ended(session, session.post("/v1/sweeps", json=SPACE).json()["id"])
        assert (status["state"], status["answered"]) == ("stopped", 5)
        assert "10 bytes" in status["reason"]
        late = _ended(session, session.post("/v1/sweeps", json=FOREVER).json()["id"])
        assert (late["refused"], late["state"]) == (2, "stopped")
        rows = session.get(f"/v1/sweeps/{late['id']}/answers?after=x")
        assert rows.status_code == 422
    with pytest.raises(SilicastError, match="--sweep-points"):
        ServerSettings(sweeps=SweepLimits(points=0))


def test_the_report_of_an_answer_is_a_page(client: TestClient) -> None:
    response = client.post("/v1/report", json=KERNEL)
    assert response.headers["content-type"].startswith("text/html")
    assert "h100" in response.text
    assert "<script" not in response.text
    refused = client.post("/v1/report", json={**KERNEL, "device": "<b>nothing"})
    assert (refused.status_code, refused.json()["ok"]) == (422, False)


def _pooled(
    work: Callable[[AnswerPool], Any],
    *,
    count: int = 1,
    waiting: int = 8,
    seconds: float = 30.0,
    wait_s: float = 30.0,
) -> Any:
    async def run() -> Any:
        pool = AnswerPool(count, waiting, seconds, wait_s, 4 << 30)
        await pool.begin()
        try:
            return await work(pool)
        finally:
            pool.end()

    return asyncio.run(run())


def _line(case: dict[str, Any]) -> list[tuple[int, bytes | None]]:
    return [(1, json.dumps(case).encode())]


def test_kernels_that_are_answered_together_get_the_answers_of_single_ones() -> None:
    cases = [_line({**KERNEL, "kernel": {**GEMM, "m": m}}) for m in (8, 9, 10)]
    cases += [_line({**KERNEL, "device": "nothing"}), _line({**KERNEL, "id": "mine"})]

    async def work(pool: AnswerPool) -> list[list[Replied]]:
        return list(await asyncio.gather(*(pool.answer(case) for case in cases)))

    assert _pooled(work) == [replies(case, inline_only=True).rows for case in cases]


def test_one_that_is_not_quick_harms_none_that_it_is_answered_with(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("silicast.runner.pool._QUICK", re.compile(b"task"))

    async def work(pool: AnswerPool) -> list[Replied]:
        first = asyncio.gather(*(pool.answer(_line(KERNEL)) for _ in range(2)))
        others = [
            asyncio.ensure_future(pool.answer(_line(each))) for each in (KERNEL, SLOW, KERNEL)
        ]
        rows = [*await first, await others[0], await others[2]]
        assert not others[1].done()
        others[1].cancel()
        return [row for each in rows for row in each]

    assert all(row.ok for row in _pooled(work, count=2))


def test_those_who_wait_are_bounded_in_number_and_time() -> None:
    async def work(pool: AnswerPool) -> list[Any]:
        asked = [pool.answer(_line(SLOW)) for _ in range(4)]
        return list(await asyncio.gather(*asked, return_exceptions=True))

    got = _pooled(work, waiting=2, seconds=0.5, wait_s=0.3)
    kinds = [type(each) for each in got]
    assert kinds == [TooSlowError, TooBusyError, TooBusyError, TooBusyError]


def test_a_process_that_died_is_named_and_replaced() -> None:
    async def work(pool: AnswerPool) -> tuple[Replied, Replied]:
        asked = asyncio.ensure_future(pool.answer(_line(SLOW)))
        await asyncio.sleep(0.3)
        (running,) = pool._running
        running.process._child.kill()
        (broken,) = await asked
        (good,) = await pool.answer(_line(KERNEL))
        return broken, good

    broken, good = _pooled(work)
    assert b"ended with signal 9" in broken.line
    assert good.ok


@contextmanager
def _listening(seconds: float) -> Iterator[int]:
    """The port of a server with one process, on which an answer may take so long."""
    settings = ServerSettings(processes=1, waiting=1, seconds=seconds, connections=4)
    config = uvicorn.Config(
        build_server(settings), http=bounded_connections(settings), log_level="critical"
    )
    server = uvicorn.Server(config)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        _until(lambda: server.started)
        yield listener.getsockname()[1]
        server.should_exit = True
        thread.join()


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with _listening(3.0) as number:
        yield number


def _head(body: bytes) -> bytes:
    return (
        b"POST /v1/predict HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
        b"content-length: %d\r\n\r\n" % len(body)
    )


def _asked(port: int, message: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
        connection.sendall(message)
        return connection.recv(1 << 16)


def test_who_leaves_frees_the_process() -> None:
    """The one process may work for minutes on what was asked first; waiting for it is a 429."""
    first, second = json.dumps(SLOW).encode(), json.dumps(KERNEL).encode()
    with _listening(600.0) as port:
        with socket.create_connection(("127.0.0.1", port)) as connection:
            connection.sendall(_head(first) + first)
            time.sleep(0.5)
        assert b" 200 " in _asked(port, _head(second) + second)


def test_slow_and_many_connections_are_refused(port: int) -> None:
    half = [socket.create_connection(("127.0.0.1", port), timeout=20) for _ in range(4)]
    half[0].sendall(b"POST /v1/predict HTTP/1.1\r\nhost: 127")
    half[1].sendall(_head(b"x" * 100) + b"{")
    _until(lambda: b" 429 " in _asked(port, b"GET /health HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n"))
    assert b" 408 " in half[0].recv(100), "a head that does not come"
    assert b" 408 " in half[1].recv(1000), "a body that does not come"
    assert half[2].recv(100) == b"", "nothing at all"
    for each in half:
        each.close()
    assert b" 200 " in _asked(port, b"GET /health HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n")
    assert b" 400 " in _asked(port, b"\x00\xff\r\n\r\n")


def test_who_is_refused_cannot_go_on_sending(port: int) -> None:
    """What is announced is not taken: the reply is there, and the connection ends soon after."""
    with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
        connection.sendall(_head(b"").replace(b"length: 0", b"length: 99999999999"))
        since, piece = time.monotonic(), b"x" * (1 << 16)
        with suppress(OSError):  # the end of the connection
            while time.monotonic() - since < 20.0:
                connection.sendall(piece)
                time.sleep(0.02)
        assert time.monotonic() - since < 10.0
    over = b"x" * (2 << 20)
    assert b" 413 " in _asked(port, _head(over) + over[: 1 << 20] + b"xx")


IN_OPEN = 0x20


def test_no_payload_opens_a_file_or_a_connection(client: TestClient, tmp_path: Path) -> None:
    """The kernel itself tells what was opened in a folder that payloads name."""
    libc = ctypes.CDLL(None, use_errno=True)
    if not hasattr(libc, "inotify_init1"):
        pytest.skip("this system has no inotify")
    secret = tmp_path / "secret.json"
    secret.write_text('{"model_type": "s3cret"}')
    watch = libc.inotify_init1(os.O_NONBLOCK)
    libc.inotify_add_watch(watch, os.fsencode(tmp_path), IN_OPEN)
    with socket.create_server(("127.0.0.1", 0)) as target:
        target.setblocking(False)
        address = f"127.0.0.1:{target.getsockname()[1]}"
        payloads = [
            str(secret),
            f"file://{secret}",
            "../" * 12 + str(secret).lstrip("/"),
            f"%2e%2e/%2e%2e{secret}",
            f"Llama/../..{secret}",
            f"http://{address}/x.json",
            f"{address}/x",
        ]
        for payload, field in itertools.product(
            payloads, ("model", "device", "engine", "calibration", "tier")
        ):
            response = client.post("/v1/predict", json={**STATIC, field: payload})
            assert 400 <= response.status_code < 500, (payload, field)
            assert "s3cret" not in response.text
        for payload in payloads:
            inline = {"base": "H100", "include": payload}
            assert not client.post("/v1/report", json={**KERNEL, "device": inline}).is_success
            sweep: Any = {**SPACE, "scenario": {**KERNEL, "calibration": payload}}
            begun = client.post("/v1/sweeps", json=sweep)
            assert not begun.is_success or not _ended(client, begun.json()["id"])["answered"]
            assert client.get(f"/v1/catalog/{payload}").status_code in (404, 307)
        with pytest.raises(BlockingIOError):
            target.accept()
    with pytest.raises(BlockingIOError):
        os.read(watch, 4096)
    secret.read_text()
    assert os.read(watch, 4096), "the watch works"
    os.close(watch)
