"""Drafts on this machine: validated by the rules of ``pipeline.plan.draft_rules``, and corrected in a copy."""
