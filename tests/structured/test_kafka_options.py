"""The options of penstock-kafka, without a broker."""

from __future__ import annotations

import pickle
import re

import pytest

from penstock.errors import ConfigError
from penstock.structured.kafka.options import KafkaOptions, Times

BROKERS = {"kafka.bootstrap.servers": "b:9092"}


def parse(**given: str) -> KafkaOptions:
    return KafkaOptions.parse({**BROKERS, "subscribe": "clicks", **given})


def test_those_of_a_query() -> None:
    found = parse(subscribe="b, a")
    assert found.topics == ("a", "b")
    assert (found.starting, found.ending, found.on_data_loss) == (None, "latest", "fail")
    assert found.settings == {"bootstrap.servers": "b:9092"}
    assert found.group("0") is None
    # Spark hands names over in lower case.
    assert parse(startingoffsets="earliest").starting == "earliest"
    assert parse(startingOffsets='{"clicks": {"0": 5, "1": -2}}').starting == {
        "clicks": {0: 5, 1: -2}
    }
    assert parse(startingTimestamp="7", startingOffsets="latest").starting == Times(of_all=7)


def test_the_subscription() -> None:
    pattern = KafkaOptions.parse({**BROKERS, "subscribePattern": "logs-.*"})
    assert pattern.topics == re.compile("logs-.*")
    assigned = KafkaOptions.parse({**BROKERS, "assign": '{"clicks": [1, 0]}'})
    assert assigned.topics == ("clicks",)
    assert assigned.assigned == {"clicks": {0, 1}}


def test_the_group() -> None:
    assert parse(groupIdPrefix="shop").group("q-0") == "shop-q-0"
    assert parse(**{"kafka.group.id": "mine"}, groupIdPrefix="shop").group("q-0") == "mine"


def test_data_loss() -> None:
    assert parse(failOnDataLoss="false").on_data_loss == "earliest"
    assert parse(onDataLoss="latest", lossLog="/losses").on_data_loss == "latest"


PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"


def test_users_in_the_form_of_java() -> None:
    jaas = rf'{PLAIN} username="ann" password="tell \"nobody\"";'
    found = parse(**{"kafka.sasl.jaas.config": jaas, "kafka.sasl.mechanism": "PLAIN"})
    assert found.settings["sasl.username"] == "ann"
    assert found.settings["sasl.password"] == 'tell "nobody"'
    assert "nobody" not in repr(found)
    assert pickle.loads(pickle.dumps(found)).settings == found.settings


@pytest.mark.parametrize(
    ("options", "password"),
    [
        ("username='KEY' password='s3cret/+x=';", "s3cret/+x="),
        ("username=KEY password=s3cret;", "s3cret"),
        ("username=KEY password=s3cret ;", "s3cret"),
        ("username=KEY password=s3.c-r$t serviceName=kafka;", "s3.c-r$t"),
        ("""username='KEY' password='a"b';""", 'a"b'),
        (r"""username="KEY" password="a\"\101\n";""", 'a"A\n'),
        ('username="KEY" note="password=x" password="s3cret";', "s3cret"),
        ('username="KEY" // the user\n /* and\n */ password="s3cret";', "s3cret"),
        ('username="KEY" password="first" password="s3cret";', "s3cret"),
    ],
)
@pytest.mark.parametrize("package", ["org.apache.kafka.", "kafkashaded.org.apache.kafka."])
def test_jaas_texts_are_read_as_java_reads_them(options: str, password: str, package: str) -> None:
    jaas = f"{package}common.security.plain.PlainLoginModule required {options}"
    found = parse(**{"kafka.sasl.jaas.config": jaas}).settings
    assert (found["sasl.username"], found["sasl.password"]) == ("KEY", password)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f"{PLAIN} username=KEY password=tell+nobody;", "other characters than letters"),
        (f"{PLAIN} username=KEY password=7tellnobody;", "begin with a digit, need quotes"),
        (f"{PLAIN} username=KEY password=tell/nobody;", "a ';' at its end"),
        (f'{PLAIN} username=KEY password="tellnobody', "other characters than letters"),
        (f'{PLAIN} username=KEY password="tellnobody"', "a ';' at its end"),
        (f'{PLAIN} username=KEY password="tellnobody"; {PLAIN};', "a ';' at its end"),
        (f"{PLAIN} username=KEY password= ;", "a ';' at its end"),
        (f'{PLAIN} username=KEY password="tellnobody" tokenauth=true;', "delegation token"),
        ('username="KEY" password="tellnobody";', "does not begin with a login module"),
        ('a.OAuthBearerLoginModule required user="tellnobody";', "is not one of PlainLoginModule"),
    ],
)
def test_jaas_texts_that_java_refuses_are_refused(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as raised:
        parse(**{"kafka.sasl.jaas.config": text})
    assert "nobody" not in str(raised.value)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"startingOffset": "earliest"}, "has no option 'startingoffset'.*'startingOffsets'"),
        ({"maxOffsetPerTrigger": "5"}, "did you mean 'maxOffsetsPerTrigger'"),
        ({"startingOffsets": "begin"}, "startingOffsets is 'begin'.*earliest or latest or"),
        ({"startingOffsets": '{"clicks": {"0": -3}}'}, "startingOffsets is"),
        ({"startingOffsets": '{"clicks": {"0": 1.5}}'}, "startingOffsets is"),
        ({"endingOffsets": "earliest"}, "endingOffsets is 'earliest'"),
        ({"subscribe": ""}, "subscribe is ''"),
        ({"subscribe": "a b"}, "subscribe is 'a b'"),
        ({"assign": '{"clicks": [0]}'}, "subscribe, assign are all given"),
        ({"minPartitions": "0"}, "minPartitions is '0'"),
        ({"failOnDataLoss": "maybe"}, "failOnDataLoss is 'maybe'"),
        ({"onDataLoss": "earliest"}, "lossLog is missing"),
        ({"onDataLoss": "fail", "failOnDataLoss": "false"}, "give one"),
        ({"kafka.auto.offset.reset": "earliest"}, "give startingOffsets"),
        ({"kafka.value.deserializer": "x"}, "values are bytes"),
        ({"kafka.enable.auto.commit": "true"}, "the query's checkpoint says"),
        ({"kafka.sasl.jaas.config": f"{PLAIN} secret=tell-nobody;"}, "sasl.username"),
        ({"kafka.bootstrap.servers": ""}, "bootstrap.servers is missing"),
    ],
)
def test_what_is_refused(given: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message) as raised:
        parse(**given)
    assert "tell-nobody" not in str(raised.value)


def test_what_is_missing() -> None:
    with pytest.raises(ConfigError, match=r"no topics are given.*subscribePattern"):
        KafkaOptions.parse(BROKERS)
    with pytest.raises(ConfigError, match=r"option kafka\.bootstrap\.servers is missing"):
        KafkaOptions.parse({"subscribe": "clicks"})
    with pytest.raises(ConfigError, match="subscribePattern is '\\('"):
        KafkaOptions.parse({**BROKERS, "subscribePattern": "("})
