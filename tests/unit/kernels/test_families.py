"""A family is found by the name of its file, without importing the others."""

from __future__ import annotations

from silicast.kernels import registry


def test_every_family_is_found_by_its_file() -> None:
    names = registry.families("simt")
    paths = registry.modules_by_name()
    assert names
    for name in names:
        model = registry.implementation_for(name, "simt")
        module = paths.get(registry.MODULES.get(name, name))
        assert type(model).__module__ == module, f"name the file {name}.py, or add it to MODULES"
