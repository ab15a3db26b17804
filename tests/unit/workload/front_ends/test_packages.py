"""Models of installed packages by name: sizes, no weights; what is said where one is missing."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any, ClassVar

import pytest

from silicast.core.errors import SilicastError
from silicast.workload.front_ends import packages
from silicast.workload.front_ends.packages import (
    Input,
    ModelPackage,
    PackagedModel,
    is_packaged,
    made_without_data,
    nearest,
    packaged_graph,
    packaged_model,
    without_data,
)
from silicast.workload.graphs.graph import parameter_bytes_of
from silicast.workload.graphs.op_graph import graph_of_file


class Toys(ModelPackage):
    """A package with one model, and one that fails."""

    package: ClassVar[str] = "toys"

    def names(self) -> Sequence[str]:
        return ["linear", "broken"]

    def model(self, name: str) -> PackagedModel | None:
        import torch

        if name == "broken":
            raise RuntimeError("no luck")
        if name != "linear":
            return None
        args = (Input(("batch", "width")),)
        module = torch.nn.Linear(64, 32)
        return PackagedModel(module, args, {}, {"batch": 4, "width": 64}, "a toy")


@pytest.fixture
def toys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(packages.PACKAGES, "toys", f"{__name__}:Toys")
    monkeypatch.setitem(sys.modules, "toys", ModuleType("toys"))
    monkeypatch.setitem(sys.modules, __name__, sys.modules.get(__name__, ModuleType(__name__)))
    monkeypatch.setattr(sys.modules[__name__], "Toys", Toys, raising=False)


@pytest.mark.parametrize("package", ["timm", "torchvision", "transformers", "diffusers"])
def test_a_package_that_is_not_installed(monkeypatch: pytest.MonkeyPatch, package: str) -> None:
    monkeypatch.setattr(packages, "require_torch", lambda: None)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(SilicastError, match=f"{package} is not installed") as caught:
        packaged_model(f"{package}:anything")
    assert caught.value.hint == f"pip install {package}"


def test_torchvision_of_another_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(name: str) -> Any:
        raise RuntimeError("operator torchvision::nms does not exist")

    monkeypatch.setattr(packages, "require_torch", lambda: None)
    monkeypatch.setattr(importlib, "import_module", fails)
    with pytest.raises(SilicastError, match="was built for another PyTorch") as caught:
        packaged_model("timm:resnet50")
    assert caught.value.hint.endswith("pip install -U torch torchvision")


def test_names_are_of_known_packages_only(tmp_path: Any) -> None:
    assert is_packaged("diffusers:UNet2DModel")
    assert not is_packaged("my_module:make")
    assert not is_packaged("timm")


def test_nearest_names_or_examples() -> None:
    assert nearest("ResNet5O", ["resnet50", "vit"]) == "did you mean resnet50?"
    assert nearest("zzz", ["resnet50", "vit"]) == "it has 2, for instance resnet50, vit"


class TestWithTorch:
    @pytest.fixture(autouse=True)
    def _torch(self) -> None:
        pytest.importorskip("torch")

    def test_parameters_hold_no_data_and_other_tensors_do(self) -> None:
        import torch

        with without_data():
            norm = torch.nn.BatchNorm2d(8)
            rates = [x.item() for x in torch.linspace(0, 1, 3)]
        assert all(parameter.is_meta for parameter in norm.parameters())
        assert not norm.running_mean.is_meta
        assert rates == [0.0, 0.5, 1.0]
        assert not torch.nn.Linear(2, 2).weight.is_meta

    def test_a_constructor_may_run_its_own_network(self) -> None:
        import torch

        def make() -> Any:
            layer = torch.nn.Linear(4, 8)
            return torch.nn.Linear(layer(torch.zeros(1, 4)).shape[-1], 2)

        made = made_without_data(make)
        assert made.in_features == 8
        assert made.weight.is_meta

    def test_a_model_is_traced_at_its_usual_sizes_and_others(self, toys: None) -> None:
        graph, remark = packaged_graph("toys:linear")
        (node,) = (node for _, node in graph.nodes())
        assert remark == "a toy"
        assert dict(node.op.dims) == {"batch": 1, "m": 4, "n": 32, "k": 64}
        assert parameter_bytes_of(graph) == 4 * (64 * 32 + 32)
        wide, _ = packaged_graph("toys:linear", {"batch": 7}, dtype="bf16")
        (node,) = (node for _, node in wide.nodes())
        assert (node.op.dim("m"), node.op.variant.dtype) == (7, "bf16")

    @pytest.mark.parametrize(
        ("name", "sizes", "said"),
        [
            ("toys:linera", {}, "did you mean linear"),
            ("toys:broken", {}, "toys does not make it: RuntimeError: no luck"),
            ("toys:linear", {"seq_len": 3}, "have no size 'seq_len' (they have: batch=4, width=64"),
            ("toys:linear", {"width": 3}, "Linear: cannot be exported"),
        ],
    )
    def test_what_is_wrong_is_said(
        self, toys: None, name: str, sizes: dict[str, int], said: str
    ) -> None:
        with pytest.raises(SilicastError) as caught:
            packaged_graph(name, sizes)
        assert said in str(caught.value)
        assert name in caught.value.field

    @pytest.mark.filterwarnings("ignore")
    @pytest.mark.parametrize(
        ("name", "parameters"),
        [  # as their papers and model cards say
            ("timm:resnet50", 25_557_032),
            ("torchvision:regnet_y_400mf", 4_344_144),
            ("transformers:bert-base-uncased", 109_482_240),
            ("diffusers:DiTTransformer2DModel", None),
        ],
    )
    def test_models_of_real_packages(self, name: str, parameters: int | None) -> None:
        pytest.importorskip(name.partition(":")[0])
        model = packaged_model(name)
        held = list(model.module.parameters())
        assert all(parameter.is_meta for parameter in held)
        assert parameters is None or sum(parameter.numel() for parameter in held) == parameters
        args, kwargs = model.call({"batch": 3})
        first = (*args, *kwargs.values())[0]
        assert first.shape[0] == 3


@pytest.mark.filterwarnings("ignore")
def test_one_trace_of_a_real_package_is_right_at_other_sizes() -> None:
    """Against traces of its own at an odd batch and image."""
    pytest.importorskip("torch")
    pytest.importorskip("timm")
    name = "timm:resnet18"
    file, _ = packages.packaged_open_graph(name, ["batch", "image"], dtype="bf16")
    for sizes in ({"batch": 1, "image": 97}, {"batch": 33, "image": 256}):
        traced, _ = packaged_graph(name, sizes, dtype="bf16")
        assert graph_of_file(file, name, sizes) == traced
