"""What a StreamingContext is made with: a SparkContext, and nothing that only resembles one."""

from __future__ import annotations

import pytest

from penstock.errors import ConfigError
from penstock.streaming import StreamingContext


class ConnectSession:
    """Stands for a session of Spark Connect, which needs grpc to be imported."""


ConnectSession.__module__ = "pyspark.sql.connect.session"


def test_a_connect_session_is_refused_by_name() -> None:
    with pytest.raises(ConfigError, match=r"Spark Connect session.*SPARK_REMOTE unset"):
        StreamingContext(ConnectSession(), 1)  # type: ignore[arg-type]


def test_what_is_no_spark_context_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"this is a builtins.dict.*pass spark\.sparkContext"):
        StreamingContext({}, 1)  # type: ignore[arg-type]
