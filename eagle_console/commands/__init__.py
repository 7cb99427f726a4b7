"""The commands of the command line, a module a topic; each is a coroutine that takes an ``Invocation``."""
