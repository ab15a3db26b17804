"""Attention constants for architectures that nobody measured: one fit over all that were.

Each campaign (architecture, caller, library) weighs the same, whatever its rows, and constants are
shared by what decides them: those of a main loop by its matrix instruction and library, the launch
by instruction and caller. All are drawn to what they mean physically, far more than where an
architecture is fitted by itself: there a constant that its rows hardly determine may go anywhere.
How strongly, and the exponents of the tensor rate, were chosen by leaving architectures out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from lab import fitting
from lab.fitting import Constants, F, Prior, Tables
from lab.scorecard.rows import MeasuredRows, held_out
from silicast.kernels.attention.attention_schemes import Scheme, resolve_library, scheme_for
from silicast.workload.libraries.library_file import Mainloop

ROWS = 160
"""Of each campaign."""
STEPS = 14
CALL = frozenset(("launch_cycles", "scalar_launch"))
NARROW = "narrow_launch"
MEMORY = frozenset(("l2_usable", "l2_fade", "l2_efficiency", "dram_efficiency", "serial"))
PULL = {"attention_prefill": 0.3, "attention_decode": 1.5}
PULL_OF_MEMORY = {"attention_prefill": 10.0, "attention_decode": 8.0}
"""How much more memory's constants are drawn: caches do not differ by library."""
PHYSICAL: dict[str, Constants] = {
    "attention_prefill": {
        "l2_efficiency": 0.7,
        "dram_efficiency": 0.85,
        "tensor_efficiency": 0.8,
        "serial": 0.3,
    },
    "attention_decode": {
        "l2_efficiency": 0.7,
        "dram_efficiency": 0.88,
        "tensor_efficiency": 0.6,
        "serial": 0.15,
    },
}
"""Where constants are drawn to, where a fit of one architecture starts elsewhere."""
EXPONENT = {"triton": 0.5, "": 0.9}
"""What a kernel gains of a faster matrix unit: one with its own instruction, and Triton's."""
MAINLOOPS: dict[Mainloop, str] = {"mma": "ampere", "wgmma": "hopper", "tcgen05": "blackwell"}
"""Matrix instruction -> the architecture that names the kernels which engines run with it."""
BARE_OF = {"flashinfer": "sglang", "fa2": "vllm", "fa3": "sglang"}
"""Bare library -> the engine whose call stands for it."""

Cell = tuple[str, str, str, str]
"""Architecture, caller, kind of library, kind of matrix instruction."""
Shared = tuple[str, ...]
"""What campaigns have in common that share a constant."""


def kind(library: str) -> str:
    """Libraries whose main loops are alike: FlashAttention's and FlashInfer's own."""
    return library if library in ("triton", "trtllm") else "flash"


def issue(mainloop: str) -> str:
    """Whether warps issue the matrix products in line or hand them to an asynchronous unit."""
    return "inline" if mainloop == "mma" else "asynchronous"


def cells(parts: Iterable[MeasuredRows]) -> dict[Cell, list[MeasuredRows]]:
    """Parts by campaign, none of bare libraries."""
    table: dict[Cell, list[MeasuredRows]] = {}
    for part in parts:
        if part.words:
            scheme = scheme_for(part.batch.variant, part.hardware)
            name = (part.hardware.architecture, scheme.caller, *_kinds(scheme))
            table.setdefault(name, []).append(part)
    return dict(sorted(table.items()))


def _kinds(scheme: Scheme) -> tuple[str, str]:
    return kind(scheme.library), issue(scheme.mainloop)


def _shared_by(family: str, name: str, caller: str, library: str, how: str) -> Shared:
    """Campaigns with the same result have a constant in common.

    A decode step's launches are those of the engine's call. Those of a prefill differ by kernel
    too: main loops with asynchronous products set up descriptors and schedules first.
    """
    if name == "widened_bytes" or (family == "attention_decode" and name in (*CALL, NARROW)):
        return (caller,)
    if name in CALL:
        return (how, caller)
    return (library, caller) if name == NARROW else (how, library)


_Found = dict[tuple[str, Shared], float]


class Pool:
    """The common constants of a family's campaigns.

    Args:
        priors, start: as for one architecture; ``append`` has the launch of a write by caller.
    """

    def __init__(
        self,
        family: str,
        parts: Sequence[MeasuredRows],
        priors: Mapping[str, Prior],
        start: Mapping[str, float],
        append: Mapping[str, float],
    ) -> None:
        self.family = family
        self.start = {**start, **PHYSICAL[family]}
        self.append = append
        every = cells(held_out(parts, False))
        self.cells = {cell: fitting.sample(group, ROWS) for cell, group in every.items()}
        self.callers = sorted({cell[1:] for cell in self.cells})
        self.found = self._fit(dict(priors))

    def _shared(self, name: str, cell: Sequence[str]) -> Shared:
        return _shared_by(self.family, name, *cell)

    def _fixed(self, caller: str, library: str) -> Constants:
        launch_cycles = self.append.get(caller, self.start["append_launch_cycles"])
        exponent = EXPONENT.get(library, EXPONENT[""])
        return {**self.start, "append_launch_cycles": launch_cycles, "tensor_exponent": exponent}

    def _fit(self, priors: dict[str, Prior]) -> _Found:
        keys = list(
            dict.fromkeys((n, self._shared(n, cell[1:])) for cell in self.cells for n in priors)
        )
        position = {key: i for i, key in enumerate(keys)}
        groups = [
            (
                parts,
                self._fixed(*cell[1:3]),
                [position[n, self._shared(n, cell[1:])] for n in priors],
            )
            for cell, parts in self.cells.items()
        ]
        low, high = (np.log([priors[name][side] for name, _ in keys]) for side in (1, 2))
        first = np.clip(np.log([self.start[name] for name, _ in keys]), low + 1e-6, high - 1e-6)
        counts = [sum(len(part) for part in parts) for parts, _, _ in groups]

        def errors(logs: F, i: int) -> F:
            parts, fixed, positions = groups[i]
            table = dict(zip(priors, np.exp(logs[positions]).tolist(), strict=True))
            return fitting.log_ratios(parts, {**fixed, **table})

        more = PULL_OF_MEMORY[self.family]
        strength = [
            more if n in MEMORY else 2.0 if n == "tensor_efficiency" else 1.0 for n, _ in keys
        ]
        pull = np.array(strength) * PULL[self.family] * np.sqrt(sum(counts) / len(keys))
        fit = fitting.fit_by_groups(
            errors, counts, lambda j, i: j in groups[i][2], first, pull, step=1e-3,
            bounds=(low, high), f_scale=0.1, max_nfev=STEPS,
        )  # fmt: skip
        return dict(zip(keys, np.exp(fit.x).tolist(), strict=True))

    def constants(self, caller: str, library: str, how: str) -> Constants:
        """Of a call, measured or not: each constant of the campaigns most alike."""
        constants = self._fixed(caller, library)
        for name in dict.fromkeys(name for name, _ in self.found):
            wanted = self._shared(name, (caller, library, how))
            likeness = {key: _likeness(key[1], wanted) for key in self.found if key[0] == name}
            best = max(likeness.values())
            alike = [self.found[key] for key, much in likeness.items() if much == best]
            constants[name] = fitting.geometric_mean(alike)
        return constants

    def tables(self, spread: Sequence[float]) -> Tables:
        """ "caller/instruction" -> its constants, and how far off campaigns of its kind are.

        Args:
            spread: log sd of the errors that kernels have in common.
        """
        tables: Tables = {}
        for caller in sorted({caller for caller, _, _ in self.callers}):
            for mainloop, architecture in MAINLOOPS.items():
                name = resolve_library(caller, "", architecture)
                library, how = kind(name), issue(mainloop)
                if library == "triton" and mainloop != "mma":
                    continue
                constants = self.constants(caller, library, how)
                logs = self._errors(library, how)
                constants["independent_log_sd"] = fitting.own_log_sd(logs, spread, wider=1.1)
                tables[f"{caller}/{mainloop}"] = fitting.rounded(constants)
        for library, caller in BARE_OF.items():
            for mainloop in MAINLOOPS:
                table = tables[f"{caller}/{mainloop}"]
                launch = table["launch_cycles"] - table["append_launch_cycles"]
                bare = {**table, "launch_cycles": launch}
                tables[f"{library}/{mainloop}"] = fitting.rounded(bare)
        return tables

    def _errors(self, library: str, how: str) -> F:
        """Log ratios of the campaigns of one kind, or of all."""
        alike = [cell for cell in self.cells if cell[2:] == (library, how)] or list(self.cells)
        return np.concatenate(
            [fitting.log_ratios(self.cells[cell], self.constants(*cell[1:])) for cell in alike]
        )


def _likeness(key: Shared, wanted: Shared) -> float:
    """How much two campaigns have in common: the instruction, then the caller, then the library."""
    weights = {"inline": 2.0, "asynchronous": 2.0, "flash": 1.0, "trtllm": 1.0, "triton": 1.0}
    return sum(weights.get(word, 3.0) for word in key if word in wanted)
