"""A process that writes logs as programs and logrotate do, in random steps.

    python log_writer.py DIRECTORY SEED STEPS

renamed.log is rotated by renaming renamed.log.1 to .2 and so on, copied.log by copytruncate, and
dated-N.log is given up for dated-(N+1).log. Each line begins with the name of its log and a number,
without gaps. Prints the number of lines of each file at the end, as JSON.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import sys
import time
from pathlib import Path


class Log:
    """One log, written to with O_APPEND as loggers do."""

    def __init__(self, directory: Path, name: str, chance: random.Random) -> None:
        self.path = directory / name
        self.lines = 0
        self.name = name
        self._chance = chance
        self._open()

    def _open(self) -> None:
        self._descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def write_lines(self, count: int) -> None:
        for _ in range(count):
            line = f"{self.name} {self.lines} é {'x' * self._chance.randrange(200)}\n".encode()
            cut = self._chance.randrange(len(line) * 20)  # mostly beyond the end: one write
            os.write(self._descriptor, line[:cut])
            if cut < len(line):
                time.sleep(0.002)
                os.write(self._descriptor, line[cut:])
            self.lines += 1

    def close(self) -> None:
        os.close(self._descriptor)

    def rotate(self) -> None:
        raise NotImplementedError


class Renamed(Log):
    def rotate(self) -> None:
        def number(path: Path) -> int:
            return int(path.suffix[1:])

        for old in sorted(self.path.parent.glob(f"{self.path.name}.*"), key=number, reverse=True):
            old.rename(old.with_suffix(f".{number(old) + 1}"))
        self.path.rename(f"{self.path}.1")
        if self._chance.random() < 0.3:
            self.write_lines(3)  # a program that reopens its log late
        self.close()
        self._open()


class Copied(Log):
    rotations = 0

    def rotate(self) -> None:
        self.rotations += 1
        shutil.copyfile(self.path, f"{self.path}.{self.rotations}")
        os.ftruncate(self._descriptor, 0)


class Holed(Copied):
    """Of a program without O_APPEND: it writes on behind a hole as long as what was there."""

    def _open(self) -> None:
        self._descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT)


class Dated(Log):
    day = 0

    def rotate(self) -> None:
        self.day += 1
        self.close()
        self.path = self.path.with_name(f"dated-{self.day}.log")
        self._open()


class Linked(Log):
    """The log of the current release: a link is switched to the next one, or to an earlier one."""

    releases = 0

    def __init__(self, directory: Path, name: str, chance: random.Random) -> None:
        super().__init__(directory, name, chance)
        self.link = self.path
        self.path.unlink()
        self.rotate()

    def rotate(self) -> None:
        self.close()
        if self._chance.random() < 0.7:
            self.releases += 1
        release = self.releases - self._chance.choice([0, 0, 1, 2])
        self.path = self.link.with_name(f"release-{max(1, release)}.log")
        self._open()
        switched = self.link.with_name("next")
        switched.symlink_to(self.path)
        switched.replace(self.link)


def main(directory: str, seed: str, steps: str) -> None:
    chance = random.Random(int(seed))
    logs = [
        kind(Path(directory), name, chance)
        for kind, name in [(Renamed, "renamed.log"), (Copied, "copied.log"), (Dated, "dated-0.log")]
    ]
    for _ in range(int(steps)):
        log = chance.choice(logs)
        log.write_lines(chance.choice([1, 5, 100]))
        if chance.random() < 0.15:
            log.rotate()
        time.sleep(chance.uniform(0, 0.02))
    print(json.dumps({log.name: log.lines for log in logs}))


if __name__ == "__main__":
    main(*sys.argv[1:])
