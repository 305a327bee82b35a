"""The checks of ``penstock doctor`` on the location of journal and checkpoints.

All checks use a temporary folder there, which is removed afterwards.
"""

from __future__ import annotations

import os
import re
import statistics
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from penstock.cli.machine import CheckResult

__all__ = ["check_place", "check_shared", "find_master"]

_BULK_BYTES = 16 * 1024 * 1024
_BULK_WANTED_MB_PER_S = 50
_CREATE_ROUNDS = 5
_CREATE_WANTED_MS = 20

_NETWORK_FILE_SYSTEMS = frozenset(
    {"afs", "beegfs", "ceph", "cifs", "fuse.glusterfs", "gpfs", "lustre", "nfs", "nfs4", "smb3"}
)


def check_place(path: Path) -> list[CheckResult]:
    """Check penstock's file operations in a folder; for a missing folder, in its parent."""
    folder = _nearest_existing(path)
    try:
        with tempfile.TemporaryDirectory(prefix=".penstock-doctor-", dir=folder) as scratch:
            return [
                _writable(path, folder, None),
                _check_bulk_speed(Path(scratch)),
                *_check_create(Path(scratch)),
            ]
    except OSError as error:
        return [_writable(path, folder, error)]


def find_master(option: str | None, environ: Mapping[str, str]) -> str | None:
    """Return the master by option, SPARK_MASTER or spark-defaults.conf; None when none is named."""
    conf_folder = environ.get("SPARK_CONF_DIR")
    if conf_folder is None and "SPARK_HOME" in environ:
        conf_folder = str(Path(environ["SPARK_HOME"], "conf"))
    return option or environ.get("SPARK_MASTER") or _default_master(conf_folder)


def check_shared(path: Path, master: str | None) -> CheckResult:
    """Check that executors on other machines can see the path, as far as this machine can tell."""
    one_machine = master is None or master.startswith("local")
    file_system = _file_system_of(path)
    return CheckResult(
        name="shared path",
        ok=one_machine or file_system in _NETWORK_FILE_SYSTEMS,
        found=f"{path} on {file_system or 'an unknown file system'}, master {master or 'not set'}",
        wanted="a local master, or a path that every executor sees",
        hint="on a cluster keep journal and checkpoints on a network mount or in an object store",
        needed=False,
    )


def _writable(path: Path, folder: Path, error: OSError | None) -> CheckResult:
    return CheckResult(
        name="writable path",
        ok=error is None,
        found=str(path) if error is None else f"{error.strerror or error}: {folder}",
        wanted="a folder to write in",
        hint="name another folder with --path, or let this user write in this one",
    )


def _check_bulk_speed(scratch: Path) -> CheckResult:
    # Random, so that compression by the file system does not improve the result.
    data = os.urandom(_BULK_BYTES)
    started = time.perf_counter()
    _write_durably(scratch / "bulk", data)
    mb_per_s = len(data) / 1e6 / (time.perf_counter() - started)
    return CheckResult(
        name="write and fsync",
        ok=mb_per_s >= _BULK_WANTED_MB_PER_S,
        found=f"{mb_per_s:.0f} MB/s",
        wanted=f">={_BULK_WANTED_MB_PER_S} MB/s",
        hint="receivers cannot store more than this; choose a faster disk with --path",
        needed=False,
    )


def _check_create(scratch: Path) -> list[CheckResult]:
    try:
        times_ms = [_publish_ms(scratch, str(number)) for number in range(_CREATE_ROUNDS)]
    except OSError as error:
        return [_hard_links(error)]
    median_ms = statistics.median(times_ms)
    return [
        _hard_links(None),
        CheckResult(
            name="small durable file",
            ok=median_ms <= _CREATE_WANTED_MS,
            found=f"{median_ms:.1f} ms",
            wanted=f"<={_CREATE_WANTED_MS} ms",
            hint="every batch waits for two of these; choose a faster disk with --path",
            needed=False,
        ),
    ]


def _hard_links(error: OSError | None) -> CheckResult:
    return CheckResult(
        name="hard links",
        ok=error is None,
        found="yes" if error is None else f"no: {error.strerror or error}",
        wanted="yes: publishing must never replace a file",
        hint="choose a file system that has them (ext4, xfs, apfs, nfs), not vfat or a FUSE bucket",
    )


def _publish_ms(scratch: Path, name: str) -> float:
    """Publish a small file as the journal does, and return how long it took."""
    started = time.perf_counter()
    temporary = scratch / f".{name}.tmp"
    _write_durably(temporary, b"x" * 200)
    os.link(temporary, scratch / name)
    temporary.unlink()
    folder = os.open(scratch, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
    return (time.perf_counter() - started) * 1000


def _write_durably(path: Path, data: bytes) -> None:
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _nearest_existing(path: Path) -> Path:
    path = path.absolute()
    return next(folder for folder in [path, *path.parents] if folder.exists())


def _default_master(conf_folder: str | None) -> str | None:
    if conf_folder is None:
        return None
    try:
        text = Path(conf_folder, "spark-defaults.conf").read_text()
    except OSError:
        return None
    match = re.search(r"^\s*spark\.master[\s=:]+(\S+)", text, re.MULTILINE)
    return match[1] if match else None


def _file_system_of(path: Path) -> str | None:
    """Return the type of the file system under a path; None where mounts are not listed."""
    try:
        mounts = Path("/proc/self/mounts").read_text()
    except OSError:
        return None
    place = _nearest_existing(path).resolve()
    types = {}
    for line in mounts.splitlines():
        _, mount_point, file_system, *_ = line.split(" ")
        # Blanks are octal escapes; if mounts cover each other, the last one counts.
        types[Path(mount_point.encode().decode("unicode_escape"))] = file_system
    return next((types[folder] for folder in [place, *place.parents] if folder in types), None)
