"""Operators of PyTorch, ONNX and serving engines as kernels: what each is, once for all readers.

Front ends bring calls with the shapes of a traced program, importers those that a profiler
recorded; :func:`kernels_of` gives the kernels that a call launches.
"""

from silicast.workload.operators import (  # noqa: F401 - fill the table
    attention,
    convolutions,
    engines,
    products,
    recurrent,
    rows,
    streams,
)
from silicast.workload.operators.table import (
    LaunchedKernel,
    OperatorCall,
    TensorValue,
    kernels_of,
    lowers,
)

__all__ = ["LaunchedKernel", "OperatorCall", "TensorValue", "kernels_of", "lowers"]
