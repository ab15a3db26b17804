"""How much do two jobs slow each other down on a spine that both use?"""

from silicast.communication.flows.groups import rounds_of
from silicast.communication.flows.job import Job
from silicast.communication.flows.product import rail_cluster
from silicast.communication.flows.simulation import simulate, slowdowns

NODES, GPUS = 32, 8
SIZE = 256e6

for oversubscription in (1.0, 2.0, 4.0):
    cluster = rail_cluster(
        NODES, GPUS, node_bytes_per_s=450e9, network_bytes_per_s=50e9, node_latency_s=0.5e-6,
        network_latency_s=2e-6, nodes_per_pod=8, oversubscription=oversubscription,
    )  # fmt: skip
    ranks = range(0, NODES * GPUS, GPUS)  # the first rail
    for op, method in (("all_reduce", "ring"), ("all_to_all", "direct")):
        rounds = rounds_of(op, method, NODES // 2, SIZE)
        jobs = [Job("even nodes", tuple(ranks[::2]), rounds)]
        jobs.append(Job("odd nodes", tuple(ranks[1::2]), rounds))
        slower = slowdowns(cluster, jobs)["even nodes"]
        outcome = simulate(cluster, jobs)
        print(
            f"{op:10} oversubscribed {oversubscription:.0f} x: {outcome.end_s * 1e3:6.2f} ms, "
            f"{slower:.2f} x as long as alone, most used: {outcome.busiest}"
        )
