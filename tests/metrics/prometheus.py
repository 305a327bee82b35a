"""A real Prometheus server, with the project's configuration and alerts."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from tests.free_port import free_port
from tests.waiting import WAIT_S, eventually

MONITORING = Path(__file__).parents[2] / "deploy" / "monitoring"

needs_prometheus = pytest.mark.skipif(
    shutil.which("prometheus") is None or shutil.which("promtool") is None,
    reason="prometheus and promtool are not installed: scripts/tools.sh prometheus:promtool",
)


class Prometheus:
    def __init__(self, url: str) -> None:
        self._url = url

    def query(self, expression: str) -> list[dict[str, Any]]:
        """Return the series of an expression: their labels and values."""
        found = self._get("query", query=expression)
        assert found["resultType"] == "vector", expression
        return [{**each["metric"], "value": float(each["value"][1])} for each in found["result"]]

    def value(self, expression: str) -> float | None:
        series = self.query(expression)
        assert len(series) < 2, series
        return series[0]["value"] if series else None

    def rules(self) -> list[dict[str, Any]]:
        return [rule for group in self._get("rules")["groups"] for rule in group["rules"]]

    def _get(self, what: str, **parameters: str) -> Any:
        answer = httpx.get(f"{self._url}/api/v1/{what}", params=parameters, timeout=WAIT_S).json()
        assert answer["status"] == "success", answer
        return answer["data"]


@contextmanager
def prometheus(folder: Path, targets: Sequence[str]) -> Iterator[Prometheus]:
    """Run one that scrapes the targets often; it does not outlive the block."""
    config = yaml.safe_load((MONITORING / "prometheus.yml").read_text())
    config["global"] = {"scrape_interval": "1s", "evaluation_interval": "500ms"}
    config["rule_files"] = [str(MONITORING / name) for name in config["rule_files"]]
    config["scrape_configs"][0]["static_configs"][0]["targets"] = list(targets)
    file = folder / "prometheus.yml"
    file.write_text(yaml.safe_dump(config))
    address = f"127.0.0.1:{free_port()}"
    with (folder / "prometheus.log").open("w") as log:
        process = subprocess.Popen(
            [
                "prometheus",
                f"--config.file={file}",
                f"--storage.tsdb.path={folder / 'tsdb'}",
                f"--web.listen-address={address}",
                "--log.level=warn",
            ],
            stdout=log,
            stderr=log,
        )
    try:
        assert eventually(lambda: process.poll() is not None or _is_ready(address))
        assert process.poll() is None, (folder / "prometheus.log").read_text()
        yield Prometheus(f"http://{address}")
    finally:
        process.kill()
        process.wait()


def _is_ready(address: str) -> bool:
    try:
        return httpx.get(f"http://{address}/-/ready", timeout=WAIT_S).status_code == 200
    except httpx.HTTPError:
        return False
