"""Collectives in a trace of PyTorch's profiler: sizes as nccl-tests counts them."""

from __future__ import annotations

from silicast.core.dtypes import BITS
from silicast.measurement.importers.kernel_names import parse_name
from silicast.measurement.importers.kineto_file import Args
from silicast.measurement.records import Columns

_OPS = {
    "allreduce": "all_reduce", "all_reduce": "all_reduce", "allgather": "all_gather",
    "_allgather_base": "all_gather", "allgather_into_tensor_coalesced": "all_gather",
    "all_gather": "all_gather", "reduce_scatter": "reduce_scatter",
    "_reduce_scatter_base": "reduce_scatter", "all_to_all": "all_to_all",
    "all_to_allv": "all_to_all", "broadcast": "broadcast", "send": "send_recv",
    "recv": "send_recv",
}  # fmt: skip
_DTYPES = {
    "bfloat16": "bf16", "half": "fp16", "float16": "fp16", "float": "fp32", "float32": "fp32",
    "double": "fp64", "int": "int32", "long": "int64", "char": "int8", "byte": "int8",
    "float8_e4m3fn": "fp8", "float8_e5m2": "fp8",
}  # fmt: skip


def collective_table(args: Args, name: str) -> Columns | None:
    """The ``workload`` of a collective kernel, None if the trace does not say its size.

    nccl-tests counts the whole buffer: of an all-gather what is received, of a reduce-scatter what
    is given, of the others one rank's.
    """
    if parse_name(name).family != "collective":
        return None
    op = _OPS.get(str(args.collective).casefold().removeprefix("nccl:"))
    dtype = _DTYPES.get(str(args.dtype).casefold().removeprefix("c10::"), "")
    sizes = (args.elements_in, args.elements_out, args.group_size)
    if op is None or not dtype or not all(isinstance(size, int) for size in sizes):
        return None
    elements = max(args.elements_in, args.elements_out)
    nbytes = int(elements * BITS[dtype] // 8)
    if nbytes < 1 or args.group_size < 2:
        return None
    return {
        "op": op, "bytes": nbytes, "gpus": args.group_size, "dtype": dtype,
        "implementation": "nccl",
    }  # fmt: skip
