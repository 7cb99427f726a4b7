"""Starting a vLLM server."""
