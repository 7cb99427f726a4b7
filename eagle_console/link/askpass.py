"""The program that ssh runs to ask something (SSH_ASKPASS in ssh(1)): hands the question to the console.

It stands alone and knows only the standard library. Question and answer travel over a private socket; the answer is
never on a command line, in the environment or in a file. A question that gets no answer ends the ssh that asked:
ssh would otherwise send an empty password to the host, and servers count those.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys

SOCKET = "askpass.sock"
TOKEN = "token"


def main(directory: str, question: str) -> int:
    """Asks the console and prints the answer for ssh.

    :param directory: holds the socket and the token that opens it.
    """
    asking_ssh = os.getppid()
    reply = _ask(directory, {"question": question, "kind": os.environ.get("SSH_ASKPASS_PROMPT", "")})
    if "answer" in reply:
        sys.stdout.write(f"{reply['answer']}\n")
        return 0
    if not reply.get("skip"):
        os.kill(asking_ssh, signal.SIGTERM)
    return 1


def _ask(directory: str, request: dict[str, str]) -> dict[str, object]:
    try:
        with open(os.path.join(directory, TOKEN), encoding="ascii") as file:
            request["token"] = file.read()
        with socket.socket(socket.AF_UNIX) as link:
            link.connect(os.path.join(directory, SOCKET))
            link.sendall(json.dumps(request).encode() + b"\n")
            with link.makefile("rb") as answers:
                reply = json.loads(answers.readline() or b"{}")
    except (OSError, ValueError):
        return {}
    return reply if isinstance(reply, dict) else {}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else ""))
