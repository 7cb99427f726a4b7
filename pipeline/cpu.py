"""What vLLM and speculators need to run without a GPU."""
