"""What ssh says, and what we make of it; and the ssh options that are named because they are not followed."""

from __future__ import annotations

from pathlib import Path

import pytest

from eagle_console.link import ssherrors
from eagle_console.link.address import Address, parse_address
from eagle_console.link.errors import (
    AddressError,
    AuthenticationError,
    ChangedHostKey,
    ConnectError,
    HostKeyError,
    LinkError,
)
from eagle_console.link.sshconfig import Effective, configuration, destination, jump_word, require_safe
from eagle_console.link.sshoptions import ignored

CHANGED = """\
@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@\r
@    WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED!     @\r
It is also possible that a host key has just been changed.\r
The fingerprint for the ED25519 key sent by the remote host is\r
SHA256:oVd1l0sYw3Zr/Yk+8n1c0Qm.\r
Please contact your system administrator.\r
Add correct host key in /home/me/known hosts to get rid of this message.\r
Offending ECDSA key in /home/me/known hosts:7\r
Host key for [box]:2222 has changed and you have requested strict checking.\r
Host key verification failed.\r
"""


@pytest.mark.parametrize(
    ("words", "kind", "part"),
    [
        (CHANGED, ChangedHostKey, "/home/me/known hosts line 7"),
        ("WARNING: REVOKED HOST KEY DETECTED!\r\nHost key verification failed.\r\n", ChangedHostKey, "revoked"),
        ("Host key verification failed.\r\n", HostKeyError, "cannot be verified"),
        ("me@box: Permission denied (publickey,password).\r\n", AuthenticationError, "publickey,password"),
        ("Received disconnect from box port 22:2: Too many authentication failures\r\n", AuthenticationError, "many"),
        ("ssh: Could not resolve hostname bix: Name or service not known\r\n", ConnectError, "no host named bix"),
        ("ssh: connect to host box port 22: Connection refused\r\n", ConnectError, "refuses the connection"),
        ("ssh: connect to host box port 22: Connection timed out\r\n", ConnectError, "in time"),
        ("Unable to negotiate with 1.2.3.4 port 22: no matching host key type found. Their offer: ssh-rsa,ssh-dss\r\n",
         ConnectError, "no host key type in common; it offers ssh-rsa,ssh-dss"),
        ("/x: line 1: Bad configuration option: nosuch\r\n/x: terminating, 1 bad configuration options\r\n",
         ConnectError, "cannot use its configuration"),
        ("kex_exchange_identification: Connection closed by remote host\r\n", ConnectError, "closed by remote host"),
        ("\x1b]0;owned\x07evil\r\n", ConnectError, "evil"),
        ("", ConnectError, "without a word"),
    ],
)  # fmt: skip
def test_errors(words: str, kind: type[LinkError], part: str) -> None:
    error = ssherrors.explain(words, "box")
    assert type(error) is kind and part in error.message
    assert error.message.isprintable()


def test_a_changed_key_comes_with_its_fingerprint_and_its_remedy() -> None:
    error = ssherrors.explain(CHANGED, "box")
    assert "SHA256:oVd1l0sYw3Zr/Yk+8n1c0Qm," in error.message and "of [box]:2222" in error.message
    assert error.remedy.endswith("ssh-keygen -R '[box]:2222' -f '/home/me/known hosts'")


def test_an_unknown_key_names_its_host() -> None:
    words = "No ED25519 host key is known for [127.0.0.1]:4022 and you have requested strict checking.\r\n"
    assert ssherrors.unknown_key_of(words) == "[127.0.0.1]:4022"
    assert ssherrors.unknown_key_of(CHANGED) is None


@pytest.mark.parametrize(
    "address",
    [Address("-oProxyCommand=x"), Address("a b"), Address("$(id)"), Address("a'b"), Address("h", "-l"),
     Address("h", "a;b"), Address("h\n"), Address("h", "`id`"), Address("h", "me\n")],
)  # fmt: skip
def test_unsafe_names_never_reach_ssh(address: Address) -> None:
    with pytest.raises(AddressError):
        require_safe(address)


def test_the_words_for_ssh() -> None:
    assert destination(parse_address("me@box:2222")) == ["-p", "2222", "--", "me@box"]
    assert destination(parse_address("box")) == ["--", "box"]
    assert jump_word(parse_address("me@[fe80::1]:22")) == "me@[fe80::1]:22"
    require_safe(parse_address("jane.doe+ops@gpu-box_1.example.org"))


def test_our_configuration_speaks_first_and_the_defaults_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    lines = configuration([Path("/a b/known"), Path("/100%")]).splitlines()
    assert lines.index("  StrictHostKeyChecking yes") < lines.index('Include "/home/me/.ssh/config"')
    assert lines.index("Include /etc/ssh/ssh_config") < lines.index("  ServerAliveInterval 5")
    assert '  UserKnownHostsFile "/a b/known" "/100%%"' in lines
    with pytest.raises(ConnectError):
        configuration([Path('/a"b')])


def effective(**values: str) -> Effective:
    return Effective({name: (value,) for name, value in values.items()})


def test_options_that_are_not_followed_are_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("KRB5CCNAME", "FILE:/tmp/ticket")
    key = tmp_path / "id"
    key.with_suffix(".pub").write_text("sk-ssh-ed25519@openssh.com AAAA")
    found = ignored(
        effective(
            gssapiauthentication="yes",
            pkcs11provider="/usr/lib/opensc.so",
            proxycommand="connect %h | tee log",
            knownhostscommand="/usr/bin/keys",
            identityfile=str(key),
            controlmaster="auto",
            forwardagent="yes",
        )
    )
    assert [option.option for option in found] == [
        "GSSAPIAuthentication", "PKCS11Provider", "ProxyCommand", "KnownHostsCommand", "IdentityFile",
    ]  # fmt: skip
    assert "fido2" in found[-1].sentence


def test_options_that_say_nothing_are_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KRB5CCNAME", raising=False)
    usual = effective(
        gssapiauthentication="no",
        pkcs11provider="none",
        proxyusefdpass="no",
        proxycommand="nc %h %p",
        revokedhostkeys="none",
    )
    assert ignored(usual) == []


def test_what_only_the_systems_file_says_is_named() -> None:
    both, user = effective(proxyjump="bastion", port="22"), effective(port="22")
    [option] = ignored(both, user)
    assert option.sentence == "proxyjump bastion: set in /etc/ssh/ssh_config, which the console does not read"
