"""Programs of other frameworks as graphs: PyTorch modules, exported programs, ONNX files."""

from silicast.workload.front_ends.program_file import read_program, suffixes
from silicast.workload.front_ends.torch_program import graph_of

__all__ = ["graph_of", "read_program", "suffixes"]
