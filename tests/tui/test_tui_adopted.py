"""What runs without being ours, on the screen: shown as such everywhere, and stopped only by its name."""

from __future__ import annotations

from dataclasses import replace

from textual.widgets import Button, Input
from tui_fakes import NOW, TestConsole, chunk, failed_job, hello, job, state, until

from eagle_console.state import HostState, Timed
from eagle_console.tui.screens.adopted_dialog import StopAdoptedDialog
from eagle_console.tui.screens.logs import LogsScreen
from eagle_console.tui.widgets.lines import Lines
from eagle_console.tui.widgets.log_view import LogView
from eagle_console.tui.widgets.table import Table
from remote.protocol import adopted, jobs
from remote.protocol.adopted import Adopted, AdoptedList
from remote.protocol.errors import REFUSED, RequestError
from remote.protocol.jobs import ProcessId
from remote.protocol.progress import Phase, Progress
from remote.protocol.serving import Serving
from remote.protocol.training import Training

SERVER = Adopted(
    id="adopted-4711", name="Kimi-K2.5", kind=adopted.KIND_SERVER, state=jobs.RUNNING,
    main=ProcessId(4711, 99, "b"), processes=(ProcessId(4711, 99, "b"), ProcessId(4712, 98, "b")), user="ann", own=True,
    command_line="vllm serve /data/models/Kimi-K2.5 --api-key <hidden>", started=1.0, seconds=700.0,
    model="/data/models/Kimi-K2.5", tensor_parallel=8, log="/home/ann/serve.log", log_note="written by tee",
    healthy=False, health_note="it does not listen yet",
    progress=Progress("weights", (Phase("config", 0, 30), Phase("weights", 30)), 39, 64, "shards", 61.0),
)  # fmt: skip
TRAINING = Adopted(
    id="adopted-5000", name="output_2k", kind=adopted.KIND_TRAINING, state=jobs.RUNNING, main=ProcessId(5000, 9, "b"),
    user="ann", own=True, started=1.0, seconds=651.0, log="/home/ann/train.log",
    training=Training(
        "training", 4, 10, 3_912, 10_000, steps_per_second=6.0, loss=1.84, losses=(4.0, 3.0, 2.0, 1.84),
        accuracy=(0.61, 0.42, 0.30), accuracies=(0.1, 0.3, 0.5, 0.61), predicted_length=1.62, learning_rate=1e-3,
        data_wait=0.03, checkpoint="/data/output_2k/2", checkpoint_step=3_000,
    ),
)  # fmt: skip


def with_adopted(base: HostState, *records: Adopted) -> HostState:
    return replace(base, adopted=Timed(AdoptedList(records), NOW))


def text_of(app: TestConsole, selector: str) -> str:
    return app.screen.query_one(selector, Lines).plain


def stops(app: TestConsole) -> list[dict[str, object]]:
    return [args for op, args, _ in app.fake.session.asked if op == "stop_adopted"]


async def test_the_dashboard_shows_it_and_says_that_it_is_not_ours() -> None:
    app = TestConsole(with_adopted(state(), SERVER, TRAINING))
    async with app.run_test(size=(120, 34)) as pilot:
        await pilot.pause()
        load, training, strip = (text_of(app, name) for name in ("#load", "#training", "#strip"))
        assert "does not listen" not in load, "that is how every load begins"
        assert "RUNNING" in load and "39/64 shards" in load and "61%" in load
        assert "not ours: ann started it" in load
        assert "epoch 4/10  step 3,912/~10,000  6 steps/s" in training
        assert "not ours, ann's" in training and "loss 1.84" in training and "0.61 0.42 0.30" in training
        assert "predicts 1.62" in training and "GPU waits for data 3%" in training
        assert "█" in training and "last checkpoint /data/output_2k/2 at step 3,000" in training
        assert "serve  RUNNING" in strip and "train  RUNNING" in strip and strip.count("not ours") == 2


async def test_small_terminals_keep_the_most_telling_lines() -> None:
    app = TestConsole(with_adopted(state(), TRAINING))
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.pause()
        assert "step 3,912" in text_of(app, "#training") and "loss 1.84" in text_of(app, "#training")


async def test_a_loss_that_is_no_number_is_in_sight() -> None:
    broken = replace(TRAINING.training or Training(), loss=None, problem="the loss is not a number since step 7")
    app = TestConsole(with_adopted(state(), replace(TRAINING, training=broken)))
    async with app.run_test(size=(120, 34)) as pilot:
        await pilot.pause()
        assert "the loss is not a number since step 7" in text_of(app, "#training")


async def test_a_ready_server_shows_what_it_does_and_no_load_time_that_nobody_saw() -> None:
    serving = Serving(3, 1, 0.4, generation_rate=812.0, acceptance_length=2.61, acceptance_rate=0.54, window=10.0)
    ready = replace(SERVER, state=jobs.READY, port=8000, serving=serving, progress=Progress("ready", ready=True))
    app = TestConsole(with_adopted(state(), ready))
    async with app.run_test(size=(120, 34)) as pilot:
        await pilot.pause()
        load = text_of(app, "#load")
        assert "READY  http://127.0.0.1:8000" in load and "loaded in –" in load
        assert "3 running, 1 waiting, KV cache 40.0%" in load
        assert "generates 812.0 tokens/s" in load and "acceptance length 2.61, 54% of drafted" in load


async def test_a_job_of_ours_keeps_its_panel() -> None:
    app = TestConsole(with_adopted(state(job()), SERVER))
    async with app.run_test(size=(120, 34)) as pilot:
        await pilot.pause()
        assert "not ours" not in text_of(app, "#load")
    app = TestConsole(with_adopted(state(failed_job()), SERVER))
    async with app.run_test(size=(120, 34)) as pilot:
        await pilot.pause()
        assert "not ours" in text_of(app, "#load"), "what runs is of more use than what has ended"


async def test_the_jobs_table_lists_it() -> None:
    app = TestConsole(with_adopted(state(job()), SERVER, TRAINING))
    async with app.run_test(size=(120, 34)) as pilot:
        await pilot.press("2")
        await pilot.pause()
        rows = app.screen.query_one("#job-table", Table).plain.splitlines()
        assert [row.split()[0] for row in rows] == ["adopted-4711", "adopted-5000", job().id]
        assert ["not ours" in row for row in rows] == [True, True, False]


async def test_its_log_can_be_followed() -> None:
    app = TestConsole(with_adopted(state(), SERVER))
    async with app.run_test(size=(120, 34)) as pilot:
        app.fake.session.log.put_nowait(chunk("a line of theirs"))
        await pilot.press("3")
        await until(pilot, lambda: isinstance(app.screen, LogsScreen))
        await until(pilot, lambda: "a line of theirs" in "".join(app.screen.query_one(LogView).buffer.shown))
        assert app.fake.session.subscribed[-1][1]["job"] == "adopted-4711"


async def test_stopping_it_needs_its_name() -> None:
    app = TestConsole(with_adopted(state(), SERVER))
    app.fake.session.answers["stop_adopted"] = replace(SERVER, state=jobs.STOPPING)
    async with app.run_test(size=(120, 34)) as pilot:
        await pilot.press("6", "x")
        await until(pilot, lambda: isinstance(app.screen, StopAdoptedDialog))
        accept = app.screen.query_one("#accept", Button)
        await pilot.press("enter", "y", "enter")
        assert accept.disabled and isinstance(app.screen, StopAdoptedDialog) and not stops(app)
        app.screen.query_one(Input).value = "kimi-k2.5"
        await pilot.press("enter")
        assert isinstance(app.screen, StopAdoptedDialog) and not stops(app)
        app.screen.query_one(Input).value = SERVER.name
        await pilot.pause()
        assert not accept.disabled
        await pilot.press("enter")
        await until(pilot, lambda: bool(stops(app)))
        assert stops(app) == [
            {"pid": 4711, "start_ticks": 99, "name_typed": "Kimi-K2.5", "requested_by": "someone@console"}
        ]


async def test_escape_keeps_it_and_a_refusal_is_told() -> None:
    app = TestConsole(with_adopted(state(), SERVER))
    app.fake.session.answers["stop_adopted"] = RequestError(REFUSED, "it is [bold]not[/] yours")
    async with app.run_test(size=(120, 34)) as pilot:
        await pilot.press("6", "x")
        await until(pilot, lambda: isinstance(app.screen, StopAdoptedDialog))
        await pilot.press("escape")
        await until(pilot, lambda: not isinstance(app.screen, StopAdoptedDialog))
        assert not stops(app)
        await pilot.press("x")
        await until(pilot, lambda: isinstance(app.screen, StopAdoptedDialog))
        app.screen.query_one(Input).value = SERVER.name
        await pilot.press("enter")
        await until(pilot, lambda: any("[bold]not[/]" in note.message for note in app._notifications))


async def test_what_belongs_to_others_or_a_readonly_host_opens_no_dialog() -> None:
    cases = (
        with_adopted(state(), replace(SERVER, own=False)),
        with_adopted(state(), replace(SERVER, main=None)),
        with_adopted(state(hello=hello(readonly=True)), SERVER),
    )
    for case in cases:
        app = TestConsole(case)
        async with app.run_test(size=(120, 34)) as pilot:
            await pilot.press("6", "x")
            await until(pilot, lambda app=app: bool(app._notifications))  # type: ignore[misc]
            assert not isinstance(app.screen, StopAdoptedDialog) and not stops(app)
