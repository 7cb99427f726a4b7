"""Freeing GPUs: who holds their memory, what may be ended, and whether the memory came back."""
