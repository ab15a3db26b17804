"""Programs of other frameworks as graphs: PyTorch modules, exported programs, ONNX files."""

from silicast.workload.front_ends.programs import graph_of, read_program, suffixes

__all__ = ["graph_of", "read_program", "suffixes"]
