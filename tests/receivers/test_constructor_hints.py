"""What a wrong bound or argument is answered with: the setting or the argument to change."""

from __future__ import annotations

import pytest

from penstock.errors import ConfigError
from penstock.receivers import HttpReceiver
from penstock.receivers.task import receiver_bounds


def test_a_bound_that_is_too_small_names_the_setting_and_the_least() -> None:
    with pytest.raises(ConfigError, match=r"give 64m or more \(spark.penstock.journal.maxBytes"):
        receiver_bounds(60 << 20, None)
    with pytest.raises(ConfigError, match=r"give 1 or more \(spark.penstock.journal.maxLag"):
        receiver_bounds(None, 0)


def test_a_port_in_place_of_the_host_is_named() -> None:
    with pytest.raises(ConfigError, match="port=18495"):
        HttpReceiver(18495)  # type: ignore[arg-type]
