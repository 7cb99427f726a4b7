"""One login with asyncssh: notices an unknown host key, and asks a person for what the host or a key file wants."""

from __future__ import annotations

import asyncio
import concurrent.futures
import importlib.util
from collections.abc import Sequence
from pathlib import Path

import asyncssh

from eagle_console.link.errors import PromptCancelled
from eagle_console.link.hostkeys import SeenKey
from eagle_console.link.prompts import ATTEMPTS, Prompter, too_late, unanswered
from eagle_console.link.questions import PassphrasePrompt, PasswordPrompt, Prompt, ServerPrompt

MAX_QUESTIONS = 20
"""Of one connection, whatever the host does: a hostile one could ask for ever."""


class Login(asyncssh.SSHClient):
    """What asyncssh asks of us during one login. Trusts no host key by itself.

    :param host: the host's name in questions.
    :param user: who logs in.
    :param passphrases: right ones by key file; new ones are added, so that a reconnect need not ask.
    :ivar seen: the host key that was shown and is not known.
    :ivar certificate: whether the host showed a certificate of an unknown authority.
    :ivar stopped: why the login must not go on: a question was cancelled, or the host did not wait for its answer.
    :ivar unasked: a question that could have let us in, and why it was not asked.
    """

    def __init__(self, host: str, user: str, prompter: Prompter, passphrases: dict[str, str]) -> None:
        self.seen: SeenKey | None = None
        self.certificate = False
        self.stopped: PromptCancelled | None = None
        self.unasked: PromptCancelled | None = None
        self.prompter = prompter
        self._host = host
        self._user = user
        self._passphrases = passphrases
        self._loop = asyncio.get_running_loop()
        self._connection: asyncssh.SSHClientConnection | None = None
        self._open: dict[asyncio.Task[str], Prompt] = {}
        self._asked = 0
        self._passwords = 0
        self._rounds = 0

    @property
    def reached(self) -> bool:
        """Whether the host took the connection."""
        return self._connection is not None

    @property
    def begun(self) -> bool:
        """Whether the connection got as far as the login: the keys were exchanged."""
        return self._connection is not None and bool(self._connection.get_extra_info("send_cipher", ""))

    def connection_made(self, conn: asyncssh.SSHClientConnection) -> None:
        self._connection = conn

    def connection_lost(self, exc: Exception | None) -> None:
        for task, prompt in list(self._open.items()):
            self.stopped = self.stopped or too_late(prompt)
            task.cancel()

    def validate_host_public_key(self, host: str, addr: str, port: int, key: asyncssh.SSHKey) -> bool:
        self.seen = SeenKey(host, addr, port, key)
        return False

    def validate_host_ca_key(self, host: str, addr: str, port: int, key: asyncssh.SSHKey) -> bool:
        self.certificate = True
        return False

    async def password_auth_requested(self) -> str | None:
        if self._passwords >= ATTEMPTS:
            return None
        self._passwords += 1
        return await self._ask(PasswordPrompt(self._host, self._user, self._passwords))

    def kbdint_auth_requested(self) -> str | None:
        if self._rounds >= ATTEMPTS or self.stopped is not None:
            return None
        self._rounds += 1
        return ""

    async def kbdint_challenge_received(
        self, name: str, instructions: str, lang: str, prompts: Sequence[tuple[str, bool]]
    ) -> list[str] | None:
        answers = []
        for text, visible in prompts:
            answer = await self._ask(ServerPrompt(self._host, text, visible, (name, instructions)))
            if answer is None:
                return None
            answers.append(answer)
        return answers

    def passphrase(self, key_file: str) -> str:
        """The passphrase of a key file, found right. Called by asyncssh in a thread, when the key is to be used.

        :raises KeyEncryptionError: when it is not to be had; the login goes on without this key.
        """
        if not self.reached:
            # asyncssh asks while it reads its keys only for one whose public part it cannot find, and then fails.
            self.unasked = PromptCancelled(
                f"the key {key_file} has a passphrase and no {key_file}.pub beside it, so it was not tried",
                f"ssh-keygen -y -f {key_file} > {key_file}.pub; or ssh-add {key_file}",
                asked=False,
            )
            raise asyncssh.KeyImportError("Passphrase not asked for")  # the word makes asyncssh pass the key over
        if _needs_bcrypt(key_file):
            self.unasked = self.unasked or PromptCancelled(
                f"{self._host} takes the key {key_file}, and its passphrase cannot be used without the package bcrypt",
                f"ssh-add {key_file}; or install bcrypt beside eagle-console",
                asked=False,
            )
            raise asyncssh.KeyEncryptionError("bcrypt is missing")
        kept = self._passphrases.get(key_file)
        if kept is not None and _opens(key_file, kept):
            return kept
        for attempt in range(1, ATTEMPTS + 1):
            asked = asyncio.run_coroutine_threadsafe(
                self._ask(PassphrasePrompt(self._host, key_file, attempt)), self._loop
            )
            try:
                answer = asked.result()
            except concurrent.futures.CancelledError:
                answer = None
            if answer is None:
                break
            if _opens(key_file, answer):
                self._passphrases[key_file] = answer
                return answer
        raise asyncssh.KeyEncryptionError(f"no passphrase for {key_file}")

    async def _ask(self, prompt: Prompt) -> str | None:
        """The answer; None where there is none and the login should try something else, or has been stopped."""
        if self.stopped is not None or self._asked >= MAX_QUESTIONS:
            return None
        if not self.prompter.available:
            self.unasked = self.unasked or unanswered(prompt)
            return None
        self._asked += 1
        task = asyncio.ensure_future(self.prompter.ask(prompt))
        self._open[task] = prompt
        try:
            return await task
        except PromptCancelled as error:
            self.stopped = error
            if self._connection is not None:
                self._connection.abort()
            return None
        finally:
            del self._open[task]


def _needs_bcrypt(key_file: str) -> bool:
    """Whether the key is encrypted in OpenSSH's own way and nothing here can decrypt that."""
    if importlib.util.find_spec("bcrypt") is not None:
        return False
    return b"BEGIN OPENSSH PRIVATE KEY" in Path(key_file).read_bytes()


def _opens(key_file: str, passphrase: str) -> bool:
    try:
        asyncssh.read_private_key(key_file, passphrase)
    except (asyncssh.KeyImportError, asyncssh.KeyEncryptionError, OSError):
        return False
    return True
