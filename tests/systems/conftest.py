"""An index of the invented world, without triples; word overlap stands for vectors."""

from __future__ import annotations

import pytest

from tests.systems.world import world_index


@pytest.fixture
def index(tmp_path):
    with world_index(tmp_path) as built:
        yield built
