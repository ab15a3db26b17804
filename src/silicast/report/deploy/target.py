"""What a target of deployment is, and where its writers are found."""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from importlib import import_module
from pkgutil import iter_modules
from typing import Any, ClassVar

from silicast.core.errors import unknown_name, unsupported
from silicast.report.deploy import targets
from silicast.scenario.answers.serving.launch_plan import LaunchPlan, PoolLaunch

_TARGETS: dict[str, type[DeployTarget]] = {}


class DeployTarget(ABC):
    """Writes the files of one way to start servers.

    Attributes:
        name: on the command line.
    """

    name: ClassVar[str]

    @abstractmethod
    def files(self, plan: LaunchPlan) -> Mapping[str, str]:
        """Name of a file -> its text.

        Raises:
            SilicastError: the target cannot express the plan.
        """

    def remarks(self, plan: LaunchPlan) -> list[str]:  # noqa: ARG002 - of targets that have some
        """What a reader of its files must know beside what holds for all targets."""
        return []


def register_target(kind: type[DeployTarget]) -> type[DeployTarget]:
    """Makes a target known by its name."""
    _TARGETS[kind.name] = kind
    return kind


def target_names() -> list[str]:
    """All targets, by name; a target is a module of :mod:`silicast.report.deploy.targets`."""
    for module in iter_modules(targets.__path__):
        import_module(f"{targets.__name__}.{module.name}")
    return sorted(_TARGETS)


def find_target(name: str) -> DeployTarget:
    """A target by its name.

    Raises:
        SilicastError: there is none.
    """
    names = target_names()
    if name not in names:
        raise unknown_name(f"no target {name!r:.40}", "--target", f"one of {', '.join(names)}")
    return _TARGETS[name]()


def model_label(plan: LaunchPlan) -> str:
    """A name of the model as Kubernetes takes one: at most 32 letters, digits and hyphens."""
    name = re.sub(r"[^a-z0-9]+", "-", plan.model.rpartition("/")[2].lower()).strip("-")
    name = name if name[:1].isalpha() else f"m-{name}"
    return name[:32].rstrip("-")


def pool_number(plan: LaunchPlan, pool: PoolLaunch) -> str:
    """Number of a pool among those of its role, from 2 on; "" for the first."""
    alike = [each for each in plan.pools if each.role == pool.role]
    number = next(i for i, each in enumerate(alike, 1) if each is pool)
    return "" if number == 1 else str(number)


def label_of(plan: LaunchPlan, pool: PoolLaunch) -> str:
    """A name of a pool of a model as Kubernetes takes one."""
    words = (model_label(plan), pool.role, pool_number(plan, pool))
    return "-".join(filter(None, words))


def one_node(plan: LaunchPlan, target: str) -> None:
    """Refuses servers over several nodes.

    Raises:
        SilicastError: a server has more devices than a node.
    """
    for pool in plan.pools:
        if pool.gpus > pool.gpus_per_node:
            raise unsupported(
                f"{target} does not express a server of {pool.gpus} devices over nodes of "
                f"{pool.gpus_per_node}",
                "parallel",
                "fewer devices a server",
            )


_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_./-]*")
_WORDS = frozenset({"y", "n", "yes", "no", "on", "off", "true", "false", "null"})


def yaml_text(*documents: Any) -> str:
    """Documents one after the other.

    >>> print(yaml_text({"a": [1, {"b": "x: y"}], "c": {}}), end="")
    a:
      - 1
      - b: "x: y"
    c: {}
    """
    return "---\n".join("\n".join(_lines(each, 0)) + "\n" for each in documents)


def _lines(value: Any, indent: int) -> Iterator[str]:
    start = " " * indent
    if isinstance(value, Mapping) and value:
        for key, item in value.items():
            if isinstance(item, Mapping | list | tuple) and item:
                yield f"{start}{_scalar(key)}:"
                yield from _lines(item, indent + 2)
            else:
                yield f"{start}{_scalar(key)}: {_scalar(item)}"
    elif isinstance(value, list | tuple) and value:
        for item in value:
            first, *others = _lines(item, indent + 2)
            yield f"{start}- {first[indent + 2 :]}"
            yield from others
    else:
        yield f"{start}{_scalar(value)}"


def _scalar(value: Any) -> str:
    if isinstance(value, str):
        plain = _PLAIN.fullmatch(value) and value.lower() not in _WORDS
        return value if plain else json.dumps(value, ensure_ascii=False)
    return json.dumps(list(value) if isinstance(value, tuple) else value)
