"""The floor on the GPU host: the agent, the job runner and all judgement about the host.

Runs on Python 3.9 and newer with nothing but the standard library, psutil and pynvml (both travel in the bundle).
"""
