"""A server on one's own machine: right answers, bounded work, and nothing opened for strangers."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from socket import IPPROTO_TCP, TCP_NODELAY, create_connection, create_server
from typing import Any

import msgspec
import pytest

pytest.importorskip("starlette", reason="needs the extra `server`")
pytest.importorskip("httpx2", reason="needs what starlette's client is made with")

from starlette.testclient import TestClient

import silicast
from benchmarks.container_steps import ROOT, steps
from silicast.app.cli import main
from silicast.app.commands.server import _listening
from silicast.app.server.guard import Guard
from silicast.app.server.routes import build_server
from silicast.app.server.settings import ServerSettings
from silicast.app.server.setups import PageSetup
from silicast.app.server.static_page import page_entries, static_page
from silicast.core.errors import SilicastError
from silicast.scenario.reading.inline_only import refuse_paths

KERNEL = {"task": "kernel", "device": "h100", "kernel": {"op": "gemm", "m": 64, "n": 64, "k": 64}}
SLOW = {
    "task": "serving",
    "model": "Llama-3.1-8B",
    "device": "h100",
    "workload": {
        "arrival": {"kind": "closed", "concurrency": 512},
        "requests": 1_000_000,
        "input_len": 512,
        "output_len": 512,
    },
}


@pytest.fixture(scope="module")
def client() -> Iterator[TestClient]:
    settings = ServerSettings(processes=1, waiting=1, seconds=2.0, body_bytes=4096, points=5)
    with TestClient(build_server(settings)) as session:
        yield session


def test_an_answer_is_that_of_the_library(client: TestClient) -> None:
    response = client.post("/v1/predict", json=KERNEL)
    assert response.status_code == 200
    wanted = json.loads(msgspec.json.encode(silicast.predict(KERNEL).to_dict()["metrics"]))
    assert response.json()["metrics"] == wanted


def test_a_batch_keeps_its_order_and_refuses_line_by_line(client: TestClient) -> None:
    lines = [{**KERNEL, "id": "a"}, {"id": "b", "task": "nothing"}, {**KERNEL, "id": "c"}]
    body = "\n".join(map(json.dumps, lines))
    response = client.post(
        "/v1/batch", content=body, headers={"content-type": "application/x-ndjson"}
    )
    rows = [json.loads(line) for line in response.text.splitlines()]
    assert [(row["id"], row["ok"]) for row in rows] == [("a", True), ("b", False), ("c", True)]


def test_size_points_and_kind_of_a_body_are_bounded(client: TestClient) -> None:
    lines = {"content-type": "application/x-ndjson"}
    assert client.post("/v1/batch", content=b"x" * 5000, headers=lines).status_code == 413
    six = "\n".join([json.dumps(KERNEL)] * 6)
    assert client.post("/v1/batch", content=six, headers=lines).status_code == 413
    assert client.post("/v1/predict", content=b"{}").status_code == 415
    bad = client.post("/v1/predict", content=b"{", headers={"content-type": "application/json"})
    assert bad.status_code == 422
    assert bad.json()["error"]["kind"] == "invalid_input"
    assert client.get("/v1/predict").status_code == 405
    assert client.get("/nothing").json()["ok"] is False


def test_what_takes_too_long_is_ended_and_the_next_is_answered(client: TestClient) -> None:
    assert client.post("/v1/predict", json=SLOW).status_code == 408
    assert client.post("/v1/predict", json=KERNEL).status_code == 200


PATHS = (
    "/etc/passwd",
    "../../etc/passwd",
    "~/.ssh/id_rsa",
    "file:///etc/passwd",
    "./x.toml",
    "C:\\secrets.json",
    "http://169.254.169.254/latest",
    "x/../../etc/passwd",
    "models/a.json",
    "\\\\host\\share",
    "a.csv",
    "weights.gguf",
)
FIELDS = (
    "model",
    "device",
    "engine",
    "calibration",
    "workload.graph",
    "workload.arrival.path",
    "workload.existing",
    "model.base",
    "device.base",
    "pools.a.model",
    "speculative.draft",
    "draft.base",
)


@pytest.mark.parametrize("path", PATHS)
def test_no_field_may_name_a_file(path: str) -> None:
    for field in FIELDS:
        tree: Any = path
        for name in reversed(field.split(".")):
            tree = {name: tree}
        with pytest.raises(SilicastError, match="names a file"):
            refuse_paths(tree)


def test_requests_that_name_files_are_refused(client: TestClient) -> None:
    for path in PATHS:
        response = client.post("/v1/predict", json={**KERNEL, "device": path})
        assert response.status_code == 422, path
        assert "root:" not in response.text


def test_a_sealed_process_opens_nothing_else(tmp_path: Path) -> None:
    secret = tmp_path / "secret.toml"
    secret.write_text('name = "s3cret"')
    code = f"""
import os, socket, subprocess
from pathlib import Path
from silicast.core.errors import SilicastError
from silicast.runner.sealed import seal
import silicast
seal()
silicast.predict({KERNEL!r})
tries = [
    lambda: Path({str(secret)!r}).read_text(),
    lambda: silicast.predict({{**{KERNEL!r}, "device": {str(secret)!r}}}),
    lambda: os.listdir({str(tmp_path)!r}),
    lambda: open({str(tmp_path / "new")!r}, "w"),
    lambda: subprocess.run(["true"]),
    lambda: socket.create_connection(("127.0.0.1", 9)),
    lambda: os.system("true"),
]
for each in tries:
    try:
        each()
        print("OPEN")
    except SilicastError as error:
        print(error.kind)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["unsupported"] * 7
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    "flags", [{"port": 99999}, {"port": -1}, {"waiting": -1}, {"seconds": math.nan}]
)
def test_limits_that_make_no_sense_are_refused_by_their_flag(flags: dict[str, Any]) -> None:
    with pytest.raises(SilicastError) as refused:
        ServerSettings(**flags)
    assert refused.value.field == f"--{next(iter(flags))}"


def test_a_port_of_another_program_is_an_error_of_the_flag(
    capsys: pytest.CaptureFixture[str],
) -> None:
    pytest.importorskip("uvicorn", reason="needs the extra `server`")
    with create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert main(["server", "--port", str(port)]) == 2
    assert f"--port: cannot listen on 127.0.0.1, port {port}" in capsys.readouterr().err


def test_replies_do_not_wait_for_acknowledgements() -> None:
    """Head and body are written apart: without the option, 40 ms lie between them."""
    with _listening("127.0.0.1", 0) as listener, create_connection(listener.getsockname()):
        connection, _ = listener.accept()
        with connection:
            assert connection.getsockopt(IPPROTO_TCP, TCP_NODELAY)


def test_elsewhere_a_token_is_required() -> None:
    with pytest.raises(SilicastError, match="there is no token"):
        ServerSettings(host="0.0.0.0")
    with pytest.raises(SilicastError, match="can be guessed"):
        ServerSettings(token="short")
    settings = ServerSettings(host="0.0.0.0", token="a-long-random-token")
    guard = Guard(None, settings)  # type: ignore[arg-type]
    assert guard._refused("/v1/predict", {b"host": "x"})[0] == 401  # type: ignore[index]
    right = {b"host": "x", b"authorization": "Bearer a-long-random-token"}
    assert guard._refused("/v1/predict", right) is None
    assert guard._refused("/", {b"host": "x"}) is None


def test_a_page_of_another_site_cannot_ask(client: TestClient) -> None:
    assert client.get("/health", headers={"host": "evil.example"}).status_code == 421
    origin = {"origin": "https://evil.example"}
    assert client.post("/v1/predict", json=KERNEL, headers=origin).status_code == 403


def test_the_page_asks_nobody_else(client: TestClient) -> None:
    for path in ("/", "/page.js", "/page.css"):
        response = client.get(path)
        assert response.status_code == 200
        assert "default-src 'none'" in response.headers["content-security-policy"]
        text = response.text.replace("http://www.w3.org/2000/svg", "")
        assert "://" not in text
        assert len(text) < 100_000


def test_the_description_names_every_route_and_type(client: TestClient) -> None:
    client.post("/v1/predict", json=KERNEL)
    document = client.get("/openapi.json").json()
    assert {"/v1/predict", "/v1/batch", "/v1/catalog/{kind}"} <= document["paths"].keys()
    text = json.dumps(document)
    for reference in set(text.split('"#/components/schemas/')[1:]):
        assert reference.split('"')[0] in document["components"]["schemas"]
    assert client.get("/v1/catalog/devices?contains=h100").json()
    assert client.get("/v1/catalog/secrets").status_code == 404
    assert client.get("/v1/metrics").json()["latency_us"]["unit"] == "us"
    assert 'route="/v1/predict",status="200"' in client.get("/metrics").text


def test_another_method_is_told_which_there_are(client: TestClient) -> None:
    response = client.put("/v1/sweeps/x")
    assert response.status_code == 405
    assert {*response.headers["allow"].split(", ")} == {"GET", "HEAD", "DELETE"}
    assert client.head("/").status_code == 200
    assert client.post("/v1/predict").status_code == 415
    assert "415" in client.get("/openapi.json").json()["paths"]["/v1/predict"]["post"]["responses"]


@pytest.mark.parametrize(
    ("query", "word"),
    [
        ("contain=h100", "unknown parameter 'contain'"),
        ("contains=h100&contains=l4", "stands twice"),
        ("contains=" + "x" * 200, "too long"),
    ],
)
def test_a_misspelt_parameter_gives_no_other_answer(
    client: TestClient, query: str, word: str
) -> None:
    response = client.get(f"/v1/catalog/devices?{query}")
    assert response.status_code == 422
    assert word in response.json()["error"]["message"]


def test_a_page_in_a_file_holds_its_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("silicast.app.server.setups.REQUESTS", {1: 4})
    told = list[int]()
    setups = [
        PageSetup("Llama-3.1-8B", "h100", input_len=64, output_len=8),
        PageSetup("</script><img src=x>", "h100"),
    ]
    entries = page_entries(setups, told.append)
    assert [entry.refused is not None for entry in entries] == [False, True]
    page = static_page(entries).decode()
    assert told == [1, 2, 3, 4]
    assert "<img" not in page
    held = page.partition('id="held">')[2].partition("</script>")[0]
    good, bad = json.loads(held)
    assert [answer["ok"] for answer in good["answers"]] == [True, True]
    assert good["answers"][0]["why"]["parts"]
    assert [answer["ok"] for answer in bad["answers"]] == [False, False]
    assert 'src="page.js"' not in page


def test_a_page_without_an_answer_is_no_success(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("silicast.app.server.setups.REQUESTS", {1: 4})
    page = tmp_path / "page.html"
    assert main(["page", "--model", "Lama-9", "--device", "h100", "-o", str(page)]) == 3
    assert "Lama-9 on h100 is not answered: model: " in capsys.readouterr().err


def test_the_container_starts_a_server_as_a_user_without_rights() -> None:
    said = steps((ROOT / "Dockerfile").read_text(encoding="utf-8"))
    last = [kind for kind, _ in said].index("FROM", 1)
    final = dict(said[last:])
    assert final["USER"] == "10001"
    command = [*json.loads(final["ENTRYPOINT"]), *json.loads(final["CMD"])]
    assert command == ["/opt/silicast/bin/silicast", "server", "--host", "0.0.0.0"]
    copied = " ".join(rest for kind, rest in said if kind == "COPY" and "--from" not in rest)
    assert copied == "pyproject.toml README.md LICENSE NOTICE /src/ src /src/src"
