"""Kernel libraries as data: one TOML file of ``catalog/libraries`` each.

Code holds mechanisms; which of them a library uses, on which architecture and in which release, is
looked up here. The file ``any.toml`` holds the rules of kernels whose library is not named, or has
no rule of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, lru_cache
from typing import TypeVar

import msgspec

from silicast.core.compiled import content_of, entries, names_of
from silicast.core.errors import SilicastError, unknown_name
from silicast.core.naming import NameIndex
from silicast.workload.libraries.library_file import (
    ExpertStyle,
    KernelRule,
    LatentStyle,
    Library,
    LibraryRule,
    RecurrentStyle,
    RuleFacts,
)

FOLDER = "libraries"
ANY = "any"
"""The file of rules that hold for every library."""

_NONE = Library(name="", about="")


@cache
def library_names() -> NameIndex[str]:
    """All libraries by name and alias."""
    table = {name: names for name, names in names_of(FOLDER).items() if name != ANY}
    return NameIndex("library", table, listed="docs/reference/libraries.md")


@lru_cache(maxsize=256)
def library(name: str) -> Library:
    """The library called ``name``; one without any facts where there is no such file.

    Raises:
        SilicastError: a user's own file is no library, or names a library or style that does not
            exist; names file and field.

    >>> library("cutlass").tells_apart("moe", "bf16")
    True
    """
    if name not in entries(FOLDER):
        return _NONE
    library = content_of(FOLDER, name, Library)
    if file := entries(FOLDER)[name].file:  # tests check the package's files
        check_library(library, file)
    return library


def check_library(library: Library, file: str) -> None:
    """Refuses a file whose rules name libraries or styles that do not exist.

    Raises:
        SilicastError: names the file and the rule.
    """
    others = [content_of(FOLDER, name, Library) for name in entries(FOLDER)]
    for index, rule in enumerate(library.kernels):
        for op in rule.op:
            styles = {name for member in (*others, library) for name in member.styles_of(op)}
            if styles and not rule.like and rule.style not in styles:
                raise unknown_name(
                    f"{op} has no style {rule.style!r}",
                    f"kernels[{index}].style",
                    f"one of {', '.join(sorted(styles))}",
                    file=file,
                )
    for rules in ("kernels", "attention", "absorbed"):
        for index, rule in enumerate(getattr(library, rules)):
            if rule.like and (rule.like not in entries(FOLDER) or rule.like == library.name):
                raise unknown_name(
                    f"no other library {rule.like!r}", f"{rules}[{index}].like", file=file
                )


def libraries() -> Iterator[Library]:
    """All libraries, and the rules that hold for any."""
    return (library(name) for name in entries(FOLDER))


R = TypeVar("R", bound=LibraryRule)


def first_rule(
    facts: RuleFacts,
    rules_of: Callable[[Library], Sequence[R]],
    by_name: Callable[[Library], Sequence[R]],
) -> tuple[str, R] | None:
    """The first rule that holds and the library that states it: among those by names of kernels,
    those of the named library and of the ones that it is like, and those of any.
    """
    anything, name = library(ANY), facts.library
    rules: Sequence[R] = [*by_name(anything), *rules_of(library(name)), *rules_of(anything)]
    for _ in range(len(entries(FOLDER))):
        result = next((rule for rule in rules if rule.hold(facts)), None)
        if result is None or not result.like:
            return None if result is None else (name, result)
        name = result.like
        rules = [*rules_of(library(name)), *rules_of(anything)]
    raise SilicastError(
        f"the libraries {facts.library!r} and {name!r} are like each other", field="like"
    )


@lru_cache(maxsize=8192)
def kernel_rule(op: str, facts: RuleFacts, kind: str = "") -> KernelRule | None:
    """The rule for the kernel that runs, None where no rule is about it.

    >>> found = kernel_rule("moe", RuleFacts("sglang", version="0.5.10", architecture="hopper"))
    >>> found.style if found else ""
    'triton_sglang_early'
    """

    def about(rules: Sequence[KernelRule], replaced: str = "") -> list[KernelRule]:
        return [
            rule
            for rule in rules
            if op in rule.op
            and rule.kind in ("", kind)
            and (replaced in rule.instead_of if replaced else not rule.instead_of)
        ]

    result = first_rule(
        facts, lambda library: about(library.kernels), lambda library: about(library.by_name)
    )
    if result is None:
        return None
    later = about(library(facts.library).kernels, result[1].style)
    return next((rule for rule in later if rule.hold(facts)), result[1])


@lru_cache(maxsize=1024)
def absorbed_up_to(op: str, facts: RuleFacts) -> int:
    """New tokens up to which a prefill attends to the latent itself; 0 = it never does.

    >>> absorbed_up_to("mla_prefill", RuleFacts("vllm", kernel="vllm_flashmla"))
    128
    """
    result = first_rule(
        facts, lambda library: [rule for rule in library.absorbed if op in rule.op], lambda _: ()
    )
    return result[1].tokens if result else 0


@cache
def expert_styles() -> Mapping[str, ExpertStyle]:
    """Styles of grouped products of experts, of all libraries."""
    return {name: style for entry in libraries() for name, style in entry.expert_styles.items()}


@cache
def recurrent_styles() -> Mapping[str, RecurrentStyle]:
    """Styles of recurrent mixers, of all libraries."""
    return {
        name: msgspec.structs.replace(style, name=name)
        for entry in libraries()
        for name, style in entry.recurrent_styles.items()
    }


@cache
def latent_styles() -> Mapping[str, LatentStyle]:
    """Styles of latent attention, of all libraries."""
    return {name: style for entry in libraries() for name, style in entry.latent_styles.items()}
