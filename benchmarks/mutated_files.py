"""Damaged files of every format that a command reads: how many end in anything but one clear line.

    python -m benchmarks.mutated_files [COUNT] [--first NUMBER] [--kind KIND] [-o FILE]

Each format starts from a file that its command answers. A mutation flips, cuts, repeats, swaps or
inserts bytes, or puts an extreme number, a wrong type or another word in the place of one. The
command runs in this process, under limits of CPU seconds and of memory. Counted: internal errors
(status 70, or an exception), tracebacks in what is printed, runs over the limit of seconds or of
memory, refusals that are not one line. COUNT mutations a format (10,000 take hours; they are
drawn from fixed seeds). ``--first`` goes on where another run ended, and what that run counted is
added; the result is written after every format. The exit status is 1 if one is counted. ONNX files
and exported programs (``.pt2``) are among the formats where onnx and torch are installed.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import random
import re
import resource
import shutil
import signal
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from silicast.app import status
from silicast.app.cli import main as silicast_main
from silicast.core.files import write_atomically
from tests.gguf_file import FACTS, gguf_bytes, tiny_tensors
from tests.tflite_file import SMALL
from tests.unit.measurement.importers.samples import VLLM_PRINT, gpu_trace

COUNT, SECONDS, MORE_MEMORY_MB = 1_000, 5.0, 500
RESULT = Path(__file__).parent / "results" / "mutated_files.json"
ROOT = Path(__file__).parents[1]
CATALOG = ROOT / "src" / "silicast" / "catalog"
PROGRAM = "graph {} --device h100 --batch 4"
INFER = "infer --batch 1 --input-len 64 --output-len 4"
PRINTED = (
    "import {} -o out.jsonl --device h100 --set model=Llama-3.1-8B --set engine.name=vllm "
    "--set workload.input_len=512 --set workload.output_len=64"
)
EXTREMES = (
    "-1",
    "0",
    "1e308",
    "-0.0",
    "nan",
    "inf",
    "1e400",
    "9" * 40,
    "true",
    "null",
    '""',
    "[]",
    "{}",
    '"\\u0000"',
    "4.0",
    "1e-320",
    "2147483648",
    '"a"',
    "[[[[[[]]]]]]",
)

SCENARIO = """task = "inference"
model = "Llama-3.1-8B"
device = "H100"
engine = "vllm"
[workload]
batch = 2
input_len = 64
output_len = 4
[parallel]
tp = 1
[precision]
weights = "fp8"
"""
SERVING = {
    "task": "serving",
    "model": "Llama-3.1-8B",
    "device": "H100",
    "engine": "vllm",
    "seed": 3,
    "workload": {
        "arrival": {"kind": "poisson", "rate_per_s": 4.0},
        "requests": 20,
        "input_len": 64,
        "output_len": 4,
        "slo": {"ttft_p99_ms": 100.0},
    },
}
CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 512,
    "intermediate_size": 1024,
    "num_hidden_layers": 2,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "vocab_size": 1000,
    "max_position_embeddings": 2048,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]},
}
LLAMA_FACTORY = """model_name_or_path: meta-llama/Llama-3.1-8B
stage: sft
do_train: true
finetuning_type: lora
lora_rank: 8
cutoff_len: 2048
per_device_train_batch_size: 1
gradient_accumulation_steps: 8
bf16: true
"""
REQUESTS = "arrival_s,input_len,output_len\n" + "".join(
    f"{n * 0.25},{60 + n},{4 + n % 3}\n" for n in range(20)
)
ROWS = [
    {
        "op": "gemm",
        "device": "H100",
        "m": 64 << n,
        "n": 4096,
        "k": 4096,
        "dtype": "bf16",
        "latency_us": 20.0 * (n + 1),
    }
    for n in range(4)
]
GRAPH = {
    "format": 1,
    "name": "mlp",
    "symbols": {"batch": 64},
    "parameter_bytes": 67108864,
    "nodes": [
        {
            "name": "up",
            "op": "gemm",
            "dims": {"m": "batch", "n": 4096, "k": 4096},
            "output_bytes": 524288,
            "parameter_bytes": 33554432,
        },
        {
            "name": "act",
            "op": "elementwise",
            "flags": {"gelu": True},
            "inputs": ["up"],
            "dims": {"elements": {"symbol": "batch", "factor": 4096}, "inputs": 1},
        },
        {
            "name": "down",
            "op": "gemm",
            "dims": {"m": "batch", "n": 4096, "k": "64*((batch - 1)//4 + 1)"},
            "inputs": ["act"],
            "parameter_bytes": 33554432,
        },
    ],
}

Formats = dict[str, tuple[bytes, str, str]]
Tally = dict[str, Any]


def formats() -> Formats:
    """Format -> a file that is answered, its ending, and the command of it."""

    def of(path: str) -> bytes:
        return (CATALOG / path).read_bytes()

    def table(value: Any) -> bytes:
        return json.dumps(value).encode()

    lines = "".join(json.dumps(row) + "\n" for row in ROWS).encode()
    device = CATALOG / "devices" / "nvidia-h100-96gb-hbm2e-500w.toml"
    design = min((CATALOG / "designs").glob("*.toml"))
    return {
        "scenario.toml": (SCENARIO.encode(), ".toml", "run {}"),
        "scenario.json": (table(SERVING), ".json", "run {}"),
        "batch": (table(SERVING) + b"\n", ".jsonl", "batch {} -o out.jsonl"),
        "device": (device.read_bytes(), ".toml", INFER + " --model Llama-3.2-1B --device {}"),
        "design": (design.read_bytes(), ".toml", "validate {}"),
        "trace": (table(gpu_trace()), ".json", "whatif {} --device a100 --traced h100"),
        "printed table": (VLLM_PRINT.encode(), ".txt", PRINTED),
        "model": (table(CONFIG), ".json", INFER + " --model {} --device h100"),
        "gguf": (
            gguf_bytes(FACTS, tiny_tensors()),
            ".gguf",
            INFER + " --model {} --device 4090 --engine llama.cpp",
        ),
        "yaml": (LLAMA_FACTORY.encode(), ".yaml", "import {} -o out.json --device h100"),
        "csv": (REQUESTS.encode(), ".csv", "traffic {}"),
        "measurements": (lines, ".jsonl", "calibrate {} --device h100 -o out.json"),
        "calibration": (
            _calibration(lines),
            ".json",
            INFER + " --model Llama-3.2-1B --device h100 --calibration {}",
        ),
        "graph": (table(GRAPH), ".json", "graph {} --device h100"),
        "tflite": (SMALL, ".tflite", "graph {} --device h100"),
        "engine": (
            of("engines/vllm.toml"),
            ".toml",
            INFER + " --model Llama-3.2-1B --device h100 --engine {}",
        ),
        "workflow": (
            (ROOT / "examples" / "workflows" / "rag_chat.toml").read_bytes(),
            ".toml",
            "run {}",
        ),
        **_of_packages(),
    }


def _of_packages() -> Formats:
    """Programs that only what is installed for them can write and read."""
    written: Formats = {}
    if find_spec("onnx"):
        written["onnx"] = (_onnx(), ".onnx", PROGRAM)
    if find_spec("torch"):
        written["pt2"] = (_exported(), ".pt2", PROGRAM)
    return written


def _onnx() -> bytes:
    """A convolution, a product and what stands around them, of an open batch."""
    import numpy as np
    from onnx import TensorProto, helper, numpy_helper

    def value(name: str, *shape: Any) -> Any:
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)

    sizes = {"filters": (4, 3, 3, 3), "matrix": (4 * 8 * 8, 32)}
    nodes = [
        helper.make_node("Conv", ["image", "filters"], ["conv"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["conv"], ["relu"]),
        helper.make_node("Flatten", ["relu"], ["flat"]),
        helper.make_node("MatMul", ["flat", "matrix"], ["product"]),
        helper.make_node("Softmax", ["product"], ["shares"]),
    ]
    weights = [
        numpy_helper.from_array(np.zeros(shape, np.float32), name) for name, shape in sizes.items()
    ]
    image, shares = value("image", "batch", 3, 8, 8), value("shares", "batch", 32)
    graph = helper.make_graph(nodes, "net", [image], [shares], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    content: bytes = model.SerializeToString()
    return content


def _exported() -> bytes:
    """Two products of an open batch, exported."""
    import torch

    layers = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.Linear(16, 4))
    batch = torch.export.Dim("batch", min=2, max=64)
    program = torch.export.export(layers, (torch.zeros(4, 8),), dynamic_shapes=({0: batch},))
    out = io.BytesIO()
    torch.export.save(program, out)
    return out.getvalue()


def _calibration(lines: bytes) -> bytes:
    """What `silicast calibrate` writes of measured rows."""
    with tempfile.TemporaryDirectory() as folder:
        rows, written = Path(folder) / "rows.jsonl", Path(folder) / "written.json"
        rows.write_bytes(lines)
        with contextlib.redirect_stdout(io.StringIO()):
            silicast_main(["calibrate", str(rows), "--device", "h100", "-o", str(written)])
        return written.read_bytes()


def mutated(content: bytes, draw: random.Random) -> bytes:
    """One to three mutations of a file; of an archive, half the time of one of its members, whose
    checksum is then right.
    """
    if content.startswith(b"PK") and draw.random() < 0.5:
        return _member(content, draw)
    for _ in range(draw.choice((1, 1, 1, 2, 3))):
        content = draw.choice(MUTATIONS)(content, draw)
    return content


def _member(content: bytes, draw: random.Random) -> bytes:
    """An archive with a mutated member: the longest mostly, which is its graph."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        members = {info: archive.read(info) for info in archive.infolist()}
    longest = max(members, key=lambda info: len(members[info]))
    chosen = longest if draw.random() < 0.8 else draw.choice(list(members))
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for info, member in members.items():
            archive.writestr(info, mutated(member, draw) if info is chosen else member)
    return out.getvalue()


def _span(content: bytes, draw: random.Random, most: int) -> tuple[int, int]:
    start = draw.randrange(len(content) + 1)
    return start, min(start + draw.randrange(1, most), len(content))


def _flip(content: bytes, draw: random.Random) -> bytes:
    changed = bytearray(content)
    for _ in range(draw.choice((1, 2, 8))):
        if changed:
            changed[draw.randrange(len(changed))] = draw.randrange(256)
    return bytes(changed)


def _cut(content: bytes, draw: random.Random) -> bytes:
    start, end = _span(content, draw, max(len(content), 2))
    return content[:start] if draw.random() < 0.5 else content[:start] + content[end:]


def _repeat(content: bytes, draw: random.Random) -> bytes:
    start, end = _span(content, draw, 200)
    return content[:end] + content[start:end] * draw.choice((1, 2, 50)) + content[end:]


def _line(content: bytes, draw: random.Random) -> bytes:
    lines = content.split(b"\n")
    first, second = draw.randrange(len(lines)), draw.randrange(len(lines))
    if draw.random() < 0.5:
        lines[first], lines[second] = lines[second], lines[first]
    else:
        lines.insert(first, lines[second])
    return b"\n".join(lines)


def _number(content: bytes, draw: random.Random) -> bytes:
    numbers = list(re.finditer(rb"-?\d+(?:\.\d+)?", content))
    return _replaced(content, draw, numbers, draw.choice(EXTREMES).encode())


def _word(content: bytes, draw: random.Random) -> bytes:
    words = list(re.finditer(rb"[A-Za-z_]{3,}", content))
    if not words:
        return content
    other = draw.choice((draw.choice(words)[0], b"x" * 300, b"..", b"\xff\xfe", b"\x1b[2J"))
    return _replaced(content, draw, words, other)


def _replaced(
    content: bytes, draw: random.Random, matches: list[re.Match[bytes]], by: bytes
) -> bytes:
    if not matches:
        return content
    match = draw.choice(matches)
    return content[: match.start()] + by + content[match.end() :]


MUTATIONS: tuple[Callable[[bytes, random.Random], bytes], ...] = (
    _flip,
    _cut,
    _repeat,
    _line,
    _number,
    _number,
    _word,
)


class _TooLongError(BaseException):
    """Nothing in the package catches it."""


def faults_of(tokens: list[str]) -> list[str]:
    """What is wrong with how a command ends."""
    out, err = io.StringIO(), io.StringIO()
    wrong = []

    def ended(_signal: int, _frame: object) -> None:
        raise _TooLongError

    signal.signal(signal.SIGPROF, ended)
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    code = status.INTERNAL
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = silicast_main(tokens)
    except _TooLongError:
        wrong.append("slow")
    except MemoryError:
        wrong.append("memory")
    except Exception as error:
        wrong.append(f"exception {type(error).__name__}")
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0.0)
    if wrong:
        return wrong
    said = err.getvalue()
    if code == status.INTERNAL:
        wrong.append("internal")
    if "Traceback" in said + out.getvalue():
        wrong.append("traceback")
    if code == status.BAD_INPUT and tokens[0] != "validate" and len(said.strip().splitlines()) != 1:
        wrong.append("lines")
    return wrong


def _cpu_s() -> float:
    """Of this process and of those that it waited for."""
    return sum(os.times()[:4])


def attacked(kind: str, numbers: range, folder: Path, keep: Path | None) -> Tally:
    """Outcomes of mutations of one format."""
    content, ending, command = formats()[kind]
    path = folder / f"given{ending}"
    tokens = command.replace("{}", str(path)).split()
    path.write_bytes(content)
    os.chdir(folder)
    if silicast_main(tokens):
        raise ValueError(f"{kind}: {command} of the file as it is does not answer")
    in_use = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    limit = in_use + (MORE_MEMORY_MB << 20)
    resource.setrlimit(resource.RLIMIT_AS, (limit, resource.getrlimit(resource.RLIMIT_AS)[1]))
    faults: dict[str, list[int]] = {}
    begun, slowest = time.perf_counter(), 0.0
    for number in numbers:
        path.write_bytes(mutated(content, random.Random(f"{kind} {number}")))
        started = _cpu_s()
        wrong = faults_of(tokens)
        spent = _cpu_s() - started
        slowest = max(slowest, spent)
        if spent > SECONDS and "slow" not in wrong:
            wrong.append("slow")
        for fault in wrong:
            faults.setdefault(fault, []).append(number)
            if keep is not None:
                shutil.copy(path, keep / f"{kind}-{number}-{fault.replace(' ', '_')}{ending}")
        for left in folder.glob("out*"):
            left.unlink()
    resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    return {
        "first": numbers.start,
        "files": len(numbers),
        "faults": {name: len(some) for name, some in faults.items()},
        "examples": {name: some[:5] for name, some in faults.items()},
        "slowest_cpu_s": round(slowest, 2),
        "seconds": round(time.perf_counter() - begun, 1),
    }


def _joined(before: Tally | None, now: Tally) -> Tally:
    """Both together, where this run went on where the other ended; else this one."""
    if before is None or before["first"] + before["files"] != now["first"]:
        return now
    counted = {
        name: before["faults"].get(name, 0) + now["faults"].get(name, 0)
        for name in before["faults"] | now["faults"]
    }
    return {
        "first": before["first"],
        "files": before["files"] + now["files"],
        "faults": counted,
        "examples": before["examples"] | now["examples"],
        "slowest_cpu_s": max(before.get("slowest_cpu_s", 0.0), now["slowest_cpu_s"]),
        "seconds": round(before["seconds"] + now["seconds"], 1),
    }


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("count", type=int, nargs="?", default=COUNT)
    parser.add_argument("--first", type=int, default=0, help="number of the first mutation")
    parser.add_argument("--kind", action="append", choices=sorted(formats()))
    parser.add_argument("--keep", type=Path, help="folder for files that show a fault")
    parser.add_argument("-o", "--output", type=Path, default=RESULT)
    options = parser.parse_args(arguments)
    output, keep = options.output.absolute(), options.keep and options.keep.absolute()
    numbers = range(options.first, options.first + options.count)
    result: dict[str, Tally] = json.loads(output.read_text()) if output.exists() else {}
    faults = 0
    with tempfile.TemporaryDirectory() as folder:
        for kind in options.kind or formats():
            tally = attacked(kind, numbers, Path(folder), keep)
            print(json.dumps({kind: tally}), file=sys.stderr, flush=True)
            faults += sum(tally["faults"].values())
            result[kind] = _joined(result.get(kind), tally)
            write_atomically(output, (json.dumps(result, indent=1) + "\n").encode())
    print(json.dumps({"files": sum(each["files"] for each in result.values()), "faults": faults}))
    return int(faults > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
