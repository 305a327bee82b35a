"""A custom receiver, named on the command line."""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections.abc import Iterable
from typing import Any

from penstock.errors import ConfigError
from penstock.receivers import Receiver


def make_custom(name: str, arguments: Iterable[str]) -> Receiver:
    """Return ``package.module:Class`` made with ``name=value`` arguments.

    Modules are also searched in the working directory, as with ``python -m``.

    Raises:
        ConfigError: the class does not exist, is not a receiver, or does not accept the arguments.
    """
    kind = _find(name)
    values = dict(map(_argument, arguments))
    try:
        return kind(**values)
    except TypeError as e:
        raise _refused(f"{name} does not accept these arguments: {', '.join(values)}") from e


def _find(name: str) -> type[Receiver]:
    module_name, colon, class_name = name.partition(":")
    if not (module_name and colon and class_name):
        raise _refused(f"{name!r} names no class")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        found = getattr(importlib.import_module(module_name), class_name)
    except (ImportError, AttributeError) as e:
        raise _refused(f"{name!r} cannot be imported") from e
    if not (isinstance(found, type) and issubclass(found, Receiver)):
        raise _refused(f"{name!r} is not a subclass of penstock.receivers.Receiver")
    return found


def _argument(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not (equals and name.isidentifier()):
        raise _refused(f"argument {text!r} is not of the form name=value")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


def _refused(message: str) -> ConfigError:
    return ConfigError(
        message,
        operation="make receiver",
        hint="give package.module:Class, and --arg name=value for each argument of the class",
    )
