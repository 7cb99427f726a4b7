"""The link against a real OpenSSH server: login, host keys, the bootstrap and what stands in its way."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from link.sshd import SshServer, introduce, ssh_keygen, target

from eagle_console.link import hostkeys
from eagle_console.link.bootstrap import EXEC_LINE, BootstrapResult
from eagle_console.link.connect import Target, connect, open_session, reach
from eagle_console.link.errors import (
    AuthenticationError,
    BootstrapError,
    ChangedHostKey,
    ConnectError,
    ConnectionLost,
    NoPython,
    UnknownHostKey,
)

pytestmark = pytest.mark.system

StartSshd = Callable[..., SshServer]


async def start_once(to: Target) -> BootstrapResult:
    async with reach(to) as endpoint, open_session(endpoint) as connected:
        assert connected.session.hello.bundle_dir == connected.bootstrap.directory
        return connected.bootstrap


async def test_the_second_connect_uploads_nothing(sshd: SshServer) -> None:
    first, second = await start_once(target(sshd)), await start_once(target(sshd))
    assert first.uploaded_bytes > 50_000
    assert second.uploaded_bytes == 0
    assert first.directory == second.directory
    assert Path(first.directory).parent == sshd.cache
    assert os.stat(first.directory).st_mode & 0o777 == 0o700
    assert not list(sshd.cache.glob(".new-*"))


async def test_a_bundle_with_a_missing_file_is_sent_again(sshd: SshServer) -> None:
    first = await start_once(target(sshd))
    (Path(first.directory) / "lib" / "remote" / "outbox.py").unlink()
    assert (await start_once(target(sshd))).uploaded_bytes > 0
    assert (await start_once(target(sshd))).uploaded_bytes == 0


async def test_consoles_that_upload_at_once_are_all_served(sshd: SshServer) -> None:
    results = await asyncio.gather(*(start_once(target(sshd)) for _ in range(4)))
    assert len({result.directory for result in results}) == 1
    assert [entry.name for entry in sshd.cache.iterdir()] == [Path(results[0].directory).name]


async def test_a_request_is_answered_over_ssh(sshd: SshServer, tmp_path: Path) -> None:
    async with connect(target(sshd, tmp_path), 30) as client:
        assert client.hello.workspace == str(tmp_path)
        assert (await client.host()).cpus >= 1
        assert (await client.jobs()).jobs == ()


async def test_an_unknown_key_is_a_question_and_trusting_it_answers_it(
    start_sshd: StartSshd, console_home: Path
) -> None:
    server = start_sshd()
    introduce(server, console_home)
    (console_home / ".ssh" / "known_hosts").unlink()
    with pytest.raises(UnknownHostKey) as caught:
        await start_once(target(server))
    question = caught.value.question
    assert question.fingerprint == server.fingerprint
    assert (question.host, question.port, question.algorithm) == ("127.0.0.1", server.port, "ssh-ed25519")
    assert caught.value.remedy.endswith("eagle-console hosts trust box")
    path = hostkeys.trust(question)
    assert path.stat().st_mode & 0o777 == 0o600
    await start_once(target(server))


async def test_no_setting_turns_the_check_off(start_sshd: StartSshd, console_home: Path) -> None:
    server = start_sshd()
    introduce(server, console_home)
    (console_home / ".ssh" / "known_hosts").unlink()
    config = console_home / ".ssh" / "config"
    for setting in ("UserKnownHostsFile none", "UserKnownHostsFile /dev/null", "StrictHostKeyChecking no"):
        config.write_text(f"Host *\n  {setting}\n")
        with pytest.raises(UnknownHostKey):
            await start_once(target(server))


async def test_a_changed_key_is_refused_with_file_and_line(
    start_sshd: StartSshd, console_home: Path, tmp_path: Path
) -> None:
    server, other = start_sshd(), start_sshd("other")
    introduce(server, console_home)
    known = console_home / ".ssh" / "known_hosts"
    known.write_text(f"# a comment\n[127.0.0.1]:{server.port} {other.host_key}\n")
    with pytest.raises(ChangedHostKey) as caught:
        await start_once(target(server))
    assert f"{known} line 2" in caught.value.message
    assert server.fingerprint in caught.value.message
    assert f"ssh-keygen -R '[127.0.0.1]:{server.port}' -f '{known}'" in caught.value.remedy


async def test_a_changed_key_is_refused_although_our_own_file_has_another(
    start_sshd: StartSshd, console_home: Path
) -> None:
    server, other = start_sshd(), start_sshd("other")
    introduce(server, console_home)
    (console_home / ".ssh" / "known_hosts").unlink()
    own = hostkeys.known_hosts_path()
    own.parent.mkdir(parents=True)
    own.write_text(f"[127.0.0.1]:{server.port} {other.host_key}\n")
    with pytest.raises(ChangedHostKey) as caught:
        await start_once(target(server))
    assert f"{own} line 1" in caught.value.message


async def test_a_revoked_key_is_refused(sshd: SshServer, console_home: Path) -> None:
    with (console_home / ".ssh" / "known_hosts").open("a") as known:
        known.write(f"@revoked * {sshd.host_key}\n")
    with pytest.raises(ChangedHostKey, match="revoked"):
        await start_once(target(sshd))


async def test_hashed_entries_and_broken_lines_are_read(sshd: SshServer, console_home: Path) -> None:
    known = console_home / ".ssh" / "known_hosts"
    ssh_keygen("-H", "-f", str(known))
    known.write_text("half-a-line\n|1|broken ssh-ed25519 AAAA\n" + known.read_text())
    assert "127.0.0.1" not in known.read_text()
    await start_once(target(sshd))


async def test_a_key_signed_by_a_known_authority_is_enough(
    start_sshd: StartSshd, console_home: Path, tmp_path: Path
) -> None:
    authority = tmp_path / "authority"
    ssh_keygen("-q", "-t", "ed25519", "-N", "", "-f", str(authority))
    start_sshd("host")  # makes the keys
    public = tmp_path / "host" / "host_ed25519.pub"
    ssh_keygen("-q", "-s", str(authority), "-I", "host", "-h", "-n", "127.0.0.1", str(public))
    server = start_sshd("host", config=f"HostCertificate {tmp_path}/host/host_ed25519-cert.pub")
    introduce(server, console_home)
    known = console_home / ".ssh" / "known_hosts"
    known.write_text(f"@cert-authority * {(tmp_path / 'authority.pub').read_text()}")
    await start_once(target(server))
    known.write_text("")
    with pytest.raises(UnknownHostKey) as caught:
        await start_once(target(server))
    assert caught.value.question.fingerprint == server.fingerprint


async def test_the_ssh_configuration_gives_name_port_key_and_alias(start_sshd: StartSshd, console_home: Path) -> None:
    server = start_sshd()
    identity = console_home / "key"
    shutil.copy(server.identity, identity)
    (console_home / ".ssh" / "config").write_text(
        f"Host gpu\n  HostName 127.0.0.1\n  Port {server.port}\n  User {server.address.partition('@')[0]}\n"
        f"  IdentityFile {identity}\n  HostKeyAlias the-gpu-box\n  UserKnownHostsFile ~/.ssh/gpu_hosts\n"
    )
    (console_home / ".ssh" / "gpu_hosts").write_text(f"the-gpu-box {server.host_key}\n")
    await start_once(target(server, address="gpu"))


async def test_the_key_of_a_jump_host_is_checked_too(start_sshd: StartSshd, console_home: Path) -> None:
    jump, server = start_sshd("jump"), start_sshd()
    (jump.directory / "authorized_keys").write_text(server.identity.with_suffix(".pub").read_text())
    introduce(server, console_home)
    (console_home / ".ssh" / "config").write_text(
        f"Host inner\n  HostName 127.0.0.1\n  Port {server.port}\n  ProxyJump {jump.address}\n"
    )
    with pytest.raises(UnknownHostKey) as caught:
        await start_once(target(server, address="inner"))
    assert caught.value.question.port == jump.port
    hostkeys.trust(caught.value.question)
    await start_once(target(server, address="inner"))
    assert "Accepted publickey" in jump.log()


async def test_noise_of_rc_files_is_skipped(sshd: SshServer) -> None:
    (sshd.home / ".bashrc").write_text('echo "Welcome to {gpu}"\nprintf "no newline at the end"\necho oops >&2\n')
    assert (await start_once(target(sshd))).uploaded_bytes > 0
    assert (await start_once(target(sshd))).uploaded_bytes == 0


async def test_endless_noise_is_an_error(start_sshd: StartSshd, console_home: Path) -> None:
    server = start_sshd(config='ForceCommand yes "all work and no play"')
    introduce(server, console_home)
    with pytest.raises(BootstrapError, match="before the agent started"):
        await start_once(target(server))


async def test_a_host_without_python_is_named_so(start_sshd: StartSshd, console_home: Path, tmp_path: Path) -> None:
    server = start_sshd(path=str(tmp_path / "nothing"))
    introduce(server, console_home)
    with pytest.raises(NoPython, match=r"tried python3, python3\.13"):
        await start_once(target(server))


async def test_a_forced_command_can_allow_exactly_our_line(
    start_sshd: StartSshd, console_home: Path, tmp_path: Path
) -> None:
    allowed = tmp_path / "allowed"
    allowed.write_text(EXEC_LINE)
    wrapper = tmp_path / "wrapper"
    wrapper.write_text(
        f'#!/bin/sh\n[ "$SSH_ORIGINAL_COMMAND" = "$(cat {allowed})" ] && eval "$SSH_ORIGINAL_COMMAND"\n'
        'echo "only the console may run here" >&2\nexit 126\n'
    )
    wrapper.chmod(0o755)
    server = start_sshd(authorized_options=f'restrict,command="{wrapper}"')
    introduce(server, console_home)
    await start_once(target(server))
    allowed.write_text("something else")
    with pytest.raises(BootstrapError, match=r"exit status 126.*only the console may run here"):
        await start_once(target(server))


async def test_a_full_cache_directory_falls_back(start_sshd: StartSshd, console_home: Path, tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    server = start_sshd(environment={"XDG_CACHE_HOME": str(blocked)})
    introduce(server, console_home)
    result = await start_once(target(server))
    assert result.directory.startswith(("/dev/shm/eagle_console-", "/tmp/eagle_console-"))
    shutil.rmtree(result.directory)


async def test_refused_logins_are_authentication_errors(sshd: SshServer, console_home: Path) -> None:
    identity = console_home / ".ssh" / "id_ed25519"
    ssh_keygen("-q", "-p", "-N", "secret", "-f", str(identity))
    with pytest.raises(AuthenticationError) as caught:
        await start_once(target(sshd))
    assert "ssh-add" in caught.value.remedy
    identity.unlink()
    with pytest.raises(AuthenticationError):
        await start_once(target(sshd))


async def test_a_closed_port_and_an_unknown_name_are_connect_errors(sshd: SshServer) -> None:
    with pytest.raises(ConnectError, match="refuses the connection"):
        await start_once(target(sshd, address="127.0.0.1:1"))
    with pytest.raises(ConnectError, match="no host named"):
        await start_once(target(sshd, address="nowhere.invalid"))


async def test_a_dropped_connection_ends_what_waits(sshd: SshServer) -> None:
    async with connect(target(sshd), 30) as client:
        events = client.session.subscribe("host", 0.2)
        await events.__anext__()
        sshd.drop_connections()
        with pytest.raises(ConnectionLost):
            while True:
                await events.__anext__()
        with pytest.raises(ConnectionLost):
            await client.host()
