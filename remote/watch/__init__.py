"""Reading logs: following a file, and what the lines of a vLLM start-up mean. Everything but ``follow`` is pure."""
