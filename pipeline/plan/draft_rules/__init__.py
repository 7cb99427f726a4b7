"""Rules for an EAGLE-3 draft: what vLLM refuses, and what it loads without a word and then never accepts a token of.

``reading`` takes the facts of a folder (``config.json``, headers, small tensors), ``checks`` judges them against the
rules of ``catalogue``, ``fixing`` says what a corrected copy holds. docs/validating.md has the table.
"""
