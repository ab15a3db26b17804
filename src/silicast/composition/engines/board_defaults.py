"""What an engine sets by the board that it starts on."""

from __future__ import annotations

from silicast.composition.engines.engine import BoardTable, Engine, ServingTable
from silicast.hardware.device import Device

GIB = float(1 << 30)


def board_of(table: ServingTable, device: Device, tp: int = 1) -> BoardTable:
    """The defaults for a device under a tensor-parallel degree: of the last entry about them."""
    board_table = BoardTable(0.0)
    for board in table.boards:
        if device.dram.capacity_bytes < board.from_gib * GIB or tp < board.from_tp:
            continue
        if board.only_on and not device.name.startswith(tuple(board.only_on)):
            continue
        if not device.name.startswith(tuple(board.not_on)):
            board_table = board
    return board_table


def chunk_tokens_of(engine: Engine, device: Device) -> int:
    """Most new tokens of one step; 0 = no limit."""
    stated, table = engine.memory.prefill_chunk_tokens, engine.serving
    if stated or table is None:
        return stated
    return board_of(table, device).step_tokens or table.step_tokens


def captured_sizes(engine: Engine, device: Device, tp: int) -> tuple[int, ...]:
    """Batch sizes that graphs are captured for, on a device under a tensor-parallel degree.

    >>> from silicast.composition.engines.engine import find_engine
    >>> from silicast.hardware.catalog import find_device
    >>> sglang, board = find_engine("sglang"), find_device("RTX 4090")
    >>> [captured_sizes(sglang, board, tp)[-1] for tp in (1, 4)]
    [48, 160]
    """
    sizes, table = engine.launch.graph_batch_sizes, engine.serving
    most = board_of(table, device, tp).graph_rows if table is not None else 0
    return tuple(size for size in sizes if not most or size <= most)
