"""Ways to log in by the console's own SSH: passphrases, passwords, codes, certificates, agents, jump hosts."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from link.asking_server import Round, Script, asking_server
from link.prompting import Person
from link.sshd import PASSWORDS_ONLY, SshServer, introduce, ssh_keygen, target

from eagle_console.config import HostProfile
from eagle_console.link.connect import Target, connect, open_session, reach
from eagle_console.link.errors import AuthenticationError, LinkTimeout, PromptCancelled
from eagle_console.link.prompts import Prompter
from eagle_console.link.questions import PassphrasePrompt, PasswordPrompt, ServerPrompt

pytestmark = pytest.mark.system

StartSshd = Callable[..., SshServer]


def add_to(agent: str, key: Path) -> None:
    subprocess.run(["ssh-add", "-q", str(key)], env={**os.environ, "SSH_AUTH_SOCK": agent}, check=True)


async def log_in(to: Target, prompter: Prompter | None = None) -> None:
    async with connect(to, 30, prompter) as client:
        assert (await client.host()).cpus >= 1


def remove(key: Path) -> None:
    key.unlink()


def lock(key: Path, passphrase: str) -> None:
    ssh_keygen("-q", "-p", "-P", "", "-N", passphrase, "-f", str(key))


@pytest.fixture
def key(console_home: Path) -> Path:
    return console_home / ".ssh" / "id_ed25519"


@pytest.fixture
def agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The socket of an ssh-agent without keys."""
    path = str(tmp_path_factory.mktemp("agent") / "s")
    process = subprocess.Popen(["ssh-agent", "-D", "-a", path], stdout=subprocess.DEVNULL)
    try:
        for _ in range(500):
            if os.path.exists(path):
                break
            process.poll()
        yield path
    finally:
        process.terminate()
        process.wait()


# A key with a passphrase


async def test_a_passphrase_is_asked_again_and_kept_for_reconnects(sshd: SshServer, key: Path) -> None:
    lock(key, "open sesame")
    person = Person("wrong", "open sesame")
    async with reach(target(sshd), person) as endpoint:
        for _ in range(2):
            async with open_session(endpoint):
                pass
    assert [prompt.attempt for prompt in person.asked if isinstance(prompt, PassphrasePrompt)] == [1, 2]
    first = person.asked[0]
    assert isinstance(first, PassphrasePrompt) and first.key_file == str(key) and first.echo is False
    assert first.host == "127.0.0.1"
    assert sshd.log().count("Accepted publickey") == 2
    assert "open sesame" not in repr(endpoint)


async def test_wrong_passphrases_are_bounded_and_tell_the_host_nothing(sshd: SshServer, key: Path) -> None:
    lock(key, "open sesame")
    person = Person("a", "b", "c")
    with pytest.raises(AuthenticationError):
        await log_in(target(sshd), person)
    assert len(person.asked) == 3
    assert sshd.log().count("Connection from") == 2  # the fixture's own look at the port is one


async def test_a_key_that_the_host_does_not_want_needs_no_passphrase(
    start_sshd: StartSshd, console_home: Path, key: Path
) -> None:
    server = start_sshd()
    introduce(server, console_home)
    (server.directory / "authorized_keys").write_text("")
    lock(key, "open sesame")
    with pytest.raises(AuthenticationError, match="refuses the login"):
        await log_in(target(server), Person())


async def test_a_cancelled_passphrase_ends_the_try(sshd: SshServer, key: Path) -> None:
    lock(key, "open sesame")
    with pytest.raises(PromptCancelled, match="cancelled") as caught:
        await log_in(target(sshd), Person(None))
    assert caught.value.remedy == "R asks again"


async def test_without_a_terminal_the_key_to_add_is_named(sshd: SshServer, key: Path) -> None:
    lock(key, "open sesame")
    with pytest.raises(PromptCancelled, match="no terminal") as caught:
        await log_in(target(sshd))
    assert caught.value.remedy == f"ssh-add {key}"


async def test_without_bcrypt_nothing_is_asked_in_vain(
    sshd: SshServer, key: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock(key, "open sesame")
    monkeypatch.setattr("eagle_console.link.login.importlib.util.find_spec", lambda name: None)
    with pytest.raises(AuthenticationError, match="bcrypt") as caught:
        await log_in(target(sshd), Person())
    assert caught.value.remedy.startswith(f"ssh-add {key}")


@pytest.fixture
def pem_key(sshd: SshServer, console_home: Path) -> Path:
    """A key in the old format, with a passphrase, that may log in."""
    old = console_home / ".ssh" / "id_rsa"
    ssh_keygen("-q", "-t", "rsa", "-b", "2048", "-m", "PEM", "-N", "open sesame", "-f", str(old))
    (sshd.directory / "authorized_keys").write_text(old.with_suffix(".pub").read_text())
    (console_home / ".ssh" / "config").write_text(f"Host *\n  IdentityFile {old}\n")
    return old


async def test_a_passphrase_of_an_old_pem_key(sshd: SshServer, pem_key: Path) -> None:
    person = Person("wrong", "open sesame")
    await log_in(target(sshd), person)
    assert len(person.asked) == 2


async def test_an_old_pem_key_without_its_public_part_is_named(sshd: SshServer, pem_key: Path) -> None:
    pem_key.with_suffix(".pub").rename(pem_key.with_suffix(".gone"))
    with pytest.raises(AuthenticationError, match=r"no .*id_rsa\.pub beside it") as caught:
        await log_in(target(sshd), Person())
    assert caught.value.remedy.startswith(f"ssh-keygen -y -f {pem_key} > {pem_key}.pub")


async def test_an_agent_that_has_the_key_makes_the_question_needless(
    sshd: SshServer, key: Path, agent: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_to(agent, key)
    lock(key, "open sesame")
    monkeypatch.setenv("SSH_AUTH_SOCK", agent)
    await log_in(target(sshd), Person())


async def test_identity_agent_of_the_configuration_is_used(
    sshd: SshServer, console_home: Path, key: Path, agent: str
) -> None:
    add_to(agent, key)
    remove(key)
    with pytest.raises(AuthenticationError):
        await log_in(target(sshd))
    (console_home / ".ssh" / "config").write_text(f"Host *\n  IdentityAgent {agent}\n")
    await log_in(target(sshd))


# Passwords and codes


async def test_a_password(tmp_path: Path, console_home: Path) -> None:
    async with asking_server(tmp_path / "host", Script(password="right")) as server:
        (console_home / ".ssh" / "known_hosts").write_text(server.known_hosts_line)
        person = Person("wrong", "right")
        await log_in(Target(HostProfile("box", server.address)), person)
    assert server.script.passwords == ["wrong", "right"]
    last = person.asked[-1]
    assert isinstance(last, PasswordPrompt) and (last.user, last.host, last.attempt) == ("engineer", "127.0.0.1", 2)
    assert not last.echo and last.notes == ("The last one was refused.",)


async def test_a_password_is_never_kept(tmp_path: Path, console_home: Path) -> None:
    async with asking_server(tmp_path / "host", Script(password="right")) as server:
        (console_home / ".ssh" / "known_hosts").write_text(server.known_hosts_line)
        person = Person("right", "right")
        async with reach(Target(HostProfile("box", server.address)), person) as endpoint:
            for _ in range(2):
                async with open_session(endpoint):
                    pass
    assert len(person.asked) == 2


async def test_refused_passwords_are_bounded(start_sshd: StartSshd, console_home: Path) -> None:
    server = start_sshd(logins=PASSWORDS_ONLY)
    introduce(server, console_home)
    person = Person("a", "b", "c")
    with pytest.raises(AuthenticationError, match="refuses the login"):
        await log_in(target(server), person)
    assert server.log().count("Failed password") == len(person.asked) == 3
    with pytest.raises(PromptCancelled):
        await log_in(target(server), Person(None))
    with pytest.raises(PromptCancelled, match="no terminal"):
        await log_in(target(server))
    assert server.log().count("Failed password") == 3


CODES: list[tuple[Round, list[str]]] = [
    (("Two steps", "Password first,\nthen the code", [("Password: ", False)]), ["secret"]),
    (("", "", [("Code 1: ", True), ("Code 2: ", False)]), ["123", "456"]),
    (("", "\x1b[2Jwelcome", []), []),
]


@pytest.mark.parametrize("transport", ["asyncssh", "ssh"])
async def test_rounds_of_questions(tmp_path: Path, console_home: Path, transport: str) -> None:
    async with asking_server(tmp_path / "host", Script(rounds=CODES)) as server:
        (console_home / ".ssh" / "known_hosts").write_text(server.known_hosts_line)
        person = Person("secret", "123", "456")
        await log_in(Target(HostProfile("box", server.address, transport=transport)), person)
    assert server.script.answers == [("secret",), ("123", "456"), ()]
    words = [prompt.label for prompt in person.asked]
    if transport == "asyncssh":
        assert words == ["Password:", "Code 1:", "Code 2:"]
        assert [prompt.echo for prompt in person.asked] == [False, True, False]
        first = person.asked[0]
        assert isinstance(first, ServerPrompt)
        assert first.instructions == ("Two steps", "Password first,", "then the code")
    else:
        assert words == [f"(engineer@127.0.0.1) {word}" for word in ("Password:", "Code 1:", "Code 2:")]
        assert not any(prompt.echo for prompt in person.asked)


@pytest.mark.parametrize("transport", ["asyncssh", "ssh"])
async def test_wrong_codes_are_bounded(tmp_path: Path, console_home: Path, transport: str) -> None:
    async with asking_server(tmp_path / "host", Script(rounds=CODES[:1])) as server:
        (console_home / ".ssh" / "known_hosts").write_text(server.known_hosts_line)
        person = Person(*"abcdef")
        with pytest.raises(AuthenticationError):
            await log_in(Target(HostProfile("box", server.address, transport=transport)), person)
    assert len(server.script.answers) == len(person.asked) == 3


async def test_a_host_that_asks_for_ever_is_left(tmp_path: Path, console_home: Path) -> None:
    many = [(("", "", [(f"question {n}", True) for n in range(1000)]), [""] * 1000)]
    async with asking_server(tmp_path / "host", Script(rounds=many)) as server:
        (console_home / ".ssh" / "known_hosts").write_text(server.known_hosts_line)
        person = Person(*["x"] * 1000)
        with pytest.raises(AuthenticationError):
            await log_in(Target(HostProfile("box", server.address)), person)
    assert len(person.asked) == 20


class Slow(Person):
    """Needs longer for each answer than the connection may take."""

    async def ask(self, prompt: object) -> str:
        await asyncio.sleep(1.5)
        return await super().ask(prompt)  # type: ignore[arg-type]


@pytest.mark.parametrize("transport", ["asyncssh", "ssh"])
async def test_the_time_of_a_question_does_not_count(tmp_path: Path, console_home: Path, transport: str) -> None:
    async with asking_server(tmp_path / "host", Script(rounds=CODES)) as server:
        (console_home / ".ssh" / "known_hosts").write_text(server.known_hosts_line)
        to = Target(HostProfile("box", server.address, transport=transport))
        async with connect(to, 3.0, Slow("secret", "123", "456")):
            pass


@pytest.mark.parametrize("transport", ["asyncssh", "ssh"])
async def test_a_host_that_does_not_wait_takes_its_question_back(
    tmp_path: Path, console_home: Path, transport: str
) -> None:
    async with asking_server(tmp_path / "host", Script(rounds=CODES, patience=0.7)) as server:
        (console_home / ".ssh" / "known_hosts").write_text(server.known_hosts_line)
        to = Target(HostProfile("box", server.address, transport=transport))
        with pytest.raises(PromptCancelled, match="before the question was answered"):
            async with connect(to, 20, Slow("secret")):
                pass
    assert server.script.answers == []


async def test_silence_before_the_questions_still_counts(console_home: Path) -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    listener = await asyncio.start_server(silent, "127.0.0.1", 0)
    port = listener.sockets[0].getsockname()[1]
    with pytest.raises(LinkTimeout):
        async with connect(Target(HostProfile("box", f"me@127.0.0.1:{port}")), 0.5, Person()):
            pass
    listener.close()


# Certificates and jump hosts


@pytest.mark.parametrize("transport", ["asyncssh", "ssh"])
async def test_a_user_certificate_beside_the_key(
    start_sshd: StartSshd, console_home: Path, tmp_path: Path, key: Path, transport: str
) -> None:
    ssh_keygen("-q", "-t", "ed25519", "-N", "", "-f", str(tmp_path / "authority"))
    server = start_sshd(config=f"TrustedUserCAKeys {tmp_path}/authority.pub")
    introduce(server, console_home)
    (server.directory / "authorized_keys").write_text("")
    (console_home / ".ssh" / "config").write_text(f"Host *\n  IdentityFile {key}\n")
    key.with_suffix(".pub").write_text(server.identity.with_suffix(".pub").read_text())
    to = target(server, transport=transport)
    with pytest.raises(AuthenticationError):
        await log_in(to)
    user = server.address.partition("@")[0]
    ssh_keygen("-q", "-s", str(tmp_path / "authority"), "-I", "me", "-n", user, str(key.with_suffix(".pub")))
    lock(key, "open sesame")
    person = Person("open sesame")
    await log_in(to, person)
    assert len(person.asked) == 1 and "ED25519-CERT" in server.log()


async def test_each_jump_host_asks_in_its_own_name(
    start_sshd: StartSshd, sshd: SshServer, console_home: Path, tmp_path: Path, key: Path
) -> None:
    jump = start_sshd("jump")
    other = console_home / ".ssh" / "jump_key"
    other.write_bytes(jump.identity.read_bytes())
    other.chmod(0o600)
    lock(other, "first")
    lock(key, "second")
    with (console_home / ".ssh" / "known_hosts").open("a") as known:
        known.write(jump.known_hosts_line)
    (console_home / ".ssh" / "config").write_text(
        f"Host jump\n  HostName 127.0.0.1\n  Port {jump.port}\n  IdentityFile {other}\n"
        f"Host inner\n  HostName 127.0.0.1\n  Port {sshd.port}\n  ProxyJump jump\n  IdentityFile {key}\n"
    )
    person = Person("first", "second")
    await log_in(target(sshd, address="inner"), person)
    assert [prompt.host for prompt in person.asked] == ["jump", "inner"]
    assert [prompt.key_file for prompt in person.asked if isinstance(prompt, PassphrasePrompt)] == [
        str(other),
        str(key),
    ]
