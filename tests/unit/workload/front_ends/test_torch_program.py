"""PyTorch programs as graphs: work as PyTorch counts it, memory as it tracks it, nothing free."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from silicast.core.errors import SilicastError  # noqa: E402
from silicast.hardware.catalog import find_device  # noqa: E402
from silicast.kernels.convolution.conv2d_shapes import ConvolutionShape  # noqa: E402
from silicast.kernels.recurrent.recurrent_layers import Gru, Lstm  # noqa: E402
from silicast.learning.dispatch import time_of  # noqa: E402
from silicast.workload.frameworks.compiled import fused_graph  # noqa: E402
from silicast.workload.front_ends import graph_of  # noqa: E402
from silicast.workload.graphs.graph import Graph, Node  # noqa: E402
from silicast.workload.graphs.op import IN_CALL  # noqa: E402
from silicast.workload.graphs.op_graph import read_op_graph, write_op_graph  # noqa: E402
from tests.unit.workload.front_ends import torch_models as models  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")
nn: Any = torch.nn

QUICK = ("vit", "gpt2", "unet", "dit", "convolutions")
SLOW = [pytest.param(name, marks=pytest.mark.full) for name in ("resnet50", "encoder_decoder")]


def flops(node: Node) -> int:
    """Multiplications and additions of products, as PyTorch counts them: no mask, no Winograd."""
    op, d = node.op, dict(node.op.dims)
    if op.family == "gemm":
        return 2 * math.prod(d[name] for name in ("batch", "m", "n", "k"))  # type: ignore[misc]
    if op.family == "conv2d":
        return 2 * int(ConvolutionShape.from_dims(d).macs)
    if op.family in ("lstm", "gru"):
        return (Lstm() if op.family == "lstm" else Gru()).flops(op)
    if op.family.startswith("attention"):
        seen = d.get("window") or d["kv_len"]
        return 4 * d["batch"] * d["num_heads"] * d["q_len"] * seen * d["head_dim"]  # type: ignore
    return 0


def counted(graph: Graph, direction: str, *, attention: bool = True) -> int:
    return sum(
        flops(node)
        for block, node in graph.nodes()
        if block.direction == direction and (attention or "attention" not in node.op.family)
    )


def as_pytorch_counts(module: Any, args: tuple[Any, ...], *, training: bool) -> int:
    """FLOPs of PyTorch's own counter, with attention as plain products."""
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.utils.flop_counter import FlopCounterMode

    module, args = module.to("meta"), tuple(x.to("meta") for x in args)
    module.train()  # in eval mode a fused layer runs that nobody counts
    with FlopCounterMode(display=False) as counter, sdpa_kernel([SDPBackend.MATH]):
        if training:
            ends = torch.utils._pytree.tree_leaves(module(*args))
            sum(end.sum() for end in ends).backward()
        else:
            module(*args)
    return int(counter.get_total_flops())


class TestWork:
    @pytest.mark.parametrize("name", [*QUICK, *SLOW])
    def test_forward_flops_are_those_of_pytorchs_counter(self, name: str) -> None:
        make, args = models.zoo()[name]
        module = make()
        graph = graph_of(module, args)
        assert counted(graph, "forward") == as_pytorch_counts(module, args, training=False)

    @pytest.mark.parametrize("name", ["vit", "gpt2", "unet", "dit", *SLOW])
    def test_training_flops_are_those_of_pytorchs_counter(self, name: str) -> None:
        make, args = models.zoo()[name]
        module = make()
        graph = graph_of(module, args, training=True)
        forward = counted(graph, "forward")
        attention = forward - counted(graph, "forward", attention=False)
        backward = counted(graph, "backward", attention=False)
        # plain products keep the scores: four products backward where a fused kernel makes five
        expected = as_pytorch_counts(module, args, training=True)
        assert forward + backward + 2 * attention == expected
        fused = counted(graph, "backward") - backward
        assert fused == 5 * attention // 2

    def test_grouped_convolutions_cost_as_much_backward_as_forward(self) -> None:
        """PyTorch's counter leaves out the groups of a gradient: known answers instead."""
        layer = nn.Conv2d(16, 32, 3, padding=1, groups=4)
        image = torch.zeros(2, 16, 10, 12, requires_grad=True)
        graph = graph_of(layer, (image,), training=True)
        once = 2 * 2 * 32 * 10 * 12 * (16 // 4) * 9
        assert counted(graph, "forward") == once
        assert counted(graph, "backward") == 2 * once

    @pytest.mark.parametrize("name", QUICK)
    def test_every_node_has_a_time_and_bytes_that_fit(self, name: str) -> None:
        make, args = models.zoo()[name]
        device = find_device("h100")
        graph = graph_of(make(), args, training=True)
        for op in {node.op for _, node in graph.nodes()}:
            assert time_of(op, device).estimate_s > 0
        for _, node in graph.nodes():
            if node.op.family == "elementwise" and node.output_bytes:
                size = 2 if node.op.variant.dtype == "bf16" else 4
                assert node.output_bytes == node.op.dim("elements") * size  # type: ignore[operator]

    def test_steps_of_a_recurrent_layer(self) -> None:
        graph = graph_of(models.Recurrent(), (torch.zeros(3, 5, 64),))
        once = 2 * 3 * (512 * 64 + 512 * 128 + 2 * 512 * 128 + 192 * 128 + 192 * 64) * 5
        assert counted(graph, "forward") == once

    def test_a_recurrent_layer_is_one_call_of_a_library(self) -> None:
        graph = graph_of(nn.LSTM(8, 16), (torch.zeros(5, 3, 8),), training=True)
        forward = [n for block, n in graph.nodes() if block.direction == "forward"]
        (call,) = [n for n in forward if n.source == "silicast.recurrence"]
        assert dict(call.op.dims) == {"batch": 3, "steps": 5, "hidden": 16, "input": 0}
        backward = [n for block, n in graph.nodes() if block.direction == "backward"]
        current = [n for n in backward if n.source == "silicast.recurrence_backward"]
        assert [n.op.variant.flag(IN_CALL) for n in current] == [False, True]
        assert sum(flops(n) for n in current) == 2 * flops(call)

    def test_a_projected_recurrent_layer_multiplies_its_states(self) -> None:
        graph = graph_of(nn.LSTM(8, 16, proj_size=4), (torch.zeros(5, 3, 8),))
        once = 2 * 3 * (64 * 8 + 64 * 4 + 16 * 4) * 5
        assert counted(graph, "forward") == once

    def test_a_mask_of_attention_is_read_once_however_it_is_broadcast(self) -> None:
        def run(_: Any, q: Any, mask: Any) -> Any:
            mask = mask.expand(q.shape[0], -1, -1, -1)
            return nn.functional.scaled_dot_product_attention(q, q, q, attn_mask=mask)

        q, mask = torch.zeros(4, 2, 64, 32), torch.zeros(1, 2, 64, 64)
        graph = graph_of(Wrapped(run), (q, mask))
        (op,) = (n.op for _, n in graph.nodes() if n.op.family == "attention_prefill")
        assert op.dim("mask_bytes") == 2 * 64 * 64 * 4


class TestMemory:
    @pytest.mark.parametrize("name", ["vit", "gpt2", "unet", "dit", SLOW[0]])
    def test_peak_of_training_is_what_pytorch_tracks(self, name: str) -> None:
        tracked = tracked_peak(name, training=True)
        assert peak_of(name, training=True) == pytest.approx(tracked, rel=0.02)

    @pytest.mark.parametrize("name", ["vit", "gpt2", "dit"])
    def test_peak_of_a_forward_pass_is_near_what_pytorch_tracks(self, name: str) -> None:
        """Python holds arguments of functions longer than they are read."""
        tracked = tracked_peak(name, training=False)
        assert 0.88 * tracked <= peak_of(name, training=False) <= 1.02 * tracked

    def test_weights_count_once(self) -> None:
        module = models.GPT()
        graph = graph_of(module, models.zoo()["gpt2"][1])
        assert graph.parameter_bytes == sum(p.numel() * 4 for p in module.parameters())


def peak_of(name: str, *, training: bool) -> int:
    make, args = models.zoo()[name]
    graph = graph_of(make(), args, training=training)
    return most_alive(graph) + int(sum(x.numel() * x.element_size() for x in args))


def most_alive(graph: Graph) -> int:
    """Bytes of results at the worst point; what nobody reads (a gradient) stays."""
    nodes = [node for _, node in graph.nodes()]
    last = {name: index for index, node in enumerate(nodes) for name in node.inputs}
    alive = most = 0
    freed: dict[int, int] = {}
    for index, node in enumerate(nodes):
        alive += node.output_bytes
        most = max(most, alive)
        end = last.get(node.name, len(nodes))
        freed[end] = freed.get(end, 0) + node.output_bytes
        alive -= freed.pop(index, 0)
    return most


def tracked_peak(name: str, *, training: bool) -> int:
    """Bytes beside weights at the worst point, on tensors without data."""
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.distributed._tools.mem_tracker import MemTracker

    make, args = models.zoo()[name]
    with FakeTensorMode():
        module = make()
        args = tuple(torch.empty(x.shape, dtype=x.dtype) for x in args)
        module.train(training)
        tracker = MemTracker()
        tracker.track_external(module)
        with tracker, torch.set_grad_enabled(training):
            out = module(*args)
            if training:
                out.backward(torch.empty_like(out))
    table = {str(k).split(".")[-1]: v for k, v in
             next(iter(tracker.get_tracker_snapshot("peak").values())).items()}  # fmt: skip
    return int(table["Total"] - table["PARAM"] - table["BUFFER"])


class Wrapped(torch.nn.Module):  # type: ignore[name-defined]
    """A function as a module."""

    def __init__(self, function: Any, **parts: Any) -> None:
        super().__init__()
        self.function = function
        for name, part in parts.items():
            setattr(self, name, part)

    def forward(self, *args: Any) -> Any:
        return self.function(self, *args)


def sources(graph: Graph) -> list[str]:
    return [node.source for _, node in graph.nodes()]


class TestViews:
    @pytest.mark.parametrize(
        "view",
        [
            lambda _, x: x.view(8, 4).t()[1:3].unsqueeze(0).expand(5, 2, 8),
            lambda _, x: x.reshape(2, 16).transpose(0, 1),
            lambda _, x: x.detach().chunk(2)[0],
            lambda _, x: x.contiguous(),
            lambda _, x: torch.empty_like(x),
        ],
    )
    def test_views_cost_nothing(self, view: Any) -> None:
        assert sources(graph_of(Wrapped(view), (torch.zeros(4, 8),))) == []

    def test_strides_decide_what_is_a_copy(self) -> None:
        graph = graph_of(Wrapped(lambda _, x: x.t().reshape(-1)), (torch.zeros(4, 8),))
        assert sources(graph) == ["aten.clone.default"]
        ((_, node),) = graph.nodes()
        assert node.output_bytes == 4 * 8 * 4

    def test_a_copy_of_an_expanded_tensor_reads_it_once(self) -> None:
        graph = graph_of(Wrapped(lambda _, x: x.expand(100, 8).contiguous()), (torch.zeros(1, 8),))
        ((_, node),) = graph.nodes()
        assert dict(node.op.dims) == {"read_bytes": 32, "written_bytes": 3200, "operations": 0}

    def test_a_reader_of_a_view_keeps_the_whole(self) -> None:
        def run(_: Any, x: Any) -> Any:
            y = x.exp()
            part = y[:1]
            return x.sin() + part.cos()

        nodes = [node for _, node in graph_of(Wrapped(run), (torch.zeros(4, 8),)).nodes()]
        assert nodes[2].inputs == ("exp",)
        assert nodes[0].output_bytes == 4 * 8 * 4

    def test_in_place_writes_take_no_memory_and_are_waited_for(self) -> None:
        def run(_: Any, x: Any) -> Any:
            y = x.exp()
            y[0].mul_(2)
            return y.cos()

        nodes = [node for _, node in graph_of(Wrapped(run), (torch.zeros(4, 8),)).nodes()]
        assert [node.output_bytes for node in nodes] == [128, 0, 128]
        assert nodes[2].inputs == ("exp", "mul_")


class TestGraph:
    @pytest.mark.parametrize("name", QUICK)
    def test_names_are_unique_and_inputs_come_before(self, name: str) -> None:
        make, args = models.zoo()[name]
        graph = graph_of(make(), args, training=True)
        assert [block.direction for block in graph.blocks] == ["forward", "backward"]
        seen: set[str] = set()
        for _, node in graph.nodes():
            assert node.name not in seen
            assert set(node.inputs) <= seen
            seen.add(node.name)
        forward = {node.name for node in graph.blocks[0].nodes}
        assert any(set(node.inputs) & forward for node in graph.blocks[1].nodes)

    def test_a_graph_survives_its_file(self, tmp_path: Path) -> None:
        make, args = models.zoo()["dit"]
        graph = graph_of(make(), args, training=True, name="dit")
        write_op_graph(graph, tmp_path / "dit.graph.json")
        op_graph = read_op_graph(tmp_path / "dit.graph.json")
        assert [x.nodes for x in op_graph.blocks] == [x.nodes for x in graph.blocks]
        assert op_graph.parameter_bytes == graph.parameter_bytes

    def test_nodes_are_named_by_their_module(self) -> None:
        make, args = models.zoo()["vit"]
        names = [node.name for _, node in graph_of(make(), args, training=True).nodes()]
        assert "layers.2.attn.qkv.addmm" in names
        assert "layers.2.attn.qkv.mm.backward" in names

    def test_the_module_stays_as_it_is(self) -> None:
        module = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.5))
        weight = module[0].weight
        graph_of(module, (torch.zeros(2, 8),), dtype="bf16", training=True)
        graph_of(module, (torch.zeros(2, 8),))
        assert module.training
        assert module[0].weight is weight
        assert weight.dtype is torch.float32
        assert weight.grad is None

    def test_formats_are_cast_and_inference_has_no_dropout(self) -> None:
        module = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.5))
        args = (torch.zeros(2, 8),)
        ((_, node),) = graph_of(module, args, dtype="bf16").nodes()
        assert (node.op.variant.dtype, node.parameter_bytes) == ("bf16", 2 * 72)
        ((_, node),) = graph_of(module, args, dtype="tf32").nodes()
        assert (node.op.variant.dtype, node.parameter_bytes) == ("tf32", 4 * 72)
        assert "aten.native_dropout.default" in sources(graph_of(module, args, training=True))

    def test_weights_on_meta_and_inputs_anywhere(self) -> None:
        with torch.device("meta"):
            module = nn.Linear(8, 8)
        for device in ("meta", "cpu"):
            graph = graph_of(module, (torch.zeros(2, 8, device=device),))
            assert sources(graph) == ["aten.addmm.default"]

    def test_the_loss_starts_the_backward_pass(self) -> None:
        args = models.zoo()["gpt2"][1]
        with_loss = graph_of(models.GPT(depth=1), args, training=True)
        without = graph_of(models.GPT(depth=1), args[:1], training=True)
        assert any("nll_loss_backward" in x for x in sources(with_loss))
        assert not any("loss" in x for x in sources(without))
        assert counted(with_loss, "backward") == counted(without, "backward")


class TestAttention:
    def node(self, q: int, kv: int, *, causal: bool = False, groups: int = 4) -> Node:
        def run(_: Any, q: Any, k: Any, v: Any) -> Any:
            return nn.functional.scaled_dot_product_attention(
                q, k, v, is_causal=causal, enable_gqa=groups != 4
            )

        args = (torch.zeros(2, 4, q, 16), *(torch.zeros(2, groups, kv, 16) for _ in range(2)))
        ((_, node),) = graph_of(Wrapped(run), args).nodes()
        return node

    def test_prefill(self) -> None:
        node = self.node(32, 32, causal=True, groups=2)
        assert dict(node.op.dims) == {
            "batch": 2, "q_len": 32, "kv_len": 32, "num_heads": 4, "num_kv_heads": 2,
            "head_dim": 16,
        }  # fmt: skip
        assert node.op.variant.flag("causal")

    def test_one_query_is_decoding(self) -> None:
        node = self.node(1, 33)
        assert node.op.family == "attention_decode"
        assert node.op.dim("kv_len") == 32

    def test_fewer_keys_than_queries(self) -> None:
        node = self.node(64, 20)
        assert flops(node) == 4 * 2 * 4 * 64 * 20 * 16


def test_an_unknown_operator_counts_by_its_bytes_and_is_named() -> None:
    @torch.library.custom_op("silicast_tests::odd", mutates_args=())
    def odd(x: torch.Tensor) -> torch.Tensor:  # type: ignore[name-defined]
        return x.clone()

    @odd.register_fake
    def _(x: Any) -> Any:
        return torch.empty_like(x)

    graph = graph_of(Wrapped(lambda _, x: odd(x)), (torch.zeros(4, 8),))
    ((_, node),) = graph.nodes()
    assert node.source == "silicast_tests.odd.default"
    assert node.op.variant.flag("unmodelled")
    assert (node.op.dim("read_bytes"), node.op.dim("written_bytes")) == (128, 128)


def test_a_branch_that_depends_on_values_counts_as_the_longer_one() -> None:
    def run(_: Any, x: Any) -> Any:
        return torch.cond(x.sum() > 0, lambda x: x.sin().cos().exp(), lambda x: x + 1, (x,))

    result = sources(graph_of(Wrapped(run), (torch.zeros(4, 8),)))
    assert result[-3:] == ["aten.sin.default", "aten.cos.default", "aten.exp.default"]


def test_a_softmax_in_fp32_is_one_kernel() -> None:
    def run(self: Any, x: Any) -> Any:
        return torch.softmax(self.layer(x), dim=-1, dtype=torch.float32)

    module = Wrapped(run, layer=nn.Linear(8, 16))
    forward, backward = graph_of(module, (torch.zeros(4, 8),), training=True, dtype="bf16").blocks
    assert [node.op.family for node in forward.nodes] == ["gemm", "softmax"]
    assert forward.nodes[1].output_bytes == 4 * 16 * 4
    first = backward.nodes[0]
    assert first.inputs == (forward.nodes[1].name,)
    assert (first.op.dim("read_bytes"), first.op.dim("written_bytes")) == (512, 128)


class TestRefusals:
    def test_a_path_that_depends_on_values(self) -> None:
        class Branching(torch.nn.Module):  # type: ignore[name-defined]
            def forward(self, x: Any) -> Any:
                return x if x.sum() > 0 else -x

        with pytest.raises(SilicastError, match="cannot be exported") as caught:
            graph_of(Branching(), (torch.zeros(4),))
        assert "test_torch_program.py:" in caught.value.file
        assert "torch.cond" in caught.value.hint

    def test_nothing_to_train(self) -> None:
        module = nn.Linear(2, 2).requires_grad_(False)
        with pytest.raises(SilicastError, match="no result depends on a parameter"):
            graph_of(module, (torch.zeros(1, 2),), training=True)

    def test_what_does_not_train_in_pytorch_either(self) -> None:
        def run(self: Any, x: Any) -> Any:
            return self.layer(x).relu_().mul_(2)

        with pytest.raises(SilicastError, match="backward pass does not run"):
            graph_of(Wrapped(run, layer=nn.Linear(8, 8)), (torch.zeros(4, 8),), training=True)

    def test_what_is_no_module(self) -> None:
        with pytest.raises(SilicastError, match=r"expected a torch\.nn\.Module"):
            graph_of(torch.relu, (torch.zeros(1),))

    def test_an_unknown_format(self) -> None:
        with pytest.raises(SilicastError, match="unknown format 'int3'"):
            graph_of(nn.Linear(2, 2), (torch.zeros(1, 2),), dtype="int3")


class TestSavedPrograms:
    def saved(self, folder: Path) -> Path:
        module = models.GPT(width=64, depth=1, heads=2, vocab=100).eval()
        batch = torch.export.Dim("batch", min=2, max=64)
        program = torch.export.export(
            module, (torch.zeros(2, 32, dtype=torch.int64),), dynamic_shapes=({0: batch},)
        )
        path = folder / "gpt.pt2"
        torch.export.save(program, path)
        return path

    @pytest.mark.parametrize("name", ["batch", "tokens.0"])
    def test_as_from_the_module(self, tmp_path: Path, name: str) -> None:
        from silicast.workload.front_ends import read_program

        program = read_program(self.saved(tmp_path), {name: 8})
        module = models.GPT(width=64, depth=1, heads=2, vocab=100)
        expected = graph_of(module, (torch.zeros(8, 32, dtype=torch.int64),))
        assert [n.op for _, n in program.nodes()] == [n.op for _, n in expected.nodes()]
        assert program.parameter_bytes == expected.parameter_bytes

    def test_dimensions_without_a_value_are_named(self, tmp_path: Path) -> None:
        from silicast.workload.front_ends import read_program

        path = self.saved(tmp_path)
        with pytest.raises(SilicastError, match="has no value") as caught:
            read_program(path)
        assert "tokens.0" in caught.value.hint
        with pytest.raises(SilicastError, match="no dynamic dimension 'width'"):
            read_program(path, {"width": 3})
        with pytest.raises(SilicastError, match="outside 2 to 64"):
            read_program(path, {"batch": 65})

    @pytest.mark.parametrize(
        ("part", "planted"),
        [
            ("Symbol(", "__import__('os').system('touch X') or Symbol("),
            ("torch.ops.aten.embedding.default", "torch.load.__call__"),
            ("torch.ops.aten.embedding.default", "torch.hub.load"),
            ('"tokens"', '"tokens=print(1)"'),
        ],
    )
    def test_nothing_in_a_file_is_executed(self, tmp_path: Path, part: str, planted: str) -> None:
        import zipfile

        from silicast.workload.front_ends import read_program

        sound, odd = self.saved(tmp_path), tmp_path / "odd.pt2"
        with zipfile.ZipFile(sound) as source, zipfile.ZipFile(odd, "w") as target:
            for name in source.namelist():
                content = source.read(name)
                if name.endswith("models/model.json"):
                    assert part.encode() in content
                    content = content.replace(part.encode(), planted.encode())
                target.writestr(name, content)
        with pytest.raises(SilicastError) as caught:
            read_program(odd, {"batch": 4})
        assert "is not" in caught.value.message
        assert caught.value.file == str(odd)

    @pytest.mark.parametrize("content", [b"", b"PK", b"not a zip at all"])
    def test_other_files(self, tmp_path: Path, content: bytes) -> None:
        from silicast.workload.front_ends import read_program

        path = tmp_path / "other.pt2"
        path.write_bytes(content)
        with pytest.raises(SilicastError, match=r"torch\.export\.save"):
            read_program(path)


class TestProgramsWithGraphsInside:
    def test_a_scan_runs_its_body_once_a_slice(self) -> None:
        def run(_: Any, x: Any) -> Any:
            from torch._higher_order_ops.scan import scan

            return scan(lambda state, y: (state + y, (state * y).exp()), x[0].clone(), x)[1]

        result = sources(graph_of(Wrapped(run), (torch.zeros(3, 8),)))
        assert result.count("aten.exp.default") == 3

    def test_how_often_a_loop_runs_is_not_guessed(self) -> None:
        def run(_: Any, x: Any) -> Any:
            return torch.while_loop(
                lambda i, x: i < 3, lambda i, x: (i + 1, x.sin()), (torch.tensor(0), x)
            )[1]

        with pytest.raises(SilicastError, match="depends on values"):
            graph_of(Wrapped(run), (torch.zeros(3, 8),))

    def test_casts_inside_the_program(self) -> None:
        def run(self: Any, x: Any) -> Any:
            with torch.autocast("cpu", dtype=torch.bfloat16):
                return self.layer(x)

        module = Wrapped(run, layer=nn.Linear(8, 8))
        nodes = [node for _, node in graph_of(module, (torch.zeros(3, 8),)).nodes()]
        assert nodes[-1].op.variant.dtype == "bf16"

    def test_autocast_of_a_gpu_inside_the_program(self) -> None:
        """Without a GPU PyTorch would turn it off; regions nest, and end where they end."""

        def run(self: Any, x: Any) -> Any:
            with torch.autocast("cuda", dtype=torch.bfloat16):
                y = self.layer(x)
                with torch.autocast("cuda", enabled=False):
                    y = self.layer(y.float())
                y = self.layer(y)
            return self.layer(y.float())

        module = Wrapped(run, layer=nn.Linear(8, 8, bias=False))
        nodes = [node for _, node in graph_of(module, (torch.zeros(3, 8),)).nodes()]
        products = [node.op.variant.dtype for node in nodes if node.op.family == "gemm"]
        assert products == ["bf16", "fp32", "bf16", "fp32"]
        assert torch.cuda.amp.common.amp_definitely_not_available(), "only while it is traced"

    def test_results_that_are_no_tensors_are_left_out(self) -> None:
        class Cache:
            def __init__(self, kept: Any) -> None:
                self.kept = kept

        graph = graph_of(Wrapped(lambda _, x: {"y": x.sin(), "c": Cache(x)}), (torch.zeros(3),))
        assert sources(graph) == ["aten.sin.default"]


@pytest.mark.parametrize(("pool", "flag"), [("MaxPool2d", "max_pool"), ("AvgPool2d", "avg_pool")])
def test_pools_say_which_they_are_and_count_their_taps(pool: str, flag: str) -> None:
    graph = graph_of(getattr(torch.nn, pool)(3, 2), (torch.zeros(1, 4, 9, 9),))
    ((_, node),) = graph.nodes()
    assert node.op.variant.flag(flag)
    assert node.op.dim("operations") == 9 * 4 * 4 * 4


class TestEdges:
    """Data edges: what a node reads is what was written last, in its own format and layout."""

    def test_a_result_in_place_is_read_under_its_new_name(self) -> None:
        module = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(inplace=True), nn.Conv2d(8, 8, 3))
        nodes = {
            node.name: node for _, node in graph_of(module, (torch.empty(2, 3, 8, 8),)).nodes()
        }
        assert [value.name for value in nodes["1.relu_"].reads] == ["0.convolution.bias"]
        assert nodes["2.convolution"].reads[0].name == "1.relu_"
        assert "0.convolution" in nodes["2.convolution"].inputs, "whose memory it is"

    def test_an_operator_of_several_kernels_is_one_loop(self) -> None:
        norm = graph_of(nn.GroupNorm(2, 8), (torch.empty(2, 8, 4, 4),))
        kinds = [node.loops for _, node in norm.nodes()]
        assert kinds == ["rows", "joined", "joined"]
        assert norm.blocks[0].nodes[0].writes[0].elements == 2 * 8 * 4 * 4

    def test_images_keep_their_layout(self) -> None:
        module, images = nn.Conv2d(16, 16, 3), torch.empty(2, 16, 8, 8)
        last = torch.channels_last
        flags = [
            next(n.op.variant.flag("channels_last") for _, n in graph_of(module, (x,)).nodes())
            for x in (images, images.to(memory_format=last))
        ]
        assert flags == [False, True]

    def test_operands_that_are_repeated_fold_a_batch(self) -> None:
        class Repeated(nn.Module):
            def forward(self, x: Any, w: Any) -> Any:
                return torch.bmm(x, w.expand(x.shape[0], -1, -1))

        (node,) = graph_of(Repeated(), (torch.empty(8, 16, 4), torch.empty(4, 32))).blocks[0].nodes
        assert dict(node.op.dims) == {"batch": 1, "m": 128, "n": 32, "k": 4}


class TestAutocast:
    """CUDA's lists: products narrow, norms and softmax wide, casts are kernels."""

    def traced(self, module: Any, *args: Any, **how: Any) -> list[Node]:
        return [node for _, node in graph_of(module, args, autocast="fp16", **how).nodes()]

    def test_products_narrow_and_norms_widen(self) -> None:
        module = nn.Sequential(nn.Linear(64, 64), nn.LayerNorm(64), nn.GELU(), nn.Linear(64, 8))
        nodes = self.traced(module, torch.empty(4, 64))
        kinds = [(n.source.split(".")[1], n.writes[0].dtype) for n in nodes]
        assert kinds == [
            ("_to_copy", "fp16"), ("_to_copy", "fp16"), ("_to_copy", "fp16"), ("addmm", "fp16"),
            ("_to_copy", "fp32"), ("native_layer_norm", "fp32"), ("gelu", "fp32"),
            ("_to_copy", "fp16"), ("_to_copy", "fp16"), ("_to_copy", "fp16"), ("addmm", "fp16"),
        ]  # fmt: skip

    def test_batch_norm_keeps_the_format_of_its_images(self) -> None:
        module = nn.Sequential(nn.Conv2d(3, 8, 1, bias=False), nn.BatchNorm2d(8))
        assert self.traced(module, torch.empty(2, 3, 4, 4))[-1].writes[0].dtype == "fp16"

    def test_joined_tensors_become_the_widest(self) -> None:
        class Joined(nn.Module):
            def forward(self, x: Any, w: Any) -> Any:
                return torch.cat([x @ w, x])

        assert self.traced(Joined(), torch.empty(4, 4), torch.empty(4, 4))[-1].writes[0].dtype == (
            "fp32"
        )

    def test_sums_and_softmax_cast_inside_their_kernels(self) -> None:
        class Scored(nn.Module):
            def forward(self, x: Any, w: Any) -> Any:
                scores = x @ w
                return scores.softmax(-1), scores.sum(0), scores.log_softmax(-1), scores.cumsum(0)

        nodes = self.traced(Scored(), torch.empty(4, 4), torch.empty(4, 4))
        items = [(n.source.split(".")[1], n.reads[0].dtype, n.writes[0].dtype) for n in nodes]
        names = ("softmax", "sum", "softmax", "cumsum")
        assert items[3:] == [(name, "fp16", "fp32") for name in names]

    def test_a_format_that_the_program_names_stays(self) -> None:
        class Named(nn.Module):
            def forward(self, x: Any, w: Any) -> Any:
                return (x @ w).sum(0, dtype=torch.float16)

        (*_, node) = self.traced(Named(), torch.empty(4, 4), torch.empty(4, 4))
        assert node.writes[0].dtype == "fp16"

    @pytest.mark.parametrize("device", ["cpu", "cuda"])
    def test_code_that_asks_finds_autocast_on_but_where_it_turned_it_off(self, device: str) -> None:
        class Asking(nn.Module):
            def forward(self, x: Any, w: Any, scale: Any) -> Any:
                narrow = torch.get_autocast_dtype(device)
                assert (x @ w).dtype == narrow, "what products give"
                if torch.is_autocast_enabled(device):
                    x, scale = x.to(narrow), scale.to(narrow)
                with torch.autocast("cpu", enabled=False):
                    assert not torch.is_autocast_enabled("cpu")
                    return nn.functional.layer_norm(x, (64,), scale)

        nodes = self.traced(Asking(), torch.empty(4, 64), torch.empty(64, 8), torch.empty(64))
        assert [node.writes[0].dtype for node in nodes if "norm" in node.source] == ["fp16"]
        assert not torch.is_autocast_enabled(device), "only while it is traced"

    def test_weights_are_cast_once(self) -> None:
        class Twice(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.fc = nn.Linear(8, 8, bias=False)

            def forward(self, x: Any) -> Any:
                return self.fc(self.fc(x))

        for training in (False, True):
            nodes = self.traced(Twice(), torch.empty(4, 8), training=training)
            forward = [node for node in nodes if "backward" not in node.name]
            casts = sum(node.source.startswith("aten._to_copy") for node in forward)
            assert casts == 2, "images and weight"

    @pytest.mark.parametrize(("autocast", "dtype"), [("fp8", None), ("fp16", "bf16")])
    def test_formats_that_do_not_go_together(self, autocast: str, dtype: str | None) -> None:
        with pytest.raises(SilicastError, match="autocast"):
            graph_of(nn.Linear(2, 2), (torch.empty(1, 2),), autocast=autocast, dtype=dtype)


class TestCompiled:
    """A compiler's kernels of traced programs."""

    def test_a_trained_network_with_biases_has_no_cycle(self) -> None:
        module = nn.Sequential(nn.Conv2d(16, 32, 3), nn.ReLU(), nn.Conv2d(32, 32, 3), nn.ReLU())
        graph = fused_graph(graph_of(module, (torch.empty(8, 16, 32, 32),), training=True))
        assert [block.direction for block in graph.blocks] == ["forward", "backward"]

    @pytest.mark.parametrize("training", [False, True])
    def test_a_residual_block_keeps_no_more_than_an_eager_one(self, training: bool) -> None:
        class Residual(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.conv, self.norm = (
                    nn.Conv2d(64, 64, 3, padding=1, bias=False),
                    nn.BatchNorm2d(64),
                )
                self.relu = nn.ReLU(inplace=True)

            def forward(self, x: Any) -> Any:
                return self.relu(self.norm(self.conv(x)) + x)

        module = nn.Sequential(Residual(), Residual(), Residual())
        x = torch.empty(8, 64, 16, 16)
        eager = graph_of(module, (x,), training=training)
        compiled = fused_graph(eager)
        last = [node for node in compiled.blocks[0].nodes if node.writes[0].nbytes == x.nbytes][-1]
        assert sum(value.nbytes == x.nbytes for value in last.writes) == 1
        written = [sum(n.output_bytes for _, n in g.nodes()) for g in (eager, compiled)]
        assert training or written[1] <= written[0]

    def test_a_slice_that_is_written_keeps_the_rest(self) -> None:
        class Sliced(nn.Module):
            def forward(self, x: Any, w: Any) -> Any:
                y = x * 2
                y[:, :16].add_(1)
                return y @ w

        graph = fused_graph(graph_of(Sliced(), (torch.empty(64, 64), torch.empty(64, 64))))
        assert [node.source.split(".")[1] for _, node in graph.nodes()] == ["mul", "add_", "mm"]
