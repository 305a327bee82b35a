"""A real Kafka broker for tests: one node in KRaft mode, on loopback, that can be killed."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import trustme
from confluent_kafka import KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec
from confluent_kafka.cimpl import NewPartitions, NewTopic
from cryptography.hazmat.primitives import serialization

from tests.free_port import free_port
from tests.waiting import WAIT_S, eventually

LIBRARIES = next(
    (done.parent for done in sorted(Path(__file__).parents[2].glob(".tools/kafka/*/complete"))),
    None,
)
_PROPERTIES = """
process.roles={roles}
node.id={node}
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},SECURE://127.0.0.1:{secure},TOKENS://127.0.0.1:{tokens}{own}
advertised.listeners=PLAINTEXT://127.0.0.1:{port},SECURE://127.0.0.1:{secure},TOKENS://127.0.0.1:{tokens}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,SECURE:SASL_SSL,TOKENS:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT
controller.listener.names=CONTROLLER
sasl.enabled.mechanisms=SCRAM-SHA-256
listener.name.secure.scram-sha-256.sasl.jaas.config=\
 org.apache.kafka.common.security.scram.ScramLoginModule required;
listener.name.tokens.sasl.enabled.mechanisms=OAUTHBEARER
listener.name.tokens.oauthbearer.connections.max.reauth.ms=3600000
listener.name.tokens.oauthbearer.sasl.jaas.config=\
 org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required\
 unsecuredLoginStringClaim_sub="broker";
ssl.keystore.type=PEM
ssl.keystore.location={folder}/keystore.pem
log.dirs={logs}
num.partitions=1
offsets.topic.num.partitions=1
offsets.topic.replication.factor=1
transaction.state.log.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
group.initial.rebalance.delay.ms=0
group.min.session.timeout.ms=500
group.consumer.min.session.timeout.ms=500
group.consumer.session.timeout.ms=1500
group.consumer.min.heartbeat.interval.ms=100
group.consumer.heartbeat.interval.ms=300
log.retention.ms=-1
log.cleaner.backoff.ms=200
auto.create.topics.enable=false
"""
_IS_KILLED = """
broker.session.timeout.ms=3000
broker.heartbeat.interval.ms=300
"""
_QUEUED = 50_000
"""Less than librdkafka's queue holds."""
_JAVA = ["-Xmx384m", "-Xshare:auto", "-XX:+UseSerialGC"]
USER, PASSWORD = "ann", "tell-nobody-7"


class Broker:
    """One broker, with a folder for its logs; a second one ``joins`` the first.

    One that ``is_killed`` is back after 3 s: until the session of a broker that was killed is over,
    9 s by default, the next one is refused. A test is skipped where there are no libraries of one.
    """

    def __init__(
        self, folder: Path, joins: Broker | None = None, *, is_killed: bool = False
    ) -> None:
        if LIBRARIES is None:
            pytest.skip("NOT PROVED: there are no libraries of a Kafka broker (scripts/kafka.sh)")
        self.folder = folder
        self.address = f"127.0.0.1:{free_port()}"
        self._java = ["java", *_JAVA, "-cp", f"{LIBRARIES}/*"]
        self._process: subprocess.Popen[bytes] | None = None
        # A broker that comes back is found at once: a client would wait for up to 10 s.
        self._admin = AdminClient({**self.conf, "log_level": 0, "reconnect.backoff.max.ms": 100})
        folder.mkdir(parents=True)
        port = self.address.partition(":")[2]
        secure, tokens = free_port(), free_port()
        self.cluster, self.controller = (
            (str(uuid.uuid4()), free_port()) if joins is None else (joins.cluster, joins.controller)
        )
        self.secure_address = f"127.0.0.1:{secure}"
        self._tokens_address = f"127.0.0.1:{tokens}"
        text = _PROPERTIES.format(
            roles="broker,controller" if joins is None else "broker",
            node=1 if joins is None else 2,
            own=f",CONTROLLER://127.0.0.1:{self.controller}" if joins is None else "",
            port=port,
            secure=secure,
            tokens=tokens,
            controller=self.controller,
            folder=folder,
            logs=folder / "logs",
        )
        (folder / "server.properties").write_text(text + (_IS_KILLED if is_killed else ""))
        _write_certificate(folder)
        scram = f"SCRAM-SHA-256=[name={USER},password={PASSWORD}]"
        tool = ["kafka.tools.StorageTool", "format", "-t", self.cluster, "-S", scram]
        self._run(*tool, "-c", self._config)

    @property
    def conf(self) -> dict[str, Any]:
        """What a client connects with."""
        return {"bootstrap.servers": self.address}

    @property
    def secure_conf(self) -> dict[str, Any]:
        """What a client connects with by TLS and SCRAM."""
        return {
            "bootstrap.servers": self.secure_address,
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(self.folder / "ca.pem"),
            "sasl.mechanism": "SCRAM-SHA-256",
            "sasl.username": USER,
            "sasl.password": PASSWORD,
        }

    @property
    def tokens_conf(self) -> dict[str, Any]:
        """What a client connects with by tokens (``tests.kafka.tokens``)."""
        return {
            "bootstrap.servers": self._tokens_address,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "OAUTHBEARER",
            "oauth_cb": "tests.kafka.tokens:token",
        }

    @contextmanager
    def running(self) -> Iterator[Broker]:
        """Run it for the length of a block, and delete what it wrote."""
        try:
            self.start()
            yield self
        finally:
            self.kill()
            shutil.rmtree(self.folder)

    def start(self) -> None:
        """Start it, and wait until it answers."""
        with (self.folder / "broker.log").open("ab") as log:
            self._process = subprocess.Popen(
                [*self._java, "kafka.Kafka", self._config],
                stdout=log,
                stderr=log,
                cwd=self.folder,
                start_new_session=True,
            )
        assert eventually(self._listens), self._log()
        assert self._answers(), self._log()

    def kill(self) -> None:
        """End it with SIGKILL."""
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()
            self._process = None

    def pause(self) -> None:
        """Stop it with SIGSTOP: it takes connections, and answers nothing."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)
        # Its threads go on for a moment, and may answer once more, until all have stopped.
        os.waitid(os.P_PID, self._process.pid, os.WSTOPPED)

    def resume(self) -> None:
        """End a pause."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    # -- what tests do with it --

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        replicas: list[list[int]] | None = None,
        **config: str,
    ) -> str:
        """Create a topic, and wait until it can be written; ``replicas`` begin with the leader."""
        settings = {k.replace("_", "."): v for k, v in config.items()}
        if replicas is None:
            new = NewTopic(name, partitions, 1, config=settings)
        else:
            new = NewTopic(name, len(replicas), replica_assignment=replicas, config=settings)
        self._admin.create_topics([new])[name].result(WAIT_S)
        self._wait_writable(name, len(replicas or range(partitions)))
        return name

    def delete_topic(self, name: str) -> None:
        """Delete a topic."""
        self._admin.delete_topics([name])[name].result(WAIT_S)

    def has_topic(self, name: str) -> bool:
        """Return whether a topic exists."""
        return name in self._admin.list_topics(timeout=WAIT_S).topics

    def _leads(self, places: list[TopicPartition]) -> bool:
        """Return whether the brokers have learned that they lead the partitions."""
        asked = self._admin.list_offsets(dict.fromkeys(places, OffsetSpec.latest()))
        try:
            return all(answer.result().offset >= 0 for answer in asked.values())
        except KafkaException:
            return False

    def produce(
        self, topic: str, values: Iterable[bytes | None], partition: int = 0, **more: Any
    ) -> None:
        """Write records, and wait until they are durable."""
        producer = Producer({**self.conf, "linger.ms": 5})
        for number, value in enumerate(values, start=1):
            producer.produce(topic, value=value, partition=partition, **more)
            if number % _QUEUED == 0:
                assert producer.flush(WAIT_S) == 0  # or a busy machine's queue gets full
        assert producer.flush(WAIT_S) == 0

    def delete_records(self, topic: str, before: int, partition: int = 0) -> None:
        """Delete the records of a partition before an offset, as retention does."""
        place = TopicPartition(topic, partition, before)
        self._admin.delete_records([place])[place].result(WAIT_S)

    def add_partitions(self, topic: str, total: int) -> None:
        """Give a topic more partitions, and wait until they can be written."""
        self._admin.create_partitions([NewPartitions(topic, total)])[topic].result(WAIT_S)
        self._wait_writable(topic, total)

    def _wait_writable(self, topic: str, partitions: int) -> None:
        places = [TopicPartition(topic, number) for number in range(partitions)]
        # To ask for the topics has the client forget who led which partitions.
        assert eventually(lambda: self.has_topic(topic) and self._leads(places))

    @property
    def _config(self) -> str:
        return str(self.folder / "server.properties")

    def _listens(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, self._log()
        host, port = self.address.split(":")
        with socket.socket() as probe:
            return probe.connect_ex((host, int(port))) == 0

    def _answers(self) -> bool:
        """Wait for its answer: it accepts connections before it is ready."""
        return bool(self._admin.list_topics(timeout=WAIT_S).brokers)

    def _log(self) -> str:
        return (self.folder / "broker.log").read_text()[-4000:]

    def _run(self, *command: str) -> None:
        environ = {k: v for k, v in os.environ.items() if k != "JAVA_TOOL_OPTIONS"}
        java = [*self._java, "-XX:TieredStopAtLevel=1"]
        subprocess.run([*java, *command], check=True, stdout=subprocess.DEVNULL, env=environ)


def _write_certificate(folder: Path) -> None:
    """Write a certificate of an authority of its own, in the form that Kafka takes (PKCS 8)."""
    authority = trustme.CA()
    issued = authority.issue_cert("127.0.0.1")
    authority.cert_pem.write_to_path(folder / "ca.pem")
    key = serialization.load_pem_private_key(issued.private_key_pem.bytes(), None)
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    chain = [each.bytes() for each in issued.cert_chain_pems]
    (folder / "keystore.pem").write_bytes(b"".join([private, *chain]))
