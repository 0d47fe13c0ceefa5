"""Reads a model's `config.json`, as published with its weights: typed fields, and errors that name file and field."""

from __future__ import annotations

import json
import os
import reprlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentbatch.errors import UsageError

MAX_BYTES = 16 * 2**20
"""A larger file is no model configuration."""

MOST = 2**31 - 1
"""A larger number is no size of a layer, and sizes made of it would no longer be numbers of bytes."""

SIZES = "or give the sizes yourself: --kv-bytes and --state-bytes (docs/plan.md says where a running server shows them)"


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """The fields of one model; those of its language model where the file nests them in `text_config`."""

    source: str
    """Where the fields come from, for complaints."""
    architecture: str
    """First of `architectures`: the class that SGLang loads."""
    fields: Mapping[str, Any]

    def has(self, name: str) -> bool:
        """Tell whether the field is there and not null."""
        return self.fields.get(name) is not None

    def integer(self, name: str, *, least: int = 1) -> int:
        """Return a whole number of at least `least` and at most `MOST`.

        Raises:
            UsageError: missing, or something else.
        """
        if not self.has(name):
            raise UsageError(
                f"{self.source} has no {name}, which {self.architecture} needs: take the file as published, {SIZES}"
            )
        value = self.fields[name]
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise UsageError(f"{self.source}: {name} must be a whole number of at least {least}, not {value!r}")
        if value > MOST:
            raise UsageError(f"{self.source}: {name} must be at most {MOST:,}, not {reprlib.repr(value)}")
        return value

    def integers(self, name: str) -> tuple[int, ...]:
        """Return a list of whole numbers.

        Raises:
            UsageError: missing, or something else.
        """
        value = self.fields.get(name)
        if not isinstance(value, list) or not all(isinstance(one, int) and not isinstance(one, bool) for one in value):
            raise UsageError(f"{self.source}: {name} must be a list of whole numbers, not {value!r}")
        return tuple(value)

    def inner(self, name: str) -> ModelConfig:
        """Return the fields of a nested object.

        Raises:
            UsageError: missing, or no object.
        """
        value = self.fields.get(name)
        if not isinstance(value, dict):
            raise UsageError(f"{self.source}: {name} must be an object, not {value!r}")
        return ModelConfig(f"{self.source}, {name}", self.architecture, value)


def read_config(path: str | os.PathLike[str]) -> ModelConfig:
    """Read a model's `config.json`.

    Raises:
        UsageError: the file does not read, is no JSON object, or names no architecture.
    """
    return parse_config(_load(Path(path)), source=os.fspath(path))


def parse_config(record: object, *, source: str = "config.json") -> ModelConfig:
    """Return the fields of a parsed `config.json`.

    Raises:
        UsageError: no JSON object, or it names no architecture.
    """
    if not isinstance(record, dict):
        raise UsageError(f"{source} must hold one JSON object, a model's config.json as published")
    names = record.get("architectures")
    if not (isinstance(names, list) and names and isinstance(names[0], str)):
        raise UsageError(f"{source} names no architecture: expected a model's config.json, with `architectures`")
    inner = record.get("text_config")
    fields = {**record, **inner} if isinstance(inner, dict) else record
    return ModelConfig(source, names[0], fields)


def _load(path: Path) -> object:
    try:
        if path.stat().st_size > MAX_BYTES:
            raise UsageError(f"{path} is larger than {MAX_BYTES // 2**20} MiB: this is no config.json of a model")
        return json.loads(path.read_bytes())
    except FileNotFoundError as error:
        raise UsageError(f"{path} does not exist: give the config.json that came with the model's weights") from error
    except IsADirectoryError as error:
        raise UsageError(f"{path} is a folder: name the config.json in it") from error
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path} is not valid JSON: {error}") from error
