"""The engine of a scenario, in its stated version and with its options."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from silicast.composition.engines.engine import Engine
from silicast.composition.engines.switches import check_kernels, is_switch, quantised
from silicast.composition.engines.switches import choose as own_switches
from silicast.composition.step.machine import IN_LINE, Machine
from silicast.hardware.device import Device
from silicast.hardware.platforms import listed, maker_of, runs_on
from silicast.scenario.decode import Scenario
from silicast.scenario.resolve import device_of, engine_of
from silicast.workload.models.model import ModelConfig
from silicast.workload.models.precision import Precision


def chosen_engine(scenario: Scenario, options: Collection[str] = ()) -> tuple[Engine, list[str]]:
    """The engine of the one pool, and a warning where its stated version changes nothing.

    Args:
        options: options of frameworks that the task itself understands.

    Raises:
        SilicastError: an unknown engine or option, or a version that is no release.
    """
    table = scenario.engine
    stated = table.options if table is not None else {}
    version = table.version if table is not None else ""
    engine = engine_of(scenario)
    later = list[str]()
    if version:
        from silicast.composition.engines.engine_versions import as_of, check_release

        later = check_release(engine, version)
        engine = as_of(engine, version)
    if engine.kind == "serving":
        options = ()
    switches = {name: value for name, value in stated.items() if name not in options}
    remarks = later or _other_version(scenario, engine)
    if switches:
        from silicast.composition.engines.engine_options import with_options

        meant = own_switches(engine, switches, version)
        remarks += meant.remarks
        ours = {name: value for name, value in switches.items() if not is_switch(engine, name)}
        engine = with_options(meant.engine, meant.options | ours)
    return engine, remarks


def checked_engine(
    scenario: Scenario, machine: Machine, model: ModelConfig, formats: Precision
) -> tuple[Machine, list[str]]:
    """The machine with the kernels that switches of its engine choose, as far as device and formats
    can run them.

    Raises:
        SilicastError: kernels that they cannot run.
    """
    if scenario.engine is None or not machine.engine.kernels.chosen:
        return machine, []
    engine, remarks = check_kernels(
        machine.engine, scenario.engine.options, machine.device, model, formats
    )
    return replace(machine, engine=engine), remarks


def with_quantisation(scenario: Scenario, engine: Engine, formats: Precision) -> Precision:
    """The formats with what the engine's own switch for the weights asks for."""
    if scenario.engine is None or not scenario.engine.options:
        return formats
    table = scenario.raw.precision
    recipe = (table.recipe or table.weights or "") if table is not None else ""
    return quantised(engine, scenario.engine.options, formats, recipe)


UNPRICED = "not priced, the interval is wider: {}"
QUEUES = ("serving", "capacity")
"""Tasks in which requests queue."""


def options_elsewhere(scenario: Scenario, engine: Engine, device: Device) -> list[str]:
    """Warnings about stated options that mean nothing on the device."""
    options = scenario.engine.options if scenario.engine is not None else {}
    remarks = []
    if options and (task := scenario.raw.task) not in QUEUES:
        from silicast.composition.engines.engine_options import ALIASES, QUEUE_OPTIONS

        remarks += [
            f"engine.options.{name} changes nothing here: nothing queues in task {task}"
            for name in options
            if ALIASES.get(name, name) in QUEUE_OPTIONS
        ]
    if options and engine.serving is not None:
        remarks += _unread(scenario, engine)
        if unpriced := options.get("unpriced"):
            remarks.append(UNPRICED.format(", ".join(map(str, unpriced))))
    for name, value in options.items():
        positions = engine.options_on.get(name, [])
        if value in (False, "off"):
            continue
        if name == "cuda_graph" and device.execution_model in IN_LINE:
            remarks.append(
                f"engine.options.cuda_graph: {device.name} runs an operation in the thread that "
                "calls it: there is nothing to capture, and the option changes nothing"
            )
        elif not runs_on(device, positions):
            remarks.append(
                f"engine.options.{name}: {engine.name} has it on {listed(positions)}, "
                f"not on {device.name}"
            )
    return remarks


def _unread(scenario: Scenario, engine: Engine) -> list[str]:
    """Warnings about stated switches that the scheduling policy does not read.

    Raises:
        SilicastError: a value that a switch has under no policy.
    """
    from silicast.composition.engines.engine_options import ALIASES, POLICY_SWITCHES
    from silicast.serving.simulation.scheduler import unread

    assert scenario.engine is not None
    assert engine.serving is not None
    spelled = {ALIASES.get(name, name): name for name in scenario.engine.options}
    policy, options = engine.serving.policy, engine.serving.options
    result = unread(policy, {name: options[name] for name in spelled if name in POLICY_SWITCHES})
    if scenario.raw.task not in QUEUES:
        return []
    return [
        f"engine.options.{spelled[name]} changes nothing here: policy {policy} does not read it"
        for name in result
    ]


def _other_version(scenario: Scenario, engine: Engine) -> list[str]:
    """A warning where the scenario states another version than the one that is modelled."""
    version = scenario.engine.version if scenario.engine else ""
    if not version:
        return []
    from silicast.composition.engines.engine_versions import lacking, otherwise

    chosen = scenario.engine.options if scenario.engine else {}
    without = [name for name in lacking(engine, version) if name not in chosen]
    less = f", without {' and '.join(without)}" if without else ""
    device = device_of(scenario)
    others = ", ".join(otherwise(engine, version, (device.architecture, maker_of(device))))
    less += f"; {others}" if others else ""
    if not less and f"{version}.".removeprefix("v").startswith(f"{engine.version}."):
        return []
    return [f"engine.version = {version}: {engine.name} is modelled as of {engine.version}{less}"]
