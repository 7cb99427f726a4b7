"""speculators' own training command, watched: ``python -m pipeline.training.trainer --records FILE [...] -- OPTIONS``.

The options after ``--`` are those of ``speculators train``, resolved and run by its own code. Around it this process
writes records (``pipeline.training.records``): the phases of the silent start, where each epoch stands, every metric in
full precision, and every checkpoint; and it marks an interrupted checkpoint with its place in the epoch. Under torchrun
each process runs this module; the first one writes.
"""

from __future__ import annotations

import argparse
import logging
import os
import select
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Optional

from pipeline.training import checkpoints, gpu
from pipeline.training.checkpoints import INTERRUPTED
from pipeline.training.records import CONFIG, EPOCH, FAILED, PHASE, SAVED, STEP, TEXT, TRAIN, VAL, Writer
from pipeline.training.stopping import CommonStop

STEP_SECONDS = 0.5
"""Progress within an epoch is written at most this often."""

EMBEDDING = "embed_tokens.weight"


class Log(logging.Handler):
    """The root handler: metrics become records, sentences become records and lines of the log.

    With a root handler there the trainer installs no rich console, whose lines are cut at 80 columns.
    """

    def __init__(self, records: Writer) -> None:
        super().__init__()
        self._records = records

    def emit(self, record: logging.LogRecord) -> None:
        if not isinstance(record.msg, dict):
            text = record.getMessage()
            self._records.write(TEXT, level=record.levelname.lower(), text=text)
            sys.stdout.write(f"{record.levelname} {text}\n")
            sys.stdout.flush()
        elif getattr(record, "hparams", False):
            self._records.write(CONFIG, config=record.msg)
        else:
            kind = TRAIN if "train" in record.msg else VAL
            self._records.write(kind, step=getattr(record, "step", None), **record.msg)


class Nothing(Writer):
    """The records of a process that is not the first: none."""

    def __init__(self) -> None:
        pass

    def write(self, kind: str, **fields: Any) -> None:
        pass


class WatchedLoader:
    """The trainer's loader, with the time that its user waited for batches.

    :param arrived: called when a batch has arrived for the first time.
    :param device: a GPU to which the batches are copied ahead; None to leave that to the trainer.
    """

    def __init__(self, loader: Any, arrived: Callable[[], None], device: Any = None) -> None:
        self._loader, self._device = loader, device
        self._arrived: Optional[Callable[[], None]] = arrived
        self.waited = 0.0

    @property
    def batch_sampler(self) -> Any:
        return self._loader.batch_sampler

    def __len__(self) -> int:
        return len(self._loader)

    def __iter__(self) -> Iterator[Any]:
        batches = self._timed(iter(self._loader))
        return batches if self._device is None else gpu.on_device(batches, self._device)

    def _timed(self, batches: Iterator[Any]) -> Iterator[Any]:
        while True:
            began = time.monotonic()
            try:
                batch = next(batches)
            except StopIteration:
                return
            finally:
                self.waited += time.monotonic() - began
            if self._arrived is not None:
                self._arrived()
                self._arrived = None
            yield batch


def watched(trainer: Any, records: Writer, first: bool) -> Any:
    """speculators' trainer class with records of what it does.

    :param first: this process is the one that writes checkpoints.
    """

    class WatchedTrainer(trainer):  # type: ignore[misc]  # the trainer's package has no types
        _epoch = 0
        _local_step = 0
        _saving_since: Any = None
        train_loader: Any
        _started = False
        _stop: Optional[CommonStop] = None

        def setup_trainer(self) -> None:
            if first:
                _place_interrupted(Path(self.checkpointer.path), self.train_loader)
            if self.is_distributed:
                _barrier()
            self.checkpointer.previous_epoch = self.checkpointer._get_previous_epoch()
            super().setup_trainer()

        def setup_model(self) -> None:
            records.write(PHASE, name="move", detail="the model to its device")
            save = self.checkpointer.save_checkpoint

            def save_checkpoint(model: Any, optimizer: Any, epoch: Any, *arguments: Any, **options: Any) -> None:
                records.write(PHASE, name="save", detail=str(epoch))
                self._saving_since = time.monotonic()
                save(model, optimizer, epoch, *arguments, **options)

            self.checkpointer.save_checkpoint = save_checkpoint
            super().setup_model()

        def train_epoch(self, epoch: int, *, step_callback: Optional[Callable[[], None]] = None) -> None:
            loader: Any = self.train_loader
            loader.batch_sampler.set_epoch(epoch)
            steps = len(loader)
            self._epoch = epoch
            self._local_step = self._resume_local_step if epoch == self.current_epoch else 0
            begin = self._local_step
            left = steps - begin + (self.config.num_epochs - epoch - 1) * steps
            total = self.global_step + left
            if self.config.max_steps is not None:
                total = min(total, self.config.max_steps)
            place = {"epochs": self.config.num_epochs, "steps": steps, "total": total}
            records.write(EPOCH, epoch=epoch, local_step=begin, global_step=self.global_step, **place)
            if self.is_distributed and self._stop is None:
                self._stop = CommonStop()
            started = self._started
            if not started:
                records.write(PHASE, name="workers", detail="processes that load the data")
            watch = WatchedLoader(loader, self._first_batch, self.local_rank if self.device_type == "cuda" else None)
            began = told = time.monotonic()

            def stepped() -> None:
                nonlocal told, began
                self._local_step += 1
                now = time.monotonic()
                if self._local_step == begin + 1:
                    began, watch.waited = now, 0.0
                    if not started:
                        records.write(PHASE, name="train", detail=f"epoch {epoch + 1}")
                if now - told >= STEP_SECONDS or self._local_step in (begin + 1, steps):
                    told = now
                    share = watch.waited / (now - began) if now > began else None
                    records.write(
                        STEP, epoch=epoch, local_step=self._local_step, global_step=self.global_step, waiting=share
                    )
                if step_callback is not None:
                    step_callback()
                if self._stop is not None:
                    self._stop.compare()

            if started:
                records.write(PHASE, name="train", detail=f"epoch {epoch + 1}")
            self.train_loader = watch
            try:
                super().train_epoch(epoch, step_callback=stepped)
            finally:
                self.train_loader = loader

        def _first_batch(self) -> None:
            if not self._started:
                self._started = True
                compiled = self.device_type != "cpu"
                records.write(PHASE, name="compile" if compiled else "first step", detail="forward and backward")

        def val_epoch(self, epoch: int) -> Any:
            records.write(PHASE, name="validate", detail=f"epoch {epoch + 1}")
            return super().val_epoch(epoch)

        def maybe_save_checkpoint(self, epoch: Any, local_step: int = 0) -> None:
            self._saving_since = None
            super().maybe_save_checkpoint(epoch, local_step)
            if self._saving_since is None or not first:
                return
            folder = Path(self.checkpointer.path) / str(epoch)
            if epoch == INTERRUPTED:
                checkpoints.write_state(folder, checkpoints.standing(self._epoch, self._local_step, self.global_step))
            size = sum(file.stat().st_size for file in folder.iterdir())
            seconds = round(time.monotonic() - self._saving_since, 3)
            place = {"local_step": local_step, "global_step": self.global_step}
            records.write(SAVED, epoch=epoch, path=str(folder), bytes=size, seconds=seconds, **place)

    return WatchedTrainer


def _place_interrupted(save_path: Path, loader: Any) -> None:
    """Gives an interrupted checkpoint of speculators itself its place, so that it is continued from."""
    if not checkpoints.unplaced(save_path):
        return
    import torch

    def of_epoch(epoch: int) -> int:
        loader.batch_sampler.set_epoch(epoch)
        return len(loader)

    folder = save_path / INTERRUPTED
    schedule = torch.load(folder / checkpoints.SCHEDULER, weights_only=True)
    steps = (schedule[0] if isinstance(schedule, list) else schedule)["last_epoch"]
    checkpoints.write_state(folder, checkpoints.place(int(steps), of_epoch))
    for sentence in checkpoints.make_resumable(save_path):
        logging.getLogger("speculators").warning(sentence)


def _barrier() -> None:
    import torch

    torch.distributed.barrier()


def main(arguments: list[str]) -> None:
    """Trains. Configuration errors end the process with exit code 2, everything else as the trainer does."""
    split = arguments.index("--") if "--" in arguments else len(arguments)
    parser = argparse.ArgumentParser(prog="pipeline.training.trainer")
    parser.add_argument("--records", required=True)
    parser.add_argument("--stage", type=int, help="process whose end interrupts the training")
    parser.add_argument("--fused-optimizer", action="store_true")
    parser.add_argument("--drop-embedding", action="store_true")
    options = parser.parse_args(arguments[:split])
    if options.stage:
        _follow(options.stage)
    first = os.environ.get("RANK", "0") == "0"
    records = Writer(options.records) if first else Nothing()
    records.write(PHASE, name="import", detail="torch and speculators")
    try:
        _train(records, first, options, arguments[split + 1 :])
    except Exception as error:
        records.write(FAILED, error=f"{type(error).__name__}: {error}"[:2000], compiling=_compiling(error))
        raise


def _train(records: Writer, first: bool, options: argparse.Namespace, arguments: list[str]) -> None:
    import torch
    from speculators.models.eagle3 import core
    from speculators.train import cli, trainer
    from speculators.train.config import TrainConfig

    if first:
        handler = Log(records)
        handler.addFilter(lambda record: record.name.startswith("speculators"))
        logging.getLogger().addHandler(handler)
        logging.getLogger().setLevel(logging.INFO)
    if not torch.accelerator.is_available():
        from pipeline import cpu_training

        cpu_training.install()
    if options.fused_optimizer:
        trainer.build_optimizers = gpu.fused_adamw(trainer.build_optimizers)
    if options.drop_embedding:
        # A frozen copy of the verifier's: the trainer loads it from there before it reads the checkpoint.
        core.Eagle3DraftModel._keys_to_ignore_on_save = [*core.Eagle3DraftModel._keys_to_ignore_on_save, EMBEDDING]
    config = TrainConfig.resolve(arguments)
    build = cli.build_draft_model

    def build_draft_model(*values: Any, **named: Any) -> Any:
        records.write(PHASE, name="build", detail="the draft, and the verifier's embedding and head")
        model = build(*values, **named)
        if config.loss.loss_implementation == "fused":
            gpu.settle_loss_tiles(model.draft_vocab_size)
        return model

    cli.build_draft_model = build_draft_model
    cli.Trainer = watched(trainer.Trainer, records, first)
    cli.main(config)


def _follow(stage: int) -> None:
    """Interrupts this process, which then saves, when the stage's process ends without having done so."""
    ended = os.pidfd_open(stage)

    def wait() -> None:
        select.select([ended], [], [])
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=wait, name="follow-stage", daemon=True).start()


def _compiling(error: BaseException) -> bool:
    """Whether torch's compiler or Triton failed, and not what they had compiled."""
    if "OutOfMemory" in type(error).__name__:
        return False
    frames = traceback.extract_tb(error.__traceback__)
    place = frames[-1].filename if frames else ""
    modules, folders = ("torch._dynamo", "torch._inductor", "triton"), ("_dynamo", "_inductor", "triton")
    return type(error).__module__.startswith(modules) or any(f"{os.sep}{name}{os.sep}" in place for name in folders)


if __name__ == "__main__":  # the data loader starts processes that import this module
    main(sys.argv[1:])
