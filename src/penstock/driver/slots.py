"""How many tasks and executors a Spark has room for, as its master and settings say. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping

from penstock.errors import ConfigError

_CLUSTER = re.compile(r"local-cluster\[\s*(\d+)\s*,\s*(\d+)\s*,\s*\d+\s*\]")


def task_slots(master: str, conf: Mapping[str, str], cores: int) -> int | None:
    """Return how many tasks can run at once under a master, None when only the cluster knows.

    ``cores`` are those of this machine, which ``local[*]`` takes.
    """
    if master == "local":
        return 1
    if re.fullmatch(r"local\[\*(?:,\s*\d+)?\]", master):
        return cores
    if match := re.fullmatch(r"local\[(\d+)(?:,\s*\d+)?\]", master):
        return int(match[1])
    executors = executor_count(master, conf)
    if executors is None:
        return None
    if match := _CLUSTER.fullmatch(master):
        return executors * int(match[2])
    return executors * int(conf.get("spark.executor.cores", "1"))


def executor_count(master: str, conf: Mapping[str, str]) -> int | None:
    """Return how many executors a program has, None when only the cluster knows."""
    if match := _CLUSTER.fullmatch(master):
        return int(match[1])
    dynamic = conf.get("spark.dynamicAllocation.enabled") == "true"
    if "spark.executor.instances" in conf and not dynamic:
        return int(conf["spark.executor.instances"])
    return None


def check_slots(receivers: int, slots: int | None) -> None:
    """Check that receivers leave a task slot for the batches.

    Raises:
        ConfigError: they would take all of them, and no batch could ever run.
    """
    if slots is not None and receivers >= max(slots, 1) and receivers > 0:
        raise ConfigError(
            f"{receivers} receiver(s) would take all {slots} task slot(s): no batch could run",
            operation="start receivers",
            ids={"receivers": receivers, "slots": slots},
            hint=f"give Spark more cores, e.g. master local[{receivers + 1}] or local[*]",
        )
