"""``penstock rate`` over checkpoint locations as programs leave them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from penstock.checkpoint import CheckpointLocation, OffsetSeq
from penstock.errors import ConfigError, LogFormatError
from penstock.journal import JournalStream, RecordFormat
from penstock.rate import (
    RATES_KEY,
    EndedBatch,
    KeptRates,
    PIDRateEstimator,
    RateDecision,
    RateOverride,
    RateOverrides,
    encode_rates,
)
from penstock.storage import open_storage
from tests.cli.commands import Commands

BATCHES = 30


_RATE = Commands("rate", columns=120)
run, succeed, fail = _RATE.run, _RATE.succeed, _RATE.fail


def ended(batch_id: int) -> EndedBatch:
    time_ms = 1_000_000 + 1000 * batch_id
    decision = RateDecision(time_ms, 850, 900, 3, 900.5, 900.5, f"target {batch_id}")
    return EndedBatch(batch_id, 900.25, decision)


@pytest.fixture
def location(tmp_path: Path) -> str:
    """A location of a program that planned 31 batches of one limited input; another has none."""
    folder = str(tmp_path / "checkpoint")
    with CheckpointLocation(folder) as place:
        for batch_id in range(BATCHES + 1):
            done = (ended(batch_id - 1),) if batch_id else ()
            conf = {RATES_KEY: encode_rates({"clicks": KeptRates(None, done)})}
            sources = ('{"clicks":{"r0-00000000":5}}', None)
            place.plan(batch_id, OffsetSeq(1_000_000 + batch_id, conf=conf, sources=sources))
            place.commit(batch_id)
    journal = open_storage(f"{folder}/journal")
    for name in ("clicks", "views"):
        JournalStream.create(journal, name, RecordFormat("string"))
    return folder


def query_location(tmp_path: Path, batch: EndedBatch) -> str:
    """Return a checkpoint location as a query leaves it after a batch."""
    folder = tmp_path / "checkpoint"
    with CheckpointLocation(str(folder)) as place:
        place.plan(0, OffsetSeq(1_000_000, sources=('{"clicks":{"r0-00000000":5}}',)))
        place.commit(0)
    (folder / "penstock").mkdir()
    kept = {"clicks": KeptRates(None, (batch,))}
    (folder / "penstock" / "rates.json").write_text(encode_rates(kept))
    return str(folder)


def overrides(location: str) -> RateOverrides:
    return RateOverrides(open_storage(location))


def test_the_last_batches_of_each_input_are_shown(location: str) -> None:
    shown = succeed("--checkpoint", location, "--last", "2")
    assert "target 28" in shown
    assert "target 29" in shown
    assert "target 27" not in shown
    assert "and 28 before" in shown
    assert "views (highest rate of the program's settings)\nno batch had a limit" in shown


def test_reasons_are_shown_without_their_terms(tmp_path: Path) -> None:
    estimator = PIDRateEstimator(1000)
    for number, took_ms in enumerate((500, 500, 900)):
        estimator.compute(1000 + 1000 * number, 1000, took_ms, 0)
    decision = replace(ended(0).decision, why=estimator.explain())
    location = query_location(tmp_path, EndedBatch(0, 900.25, decision))
    shown = Commands("rate", columns=80).succeed("--checkpoint", location)
    assert "target" in shown
    assert "latestRate" not in shown
    assert "latestRate = " in succeed("--checkpoint", location, "--json")


def test_json_has_every_batch(location: str) -> None:
    shown = json.loads(succeed("--checkpoint", location, "--stream", "clicks", "--json"))
    (clicks,) = shown["streams"]
    assert [batch["batch_id"] for batch in clicks["batches"]] == list(range(BATCHES))
    assert clicks["batches"][3]["decision"]["why"] == "target 3"
    assert clicks["override"] == {"max_rate": None, "paused": False}


def test_overrides_are_for_all_inputs_or_for_one(location: str) -> None:
    succeed("pause", "--checkpoint", location)
    succeed("set", "--checkpoint", location, "--stream", "views", "0.5")
    assert overrides(location).get("clicks") == RateOverride(paused=True)
    assert overrides(location).get("views") == RateOverride(0.5, paused=True)
    shown = succeed("--checkpoint", location)
    assert "clicks (paused; highest rate of the program's settings)" in shown
    assert "views (paused; highest rate overridden: 0.5 records/s)" in shown
    succeed("resume", "--checkpoint", location)
    assert overrides(location).get("clicks") == RateOverride()
    assert overrides(location).get("views") == RateOverride(0.5)
    succeed("set", "--checkpoint", location, "default")
    assert overrides(location).get("views") == RateOverride()


def test_before_the_first_batch_ends_that_is_said_and_overrides_are_kept(tmp_path: Path) -> None:
    folder = str(tmp_path / "checkpoint")
    with CheckpointLocation(folder) as place:
        assert "has not planned a batch yet" in str(fail("pause", "--checkpoint", folder))
        place.plan(0, OffsetSeq(1_000_000, sources=('{"clicks":{"r0-00000000":5}}',)))
        assert "no batch has ended yet" in succeed("--checkpoint", folder)
        succeed("pause", "--checkpoint", folder)
        place.commit(0)
    rates = Path(folder, "penstock", "rates.json")  # as a query keeps them
    rates.parent.mkdir()
    rates.write_text(encode_rates({"clicks": KeptRates(None, (ended(0),))}))
    shown = succeed("--checkpoint", folder)
    assert "clicks (paused" in shown
    assert "target 0" in shown


@pytest.mark.parametrize("rate", ["0", "nan", "inf", "fast"])
def test_a_rate_that_is_none_is_refused(location: str, rate: str) -> None:
    assert isinstance(fail("set", "--checkpoint", location, rate), ConfigError)
    assert overrides(location).get("clicks") == RateOverride()


def test_an_unknown_input_is_refused(location: str) -> None:
    error = fail("pause", "--checkpoint", location, "--stream", "other")
    assert error.hint == "name one of: clicks, views"


@pytest.mark.parametrize("command", [[], ["pause"], ["set", "5"]])
def test_what_is_no_checkpoint_location_is_refused_and_not_touched(
    tmp_path: Path, command: list[str]
) -> None:
    error = fail(*command, "--checkpoint", str(tmp_path / "nowhere"))
    assert "there is no folder" in str(error)
    error = fail(*command, "--checkpoint", str(tmp_path))
    assert "not a checkpoint location" in str(error)
    assert list(tmp_path.iterdir()) == []


def test_the_checkpoint_location_has_to_be_given() -> None:
    assert "--checkpoint" in run().output


def test_a_damaged_override_is_named(location: str) -> None:
    path = Path(location, "rate", "clicks.json")
    path.parent.mkdir()
    path.write_text("{")
    assert isinstance(fail("--checkpoint", location), LogFormatError)
    assert str(path) in str(fail("pause", "--checkpoint", location))


@pytest.mark.parametrize(
    ("inputs", "name"), [(["numbers"], "numbers"), (None, "0")], ids=["program", "query"]
)
def test_inputs_over_topics_have_one_name_whatever_their_topics(
    tmp_path: Path, inputs: list[str] | None, name: str
) -> None:
    """A program's is the one that it gives, a query's the place of its source."""
    folder = str(tmp_path / "checkpoint")
    conf = {} if inputs is None else {"spark.penstock.inputs": json.dumps(inputs)}
    with CheckpointLocation(folder) as place:
        place.plan(
            0,
            OffsetSeq(
                1_000,
                conf=conf,
                sources=('{"_a@Nq9fJm2pQ0aXbT1vW3yZ4A":{"0":5},"clicks":{"0":5}}',),
            ),
        )
    found = overrides(folder)
    succeed("pause", "--checkpoint", folder)
    assert found.get(name) == RateOverride(paused=True)
    succeed("resume", "--checkpoint", folder, "--stream", name)
    assert found.get(name) == RateOverride()
