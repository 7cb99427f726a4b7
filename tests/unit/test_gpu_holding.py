"""Who holds GPU memory, what may be ended, and what explains memory without a process."""

from __future__ import annotations

from dataclasses import replace

import pytest

from remote.gpus.holding import PidFacts, Surroundings, holders
from remote.gpus.leftover import Evidence, explain
from remote.protocol.adopted import KIND_ORPHAN, KIND_SERVER, Adopted
from remote.protocol.freeing import GpuHolder, GpuShare
from remote.protocol.gpu import DRIVER_OK, GPU_ERROR, GPU_LOST, GPU_OK, Gpu, GpuProcess, GpuSnapshot
from remote.protocol.jobs import ProcessId

GIB = 2**30
ME = 1000


def process(pid: int) -> ProcessId:
    return ProcessId(pid, 10 * pid, "boot")


def facts(pid: int, uid: int = ME, device: bool | None = True) -> PidFacts:
    return PidFacts(process(pid), uid, "me" if uid == ME else "ann", "python", "python train.py", 60.0, device)


def snapshot(*held: tuple[int, ...]) -> GpuSnapshot:
    """A GPU for each tuple of pids; each pid holds 2 GiB."""
    gpus = tuple(
        Gpu(index, GPU_OK, 0.0, memory_used=2 * GIB * len(pids),
            processes=tuple(GpuProcess(pid, 2 * GIB) for pid in pids))
        for index, pids in enumerate(held)
    )  # fmt: skip
    return GpuSnapshot(DRIVER_OK, gpus)


def one(found: PidFacts | None, around: Surroundings = Surroundings(user=ME)) -> GpuHolder:  # noqa: B008 - immutable
    (holder,) = holders(snapshot((7,)), {7: found} if found else {}, around)
    return holder


def test_a_process_on_two_gpus_is_one_holder_with_both_shares() -> None:
    first, second = holders(snapshot((7, 8), (7,)), {7: facts(7), 8: facts(8)}, Surroundings(user=ME))
    assert (first.pid, first.memory, first.shares) == (7, 4 * GIB, (GpuShare(0, 2 * GIB), GpuShare(1, 2 * GIB)))
    assert (second.pid, second.main, second.refused) == (8, process(8), "")


def test_memory_that_nvml_does_not_say_is_unknown() -> None:
    shot = GpuSnapshot(DRIVER_OK, (Gpu(0, GPU_OK, 0.0, processes=(GpuProcess(7),)),))
    assert holders(shot, {7: facts(7)}, Surroundings(user=ME))[0].memory is None


@pytest.mark.parametrize(
    ("found", "around", "words", "force"),
    [
        (facts(7), Surroundings(user=ME), "", ""),
        (facts(7, device=None), Surroundings(user=ME), "", ""),
        (None, Surroundings(user=ME), "cannot be seen here", ""),
        (facts(7, device=False), Surroundings(user=ME), "no GPU device open", ""),
        (facts(7), Surroundings(user=ME, ancestors={7}), "this connection itself", ""),
        (facts(7), Surroundings({7: "serve-1"}, user=ME), "the running job serve-1", "serve-1"),
        (facts(7, uid=2), Surroundings(user=ME), "only that user or root", ""),
        (facts(7, uid=2), Surroundings(user=0), "another user, ann", "ann"),
        (facts(7, uid=2), Surroundings({7: "serve-1"}, user=0), "the running job serve-1", "serve-1"),
    ],
)
def test_what_protects_a_holder(found: PidFacts | None, around: Surroundings, words: str, force: str) -> None:
    holder = one(found, around)
    assert words in holder.refused if words else holder.refused == ""
    assert holder.force == force


@pytest.mark.parametrize(("kind", "orphan"), [(KIND_SERVER, False), (KIND_ORPHAN, True)])
def test_a_part_of_a_program_ends_with_the_whole_program(kind: str, orphan: bool) -> None:
    record = Adopted("adopted-5", "tiny", kind, "running", main=process(5), processes=(process(5), process(7)))
    holder = one(facts(7), Surroundings(programs=(record,), user=ME))
    assert holder.main == process(5) and holder.members == (process(5), process(7))
    assert holder.orphan is orphan and holder.program == f"{kind} tiny"


def test_a_program_that_had_the_same_pids_before_is_another_one() -> None:
    earlier = replace(process(7), start_ticks=1)
    record = Adopted("adopted-5", "tiny", KIND_SERVER, "running", main=process(5), processes=(earlier,))
    assert one(facts(7), Surroundings(programs=(record,), user=ME)).main == process(7)


def gpu(**more: object) -> Gpu:
    return replace(Gpu(0, GPU_OK, 0.0, memory_used=GIB), **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("card", "held", "evidence", "words"),
    [
        (gpu(memory_used=0), (), Evidence(), ""),
        (gpu(), (GpuHolder(7, (GpuShare(0, GIB),), process=process(7)),), Evidence(mps=(3,)), ""),
        (gpu(), (GpuHolder(7, (GpuShare(1, GIB),), process=process(7)),), Evidence(), "no process is named"),
        (gpu(), (GpuHolder(7, (GpuShare(0, GIB),)),), Evidence(mps=(3,)), "process 7, which cannot be seen here"),
        (gpu(), (), Evidence(mps=(3,)), "an MPS server runs (process 3)"),
        (gpu(), (), Evidence(xids=("Xid 79 at PCI:0000:65:00",)), "Xid 79"),
        (gpu(state=GPU_LOST), (), Evidence(), "lost"),
        (gpu(state=GPU_ERROR), (), Evidence(), "cannot be read"),
        (gpu(memory_used=None), (), Evidence(), "cannot be read"),
    ],
)
def test_what_explains_memory(card: Gpu, held: tuple[GpuHolder, ...], evidence: Evidence, words: str) -> None:
    said = explain(card, held, evidence)
    assert words in said if words else said == ""
