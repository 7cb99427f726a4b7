"""What there is to forward of a job: pure."""

from __future__ import annotations

from urllib.parse import urlsplit

from remote.protocol.errors import CONFLICT, RequestError
from remote.protocol.jobs import KIND_SERVICE, LIVE_STATES, Job


def port_of(job: Job) -> int:
    """The port of a job's server on its host.

    :raises RequestError: when the job has no server, or has none any more.
    """
    if job.kind != KIND_SERVICE:
        raise RequestError(CONFLICT, f"{job.id} is a {job.kind}: it has no server to reach")
    if job.state not in LIVE_STATES:
        raise RequestError(CONFLICT, f"{job.id} has ended ({job.state}): its server is gone")
    try:
        port = urlsplit(job.health_url or "").port
    except ValueError:
        port = None
    if not port:
        raise RequestError(CONFLICT, f"{job.id} names no port of its server")
    return port


def model_of(job: Job) -> str:
    """The name of the model in requests; empty where the job does not say."""
    parameters = job.parameters
    return str(parameters.get("served_model_name") or parameters.get("verifier") or "")


def url_of(port: int) -> str:
    """The server's address on this machine."""
    return f"http://127.0.0.1:{port}"
