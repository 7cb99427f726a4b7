"""The system's ssh as the transport, against real OpenSSH servers."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from link.prompting import Person
from link.sshd import PASSWORDS_ONLY, SshServer, introduce, ssh_keygen, target

from eagle_console.link import hostkeys
from eagle_console.link.bootstrap import BootstrapResult
from eagle_console.link.connect import Target, connect, open_session, reach
from eagle_console.link.errors import (
    AddressError,
    AuthenticationError,
    ChangedHostKey,
    ConnectError,
    ConnectionLost,
    LinkError,
    NoPython,
    PromptCancelled,
    UnknownHostKey,
)
from eagle_console.link.openssh import OpenSshTransport
from eagle_console.link.prompts import Prompter

pytestmark = pytest.mark.system

StartSshd = Callable[..., SshServer]


class UserConfig:
    """The user's ssh configuration. ssh takes the home from the system's user database, so the key is named in it."""

    def __init__(self, home: Path) -> None:
        self._path = home / ".ssh" / "config"
        self.start = f"Host *\n  IdentityFile {home}/.ssh/id_ed25519\n"
        self.set(self.start)

    def set(self, text: str) -> None:
        self._path.write_text(text)

    def add(self, text: str) -> None:
        self.set(self.start + text)


@pytest.fixture(autouse=True)
def user_config(console_home: Path) -> UserConfig:
    return UserConfig(console_home)


def by_ssh(server: SshServer, **profile: object) -> Target:
    return target(server, transport="ssh", **profile)


async def start_once(to: Target, prompter: Prompter | None = None) -> BootstrapResult:
    async with reach(to, prompter) as endpoint, open_session(endpoint) as connected:
        return connected.bootstrap


def lock(key: Path, passphrase: str) -> None:
    ssh_keygen("-q", "-p", "-P", "", "-N", passphrase, "-f", str(key))


def our_children() -> list[psutil.Process]:
    """Every ssh that this process has started, with its helpers."""
    return [child for child in psutil.Process().children(recursive=True) if child.name() in ("ssh", "sh", "askpass")]


@contextmanager
def no_ssh_left() -> Iterator[None]:
    yield
    deadline = time.monotonic() + 5
    while our_children() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert our_children() == []


async def test_a_session_over_the_systems_ssh(sshd: SshServer, tmp_path: Path) -> None:
    with no_ssh_left():
        async with connect(by_ssh(sshd, workspace=tmp_path), 30) as client:
            assert client.hello.workspace == str(tmp_path)
            [ssh] = [child for child in our_children() if child.name() == "ssh"]
            words = ssh.cmdline()
            assert words[-2] == sshd.address.partition(":")[0] and words[-3] == "--"
            assert {"-T", "-a", "-x"} <= set(words)
            assert os.getsid(ssh.pid) != os.getsid(0)
            assert (await client.host()).cpus >= 1
    assert (await start_once(by_ssh(sshd))).uploaded_bytes == 0


async def test_an_unknown_key_is_the_same_question(sshd: SshServer, console_home: Path) -> None:
    (console_home / ".ssh" / "known_hosts").unlink()
    with pytest.raises(UnknownHostKey) as caught:
        await start_once(by_ssh(sshd))
    question = caught.value.question
    assert question.fingerprint == sshd.fingerprint
    assert (question.host, question.port, question.algorithm) == ("127.0.0.1", sshd.port, "ssh-ed25519")
    assert caught.value.remedy.endswith("eagle-console hosts trust box")
    assert "Accepted" not in sshd.log()
    assert not (console_home / ".ssh" / "known_hosts").exists()
    hostkeys.trust(question)
    await start_once(by_ssh(sshd))


async def test_no_setting_turns_the_check_off(sshd: SshServer, console_home: Path, user_config: UserConfig) -> None:
    (console_home / ".ssh" / "known_hosts").unlink()
    for setting in (
        "UserKnownHostsFile /dev/null",
        "UserKnownHostsFile none",
        "StrictHostKeyChecking no",
        "StrictHostKeyChecking accept-new",
        "NoHostAuthenticationForLocalhost yes",
        "LogLevel QUIET",
    ):
        user_config.add(f"Host *\n  {setting}\n")
        with pytest.raises(UnknownHostKey):
            await start_once(by_ssh(sshd))


async def test_a_changed_key_is_refused_with_file_and_line(
    start_sshd: StartSshd, sshd: SshServer, console_home: Path
) -> None:
    other = start_sshd("other")
    known = console_home / ".ssh" / "known_hosts"
    known.write_text(f"# a comment\n[127.0.0.1]:{sshd.port} {other.host_key}\n")
    with pytest.raises(ChangedHostKey) as caught:
        await start_once(by_ssh(sshd))
    assert f"{known} line 2" in caught.value.message
    assert sshd.fingerprint in caught.value.message
    assert f"ssh-keygen -R '[127.0.0.1]:{sshd.port}' -f '{known}'" in caught.value.remedy


async def test_a_revoked_key_is_refused(sshd: SshServer, console_home: Path) -> None:
    with (console_home / ".ssh" / "known_hosts").open("a") as known:
        known.write(f"@revoked * {sshd.host_key}\n")
    with pytest.raises(ChangedHostKey, match="revoked"):
        await start_once(by_ssh(sshd))


async def test_jump_hosts_are_verified_hop_by_hop(
    start_sshd: StartSshd, sshd: SshServer, console_home: Path, user_config: UserConfig
) -> None:
    jump = start_sshd("jump")
    (jump.directory / "authorized_keys").write_text(sshd.identity.with_suffix(".pub").read_text())
    (console_home / ".ssh" / "known_hosts").unlink()
    user_config.add(
        "  StrictHostKeyChecking no\n"
        f"Host inner\n  HostName 127.0.0.1\n  Port {sshd.port}\n  ProxyJump {jump.address}\n"
    )
    for hop in (jump, sshd):
        with pytest.raises(UnknownHostKey) as caught:
            await start_once(by_ssh(sshd, address="inner"))
        assert caught.value.question.port == hop.port
        assert caught.value.question.fingerprint == hop.fingerprint
        assert "Accepted" not in hop.log()
        hostkeys.trust(caught.value.question)
    with no_ssh_left():
        await start_once(by_ssh(sshd, address="inner"))
    assert "Accepted publickey" in jump.log()


async def test_the_passphrase_of_a_key_is_asked_for(sshd: SshServer, console_home: Path) -> None:
    lock(console_home / ".ssh" / "id_ed25519", "open sesame")
    person = Person("wrong", "open sesame")
    with no_ssh_left():
        await start_once(by_ssh(sshd), person)
    assert [prompt.echo for prompt in person.asked] == [False, False]
    assert person.asked[0].label == f"Enter passphrase for key '{console_home}/.ssh/id_ed25519':"
    assert "Failed" not in sshd.log()


async def test_every_hop_asks_for_itself(
    start_sshd: StartSshd, sshd: SshServer, console_home: Path, user_config: UserConfig
) -> None:
    jump = start_sshd("jump")
    key = console_home / ".ssh" / "jump_key"
    key.write_bytes(jump.identity.read_bytes())
    key.chmod(0o600)
    lock(key, "first")
    lock(console_home / ".ssh" / "id_ed25519", "second")
    with (console_home / ".ssh" / "known_hosts").open("a") as known:
        known.write(jump.known_hosts_line)
    user_config.set(
        f"Host jump\n  HostName 127.0.0.1\n  Port {jump.port}\n  IdentityFile {key}\n"
        f"Host inner\n  HostName 127.0.0.1\n  Port {sshd.port}\n  ProxyJump jump\n"
        f"  IdentityFile {console_home}/.ssh/id_ed25519\n"
    )
    person = Person("first", "second")
    await start_once(by_ssh(sshd, address="inner"), person)
    assert "jump_key" in person.asked[0].label and "id_ed25519" in person.asked[1].label


async def test_a_cancelled_question_ends_ssh_at_once(sshd: SshServer, console_home: Path) -> None:
    lock(console_home / ".ssh" / "id_ed25519", "open sesame")
    with no_ssh_left(), pytest.raises(PromptCancelled, match="cancelled") as caught:
        await start_once(by_ssh(sshd), Person(None))
    assert caught.value.remedy == "R asks again"


async def test_without_a_terminal_the_key_is_named(sshd: SshServer, console_home: Path) -> None:
    lock(console_home / ".ssh" / "id_ed25519", "open sesame")
    with pytest.raises(PromptCancelled, match="no terminal") as caught:
        await start_once(by_ssh(sshd))
    assert caught.value.remedy == f"ssh-add {console_home}/.ssh/id_ed25519"


@pytest.mark.skipif(os.geteuid() != 0, reason="the server must be able to ask for a password that nobody has")
async def test_a_refused_password_is_asked_three_times_and_a_cancelled_one_is_never_sent(
    start_sshd: StartSshd, console_home: Path
) -> None:
    server = start_sshd(logins=PASSWORDS_ONLY)
    introduce(server, console_home)
    person = Person("a", "b", "c")
    with pytest.raises(AuthenticationError, match="refuses the login"):
        await start_once(by_ssh(server), person)
    assert all(prompt.label.endswith("password:") for prompt in person.asked) and len(person.asked) == 3
    refused = server.log().count("Failed password")
    with pytest.raises(PromptCancelled):
        await start_once(by_ssh(server), Person(None))
    with pytest.raises(PromptCancelled):
        await start_once(by_ssh(server))
    assert server.log().count("Failed password") == refused == 3


async def test_the_answer_is_in_no_process_list_and_no_file(
    sshd: SshServer, console_home: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock(console_home / ".ssh" / "id_ed25519", "open sesame")
    private = tmp_path_factory.mktemp("private")  # a socket's path has room for a hundred characters
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(private))
    seen: list[str] = []

    class Curious(Person):
        async def ask(self, prompt: object) -> str:
            [directory] = private.iterdir()
            assert directory.stat().st_mode & 0o777 == 0o700
            modes = {path.name: path.stat().st_mode & 0o777 for path in directory.iterdir()}
            assert modes["askpass.sock"] == modes["token"] == 0o600
            token = (directory / "token").read_text()
            for child in our_children():
                seen.extend([*child.cmdline(), *child.environ().values()])
            assert not any(token in word for word in seen)
            return await super().ask(prompt)  # type: ignore[arg-type]

    async with reach(by_ssh(sshd), Curious("open sesame")) as endpoint, open_session(endpoint):
        for child in our_children():
            seen.extend([*child.cmdline(), *child.environ().values()])
        texts = [path.read_bytes() for path in private.rglob("*") if path.is_file()]
        assert texts and not any(b"open sesame" in text for text in texts)
    assert seen and not any("open sesame" in word for word in seen)
    assert list(private.iterdir()) == []


async def test_a_stranger_gets_nothing_from_the_socket(tmp_path: Path, sshd: SshServer) -> None:
    person = Person()
    async with OpenSshTransport(sshd.address, "box", person) as transport:
        reader, writer = await asyncio.open_unix_connection(transport._directory / "askpass.sock")
        writer.write(b'{"token": "guess", "question": "password?"}\n')
        assert await asyncio.wait_for(reader.read(), 5) == b""
        writer.close()
    assert person.asked == []


async def test_errors_of_ssh_are_typed(sshd: SshServer, console_home: Path, user_config: UserConfig) -> None:
    async def fails(**profile: object) -> LinkError:
        with pytest.raises(LinkError) as caught:
            await start_once(by_ssh(sshd, **profile))
        return caught.value

    closed = await fails(address="nobody@127.0.0.1:1")
    assert isinstance(closed, ConnectError) and "refuses the connection" in closed.message
    unknown = await fails(address="no-such-host.invalid")
    assert isinstance(unknown, ConnectError) and "no host named" in unknown.message
    (console_home / ".ssh" / "id_ed25519").unlink()
    denied = await fails()
    assert isinstance(denied, AuthenticationError) and "publickey" in denied.message
    user_config.set("Host *\n  NoSuchOption yes\n")
    broken = await fails()
    assert isinstance(broken, ConnectError) and "configuration" in broken.message


@pytest.mark.parametrize(
    "address", ["x;touch${IFS}y", "a`id`", "$(id)", "a|b@host", "me'@host", "a&b", "%(x)", "a\\b@h"]
)
async def test_names_with_shell_signs_are_refused(address: str, sshd: SshServer) -> None:
    with pytest.raises(AddressError):
        await start_once(by_ssh(sshd, address=address))


async def test_a_host_without_python_is_the_same_error(
    start_sshd: StartSshd, console_home: Path, tmp_path: Path
) -> None:
    (tmp_path / "empty").mkdir()
    server = start_sshd(path=str(tmp_path / "empty"))
    introduce(server, console_home)
    with pytest.raises(NoPython):
        await start_once(by_ssh(server))


async def test_a_lost_connection_is_told(sshd: SshServer, tmp_path: Path) -> None:
    async with reach(by_ssh(sshd, workspace=tmp_path)) as endpoint, open_session(endpoint) as connected:
        sshd.drop_connections()
        error = await asyncio.wait_for(connected.session.lost(), 10)
    assert isinstance(error, ConnectionLost) and "box" in error.message


async def test_settings_for_people_do_not_stand_in_the_way(
    sshd: SshServer, user_config: UserConfig, tmp_path: Path
) -> None:
    user_config.add(
        f"  RemoteCommand touch {tmp_path}/ran\n  RequestTTY force\n  ForwardAgent yes\n"
        f"  LocalForward 127.0.0.1:{sshd.port} 127.0.0.1:1\n  ExitOnForwardFailure yes\n  SessionType none\n"
        f"  LocalCommand touch {tmp_path}/local\n  PermitLocalCommand yes\n"
    )
    await start_once(by_ssh(sshd))
    assert not (tmp_path / "ran").exists() and not (tmp_path / "local").exists()


async def test_a_control_master_is_shared_and_left_alone(
    sshd: SshServer, user_config: UserConfig, tmp_path_factory: pytest.TempPathFactory
) -> None:
    control = tmp_path_factory.mktemp("cm") / "s"
    user_config.add(f"  ControlMaster auto\n  ControlPath {control}\n  ControlPersist 60\n")
    try:
        await start_once(by_ssh(sshd))
        assert control.exists()
        await start_once(by_ssh(sshd))
        assert sshd.log().count("Accepted publickey") == 1
    finally:
        leave = ["-o", f"ControlPath={control}", "-O", "exit", "x"]
        await (await asyncio.create_subprocess_exec("ssh", *leave, stderr=subprocess.DEVNULL)).wait()


async def test_ssh_ends_with_a_killed_console(sshd: SshServer, tmp_path: Path, console_home: Path) -> None:
    lock(console_home / ".ssh" / "id_ed25519", "open sesame")
    script = (
        "import asyncio, sys\n"
        "from eagle_console.config import HostProfile\n"
        "from eagle_console.link.connect import Target, connect\n"
        "class P:\n"
        "    available = True\n"
        "    async def ask(self, prompt):\n"
        "        print('asked', flush=True)\n"
        "        if sys.argv[2] == 'hang': await asyncio.Event().wait()\n"
        "        return 'open sesame'\n"
        "    def tell(self, host, words): pass\n"
        "async def main():\n"
        "    async with connect(Target(HostProfile('box', sys.argv[1], transport='ssh')), None, P()):\n"
        "        print('live', flush=True)\n"
        "        await asyncio.Event().wait()\n"
        "asyncio.run(main())\n"
    )
    for mode, words in (("hang", ["asked"]), ("go", ["asked", "live"])):
        console = await asyncio.create_subprocess_exec(
            sys.executable, "-c", script, sshd.address, mode, stdout=asyncio.subprocess.PIPE
        )
        assert console.stdout is not None
        for word in words:
            assert (await asyncio.wait_for(console.stdout.readline(), 20)).decode().strip() == word
        children = psutil.Process(console.pid).children(recursive=True)
        assert any(child.name() == "ssh" for child in children)
        console.kill()
        await console.wait()
        _, alive = await asyncio.to_thread(psutil.wait_procs, children, 10)
        assert alive == []
