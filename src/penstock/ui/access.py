"""Who may ask the dashboard, decided from the headers of a request alone. Pure.

What is guarded against:

- *Other hosts.* Without a token the dashboard binds to loopback only. With one, everything but the
  sign-in page asks for it: as ``Authorization: Bearer``, or in the cookie that signing in sets. The
  cookie holds a digest, not the token.
- *DNS rebinding*: a page of a stranger's domain whose name was made to point here. Its requests
  carry that name as ``Host``; only addresses, names of this machine and allowed names are answered.
- *Cross-site requests*: a page elsewhere that has the browser send a form here. What changes
  something needs an ``Origin`` that is this dashboard's own, and the cookie is sent same-site only.
- *Writing without a token*: without one nothing can be changed at all.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import re
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Verdict = Literal["allowed", "wrong_host", "wrong_origin", "no_token", "read_only"]
_LOCAL = ("localhost",)
_SAFE = ("GET", "HEAD")
_HOST = re.compile(r"(\[[^\[\]]+\]|[^:/?#@\[\]\s]+)(:[0-9]*)?")
"""Nothing after the port: what builds URLs of a Host would take it for their path."""


def _own_names() -> frozenset[str]:
    return frozenset({*_LOCAL, socket.gethostname().lower()})


@dataclass(frozen=True)
class Access:
    """The rules of one dashboard.

    Args:
        token: what requests must carry; None lets everyone read, and no one write.
        allowed_hosts: names under which it is reached, besides addresses and this machine's name:
            those of a proxy.
    """

    token: bytes | None = None
    allowed_hosts: tuple[str, ...] = ()
    own_names: frozenset[str] = field(default_factory=_own_names)

    @property
    def cookie(self) -> str:
        """The value of the cookie that stands for the token."""
        return hmac.new(self.token or b"", b"penstock dashboard", hashlib.sha256).hexdigest()

    def decide(self, method: str, headers: Mapping[str, str], cookie: str | None) -> Verdict:
        """Return whether a request may be answered; names of headers are in lower case."""
        host = headers.get("host", "")
        if not self._is_known(host):
            return "wrong_host"
        has_token = self._has_token(headers)
        if method not in _SAFE:
            if self.token is None:
                return "read_only"
            # A script that sends the token has no origin; a browser never does for others.
            origin = headers.get("origin")
            if not (_same_origin(origin, host) or (origin is None and has_token)):
                return "wrong_origin"
        return "allowed" if has_token or self._is_signed_in(cookie) else "no_token"

    def is_token(self, given: str) -> bool:
        """Whether a text is the token."""
        return self.token is not None and hmac.compare_digest(given.strip().encode(), self.token)

    def _has_token(self, headers: Mapping[str, str]) -> bool:
        given = headers.get("authorization", "")
        return given.startswith("Bearer ") and self.is_token(given.removeprefix("Bearer "))

    def _is_signed_in(self, cookie: str | None) -> bool:
        if self.token is None:
            return True
        return cookie is not None and hmac.compare_digest(cookie.encode(), self.cookie.encode())

    def _is_known(self, host: str) -> bool:
        found = _HOST.fullmatch(host)
        name = found[1].strip("[]").lower() if found else ""
        if name in self.own_names or name in self.allowed_hosts:
            return True
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return True


def _same_origin(origin: str | None, host: str) -> bool:
    """Whether an Origin is of this host and port, whichever of HTTP and HTTPS a proxy speaks."""
    return origin is not None and origin.lower() in (
        f"http://{host.lower()}",
        f"https://{host.lower()}",
    )
