"""Tokens for the listener of the test's broker that takes unsigned ones (OAUTHBEARER)."""

from __future__ import annotations

import base64
import json
import time
from typing import Any

__all__ = ["GIVEN", "once", "refuse", "short", "token"]

GIVEN: list[float] = []
"""When tokens were made in this process."""

_LASTS_S = 300.0


def token(config: str, lasts_s: float = _LASTS_S) -> tuple[str, float]:
    """Return a token and when it ends, as confluent-kafka's ``oauth_cb`` does."""
    now = time.time()
    GIVEN.append(now)
    claims = {"sub": "ann", "iat": now, "exp": now + lasts_s}
    return f"{_encoded({'alg': 'none'})}.{_encoded(claims)}.", now + lasts_s


def short(config: str) -> tuple[str, float]:
    """Return a token that has to be fetched again after some seconds."""
    return token(config, 8.0)


def once(config: str) -> tuple[str, float]:
    """Return a token that has to be fetched again after some seconds, and fail from then on."""
    if GIVEN:
        raise RuntimeError("away for a moment")
    return token(config, 10.0)


def refuse(config: str) -> tuple[str, float]:
    """Fail, as without credentials."""
    raise RuntimeError("no credentials on this host")


def _encoded(value: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")
