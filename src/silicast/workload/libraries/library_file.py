"""What a file of ``catalog/libraries`` may hold: rules, their conditions, and styles of kernels.

A rule states under which conditions which kernel of a library runs, and by which style that kernel
is known in constants and learned corrections. docs/reference/libraries.md has an overview.
"""

from __future__ import annotations

from collections.abc import Collection
from fnmatch import fnmatchcase
from typing import Annotated, Literal, final

import msgspec

from silicast.core.decode import Strict
from silicast.core.releases import is_within
from silicast.workload.graphs.op import Variant

Mainloop = Literal["mma", "wgmma", "tcgen05"]
"""The matrix instruction of an attention kernel: in line with softmax; asynchronous, two groups of
warps in turns; asynchronous with its own memory, two query tiles a block."""


class _Strict(Strict, frozen=True, kw_only=True, rename={"from_": "from"}):
    """``from`` is a word of Python."""


@final
class RuleFacts(msgspec.Struct, frozen=True):
    """What conditions of rules are checked against; "" = not stated.

    Attributes:
        library: as asked for; kernel: its own name for the kernel; version: of the library.
        narrow: the cache holds elements of 8 bits.
        host: processor that launches the kernel.
        capability: the device's ISA level ("10.3").
    """

    library: str = ""
    kernel: str = ""
    version: str = ""
    architecture: str = ""
    dtype: str = ""
    phase: str = ""
    narrow: bool = False
    host: str = ""
    capability: str = ""

    @staticmethod
    def from_variant(
        variant: Variant,
        architecture: str = "",
        *,
        phase: str = "",
        narrow: bool = False,
        host: str = "",
        capability: str = "",
    ) -> RuleFacts:
        """The facts that a variant states, and others beside them."""
        return RuleFacts(
            variant.library,
            variant.kernel,
            variant.version,
            architecture,
            variant.dtype,
            phase,
            narrow,
            host,
            capability,
        )


class RuleConditions(_Strict, frozen=True):
    """When a rule holds; a condition that is left out always does.

    Attributes:
        library, except_library: asked for by these names, or by none of them; "" = not named.
        kernel: patterns of kernel names; ``*`` stands for any text, ``?`` for a character.
        architecture, capability, dtype, phase, host: one of these.
        cache: "narrow" (elements of 8 bits) or "wide".
        from_, until: releases from ``from`` on and before ``until``; such a rule holds only where a
            release is stated.
    """

    library: list[str] = []
    except_library: list[str] = []
    kernel: list[str] = []
    architecture: list[str] = []
    capability: list[str] = []
    dtype: list[str] = []
    phase: list[str] = []
    host: list[str] = []
    cache: Literal["", "narrow", "wide"] = ""
    from_: str = ""
    until: str = ""

    def hold(self, facts: RuleFacts) -> bool:
        """Whether all conditions hold."""
        named = (
            (self.library, facts.library),
            (self.architecture, facts.architecture),
            (self.capability, facts.capability),
            (self.dtype, facts.dtype),
            (self.phase, facts.phase),
            (self.host, facts.host),
        )
        return (
            all(not wanted or value in wanted for wanted, value in named)
            and facts.library not in self.except_library
            and (
                not self.kernel
                or any(fnmatchcase(facts.kernel, pattern) for pattern in self.kernel)
            )
            and self.cache in ("", "narrow" if facts.narrow else "wide")
            and is_within(facts.version, self.from_, self.until)
        )


class LibraryRule(RuleConditions, frozen=True):
    """A rule whose result is its own fields, or those of another library.

    Attributes:
        like: the library whose rules go on from here.
    """

    like: str = ""


@final
class KernelRule(LibraryRule, frozen=True, kw_only=True):
    """The style of the kernel that runs.

    Attributes:
        op: families that the rule is about.
        kind: the kernel of a mixer ("conv", "scan") that it is about; "" = any.
        style: of the kernel, as constants and corrections name it.
        suffix: appended to names of constants that are made of several words.
        instead_of: styles that the rules before have chosen and that this rule replaces.
        small_tile_rows: most rows of a matrix product in tiles of fewer than 128; 0 = any.
    """

    op: list[str]
    kind: Literal["", "conv", "scan"] = ""
    style: str = ""
    suffix: str = ""
    instead_of: list[str] = []
    small_tile_rows: int = 0


@final
class AttentionRule(LibraryRule, frozen=True, kw_only=True):
    """An attention kernel: how it cuts and orders its work.

    Attributes:
        mainloop: see :data:`Mainloop`.
        matrix_share: of the matrix units' rate, what the instructions of its mainloop reach.
        packs: query heads of a group share a tile (rows = tokens x group).
        packs_single: they do so when every sequence brings one token.
        longest_first: tiles with most keys start first.
        splits: long caches are split where tiles are too few to fill the device.
        plans: a plan on the host decides on tiles and parts (``kernels.attention_plan``).
        small_tiles: 64 x 64 tiles for heads 65 to 128 wide where shared memory is small.
        decode_rows: rows of a decode step's products are padded to a multiple of it.
        most_splits: parts that a decode step may cut a cache into.
        packs_groups: a decode step shares keys, and splits caches, only without a window and with
            more than one head a group.
        by_head: each task of a decode step is one query head, which reads its keys for itself and
            computes on the FMA pipe.
        widths: head widths that are compiled; others are padded to the next. [] = any.
        own_constants: the library's constants hold for it whoever calls it.
        constants_of: the library whose calls were measured in its place; "" = its own.
        backward_cost: time of an operation of its gradients, over one of its forward kernel; 0 =
            as of others that multiply with warps' own instructions.
    """

    mainloop: Mainloop = "mma"
    matrix_share: Annotated[float, msgspec.Meta(gt=0.0, le=1.0)] = 1.0
    packs: bool = False
    packs_single: bool = False
    longest_first: bool = False
    splits: bool = False
    plans: bool = False
    small_tiles: bool = False
    decode_rows: int = 16
    most_splits: int = 128
    packs_groups: bool = False
    by_head: bool = False
    widths: list[int] = []
    own_constants: bool = False
    constants_of: str = ""
    backward_cost: float = 0.0


@final
class AbsorbedRule(LibraryRule, frozen=True, kw_only=True):
    """New tokens up to which a prefill of latent attention attends to the latent itself.

    Attributes:
        op: families that the rule is about.
    """

    op: list[str]
    tokens: int = 0


@final
class AttentionCall(_Strict, frozen=True):
    """What a library does around the attention kernels that it calls.

    Attributes:
        packs_single: architectures where it packs a group's heads when every sequence brings one
            token, whatever the kernel does by itself.
        widens_cache: it copies a narrow cache into a wide buffer before kernels that take no
            narrow one.
        single_head_kernel: a kernel of one head a task serves decode steps that its grouped one
            does not take.
        visits_masked: libraries whose kernels, as it calls them, look at tiles wholly outside a
            window and skip them one by one.
        casts: libraries before whose kernels it casts to 8 bits, or widens, in kernels of its own.
        appends_from, casts_from: releases from which on a timed call holds the write of new keys
            and values, and these casts; "" = all. A release that is not stated is a late one.
    """

    packs_single: list[str] = []
    widens_cache: bool = False
    single_head_kernel: bool = False
    visits_masked: list[str] = []
    casts: list[str] = []
    appends_from: str = ""
    casts_from: str = ""


@final
class ExpertStyle(_Strict, frozen=True):
    """How grouped products of experts run.

    Attributes:
        tuned: tiles come from a table that was tuned by format, width and tokens.
        widens_at_load: formats of weights that are converted when the model is loaded.
        exchanges: the kernel also moves tokens between the ranks.
    """

    tuned: bool = False
    widens_at_load: list[str] = []
    exchanges: bool = False


@final
class RecurrentStyle(_Strict, frozen=True):
    """How a kernel of a recurrent mixer runs.

    Attributes:
        name: as in the constants file; the key of the style in a library's file.
        kind: "conv" (the causal convolution) or "scan" (the recurrence).
        chunk: tokens that a block takes at once, 0 = what the op says.
        align: lengths that are no multiple of it take a slower path, 0 = as ``chunk``.
        states: how states move; see
        :func:`silicast.kernels.recurrent.recurrent_work.recurrence_work`.
        keys_only: campaigns of gated delta networks timed the keys' channels alone: times do not
            depend on the number of value heads.
    """

    kind: Literal["conv", "scan"]
    chunk: int
    align: int = 1
    states: Literal["step", "scan", "every", "once"] = "step"
    keys_only: bool = False
    name: str = ""


@final
class LatentStyle(_Strict, frozen=True):
    """How a kernel of latent attention runs.

    Attributes:
        constants: whose constants to use; those of its first word are put below its own.
        asynchronous: matrix instructions are the architecture's newest; else ``mma``.
        absorbs: prefills attend to the latent itself, whatever their length.
        multiplies_narrow: architectures where narrow caches are multiplied as they are; elsewhere
            they are widened first.
        splits_on: architectures where long caches are split; [] = all.
        group: architecture -> (rows, parts) of a kernel of its own for narrow caches: it takes so
            many rows (heads x new tokens) and more, in tiles of so many, and always splits a cache
            in so many parts, each on a core.
        fixed_parts: results of as many parts as a cache may have are moved, used or not.
        tiles: architecture -> (rows up to which, rows of a tile) of a decode step; "default" for
            all others.
        tiles_of: main loop -> the library whose attention kernel has the same tiles.
    """

    constants: str
    asynchronous: bool = True
    absorbs: bool = False
    multiplies_narrow: list[str] = []
    splits_on: list[str] = []
    group: dict[str, tuple[int, int]] = {}
    fixed_parts: bool = False
    tiles: dict[str, list[tuple[int, int]]] = {}
    tiles_of: dict[str, str] = {}


Limit = float | dict[str, dict[str, float]]
"""A size in 2^20 bytes; or architecture -> devices of a group, rounded up to even -> size, with
"default" for all others, where a rule does not hold without an entry."""


@final
class CollectiveRule(_Strict, frozen=True):
    """Algorithms that compete for messages up to a size. A library's rules are asked in order of
    size; one holds where all its algorithms can carry out the operation. The first one without a
    limit is the last; without any, those of the usual library go on.

    Attributes:
        algorithms: (algorithm, section of the constants) pairs; section "fabric" = that of the
            links between the devices. [] = none.
        fabric, architecture: one of these; [] = any.
        gpus: fewest and most participants.
        switch_adds: whether the links' switch can add; None = either.
        except_dtype: formats that it does not hold for.
        from_, until: releases, as in :class:`RuleConditions`.
        up_to: largest message; below: first size that is too large. None = no limit.
        beside_usual: algorithms of the usual library compete too.
        last: no later rule of the library is asked.
    """

    algorithms: list[tuple[str, str]]
    fabric: list[str] = []
    architecture: list[str] = []
    gpus: tuple[int, int] = (2, 1 << 30)
    switch_adds: bool | None = None
    except_dtype: list[str] = []
    from_: str = ""
    until: str = ""
    up_to: Limit | None = None
    below: Limit | None = None
    beside_usual: bool = False
    last: bool = False


@final
class Remark(RuleConditions, frozen=True, kw_only=True):
    """What a reader must know of an answer."""

    op: list[str]
    text: str


@final
class Library(_Strict, frozen=True):
    """One library.

    Attributes:
        name: as its users write it; aliases: other names.
        about: what it is, in one line.
        runs_on: places where it runs (:func:`~silicast.hardware.platforms.runs_on`); [] = anywhere.
        without: formats of stored weights for which it has no kernel.
        told_apart: ops whose kernels have a model of their own; formats: in these, [] = all.
        usual_on: vendors on whose devices it is a usual library of dense products.
        usual_collectives: it carries out collectives where no library is named.
        allocates_results: results are written to memory that was just allocated.
        measures_skew: collectives timed through it hold the wait of the first rank for the last.
        dispatch_dtype: format in which tokens are sent to the ranks of their experts; "" = the
            op's.
        campaign_copies: copies of weights and activations that successive products of its
            measurement campaigns cycle through; (0, 0) = as of any library.
        kernel_names: op -> names of kernels that its models mean.
        by_name: rules by names of kernels, which are asked before the library's own; in
            ``any.toml`` alone. attention_by_name: likewise.
        kernels, attention, absorbed: rules, of which the first that holds counts.
        collectives: rules of :class:`CollectiveRule`'s kind.
        sources: dotted field path -> origin of the facts.
    """

    name: str
    about: str
    aliases: list[str] = []
    runs_on: list[str] = []
    without: list[str] = []
    told_apart: list[str] = []
    formats: list[str] = []
    usual_on: list[str] = []
    usual_collectives: bool = False
    allocates_results: bool = False
    measures_skew: bool = False
    dispatch_dtype: str = ""
    campaign_copies: tuple[float, float] = (0.0, 0.0)
    remarks: list[Remark] = []
    kernel_names: dict[str, list[str]] = {}
    by_name: list[KernelRule] = []
    attention_by_name: list[AttentionRule] = []
    kernels: list[KernelRule] = []
    attention: list[AttentionRule] = []
    attention_call: AttentionCall = AttentionCall()
    absorbed: list[AbsorbedRule] = []
    expert_styles: dict[str, ExpertStyle] = {}
    recurrent_styles: dict[str, RecurrentStyle] = {}
    latent_styles: dict[str, LatentStyle] = {}
    collectives: list[CollectiveRule] = []
    sources: dict[str, str] = {}

    def styles_of(self, op: str) -> Collection[str]:
        """Names of the styles of an op's kernels; none for an op whose styles are not listed."""
        if op == "moe":
            return self.expert_styles
        if op in ("gdn", "kda", "mamba2"):
            return self.recurrent_styles
        return self.latent_styles if op in ("mla_prefill", "mla_decode") else ()

    def tells_apart(self, op: str, dtype: str) -> bool:
        """Whether kernels of an op in a format have a model of their own."""
        return op in self.told_apart and (not self.formats or dtype in self.formats)
