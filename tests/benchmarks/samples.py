"""Rows of our own making, in the layouts that benchmarks are published in."""

import json

ALPHA = ["Alpha Hall is a museum in Nordhafen.", " It was designed by Mira Olt."]
BETA = ["Mira Olt (1901-1980) was an architect.", " She was born in Sund.", ""]
GAMMA = ["Gamma is a river."]
CONTEXT = [["Alpha Hall", ALPHA], ["Mira Olt", BETA], ["Gamma", GAMMA]]
FACTS = [["Alpha Hall", 1], ["Mira Olt", 1]]
EVIDENCES = [["Alpha Hall", "architect", "Mira Olt"], ["Mira Olt", "place of birth", "Sund"]]
QUESTION = "Where was the architect of Alpha Hall born?"

HOTPOT = {
    "_id": "h1",
    "question": QUESTION,
    "answer": "Sund",
    "type": "bridge",
    "level": "hard",
    "supporting_facts": FACTS,
    "context": CONTEXT,
}
WIKI = HOTPOT | {
    "_id": "w1",
    "type": "compositional",
    "evidences": EVIDENCES,
    "answer_id": "Q3",
    "evidences_id": [["Q1", "architect", "Q2"], ["Q2", "place of birth", "Q3"]],
}
MUSIQUE = {
    "id": "2hop__1_2",
    "question": QUESTION,
    "answer": "Sund",
    "answer_aliases": ["Sund Town", "Sund"],
    "answerable": True,
    "paragraphs": [
        {"idx": 0, "title": "Gamma", "paragraph_text": "Gamma is a river.", "is_supporting": False},
        {"idx": 1, "title": "Mira Olt", "paragraph_text": "Mira Olt was born in Sund.", "is_supporting": True},
        {"idx": 2, "title": "Alpha Hall", "paragraph_text": "Mira Olt designed Alpha Hall.", "is_supporting": True},
        {"idx": 3, "title": "Mira Olt", "paragraph_text": "Mira Olt died in Nordhafen.", "is_supporting": False},
    ],
    "question_decomposition": [
        {"id": 1, "question": "Alpha Hall >> architect", "answer": "Mira Olt", "paragraph_support_idx": 2},
        {"id": 2, "question": "#1 >> place of birth", "answer": "Sund", "paragraph_support_idx": 1},
    ],
}
NQ = {
    "question": "who designed alpha hall",
    "answers": ["Mira Olt", "Olt"],
    "passages": [{"title": "Alpha Hall", "text": "Mira Olt designed it."}],
}
BAMBOOGLE = {
    "question": QUESTION,
    "answer": "Sund",
    "sub_questions": ["Who designed Alpha Hall?", QUESTION],
    "sub_answers": [["Mira Olt", "Olt"], ["Sund"]],
}
TITLES = {
    "id": "t1",
    "type": "compositional",
    "question": QUESTION,
    "answer": "Sund",
    "evidences": EVIDENCES,
    "supporting_titles": ["Alpha Hall", "Mira Olt"],
}


def columns(rows, *names):
    """A table as the hub stores it: a list for each column."""
    return {name: [row[index] for row in rows] for index, name in enumerate(names)}


HUB_HOTPOT = {
    **{key: HOTPOT[key] for key in ("question", "answer", "type", "level")},
    "id": "h1",
    "supporting_facts": columns(FACTS, "title", "sent_id"),
    "context": columns(CONTEXT, "title", "sentences"),
}
HUB_WIKI = HUB_HOTPOT | {
    "supporting_facts": columns(FACTS, "title", "sent_id"),
    "context": columns(CONTEXT, "title", "content"),
    "evidences": columns(EVIDENCES, "fact", "relation", "entity"),
}
STRING_WIKI = WIKI | {
    key: json.dumps(WIKI[key]) for key in ("context", "supporting_facts", "evidences", "evidences_id")
}


def write(path, rows):
    """Write rows as the file's suffix says."""
    lines = [json.dumps(row, ensure_ascii=False) for row in rows]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n" if path.suffix == ".jsonl" else f"[{','.join(lines)}]", encoding="utf-8")
    return path
