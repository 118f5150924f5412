import pytest

from cirag_dspy.corpus.index import CorpusIndex
from tests.corpus.fakes import FakeEncoder


@pytest.fixture
def encoder():
    return FakeEncoder()


@pytest.fixture
def index(tmp_path, encoder):
    with CorpusIndex.create(tmp_path / "index", encoder) as index:
        yield index
