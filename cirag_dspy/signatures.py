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


class IntegrateByCopying(dspy.Signature):
    """Gather the facts that answer the question, one search at a time. Of the facts just found, copy those that lead to
    the answer, also when several lines of reasoning are open. Then ask for the most important fact still missing, by
    the names found so far, or for nothing if the facts kept answer the question.
    """

    # The same for small models, which wrote one fact in their thought and another one's number: the copy is the choice.
    history: dspy.History = dspy.InputField()
    question: str = dspy.InputField(desc="the question to answer in the end")
    query: str = dspy.InputField(desc="what was searched for this time")
    facts: str = dspy.InputField(desc="head | relation | tail, a fact a line")
    core: str = dspy.OutputField(desc="the facts to keep as they are written, a line each; none if none helps")
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


class CompleteChain(dspy.Signature):
    """Complete the chain of facts that leads to the answer. Of the numbered facts, choose those that come next, in the
    order of reasoning, each one following from the facts before it. Choose none if the chain answers the question.
    """

    # KiRAG section 3.2 and appendix A.2: the reasoning chain constructor. Only its first choice is kept.
    question: str = dspy.InputField()
    chain: str = dspy.InputField(desc="the facts so far, in order")
    facts: str = dspy.InputField(desc="numbered facts, head | relation | tail")
    next: str = dspy.OutputField(desc="numbers of the facts that come next, such as 4, 2; none if none is needed")


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


class ReasonFromPassages(dspy.Signature):
    """Answer the question with the help of the passages. Reason first, in a few sentences: which facts lead to the
    answer, and which are missing. Then give the most likely answer in as few words as possible: a name, a date, a
    number, yes or no.
    """

    # D2F-ReAG section 3.1, r(q).
    question: str = dspy.InputField()
    passages: str = dspy.InputField()
    reasoning: str = dspy.OutputField(desc="the facts used and those missing", default="")
    answer: str = dspy.OutputField(desc="the bare answer")


class JudgeReliability(dspy.Signature):
    """Judge how far the reasoning can be relied on. It is reliable if every fact that the question needs is stated in
    it, nothing is guessed or contradicted, and the answer follows from it and answers the whole question.
    """

    # D2F-ReAG section 3.2, s_r(q).
    question: str = dspy.InputField()
    reasoning: str = dspy.InputField()
    thought: str = dspy.OutputField(desc="one sentence: what is missing or doubtful, if anything", default="")
    score: str = dspy.OutputField(desc="a number from 0 (a guess) to 1 (certain), such as 0.4")


class DecomposeQuestion(dspy.Signature):
    """Break the question down into the simpler questions that lead to its answer, in the order in which they have to be
    answered. Each asks for one fact and can be looked up on its own. Write as few as are needed.
    """

    # D2F-ReAG section 3.3, sub(q).
    question: str = dspy.InputField()
    questions: str = dspy.OutputField(desc="one question a line; none if it cannot be broken down")


class RewriteQuestions(dspy.Signature):
    """Rewrite the open questions with what the reasoning on the main question has found, so that each can be looked up
    on its own: put names and dates in the place of descriptions. Keep their order, leave out what is answered already,
    and ask for what an answer still lacks.
    """

    # D2F-ReAG section 3.3, Rewrite(q, r_q); section 6 shows a question rewritten into those that it left open.
    question: str = dspy.InputField(desc="the main question")
    reasoning: str = dspy.InputField(desc="what is known about it")
    open_questions: str = dspy.InputField()
    questions: str = dspy.OutputField(desc="one question a line; none if nothing is open")


class CheckRelevance(dspy.Signature):
    """Say whether what was found for the sub-question helps to answer the main question."""

    # D2F-ReAG section 3.4, Check(q_i, q).
    question: str = dspy.InputField(desc="the main question")
    subquestion: str = dspy.InputField()
    finding: str = dspy.InputField(desc="what was found for the sub-question")
    relevant: str = dspy.OutputField(desc="yes or no")


class UpdateReasoning(dspy.Signature):
    """Bring the reasoning on the question up to date with what was found for a sub-question: add what is new, correct
    what the finding contradicts, keep the rest, and say which facts are still missing. Then give the most likely answer
    in as few words as possible: a name, a date, a number, yes or no.
    """

    # D2F-ReAG section 3.4, Update(r(q_root), r(q)).
    question: str = dspy.InputField()
    previous: str = dspy.InputField(desc="the reasoning so far")
    subquestion: str = dspy.InputField()
    finding: str = dspy.InputField(desc="what was found for the sub-question, verified")
    reasoning: str = dspy.OutputField(desc="the facts used and those missing", default="")
    answer: str = dspy.OutputField(desc="the bare answer")


class JudgeAnswer(dspy.Signature):
    """Say whether the predicted answer to the question means the same as an accepted answer. Other words, spellings,
    formats of a date or number and further detail are no difference; another person, place, date, number or verdict is.
    """

    # LLM-Acc of LogicRAG and of D2F-ReAG section 4.1.
    question: str = dspy.InputField()
    accepted: str = dspy.InputField(desc="the accepted answers, one a line")
    predicted: str = dspy.InputField()
    same: str = dspy.OutputField(desc="yes or no")


class AnswerWithReason(dspy.Signature):
    """Answer the question with the help of the passages. First give the reason, then the answer in as few words as
    possible: a name, a date, a number, yes or no. Mind the advice, if there is any.
    """

    # MetaRAG (Zhou et al., WWW 2024): the first answer, and the answer after each plan.
    question: str = dspy.InputField()
    passages: str = dspy.InputField()
    advice: str = dspy.InputField(desc="what to do better than last time, or none")
    reason: str = dspy.OutputField(desc="one or two sentences", default="")
    answer: str = dspy.OutputField(desc="the bare answer, or unanswerable")


class AnswerFromMemory(dspy.Signature):
    """Answer the question from what you know, in as few words as possible: a name, a date, a number, yes or no. Then
    say whether you know every fact that the question needs.
    """

    # MetaRAG's check of internal knowledge; the answer also stands in for the expert of its monitor.
    question: str = dspy.InputField()
    answer: str = dspy.OutputField(desc="the bare answer; unanswerable if you have no idea")
    known: str = dspy.OutputField(desc="yes, or no if you would have to guess")


class CritiqueAnswer(dspy.Signature):
    """Check the answer proposed to the question: is a step of its reason missing or wrong, does it miss what is asked,
    does it say more than that? Then say whether the passages state every fact that the question needs.
    """

    # MetaRAG's checks for errors and of external knowledge, as one call.
    question: str = dspy.InputField()
    passages: str = dspy.InputField()
    reason: str = dspy.InputField()
    proposed: str = dspy.InputField(desc="the answer to check")
    feedback: str = dspy.OutputField(desc="one sentence: what is wrong or missing; none if nothing is", default="")
    sufficient: str = dspy.OutputField(desc="yes or no: the passages state every fact needed")


class RewriteQuery(dspy.Signature):
    """Write the search query that finds the fact still missing for the question: short, with the names that matter."""

    # MetaRAG's plan where only internal knowledge suffices.
    question: str = dspy.InputField()
    feedback: str = dspy.InputField(desc="what is wrong or missing in the answer so far")
    query: str = dspy.OutputField(desc="a short search query")


class SplitQuestion(dspy.Signature):
    """Split the question into the simple questions whose answers lead to its answer, the first to be answered first.
    Each asks for one fact.
    """

    # MetaRAG's plan where neither internal nor external knowledge suffices.
    question: str = dspy.InputField()
    feedback: str = dspy.InputField(desc="what is wrong or missing in the answer so far")
    queries: str = dspy.OutputField(desc="one simple question a line")


class ContinueReasoning(dspy.Signature):
    """Reason one step further towards the answer of the question, from the knowledge and the thoughts so far. Then say
    whether knowledge that the answer needs is still missing.
    """

    # DualRAG (arXiv 2504.18243): the Reasoner.
    question: str = dspy.InputField()
    knowledge: str = dspy.InputField(desc="what was learnt, by entity")
    thoughts: str = dspy.InputField(desc="the reasoning so far")
    thought: str = dspy.OutputField(desc="one or two sentences: what follows, what is missing", default="")
    retrieve: str = dspy.OutputField(desc="yes if knowledge is missing, no if the question can be answered")


class IdentifyEntities(dspy.Signature):
    """Name the entities about which knowledge is missing, and write one or two search queries for each. Keep the names
    of known entities. Knowledge that belongs to no entity goes under the name other.
    """

    # DualRAG: the Entity Identifier.
    question: str = dspy.InputField()
    knowledge: str = dspy.InputField(desc="what was learnt, by entity")
    thoughts: str = dspy.InputField(desc="the reasoning so far; the last one says what is missing")
    entities: str = dspy.InputField(desc="names of the known entities")
    searches: str = dspy.OutputField(desc="entity | query | another query, one entity a line")


class SummariseEntity(dspy.Signature):
    """Summarise what the passages say about the entity that helps with the question, in a few sentences that stand
    alone. Use only what the passages say.
    """

    # DualRAG: the Knowledge Summariser.
    question: str = dspy.InputField()
    thoughts: str = dspy.InputField(desc="the reasoning so far")
    entity: str = dspy.InputField()
    queries: str = dspy.InputField(desc="what was searched for")
    passages: str = dspy.InputField()
    summary: str = dspy.OutputField(desc="the facts found; none if there are none")


class RefineSummary(dspy.Signature):
    """Bring the summary up to date with what the passages say on the current point. Keep every fact that the question
    needs, add those that are new, correct those that were wrong, leave out the rest.
    """

    # LogicRAG (arXiv 2508.06105): the rolling summary.
    question: str = dspy.InputField(desc="the question to answer in the end")
    known: str = dspy.InputField(desc="the summary so far")
    point: str = dspy.InputField(desc="what was searched for")
    passages: str = dspy.InputField()
    summary: str = dspy.OutputField(desc="the new summary, a few sentences")


class CheckSummary(dspy.Signature):
    """Say whether the summary states every fact that the question needs. If not, list what has to be looked up to
    answer it, each as a simple question that stands alone.
    """

    # LogicRAG: whether the summary suffices, and if not, the sub-problems.
    question: str = dspy.InputField()
    summary: str = dspy.InputField()
    sufficient: str = dspy.OutputField(desc="yes or no")
    missing: str = dspy.OutputField(desc="one simple question a line; none if nothing is missing", default="")


class OrderSubproblems(dspy.Signature):
    """Say which of the numbered sub-problems of the question need the answer of another one first."""

    # LogicRAG: the edges of the graph of sub-problems.
    question: str = dspy.InputField()
    problems: str = dspy.InputField(desc="the numbered sub-problems")
    dependencies: str = dspy.OutputField(desc="such as 2 depends on 1, one a line; none if none does")


class AnswerFromNotes(dspy.Signature):
    """Answer the question from the notes, in as few words as possible: a name, a date, a number, yes or no. Always give
    the most likely answer.
    """

    # The last step of DualRAG and of LogicRAG.
    question: str = dspy.InputField()
    notes: str = dspy.InputField(desc="what was found and thought")
    answer: str = dspy.OutputField(desc="the bare answer")
