"""Settings of the Spark that the tests share, for as long as a test needs them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from pyspark import SparkContext


@contextmanager
def spark_settings(sc: SparkContext, settings: Mapping[str, str]) -> Iterator[None]:
    """Have the context's configuration hold these settings for the block."""
    conf = sc._jsc.sc().conf()
    before = {name: conf.get(name) for name in settings if conf.contains(name)}
    for name, value in settings.items():
        conf.set(name, value)
    try:
        yield
    finally:
        for name in settings:
            if name in before:
                conf.set(name, before[name])
            else:
                conf.remove(name)


@contextmanager
def spark_silent(sc: SparkContext) -> Iterator[None]:
    """Have Spark log nothing for the block, where tasks are killed or fail on purpose."""
    sc.setLogLevel("OFF")
    try:
        yield
    finally:
        sc.setLogLevel("ERROR")
