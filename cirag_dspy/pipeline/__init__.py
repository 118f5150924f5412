"""A recipe's stages, from the teacher to the saved program."""

from cirag_dspy.pipeline.alone import export_file, finetune_file
from cirag_dspy.pipeline.plan import plan
from cirag_dspy.pipeline.stages import Pipeline

__all__ = ["Pipeline", "export_file", "finetune_file", "plan"]
