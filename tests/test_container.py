"""The container file builds, and what it makes receives, drains, and goes on from its volume.

Needs buildah, and root for its chroot isolation, which works where containers themselves cannot
run. Where the base image cannot be pulled, debootstrap makes one of Debian's Python.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.free_port import free_port
from tests.ingest_process import records
from tests.waiting import WAIT_S, eventually

REPOSITORY = Path(__file__).parent.parent
CONTAINERFILE = REPOSITORY / "deploy" / "Containerfile"
USER = 10001
CERTIFICATES = "/etc/ssl/certs/ca-certificates.crt"

pytestmark = [
    pytest.mark.soak,
    pytest.mark.skipif(shutil.which("buildah") is None, reason="buildah is not installed"),
    pytest.mark.skipif(os.geteuid() != 0, reason="chroot isolation needs root"),
]


class Buildah:
    """Runs buildah on images of its own, in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._command = ["buildah", "--root", f"{folder}/root", "--runroot", f"{folder}/run"]
        self._environment = {
            **os.environ,
            "BUILDAH_ISOLATION": "chroot",
            "STORAGE_DRIVER": "vfs",
        }

    def start(self, *arguments: str, log: Path) -> subprocess.Popen[bytes]:
        with log.open("w") as output:
            return subprocess.Popen(
                [*self._command, *arguments],
                env=self._environment,
                cwd=REPOSITORY,
                stdout=output,
                stderr=output,
            )

    def tries(self, *arguments: str) -> bool:
        return self.start(*arguments, log=self.folder / "log").wait() == 0

    def __call__(self, *arguments: str) -> str:
        assert self.tries(*arguments), self.log()
        return self.log().split()[-1]

    def log(self) -> str:
        return (self.folder / "log").read_text()


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Buildah, str]]:
    buildah = Buildah(tmp_path_factory.mktemp("containers"))
    base = CONTAINERFILE.read_text().partition("\nFROM ")[2].split()[0]
    if not buildah.tries("pull", base):
        base = debian_with_python(buildah)
    volume = f"{CERTIFICATES}:{CERTIFICATES}:ro"
    file = ["-f", str(CONTAINERFILE), "--format", "docker", "--volume", volume]
    buildah("build", "--from", base, "--network", "host", *file, "-t", "ingest", ".")
    assert "ignored" not in buildah.log(), "HEALTHCHECK is, in images of OCI's format"
    yield buildah, "ingest"
    buildah("rm", "--all")
    shutil.rmtree(buildah.folder)


def debian_with_python(buildah: Buildah) -> str:
    if shutil.which("debootstrap") is None:
        pytest.skip("the base image cannot be pulled, and debootstrap is not installed")
    root = buildah.folder / "debian"
    subprocess.run(
        [
            "debootstrap",
            "--variant=minbase",
            "--include=python3,python3-pip,ca-certificates",
            "bookworm",
            root,
        ],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    for marker in root.glob("usr/lib/python3*/EXTERNALLY-MANAGED"):
        marker.unlink()
    (root / "usr/bin/python").symlink_to("python3")
    container = buildah("from", "scratch")
    buildah("copy", container, str(root), "/")
    buildah("commit", container, "base")
    return "base"


@contextmanager
def running(image: tuple[Buildah, str], volume: Path, port: int) -> Iterator[Path]:
    """Receive into the volume while the block runs; then drain."""
    buildah, name = image
    container = buildah("from", name)
    log = buildah.folder / "ingest.log"
    arguments = ["http", "--port", str(port), "--journal", "/data/journal", "--stream", "s"]
    mounted = ["--network", "host", "--volume", f"{volume}:/data", container]
    process = buildah.start("run", *mounted, "--", "penstock", "ingest", *arguments, log=log)
    assert eventually(lambda: " receives: " in log.read_text()), log.read_text()
    try:
        yield log
    finally:
        os.kill(pid_of_the_container(), signal.SIGTERM)
        assert process.wait(WAIT_S) == 0, log.read_text()


def pid_of_the_container() -> int:
    """Return the process that runs as the container's user, beside the one that waits for it."""
    (found,) = [
        int(each.name)
        for each in Path("/proc").iterdir()
        if each.name.isdigit() and each.stat().st_uid == USER
        if not (each / "cmdline").read_bytes().startswith(b"buildah")
    ]
    return found


def post(port: int, line: bytes) -> int:
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/", line, {"Content-Type": "text/plain"}
    )
    with urllib.request.urlopen(request, timeout=WAIT_S) as response:
        return int(response.status)


def test_the_image_receives_as_its_user_drains_and_goes_on(
    image: tuple[Buildah, str], tmp_path: Path
) -> None:
    volume = tmp_path / "volume"
    volume.mkdir()
    os.chown(volume, USER, USER)
    port = free_port()
    for line in (b"one", b"two"):
        with running(image, volume, port):
            assert post(port, line) == 200
    assert records(volume / "journal") == ["one", "two"]
    assert {path.stat().st_uid for path in volume.rglob("*")} == {USER}
