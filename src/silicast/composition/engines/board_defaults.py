"""What an engine sets by the board that it starts on."""

from __future__ import annotations

from silicast.composition.engines.engine import BoardTable, Engine, ServingTable
from silicast.hardware.device import Device

GIB = float(1 << 30)


def board_of(table: ServingTable, device: Device) -> BoardTable:
    """The defaults for a device: of the last entry that is about it."""
    board_table = BoardTable(0.0)
    for board in table.boards:
        if device.dram.capacity_bytes < board.from_gib * GIB:
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
