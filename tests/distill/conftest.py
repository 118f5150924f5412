from __future__ import annotations

import pytest

from tests.tiny import save_tiny_llama


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory):
    """A randomly initialised two-layer Llama with one token per byte, and ChatML turns."""
    return save_tiny_llama(tmp_path_factory.mktemp("tiny"))
