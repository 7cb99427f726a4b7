"""The small parts of the link that need no host: addresses, targets, back-off, publishing, stderr, known hosts."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from eagle_console.config import Config, HostProfile
from eagle_console.link import hostkeys
from eagle_console.link.address import Address, parse_address
from eagle_console.link.backoff import DELAYS_SECONDS, Backoff
from eagle_console.link.connect import resolve
from eagle_console.link.errors import AddressError, HostKeyError, LinkError, UnknownHostKey
from eagle_console.link.publisher import PUBLISH_SECONDS, Publisher
from eagle_console.link.transport import STDERR_BYTES, StderrTail
from eagle_console.state import HostKeyQuestion


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("gpu-box", Address("gpu-box")),
        ("gpu-box:2222", Address("gpu-box", None, 2222)),
        ("root@gpu-box", Address("gpu-box", "root")),
        ("root@gpu-box:22", Address("gpu-box", "root", 22)),
        ("ssh://root@gpu-box:22/", Address("gpu-box", "root", 22)),
        ("me@[fe80::1%eth0]:2200", Address("fe80::1%eth0", "me", 2200)),
        ("[::1]", Address("::1")),
        ("10.0.0.7", Address("10.0.0.7")),
    ],
)
def test_addresses(text: str, address: Address) -> None:
    assert parse_address(text) == address


@pytest.mark.parametrize(
    "text",
    ["", " ", "a b", "-oProxyCommand=x", "me@-x", "-x@host", "a@b@c", "host:", "host:0", "host:70000", "host:2:2",
     "::1", "http://host", "host/path", "a\nb", "user@"],
)  # fmt: skip
def test_what_is_no_address(text: str) -> None:
    with pytest.raises(AddressError):
        parse_address(text)


def test_a_profile_wins_over_an_alias_of_its_name() -> None:
    profile = HostProfile("gpu-box", "root@10.0.0.7", workspace="/data")
    config = Config({"gpu-box": profile})
    assert resolve("gpu-box", config).profile == profile
    other = resolve("me@other:22", config)
    assert (other.name, other.profile.address, other.profile.workspace) == ("me@other:22", "me@other:22", None)
    assert resolve("local", config).profile.address == "local"
    with pytest.raises(AddressError):
        resolve("not an address", config)


def test_the_demo_has_its_profile_before_it_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EAGLE_CONSOLE_DEMO_HOME", str(tmp_path / "demo"))
    profile = resolve("demo", Config()).profile
    assert profile.workspace == str(tmp_path / "demo" / "workspace")
    assert not (tmp_path / "demo").exists()


def test_the_delays_grow_to_a_limit_and_start_again_after_a_healthy_link() -> None:
    longest, shortest = Backoff(lambda: 1.0), Backoff(lambda: 0.0)
    assert [longest.next_delay() for _ in range(7)] == [*DELAYS_SECONDS, 30.0, 30.0]
    assert [shortest.next_delay() for _ in range(5)] == [delay / 2 for delay in DELAYS_SECONDS]
    longest.lived(59.0)
    assert longest.next_delay() == 30.0
    longest.lived(60.0)
    assert longest.next_delay() == 1.0


async def test_publishing_is_at_once_and_then_in_turn() -> None:
    seen: list[tuple[int, float]] = []
    clock = asyncio.get_running_loop().time
    publisher = Publisher(0, lambda state: seen.append((state, clock())))
    for state in range(1, 4):
        publisher.update(state)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert [state for state, _ in seen] == [3]
    publisher.update(4)
    publisher.update(5)
    await asyncio.sleep(PUBLISH_SECONDS + 0.1)
    assert [state for state, _ in seen] == [3, 5]
    assert seen[1][1] - seen[0][1] >= PUBLISH_SECONDS * 0.9
    publisher.update(6)
    publisher.flush()
    publisher.flush()
    assert [state for state, _ in seen] == [3, 5, 6]


def test_of_stderr_the_end_is_kept() -> None:
    tail = StderrTail()
    for number in range(10_000):
        tail.add(b"line %d\n" % number)
    assert len(tail.text()) == STDERR_BYTES
    assert tail.text().endswith("line 9999\n")


def test_a_trusted_key_is_added_to_our_own_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    for number in range(2):
        question = HostKeyQuestion("h", 22, "ssh-ed25519", "SHA256:x", f"h ssh-ed25519 AAAA{number}")
        path = hostkeys.trust(question)
    assert path == tmp_path / "eagle-console" / "known_hosts"
    assert path.read_text() == "h ssh-ed25519 AAAA0\nh ssh-ed25519 AAAA1\n"
    assert path.stat().st_mode & 0o777 == 0o600
    path.unlink()
    path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(HostKeyError):
        hostkeys.trust(question)
    assert not (tmp_path / "elsewhere").exists()


def test_the_files_of_known_hosts_in_their_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    assert hostkeys.sources(["~/.ssh/known_hosts", "/x"]) == [
        tmp_path / ".ssh" / "known_hosts",
        Path("/x"),
        Path("/etc/ssh/ssh_known_hosts"),
        tmp_path / ".local" / "state" / "eagle-console" / "known_hosts",
    ]


def test_errors_say_what_to_do() -> None:
    error = UnknownHostKey(HostKeyQuestion("h", 2222, "ssh-ed25519", "SHA256:x", "line"), "gpu-box")
    assert isinstance(error, LinkError)
    assert str(error) == "the ssh-ed25519 key of h port 2222 is not known: SHA256:x"
    assert "eagle-console hosts trust gpu-box" in error.remedy


def test_what_a_host_says_in_an_error_is_printable() -> None:
    error = LinkError("box ended: \x1b]0;owned\x07 \x1b[31m[/red]\nsecond line")
    assert str(error) == error.message
    assert error.message.isprintable()
    assert "[/red] second line" in error.message
