"""Files of libraries: what they name exists, and rules mean what the page says."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from silicast.communication.algorithms.algorithm import algorithms
from silicast.communication.library import usual_library
from silicast.core.catalog import CATALOG
from silicast.core.compiled import FOLDERS, INDEX, compiled, entries
from silicast.core.decode import decode
from silicast.core.dtypes import RECIPES
from silicast.core.errors import SilicastError
from silicast.core.releases import release_of
from silicast.hardware.catalog import device_index
from silicast.kernels.physics.constants import has_physics, load_physics
from silicast.kernels.registry import families
from silicast.workload.libraries.catalog import (
    ANY,
    absorbed_up_to,
    check_library,
    expert_styles,
    kernel_rule,
    libraries,
    library,
    library_names,
    recurrent_styles,
)
from silicast.workload.libraries.library_file import KernelRule, Library, RuleConditions, RuleFacts

CONTRACT = (
    "cublas", "cutlass", "deepgemm", "flashinfer", "fa2", "fa3", "trtllm", "vllm", "sglang",
    "sgl_kernel", "aiter", "triton", "torch", "torch_compile", "liger",
)  # fmt: skip
DATA_SETS = ("pipeweave", "aiconfigurator", "vidur", "neusight", "deepbench", "kernelsight")
ALL = [each.name for each in libraries()]


def _rules(of: Library) -> Iterator[RuleConditions]:
    for rules in (of.by_name, of.attention_by_name, of.kernels, of.attention, of.absorbed):
        yield from rules
    yield from of.remarks


@pytest.mark.parametrize("folder", FOLDERS)
def test_the_index_is_that_of_the_files(folder: str) -> None:
    known = (CATALOG / folder / INDEX).read_bytes()
    assert known == compiled(folder), "run: python -m silicast.core.compiled"


def test_libraries_are_named_as_their_users_name_them() -> None:
    names = library_names()
    assert set(CONTRACT) <= set(names.names)
    assert not [name for name in DATA_SETS if name in names]
    assert ANY not in names
    assert names.canonical("TensorRT-LLM") == "trtllm"
    assert names.canonical("sgl-kernel") == "sgl_kernel"


def test_the_reference_lists_every_library() -> None:
    page = (Path(__file__).parents[4] / "docs/reference/libraries.md").read_text(encoding="utf-8")
    for name in library_names().names:
        of = library(name)
        row = f"| `{name}` | {', '.join(of.aliases) or '-'} | {of.about} | "
        ops = ", ".join(of.told_apart) or "-"
        formats = f" ({', '.join(of.formats)})" if of.formats else ""
        assert f"{row}{ops}{formats} |\n" in page, (
            f"docs/reference/libraries.md: {row}{ops}{formats} |"
        )


@pytest.mark.parametrize("name", ALL)
def test_rules_name_what_exists(name: str) -> None:
    of, known = library(name), {*library_names().names, ""}
    assert of.about
    architectures = {
        device.architecture for device in map(device_index().get, device_index().names)
    }
    for rule in _rules(of):
        assert {*rule.library, *rule.except_library} <= known, rule
        assert {*rule.architecture} <= architectures, rule
        assert {*rule.dtype} <= set(RECIPES), rule
        assert {*rule.phase} <= {"context", "generation", "verify"}, rule
        assert all(release_of(bound) for bound in (rule.from_, rule.until) if bound), rule
        assert getattr(rule, "like", "") in known, rule
        assert {*getattr(rule, "op", ())} <= set(families()), rule
    check_library(of, f"{name}.toml")
    check_library(msgspec.structs.replace(of, kernels=of.by_name), f"{name}.toml")
    for rule in (*of.by_name, *of.kernels):
        assert bool(rule.style) != bool(rule.like), rule
        for op in rule.op:
            known = {style for each in libraries() for style in each.styles_of(op)}
            assert {*rule.instead_of} <= known, rule
    assert {*of.told_apart, *of.kernel_names} <= set(families())
    assert not (of.by_name or of.attention_by_name) or name == ANY


@pytest.mark.parametrize("name", ALL)
def test_collectives_name_algorithms_and_constants(name: str) -> None:
    sections = {key.partition(".")[0] for key in load_physics("communication").default}
    for rule in library(name).collectives:
        for algorithm, section in rule.algorithms:
            assert algorithm in algorithms(), rule
            assert section in sections or section == "fabric", rule
        assert rule.algorithms or rule.last, rule
    assert library(usual_library()).collectives[-1].up_to is None


def test_constants_know_every_style() -> None:
    tables = {"moe": expert_styles(), "linear_attention": recurrent_styles()}
    for group, styles in tables.items():
        files = [name for name in (group, f"{group}_mfma") if has_physics(name)]
        known = {key.partition(".")[0] for name in files for key in load_physics(name).default}
        missing = set(styles) - known
        assert not missing, f"{group}: {sorted(missing)}"


def test_a_release_chooses_its_style_and_none_the_newest() -> None:
    def style(version: str) -> str:
        rule = kernel_rule("moe", RuleFacts("sglang", "", version, "hopper", "bf16"))
        assert rule is not None
        return rule.style

    assert style("0.5.11.post1") == "triton_sglang_early"
    assert [style(x) for x in ("0.5.12", "", "nightly")] == ["triton_sglang"] * 3


def test_a_kernels_name_goes_before_its_library_and_a_library_before_any() -> None:
    named = RuleFacts("vllm", "vllm_x_marlinexperts", "", "blackwell", "bf16")
    assert (result := kernel_rule("moe", named)) is not None
    assert result.style == "marlin"
    for requested, style in (("cutlass", "cutlass"), ("", "triton"), ("liger", "triton")):
        result = kernel_rule("moe", RuleFacts(requested, "a_kernel", "", "ampere", "bf16"))
        assert result is not None
        assert result.style == style
    assert kernel_rule("rope", RuleFacts("triton")) == kernel_rule("rope", RuleFacts())
    assert kernel_rule("sampling", RuleFacts("triton")) is None
    assert absorbed_up_to("mla_prefill", RuleFacts("triton", "vllm_flashmla")) == 0


def test_a_bad_file_names_the_file_and_the_field() -> None:
    table = {"name": "x", "about": "y", "kernels": [{"op": ["moe"], "until": 3, "style": "z"}]}
    with pytest.raises(SilicastError) as caught:
        decode(table, Library, file="x.toml")
    assert (caught.value.file, caught.value.field) == ("x.toml", "kernels[0].until")
    with pytest.raises(SilicastError, match="unknown field 'libary'"):
        decode({"name": "x", "about": "y", "libary": 1}, Library, file="x.toml")


def test_a_users_own_library_stands_beside_the_packages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "libraries"
    folder.mkdir()
    (folder / "mine.toml").write_text('name = "mine"\nabout = "my own kernels"\n')
    monkeypatch.setenv("SILICAST_CATALOG", str(tmp_path))
    entries.cache_clear()
    try:
        assert {"mine", "vllm"} <= set(entries("libraries"))
        content = msgspec.json.decode(entries("libraries")["mine"].content)
        assert content["about"] == "my own kernels"
        (folder / "mine.toml").write_text(
            'name = "mine"\nabout = "x"\nkernels = [{ op = ["moe"], style = "tritn" }]\n'
        )
        entries.cache_clear()
        library.cache_clear()
        with pytest.raises(SilicastError, match="moe has no style 'tritn'") as caught:
            kernel_rule("moe", RuleFacts("mine"))
        assert caught.value.file == str(folder / "mine.toml")
        assert caught.value.field == "kernels[0].style"
        (folder / "bad.toml").write_text("about = 1\n")
        entries.cache_clear()
        with pytest.raises(SilicastError, match=r"bad\.toml"):
            entries("libraries")
    finally:
        entries.cache_clear()
        library.cache_clear()


def test_rules_of_the_same_kind_are_told_apart() -> None:
    """A rule that an earlier one always hides is a mistake."""

    def wider(one: KernelRule, other: KernelRule) -> bool:
        plain = (
            "library",
            "kernel",
            "architecture",
            "capability",
            "dtype",
            "phase",
            "host",
            "from_",
            "until",
        )
        same = all(getattr(one, name) in ([], "", getattr(other, name)) for name in plain)
        return (
            same
            and set(other.op) <= set(one.op)
            and set(one.except_library) <= set(other.except_library)
            and one.kind in ("", other.kind)
            and one.cache in ("", other.cache)
            and one.instead_of == other.instead_of
        )

    for each in libraries():
        for rules in (each.by_name, each.kernels):
            for i, rule in enumerate(rules):
                hidden = [later for later in rules[i + 1 :] if wider(rule, later)]
                assert not hidden, (each.name, rule, hidden[0])
