"""Collectives between the GPUs of this machine, through ``torch.distributed`` and NCCL.

One process per GPU; they meet through a file. With a single GPU, or on a CPU (none of whose
libraries :mod:`silicast.communication` models), the only row is a failed one with the reason.
"""

from __future__ import annotations

import importlib
import queue
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from silicast.measurement.machine.measured_machine import MeasuredMachine
from silicast.measurement.records.records import CollectiveRow, Columns, FailedRow, utc_now
from silicast.measurement.sweeps.session import reason_of
from silicast.measurement.sweeps.timing import summarised

OPS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast")
BYTES = tuple(1 << power for power in range(10, 29, 2))
"""Per call, as nccl-tests counts: the larger of a rank's input and output."""
DTYPE = "bf16"
LAUNCH = "eager"
"""As models launch them outside of graphs."""
WARM_UP, REPEATS, SPAN_S = 5, 20, 0.002
WAIT_S = 120.0
"""Time limit for one number of GPUs, including the start of its processes."""
END_S = 10.0
"""Time for all processes to end by themselves."""


def measure_collectives(
    machine: MeasuredMachine, session: str = ""
) -> Iterator[CollectiveRow | FailedRow]:
    """A row for each operation, size and number of GPUs: 2, 4, ... and all of them."""
    if machine.kind == "cpu" or machine.count < 2:
        why = (
            "a CPU's collectives are not measured: no library of theirs is modelled"
            if machine.kind == "cpu"
            else "there is one GPU: collectives need two or more"
        )
        yield FailedRow(session, {"collective": "all"}, "unsupported", why, utc_now())
        return
    for gpus in counts(machine.count):
        try:
            processes = _in_processes(gpus)
        except Exception as error:
            failed: Columns = {"collective": "all", "gpus": gpus}
            yield FailedRow(session, failed, *reason_of(error), utc_now())
            continue
        for table, samples in processes:
            if isinstance(samples, str):
                yield FailedRow(session, table, "error", samples, utc_now())
                continue
            latency_us, spread, flags = summarised(samples)
            yield CollectiveRow(session, table, latency_us, machine.count, utc_now(), spread, flags)


def counts(gpus: int) -> list[int]:
    """Powers of two up to all GPUs, and all.

    >>> counts(6), counts(8)
    ([2, 4, 6], [2, 4, 8])
    """
    powers = [1 << power for power in range(1, gpus.bit_length()) if 1 << power <= gpus]
    return powers if gpus in powers else [*powers, gpus]


def elements(op: str, size: int, gpus: int, item: int = 2) -> tuple[int, int]:
    """Elements of a rank's input and output for a call of ``size`` bytes, in equal shares.

    >>> elements("all_gather", 1024, 4), elements("reduce_scatter", 1024, 4)
    ((128, 512), (512, 128))
    """
    share = max(size // item // gpus, 1)
    if op == "all_gather":
        return share, share * gpus
    if op == "reduce_scatter":
        return share * gpus, share
    return share * gpus, share * gpus


Found = list[tuple[Columns, list[float] | str]]


def _in_processes(gpus: int) -> Found:
    """Runs one process per GPU; the results of the first rank.

    Raises:
        RuntimeError: a process failed or did not end in time.
    """
    spawned: Any = importlib.import_module("torch.multiprocessing").get_context("spawn")
    results = spawned.Queue()
    with tempfile.TemporaryDirectory() as folder:
        position = Path(folder, "meet").as_uri()
        ranks = [
            spawned.Process(target=_rank, args=(rank, gpus, position, results), daemon=True)
            for rank in range(gpus)
        ]
        for rank in ranks:
            rank.start()
        try:
            processes: Found | str = results.get(timeout=WAIT_S)
        except queue.Empty:
            processes = f"no process answered within {WAIT_S:g} s"
        finally:
            end = time.monotonic() + END_S
            for rank in ranks:  # ranks that wait for a failed one end together
                rank.join(timeout=max(0.0, end - time.monotonic()))
                if rank.is_alive():
                    rank.terminate()
    if isinstance(processes, str):
        raise RuntimeError(processes)
    return processes


def _rank(rank: int, gpus: int, location: str, results: Any) -> None:
    """One process: joins, measures, and reports if it is rank 0 or failed."""
    torch: Any = importlib.import_module("torch")
    group: Any = importlib.import_module("torch.distributed")
    try:
        torch.cuda.set_device(rank)
        group.init_process_group("nccl", init_method=location, rank=rank, world_size=gpus)
        measured: Found = []
        for op in OPS:
            for size in BYTES:
                table = {
                    "op": op,
                    "bytes": size,
                    "gpus": gpus,
                    "dtype": DTYPE,
                    "implementation": "nccl",
                    "launch": LAUNCH,
                }
                measured.append((table, _timed(torch, group, op, size, gpus)))
        group.destroy_process_group()
    except Exception as error:
        results.put(f"rank {rank}: {type(error).__name__}: {error}")
        return
    if rank == 0:
        results.put(measured)


def _timed(torch: Any, group: Any, op: str, size: int, gpus: int) -> list[float]:
    """Seconds per call: several in a row between two events, after a barrier."""
    elements_in, elements_out = elements(op, size, gpus)
    source = torch.randn(elements_in, device="cuda", dtype=torch.bfloat16)
    target = torch.empty(elements_out, device="cuda", dtype=torch.bfloat16)
    calls: dict[str, Callable[[], object]] = {
        "all_reduce": lambda: group.all_reduce(source),
        "all_gather": lambda: group.all_gather_into_tensor(target, source),
        "reduce_scatter": lambda: group.reduce_scatter_tensor(target, source),
        "all_to_all": lambda: group.all_to_all_single(target, source),
        "broadcast": lambda: group.broadcast(source, 0),
    }
    call = calls[op]
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))

    def sample(count: int) -> float:
        group.barrier()
        torch.cuda.synchronize()
        start.record()
        for _ in range(count):
            call()
        end.record()
        torch.cuda.synchronize()
        return float(start.elapsed_time(end)) * 1e-3 / count

    usual = min(sample(1) for _ in range(WARM_UP))
    # rank 0 sets the number of calls for all ranks
    count = torch.tensor([max(1, min(50, int(SPAN_S / max(usual, 1e-6))))], device="cuda")
    group.broadcast(count, 0)
    if op == "all_reduce":
        source.zero_()  # sums of sums would overflow
    return [sample(int(count)) for _ in range(REPEATS)]
