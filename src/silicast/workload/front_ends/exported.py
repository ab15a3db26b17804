"""Exported programs run once on tensors without data, under a recorder."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
from typing import Any, final

import torch
from torch._ops import HigherOrderOperator
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.amp.autocast_mode import _enter_autocast, _exit_autocast
from torch.export.graph_signature import InputKind
from torch.utils._pytree import tree_leaves

from silicast.core.errors import SilicastError, unsupported
from silicast.workload.front_ends.cuda_autocast import FORMATS, CudaAutocast
from silicast.workload.front_ends.dynamic_sizes import listed, sizes_of_places
from silicast.workload.front_ends.failures import operator_failure
from silicast.workload.front_ends.recorder import Recorder, key_of
from silicast.workload.front_ends.torch_calls import AUTOCAST, INSTEAD, LOOPS
from silicast.workload.front_ends.torch_export import CPU
from silicast.workload.graphs.graph import Graph

ASSERTIONS = "aten._assert_tensor_metadata"
"""Checks that an export leaves behind: they launch nothing, and autocast changes formats."""


def graph_of_program(
    program: Any,
    name: str,
    *,
    training: bool,
    dynamic: Mapping[str, int],
    dtype: str = "",
    autocast: str = "",
    bounded: bool = True,
) -> Graph:
    """The graph of an exported program; see :func:`silicast.workload.front_ends.graph_of`.

    Args:
        bounded: refuse sizes outside the ranges that the program states. Its operators run at these
            sizes in any case, and refuse those that they do not take.

    Raises:
        SilicastError: a dynamic dimension has no value, nothing can be differentiated, or an
            operator does not run on tensors without data.
    """
    sizes = _sizes_of(program, dynamic, bounded=bounded)
    recorder = Recorder(product="tf32" if dtype == "tf32" else "fp32")
    differentiated = nullcontext() if training else torch.no_grad()
    with FakeTensorMode(allow_non_fake_inputs=True, shape_env=None), differentiated:
        inputs, parameter_bytes = _inputs(program, sizes, recorder, training=training)
        casts = CudaAutocast(FORMATS.get(autocast))
        runner = _Runner(program.graph_module, recorder, casts)
        recorder.where = lambda: runner.where
        with recorder:
            results = runner.run(*inputs)
            if training:
                runner.where = ""
                _backward(results, recorder)
    phase = "training" if training else "inference"
    return Graph(name, recorder.blocks(), phase, parameter_bytes=parameter_bytes)


def stated_ranges(program: Any, names: Iterable[str]) -> dict[str, tuple[int, int | None]]:
    """Smallest and largest value of dynamic dimensions by the names that a user gives; None = any.

    Raises:
        SilicastError: a name is unknown.
    """
    positions, bounds = _places(program), program.range_constraints
    ranges = {str(symbol): (bound.lower, bound.upper) for symbol, bound in bounds.items()}
    stated_ranges = {}
    for name in names:
        symbols = {positions[size] for size in sizes_of_places(positions, {name: 1})}
        for lower, upper in (ranges[symbol] for symbol in symbols if symbol in ranges):
            stated_ranges[name] = (int(lower), int(upper) if upper.is_finite else None)
    return stated_ranges


def _places(program: Any) -> dict[str, str]:
    """Axes of inputs ("x.0") and symbols that stand alone -> the symbol."""
    positions: dict[str, str] = {}
    for node in program.graph_module.graph.nodes:
        value = node.meta.get("val") if node.op == "placeholder" else None
        for axis, size in enumerate(value.size()) if isinstance(value, torch.Tensor) else ():
            if isinstance(size, torch.SymInt) and size.node.expr.is_symbol:
                positions[f"{node.name}.{axis}"] = str(size.node.expr)
    symbols = map(str, program.range_constraints)
    return positions | {symbol: symbol for symbol in symbols if symbol not in positions.values()}


def _sizes_of(
    program: Any, size_by_name: Mapping[str, int], *, bounded: bool
) -> Callable[[Any], int]:
    """A function from a size of the program, symbolic or not, to a number.

    Raises:
        SilicastError: a name in ``size_by_name`` is unknown or its value is out of the program's
            range; later, from the function, a dimension without a value.
    """
    positions = _places(program)
    ranges = {str(symbol): bounds for symbol, bounds in program.range_constraints.items()}
    values = {
        positions[position]: size
        for position, size in sizes_of_places(positions, size_by_name).items()
    }
    for position, symbol in positions.items():
        size, bounds = values.get(symbol), ranges.get(symbol)
        if size is None or bounds is None or not bounded:
            continue
        if not bounds.lower <= size <= bounds.upper:
            raise SilicastError(
                f"{position} = {size} is outside {bounds.lower} to {bounds.upper}",
                field="dynamic",
                hint="the program was exported for that range",
            )

    def size_of(size: Any) -> int:
        if not isinstance(size, torch.SymInt):
            return int(size)
        expression = size.node.expr
        missing = sorted(str(x) for x in expression.free_symbols if str(x) not in values)
        if missing:
            named = listed(positions, [x for x, item in positions.items() if item == missing[0]])
            raise SilicastError(
                f"dynamic dimension {missing[0]} has no value",
                field="dynamic",
                hint=f"give one of: {named} = a size",
            )
        return int(expression.subs({x: values[str(x)] for x in expression.free_symbols}))

    return size_of


def _inputs(
    program: Any, sizes: Callable[[Any], int], recorder: Recorder, *, training: bool
) -> tuple[list[Any], int]:
    """Tensors without data for weights, constants and arguments, in the program's order, and the
    bytes of weights and buffers, each storage once.
    """
    indices = [node for node in program.graph_module.graph.nodes if node.op == "placeholder"]
    made: dict[object, torch.Tensor] = {}
    values: list[Any] = []
    parameter_bytes = 0
    for spec, node in zip(program.graph_signature.input_specs, indices, strict=True):
        value = node.meta.get("val")
        if not isinstance(value, torch.Tensor):
            values.append(_plain_input(spec, value, sizes))
            continue
        memory = _memory_of(program, spec.target) or node.name
        if memory not in made:
            tensor = made[memory] = _tensor(spec, value, sizes, training=training)
            weight = spec.kind in (InputKind.PARAMETER, InputKind.BUFFER)
            recorder.register(tensor, parameter=weight)
            parameter_bytes += tensor.untyped_storage().nbytes() if weight else 0
        values.append(made[memory])
    return values, parameter_bytes


def _memory_of(program: Any, target: str | None) -> object:
    """What weights have in common that share memory under several names."""
    aliases = getattr(program, "aliases", None)
    if aliases is not None:
        return aliases.get(target, target)
    held = program.state_dict.get(target) if target else None
    if held is None:
        return target
    return (key_of(held), held.storage_offset(), tuple(held.size()))


def _plain_input(spec: Any, value: Any, sizes: Callable[[Any], int]) -> Any:
    if spec.kind is InputKind.CUSTOM_OBJ:
        raise unsupported(
            f"input {spec.arg.name} is an object of a C++ class",
            "program",
            "export a module that takes tensors and numbers only",
        )
    if isinstance(value, torch.SymInt):
        return sizes(value)
    return getattr(spec.arg, "value", value) if value is None else value


def _tensor(spec: Any, value: Any, sizes: Callable[[Any], int], *, training: bool) -> torch.Tensor:
    shape, stride = (tuple(map(sizes, extents)) for extents in (value.size(), value.stride()))
    empty_strided = torch.empty_strided(shape, stride, dtype=value.dtype, device=CPU)
    if training and empty_strided.is_floating_point() and value.requires_grad:
        empty_strided.requires_grad_()
    if spec.kind is InputKind.PARAMETER:
        return torch.nn.Parameter(empty_strided, requires_grad=empty_strided.requires_grad)
    return empty_strided


@final
class _Runner(torch.fx.Interpreter):
    """Runs the nodes of an exported graph one by one and knows which module each belongs to."""

    def __init__(
        self, module: Any, recorder: Recorder, casts: CudaAutocast, where: str = ""
    ) -> None:
        super().__init__(module, garbage_collect_values=True)
        self.recorder, self.casts = recorder, casts
        self.where = where
        self._outer_casts: list[CudaAutocast] = []

    def run_node(self, n: Any) -> Any:
        """Runs one node; an operator that fails is named."""
        stack = n.meta.get("nn_module_stack") or {}
        if stack:
            self.where = str([*stack.values()][-1][0]).removeprefix("L['self']").lstrip(".")
            self.where = f"{self.where}.".removeprefix("inner.").rstrip(".")
        try:
            result = super().run_node(n)
        except SilicastError:
            raise
        except Exception as error:
            operator = f"{n.target} at {self.where or 'the top'}"
            stack = str(n.meta.get("stack_trace") or "")
            raise operator_failure(operator, n.name, stack, error) from error
        _label(result, self.where)
        return result

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        """One operator; what a GPU launches otherwise than a CPU is put in its place."""
        if "device" in kwargs:
            kwargs = {**kwargs, "device": CPU if kwargs["device"] is not None else None}
        args = tuple(CPU if isinstance(x, torch.device) else x for x in args)
        if target in (_enter_autocast, _exit_autocast):
            return self._at_mark(*args) if target is _enter_autocast else self._after_mark()
        name = str(target)
        if name.startswith(ASSERTIONS):
            return None
        if not isinstance(target, HigherOrderOperator):
            args, kwargs = self.casts.cast(target, args, kwargs)
        _require_one_format(name, args)
        if name in INSTEAD:
            return INSTEAD[name](self.recorder, target, args, kwargs)
        if not isinstance(target, HigherOrderOperator):
            return super().call_function(target, args, kwargs)
        if name == AUTOCAST:
            return self._region(*args)
        if name not in LOOPS:
            raise unsupported(
                f"the operator {name} holds code that is not traced",
                self.where or "program",
                "export the program without it, or with the loop written out",
            )
        return LOOPS[name](self._inner, *args)

    def _at_mark(self, _: Any, dtype: Any, enabled: bool, __: Any) -> None:
        """Where a region under autocast of its own begins."""
        self._outer_casts.append(self.casts)
        self.casts = CudaAutocast(_narrow(dtype) if enabled else None)

    def _after_mark(self) -> None:
        self.casts = self._outer_casts.pop()

    def _region(self, _: Any, dtype: Any, enabled: bool, __: Any, module: Any, *inputs: Any) -> Any:
        """A graph under autocast of its own."""
        before, self.casts = self.casts, CudaAutocast(_narrow(dtype) if enabled else None)
        try:
            return self._inner(module, *inputs)
        finally:
            self.casts = before

    def _inner(self, module: Any, *args: Any) -> Any:
        """Runs a graph inside this one."""
        if not isinstance(module, torch.fx.GraphModule):
            return module(*args)
        runner = _Runner(module, self.recorder, self.casts, self.where)
        outer, self.recorder.where = self.recorder.where, lambda: runner.where
        try:
            return runner.run(*args)
        finally:
            self.recorder.where = outer


def _narrow(dtype: Any) -> torch.dtype:
    """The format of an autocast region; a program that names none means fp16, as on a GPU."""
    return dtype if dtype in (torch.float16, torch.bfloat16) else torch.float16


PRODUCTS = frozenset({
    "aten.linear.default", "aten.matmul.default", "aten.mm.default", "aten.addmm.default",
    "aten.bmm.default", "aten.baddbmm.default", "aten.conv1d.default", "aten.conv2d.default",
    "aten.conv3d.default",
})  # fmt: skip
"""Operators that take no integers beside floating-point numbers, which nothing else checks here."""


def _require_one_format(name: str, args: Any) -> None:
    """Refuses integers beside floating-point operands, as PyTorch does on tensors with data."""
    if name not in PRODUCTS:
        return
    formats = dict.fromkeys(x.dtype for x in args if isinstance(x, torch.Tensor))
    if len({x.is_floating_point for x in formats}) > 1:
        raise RuntimeError(
            f"operands must have the same dtype, found {' and '.join(map(str, formats))}"
        )


def _label(result: Any, where: str) -> None:
    """Writes the module's name on the steps that autograd has noted for a result."""
    waiting = [x.grad_fn for x in tree_leaves(result) if isinstance(x, torch.Tensor)]
    while waiting:
        step = waiting.pop()
        if step is None or "silicast" in step.metadata:
            continue
        step.metadata["silicast"] = where
        waiting.extend(before for before, _ in step.next_functions)


def _backward(results: Any, recorder: Recorder) -> None:
    """Runs autograd's backward pass from the loss, or from gradients given for all results."""
    ends = [x for x in tree_leaves(results) if isinstance(x, torch.Tensor) and x.requires_grad]
    if not ends:
        raise SilicastError(
            "no result depends on a parameter that is trained",
            field="training",
            hint="a result with a gradient is needed; requires_grad is off or outputs are integers",
        )
    loss = [x for x in ends if x.numel() == 1][:1]
    recorder.direction = "backward"

    def where() -> str:
        step = torch._C._current_autograd_node()  # noqa: SLF001  (no public way to ask)
        return str(step.metadata.get("silicast", "")) if step is not None else ""

    recorder.where = where
    seeds = None if loss else [torch.empty_like(end) for end in ends]
    for seed in seeds or ():
        recorder.register(seed)
    try:
        torch.autograd.backward(loss or ends, seeds)
    except RuntimeError as error:
        message = str(error).strip().splitlines()[0][:300]
        hint = "the module must train in PyTorch as it stands"
        if "Sparse" in message:
            hint = "sparse gradients have sizes that values decide: give the layer sparse=False"
        raise unsupported(f"its backward pass does not run: {message}", "training", hint) from error
