"""Every public name of pyspark.streaming is here, with its parameters; or it is said why not."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

import pyspark.streaming
import pytest

import penstock.streaming

DIFFERENCES = {
    "StreamingContext(jssc=)": "not available: no JVM StreamingContext exists",
    "DStream(jdstream, ssc, jrdd_deserializer)": (
        "not available: no JVM DStream exists; "
        "streams come from a context's methods and from other streams"
    ),
    "StreamingListener.Java": "not available: no JVM listener exists",
    "StreamingListener.onBatchStarted(batchSubmitted)": "the parameter is called `batchStarted`",
}
"""What is missing or otherwise on purpose; docs/migrating.md has the same table."""

NOT_THERE_YET = {"DStream.updateStateByKey"}
PAGE = Path(__file__).parents[2] / "docs" / "migrating.md"

Parameter = tuple[str, Any, Any]


def parameters(function: Any) -> list[Parameter]:
    return [(p.name, p.default, p.kind) for p in inspect.signature(function).parameters.values()]


def public_members() -> list[str]:
    return [
        f"{name}.{member}"
        for name in pyspark.streaming.__all__
        for member in dir(getattr(pyspark.streaming, name))
        if not member.startswith("_")
    ]


@pytest.mark.parametrize("name", pyspark.streaming.__all__)
def test_every_class_is_here(name: str) -> None:
    assert name in penstock.streaming.__all__


@pytest.mark.parametrize("path", public_members())
def test_same_member(path: str) -> None:
    if path in DIFFERENCES:
        return
    owner, member = path.split(".")
    ours = getattr(penstock.streaming, owner)
    if path in NOT_THERE_YET and not hasattr(ours, member):
        pytest.skip(f"{path} is not there yet")
    mine, theirs = getattr(ours, member), getattr(getattr(pyspark.streaming, owner), member)
    assert callable(mine) == callable(theirs)
    if not callable(theirs):
        assert type(mine) is type(theirs)
        return
    expected = parameters(theirs)
    renamed = [key for key in DIFFERENCES if key.startswith(f"{path}(")]
    if renamed:  # other names, same places
        expected = [(p[0], *e[1:]) for p, e in zip(parameters(mine), expected, strict=False)]
    assert parameters(mine)[: len(expected)] == expected
    added = parameters(mine)[len(expected) :]
    assert all(default is not inspect.Parameter.empty for _, default, _ in added)


def test_constructor_of_a_context() -> None:
    expected = parameters(pyspark.streaming.StreamingContext)
    assert expected.pop()[0] == "jssc"
    assert parameters(penstock.streaming.StreamingContext)[:2] == expected


def test_every_difference_is_one_still_and_is_told_to_users() -> None:
    told = dict(re.findall(r"^\| `([^`]+)` \| (.+) \|$", PAGE.read_text(), re.MULTILINE))
    assert {name: told.get(name) for name in DIFFERENCES} == DIFFERENCES
    listener = penstock.streaming.StreamingListener
    assert not hasattr(listener, "Java")
    assert parameters(listener.onBatchStarted)[1][0] == "batchStarted"
