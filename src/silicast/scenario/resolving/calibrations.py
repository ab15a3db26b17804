"""Calibration files that a scenario names, read once and made ready for kernels."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from silicast.core.calibration import AGAIN, Calibration, load_calibration
from silicast.core.errors import SilicastError
from silicast.hardware.catalog import find_device
from silicast.hardware.device import Device
from silicast.learning.artefact import shipped_hash
from silicast.learning.calibration import Calibrator
from silicast.learning.scaled import ScaledCalibrator

REMEMBERED = 64
"""Calibrations that are kept for further scenarios."""


def calibrators_in(
    names: Sequence[str], folder: Path, device: Device
) -> tuple[tuple[Calibrator, ...], tuple[ScaledCalibrator, ...]]:
    """Calibrations of ``device``, and those of other devices, the last named first.

    Args:
        names: of the files, relative to ``folder``.

    Raises:
        SilicastError: a file is unreadable, or of a device that says nothing about this one.
    """
    calibrators: list[Calibrator] = []
    scaled: list[ScaledCalibrator] = []
    for name in reversed(names):
        calibration = _read(folder / name)
        if calibration.is_of(device.name):
            calibrators.append(_calibrator(calibration))
        else:
            scaled.append(_scaled(calibration, device, name))
    return tuple(calibrators), tuple(scaled)


def calibrations_of(names: str | Sequence[str] | None, folder: Path) -> list[Calibration]:
    """The calibrations of files, the last named first; raises where one is unreadable."""
    files = [names] if isinstance(names, str) else list(names or ())
    return [_read(folder / name) for name in reversed(files)]


def _scaled(calibration: Calibration, device: Device, name: str) -> ScaledCalibrator:
    """A calibration of another device made ready.

    Raises:
        SilicastError: nothing measured there says anything about ``device``.
    """
    measured = calibration.scope.device
    try:
        have = find_device(measured)
    except SilicastError:
        raise SilicastError(
            f"measured on {measured}, which the catalog does not know, used for {device.name}",
            field="calibration",
            file=name,
            hint="calibrate on the device itself, or leave the calibration out",
        ) from None
    if (have.vendor, have.execution_model) != (device.vendor, device.execution_model):
        raise SilicastError(
            f"measured on {measured}, used for {device.name}: nothing carries over between them",
            field="calibration",
            file=name,
            hint="give one of this device or of a relative, or leave the calibration out",
        )
    key = calibration.hash
    if len(_scaled_ones) > REMEMBERED:
        _scaled_ones.clear()
    return _scaled_ones.setdefault(key, ScaledCalibrator(_calibrator(calibration), have))


_scaled_ones: dict[str, ScaledCalibrator] = {}


def _read(path: Path) -> Calibration:
    """A calibration file, read once for many scenarios that name it while it stays as it is."""
    try:
        status = path.stat()
    except OSError as error:
        raise SilicastError(
            f"cannot read: {error.strerror}", kind="io", field="calibration", file=str(path)
        ) from None
    except ValueError as error:
        raise SilicastError(
            f"not a file name: {error}", kind="io", field="calibration", file=repr(path)
        ) from None
    key = (str(path), status.st_mtime_ns, status.st_size)
    if len(_files) > REMEMBERED:
        _files.clear()
    calibration = _files.get(key)
    if calibration is None:
        calibration = load_calibration(path)
        _refuse_stale(calibration, path)
        _files[key] = calibration
    return calibration


def _refuse_stale(calibration: Calibration, path: Path) -> None:
    """Raises if it corrects other constants and corrections than those that are shipped here."""
    if calibration.upstream not in ("", shipped_hash()):
        raise SilicastError(
            f"corrects predictions of constants with the hash {calibration.upstream} (version "
            f"{calibration.version or 'unknown'}); those here have {shipped_hash()}",
            field="upstream",
            file=str(path),
            hint=AGAIN,
        )


_files: dict[tuple[str, int, int], Calibration] = {}
_calibrators: dict[str, Calibrator] = {}


def _calibrator(calibration: Calibration) -> Calibrator:
    """It made ready, once for many scenarios that name it."""
    if len(_calibrators) > REMEMBERED:
        _calibrators.clear()
    return _calibrators.setdefault(calibration.hash, Calibrator(calibration))
