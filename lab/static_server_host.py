"""Host costs of the suite "serving-static": a request's own time, and its bytes' (ns each).

    python -m lab.static_server_host

The first is the median of what the source's rows of GPUNet report with one image and one client
(the suite scores none of them); the second is measured here, on the CPU that runs this: one
connection over the loopback, and one copy of what came. Quiet machines only: the least of many runs
counts.
"""

from __future__ import annotations

import socket
import threading
import time
from pathlib import Path
from statistics import median

import numpy as np

from lab.scorecard.suite import data_folder
from lab.scorecard.tables import read_records

TABLE = "vision/triton_server_a100_v100.parquet"
BESIDE = ("server_queue_raw", "client_send_raw", "network_raw")
BYTES = (2_408_448, 9_633_792, 38_535_168, 77_070_336)
RUNS = 40


def request_ms(data: Path, device: str) -> float:
    """Of one request of GPUNet beside its input, its pass and its output."""
    rows = [
        row
        for row in read_records(data / TABLE)
        if "GPUNet" in row["model"]
        and device in row["gpu"]
        and row["scenario"] == "offline"
        and row["batch"] == 1
        and row["consistent"]
        and row["units_note"] == "ms"
    ]
    return float(median(sum(row[name] for name in BESIDE) for row in rows))


def sent_ns_per_byte(size: int) -> tuple[float, float]:
    """A message over the loopback, and a copy of it."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen(1)
        with socket.create_connection(server.getsockname()) as client:
            connection, _ = server.accept()
            with connection:
                thread = threading.Thread(target=_receive, args=(connection, size))
                thread.start()
                data = b"\1" * size
                sent = []
                for _ in range(RUNS):
                    began = time.perf_counter()
                    client.sendall(data)
                    client.recv(1)
                    sent.append(time.perf_counter() - began)
                thread.join()
    source, target, copied = np.ones(size, np.uint8), np.ones(size, np.uint8), []
    for _ in range(RUNS):
        began = time.perf_counter()
        np.copyto(target, source)
        copied.append(time.perf_counter() - began)
    return min(sent) * 1e9 / size, min(copied) * 1e9 / size


def _receive(connection: socket.socket, size: int) -> None:
    view = memoryview(bytearray(size))
    for _ in range(RUNS):
        got = 0
        while got < size:
            got += connection.recv_into(view[got:])
        connection.sendall(b"x")


if __name__ == "__main__":
    for name in ("A100", "V100"):
        print(f"{name}: {request_ms(data_folder(), name):.3f} ms a request")
    for each in BYTES:
        over, copy = sent_ns_per_byte(each)
        print(f"{each:,} bytes: {over:.3f} ns a byte over the loopback, {copy:.3f} to copy")
