"""The recipes of docs/checkpoints.md, run as they stand."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from penstock.checkpoint.tools import inspect, validate
from tests.cli.commands import Commands

from .conftest import count
from .queries import write_query, write_stateless
from .test_validate import edit, remove

if TYPE_CHECKING:
    from pyspark import SparkContext

DOC = Path(__file__).parents[3] / "docs/checkpoints.md"
RECIPES = dict(re.findall(r"^### (.*?)\n.*?^```sh\n(.*?)^```", DOC.read_text(), re.M | re.S))
STATELESS = {
    "A changed program is to be tried beside the one that runs": 13,
    "The query wrote wrong results since batch 8": 15,
    "A topic was recreated": 15,
    "A setting was changed with batch 8, and should not have been": 15,
}
"""Of sound queries without state; with the batch that runs next."""
DAMAGES: dict[str, Callable[[Path], object]] = {
    "A disk was full, and the newest entry of the offset log is torn": lambda q: (
        (q / "offsets/12").write_bytes(b""),
        (q / "commits/12").unlink(),
        (q / "commits/.12.crc").unlink(),
    ),
    "The newest commit is torn": lambda q: (q / "commits/12").write_bytes(b"v1\n{"),
    "A file was edited by hand, and fails its checksum": lambda q: (q / "offsets/12").write_text(
        (q / "offsets/12").read_text().replace("12000", "12001")
    ),
    "The metadata file is gone": lambda q: (q / "metadata").unlink(),
    "Leftovers of killed writers": lambda q: (q / "commits/.13.0b1e-2d3c.tmp").touch(),
}


STATEFUL: dict[str, tuple[Callable[[Path], object], int, list[str]]] = {
    "The newest entry of the offset log is torn, and its batch has its commit": (
        lambda q: (q / "offsets/12").write_bytes(b""),
        26,
        ["offsets/12"],
    ),
    "An entry was altered": (
        lambda q: (q / "offsets/12").write_text(
            (q / "offsets/12").read_text().replace("12000", "12001")
        ),
        26,
        ["offsets/12"],
    ),
    "A state version is missing": (lambda q: remove(q / "state/0/1/13.delta"), 24, []),
    "State must be thrown away": (
        lambda q: edit(q / "state/0/1/13.delta", lambda _: ""),
        15,
        ["state/0/1/13.delta"],
    ),
}
"""Of queries with state: the damage, the batch that runs next, and what `validate` warns of."""


def worst_paths(location: Path) -> list[str]:
    """Return the files of which more than a note is said."""
    return [each.path for each in validate(location).findings if each.severity != "note"]


def test_every_recipe_is_run_here() -> None:
    assert RECIPES.keys() == DAMAGES.keys() | STATELESS.keys() | STATEFUL.keys()


@pytest.mark.parametrize("recipe", STATELESS)
def test_a_recipe_for_a_query_without_state(tmp_path: Path, recipe: str) -> None:
    query = write_stateless(tmp_path / "words", batches=13)
    if "topic" in recipe:
        for entry in (query / "offsets").glob("[0-9]*"):
            lines = entry.read_text().split("\n")
            entry.write_text("\n".join([*lines[:2], '{"clicks":{"0":120,"1":30}}']))
            entry.with_name(f".{entry.name}.crc").unlink()
        shutil.rmtree(query / "sources")
    _follow(recipe, query)

    assert worst_paths(query) == []
    assert inspect(query).next.first == STATELESS[recipe]


def _follow(recipe: str, place: Path) -> None:
    """Do what a recipe says, for that location; penstock's commands within this process."""
    for line in RECIPES[recipe].replace("/data/words", str(place)).splitlines():
        if line.startswith("penstock "):
            Commands().succeed(*shlex.split(line)[1:])
        else:
            subprocess.run(["bash", "-e", "-c", line], check=True)


@pytest.mark.parametrize("recipe", DAMAGES)
def test_a_recipe_leaves_a_sound_location(tmp_path: Path, recipe: str) -> None:
    query = write_query(tmp_path / "words", batches=13)
    DAMAGES[recipe](query)
    assert validate(query).findings

    _follow(recipe, query)

    assert validate(query).findings == ()
    assert inspect(query).next.problem is None
    assert inspect(query).next.first in (12, 13)


@pytest.mark.parametrize("recipe", STATEFUL)
def test_a_recipe_for_a_query_with_state(tmp_path: Path, recipe: str) -> None:
    damage, following, left = STATEFUL[recipe]
    query = write_query(tmp_path / "words", batches=13, inputs=f"file://{tmp_path}/in")
    (tmp_path / "in").mkdir()
    for batch_id in range(13):
        (tmp_path / f"in/{batch_id}.json").touch()
    damage(query)
    assert validate(query).severity == "error"

    _follow(recipe, query)

    assert worst_paths(query) == left
    assert inspect(query).next.first == following
    assert inspect(query).next.problem is None


@pytest.mark.spark
def test_spark_goes_on_after_a_disk_was_full(
    sc: SparkContext, counted: Path, location: Path
) -> None:
    """It refuses the torn entry, and after the recipe does all that was left to do."""
    from pyspark.errors import StreamingQueryException
    from pyspark.sql import SparkSession

    session, inputs = SparkSession(sc), counted.parent / "in"
    (location / "offsets/4").write_bytes(b"")
    for name in ("commits/4", "commits/.4.crc", "commits/5", "offsets/5", "offsets/.5.crc"):
        (location / name).unlink()
    assert worst_paths(location) == ["offsets/4", "commits/.5.crc"]
    with pytest.raises(StreamingQueryException):  # it reads no torn entry
        count(session, inputs, location)

    recipe = RECIPES["A disk was full, and the newest entry of the offset log is torn"]
    for name in re.findall(r"/data/words/(\S+)", recipe):
        (location / name.replace("12", "4")).unlink(missing_ok=True)
    (location / "commits/.5.crc").unlink()
    assert inspect(location).next.first == 4
    count(session, inputs, location)

    assert worst_paths(location) == []
    (batch,) = inspect(location, batch_ids=[4]).batches
    assert (batch.committed, batch.offsets) == (True, {"0": {"logOffset": 4}})
