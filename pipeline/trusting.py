"""speculators' commands with the tokenizer's own code allowed: run as a file, ``python -P trusting.py COMMAND ...``.

``speculators regenerate-responses`` 0.9.0 reads the tokenizer for its review text and has no option
``--trust-remote-code``, so a verifier whose tokenizer is Python code (Kimi-K2.5) ends it before the first prompt. What
the user has allowed to the server by ``trust_remote_code`` is allowed here too.
"""

from __future__ import annotations

from typing import Any


def main() -> None:
    """Runs the command that the arguments name."""
    import transformers

    read = transformers.AutoTokenizer.from_pretrained

    def trusting(*arguments: Any, **options: Any) -> Any:
        return read(*arguments, **{"trust_remote_code": True, **options})

    transformers.AutoTokenizer.from_pretrained = staticmethod(trusting)
    from speculators.cli import app

    app()


if __name__ == "__main__":
    main()
