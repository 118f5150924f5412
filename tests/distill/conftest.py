from __future__ import annotations

import pytest

from tests.tiny import save_tiny_llama


@pytest.fixture(scope="package")
def tiny_folder(tmp_path_factory):
    """A randomly initialised two-layer Llama with one token per byte, and ChatML turns."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # what is this small is not faster on more, and far slower on a busy machine
    yield save_tiny_llama(tmp_path_factory.mktemp("tiny"))
    torch.set_num_threads(threads)
