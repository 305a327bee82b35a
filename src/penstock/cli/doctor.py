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
from penstock.cli.machine import Finding
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
    """Say what this machine lacks for penstock; exit status 1 when something needed is missing."""
    findings = _examine(_local_folder(path or tempfile.gettempdir()), master)
    passed = all(finding.ok for finding in findings if finding.needed)
    if as_json:
        typer.echo(json.dumps({"ok": passed, "findings": [asdict(each) for each in findings]}))
    else:
        _print_report(findings)
    if not passed:
        raise typer.Exit(1)


def _examine(folder: Path, master: str | None) -> list[Finding]:
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


def _print_report(findings: Sequence[Finding]) -> None:
    # What is found holds brackets ("local[2]"), which are not markup.
    console = Console(markup=False, highlight=False)
    table = Table()
    for title in ("", "check", "found", "wanted"):
        table.add_column(title, overflow="fold")
    for finding in findings:
        table.add_row(_status(finding), finding.name, finding.found, finding.wanted)
    console.print(table)
    for finding in findings:
        if not finding.ok:
            console.print(f"{finding.name}: {finding.hint}", soft_wrap=True)


def _status(finding: Finding) -> str:
    if finding.ok:
        return "ok"
    return "MISSING" if finding.needed else "warning"
