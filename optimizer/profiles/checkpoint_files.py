"""Reads files in the folder of a config.json: formats of modules, and the exact size of the weights."""

import json
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from optimizer.errors import SpecError
from optimizer.profiles.config_keys import yaml_table
from optimizer.schema.files import json_value, read_text
from optimizer.schema.messages import json_type

FORMAT_FILES = tuple(yaml_table("quantisation.yaml")["files"])
"""Names of files that state formats of weights (ModelOpt, AWQ, GPTQ, AutoRound)."""
_INDEX = "model.safetensors.index.json"
_LONGEST_HEADER = 10**8


def side_files(folder: Path) -> dict[str, Mapping[str, Any]]:
    """Return the contents of the files in a folder that state formats of weights, by file name.

    Raises:
        SpecError: a file cannot be read.
    """
    result: dict[str, Mapping[str, Any]] = {}
    for name in FORMAT_FILES:
        if (folder / name).is_file():
            result[name] = json_object(folder / name)
    return result


def stored_bytes(folder: Path) -> float | None:
    """Return the size of all tensors in a folder [bytes]; None if neither an index nor all weights exist.

    Raises:
        SpecError: a file is damaged.
    """
    shards = sorted(folder.glob("*.safetensors"))
    if (folder / _INDEX).is_file():
        index = json_object(folder / _INDEX)
        metadata = index.get("metadata")
        total = metadata.get("total_size") if isinstance(metadata, Mapping) else None
        if isinstance(total, int | float) and not isinstance(total, bool) and total > 0:
            return float(total)
        weights = index.get("weight_map")
        named = set(weights.values()) if isinstance(weights, Mapping) else set()
        if not named or named - {shard.name for shard in shards}:
            return None
        shards = [shard for shard in shards if shard.name in named]
    return float(sum(map(_tensor_bytes, shards))) if shards else None


def _tensor_bytes(file: Path) -> int:
    """Return the size of the tensors in a safetensors file [bytes], from its header."""
    try:
        with file.open("rb") as stream:
            (length,) = struct.unpack("<Q", stream.read(8))
            if length > _LONGEST_HEADER:
                raise SpecError(f"{file}: not a safetensors file: its header would have {length:,} bytes")
            header = json.loads(stream.read(length))
        return max(
            (entry["data_offsets"][1] for key, entry in header.items() if key != "__metadata__"), default=0
        )
    except (OSError, struct.error, ValueError, AttributeError, KeyError, TypeError, IndexError) as error:
        raise SpecError(f"{file}: not a safetensors file: {error}") from None


def json_object(file: Path) -> Mapping[str, Any]:
    """Read an object from a JSON file.

    Raises:
        SpecError: the file cannot be read, or is not an object.
    """
    value = json_value(read_text(file), str(file))
    if not isinstance(value, Mapping):
        raise SpecError(f"{file}: must be an object with keys, not {json_type(value)}")
    return value
