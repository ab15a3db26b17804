"""The event core of workflows against queueing theory, 10,000 random workflows, and its speed.

    python -m benchmarks.workflow_queues [WORKFLOWS]

Queues in a row, with feedback and with a fork and join against closed forms at loads of 0.3, 0.6
and 0.9. A mean of a queue at a load of 0.9 takes millions of items to settle: the simulation of
20,000 items is compared with Lindley's recursion over the same draws (to the nanosecond), and the
recursion over 10 million items with the closed form; feedback with a line of its own, over 5
million. Random workflows hold the laws
that the tests hold for a few: all jobs run once, after what they wait for, within their pools'
servers, and without queues an item takes exactly its longest path.
Writes benchmarks/results/workflow_queues.json.
"""

from __future__ import annotations

import heapq
import math
import sys
import time
from collections import deque
from pathlib import Path
from typing import Any

import numpy as np

from lab import fitting
from silicast.core.numerics import F64, I64
from silicast.workflow.jobs import JOIN, expanded
from silicast.workflow.run import WorkflowRun, WorkflowTimes, critical_path_ns
from silicast.workflow.scheduling.cluster import ClusterStation
from silicast.workflow.scheduling.policy import ClusterJob, policy_of
from silicast.workflow.stages import StageLoop, WorkflowGraph, WorkflowStage
from silicast.workflow.stations.servers import ServerStation

OUT = Path(__file__).parent / "results" / "workflow_queues.json"
SECOND = 1_000_000_000
LOADS = (0.3, 0.6, 0.9)
FEW, MANY = 20_000, 10_000_000
TANDEM = WorkflowGraph((WorkflowStage("a"), WorkflowStage("b", ("a",))))
FORKED = WorkflowGraph(
    (WorkflowStage("split"), WorkflowStage("a", ("split",)), WorkflowStage("b", ("split",)))
)


def main(arguments: list[str]) -> None:
    """Prints and writes everything."""
    count = int(arguments[0]) if arguments else 10_000
    table: dict[str, Any] = {"queues": [], "cluster": []}
    for load in LOADS:
        table["queues"] += [tandem(load), forked(load), fed_back(load)]
        table["cluster"].append(cluster(load))
    for row in (*table["queues"], *table["cluster"]):
        print(row, flush=True)
    table["random"] = random_workflows(count)
    print(table["random"], flush=True)
    table["speed"] = speed()
    print(table["speed"], flush=True)
    fitting.write(OUT, table)


def lindley(arrival: I64, service: I64) -> I64:
    """When each of a queue with one server ends, ns: max over k <= n of what came and all since."""
    total = np.cumsum(service)
    started: I64 = np.maximum.accumulate(arrival - (total - service))
    return started + total


def drawn(random: np.random.Generator, mean_s: float, count: int) -> I64:
    return random.exponential(mean_s * SECOND, count).astype(np.int64)


def simulated(graph: WorkflowGraph, arrival: I64, services: list[I64]) -> WorkflowTimes:
    """A workflow whose stages have one server each."""
    jobs = expanded(graph, len(arrival), 1)
    stations = {
        stage: ServerStation(
            dict(zip(jobs.of_stages([stage]).tolist(), service.tolist(), strict=True)), 1
        )
        for stage, service in enumerate(services)
    }
    return WorkflowRun(jobs, stations, arrival).run()


def row_of(name: str, load: float, closed_s: float, long_s: F64, off_ns: int) -> dict[str, Any]:
    mean = float(long_s.mean())
    return {
        "queue": name,
        "load": load,
        "closed_form_s": round(closed_s, 5),
        "recursion_s": round(mean, 5),
        "error_pct": round(100.0 * abs(mean / closed_s - 1.0), 3),
        "simulation_off_by_ns": off_ns,
    }


def tandem(load: float) -> dict[str, Any]:
    """Two M/M/1 queues in a row, the second 20 % quicker (Jackson, 1957)."""
    random = np.random.default_rng(11)
    means = (1.0, 0.8)

    def ends(count: int) -> tuple[I64, list[I64], I64]:
        arrival = np.cumsum(drawn(random, 1.0 / load, count))
        services = [drawn(random, mean, count) for mean in means]
        return arrival, services, lindley(lindley(arrival, services[0]), services[1])

    arrival, services, expected = ends(FEW)
    off = int(np.abs(simulated(TANDEM, arrival, services).end_ns - expected).max())
    arrival, _, last = ends(MANY)
    closed = sum(1.0 / (1.0 / mean - load) for mean in means)
    return row_of("tandem", load, closed, (last - arrival) / SECOND, off)


def forked(load: float) -> dict[str, Any]:
    """Two equal queues that a job waits for both of (Nelson and Tantawi, 1988)."""
    random = np.random.default_rng(12)

    def ends(count: int) -> tuple[I64, list[I64], I64]:
        arrival = np.cumsum(drawn(random, 1.0 / load, count))
        services = [drawn(random, 1.0, count) for _ in range(2)]
        return arrival, services, np.maximum(*(lindley(arrival, each) for each in services))

    arrival, services, expected = ends(FEW)
    nothing = np.zeros(FEW, dtype=np.int64)
    times = simulated(FORKED, arrival, [nothing, *services])
    off = int(np.abs(times.end_ns - expected).max())
    arrival, _, last = ends(MANY)
    closed = (12.0 - load) / 8.0 / (1.0 - load)
    return row_of("fork and join", load, closed, (last - arrival) / SECOND, off)


def fed_back(load: float) -> dict[str, Any]:
    """A queue whose jobs come again with a chance of 0.4 (Jackson, 1957)."""
    random, chance = np.random.default_rng(13), 0.4
    rate = load * (1.0 - chance)
    jobs = expanded(WorkflowGraph((WorkflowStage("a", loop=StageLoop("a", chance)),)), FEW, 1)
    arrival = np.cumsum(drawn(random, 1.0 / rate, FEW))
    service = drawn(random, 1.0, len(jobs))
    station = ServerStation(dict(enumerate(service.tolist())), 1)
    times = WorkflowRun(jobs, {0: station}, arrival).run()
    order = np.argsort(jobs.item, kind="stable")
    visits = np.bincount(jobs.item, minlength=FEW)
    off = int(np.abs(times.end_ns - come_again(arrival, visits, service[order])).max())
    arrival = np.cumsum(drawn(random, 1.0 / rate, MANY // 2))
    visits = random.geometric(1.0 - chance, MANY // 2)
    last = come_again(arrival, visits, drawn(random, 1.0, int(visits.sum())))
    return row_of("feedback", load, load / (1.0 - load) / rate, (last - arrival) / SECOND, off)


def come_again(arrival: I64, visits: I64, service: I64) -> I64:
    """When each item leaves one server to which it comes ``visits`` times, last in line, ns.

    Args:
        service: of all visits of the first item, of the second, ...
    """
    stop = np.cumsum(visits).tolist()
    visit, took = [0, *stop[:-1]], service.tolist()
    come = [*arrival.tolist(), np.iinfo(np.int64).max]
    ends = [0] * len(stop)
    line, coming, now = deque[int](), 0, 0
    while line or coming < len(stop):
        if not line:
            now = max(now, come[coming])
            line.append(coming)
            coming += 1
        item = line.popleft()
        now += took[visit[item]]
        visit[item] += 1
        while come[coming] <= now:
            line.append(coming)
            coming += 1
        if visit[item] < stop[item]:
            line.append(item)
        else:
            ends[item] = now
    return np.array(ends, dtype=np.int64)


def cluster(load: float) -> dict[str, Any]:
    """A cluster of 4 devices and one kind of job: M/M/4, by Erlang's formula."""
    random, servers = np.random.default_rng(14), 4
    arrival = np.cumsum(drawn(random, 1.0 / (load * servers), FEW))
    service = drawn(random, 1.0, FEW)
    jobs = {n: ClusterJob(ns / SECOND, {(0, 1): 1.0}) for n, ns in enumerate(service.tolist())}
    graph = WorkflowGraph((WorkflowStage("job"),))
    station = ClusterStation(jobs, [servers], policy_of("fifo"))
    times = WorkflowRun(expanded(graph, FEW), {0: station}, arrival).run()
    off = int(np.abs(times.end_ns - served_by(arrival, service, servers)).max())
    many = np.cumsum(drawn(random, 1.0 / (load * servers), MANY // 10))
    served = drawn(random, 1.0, MANY // 10)
    offered = load * servers
    last = offered**servers / math.factorial(servers) / (1.0 - load)
    waits = last / (sum(offered**k / math.factorial(k) for k in range(servers)) + last)
    closed = 1.0 + waits / (servers - offered)
    long_s = (served_by(many, served, servers) - many) / SECOND
    return row_of("M/M/4", load, closed, long_s, off)


def served_by(arrival: I64, service: I64, servers: int) -> I64:
    """When each ends that the first free of some servers takes, in order of coming, ns."""
    free = [0] * servers
    ends = []
    for come, took in zip(arrival.tolist(), service.tolist(), strict=True):
        ends.append(max(free[0], come) + took)
        heapq.heapreplace(free, ends[-1])
    return np.array(ends, dtype=np.int64)


def random_workflows(count: int) -> dict[str, Any]:
    """Laws over random graphs, pools and arrivals; how many broke one."""
    random = np.random.default_rng(15)
    broken = jobs_run = 0
    for _ in range(count):
        graph = random_graph(random)
        items, servers = int(random.integers(1, 5)), int(random.integers(0, 3))
        jobs = expanded(graph, items, int(random.integers(1 << 30)))
        service = random.integers(1, 50, size=len(jobs))
        stations = {
            stage: ServerStation({j: int(service[j]) for j in jobs.of_stages([stage])}, servers)
            for stage in range(len(graph.stages))
        }
        arrival = np.cumsum(random.integers(0, 40, size=items))
        times = WorkflowRun(jobs, stations, arrival, int(random.integers(0, 3))).run()
        jobs_run += len(jobs)
        broken += not lawful(times, service, servers, len(graph.stages))
    return {"workflows": count, "jobs": jobs_run, "broken": broken}


def random_graph(random: np.random.Generator) -> WorkflowGraph:
    """Up to eight stages with joins, copies, repeats, options, branches and loops."""
    stages: list[WorkflowStage] = []
    size = int(random.integers(1, 9))
    while len(stages) < size:
        number = len(stages)
        after = tuple(s.name for s in stages if random.random() < 1.5 / max(number, 1))[:3]
        copies, repeat = int(random.integers(1, 4)), int(random.integers(1, 3))
        if random.random() < 0.2 and number + 1 < size:
            share = float(random.uniform(0.1, 0.9))
            stages += [
                WorkflowStage(f"s{number + n}", after, copies, repeat, chance, f"b{number}")
                for n, chance in enumerate((share, 1.0 - share))
            ]
            continue
        chance = float(random.choice([1.0, 1.0, 0.5]))
        loop = StageLoop(f"s{number}", 0.5, 4) if random.random() < 0.2 else None
        stages.append(WorkflowStage(f"s{number}", after, copies, repeat, chance, "", loop))
    return WorkflowGraph(tuple(stages))


def lawful(times: WorkflowTimes, service: I64, servers: int, stages: int) -> bool:
    """Whether a run holds all laws."""
    jobs = times.jobs
    runs = jobs.stage != JOIN
    took = np.where(runs, service, 0)
    if not (times.done_ns - times.begun_ns == took).all():
        return False
    ready = times.start_ns[jobs.item].copy()
    for job, followers in enumerate(jobs.followers):
        for each in followers:
            ready[each] = max(ready[each], times.done_ns[job])
    if not ((times.ready_ns == ready) & (times.begun_ns >= ready)).all():
        return False
    for stage in range(stages if servers else 0):
        rows = jobs.of_stages([stage])
        begun, done = np.sort(times.begun_ns[rows]), np.sort(times.done_ns[rows])
        if (begun[servers:] < done[: len(done) - servers]).any():
            return False
    latency = times.end_ns - times.start_ns
    path = critical_path_ns(times, stages)
    if not servers and path[:, 0].any():
        return False
    return math.isclose(float(path.sum()), float(latency.mean()), rel_tol=1e-9)


def speed() -> dict[str, float]:
    """Requests a second of four stages in a row of eight servers each, CPU time, one run."""
    names = "embed", "search", "rerank", "answer"
    graph = WorkflowGraph(
        tuple(WorkflowStage(n, names[i - 1 : i] if i else ()) for i, n in enumerate(names))
    )
    random, count = np.random.default_rng(16), 20_000
    arrival = np.cumsum(drawn(random, 1.0 / 6.0, count))
    started = time.process_time()
    jobs = expanded(graph, count, 1)
    stations = {
        stage: ServerStation(
            dict(
                zip(
                    jobs.of_stages([stage]).tolist(),
                    drawn(random, 1.0, count).tolist(),
                    strict=True,
                )
            ),
            8,
        )
        for stage in range(4)
    }
    WorkflowRun(jobs, stations, arrival).run()
    return {"requests_per_cpu_s": round(count / (time.process_time() - started))}


if __name__ == "__main__":
    main(sys.argv[1:])
