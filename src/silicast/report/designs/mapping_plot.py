"""A mapping drawn: where energy goes, what bounds time, when tiles are filled, what is at work."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from silicast.accelerator.counting.cost import MappingCost
from silicast.accelerator.counting.mapping import LoopNest
from silicast.accelerator.design.architecture import FanOut
from silicast.report.designs.mappings import nest_text
from silicast.report.drawing.plot_file import figure_class, save_plot

COLOURS = ("#0f766e", "#c2410c", "#4338ca", "#a16207", "#be185d", "#475569")
OTHER = "#94a3b8"
GRID: dict[str, Any] = {"visible": True, "color": "#e5e7eb", "linewidth": 0.6, "zorder": 0}
TILES_SHOWN = 24
UNITS_SHOWN = 4096
LINES_SHOWN = 26


def draw_mapping(nest: LoopNest, cost: MappingCost, path: Path) -> None:
    """Six panels: loops, energy by level and tensor, roofline, fills, the array, and words.

    Raises:
        SilicastError: the file cannot be written.
    """
    figure = figure_class()(figsize=(14, 8.4), layout="constrained")
    panels = figure.subplots(2, 3)
    _loops(panels[0, 0], nest, cost)
    _energy(panels[0, 1], cost)
    _roofline(panels[0, 2], cost)
    _fills(panels[1, 0], cost)
    _array(panels[1, 1], nest, cost)
    _ports(panels[1, 2], cost)
    figure.suptitle(
        f"{cost.einsum.name} on {cost.architecture.name}: {cost.energy_pj[0] / 1e6:,.4g} uJ, "
        f"{cost.cycles[0]:,.0f} cycles, {cost.utilisation[0]:.0%} of "
        f"{cost.architecture.units:,} units at work",
        fontsize=12,
    )
    save_plot(figure, path)


def _plain(axes: Any, title: str) -> None:
    axes.set_title(title, fontsize=10, loc="left")
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=8)


def _loops(axes: Any, nest: LoopNest, cost: MappingCost) -> None:
    axes.set_axis_off()
    axes.set_title("Loops, outermost first", fontsize=10, loc="left")
    lines = nest_text(nest, cost).splitlines()
    if len(lines) > LINES_SHOWN:
        lines = [*lines[: LINES_SHOWN - 1], f"... {len(lines) - LINES_SHOWN + 1} more lines"]
    step = 1.0 / LINES_SHOWN
    for number, line in enumerate(lines):
        is_loop = line.lstrip().startswith("for ")
        text = line if len(line) <= 62 else line[:61] + "…"
        axes.text(
            0.0,
            1.0 - number * step,
            text.replace("  ", "   "),
            family="monospace",
            fontsize=7.2,
            va="top",
            color="#111827" if is_loop else COLOURS[0],
            transform=axes.transAxes,
        )


def _energy(axes: Any, cost: MappingCost) -> None:
    """A bar a level, cut by tensor; leakage and compute have bars of their own."""
    names = [memory.name for memory in cost.architecture.memories]
    levels = np.arange(len(names))
    left = np.zeros(len(names))
    for t, tensor in enumerate(cost.einsum.names):
        values = cost.access_pj[:, t, 0] / 1e6
        axes.barh(levels, values, left=left, color=COLOURS[t % 6], label=tensor, height=0.7)
        left += values
    energies_pj = [
        (cost.architecture.compute.name, float(cost.compute_pj[0])),
        ("leakage", float(cost.leak_pj[:, 0].sum())),
        ("mesh", float(cost.hop_pj[0])),
        *((name, pj * float(cost.cycles[0])) for name, pj in cost.architecture.every_cycle),
    ]
    energies_pj = [(name, pj) for name, pj in energies_pj if pj > 0]
    axes.barh(
        len(names) + np.arange(len(energies_pj)),
        [pj / 1e6 for _, pj in energies_pj],
        color=OTHER,
        height=0.7,
    )
    ends = [*left, *(pj / 1e6 for _, pj in energies_pj)]
    total = float(cost.energy_pj[0]) / 1e6
    for index, end in enumerate(ends):
        axes.text(end, index, f" {end / total:.1%}" if total else "", va="center", fontsize=8)
    axes.set_xlim(0, 1.18 * max(ends) or 1.0)
    axes.set_yticks(range(len(ends)), [*names, *(name for name, _ in energies_pj)])
    axes.invert_yaxis()
    axes.set_xlabel("uJ", fontsize=8)
    axes.legend(frameon=False, fontsize=8, loc="lower right")
    _plain(axes, "Energy by level and tensor")


def _roofline(axes: Any, cost: MappingCost) -> None:
    """Products a cycle against products a word, with a roof for every port."""
    peak = cost.architecture.units * cost.architecture.compute.per_cycle
    products = float(cost.products[0])
    reached = products / float(cost.cycles[0])
    points = []
    for number, ((level, name), cycles) in enumerate(cost.port_cycles.items()):
        port = next(
            p
            for m in cost.architecture.memories
            if m.name == level
            for p in m.ports
            if p.name == name
        )
        used = float(cost.traffic.used[_index(cost, level), 0])
        width = port.words_per_cycle * used
        words = float(cycles[0]) * width
        if words > 0:
            points.append((f"{level} {name}", width, products / words, COLOURS[number % 6]))
    low = min([x for _, _, x, _ in points] + [1.0]) / 4
    high = max([peak / width for _, width, _, _ in points] + [x for _, _, x, _ in points] + [1]) * 4
    for index, (label, width, x, colour) in enumerate(points):
        ends = np.array([low, peak / width])
        axes.plot(
            ends,
            width * ends,
            color=colour,
            linewidth=1.5,
            label=f"{label}, {width:g}/cycle",
            linestyle=(3 * index, (6, 3)) if index else "-",
        )
        axes.plot([x], [reached], "o", color=colour, markersize=6, zorder=3)
    axes.axhline(peak, color="#111827", linewidth=1.3, label=f"units, {peak:,g}/cycle")
    if not points:
        axes.plot([1], [reached], "o", color="#111827")
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlim(low, high)
    axes.set_xlabel("products a word through the port", fontsize=8)
    axes.set_ylabel("products a cycle (dots: this mapping)", fontsize=8)
    axes.grid(**GRID)
    axes.legend(frameon=False, fontsize=7, loc="lower right")
    _plain(axes, "Roofline, a roof for each port")


def _fills(axes: Any, cost: MappingCost) -> None:
    """When tiles come into each memory, if they come at equal distances; the first few."""
    total = float(cost.cycles[0])
    rows = []
    for level, memory in enumerate(cost.architecture.memories):
        for t, tensor in enumerate(cost.einsum.names):
            tile = float(cost.traffic.tiles[level, t, 0])
            came = cost.traffic.fills[level, t, 0] + cost.traffic.distinct[level, t, 0]
            if level and tile:
                turns = float(came) / float(cost.traffic.used[level, 0]) / tile
                rows.append((f"{memory.name} {tensor}", max(turns, 1.0), t))
    if not rows:
        axes.set_axis_off()
        axes.set_title("No memory is filled", fontsize=10, loc="left")
        return
    most = min(TILES_SHOWN, max(turns for _, turns, _ in rows))
    end = total * most / max(turns for _, turns, _ in rows)
    shown = max(end, total / 4 if min(turns for _, turns, _ in rows) <= 4 else end)
    for index, (_, turns, t) in enumerate(rows):
        period = total / turns
        starts = np.arange(min(int(np.ceil(shown / period)), 400)) * period
        axes.broken_barh(
            [(start, period * 0.94) for start in starts],
            (index - 0.35, 0.7),
            facecolors=[
                COLOURS[t % 6] if n % 2 == 0 else _light(COLOURS[t % 6]) for n in range(len(starts))
            ],
        )
        axes.text(shown * 1.01, index, f"x {turns:,.4g}", va="center", fontsize=8)
    axes.set_xlim(0, shown)
    axes.set_yticks(range(len(rows)), [name for name, _, _ in rows])
    axes.invert_yaxis()
    axes.set_xlabel(f"cycles, the first {shown / total:.2%} (tiles at equal distances)", fontsize=8)
    _plain(axes, "Fills: a bar a tile, how often in all")


def _array(axes: Any, nest: LoopNest, cost: MappingCost) -> None:
    """The meshes laid out in rows and columns; units that work are filled."""
    sides = [
        (node.name, axis, size)
        for node in cost.architecture.nodes
        if isinstance(node, FanOut)
        for axis, size in enumerate(node.mesh)
    ]
    used = []
    for name, axis, size in sides:
        loops = [
            loop
            for loop in nest.loops
            if loop.slot == name and max(loop.axis, 0) == axis and loop.axis >= 0
        ]
        taken = int(np.prod([loop.bound for loop in loops])) if loops else 1
        used.append((name, size, min(taken, size), loops))
    axes.set_title("Array occupancy", fontsize=10, loc="left")
    if not used:
        axes.set_axis_off()
        return
    # Every other side goes down, the others across.
    across, down = used[1::2], used[0::2]
    grid = np.outer(_line(down), _line(across))
    if grid.size <= UNITS_SHOWN * 16:
        axes.imshow(
            grid, cmap=_two_colours(), vmin=0, vmax=1, aspect="auto", interpolation="nearest"
        )
        if max(grid.shape) <= 64:
            axes.set_xticks(np.arange(-0.5, grid.shape[1]), minor=True)
            axes.set_yticks(np.arange(-0.5, grid.shape[0]), minor=True)
            axes.grid(which="minor", color="white", linewidth=0.8)
            axes.tick_params(which="minor", length=0)
    share = float(grid.mean())
    axes.set_xlabel(_side_text(across), fontsize=8)
    axes.set_ylabel(_side_text(down), fontsize=8)
    axes.set_title(f"Array occupancy: {share:.1%} of the units have work", fontsize=10, loc="left")
    axes.tick_params(labelsize=8)


def _ports(axes: Any, cost: MappingCost) -> None:
    """How busy every port and the units are, of all cycles."""
    total = float(cost.cycles[0])
    units = float(cost.traffic.steps[0]) / cost.architecture.compute.per_cycle / total
    rows = [
        (f"{level} {port}", float(cycles[0]) / total)
        for (level, port), cycles in cost.port_cycles.items()
    ]
    rows.append(("units", units))
    for index, (_, share) in enumerate(rows):
        axes.barh(index, share, color=COLOURS[1] if share > 0.99 else COLOURS[0], height=0.7)
        inside = share > 0.85
        axes.text(
            share,
            index,
            f" {share:.0%} ",
            va="center",
            fontsize=8,
            ha="right" if inside else "left",
            color="white" if inside else "#111827",
        )
    if max(share for _, share in rows) < 0.99:
        axes.barh(len(rows) - 1, 1.0 - units, left=units, color="#cbd5e1", height=0.7, zorder=0)
        axes.text(1.0, len(rows) - 1.4, "grey: stalls, filling, emptying", fontsize=8, ha="right")
    axes.axvline(1.0, color="#111827", linewidth=0.8, linestyle=":")
    axes.set_xlim(0, 1.15)
    axes.set_yticks(range(len(rows)), [name for name, _ in rows])
    axes.invert_yaxis()
    axes.set_xlabel("share of the cycles that it is busy", fontsize=8)
    _plain(axes, "What takes the time")


def _index(cost: MappingCost, level: str) -> int:
    return next(i for i, m in enumerate(cost.architecture.memories) if m.name == level)


def _line(sides: list[tuple[str, int, int, Any]]) -> Any:
    line = np.ones(1)
    for _, size, taken, _ in sides:
        line = np.kron(line, (np.arange(size) < taken).astype(float))
    return line


def _side_text(sides: list[tuple[str, int, int, Any]]) -> str:
    parts = []
    for name, size, taken, loops in sides:
        bounds = " x ".join(f"{loop.dim} {loop.bound}" for loop in loops) or "one"
        parts.append(f"{name}: {bounds}, {taken} of {size}")
    return "; ".join(parts)


def _light(colour: str) -> str:
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return f"#{(red + 255) // 2:02x}{(green + 255) // 2:02x}{(blue + 255) // 2:02x}"


def _two_colours() -> Any:
    from matplotlib.colors import ListedColormap

    return ListedColormap(["#e5e7eb", COLOURS[0]])
