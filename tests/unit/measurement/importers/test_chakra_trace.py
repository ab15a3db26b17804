"""Measured Chakra traces: kernels get the sizes of the operators above them."""

from __future__ import annotations

from pathlib import Path

import pytest

from silicast.core.errors import SilicastError
from silicast.formats.chakra.files import ChakraTrace, write_chakra
from silicast.formats.chakra.schema import COLL, COMP, Attribute, ChakraNode, Operands, RankTrace
from silicast.measurement.importers.files import import_files
from silicast.measurement.records.records import CollectiveRow, KernelRow
from silicast.measurement.what_if.scaled_trace import scaled_trace

pytest.importorskip("google.protobuf")
HOST, DEVICE = (
    Attribute("is_cpu_op", "bool", value=True),
    Attribute("is_cpu_op", "bool", value=False),
)
FACTORS = Operands(
    "[[1, 2, 0, 8, 4, 'cuda:0'], [3, 4, 0, 8, 4, 'cuda:0']]",
    "[[4096, 1024], [1024, 512]]",
    "['Tensor(c10::BFloat16)', 'Tensor(c10::BFloat16)']",
)


def traced(folder: Path, nodes: tuple[ChakraNode, ...], ranks: int = 1) -> Path:
    trace = ChakraTrace(
        "run", {0: RankTrace(nodes)}, {"0": tuple(range(ranks))} if ranks > 1 else {}
    )
    return write_chakra(trace, folder)[0]


def product(number: int, start: int, took: int) -> tuple[ChakraNode, ...]:
    """A module's call, its product on the host, and the kernel of that."""
    return (
        ChakraNode(number, "Linear", COMP, attributes=(HOST,)),
        ChakraNode(number + 1, "aten::mm", COMP, (number,), attributes=(HOST,), inputs=FACTORS),
        ChakraNode(
            number + 2, "nvjet_tst_128x256_64", COMP, (number + 1,), (), start, took, (DEVICE,)
        ),
    )


def test_a_kernel_has_the_sizes_of_its_operator_and_gaps_are_idle(tmp_path: Path) -> None:
    path = traced(tmp_path, (*product(1, 100, 20), *product(11, 150, 30)))
    (imported,) = import_files([path], device="H100")
    assert imported.format == "chakra"
    (row,) = imported.reading.records
    assert isinstance(row, KernelRow)
    sizes = {name: row.kernel[name] for name in ("op", "m", "n", "k", "dtype")}
    assert sizes == {"op": "gemm", "m": 4096, "n": 512, "k": 1024, "dtype": "bf16"}
    assert (row.latency_us, row.spread and row.spread.repeats) == (25.0, 2)
    assert (imported.reading.idle_us, imported.reading.busy_us) == (30.0, 50.0)


def test_collectives_count_bytes_as_nccl_tests_does(tmp_path: Path) -> None:
    attributes = (
        DEVICE,
        Attribute("comm_type", "int64", 2),
        Attribute("comm_size", "int64", 1 << 20),
        Attribute("pg_name", "string", "0"),
    )
    gathered = ChakraNode(40, "ncclAllGather", COLL, (), (), 200, 90, attributes)
    path = traced(tmp_path, (*product(1, 100, 20), gathered), ranks=4)
    (imported,) = import_files([path], device="H100")
    (row,) = (each for each in imported.reading.records if isinstance(each, CollectiveRow))
    assert row.collective == {
        "op": "all_gather", "bytes": 4 << 20, "gpus": 4, "implementation": "nccl",
    }  # fmt: skip
    assert row.latency_us == 90.0


def test_what_if_takes_a_chakra_trace(tmp_path: Path) -> None:
    unknown = ChakraNode(30, "strange_kernel", COMP, (), (), 190, 10, (DEVICE,))
    path = traced(tmp_path, (*product(1, 100, 20), *product(11, 150, 30), unknown))
    same, slower = (scaled_trace(path, device, "H100") for device in ("H100", "A100"))
    assert same.scaled_us.estimate == pytest.approx(60.0)
    assert slower.scaled_us.estimate > 60.0
    assert [each.name for each in slower.unscaled] == ["strange_kernel"]
    assert slower.unscaled_share == pytest.approx(1.0 / 6.0)


def test_a_trace_of_a_simulator_is_no_measurement(tmp_path: Path) -> None:
    path = traced(tmp_path, (ChakraNode(1, "step", COMP),))
    with pytest.raises(SilicastError, match="no kernel with a time") as caught:
        import_files([path], device="H100")
    assert caught.value.field == "duration_micros"
    path.write_bytes(path.read_bytes()[:-2])
    with pytest.raises(SilicastError, match="cut off"):
        import_files([path], device="H100")
