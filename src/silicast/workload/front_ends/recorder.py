"""Records the operators that a program dispatches on tensors without data, as nodes of a graph.

What the dispatcher sees below autograd is what an eager program launches: composite operators are
already taken apart, strides decide what is a view and what a copy, and the backward pass runs as
autograd runs it, so that one mode serves both directions. Storages carry the edges: which node
allocated one and which wrote to it last. The reader of a view keeps the whole storage alive, and
reads what was written last.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, final

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from silicast.workload.graphs.graph import Block, Direction, Loops, Node
from silicast.workload.operators import LaunchedKernel, OperatorCall, TensorValue, kernels_of
from silicast.workload.operators.loops import loops_of

DTYPES = {
    torch.float32: "fp32", torch.bfloat16: "bf16", torch.float16: "fp16", torch.float64: "fp64",
    torch.int64: "int64", torch.int32: "int32", torch.int16: "int16", torch.int8: "int8",
    torch.uint8: "int8", torch.bool: "bool", torch.float8_e4m3fn: "fp8", torch.float8_e5m2: "fp8",
}  # fmt: skip

HOST_ONLY = frozenset({
    "_assert_async", "_assert_tensor_metadata", "_assert_scalar", "sym_size", "sym_stride",
    "sym_numel", "sym_storage_offset", "sym_constrain_range", "sym_constrain_range_for_size",
    "is_pinned", "record_stream", "set_", "resize_", "_has_compatible_shallow_copy_type",
    "empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "empty_permuted",
    "as_strided_", "transpose_", "t_", "squeeze_", "unsqueeze_", "detach_", "swapaxes_",
    "is_same_size", "_version", "_sparse_coo_tensor_with_dims_and_tensors",
})  # fmt: skip
"""Operators that launch no kernel: they check, allocate, or look at memory in another way."""

KEPT = 0.5
"""Share of an operator's results from which on reading them later keeps all of them alive."""


@final
class _Storage:
    """Nodes that allocated a storage and wrote to it last; "" = it was there before.

    Attributes:
        storage: the storage itself, so that its number stays its own.
        share: its part of all that its owner allocated.
        direction: of the pass that allocated it.
        fresh: nothing has written to it yet.
        value: name of what it holds.
    """

    __slots__ = ("direction", "fresh", "owner", "parameter", "share", "storage", "value", "writer")

    def __init__(
        self, storage: Any, owner: str = "", share: float = 1.0, direction: Direction = "forward"
    ) -> None:
        self.storage, self.owner, self.writer = storage, owner, owner
        self.share, self.direction = share, direction
        self.parameter, self.fresh, self.value = False, not owner, ""


@final
class Recorder(TorchDispatchMode):
    """A dispatch mode under which every kernel becomes a node.

    Attributes:
        nodes: by direction, in order of execution.
        where: names the place in the program that runs now ("layers.0.attn").
        direction: of the pass that runs now.
    """

    def __init__(self, *, product: str = "fp32") -> None:
        super().__init__()
        self.nodes: dict[Direction, list[Node]] = {"forward": [], "backward": []}
        self.where: Any = lambda: ""
        self.direction: Direction = "forward"
        self._product = product
        self._storages: dict[int, _Storage] = {}
        self._names: dict[str, int] = {}
        self._given = 0

    def blocks(self) -> tuple[Block, ...]:
        """One block a direction that has nodes."""
        return tuple(
            Block(direction, tuple(nodes), direction=direction)
            for direction, nodes in self.nodes.items()
            if nodes
        )

    def register(self, tensor: torch.Tensor, *, parameter: bool = False) -> None:
        """A tensor that exists before the program runs."""
        entry = self._storages[key_of(tensor)] = _Storage(tensor.untyped_storage())
        entry.parameter, entry.fresh, entry.value = parameter, False, self._outside()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Runs the operator on tensors without data and records its kernels."""
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        self.record(str(func), func, args, kwargs, result)
        return result

    def record(
        self, name: str, func: Any, args: Sequence[Any], kwargs: dict[str, Any], result: Any
    ) -> None:
        """Adds the kernels of one call.

        Args:
            func: the operator; None for one that only this package knows.
        """
        inputs = _tensors((args, kwargs))
        written = _written(func, args, kwargs)
        before = {key_of(tensor) for tensor in inputs}
        made = [t for t in _tensors(result) if key_of(t) not in before]
        if _base(name) in HOST_ONLY or not (made or written):
            for tensor in made:
                self._storages.setdefault(key_of(tensor), _Storage(tensor.untyped_storage()))
            return
        results = made or written
        if not any(tensor.numel() for tensor in results):
            return
        call = OperatorCall(
            name,
            tuple(self._plain(x) for x in args),
            {key: self._plain(x) for key, x in kwargs.items()},
            tuple(self._value(t) for t in inputs),
            tuple(self._value(t) for t in results),
            frozenset(tag.name for tag in getattr(func, "tags", ())),
            self._product,
        )
        self._add(call, inputs, made, written)

    def _add(
        self, call: OperatorCall, inputs: list[Any], made: list[Any], written: list[Any]
    ) -> None:
        """Nodes of a call's kernels; storages learn who allocated and who wrote them."""
        kernels = kernels_of(call)
        # who writes a part of what a tensor holds leaves the rest: no loop of a compiler's own
        partial = not made and any(_is_part(tensor) for tensor in written)
        none: Loops = ""
        loops = (none,) * len(kernels) if partial else loops_of(call, kernels)
        weights = {
            key_of(t): v.nbytes for t, v in zip(inputs, call.inputs, strict=True) if v.parameter
        }
        waits = tuple(self._sources(inputs))
        stem = ".".join(x for x in (self.where(), _base(call.name)) if x)
        shares = _shares(kernels, len(made))
        read = [replace(v, name=self._held(t)) for t, v in zip(inputs, call.inputs, strict=True)]
        tensors = made or written
        last = ""
        for index, (kernel, share) in enumerate(zip(kernels, shares, strict=True)):
            name = self._unique(f"{stem}.{kernel.role}" if kernel.role else stem)
            size = self._allocated([made[i] for i in share], name)
            size += sum(self._wrote(tensor, name) for tensor in written)
            if not share:  # it goes on with what the kernels before it have written
                for tensor in made:
                    self._wrote(tensor, name)
            before = (last,) if last and last not in waits else ()
            reads, writes = self._edges(call, kernel, loops[index], read, tensors, share, name)
            node = Node(
                name, kernel.op, (*waits, *before), 0, size,
                0 if last else sum(weights.values()), call.name,
                reads=reads, writes=writes, loops=loops[index],
            )  # fmt: skip
            self.nodes[self.direction].append(node)
            last = name

    def _edges(
        self,
        call: OperatorCall,
        kernel: LaunchedKernel,
        loops: Loops,
        read: list[TensorValue],
        tensors: list[Any],
        share: list[int],
        name: str,
    ) -> tuple[tuple[TensorValue, ...], tuple[TensorValue, ...]]:
        """What one kernel of a call reads and writes; storages learn what they hold."""
        if loops == "joined":
            return (), ()
        values = [self._value(tensor) for tensor in tensors]
        if kernel.role == "bias" and not share:  # a sum in place, behind a library's kernel
            before = replace(values[0], name=self._held(tensors[0]))
            return (before, *read[2:3]), (self._holds(tensors[0], values[0], name, 0),)
        apart = not loops or kernel.role == "bias"  # else one loop does all that the operator does
        written = share if share and apart else range(len(tensors))
        if kernel.role == "bias":
            read = read[:1]
        elif "convolution" in call.name and "backward" not in call.name:
            read = read[:2]
        overwrites = call.name.split(".")[1] in ("copy_", "fill_", "zero_", "uniform_")
        reads = tuple(read[1:] if overwrites else read)
        if overwrites and _is_part(tensors[0]):
            reads = (replace(read[0], nbytes=0), *reads)  # waits for what it does not read
        return reads, tuple(self._holds(tensors[i], values[i], name, i) for i in written)

    def _held(self, tensor: Any) -> str:
        """Name of what a tensor's storage holds."""
        entry = self._storages.setdefault(key_of(tensor), _Storage(tensor.untyped_storage()))
        entry.value = entry.value or self._outside()
        return entry.value

    def _holds(self, tensor: Any, value: TensorValue, name: str, index: int) -> TensorValue:
        """Notes that a storage holds a node's result from now on."""
        entry = self._storages.setdefault(key_of(tensor), _Storage(tensor.untyped_storage()))
        entry.value = name if index == 0 else f"{name}:{index}"
        return replace(value, name=entry.value)

    def _outside(self) -> str:
        """A name for what no node has written."""
        self._given += 1
        return f"given:{self._given}"

    def _allocated(self, tensors: list[Any], name: str) -> int:
        """Makes a node the owner of its results; their bytes, each storage once."""
        table = {key_of(tensor): tensor.untyped_storage() for tensor in tensors}
        size = sum(int(storage.nbytes()) for storage in table.values())
        for key, storage in table.items():
            share = storage.nbytes() / max(size, 1)
            before = self._storages.get(key)
            entry = self._storages[key] = _Storage(storage, name, share, self.direction)
            entry.value = before.value if before is not None else ""
        return size

    def _wrote(self, tensor: Any, name: str) -> int:
        """Notes a write in place; bytes where it is the first one to memory without an owner."""
        entry = self._storages.setdefault(key_of(tensor), _Storage(tensor.untyped_storage()))
        entry.writer = name
        if not entry.fresh:
            return 0
        entry.fresh, entry.owner = False, name
        return int(tensor.untyped_storage().nbytes())

    def _sources(self, inputs: list[Any]) -> Iterator[str]:
        """Names of the nodes that a call's tensors come from, each once.

        A backward operator that reads only the lesser results of a forward one (row statistics, a
        mask) does not name it: the greater result, which nothing reads, would seem to be kept.
        """
        storages = [self._storages[key_of(t)] for t in inputs if key_of(t) in self._storages]
        shares: dict[str, float] = {}
        for key in {id(entry): entry for entry in storages}.values():
            shares[key.owner] = shares.get(key.owner, 0.0) + key.share
        seen = {""}
        for entry in storages:
            lesser = entry.direction != self.direction and shares[entry.owner] < KEPT
            for name in () if lesser else (entry.owner, entry.writer):
                if name not in seen:
                    seen.add(name)
                    yield name

    def _plain(self, x: Any) -> Any:
        if isinstance(x, torch.Tensor):
            return self._value(x)
        if isinstance(x, list | tuple):
            return tuple(self._plain(item) for item in x)
        return x

    def _value(self, tensor: Any) -> TensorValue:
        entry = self._storages.get(key_of(tensor))
        distinct = 1
        for size, stride in zip(tensor.shape, tensor.stride(), strict=True):
            distinct *= 1 if stride == 0 and size > 1 else int(size)
        return TensorValue(
            tuple(int(size) for size in tensor.shape),
            DTYPES.get(tensor.dtype, str(tensor.dtype).removeprefix("torch.")),
            distinct * tensor.element_size(),
            entry is not None and entry.parameter,
            tuple(int(stride) for stride in tensor.stride()),
            offset=int(tensor.storage_offset()),
        )

    def _unique(self, stem: str) -> str:
        name = stem if self.direction == "forward" else f"{stem}.backward"
        count = self._names[name] = self._names.get(name, 0) + 1
        return name if count == 1 else f"{name}_{count}"


def _shares(kernels: Sequence[LaunchedKernel], results: int) -> list[list[int]]:
    """Results that each kernel allocates: those it claims; the first that claims none, the rest."""
    claimed = {index for kernel in kernels for index in kernel.results or ()}
    remaining = [index for index in range(results) if index not in claimed]
    shares = []
    for kernel in kernels:
        share, remaining = (
            (remaining, []) if kernel.results is None else (list(kernel.results), remaining)
        )
        shares.append([index for index in share if index < results])
    return shares


def _base(name: str) -> str:
    """The operator without its namespace and overload.

    >>> _base("aten.add.Tensor")
    'add'
    """
    return name.split(".")[1] if "." in name else name


def _is_part(tensor: Any) -> bool:
    """Whether a tensor is less than its storage."""
    held = int(tensor.untyped_storage().nbytes())
    return int(tensor.numel()) * int(tensor.element_size()) < held


def key_of(tensor: Any) -> int:
    """A number that tensors share whose storage is the same, while it is kept."""
    return int(tensor.untyped_storage()._cdata)  # noqa: SLF001  (storages have no public identity)


def _tensors(tree: Any) -> list[Any]:
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, torch.Tensor)]


def _written(func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> list[Any]:
    """The arguments that an operator writes in place, by its schema."""
    schema = getattr(func, "_schema", None)
    written: list[Any] = []
    for position, argument in enumerate(schema.arguments if schema else ()):
        if argument.alias_info is not None and argument.alias_info.is_write:
            value = args[position] if position < len(args) else kwargs.get(argument.name)
            written.extend(_tensors(value))
    return written
