"""The engine of a scenario, in its stated version and with its options."""

from __future__ import annotations

from collections.abc import Collection

from silicast.composition.engines.engine import Engine
from silicast.composition.step.machine import IN_LINE
from silicast.hardware.device import Device
from silicast.hardware.platforms import listed, runs_on
from silicast.scenario.decode import Scenario
from silicast.scenario.resolve import engine_of


def chosen_engine(scenario: Scenario, options: Collection[str] = ()) -> tuple[Engine, list[str]]:
    """The engine of the one pool, and a warning where its stated version changes nothing.

    Args:
        options: options of frameworks that the task itself understands.

    Raises:
        SilicastError: an unknown engine or option.
    """
    table = scenario.engine
    stated = table.options if table is not None else {}
    version = table.version if table is not None else ""
    engine = engine_of(scenario)
    if version:
        from silicast.composition.engines.engine_versions import as_of

        engine = as_of(engine, version)
    if engine.kind == "serving":
        options = ()
    switches = {name: value for name, value in stated.items() if name not in options}
    if switches:
        from silicast.composition.engines.engine_options import with_options

        engine = with_options(engine, switches)
    return engine, _other_version(scenario, engine)


QUEUES = ("serving", "capacity")
"""Tasks in which requests queue."""


def options_elsewhere(scenario: Scenario, engine: Engine, device: Device) -> list[str]:
    """Warnings about stated options that mean nothing on the device."""
    stated = scenario.engine.options if scenario.engine is not None else {}
    remarks = []
    if stated and (task := scenario.raw.task) not in QUEUES:
        from silicast.composition.engines.engine_options import ALIASES, QUEUE_OPTIONS

        remarks += [
            f"engine.options.{name} changes nothing here: nothing queues in task {task}"
            for name in stated
            if ALIASES.get(name, name) in QUEUE_OPTIONS
        ]
    if stated and engine.serving is not None:
        remarks += _unread(scenario, engine)
    for name, value in stated.items():
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
    known = {ALIASES.get(name, name): name for name in scenario.engine.options}
    policy, options = engine.serving.policy, engine.serving.options
    result = unread(policy, {name: options[name] for name in known if name in POLICY_SWITCHES})
    if scenario.raw.task not in QUEUES:
        return []
    return [
        f"engine.options.{known[name]} changes nothing here: policy {policy} does not read it"
        for name in result
    ]


def _other_version(scenario: Scenario, engine: Engine) -> list[str]:
    """A warning where the scenario states another version than the one that is modelled."""
    stated = scenario.engine.version if scenario.engine else ""
    if not stated or f"{stated}.".removeprefix("v").startswith(f"{engine.version}."):
        return []
    from silicast.composition.engines.engine_versions import lacking

    without = lacking(engine, stated)
    less = f", without {' and '.join(without)}" if without else ""
    return [f"engine.version = {stated}: {engine.name} is modelled as of {engine.version}{less}"]
