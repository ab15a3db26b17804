"""From Python: what ``silicast diagnose`` and ``silicast tune`` do."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from operator import index
from pathlib import Path
from typing import TYPE_CHECKING, Any

from silicast.app.arguments import described
from silicast.core.errors import SilicastError, unknown_name

if TYPE_CHECKING:
    from silicast.tuning.diagnosis import Diagnosis
    from silicast.tuning.plan import TuningPlan


@described()
def diagnose(
    op: str, /, *, device: str, measured_us: float | Sequence[float], **fields: Any
) -> Diagnosis:
    """One reason for a slow kernel, and a faster configuration.

    Args:
        op: ``"moe"`` with ``part="w13"`` or ``"w2"``, or ``"gemm"``.
        measured_us: what was measured, or its repeats.
        fields: the kernel's dimensions and properties; ``configuration``, a dictionary, is what
            ran.

    Raises:
        SilicastError: no such kernel or device, a measurement that beats its bound, or a
            configuration that the device cannot run.

    >>> import silicast
    >>> diagnosis = silicast.diagnose("gemm", m=64, n=4096, k=4096, device="H20", measured_us=90.0)
    >>> diagnosis.bound_us < diagnosis.measured_us, diagnosis.faster.gain_pct > 5.0
    (True, True)
    """
    from silicast.scenario.answers.diagnose.answerer import diagnose as diagnosed

    measurements = measured_us if isinstance(measured_us, Iterable) else [measured_us]
    try:
        values = [float(each) for each in measurements]
    except (TypeError, ValueError):
        raise SilicastError(
            f"expected microseconds, found {measured_us!r:.40}",
            field="measured_us",
            hint="for example 412.5, or [410.5, 412.0]",
        ) from None
    return diagnosed({"op": op, **fields}, device, values)


@described()
def tune(
    kernel: str = "moe",
    /,
    *,
    model: str | Mapping[str, Any],
    device: str,
    engine: str = "vllm",
    dtype: str = "",
    tp: int | Sequence[int] = 1,
    ep: int = 1,
    tokens: int | Sequence[int] = (),
    existing: str | Path | None = None,
    compiler: str = "",
    routing: str | Sequence[float] | None = None,
) -> TuningPlan:
    """Tuned configurations of a model's experts, or of its plain products with scaled blocks.

    Args:
        kernel: ``"moe"`` or ``"gemm"``.
        model: catalog name, path to a Hugging Face ``config.json``, or its content.
        engine: one that reads such files: ``"vllm"`` or ``"sglang"``.
        dtype: format; left out, of experts the checkpoint's, of products ``"fp8_block"``.
        tp: tensor-parallel degrees, one file each; ep: ranks that share the experts, of experts
            alone.
        tokens: numbers of tokens; left out, those that tuners use.
        existing: a file of the engine to judge beside the new entries.
        compiler: version of Triton that the files are for, of experts alone.
        routing: how tokens spread over a rank's experts: "uniform", "power_law_1.2", ..., or one
            share an expert; left out, evenly, as tuners time kernels. Of experts alone.

    Returns:
        The files with their entries; ``plan.write(folder)`` writes them.

    Raises:
        SilicastError: see :func:`silicast.predict`; an engine, a format or a degree without such
            files.

    >>> import silicast
    >>> plan = silicast.tune(model="qwen3-30b-a3b", device="H20", tokens=[1, 64])
    >>> plan.files[0].name, [entry.tokens for entry in plan.files[0].entries]
    ('E=128,N=768,device_name=NVIDIA_H20.json', [1, 64])
    """
    from silicast.scenario.resolve import find_any_device, find_any_model
    from silicast.tuning.plan import BLOCK_SCALED, tune_experts, tune_products

    if kernel not in ("moe", "gemm"):
        raise unknown_name(f"no tuned files of {kernel!r}", "kernel", "one of moe, gemm")
    board = find_any_device(device, Path())
    config = find_any_model(model if isinstance(model, str) else dict(model), Path())
    degrees, counts = _whole(tp, "tp"), _whole(tokens, "tokens")
    existing_file = None if existing is None else Path(existing)
    if kernel == "gemm":
        for name, is_stated in (
            ("ep", ep != 1),
            ("compiler", compiler != ""),
            ("routing", routing is not None),
        ):
            if is_stated:
                raise SilicastError("is of experts alone", field=name, hint="leave it out")
        return tune_products(
            config,
            board,
            engine,
            dtype=dtype or BLOCK_SCALED,
            tp=degrees,
            tokens=counts,
            existing=existing_file,
        )
    return tune_experts(
        config, board, engine, dtype=dtype, tp=degrees, ep=ep, tokens=counts,
        existing=existing_file, compiler=compiler, routing=routing,
    )  # fmt: skip


def _whole(given: int | Sequence[int], field: str) -> list[int]:
    """Whole numbers, those of NumPy too."""
    many = given if isinstance(given, Iterable) else [given]
    try:
        return [index(each) for each in many]
    except TypeError:
        raise SilicastError(
            f"expected whole numbers, found {given!r:.40}", field=field, hint="for example [1, 64]"
        ) from None
