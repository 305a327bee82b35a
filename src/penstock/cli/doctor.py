"""``penstock doctor``: reports what the machine lacks, and how to fix it."""

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

from penstock.cli import disk, machine
from penstock.cli.machine import CheckResult
from penstock.errors import ConfigError
from penstock.storage.urls import local_root

__all__ = ["doctor"]


def doctor(
    path: Annotated[
        str, typer.Option(help="Folder for journal and checkpoints.", show_default="temp folder")
    ] = "",
    master: Annotated[
        str | None,
        typer.Option(help="Spark master of the job.", show_default="SPARK_MASTER, spark-defaults"),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Report what this machine lacks for penstock; exit status 1 if a requirement is missing."""
    results = _examine(_local_folder(path or tempfile.gettempdir()), master)
    passed = all(result.ok for result in results if result.needed)
    if as_json:
        typer.echo(json.dumps({"ok": passed, "findings": [asdict(each) for each in results]}))
    else:
        _print_report(results)
    if not passed:
        raise typer.Exit(1)


def _examine(folder: Path, master: str | None) -> list[CheckResult]:
    return [
        machine.check_java(os.environ),
        machine.check_python(),
        machine.check_worker_python(os.environ),
        *(machine.check_package(name) for name in machine.PACKAGES),
        machine.check_cores(),
        *disk.check_place(folder),
        disk.check_shared(folder, disk.find_master(master, os.environ)),
    ]


def _local_folder(path: str) -> Path:
    root = local_root(path)
    if root is None:
        raise ConfigError(
            f"{path} is not a folder of this machine",
            operation="examine path",
            path=path,
            hint="doctor measures local and mounted folders: give one with --path",
        )
    return Path(root)


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
