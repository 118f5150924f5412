"""What an index folder says about itself: format, embedder, extractor, counts, corpus hash."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from cirag_dspy.corpus.embedder import Encoder
from cirag_dspy.errors import CorpusIndexError
from cirag_dspy.files import read_text, write_json

FORMAT = 1
NAME = "manifest.json"


def files_of(embedder: Encoder) -> dict[str, str]:
    """Hashes of the files of an embedder's model, where it tells them."""
    return dict(embedder.files()) if hasattr(embedder, "files") else {}


@dataclass
class Manifest:
    """The content of ``manifest.json``.

    ``counts`` and ``corpus_hash`` are those of the last flush; the store knows the present ones.
    """

    embedder: dict[str, Any]
    extractor: str | None = None
    counts: dict[str, int] = field(default_factory=dict)
    corpus_hash: str = ""
    format: int = FORMAT
    version: str = ""

    @classmethod
    def of(cls, embedder: Encoder) -> Manifest:
        """A new manifest for an embedder, which is loaded for it."""
        return cls(
            {
                "name": embedder.name,
                "dimension": embedder.dimension,
                "query_prompt": embedder.query_prompt,
                "passage_prompt": embedder.passage_prompt,
                "fingerprint": [float(value) for value in embedder.fingerprint()],
                **({"files": files} if (files := files_of(embedder)) else {}),
            }
        )

    @classmethod
    def read(cls, folder: Path) -> Manifest:
        """The manifest of a folder.

        Raises:
            CorpusIndexError: If there is none, it is damaged, or it is of another format.
        """
        path = folder / NAME
        rebuild = f"cirag-dspy index CORPUS --out {folder}"
        if not path.is_file():
            raise CorpusIndexError(f"no index at {folder} (it has no {NAME}): build one with {rebuild}")
        try:
            data = json.loads(read_text(path))
            if data["format"] != FORMAT:
                raise CorpusIndexError(
                    f"index {folder} has format {data['format']}, this version reads {FORMAT}: delete the folder and "
                    f"build it again: {rebuild}"
                )
            manifest = cls(**data)
            said = manifest.embedder
            texts = [said["name"], said["query_prompt"], said["passage_prompt"]]
            if not all(isinstance(text, str) for text in texts) or sum(said["fingerprint"]) is None:
                raise ValueError("embedder")
            if not all(isinstance(found, str) for found in dict(said.get("files", {})).values()):
                raise ValueError("files")
            int(said["dimension"])
        except (ValueError, KeyError, TypeError) as error:
            raise CorpusIndexError(
                f"index {folder}: {NAME} is damaged: delete the folder and rebuild it with {rebuild}"
            ) from error
        return manifest

    def write(self, folder: Path) -> None:
        """Write ``manifest.json`` atomically.

        Raises:
            CorpusIndexError: It can't be written.
        """
        try:
            self.version = version("cirag-dspy")
        except PackageNotFoundError:
            self.version = "unknown"
        try:
            write_json(folder / NAME, asdict(self))
        except OSError as error:
            raise CorpusIndexError(f"{folder / NAME} can't be written: {error.strerror}: free some room") from error

    def check_name(self, embedder: Encoder, folder: Path) -> None:
        """Refuse an embedder of another name or other prompts.

        Raises:
            CorpusIndexError: With both sides and the command that rebuilds.
        """
        for key in ("name", "query_prompt", "passage_prompt"):
            if self.embedder[key] != getattr(embedder, key):
                self._refuse(embedder, folder, key.replace("_", " "), self.embedder[key], getattr(embedder, key))

    def check_vectors(self, embedder: Encoder, folder: Path) -> None:
        """Refuse an embedder whose vectors are of another dimension or another model; loads it.

        The fingerprint is compared within a tenth of a typical component: devices and precisions differ by less, models
        by more. It is a sample, so the files of the model are compared too, as far as both sides have them.

        Raises:
            CorpusIndexError: With both sides and the command that rebuilds.
        """
        dimension = self.embedder["dimension"]
        if dimension != embedder.dimension:
            self._refuse(embedder, folder, "dimension", dimension, embedder.dimension)
        own, theirs = self.embedder["fingerprint"], list(embedder.fingerprint())
        tolerance = 0.1 / dimension**0.5
        near = len(own) == len(theirs) and all(abs(a - b) <= tolerance for a, b in zip(own, theirs, strict=True))
        if not near:
            self._refuse(embedder, folder, "fingerprint", own[:3], theirs[:3])
        known, files = self.embedder.get("files"), files_of(embedder)
        if known is None and files:
            self.embedder["files"] = files  # built by a version that did not note them; written with the next change
        known = known or {}
        for name in sorted(known.keys() & files.keys()):
            if known[name] != files[name]:
                self._refuse(embedder, folder, f"{name} with hash", known[name][:12], files[name][:12])

    def _refuse(self, embedder: Encoder, folder: Path, what: str, own: object, theirs: object) -> None:
        raise CorpusIndexError(
            f"index {folder} was built with embedder {self.embedder['name']} ({what} {own!r}), not with "
            f"{embedder.name} ({what} {theirs!r}): open it with the former, or delete the folder and rebuild it: "
            f"cirag-dspy index CORPUS --out {folder} --embedder {embedder.name}"
        )
