"""A document's metadata as text: the form it is measured and stored in."""

import json
from collections.abc import Mapping

from services.common.text import Json

MAX_METADATA_BYTES = 64 * 1024
"""The most that an uploader may attach."""


def metadata_json(metadata: Mapping[str, Json]) -> str:
    """The metadata as compact JSON.

    Raises:
        ValueError: a number in it is not finite.
    """
    return json.dumps(metadata, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
