"""Draws the pictures of docs/tour.md, in one style: `python docs/pictures/draw.py`.

Each picture has its own background and follows the reader's dark or light mode by itself, so that
it can be read in the site, in the README and alone. Lengths are in the picture's units, about
pixels.
"""

from __future__ import annotations

from html import escape
from pathlib import Path

FOLDER = Path(__file__).parent
WIDTH = 800

STYLE = (FOLDER / "style.css").read_text(encoding="utf-8")


class Picture:
    """An SVG that grows by boxes, arrows and lines of text."""

    def __init__(self, title: str, told: str, height: int) -> None:
        self.title, self.told, self.height = title, told, height
        self.parts: list[str] = []
        self.text(24, 34, title, "title")

    def box(
        self, x: int, y: int, w: int, h: int, name: str, *lines: str, kind: str = "box"
    ) -> None:
        """Draw a box with a name, and lines below it."""
        self.parts.append(f'<rect class="{kind}" x="{x}" y="{y}" width="{w}" height="{h}" rx="7"/>')
        first = y + h / 2 + 5 - 9 * len(lines)
        self.text(x + w / 2, first, name, "name", anchor="middle")
        for number, line in enumerate(lines, start=1):
            self.text(x + w / 2, first + 18 * number, line, "small", anchor="middle")

    def file(self, x: int, y: int, w: int, name: str, kind: str = "durable") -> None:
        """Draw a file: a flat box with its name in it."""
        self.parts.append(f'<rect class="{kind}" x="{x}" y="{y}" width="{w}" height="30" rx="4"/>')
        self.text(x + w / 2, y + 20, name, "code", anchor="middle")

    def arrow(self, *points: tuple[int, int], kind: str = "line") -> None:
        """Draw a line through points, with a tip at the last one."""
        (x0, y0), (x1, y1) = points[-2], points[-1]
        dx, dy = (x1 > x0) - (x1 < x0), (y1 > y0) - (y1 < y0)
        path = " ".join(f"{x},{y}" for x, y in [*points[:-1], (x1 - 6 * dx, y1 - 6 * dy)])
        corners = [
            (x1, y1),
            (x1 - 9 * dx - 5 * dy, y1 - 9 * dy - 5 * dx),
            (x1 - 9 * dx + 5 * dy, y1 - 9 * dy + 5 * dx),
        ]
        tip = " ".join(f"{x},{y}" for x, y in corners)
        filled = "tip" if kind == "line" else "stoptip"
        self.parts.append(f'<polyline class="{kind}" points="{path}"/>')
        self.parts.append(f'<polygon class="{filled}" points="{tip}"/>')

    def text(
        self, x: float, y: float, line: str, kind: str = "small", anchor: str = "start"
    ) -> None:
        """Write a line of text; ``x`` is its beginning, or its middle."""
        place = f'x="{x:g}" y="{y:g}" text-anchor="{anchor}"'
        self.parts.append(f'<text class="{kind}" {place}>{escape(line, quote=False)}</text>')

    def svg(self) -> str:
        """Return the whole file."""
        size = f'viewBox="0 0 {WIDTH} {self.height}" width="{WIDTH}" height="{self.height}"'
        told = f'role="img" aria-label="{escape(self.told)}"'
        inner = f'x="1" y="1" width="{WIDTH - 2}" height="{self.height - 2}" rx="10"'
        parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" {size} {told}>',
            f"<style>\n{STYLE}</style>",
            f'<rect class="back" {inner}/>',
            *self.parts,
            "</svg>\n",
        ]
        return "\n".join(parts)


def record() -> Picture:
    """How a record travels from its source to the sink."""
    told = (
        "A record becomes durable in a block before it is acked; batches read ranges of the journal"
    )
    p = Picture("How a record travels", told, 400)
    p.box(24, 70, 140, 64, "source", "an HTTP client")
    p.box(278, 70, 150, 64, "receiver", "penstock ingest,", "or a Spark task")
    p.box(
        566, 58, 210, 88, "block", "records + source position", "Parquet, fsynced", kind="durable"
    )
    p.arrow((164, 90), (278, 90))
    p.text(221, 82, "1  sends", "step", anchor="middle")
    p.arrow((278, 116), (164, 116))
    p.text(221, 134, "3  200, stored", "step", anchor="middle")
    p.arrow((428, 102), (566, 102))
    p.text(497, 94, "2  publishes", "step", anchor="middle")
    p.text(671, 168, "the journal: a folder or a bucket", anchor="middle")
    p.box(24, 232, 160, 72, "driver", "plans a batch in", "each interval")
    p.file(252, 210, 130, "offsets/7")
    p.file(252, 296, 130, "commits/7")
    p.arrow((184, 248), (218, 248), (218, 225), (252, 225))
    p.text(317, 202, "4  plan", "step", anchor="middle")
    p.box(440, 232, 150, 72, "batch 7", "Spark jobs over", "a range of records")
    p.arrow((382, 225), (411, 225), (411, 254), (440, 254))
    p.arrow((671, 176), (671, 254), (590, 254))
    p.text(684, 222, "5  reads", "step")
    p.arrow((440, 284), (411, 284), (411, 311), (382, 311))
    p.text(317, 346, "7  done", "step", anchor="middle")
    p.box(640, 274, 136, 44, "sink: batch=7")
    p.arrow((590, 290), (640, 290))
    p.text(615, 336, "6  writes", "step", anchor="middle")
    p.text(24, 380, "Green is durable. When every reader has committed a block, it is deleted.")
    return p


def name() -> Picture:
    """How an exclusive create of a name decides between two processes."""
    told = (
        "A successor creates the next file first; the process that was asleep finds the name taken"
    )
    p = Picture("Who owns a name", told, 412)
    p.text(
        24,
        62,
        "If several processes create a file of one name, exactly one succeeds: the name is a lock.",
    )
    p.text(24, 80, "No lease can expire, and no clock has to be right.")
    p.box(24, 104, 182, 62, "receiver, attempt 2", "frozen, wakes up later", kind="dead")
    p.box(24, 216, 182, 62, "receiver, attempt 3", "its successor")
    p.text(262, 116, "r0-00000002/", "code")
    p.file(262, 124, 120, "…000.parquet")
    p.file(396, 124, 120, "…120.parquet")
    p.file(530, 124, 150, "…250 = seal")
    p.arrow((206, 250), (605, 250), (605, 154))
    p.text(226, 242, "1  creates the next name of attempt 2: the seal", "step")
    p.arrow((110, 104), (110, 96), (605, 96), (605, 124), kind="stop")
    p.text(700, 112, "3  taken:", "red")
    p.text(700, 130, "it stores and", "red")
    p.text(700, 148, "acks nothing", "red")
    p.text(262, 290, "r0-00000003/", "code")
    p.file(262, 298, 120, "…000.parquet")
    p.arrow((110, 278), (110, 313), (262, 313))
    p.text(396, 318, "2  continues after the source's last durable position", "step")
    p.text(
        24,
        366,
        "Two drivers are kept apart in the same way: who creates offsets/8 has planned batch 8.",
    )
    p.text(24, 388, "The other one finds the name taken, and ends before it runs a job.")
    return p


def crash() -> Picture:
    """What a restart does, by the moment of the kill."""
    told = "Whatever is killed: what was acked is processed, and batches run again as they were"
    p = Picture("What happens at a crash", told, 330)
    steps = [
        ("received", "box"),
        ("block stored", "durable"),
        ("ack sent", "box"),
        ("offsets/7", "durable"),
        ("jobs end", "box"),
        ("commits/7", "durable"),
    ]
    for number, (step, kind) in enumerate(steps):
        p.box(24 + 128 * number, 64, 112, 44, step, kind=kind)
        if number:
            p.arrow((8 + 128 * number, 86), (24 + 128 * number, 86))
    after = [
        ("kill -9 here:", "it was never", "acked. The source", "sends it again."),
        (
            "kill -9 here:",
            "stored, not acked.",
            "Sent again; with a",
            "key or a position",
            "it is stored once.",
        ),
        (
            "kill -9 here:",
            "it waits in the",
            "journal. The next",
            "start plans it into",
            "batch 7.",
        ),
        (
            "kill -9 here:",
            "batch 7 runs again:",
            "same id, same",
            "records. A sink that",
            "replaces by id has",
            "each record once.",
        ),
        ("kill -9 here:", "the same: it was", "not committed, so", "it runs once more."),
    ]
    for number, lines in enumerate(after):
        x = 144 + 128 * number
        p.arrow((x, 150), (x, 92), kind="stop")
        for row, line in enumerate(lines):
            p.text(x, 168 + 18 * row, line, "small red" if row == 0 else "small", anchor="middle")
    p.text(
        24,
        310,
        "After commits/7, batch 7 never runs again, and the next start begins with batch 8.",
    )
    return p


PICTURES = {"record": record, "name": name, "crash": crash}


def main() -> None:
    """Write all pictures beside this file."""
    for title, draw in PICTURES.items():
        (FOLDER / f"{title}.svg").write_text(draw().svg(), encoding="utf-8")


if __name__ == "__main__":
    main()
