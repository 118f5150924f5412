"""A saved program, ``optimized/NAME/``: DSPy state, what it needs to run, and the adapter of a trained student.

    program.json   state of the main system (prompts and demonstrations), as ``dspy.Module.save`` writes it; no LM
    SYSTEM.json    the same of each further system that the student serves
    meta.json      systems and settings, LMs by role, hashes, how it was made
    adapter/       a peft adapter

Nothing in it is executed or unpickled, and no key is in it. The folder may be moved. A save replaces the program in a
folder as a whole: whenever it is interrupted, the folder holds the old one or the new one.
"""

from __future__ import annotations

from cirag_dspy.artifact.layout import ADAPTER, EXTRACTION, META, PROGRAM, READER
from cirag_dspy.artifact.rendering import prompts, triples_writer
from cirag_dspy.artifact.saved import Saved, load
from cirag_dspy.artifact.saving import Part, save, system_name

__all__ = [
    "ADAPTER",
    "EXTRACTION",
    "META",
    "PROGRAM",
    "READER",
    "Part",
    "Saved",
    "load",
    "prompts",
    "save",
    "system_name",
    "triples_writer",
]
