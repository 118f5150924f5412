"""The files of an embedding model that its vectors depend on."""

from __future__ import annotations

import json
import re
from pathlib import Path

from cirag_dspy.content import content_hash

_SETTINGS = re.compile(
    r"modules\.json|config\.json|sentence_\w+_config\.json|config_sentence_transformers\.json|tokenizer(_config)?\.json|"
    r"special_tokens_map\.json|added_tokens\.json|vocab\.(json|txt)|merges\.txt|chat_template\.jinja|.*\.(model|py)"
)
_WEIGHTS = ("*.safetensors", "*.bin")  # a folder's first kind is the one that is loaded


def model_files(folder: Path) -> dict[str, str]:
    """SHA-256 by name of weights, configuration and tokenizer, those of the model's modules included, sorted.

    What else may lie in the folder, such as a model card or an export for other runtimes, is left out.
    """
    found: dict[str, str] = {}
    for part in _modules(folder):
        place = folder / part
        weights = next((files for kind in _WEIGHTS if (files := sorted(place.glob(kind)))), [])
        settings = sorted(place.iterdir()) if place.is_dir() else []
        for file in [*weights, *(file for file in settings if _SETTINGS.fullmatch(file.name))]:
            if file.is_file():
                found[file.relative_to(folder).as_posix()] = content_hash(file)
    return dict(sorted(found.items()))


def _modules(folder: Path) -> list[str]:
    """The folder itself and those of its modules, as ``modules.json`` names them."""
    try:
        listed = json.loads((folder / "modules.json").read_bytes())
        paths = [str(module["path"]) for module in listed]
    except (OSError, ValueError, KeyError, TypeError):
        paths = []
    inside = [path for path in paths if path and not Path(path).is_absolute() and ".." not in Path(path).parts]
    return list(dict.fromkeys(["", *inside]))
