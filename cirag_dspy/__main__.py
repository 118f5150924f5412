"""``python -m cirag_dspy``: the command line."""

from cirag_dspy.cli import main

if __name__ == "__main__":
    main()
