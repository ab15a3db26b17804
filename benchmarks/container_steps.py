"""Runs the steps of the Dockerfile in clean roots, where there is no Docker; needs root.

    mmdebstrap --variant=minbase bookworm BASE
    python benchmarks/container_steps.py BASE [FOLDER]     FOLDER: for stages, else beside BASE

COPY and RUN are carried out in a copy of BASE for each stage; then the server of the last one is
started as its USER and asked over loopback. What this does not show: the base image of Docker
itself, HEALTHCHECK, and limits that Docker adds. The roots get this machine's resolver,
certificates and settings of apt and pip, so that they reach its registries.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

ROOT = Path(__file__).resolve().parents[1]
TOKEN = "a-token-for-this-test-alone"
HOST_FILES = (
    "/etc/resolv.conf",
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/xdg/pip",
    "/etc/pip.conf",
    "/etc/apt/apt.conf.d",
)
CASE = {"task": "kernel", "device": "h100", "kernel": {"op": "gemm", "m": 64, "n": 64, "k": 64}}
STARTS_WITHIN_S = 60.0


def steps(text: str) -> list[tuple[str, str]]:
    """Instructions and their arguments, comments left out.

    >>> steps("# x\\nFROM a AS b\\nRUN one && \\\\\\n  two\\n")
    [('FROM', 'a AS b'), ('RUN', 'one &&   two')]
    """
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    whole = "\n".join(lines).replace("\\\n", "")
    return [(kind, rest) for kind, _, rest in (line.partition(" ") for line in whole.splitlines())]


def new_root(base: Path, target: Path) -> Path:
    subprocess.run(["cp", "-a", str(base), str(target)], check=True)
    null = target / "dev" / "null"
    if not null.exists():
        subprocess.run(["mknod", "-m", "666", str(null), "c", "1", "3"], check=True)
    return target


def lend(root: Path) -> None:
    """Copies what reaches this machine's registries; a step may have written it anew."""
    for name in HOST_FILES:
        here, there = Path(name), root / name.lstrip("/")
        for file in sorted(here.rglob("*")) if here.is_dir() else [here]:
            target = there / file.relative_to(here)
            target.unlink(missing_ok=True)  # a link in a root may lead out of it
            target.parent.mkdir(parents=True, exist_ok=True)
            if file.is_file():
                shutil.copy(file, target)


def inside(root: Path, command: list[str], user: str = "") -> list[str]:
    flags = [f"--userspec={user}:{user}"] if user else []
    return ["chroot", *flags, str(root), *command]


def copied(root: Path, sources: list[str], target: str, origin: Path) -> None:
    there = root / target.lstrip("/")
    for name in sources:
        source = origin / name.lstrip("/")
        if source.is_dir():
            shutil.copytree(source, there, symlinks=True)
        else:
            there.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, there)


def built(base: Path, folder: Path) -> tuple[Path, str, list[str]]:
    """The last stage, its user and what it starts."""
    stages, root, user, start = dict[str, Path](), base, "", list[str]()
    for kind, rest in steps((ROOT / "Dockerfile").read_text()):
        print(kind, rest[:90], flush=True)
        words = shlex.split(rest)
        if kind == "FROM":
            root, user = new_root(base, folder / f"stage{len(stages)}"), ""
            stages[words[-1] if "AS" in words else str(len(stages))] = root
        elif kind == "RUN":
            lend(root)
            subprocess.run(inside(root, ["sh", "-ec", rest]), check=True, stdout=subprocess.DEVNULL)
        elif kind == "COPY":
            named = words[0].startswith("--from=")
            origin = stages[words.pop(0).partition("=")[2]] if named else ROOT
            copied(root, words[:-1], words[-1], origin)
        elif kind == "USER":
            user = rest
        elif kind in ("ENTRYPOINT", "CMD"):
            start += json.loads(rest)
    return root, user, start


def asked(port: int, path: str, body: Any = None, token: str = "") -> tuple[int, bytes]:
    headers = {"content-type": "application/json", "authorization": f"Bearer {token}"}
    data = None if body is None else json.dumps(body).encode()
    request = Request(f"http://127.0.0.1:{port}{path}", data, headers)
    try:
        with urlopen(request, timeout=30) as reply:
            return reply.status, reply.read()
    except HTTPError as error:
        return error.code, error.read()


def tried(root: Path, user: str, start: list[str]) -> dict[str, Any]:
    """What the server in a root answers, as whom it runs and what it may write."""
    port = 18421
    refused = subprocess.run(inside(root, start, user), check=False, capture_output=True, text=True)
    command = inside(root, [*start, "--port", str(port)], user)
    server = subprocess.Popen(
        command, env={**os.environ, "SILICAST_TOKEN": TOKEN, "PYTHONPATH": ""}
    )
    try:
        end = time.monotonic() + STARTS_WITHIN_S
        while True:
            try:
                health = asked(port, "/health")[0]
                break
            except URLError:
                if time.monotonic() > end:
                    raise
                time.sleep(0.2)
        uid = int(Path(f"/proc/{server.pid}/status").read_text().partition("Uid:")[2].split()[0])
        size = subprocess.run(["du", "-sm", str(root)], check=True, capture_output=True, text=True)
        return {
            "without_token": [refused.returncode, refused.stderr.strip()[-200:]],
            "health": health,
            "unauthorised": asked(port, "/v1/predict", CASE)[0],
            "predict": asked(port, "/v1/predict", CASE, TOKEN)[0],
            "page": asked(port, "/")[0],
            "uid": uid,
            "root_mb": int(size.stdout.split()[0]),
        }
    finally:
        server.terminate()
        server.wait()


def main(base: str, folder: str = "") -> None:
    target = Path(folder or Path(base).resolve().parent)
    print(json.dumps(tried(*built(Path(base), target)), indent=1))


if __name__ == "__main__":
    main(*sys.argv[1:])
