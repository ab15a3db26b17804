"""Ways to run a program: eager, as a CUDA graph, compiled; and what scenarios call each."""

from __future__ import annotations

import importlib.util
import os
import shutil
from collections.abc import Callable
from typing import Any, Literal, get_args

from silicast.measurement.capture import capturing
from silicast.measurement.machine import Machine
from silicast.measurement.models.case import Program

Mode = Literal["eager", "graph", "compiled"]
MODES: tuple[Mode, ...] = get_args(Mode)
"""In the order in which they are measured: compilers take longest, what is quick comes first."""

ENGINES: dict[Mode, Any] = {
    "eager": "torch-eager",
    "graph": {"name": "torch-eager", "options": {"cuda_graph": "full"}},
    "compiled": "torch-compile",
}
"""What a scenario calls each."""

CAPTURE_WARM_UP = 3
"""Calls on a side stream before a capture, as torch.cuda.graph asks for."""

Call = Callable[[], object]


def why_not(mode: Mode, machine: Machine, program: Program) -> str:
    """Why a program is not measured in a mode here; "" = it is."""
    if mode == "graph":
        if machine.kind != "cuda":
            return "graphs are of CUDA devices"
        return program.captures
    if mode == "compiled":
        return program.compiles or _no_compiler(machine)
    return ""


def _no_compiler(machine: Machine) -> str:
    """Why torch.compile has nothing to compile with."""
    if machine.kind == "cuda" and importlib.util.find_spec("triton") is None:
        return "torch.compile needs Triton on a GPU: pip install triton"
    if not any(shutil.which(name) for name in (os.environ.get("CXX", ""), "g++", "clang++")):
        return "torch.compile needs a C++ compiler: install g++, or name one in CXX"
    return ""


def prepared(mode: Mode, program: Program) -> Call:
    """One pass of the program in a mode, compiled or captured by now; without gradients."""
    import torch

    if mode == "graph":
        return _captured(torch, program)
    module = program.module
    if mode == "compiled":
        torch.compiler.reset()
        module = torch.compile(module, dynamic=False)

    def call() -> object:
        with torch.no_grad():
            return module(*program.args)

    call()
    return call


def _captured(torch: Any, program: Program) -> Call:
    graph, side = torch.cuda.CUDAGraph(), torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.no_grad():
        with torch.cuda.stream(side):
            for _ in range(CAPTURE_WARM_UP):
                program.module(*program.args)
        torch.cuda.current_stream().wait_stream(side)
        with capturing(torch, graph):
            kept = program.module(*program.args)

    def replay(result: object = kept) -> object:
        graph.replay()
        return result

    return replay
