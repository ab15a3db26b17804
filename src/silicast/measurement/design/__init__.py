"""Which kernels to measure next.

>>> from silicast.hardware.catalog import find_device
>>> sizes = [{"op": "softmax", "rows": 1 << n, "cols": 4096, "dtype": "fp32"} for n in range(12)]
>>> design = Design(find_device("H100"), sizes)
>>> kernel = design.next()
>>> design.tell(kernel, 12.5)
>>> design.rows
{'softmax fp32': 1}
"""

from silicast.measurement.design.candidates import candidates_from
from silicast.measurement.design.design import Design, usual_cost
from silicast.measurement.design.point_design import PointDesign

__all__ = ["Design", "PointDesign", "candidates_from", "usual_cost"]
