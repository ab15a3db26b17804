"""ZigZag, by its own interface (zigzag-dse 3.9)."""

from __future__ import annotations

import importlib.util
import tempfile
from pathlib import Path
from typing import Any, ClassVar, final

from silicast.accelerator.counting.cost import Objective
from silicast.accelerator.counting.einsum import Einsum
from silicast.accelerator.foreign.zigzag import DIMS
from silicast.accelerator.peers.peer import PEERS, Peer, PeerAnswer, called
from silicast.core.errors import unsupported

OBJECTIVES: dict[Objective, str] = {"energy": "energy", "latency": "latency", "edp": "EDP"}
MAPPING = """- name: default
  memory_operand_links:
    O: O
    W: I2
    I: I1
"""
"""No spatial mapping is given: the tool looks for one."""
PRECISION = {"W": 8, "I": 8, "O": 16, "O_final": 8}
LETTERS = {"Weights": "W", "Inputs": "I", "Outputs": "O"}
WINDOWS = {("R", "P"): "iy", ("S", "Q"): "ix"}


@final
@PEERS.register
class ZigZagPeer(Peer):
    """Its LOMA search with spatial mappings of its own."""

    name: ClassVar[str] = "zigzag"
    install: ClassVar[str] = "pip install zigzag-dse six"

    def is_installed(self) -> bool:
        return importlib.util.find_spec("zigzag") is not None

    def answer(self, chip: Path, einsum: Einsum, objective: Objective) -> PeerAnswer:
        """See :meth:`Peer.answer`; what the tool writes goes into a folder that is removed."""
        from importlib.metadata import version

        from zigzag.api import get_hardware_performance_zigzag

        with tempfile.TemporaryDirectory() as folder, called(self.name, chip):
            mapping = Path(folder) / "mapping.yaml"
            mapping.write_text(MAPPING, encoding="utf-8")
            energy, cycles, *_ = get_hardware_performance_zigzag(
                [layer_of(einsum)],
                str(chip),
                str(mapping),
                opt=OBJECTIVES[objective],
                dump_folder=folder,
                pickle_filename=f"{folder}/unread",
                loma_show_progress_bar=False,
            )
        return PeerAnswer(f"zigzag {version('zigzag-dse')}", float(energy), float(cycles))


def layer_of(einsum: Einsum) -> dict[str, Any]:
    """A layer as the tool's workload files write it.

    Raises:
        SilicastError: an index that its equations cannot say.

    >>> from silicast.accelerator.counting.einsum import matmul
    >>> layer_of(matmul(m=2, n=3, k=4))["equation"]
    'O[b][k]+=W[c][k]*I[b][c]'
    """
    names = {ours: theirs for theirs, ours in DIMS.items()}
    if einsum.name == "matmul":
        if "B" in einsum.bounds:
            raise unsupported("batches of products", "op", "compare one product")
        names = {"M": "B", "N": "K", "K": "C"}
    relations: list[str] = []
    terms = {}
    for tensor in einsum.tensors:
        text = ""
        for rank in tensor.ranks:
            dims = [dim for dim, _ in rank]
            if len(rank) == 1:
                text += f"[{names[dims[0]].casefold()}]"
                continue
            index = WINDOWS[dims[0], dims[1]]
            (_, a), (_, b) = rank
            relation = f"{index}={b}*{names[dims[1]].casefold()}+{a}*{names[dims[0]].casefold()}"
            relations.append(relation)
            text += f"[{index}]"
        terms[LETTERS[tensor.name]] = text
    layer: dict[str, Any] = {
        "id": 0,
        "name": einsum.name,
        "operator_type": "Gemm" if einsum.name == "matmul" else "Conv",
        "equation": f"O{terms['O']}+=W{terms['W']}*I{terms['I']}",
        "loop_dims": [names[dim] for dim in einsum.dims],
        "loop_sizes": list(einsum.bounds.values()),
        "operand_precision": dict(PRECISION),
        "operand_source": {"W": 0, "I": 0},
    }
    if relations:
        layer["dimension_relations"] = relations
    return layer
