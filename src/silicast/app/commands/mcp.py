"""`silicast mcp`."""

from __future__ import annotations

from silicast.app import status
from silicast.core.packages import missing_package

INSTRUCTIONS = (
    "Predicts latency, throughput, memory, energy and cost of machine-learning work on "
    "accelerators. Every number has a unit, a 90 % interval (p05, p95), a tier and a source: quote "
    "the interval. 'abstained' means that nothing near was measured; do not make up a number."
)


def mcp() -> int:
    """Offer tools to agents over the Model Context Protocol, on standard input and output.

    Six tools: predict, compare, capacity, train_plan, explain, resolve_names. Nothing that an agent
    says opens a file.
    """
    try:
        from mcp.server import MCPServer
    except ImportError:
        raise missing_package("mcp", "the Model Context Protocol") from None
    from silicast import __version__
    from silicast.app.agents.tools import TOOLS

    offered = MCPServer("silicast", version=__version__, instructions=INSTRUCTIONS)
    for tool in TOOLS:
        offered.tool()(tool)
    offered.run("stdio")
    return status.ANSWERED
