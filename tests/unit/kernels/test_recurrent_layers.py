"""Recurrent layers against counts by hand, and the law of their steps."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from silicast.core.errors import SilicastError
from silicast.hardware.catalog import device_index, find_device
from silicast.kernels.registry import implementation_for
from silicast.scenario.kernels.kernel_case import kernel_case
from silicast.workload.graphs.op import Op, OpBatch, Variant

SIZES: dict[str, Any] = {"batch": 2, "steps": 3, "hidden": 5, "input": 7}


def seconds(op: Op, device: str = "V100") -> float:
    board = find_device(device)
    model = implementation_for(op.family, board.execution_model)
    assert model is not None
    return float(model.times(OpBatch.from_ops([op]), board).estimate_s[0])


def layer(family: str = "lstm", *flags: str, dtype: str = "fp16", **dims: int) -> Op:
    sizes = {"batch": 8, "steps": 100, "hidden": 1024, "input": 0} | dims
    return Op.make(family, Variant(dtype, flags=tuple((x, True) for x in flags)), **sizes)


class TestCounts:
    @pytest.mark.parametrize(("family", "gates"), [("lstm", 4), ("gru", 3), ("rnn", 1)])
    def test_every_weight_multiplies_once_a_sequence_and_step(
        self, family: str, gates: int
    ) -> None:
        model = implementation_for(family, "simt")
        assert model is not None
        assert model.flops(Op.make(family, **SIZES)) == 2 * 2 * 3 * gates * 5 * (5 + 7)

    def test_a_projection_narrows_the_state_and_has_weights(self) -> None:
        model = implementation_for("lstm", "simt")
        assert model is not None
        op = Op.make("lstm", **SIZES, projection=4)
        assert model.flops(op) == 2 * 2 * 3 * (20 * 4 + 5 * 4 + 20 * 7)

    def test_bytes_are_weights_inputs_and_states(self) -> None:
        model = implementation_for("lstm", "simt")
        assert model is not None
        whole = Op.make("lstm", Variant("fp32"), **SIZES)
        assert model.compulsory_bytes(whole) == 4 * (20 * (5 + 7) + 2 * 3 * (5 + 7))
        without = Op.make("lstm", Variant("fp32"), **SIZES | {"input": 0})
        assert model.compulsory_bytes(without) == 4 * (20 * 5 + 2 * 3 * (5 + 20))


class TestLaw:
    def test_each_step_costs_the_same_after_the_first_hundred(self) -> None:
        times = [seconds(layer(steps=steps)) for steps in (200, 300, 400)]
        assert times[2] - times[1] == pytest.approx(times[1] - times[0], rel=1e-9)

    def test_a_step_of_one_sequence_reads_all_weights_again(self) -> None:
        """8192 units: 512 MiB of 16-bit weights, whatever the number of steps."""
        per_step = (
            seconds(layer(hidden=8192, batch=1, steps=300))
            - seconds(layer(hidden=8192, batch=1, steps=200))
        ) / 100
        read_s = 4 * 8192 * 8192 * 2 / find_device("V100").dram.bandwidth_bytes_per_s
        assert read_s < per_step < 3 * read_s

    def test_products_of_the_inputs_are_one_product_for_all_steps(self) -> None:
        extra = seconds(layer(input=512)) - seconds(layer())
        kind = Variant("fp16", cache="")
        once = Op.make("gemm", kind, m=8 * 100, n=4 * 1024, k=512, batch=1)
        assert extra == pytest.approx(seconds(once), rel=1e-6)

    def test_gradients_of_weights_have_no_chain_of_steps(self) -> None:
        few = layer("lstm", "backward_weights", batch=8, steps=400)
        many = layer("lstm", "backward_data", batch=8, steps=400)
        assert seconds(few) < seconds(many) / 3

    def test_weights_in_registers_are_not_read_again(self) -> None:
        plain, kept = layer(steps=400), layer("lstm", "persistent", steps=400)
        assert seconds(kept, "H100") < seconds(plain, "H100") / 2
        board = find_device("H100")
        model = implementation_for("lstm", "simt")
        assert model is not None
        wide = layer("lstm", "persistent", hidden=8192)
        times = model.times(OpBatch.from_ops([wide]), board)
        assert "do not fit into registers" in " ".join(times.warnings)
        assert float(times.estimate_s[0]) == seconds(layer(hidden=8192), "H100")

    def test_elsewhere_a_step_is_a_product_and_its_gates(self) -> None:
        cpu, kind = "EPYC 9654", Variant("fp32", cache="warm", flags=(("sigmoid", True),))
        step = Op.make("gemm", Variant("fp32"), m=8, n=4096, k=1024, batch=1)
        gates = Op.make("elementwise", kind, elements=8 * 4096, inputs=2)
        expected = 100 * (seconds(step, cpu) + seconds(gates, cpu))
        assert seconds(layer(dtype="fp32"), cpu) == pytest.approx(expected, rel=1e-6)

    def test_rows_have_the_same_bits_alone_and_together(self) -> None:
        ops = [layer(batch=n) for n in (1, 8, 24, 64)]
        model = implementation_for("lstm", "simt")
        assert model is not None
        together = model.times(OpBatch.from_ops(ops), find_device("V100")).estimate_s
        assert np.array_equal(together, [seconds(op) for op in ops])


GPUS = {
    device.architecture: name
    for name in device_index().names
    if (device := device_index().get(name)).execution_model == "simt"
}
"""Architecture -> the last of its devices."""
NARROW_TILES = "pascal"
"""Measured there: 32 sequences take up to four times as long as 64."""


def drops(device: str, flag: str, dtype: str, hidden: int, most: int = 64) -> list[int]:
    """Numbers of sequences, of 1..64, that take over 2 % less time than fewer do."""
    flags = (flag,) if flag else ()
    ops = [layer("lstm", *flags, dtype=dtype, hidden=hidden, batch=n + 1) for n in range(most)]
    board = find_device(device)
    model = implementation_for("lstm", board.execution_model)
    assert model is not None
    times = model.times(OpBatch.from_ops(ops), board).estimate_s
    longest = np.maximum.accumulate(times)
    return [n + 1 for n in range(most) if times[n] < 0.98 * longest[n]]


@pytest.mark.parametrize("flag", ["", "backward_data"])
@pytest.mark.parametrize("architecture", sorted(GPUS))
def test_more_sequences_take_no_less_time(architecture: str, flag: str) -> None:
    """But for the tiles of 17 to 32 columns of libraries for Pascal, up to 32 and beyond them."""
    for dtype, hidden in (("fp16", 256), ("fp16", 2048), ("fp32", 1024)):
        seen = drops(GPUS[architecture], flag, dtype, hidden)
        assert (seen == []) != (architecture == NARROW_TILES)
        assert all(n > 32 for n in seen)


def test_formats_that_layers_do_not_take_are_refused() -> None:
    with pytest.raises(SilicastError, match="fp32, fp16, bf16") as caught:
        seconds(layer(dtype="fp8"), "H100")
    assert caught.value.field == "dtype"


@pytest.mark.parametrize(
    ("table", "field", "words"),
    [
        ({"projection": 5}, "projection", "not below hidden"),
        ({"backward_data": True, "backward_weights": True}, "backward_weights", "both gradients"),
        ({"persistent": True, "backward_weights": True}, "persistent", "no steps"),
    ],
)
def test_tables_that_contradict_themselves_name_the_field(
    table: dict[str, object], field: str, words: str
) -> None:
    with pytest.raises(SilicastError, match=words) as caught:
        kernel_case({"op": "lstm", **SIZES, **table})
    assert field in str(caught.value.field)
