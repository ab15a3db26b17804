"""What the page asks of one setup: whether it fits, and how it serves load after load."""

from __future__ import annotations

from typing import Annotated, Any, Literal, final

from msgspec import Meta

from silicast.core.decode import Strict
from silicast.scenario.reading.limits import Tokens

REQUESTS = {1: 16, 2: 16, 4: 16, 8: 32, 16: 64, 32: 128, 64: 256, 128: 512, 256: 1024}
"""Clients -> requests that are simulated: four a client, sixteen at least."""

Name = Annotated[str, Meta(min_length=1, max_length=200)]


@final
class PageSetup(Strict, frozen=True):
    """A deployment and the requests that it gets, as the page's form has them.

    Attributes:
        dtype: format of the products, "" = the checkpoint's; price: USD for an hour of a device.
    """

    model: Name
    device: Name
    engine: Name = "vllm"
    dtype: str = ""
    tp: Annotated[int, Meta(ge=1, le=64)] = 1
    pp: Annotated[int, Meta(ge=1, le=64)] = 1
    price: Annotated[float, Meta(ge=0, le=1e6)] | None = None
    input_len: Tokens = 1024
    output_len: Tokens = 128


def scenarios_of(setup: PageSetup) -> list[dict[str, Any]]:
    """A static batch of one request, and traffic of more and more clients; ``id``: how many.

    >>> [each["id"] for each in scenarios_of(PageSetup("Llama-3.1-8B", "h100"))][:4]
    [0, 1, 2, 4]
    """
    common: dict[str, Any] = {"model": setup.model, "device": setup.device, "engine": setup.engine}
    plan = {name: degree for name, degree in (("tp", setup.tp), ("pp", setup.pp)) if degree > 1}
    if plan:
        common["parallel"] = plan
    if setup.dtype:
        common["precision"] = {"recipe": setup.dtype}
    lengths = {"input_len": setup.input_len, "output_len": setup.output_len}
    alone = {"id": 0, "task": "inference", **common, "workload": {"batch": 1, **lengths}}
    if setup.price:
        common["cluster"] = {"price_per_gpu_hour": setup.price}
    return [alone, *(_served(common, lengths, clients) for clients in REQUESTS)]


def _served(common: dict[str, Any], lengths: dict[str, int], clients: int) -> dict[str, Any]:
    kind: Literal["closed"] = "closed"
    arrival = {"kind": kind, "concurrency": clients}
    work = {"arrival": arrival, "requests": REQUESTS[clients], **lengths}
    return {"id": clients, "task": "serving", **common, "workload": work}
