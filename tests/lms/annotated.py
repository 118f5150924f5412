"""Questions with the gold of each data set, over four invented passages, and their teacher."""

import dspy

from cirag_dspy.adapter import LineAdapter
from cirag_dspy.lms import load_lm
from cirag_dspy.schema import Passage

SONG = Passage.create("Harbor Song", ["Harbor Song is a 1950 film directed by Ada Brook.", "It was released in Mora."])
BROOK = Passage.create("Ada Brook", ["Ada Brook (3 May 1901 – 9 June 1980) was a director.", "She was born in Velden."])
LIGHT = Passage.create("Harbor Light (film)", ["Harbor Light is a 1961 film directed by Tom Hale."])
HALE = Passage.create("Tom Hale", ["Tom Hale (born 8 July 1920) is a painter."])
CORPUS = [SONG, BROOK, LIGHT, HALE]

WIKI = dspy.Example(
    question="Where was the director of film Harbor Song born?",
    answer="Velden",
    answers=["Velden"],
    type="compositional",
    evidences=[("Harbor Song", "director", "Ada Brook"), ("Ada Brook", "place of birth", "Velden")],
    gold_sentences=[(SONG.id, 0), (BROOK.id, 1)],
    gold_passages=[SONG.id, BROOK.id],
)
OLDER = dspy.Example(
    question="Which film has the director born first, Harbor Song or Harbor Light?",
    answer="Harbor Song",
    answers=["Harbor Song"],
    type="bridge_comparison",
    evidences=[
        ("Harbor Song", "director", "Ada Brook"),
        ("Harbor Light", "director", "Tom Hale"),
        ("Ada Brook", "date of birth", "3 May 1901"),
        ("Tom Hale", "date of birth", "8 July 1920"),
    ],
    gold_sentences=[(SONG.id, 0), (LIGHT.id, 0), (BROOK.id, 0), (HALE.id, 0)],
    gold_passages=[p.id for p in CORPUS],
)
MUSIQUE = dspy.Example(
    question="In which town was the maker of Harbor Song born?",
    answer="Velden",
    answers=["Velden"],
    decomposition=[
        {"question": "Harbor Song >> director", "answer": "Ada Brook", "passage_id": SONG.id},
        {"question": "In which town was #1 born?", "answer": "Velden", "passage_id": BROOK.id},
    ],
    gold_passages=[SONG.id, BROOK.id],
)
HOTPOT = dspy.Example(
    question="The director of Harbor Song was born in which town?",
    answer="Velden",
    answers=["Velden"],
    type="bridge",
    gold_sentences=[(SONG.id, 0), (BROOK.id, 1)],
    gold_passages=[SONG.id, BROOK.id],
)
YES = dspy.Example(
    question="Were Harbor Song and Harbor Light both directed by painters?",
    answer="no",
    answers=["no"],
    type="comparison",
    gold_sentences=[(SONG.id, 0), (LIGHT.id, 0)],
    gold_passages=[SONG.id, LIGHT.id],
)
ALL = [WIKI, OLDER, MUSIQUE, HOTPOT, YES]


def teach(examples, passages):
    """Calls a signature of a teacher of these examples."""
    lm = load_lm("annotations", examples=examples, passages=passages)

    def call(signature, **inputs):
        with dspy.context(lm=lm, adapter=LineAdapter()):
            return dspy.Predict(signature)(**inputs)

    return call
