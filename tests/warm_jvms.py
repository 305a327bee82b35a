"""JVMs of Spark that drivers of tests take one after the other.

The JVM of a driver that is killed notices it, stops its SparkContext and ends, and the next driver
starts another one: seconds of a processor for classes and cold code. Here it stops its SparkContext
and stays, and the next driver takes it. Most tests kill drivers, the Python process that the
protocol runs in, and workers; those that kill the JVM as well have one of their own.

A driver asks this run for a JVM when it makes its SparkContext, and has it until it ends.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pyspark.core.context
from py4j.java_gateway import JavaGateway
from py4j.protocol import Py4JError
from pyspark import SparkConf
from pyspark.java_gateway import launch_gateway

from penstock.bounded_call import returns_in_time

_ADDRESS = "PENSTOCK_TESTS_JVMS"
_MOST = 2
"""A driver beside its successor."""
_STOPS_WITHIN_S = 30.0
_SOCKETS = "spark.python.unix.domain.socket."
_SPARKS_OPTIONS = ("--", "-Djava.net.", "-Dio.netty.", "-XX:+IgnoreUnrecognizedVMOptions")
"""What Spark adds to the options of each JVM, and so to the settings that a program restores."""


@contextmanager
def warm_jvms(folder: Path) -> Iterator[None]:
    """Lend JVMs to drivers for the length of a block."""
    jvms = _Jvms(folder)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(folder / "jvms"))
        listener.listen()
        os.environ[_ADDRESS] = str(folder / "jvms")
        threading.Thread(target=jvms.serve, args=(listener,), daemon=True).start()
        yield
        del os.environ[_ADDRESS]
        listener.shutdown(socket.SHUT_RDWR)
    jvms.close()


def take_warm_jvm() -> None:
    """Let this process's SparkContext take a JVM of the run's, if it can be one."""
    # It is for whom the process was started, not for what it starts.
    address = os.environ.pop(_ADDRESS, None)
    if address is not None:
        pyspark.core.context.launch_gateway = _Lease(address).launch  # type: ignore[attr-defined]


class _Lease:
    def __init__(self, address: str) -> None:
        self._address = address
        self._connection = socket.socket(socket.AF_UNIX)
        """Open as long as the process has the JVM."""

    def launch(self, conf: SparkConf | None = None) -> JavaGateway:
        settings = dict([] if conf is None else conf.getAll())
        if _needs_its_own(settings):
            return launch_gateway(conf)
        self._connection.connect(self._address)
        lent = json.loads(self._connection.recv(1 << 10))
        if not lent:
            return launch_gateway(conf)
        os.environ.update(lent)
        gateway = launch_gateway()
        for name in lent:  # to the program it is a JVM that it started itself
            del os.environ[name]
        for name, value in settings.items():  # as Spark's launcher does
            gateway.jvm.System.setProperty(name, value)
        return gateway


def _needs_its_own(settings: Mapping[str, str]) -> bool:
    """Whether a program says something that only a JVM's start applies."""
    options = settings.get("spark.driver.extraJavaOptions", "").split()
    is_of_a_start = "PYSPARK_SUBMIT_ARGS" in os.environ or "spark.driver.memory" in settings
    # Spark reads where sockets are once in the life of a JVM.
    has_sockets = any(
        name.startswith(_SOCKETS) and f"-D{name}={value}" not in os.environ["JAVA_TOOL_OPTIONS"]
        for name, value in settings.items()
    )
    is_usual = all(each.startswith(_SPARKS_OPTIONS) for each in options)
    return is_of_a_start or has_sockets or not is_usual


class _Jvm:
    def __init__(self, errors: Path) -> None:
        with errors.open("ab") as log:
            self._gateway = launch_gateway(
                popen_kwargs={"stdout": log, "stderr": log, "start_new_session": True}
            )
        self._settings = self._properties()

    def address(self) -> dict[str, str]:
        """Return the environment of a driver that is to use it."""
        parameters = self._gateway.gateway_parameters
        return {
            "PYSPARK_GATEWAY_PORT": str(parameters.port),
            "PYSPARK_GATEWAY_SECRET": parameters.auth_token,
        }

    def reset(self) -> bool:
        """Stop what the last driver ran; return whether the next one can have it."""
        with suppress(Py4JError, OSError):
            return returns_in_time(self._stop, _STOPS_WITHIN_S)
        return False

    def _stop(self) -> None:
        contexts: Any = getattr(self._gateway.jvm.org.apache.spark, "SparkContext$")
        companion = getattr(contexts, "MODULE$")
        begun = companion.getClass().getDeclaredField("contextBeingConstructed")
        begun.setAccessible(True)
        while begun.get(None).isDefined():  # its driver was killed meanwhile
            time.sleep(0.1)
        active = companion.getActive()
        if active.isDefined():
            active.get().stop()
        for name in self._properties().keys() - self._settings.keys():
            self._gateway.jvm.System.clearProperty(name)
        for name, value in self._settings.items():
            self._gateway.jvm.System.setProperty(name, value)

    def end(self) -> None:
        process: subprocess.Popen[bytes] = self._gateway.proc
        with suppress(Py4JError, OSError):
            self._gateway.close()
        assert process.stdin is not None
        process.stdin.close()
        process.kill()
        process.wait()

    def _properties(self) -> dict[str, str]:
        system: Any = self._gateway.jvm.System
        names = system.getProperties().stringPropertyNames()
        return {name: system.getProperty(name) for name in names if name.startswith("spark.")}


class _Jvms:
    def __init__(self, folder: Path) -> None:
        self._errors = folder / "jvms.txt"
        self._free: list[_Jvm] = []
        self._all: list[_Jvm] = []
        self._in_use = 0  # by drivers that live
        self._changed = threading.Condition()

    def serve(self, listener: socket.socket) -> None:
        with suppress(OSError):  # the end of the run
            while True:
                connection = listener.accept()[0]
                threading.Thread(target=self._lend, args=(connection,), daemon=True).start()

    def close(self) -> None:
        for jvm in self._all:
            jvm.end()

    def _lend(self, connection: socket.socket) -> None:
        jvm = self._take()
        with connection:
            connection.sendall(json.dumps({} if jvm is None else jvm.address()).encode())
            with suppress(ConnectionError):
                connection.recv(1)  # until the driver has ended
        if jvm is not None:
            self._take_back(jvm)

    def _take(self) -> _Jvm | None:
        with self._changed:
            if self._in_use == _MOST:
                return None
            self._in_use += 1
            # One that is stopped at present comes sooner than a new one.
            self._changed.wait_for(lambda: self._free or len(self._all) < self._in_use)
            if self._free:
                return self._free.pop()
            self._all.append(jvm := _Jvm(self._errors))
            return jvm

    def _take_back(self, jvm: _Jvm) -> None:
        with self._changed:
            self._in_use -= 1
        is_usable = jvm.reset()
        with self._changed:
            if is_usable:
                self._free.append(jvm)
            else:
                self._all.remove(jvm)
                jvm.end()
            self._changed.notify_all()
