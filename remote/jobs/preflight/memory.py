"""Is there enough memory: on the GPUs, in the host, in ``/dev/shm``?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Optional

from pipeline.plan import memory_needs, purpose
from pipeline.plan.commands import DRAFT
from pipeline.plan.memory_needs import GPU_SHARE, SHM_SERVER_BYTES, ServerNeed, TrainingNeed
from pipeline.plan.needs import gigabytes
from pipeline.plan.stage import Stage
from pipeline.plan.training import Machine, SettingsError
from pipeline.plan.verifier_config import VerifierConfig
from remote.jobs.facts import Facts
from remote.jobs.preflight.rules import GPU_MEMORY, MEMORY, SHARED_MEMORY
from remote.protocol.gpu import GPU_OK, Gpu
from remote.protocol.stages import VERDICT_BLOCKED, VERDICT_OK, VERDICT_WARNING, Check

EMPTY = "end what holds it (eagle-console gpus HOST shows it)"


def checks(stage: Stage, facts: Facts) -> Iterator[Check]:
    """The servers that the stage starts, then its training."""
    config = facts.verifier.config if facts.verifier else None
    if config is None:
        return
    servers = purpose.servers(stage.name, facts.parameters)
    training = dict(purpose.parts(stage.name, facts.parameters)).get("train")
    if (servers or training) and not facts.cpu_only and facts.host.gpus is None:
        yield Check(
            GPU_MEMORY,
            VERDICT_WARNING,
            "no GPU can be read here (NVML), so what is free is not known",
            "see gpus HOST; without a GPU make the CPU environment: setup set=cpu",
        )
    if servers:
        yield from _servers(servers, facts, config)
    if training:
        yield from _training(training, facts, config)


def _servers(servers: Sequence[Mapping[str, Any]], facts: Facts, config: VerifierConfig) -> Iterator[Check]:
    weights = facts.verifier.weight_bytes if facts.verifier else 0
    total, available = facts.host.memory_total, facts.host.memory_available
    if facts.cpu_only:
        need = max(memory_needs.cpu_server(server, config, weights) for server in servers)
        yield from _host(need, f"the verifier and its cache on the CPU take {gigabytes(need)}", total, available)
        return
    draft = facts.draft.weight_bytes if facts.draft else 0
    needs = [memory_needs.server(one, config, weights, draft if one.get("kind") == DRAFT else 0) for one in servers]
    largest = max(range(len(needs)), key=lambda index: needs[index].total)
    if facts.host.gpus is not None:
        yield _gpus_of_server(servers[largest], needs[largest], facts.host.gpus)
    need = max(memory_needs.gpu_server_host(server) for server in servers)
    yield from _host(need, f"the server's processes take about {gigabytes(need)}", total, available)
    if total is not None and weights > total:
        yield Check(
            MEMORY,
            VERDICT_WARNING,
            f"the checkpoint of {gigabytes(weights)} is larger than the memory of {gigabytes(total)}:"
            " every load reads all of it from the disk",
            "keep one server running for several stages: serve, then endpoint=URL",
        )
    gpus = max(int(server.get("tensor_parallel") or 1) for server in servers)
    if gpus > 1:
        yield from _shared(SHM_SERVER_BYTES, f"the queues between {gpus} worker processes", facts)


def _gpus_of_server(server: Mapping[str, Any], need: ServerNeed, gpus: Sequence[Gpu]) -> Check:
    count = int(server.get("tensor_parallel") or 1)
    share = float(server.get("gpu_memory_utilization") or GPU_SHARE)
    fewer = _too_few(count, gpus)
    if fewer is not None:
        return fewer
    for gpu in gpus[:count]:
        total, free = gpu.memory_total or 0, _free(gpu)
        if free is None:
            continue
        wanted = int(share * total)
        if need.total > wanted:
            return Check(
                GPU_MEMORY,
                VERDICT_BLOCKED,
                f"each of {count} GPUs would need {gigabytes(need.total)} ({need.words}), and GPU {gpu.index} gives"
                f" {gigabytes(wanted)} ({share:.0%} of {gigabytes(total)})",
                "more GPUs (tensor_parallel), a shorter max_model_len or fewer max_num_batched_tokens",
            )
        if free < wanted:
            return Check(
                GPU_MEMORY,
                VERDICT_BLOCKED,
                f"GPU {gpu.index} has {gigabytes(free)} free, and vLLM takes {gigabytes(wanted)}"
                f" ({share:.0%} of {gigabytes(total)}) or does not start{_holders(gpu)}",
                f"{EMPTY}, or gpu_memory_utilization={max(0.05, int(100 * free / total) / 100):.2f}",
            )
    return Check(GPU_MEMORY, VERDICT_OK, f"{gigabytes(need.total)} on each of {count} GPUs: {need.words}")


def _training(values: Mapping[str, Any], facts: Facts, config: VerifierConfig) -> Iterator[Check]:
    gpus = () if facts.cpu_only else facts.host.gpus or ()
    sizes = [gpu.memory_total for gpu in gpus if gpu.memory_total]
    limit = values.get("gpus") or len(gpus)
    machine = Machine(
        gpus=0 if facts.cpu_only else min(len(gpus), limit) or 1,
        cores=facts.host.cores,
        gpu_memory=min(sizes) if sizes else None,
        shared_memory=facts.host.shm_free,
    )
    try:
        need = memory_needs.train(values, config, facts.run, machine)
    except SettingsError:
        return  # the dry run says so, and nothing starts
    if gpus:
        yield _gpus_of_trainer(need, gpus)
    yield from _shared(need.shared, "the batches that wait for the trainer", facts)
    words = f"training takes about {gigabytes(need.host)} of the host's memory"
    yield from _host(need.host, words, facts.host.memory_total, facts.host.memory_available)


def _gpus_of_trainer(need: TrainingNeed, gpus: Sequence[Gpu]) -> Check:
    fewer = _too_few(need.processes, gpus)
    if fewer is not None:
        return fewer
    for gpu in gpus[: need.processes]:
        free = _free(gpu)
        if free is not None and need.gpu > free:
            return Check(
                GPU_MEMORY,
                VERDICT_BLOCKED,
                f"GPU {gpu.index} has {gigabytes(free)} free, and training needs {gigabytes(need.gpu)} ({need.words})"
                f"{_holders(gpu)}",
                f"{EMPTY}, or a smaller total_seq_len",
            )
    return Check(GPU_MEMORY, VERDICT_OK, f"{gigabytes(need.gpu)} on each of {need.processes} GPUs: {need.words}")


def _too_few(count: int, gpus: Sequence[Gpu]) -> Optional[Check]:
    usable = [gpu for gpu in gpus if gpu.state == GPU_OK]
    if len(usable) >= count:
        return None
    return Check(
        GPU_MEMORY,
        VERDICT_BLOCKED,
        f"{count} GPUs are wanted, and {len(usable)} of this host's {len(gpus)} can be used",
        f"tensor_parallel={max(1, len(usable))}, or look why the others are lost",
    )


def _shared(need: int, what: str, facts: Facts) -> Iterator[Check]:
    free = facts.host.shm_free
    if free is None:
        return
    if need > free:
        yield Check(
            SHARED_MEMORY,
            VERDICT_BLOCKED,
            f"{what} need {gigabytes(need)} of /dev/shm, and {gigabytes(free)} are free",
            "remove old files there, or start the container with a larger one (--shm-size)",
        )
    else:
        yield Check(SHARED_MEMORY, VERDICT_OK, f"{what} take {gigabytes(need)} of {gigabytes(free)} in /dev/shm")


def _host(need: int, words: str, total: Optional[int], available: Optional[int]) -> Iterator[Check]:
    if total is None or available is None:
        return
    if need > total:
        yield Check(MEMORY, VERDICT_BLOCKED, f"{words}; this host has {gigabytes(total)}", "a host with more memory")
    elif need > available:
        yield Check(
            MEMORY,
            VERDICT_WARNING,
            f"{words}; {gigabytes(available)} of {gigabytes(total)} are available",
            "end what else runs here, or the kernel may end this job",
        )
    else:
        yield Check(MEMORY, VERDICT_OK, f"{words}; {gigabytes(available)} are available")


def _free(gpu: Gpu) -> Optional[int]:
    if gpu.memory_total is None or gpu.memory_used is None:
        return None
    return gpu.memory_total - gpu.memory_used - (gpu.memory_reserved or 0)


def _holders(gpu: Gpu) -> str:
    holders = [
        f"{process.job or process.name or 'a process'} (pid {process.pid}"
        + (f", {process.user}" if process.user else "")
        + (f", {gigabytes(process.memory)}" if process.memory else "")
        + ")"
        for process in gpu.processes or ()
    ]
    return f"; held by {', '.join(holders)}" if holders else ""
