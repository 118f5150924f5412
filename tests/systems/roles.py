"""An LM that plays each signature's role from a script of its own, over the small world of ``world``."""

from __future__ import annotations

import re

import dspy

from cirag_dspy import signatures
from tests.fakes import scripted_lm
from tests.systems.world import PASSAGES

ROLES = {
    name: signature
    for name, signature in vars(signatures).items()
    if isinstance(signature, type) and issubclass(signature, dspy.Signature)
}


class RoleLM:
    """Answers a call of signature X with the next reply of the list X; what it was asked is in ``calls``."""

    def __init__(self, **replies):
        self.replies = {name: iter(texts) for name, texts in replies.items()}
        self.calls: list[tuple[str, dict[str, str]]] = []

    @property
    def roles(self):
        return [role for role, _ in self.calls]

    def asked(self, role):
        """The fields of each prompt of one role."""
        return [fields for name, fields in self.calls if name == role]

    def __call__(self, messages):
        role, turns = read_prompt(messages)
        self.calls.append((role, turns[-1]))
        return next(self.replies[role])


def read_prompt(messages):
    """The role that a prompt is for, and the fields of each turn, those of its reply among them."""
    role = next(name for name, role in ROLES.items() if messages[0]["content"].startswith(role.instructions.strip()))
    names = "|".join([*ROLES[role].fields, "problem"])
    turns = []
    for message in messages[1:]:
        pieces = re.split(rf"^({names}):[ \n]?", message["content"], flags=re.M)
        fields = {name: text.strip() for name, text in zip(pieces[1::2], pieces[2::2], strict=True)}
        turns += [fields] if message["role"] == "user" else []
        turns[-1].update(fields)
    return role, turns


def run(program, question, **replies):
    """The prediction, and the LM that was asked."""
    roles = RoleLM(**replies)
    lm, _ = scripted_lm(roles)
    with dspy.context(lm=lm):
        return program(question=question), roles


def queries(prediction):
    return [hop.query for hop in prediction.hops]


def cited(prediction):
    return [(citation.title, citation.sentence) for citation in prediction.citations]


def lines(*names):
    """Passages as they stand in a prompt."""
    return [f"{name}: {PASSAGES[name].text}" for name in names]
