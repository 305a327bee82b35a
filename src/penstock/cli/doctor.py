"""``penstock doctor``: reports what the machine lacks, and what it uses elsewhere."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from penstock.cli import machine
from penstock.cli.doctor_places import check_brokers, check_executors, check_folder, check_store
from penstock.cli.kafka_conf import ConfOption
from penstock.cli.machine import CheckResult
from penstock.cli.options import BrokersOption
from penstock.storage.urls import local_root

app = typer.Typer()


@app.command("doctor")
def doctor(
    path: Annotated[
        str,
        typer.Argument(
            help="Folder or URL for journal and checkpoints.", show_default="temp folder"
        ),
    ] = "",
    master: Annotated[
        str | None,
        typer.Option(help="Run a job at this Spark master: do its executors share the path?"),
    ] = None,
    brokers: BrokersOption = None,
    conf: ConfOption = [],  # noqa: B006 - typer copies it
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Report what is lacking for penstock; exit status 1 if a requirement is missing.

    The path, a cluster's executors and Kafka's brokers are tried as a program uses them.
    """
    where = path or tempfile.gettempdir()
    results = [*_of_machine(), *_of_path(where)]
    if master is not None:
        results.append(check_executors(master, where))
    if brokers is not None or conf:
        results.append(check_brokers(brokers, conf))
    passed = all(result.ok for result in results if result.needed)
    if as_json:
        typer.echo(json.dumps({"ok": passed, "findings": [asdict(each) for each in results]}))
    else:
        _print_report(results)
    if not passed:
        raise typer.Exit(1)


def _of_machine() -> list[CheckResult]:
    return [
        machine.check_java(os.environ),
        machine.check_python(),
        machine.check_worker_python(os.environ),
        machine.check_distribution(),
        *(machine.check_package(name) for name in machine.PACKAGES),
        machine.check_cores(),
    ]


def _of_path(path: str) -> list[CheckResult]:
    root = local_root(path)
    return check_store(path) if root is None else check_folder(Path(root))


def _print_report(results: Sequence[CheckResult]) -> None:
    # The results contain brackets ("local[2]"), which are not markup.
    console = Console(markup=False, highlight=False)
    table = Table()
    for title in ("", "check", "found", "wanted"):
        table.add_column(title, overflow="fold")
    for result in results:
        table.add_row(_status(result), result.name, result.found, result.wanted)
    console.print(table)
    for result in results:
        if not result.ok:
            console.print(f"{result.name}: {result.hint}", soft_wrap=True)


def _status(result: CheckResult) -> str:
    if result.ok:
        return "ok"
    return "MISSING" if result.needed else "warning"
