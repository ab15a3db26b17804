"""Formulas as tapes: a list of operations on columns of rows, which one loop runs.

:mod:`silicast.core.tracing` writes a tape by running a formula once with symbols. What is here is
the interpreter: each operation is one tight loop over a block of rows, so that a compiler makes of
it what NumPy's own loops are, without their calls, and a single row takes some nanoseconds for each
operation. ``silicast-core`` holds this file compiled (docs/adr/0056); as Python it is the
specification, which tests run, and which nobody else does: formulas themselves are quicker.

Every operation rounds as Python's and NumPy's do, so that a tape gives the bits of its formula.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, final

import numpy as np
from numpy import ceil, floor, rint, sqrt  # in C, of math.h

OPERATIONS = (
    "add",
    "sub",
    "mul",
    "div",
    "max",
    "min",
    "gt",
    "ge",
    "eq",
    "where",
    "neg",
    "ceil",
    "floor",
    "rint",
    "sqrt",
    "int_add",
    "int_sub",
    "int_mul",
    "int_div",
    "int_max",
    "int_min",
    "int_gt",
    "int_ge",
    "int_eq",
    "int_and",
    "to_float",
    "to_int",
    "argmin",
    "pick",
    "trees",
    "add_const",
    "mul_const",
    "const_sub",
    "div_const",
    "const_div",
    "max_const",
    "min_const",
    "gt_const",
    "ge_const",
    "const_gt",
    "const_ge",
    "spread",
    "gather",
    "exp",
    "log",
)
"""Names of operations; their positions are the codes below. Conditions are 1.0 or 0.0."""
BLOCK = 128
"""Rows that each operation is run for before the next: columns of candidates stay in a cache."""
BLOCK_OF_TREES = 1024
"""The same of tapes with trees, whose rows are sorted by region: fewer rows leave regions empty."""
LARGEST = 2.0**62
"""Whole numbers below it are exact: of Python's larger ones a single row has no tape."""
FRACTION, HALF = 0xFFFFFFFFFFFFF, 0x3FE0000000000000
"""Bits of a float behind its exponent, and those of 0.5."""
MANY_COLUMNS, FEW_ROWS = 600, 64
"""Tapes of more columns are run for so few rows at a time."""
SUMS = 5
"""Results of an operation on trees: codes beyond the range, whether what sizes leave over was
measured, and three sums of leaves."""


@final
class TreeTables:
    """What is learned of kernels, for one operation of a tape.

    Args:
        positions: row of ``marks`` of each feature that is computed, shape (f,).
        ranges: first and last code of each, shape (f, 2); whole: 1 where it is what a size leaves
            over, shape (f,).
        bins: bin of each code, shape (f, 1024).
        marks: bins of all features, shape (F,); who: 1 where it says who provides a kernel, (F,).
        beyond: steps by which a mark lies outside its range.
        splits: shape (s, 3), see :class:`~silicast.learning.forest.Forest`.
        parts: sums of trees, each (features, thresholds, leaves) of shapes (t, d), (t, d) and
            (t, 2**d): of all rows, of their spread, of the ceiling, then of each region.
    """

    def __init__(
        self,
        positions: Any,
        ranges: Any,
        whole: Any,
        bins: Any,
        marks: Any,
        who: Any,
        beyond: int,
        splits: Any,
        parts: Sequence[tuple[Any, Any, Any]],
    ) -> None:
        def listed(values: Any, kind: type[Any]) -> Any:
            flat = np.array(values, dtype=kind).ravel()
            return flat if len(flat) else np.zeros(1, dtype=kind)

        self._computed, self._all, self._beyond = len(positions), len(marks), beyond
        self._splits = len(splits)
        self._regions = len(parts) - 3
        self._position = listed(positions, np.int32)
        self._range = listed(ranges, np.int32)
        self._whole = listed(whole, np.int32)
        self._bin_of = listed(bins, np.uint8)
        self._mark = listed(marks, np.uint8)
        self._who = listed(who, np.uint8)
        self._split = listed(splits, np.int32)
        shapes, features, thresholds, leaves = [], [], [], []
        at, leaf_at = 0, 0
        for queries, bounds, values in parts:
            trees, depth = queries.shape
            shapes.append((trees, depth, at, leaf_at))
            features.append(np.ravel(queries))
            thresholds.append(np.ravel(bounds))
            leaves.append(np.ravel(values))
            at, leaf_at = at + trees * depth, leaf_at + trees * (1 << depth)
        self._shape = listed(shapes, np.int32)
        self._queries = listed(np.concatenate(features), np.int32)
        self._bound = listed(np.concatenate(thresholds), np.uint8)
        self._leaf = listed(np.concatenate(leaves), np.int16)
        block = BLOCK_OF_TREES
        self._bins = np.zeros(self._all * block, dtype=np.uint8)
        self._numbers = np.zeros(4 * block, dtype=np.uint8)
        self._gathered = np.zeros(self._all * block, dtype=np.uint8)
        self._total, self._sums, self._region, self._rows, self._outside, self._measured = (
            np.zeros(block + 1, dtype=np.int32) for _ in range(6)
        )

    def run(
        self, real: Any, whole: Any, operands: Any, first: int, target: int, block: int
    ) -> None:
        """The sums of a block of rows.

        Args:
            real, whole: all columns, as floats and as their bits.
            operands: where those of features begin, from ``first`` on.
            target: where the results begin, each a block after the last.
            block: how many rows there are.
        """
        self._place_all(whole, operands, first, block)
        beyond, measured, total = self._outside, self._measured, self._total
        for row in range(block):
            real[target + row] = beyond[row]
            real[target + block + row] = measured[row]
        self._sum(0, self._bins, total, block, block)
        if self._regions:
            self._add_own(block)
        for row in range(block):
            real[target + 2 * block + row] = total[row]
        self._sum(1, self._bins, total, block, block)
        for row in range(block):
            real[target + 3 * block + row] = total[row]
        for feature in range(self._all):
            if self._who[feature]:
                for row in range(block):
                    self._bins[feature * block + row] = 0
        self._sum(2, self._bins, total, block, block)
        for row in range(block):
            real[target + 4 * block + row] = total[row]

    def _place_all(self, whole: Any, operands: Any, first: int, block: int) -> None:
        """Bins of all features, and how far rows are outside the range of one."""
        bins, bin_of, beyond, measured = self._bins, self._bin_of, self._outside, self._measured
        for row in range(block):
            beyond[row] = self._beyond
            measured[row] = 1
        for feature in range(self._all):
            mark = self._mark[feature]
            for row in range(block):
                bins[feature * block + row] = mark
        for feature in range(self._computed):
            source, position = operands[first + feature] * block, self._position[feature] * block
            low, high = self._range[2 * feature], self._range[2 * feature + 1]
            table, left_over = feature * 1024, self._whole[feature]
            for row in range(block):
                code = (whole[source + row] >> 48) - 15856
                code = max(code, 0)
                code = min(code, 1023)
                bins[position + row] = bin_of[table + code]
                outside = code - high if code - high > low - code else low - code
                if left_over:
                    if outside > 0:
                        measured[row] = 0
                elif outside > beyond[row]:
                    beyond[row] = outside

    def _add_own(self, block: int) -> None:
        """Adds trees of each row's region."""
        bins, region = self._bins, self._region
        for row in range(block):
            region[row] = 0
        for split in range(self._splits):
            parent, feature = self._split[3 * split], self._split[3 * split + 1] * block
            bound = self._split[3 * split + 2]
            for row in range(block):
                if region[row] == parent and bins[feature + row] >= bound:
                    region[row] = split + 1
        if block == 1:
            self._total[0] += self._sum_of(3 + region[0])
            return
        gathered, rows, total, sums = self._gathered, self._rows, self._total, self._sums
        for number in range(self._regions):
            count = 0
            for row in range(block):
                rows[count] = row
                count += region[row] == number
            if count:
                for feature in range(self._all):
                    for at in range(count):
                        gathered[feature * block + at] = bins[feature * block + rows[at]]
                # whole registers of bytes; what stands behind the last row is not read
                self._sum(3 + number, gathered, sums, block, (count + 31) // 32 * 32)
                for at in range(count):
                    total[rows[at]] += sums[at]

    def _sum_of(self, part: int) -> int:
        """The sum of one part's trees for the only row."""
        bins, queries, bounds, leaves = self._bins, self._queries, self._bound, self._leaf
        trees, depth = self._shape[4 * part], self._shape[4 * part + 1]
        at, leaf_at = self._shape[4 * part + 2], self._shape[4 * part + 3]
        total = 0
        for _ in range(trees):
            leaf = 0
            for level in range(depth):
                leaf += (bins[queries[at + level]] >= bounds[at + level]) << level
            total += leaves[leaf_at + leaf]
            at += depth
            leaf_at += 1 << depth
        return total

    def _sum(self, part: int, bins: Any, total: Any, block: int, n: int) -> None:
        """Sums one part's trees for each of the first ``n`` rows into ``total``."""
        if block == 1:
            total[0] = self._sum_of(part)
            return
        leaves, numbers = self._leaf, self._numbers
        trees, depth = self._shape[4 * part], self._shape[4 * part + 1]
        at, leaf_at = self._shape[4 * part + 2], self._shape[4 * part + 3]
        width = 1 << depth
        for row in range(n):
            total[row] = 0
        while trees >= 4:
            self._place_leaves(bins, at, depth, block, n, 4)
            b, c, e = leaf_at + width, leaf_at + 2 * width, leaf_at + 3 * width
            for row in range(n):
                total[row] += (
                    leaves[leaf_at + numbers[row]]
                    + leaves[b + numbers[n + row]]
                    + leaves[c + numbers[2 * n + row]]
                    + leaves[e + numbers[3 * n + row]]
                )
            at, leaf_at, trees = at + 4 * depth, leaf_at + 4 * width, trees - 4
        for _ in range(trees):
            self._place_leaves(bins, at, depth, block, n, 1)
            for row in range(n):
                total[row] += leaves[leaf_at + numbers[row]]
            at, leaf_at = at + depth, leaf_at + width

    def _place_leaves(self, bins: Any, at: int, depth: int, block: int, n: int, trees: int) -> None:
        """The leaf of each row in some trees, whose questions begin at ``at``."""
        queries, bounds, numbers = self._queries, self._bound, self._numbers
        for row in range(trees * n):
            numbers[row] = 0
        for tree in range(trees):
            for level in range(depth - 1, -1, -1):
                source, bound = queries[at + level] * block, bounds[at + level]
                for row in range(n):
                    numbers[tree * n + row] = (
                        numbers[tree * n + row]
                        + numbers[tree * n + row]
                        + (bins[source + row] >= bound)
                    )
            at += depth


@final
class Tape:
    """Operations on columns of rows.

    Args:
        steps: operations in their order, shape (s, 6): code, columns of the result, which is the
            first of them, three operands, of which the second may be a position in ``constants``.
        operands: columns that operations on trees read.
        constants: numbers of operations with one.
        filled: columns that hold a number in all rows, and that number.
        inputs: columns of inputs; whole numbers where ``kinds`` is 1.
        outputs: columns of results.
        columns: how many there are; tables: what is read by operations on trees.
    """

    def __init__(
        self,
        steps: Any,
        operands: Sequence[int],
        constants: Sequence[float],
        filled: Sequence[tuple[int, Any]],
        inputs: Sequence[int],
        kinds: Sequence[int],
        outputs: Sequence[int],
        columns: int,
        tables: Sequence[TreeTables],
    ) -> None:
        self._count, self._block = len(steps), BLOCK_OF_TREES if tables else BLOCK
        if columns > MANY_COLUMNS:
            self._block = FEW_ROWS
        self._steps = np.array(steps, dtype=np.int32).reshape(-1)
        self._operands = np.array([*operands, 0], dtype=np.int32)
        self._constants = np.array([*constants, 0.0], dtype=np.float64)
        self._inputs = np.array([*inputs, 0], dtype=np.int32)
        self._kinds = np.array([*kinds, 0], dtype=np.int32)
        self._outputs = np.array([*outputs, 0], dtype=np.int32)
        self._input_count, self._output_count = len(inputs), len(outputs)
        self._tables = list(tables)
        self._exceeds, self._largest = False, LARGEST
        self._fraction, self._half = FRACTION, HALF
        self._real, self._whole = _columns(columns, 1, filled)
        self._reals, self._wholes = _columns(columns, self._block, filled)

    @property
    def results(self) -> int:
        """The number of results of a row."""
        return self._output_count

    def single(self, values: Sequence[float]) -> list[float]:
        """The results of one row of inputs.

        The list is made first: a new list may run the garbage collector, and with it other threads,
        which would write to the same columns.

        Raises:
            ArithmeticError: a whole number on the way does not fit into 64 bits, or is divided by
                none above 0, which is no error in :meth:`rows` as it is none of arrays.
        """
        results = [0.0] * self._output_count
        largest = self._largest
        self._exceeds = False
        for at in range(self._input_count):
            if self._kinds[at]:
                whole = values[at]
                self._whole[self._inputs[at]] = whole
                if not -largest < whole < largest:
                    self._exceeds = True
            else:
                self._real[self._inputs[at]] = values[at]
        self._run(self._real, self._whole, 1)
        if self._exceeds:
            raise OverflowError("a whole number does not fit into 64 bits")
        for at in range(self._output_count):
            results[at] = self._real[self._outputs[at]]
        return results

    def rows(self, values: Any, results: Any, count: int) -> None:
        """The results of many rows.

        Args:
            values: inputs as whole numbers, those of others their bits; shape (inputs, count).
            results: is filled, shape (outputs, count).
        """
        d, i, block = self._reals, self._wholes, self._block
        for start in range(0, count, block):
            n = count - start if count - start < block else block
            for at in range(self._input_count):
                target = self._inputs[at] * block
                for row in range(n):
                    i[target + row] = values[at, start + row]
                for row in range(n, block):
                    i[target + row] = values[at, start]
            self._run(d, i, block)
            for at in range(self._output_count):
                source = self._outputs[at] * block
                for row in range(n):
                    results[at, start + row] = d[source + row]

    def _run(self, d: Any, i: Any, block: int) -> None:  # noqa: C901, PLR0912, PLR0915 - one jump
        """All operations on a block of rows, whose columns are ``d``; ``i`` are their bits."""
        largest, fraction, half = self._largest, self._fraction, self._half
        steps, operands, constants = self._steps, self._operands, self._constants
        for step in range(self._count):
            at = 6 * step
            code, width, n = steps[at], steps[at + 1], steps[at + 1] * block
            t, x = steps[at + 2] * block, steps[at + 3] * block
            y, z = steps[at + 4] * block, steps[at + 5] * block
            k = constants[steps[at + 4]] if 30 <= code <= 40 else 0.0
            if code == 0:  # add
                for r in range(n):
                    d[t + r] = d[x + r] + d[y + r]
            elif code == 1:  # sub
                for r in range(n):
                    d[t + r] = d[x + r] - d[y + r]
            elif code == 2:  # mul
                for r in range(n):
                    d[t + r] = d[x + r] * d[y + r]
            elif code == 3:  # div
                for r in range(n):
                    d[t + r] = d[x + r] / d[y + r]
            elif code == 4:  # max
                for r in range(n):
                    d[t + r] = d[x + r] if d[x + r] >= d[y + r] else d[y + r]
            elif code == 5:  # min
                for r in range(n):
                    d[t + r] = d[x + r] if d[x + r] <= d[y + r] else d[y + r]
            elif code == 6:  # gt
                for r in range(n):
                    d[t + r] = 1.0 if d[x + r] > d[y + r] else 0.0
            elif code == 7:  # ge
                for r in range(n):
                    d[t + r] = 1.0 if d[x + r] >= d[y + r] else 0.0
            elif code == 8:  # eq
                for r in range(n):
                    d[t + r] = 1.0 if d[x + r] == d[y + r] else 0.0
            elif code == 9:  # where
                for r in range(n):
                    i[t + r] = i[y + r] if d[x + r] != 0.0 else i[z + r]
            elif code == 10:  # neg
                for r in range(n):
                    d[t + r] = -d[x + r]
            elif code == 11:  # ceil
                for r in range(n):
                    d[t + r] = ceil(d[x + r])
            elif code == 12:  # floor
                for r in range(n):
                    d[t + r] = floor(d[x + r])
            elif code == 13:  # rint
                for r in range(n):
                    d[t + r] = rint(d[x + r])
            elif code == 14:  # sqrt
                for r in range(n):
                    d[t + r] = sqrt(d[x + r])
            elif code == 15:  # int_add
                for r in range(n):
                    i[t + r] = i[x + r] + i[y + r]
            elif code == 16:  # int_sub
                for r in range(n):
                    i[t + r] = i[x + r] - i[y + r]
            elif code == 17:  # int_mul
                for r in range(n):
                    i[t + r] = i[x + r] * i[y + r]
            elif code == 18:  # int_div by a positive number, of C and of Python; else 0
                for r in range(n):
                    i[t + r] = (
                        0
                        if i[y + r] <= 0
                        else i[x + r] // i[y + r]
                        if i[x + r] >= 0
                        else -((i[y + r] - 1 - i[x + r]) // i[y + r])
                    )
            elif code == 19:  # int_max
                for r in range(n):
                    i[t + r] = i[x + r] if i[x + r] >= i[y + r] else i[y + r]
            elif code == 20:  # int_min
                for r in range(n):
                    i[t + r] = i[x + r] if i[x + r] <= i[y + r] else i[y + r]
            elif code == 21:  # int_gt
                for r in range(n):
                    d[t + r] = 1.0 if i[x + r] > i[y + r] else 0.0
            elif code == 22:  # int_ge
                for r in range(n):
                    d[t + r] = 1.0 if i[x + r] >= i[y + r] else 0.0
            elif code == 23:  # int_eq
                for r in range(n):
                    d[t + r] = 1.0 if i[x + r] == i[y + r] else 0.0
            elif code == 24:  # int_and
                for r in range(n):
                    i[t + r] = i[x + r] & i[y + r]
            elif code == 25:  # to_float
                for r in range(n):
                    d[t + r] = i[x + r]
            elif code == 26:  # to_int
                for r in range(n):
                    i[t + r] = int(d[x + r])
            elif code == 27:  # argmin of candidates
                for r in range(block):
                    best = 0
                    for at in range(1, steps[6 * step + 4]):
                        if d[x + at * block + r] < d[x + best * block + r]:
                            best = at
                    i[t + r] = best
            elif code == 28:  # pick candidate y of x
                for r in range(block):
                    i[t + r] = i[x + i[y + r] * block + r]
            elif code == 29:  # trees of table y
                tables = self._tables[steps[6 * step + 4]]
                tables.run(d, i, operands, steps[6 * step + 3], t, block)
            elif code == 30:  # add_const
                for r in range(n):
                    d[t + r] = d[x + r] + k
            elif code == 31:  # mul_const
                for r in range(n):
                    d[t + r] = d[x + r] * k
            elif code == 32:  # const_sub
                for r in range(n):
                    d[t + r] = k - d[x + r]
            elif code == 33:  # div_const
                for r in range(n):
                    d[t + r] = d[x + r] / k
            elif code == 34:  # const_div
                for r in range(n):
                    d[t + r] = k / d[x + r]
            elif code == 35:  # max_const
                for r in range(n):
                    d[t + r] = d[x + r] if d[x + r] >= k else k
            elif code == 36:  # min_const
                for r in range(n):
                    d[t + r] = d[x + r] if d[x + r] <= k else k
            elif code == 37:  # gt_const
                for r in range(n):
                    d[t + r] = 1.0 if d[x + r] > k else 0.0
            elif code == 38:  # ge_const
                for r in range(n):
                    d[t + r] = 1.0 if d[x + r] >= k else 0.0
            elif code == 39:  # const_gt
                for r in range(n):
                    d[t + r] = 1.0 if k > d[x + r] else 0.0
            elif code == 40:  # const_ge
                for r in range(n):
                    d[t + r] = 1.0 if k >= d[x + r] else 0.0
            elif code == 41:  # spread
                for at in range(width):
                    for r in range(block):
                        i[t + at * block + r] = i[x + r]
            elif code == 42:  # gather columns that operands list
                for at in range(width):
                    x = operands[steps[6 * step + 3] + at] * block
                    for r in range(block):
                        i[t + at * block + r] = i[x + r]
            elif code == 43:  # exp, as numerics.exp_fixed
                for r in range(n):
                    u = d[x + r] if d[x + r] >= -20.0 else -20.0
                    u = (u if u <= 20.0 else 20.0) * 0.00390625
                    v = (((1.0 / 5040.0 * u + 1.0 / 720.0) * u + 1.0 / 120.0) * u + 1.0 / 24.0) * u
                    v = (((v + 1.0 / 6.0) * u + 0.5) * u + 1.0) * u + 1.0
                    v = v * v
                    v = v * v
                    v = v * v
                    v = v * v
                    v = v * v
                    v = v * v
                    v = v * v
                    d[t + r] = v * v
            elif code == 44:  # log of a positive normal number, as numerics.log_fixed
                for r in range(n):
                    u = (i[x + r] >> 52) - 1022
                    i[t + r] = (i[x + r] & fraction) | half
                    v = d[t + r]
                    u = u - 1.0 if v < 0.7071067811865476 else u
                    v = v * 2.0 if v < 0.7071067811865476 else v
                    v = (v - 1.0) / (v + 1.0)
                    s = v * v
                    w = ((1.0 / 17.0 * s + 1.0 / 15.0) * s + 1.0 / 13.0) * s + 1.0 / 11.0
                    w = ((w * s + 1.0 / 9.0) * s + 1.0 / 7.0) * s + 1.0 / 5.0
                    w = (w * s + 1.0 / 3.0) * s + 1.0
                    d[t + r] = u * 0.6931471805599453 + 2.0 * v * w
            if block == 1 and (15 <= code <= 18 or code == 26):
                for r in range(n):
                    reach = d[x + r]
                    if code <= 16:
                        reach = i[t + r]
                    elif code == 17:
                        reach = float(i[x + r]) * float(i[y + r])
                    elif code == 18:
                        reach = 0.0 if i[y + r] > 0 else largest
                    if not -largest < reach < largest:
                        self._exceeds = True


def _columns(count: int, block: int, filled: Sequence[tuple[int, Any]]) -> tuple[Any, Any]:
    """Columns as floats, and the same memory as whole numbers; shape (count * block,)."""
    real = np.zeros(count * block, dtype=np.float64)
    whole = real.view(np.int64)
    for column, value in filled:
        rows = whole if isinstance(value, np.integer) else real
        rows[column * block : (column + 1) * block] = value
    return real, whole
