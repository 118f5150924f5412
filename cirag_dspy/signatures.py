"""Every prompt of the package, one ``dspy.Signature`` each.

Fields are strings: LM output is parsed leniently by the modules, which keep what is good. A field with a default may be
missing from a reply. Wording is our own; the sections name the paper's figure that it stands for.
"""

from __future__ import annotations

import dspy

NO_QUERY = "none"
REFUSAL = "unanswerable"


class ExtractTriples(dspy.Signature):
    """List the named entities of the passage, then its facts as triples that use them. Each triple stands alone: names
    instead of pronouns, one fact a line, dates and numbers as written. Use only what the passage says.
    """

    # CIRAG appendix A.1, figures 9 and 10, as one call: the entities are written first and condition the triples.
    title: str = dspy.InputField()
    passage: str = dspy.InputField()
    entities: str = dspy.OutputField(desc="names, dates and numbers, separated by ;", default="")
    triples: str = dspy.OutputField(desc="head | relation | tail, one triple a line; none if there is no fact")


class FindEntities(dspy.Signature):
    """List the named entities of the passage: people, places, organisations, works, dates and numbers."""

    # CIRAG appendix A.1, figure 9.
    title: str = dspy.InputField()
    passage: str = dspy.InputField()
    entities: str = dspy.OutputField(desc="the entities as written, separated by ;")


class RelateEntities(dspy.Signature):
    """State the facts of the passage as triples, each with at least one of the entities. Each triple stands alone:
    names instead of pronouns, one fact a line, dates and numbers as written. Use only what the passage says.
    """

    # CIRAG appendix A.1, figure 10.
    title: str = dspy.InputField()
    passage: str = dspy.InputField()
    entities: str = dspy.InputField()
    triples: str = dspy.OutputField(desc="head | relation | tail, one triple a line; none if there is no fact")


class Integrate(dspy.Signature):
    """Gather the facts that answer the question, one search at a time. Of the numbered facts just found, keep those
    that lead to the answer, also when several lines of reasoning are open. Then ask for the most important fact still
    missing, by the names found so far, or for nothing if the facts kept answer the question.
    """

    # CIRAG equation 1 and appendix A.2, figure 11. The history is the conversation so far (equation 2).
    history: dspy.History = dspy.InputField()
    question: str = dspy.InputField(desc="the question to answer in the end")
    query: str = dspy.InputField(desc="what was searched for this time")
    facts: str = dspy.InputField(desc="numbered facts, head | relation | tail")
    thought: str = dspy.OutputField(desc="one or two sentences: what is known now, what is missing", default="")
    core: str = dspy.OutputField(desc="numbers of the facts to keep, such as 2, 5; none if none helps")
    next_query: str = dspy.OutputField(desc="a short search query; none if nothing is missing", default="")


class AnswerIfSufficient(dspy.Signature):
    """Answer the question from the evidence alone, in as few words as possible: a name, a date, a number, yes or no. If
    the evidence is not enough to answer, reply unanswerable.
    """

    # CIRAG equation 5 and appendix A.3, figure 12; the levels differ in their evidence and demonstrations only.
    question: str = dspy.InputField()
    evidence: str = dspy.InputField()
    thought: str = dspy.OutputField(desc="one sentence of reasoning", default="")
    answer: str = dspy.OutputField(desc="the bare answer, or unanswerable")


class AnswerAnyway(dspy.Signature):
    """Answer the question with the help of the passages, in as few words as possible: a name, a date, a number, yes or
    no. Always give the most likely answer.
    """

    # The forced answer after every level refused (section 3.4), and the reader of plain RAG.
    question: str = dspy.InputField()
    passages: str = dspy.InputField()
    answer: str = dspy.OutputField(desc="the bare answer")


class NextThought(dspy.Signature):
    """Reason towards the answer of the question, one sentence at a time. Write the sentence that comes next: a fact of
    the passages that brings the answer closer, with full names. Once the answer is known, write: So the answer is: ...
    """

    # IRCoT section 3, its reason step; FLARE section 3.2, the sentence written again with what was found for it.
    question: str = dspy.InputField()
    passages: str = dspy.InputField()
    thoughts: str = dspy.InputField(desc="the reasoning so far")
    thought: str = dspy.OutputField(desc="the next sentence, no more")


class DraftThought(dspy.Signature):
    """Reason towards the answer of the question, one sentence at a time. Write the sentence that comes next: a fact
    that brings the answer closer, with full names. Once the answer is known, write: So the answer is: ...
    """

    # FLARE section 3.2: the temporary next sentence, before anything is retrieved for it.
    question: str = dspy.InputField()
    thoughts: str = dspy.InputField(desc="the reasoning so far")
    thought: str = dspy.OutputField(desc="the next sentence, no more")


class NextAction(dspy.Signature):
    """Answer the question by searching, one step at a time: think about what is known and what is missing, then act.
    search[query] looks passages up by a short query. finish[answer] ends with the answer, in as few words as possible:
    a name, a date, a number, yes or no.
    """

    # ReAct section 3, with one search action. The history is the conversation so far.
    history: dspy.History = dspy.InputField()
    question: str = dspy.InputField(desc="the question to answer in the end")
    observation: str = dspy.InputField(desc="what the last action found")
    thought: str = dspy.OutputField(desc="one or two sentences", default="")
    action: str = dspy.OutputField(desc="search[query] or finish[answer]")
