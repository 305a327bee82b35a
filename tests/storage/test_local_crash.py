"""Power cuts: after each system call, every state that the disk may be left in.

``violations`` runs a scenario on LocalStorage over recorded system calls, and for each prefix of
them restores each legal crash state and looks at it through the storage's public calls. The second
half plants known mistakes and expects to see them found: it is the test of this test.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from penstock.errors import AlreadyExistsError
from penstock.storage.local import LocalStorage
from tests.storage.crash_states import CrashState, RecordingSyscalls, crash_states

pytestmark = pytest.mark.slow

ROOT = "new/root"
A, B = b"content of A, " * 20, b"and B's, which is longer, " * 20
WHOLE = (A, B)


Contents = frozenset[bytes | None]
"""What may be found under a path; None stands for no file."""

NO_FILE: Contents = frozenset({None})


@dataclass
class Ledger:
    """A storage under test, and what it has promised after how many recorded calls."""

    storage: LocalStorage
    syscalls: RecordingSyscalls
    promises: list[tuple[int, str, Contents]] = field(default_factory=list)
    """From so many calls on, the path holds one of these."""

    def create(self, path: str, content: bytes, *, overwrite: bool = False) -> None:
        before = self.promised().get(path, NO_FILE)
        if overwrite or before == NO_FILE:
            self.promise(path, *before, content)
        try:
            self.storage.create(path, content, overwrite=overwrite)
        except AlreadyExistsError:
            return
        self.promise(path, content)

    def delete(self, path: str) -> None:
        self.promise(path, *self.promised()[path], None)
        self.storage.delete(path)
        self.promise(path, None)

    def promise(self, path: str, *contents: bytes | None) -> None:
        self.promises.append((len(self.syscalls.steps), path, frozenset(contents)))

    def promised(self, calls: int | None = None) -> dict[str, Contents]:
        """Return what holds after ``calls`` calls, by default after all so far."""
        return {
            path: contents
            for count, path, contents in self.promises
            if calls is None or count <= calls
        }


def violations(
    base: Path,
    scenario: Callable[[Ledger], None],
    syscalls: type[RecordingSyscalls] = RecordingSyscalls,
) -> list[str]:
    """Return what is wrong with the crash states of ``scenario``; empty when they are sound."""
    live = base / "live"
    live.mkdir()
    recorder = syscalls(live)
    ledger = Ledger(LocalStorage(live / ROOT, syscalls=recorder), recorder)
    scenario(ledger)
    found = []
    checked = set()
    for calls in range(len(recorder.steps) + 1):
        promised = ledger.promised(calls)
        for state in crash_states(recorder.steps[:calls]):
            facts = (state, tuple(promised.items()))
            if facts not in checked:
                checked.add(facts)
                last = [step.call for step in recorder.steps[:calls]][-4:]
                crashed = base / f"crash{len(checked)}"
                found += [f"after {last}: {what}" for what in look(crashed, state, promised)]
    assert len(checked) > 10, "the scenario left hardly any states to look at"
    return found


def look(base: Path, state: CrashState, promised: dict[str, Contents]) -> list[str]:
    """Return what is wrong in one crash state."""
    base.mkdir()
    state.restore(base)
    storage = LocalStorage.attach(str(base / ROOT))
    found = []
    for path, contents in promised.items():
        folder, _, name = path.rpartition("/")
        listed = name in {entry.name for entry in storage.list(folder)}
        content = storage.read(path) if listed else None
        if content not in contents:
            what = (
                "is missing"
                if content is None
                else "is the wrong one"
                if content in WHOLE
                else "is torn"
            )
            found.append(f"{path} {what}")
    return found


def create_two(ledger: Ledger) -> None:
    ledger.create("folder/a", A)
    ledger.create("folder/b", B)


def create_twice(ledger: Ledger) -> None:
    ledger.create("folder/a", A)
    ledger.create("folder/a", B)


def replace(ledger: Ledger) -> None:
    ledger.create("folder/a", A, overwrite=True)
    ledger.create("folder/a", B, overwrite=True)


def delete_in_order(ledger: Ledger) -> None:
    ledger.create("one/a", A)
    ledger.create("two/b", B)
    ledger.delete("one/a")
    ledger.delete("two/b")
    ledger.create("one/a", B)


class Killed(BaseException):
    """Stands for a kill of the creating process."""


def list_after_kill(ledger: Ledger) -> None:
    """A creator dies between link and fsync of the folder; another process lists."""
    link = ledger.syscalls.link

    def link_and_die(source: str, target: str) -> None:
        link(source, target)
        raise Killed

    ledger.create("folder/old", B)
    ledger.promise("folder/a", None, A)
    ledger.syscalls.link = link_and_die  # type: ignore[method-assign]
    with pytest.raises(Killed):
        ledger.storage.create("folder/a", A)
    ledger.syscalls.link = link  # type: ignore[method-assign]
    assert [entry.name for entry in ledger.storage.list("folder")] == ["a", "old"]
    ledger.promise("folder/a", A)


def create_beside_killed_maker(ledger: Ledger) -> None:
    """A process dies right after mkdir; another one publishes in the folder that it finds."""
    ledger.syscalls.mkdir(os.path.join(ledger.storage._root, "folder"))
    ledger.create("folder/a", A)


def delete_after_kill(ledger: Ledger) -> None:
    """A process dies between unlink and fsync; another one repeats the delete."""
    ledger.create("folder/a", A)
    ledger.promise("folder/a", A, None)
    ledger.syscalls.unlink(os.path.join(ledger.storage._root, "folder", "a"))
    ledger.delete("folder/a")


SCENARIOS = [
    create_two,
    create_twice,
    replace,
    delete_in_order,
    list_after_kill,
    create_beside_killed_maker,
    delete_after_kill,
]


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_no_crash_breaks_a_promise(tmp_path: Path, scenario: Callable[[Ledger], None]) -> None:
    assert violations(tmp_path, scenario) == []


def test_recovery_from_each_crash_can_create_again(tmp_path: Path) -> None:
    live = tmp_path / "live"
    live.mkdir()
    recorder = RecordingSyscalls(live)
    LocalStorage(live, syscalls=recorder).create("folder/a", A)
    states = {
        state
        for calls in range(len(recorder.steps) + 1)
        for state in crash_states(recorder.steps[:calls])
    }

    for number, state in enumerate(states):
        base = tmp_path / str(number)
        base.mkdir()
        state.restore(base)
        storage = LocalStorage(base)
        with suppress(AlreadyExistsError):
            storage.create("folder/a", A)
        assert storage.read("folder/a") == A
    assert len(states) > 5


class NoFolderSync(RecordingSyscalls):
    def fsync(self, fd: int) -> None:
        if not self.is_folder(fd):
            super().fsync(fd)


class NoSyncAfterScan(RecordingSyscalls):
    """Lists names that a power cut may still take away."""

    scanned = False

    def scan(self, path: str) -> list[os.DirEntry[str]]:
        self.scanned = True
        return super().scan(path)

    def fsync(self, fd: int) -> None:
        if not self.scanned:
            super().fsync(fd)


class NoFileSync(RecordingSyscalls):
    def fsync(self, fd: int) -> None:
        if self.is_folder(fd):
            super().fsync(fd)


class RenameOver(RecordingSyscalls):
    """Publishes by a rename, which replaces, instead of by a link, which refuses to."""

    def link(self, source: str, target: str) -> None:
        self.replace(source, target)

    def unlink(self, path: str) -> None:
        if os.path.exists(path):
            super().unlink(path)


class NoSyncOfParents(RecordingSyscalls):
    """Syncs the folder of the new file, but not the folders above it."""

    def fsync(self, fd: int) -> None:
        if not self.is_folder(fd) or self._relative(self._opened[fd]).endswith("folder"):
            super().fsync(fd)


class SyncAfterLink(RecordingSyscalls):
    """Gives the file its name before its content is safe."""

    def fsync(self, fd: int) -> None:
        if self.is_folder(fd):
            super().fsync(fd)

    def unlink(self, path: str) -> None:
        fd = self.open(path, os.O_RDONLY)
        RecordingSyscalls.fsync(self, fd)
        self.close(fd)
        super().unlink(path)


@pytest.mark.parametrize(
    ("mistake", "scenario", "symptom"),
    [
        (NoFolderSync, create_two, "is missing"),
        (NoFolderSync, replace, "is the wrong one"),
        (NoFolderSync, delete_after_kill, "is the wrong one"),
        (NoFolderSync, list_after_kill, "is missing"),
        (NoSyncAfterScan, list_after_kill, "is missing"),
        (NoFileSync, create_two, "is torn"),
        (NoFileSync, replace, "is torn"),
        (RenameOver, create_twice, "is the wrong one"),
        (NoSyncOfParents, create_two, "is missing"),
        (NoSyncOfParents, create_beside_killed_maker, "is missing"),
        (SyncAfterLink, create_two, "is torn"),
    ],
)
def test_planted_mistakes_are_found(
    tmp_path: Path,
    mistake: type[RecordingSyscalls],
    scenario: Callable[[Ledger], None],
    symptom: str,
) -> None:
    assert any(symptom in what for what in violations(tmp_path, scenario, mistake))


def test_the_model_knows_lost_torn_and_kept_data(tmp_path: Path) -> None:
    syscalls = RecordingSyscalls(tmp_path)
    fd = syscalls.open(str(tmp_path / "file"), os.O_WRONLY | os.O_CREAT)
    syscalls.write(fd, memoryview(b"abcd"))
    unsynced = set(crash_states(syscalls.steps))
    syscalls.fsync(fd)
    synced = set(crash_states(syscalls.steps))
    syscalls.close(fd)

    contents = [b"", b"ab", b"\0\0\0\0", b"abcd"]
    lost = CrashState((), ())
    assert unsynced == {lost, *(CrashState((("file", data),), ()) for data in contents)}
    assert synced == {lost, CrashState((("file", b"abcd"),), ())}


def test_the_model_takes_a_rename_as_one_change(tmp_path: Path) -> None:
    syscalls = RecordingSyscalls(tmp_path)
    for name in ("old", "new"):
        syscalls.close(syscalls.open(str(tmp_path / name), os.O_WRONLY | os.O_CREAT))
    folder = syscalls.open(str(tmp_path), os.O_RDONLY)
    syscalls.fsync(folder)
    syscalls.close(folder)
    syscalls.replace(str(tmp_path / "new"), str(tmp_path / "old"))

    names = {tuple(name for name, _ in state.files) for state in crash_states(syscalls.steps)}
    assert names == {("new", "old"), ("old",)}
