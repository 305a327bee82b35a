"""``sasl.jaas.config`` of Java's clients, as settings of librdkafka's. Pure.

    org.apache.kafka.common.security.plain.PlainLoginModule required username="KEY" password='a"b';

It is read as Java's client reads it (``JaasConfig``, by ``StreamTokenizer``): words begin with a
letter, ``_`` or ``$`` and go on with digits, ``.`` and ``-`` as well; everything else stands within
double or single quotes, where a backslash escapes; ``/`` begins a comment. What Java refuses or has
another meaning for is an error.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from penstock.errors import ConfigError

_JAAS = "sasl.jaas.config"
_TOKEN = re.compile(
    r"""(?P<space>[\x00-\x20]+|/\*.*?\*/|/[^\r\n]*)
    |(?P<word>[A-Za-z_$\xa0-\U0010ffff][\w.$\xa0-\U0010ffff-]*)
    |"(?P<double>(?:[^"\\\r\n]|\\[^\r\n])*)"|'(?P<single>(?:[^'\\\r\n]|\\[^\r\n])*)'
    |(?P<mark>[=;])""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPE = re.compile(r"\\([0-3]?[0-7]{1,2}|.)")
_ESCAPES = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_FLAGS = ("required", "requisite", "sufficient", "optional")
_MODULE = re.compile(r"(?:.*\.)?(?:Plain|Scram)LoginModule")


def without_jaas(settings: Mapping[str, str]) -> dict[str, str]:
    """Return settings with user and password in the place of ``sasl.jaas.config``.

    Raises:
        ConfigError: Java's client does not take it either, or it is of another login module than
            PLAIN's and SCRAM's.
    """
    found = dict(settings)
    text = found.pop(_JAAS, None)
    if text is None:
        return found
    options = _options(list(_tokens(text)))
    if not {"username", "password"} <= options.keys():
        raise _wrong("has no username or no password")
    if options.get("tokenauth", "").lower() == "true":
        raise _wrong("is of a delegation token, which librdkafka does not take")
    return {"sasl.username": options["username"], "sasl.password": options["password"], **found}


def _tokens(text: str) -> Iterator[tuple[str, str]]:
    """Yield each token: ``"text"`` and a word, or a mark and nothing."""
    at = 0
    while at < len(text):
        token = _TOKEN.match(text, at)
        if token is None:
            raise _wrong(
                f"cannot be read from character {at + 1} on: values with other characters than "
                "letters, digits, '.', '_', '-' and '$', or that begin with a digit, need quotes"
            )
        at = token.end()
        kind = token.lastgroup
        if kind == "mark":
            yield token["mark"], ""
        elif kind != "space":
            quoted = token["double"] if kind == "double" else token["single"]
            yield "text", token["word"] if kind == "word" else _ESCAPE.sub(_escaped, quoted)


def _escaped(match: re.Match[str]) -> str:
    code = match[1]
    return chr(int(code, 8)) if code[0] in "01234567" else _ESCAPES.get(code, code)


def _options(tokens: list[tuple[str, str]]) -> dict[str, str]:
    """Return the options of the only login module."""
    kinds, texts = [kind for kind, _ in tokens], [text for _, text in tokens]
    if kinds[:2] != ["text", "text"] or texts[1].lower() not in _FLAGS:
        raise _wrong("does not begin with a login module and 'required'")
    if not _MODULE.fullmatch(texts[0]):
        raise _wrong("is not one of PlainLoginModule or ScramLoginModule")
    pairs, rest = divmod(len(tokens) - 3, 3)
    if rest or kinds[2:] != ["text", "=", "text"] * pairs + [";"]:
        raise _wrong("is not a login module with options (name=value) and a ';' at its end")
    return dict(zip(texts[2:-1:3], texts[4::3], strict=True))


def _wrong(what: str) -> ConfigError:
    return ConfigError(
        f"kafka.sasl.jaas.config {what}",
        operation="read options",
        ids={"option": f"kafka.{_JAAS}"},
        hint="give username and password, in quotes, of a PlainLoginModule or ScramLoginModule; or "
        "librdkafka's settings: kafka.sasl.username and kafka.sasl.password, or "
        "kafka.sasl.password.file; for tokens (IAM, OAuth) kafka.sasl.mechanism=OAUTHBEARER and "
        "kafka.oauth_cb",
    )
