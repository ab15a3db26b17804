"""Sequential experimental design: which kernels a sweep measures next.

>>> from silicast.hardware.catalog import find_device
>>> from silicast.measurement.design.design import MeasurementDesign
>>> sizes = [{"op": "softmax", "rows": 1 << n, "cols": 4096, "dtype": "fp32"} for n in range(12)]
>>> design = MeasurementDesign(find_device("H100"), sizes)
>>> kernel = design.next()
>>> design.tell(kernel, 12.5)
>>> design.rows
{'softmax fp32': 1}
"""
