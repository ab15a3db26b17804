"""The list of kernel families is that of the models which register themselves."""

from __future__ import annotations

from importlib import import_module
from pkgutil import walk_packages

import silicast.kernels
from silicast.kernels import implementation


def test_the_list_of_families_names_every_model_of_this_package() -> None:
    for module in walk_packages(silicast.kernels.__path__, "silicast.kernels."):
        import_module(module.name)
    registered = {
        family
        for (family, execution_model), model in implementation._REGISTRY.items()
        if execution_model == "simt" and type(model).__module__.startswith("silicast.kernels.")
    }
    listed = set(implementation.FAMILIES)
    assert registered <= listed, f"add {sorted(registered - listed)} to FAMILIES"
    assert listed <= registered, f"FAMILIES names {sorted(listed - registered)}, nothing registers"
