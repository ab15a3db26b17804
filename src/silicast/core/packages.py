"""Packages that only some answers need: what to say where one is not installed."""

from __future__ import annotations

from silicast.core.errors import SilicastError, unsupported

NAMES = {"torch": "PyTorch", "yaml": "PyYAML"}
"""Module -> how its makers write it, where the module's name is none that they use."""
INSTALLED_BY = {
    "chakra": ("protobuf",),
    "data": ("pyarrow",),
    "design": ("gymnasium",),
    "litert": ("ai_edge_litert",),
    "mcp": ("mcp",),
    "onnx": ("onnx",),
    "plot": ("matplotlib",),
    "ray": ("ray",),
    "runtimes": ("onnxruntime",),
    "server": ("uvicorn", "starlette", "anyio"),
    "torch": ("torch",),
    "yaml": ("yaml",),
}
"""Extra of this project -> modules that it installs."""
PACKAGES = {"PIL": "pillow", "cv2": "opencv-python", "sklearn": "scikit-learn"}
"""Module -> its package, where the names differ."""


def missing_package(
    module: str, purpose: str = "", field: str = "", otherwise: str = "", *, file: str = ""
) -> SilicastError:
    """That a package is not installed, and how to install it.

    Args:
        purpose: what needs it.
        otherwise: what may be done without it.

    >>> str(missing_package("timm"))
    'timm is not installed (pip install timm)'
    >>> str(missing_package("yaml", "reading YAML"))
    "reading YAML needs PyYAML, which is not installed (pip install 'silicast[yaml]')"
    """
    top = module.partition(".")[0]
    name = NAMES.get(module, module)
    extra = next((extra for extra, modules in INSTALLED_BY.items() if top in modules), "")
    message = f"{purpose} needs {name}, which is not installed" if purpose else ""
    wanted = f"'silicast[{extra}]'" if extra else PACKAGES.get(top, top)
    hints = (f"pip install {wanted}", otherwise)
    return unsupported(
        message or f"{name} is not installed", field, ", or ".join(filter(None, hints)), file=file
    )
