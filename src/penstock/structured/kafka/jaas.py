"""``sasl.jaas.config`` of Java's clients, as settings of librdkafka's. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping

from penstock.errors import ConfigError

_JAAS = "sasl.jaas.config"
_MODULE = re.compile(r"\s*[\w.]*\.(Plain|Scram)LoginModule\s+required\s+(.*?);?\s*", re.DOTALL)
_OPTION = re.compile(r"""(\w+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s"']+))""")


def without_jaas(settings: Mapping[str, str]) -> dict[str, str]:
    """Return settings with user and password in the place of ``sasl.jaas.config``.

    Raises:
        ConfigError: it is of another login module than PLAIN's and SCRAM's, or has no user.
    """
    found = dict(settings)
    text = found.pop(_JAAS, None)
    if text is None:
        return found
    module = _MODULE.fullmatch(text)
    options = {m[1]: m[3] or re.sub(r"\\(.)", r"\1", m[2]) for m in _OPTION.finditer(text)}
    if module is None or not {"username", "password"} <= options.keys():
        raise ConfigError(
            "kafka.sasl.jaas.config is not one of PlainLoginModule or ScramLoginModule with "
            "username and password",
            operation="read options",
            ids={"option": f"kafka.{_JAAS}"},
            hint="give librdkafka's settings instead: kafka.sasl.username and kafka.sasl.password, "
            "or kafka.sasl.password.file; for tokens (IAM, OAuth) kafka.sasl.mechanism=OAUTHBEARER "
            "and kafka.oauth_cb",
        )
    return {"sasl.username": options["username"], "sasl.password": options["password"], **found}
