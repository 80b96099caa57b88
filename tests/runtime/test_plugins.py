import logging
import sys
from collections.abc import Callable, Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import attrs
import pytest
import typer
from typer.testing import CliRunner

from amadou import AmadouError, Handler, Job, KeyedEvent, MemorySink, MemorySource, Secret, SinkSpec, hookspecs
from amadou.errors import CallbackError, JobError, PluginError
from amadou.plugins import RunSummary, hookimpl
from amadou_plugins.connectors import JsonLinesSink, LinesSource
from amadou_runtime import TestRun, run
from amadou_runtime.plugins import hooks
from amadou_runtime.plugins.hooks import Plugins, plugins_of

ROOT = Path(__file__).parents[2]
HOOKS = {name for name in vars(hookspecs) if name.startswith("amadou_")}


class Doubling(Handler):
    doubled = SinkSpec(int, codec="json")

    def key_event(self, record: int) -> KeyedEvent[int]:
        return KeyedEvent("a", datetime(2025, 1, 1, tzinfo=timezone.utc), record)

    def on_event(self, subject: Any, event: KeyedEvent[int]) -> None:
        if event.value < 0:
            raise ValueError("below zero")
        self.doubled.collect(subject, 2 * event.value)


TRACEBACK = "Traceback (most recent call last):"


def job(*records: int, plugins: Any = ()) -> Job:
    return Job("doubling", Doubling(), {"in": MemorySource(records)}, {"doubled": MemorySink()}, plugins=plugins)


@attrs.define
class Recorder:
    """Records the calls of its hooks."""

    calls: list[Any] = attrs.field(factory=list)

    @hookimpl
    def amadou_run_started(self, run: Any) -> None:
        self.calls.append(("started", run.job.name, run.engine, run.checkpoint))

    @hookimpl
    def amadou_batch_completed(self, run: Any, batch: Any) -> None:
        self.calls.append(("batch", batch.number, batch.counts.events, dict(batch.counts.outputs)))

    @hookimpl
    def amadou_batch_failed(self, run: Any, batch: Any) -> None:
        self.calls.append(("batch failed", run.job.name, batch.number, batch.error, batch.details.splitlines()[0]))

    @hookimpl
    def amadou_run_ended(self, summary: RunSummary) -> None:
        self.calls.append(("ended", summary.batches, summary.counts.events))

    @hookimpl
    def amadou_run_failed(self, error: Exception) -> None:
        self.calls.append(("failed", type(error)))


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str, str], None]]:
    """Installs packages with an entry point and a module of the same name."""
    monkeypatch.syspath_prepend(str(tmp_path))
    before = set(sys.modules)

    def install(name: str, text: str) -> None:
        (tmp_path / f"{name}.py").write_text(f"from amadou.plugins import hookimpl\n\n\n{text}")
        metadata = tmp_path / f"{name}-1.5.dist-info"
        metadata.mkdir()
        (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.5\n")
        (metadata / "entry_points.txt").write_text(f"[amadou]\n{name} = {name}\n")

    yield install
    for name in set(sys.modules) - before:
        del sys.modules[name]


def test_every_hook_is_documented_and_tested() -> None:
    documented = (ROOT / "docs" / "plugins.md").read_text()
    tested = "".join(file.read_text() for file in (ROOT / "tests").rglob("test_*.py"))
    assert [hook for hook in HOOKS if f"`{hook}`" not in documented] == []
    assert [hook for hook in HOOKS if f"def {hook}(" not in tested] == []
    assert [hook for hook in HOOKS if not getattr(hookspecs, hook).__doc__] == []


def test_plugins_are_called_at_the_start_of_a_run_after_each_batch_and_at_the_end() -> None:
    recorder = Recorder()
    run(job(1, 2, plugins=[recorder]), engine="embedded")
    assert recorder.calls == [
        ("started", "doubling", "embedded", None),
        ("batch", 0, 2, {"doubled": 2}),
        ("batch", 1, 0, {}),
        ("ended", 2, 2),
    ]


def test_plugins_are_called_with_the_error_of_a_run_that_fails() -> None:
    recorder = Recorder()
    with pytest.raises(CallbackError, match="below zero"):
        run(job(-1, plugins=[recorder]), engine="embedded")
    assert recorder.calls == [
        ("started", "doubling", "embedded", None),
        ("batch failed", "doubling", 0, "Doubling.on_event failed: ValueError: below zero", TRACEBACK),
        ("failed", CallbackError),
    ]


def test_an_error_in_a_hook_that_only_observes_does_not_end_the_run(caplog: pytest.LogCaptureFixture) -> None:
    class Failing:
        @hookimpl
        def amadou_batch_completed(self) -> None:
            raise ValueError("no disk")

    recorder = Recorder()
    run(job(1, plugins=[Failing(), recorder]), engine="embedded")
    assert [kind for kind, *_ in recorder.calls] == ["started", "batch", "batch", "ended"]
    assert "Failing failed in amadou_batch_completed: ValueError: no disk" in caplog.text


def test_a_plugin_can_prevent_a_run_with_an_amadou_error() -> None:
    class Refusing:
        @hookimpl
        def amadou_run_started(self) -> None:
            raise AmadouError("no room for it")

    recorder = Recorder()
    written = job(1, plugins=[recorder, Refusing()])
    with pytest.raises(PluginError, match=r"Refusing failed in amadou_run_started: no room for it"):
        run(written, engine="embedded")
    assert recorder.calls == [("started", "doubling", "embedded", None), ("failed", PluginError)]
    assert written.sinks["doubled"].records == []  # type: ignore[attr-defined]


def test_another_error_of_a_plugin_at_the_start_of_a_run_does_not_end_the_run(caplog: pytest.LogCaptureFixture) -> None:
    class Failing:
        @hookimpl
        def amadou_run_started(self) -> None:
            raise ConnectionError("no answer")

    assert run(job(1, plugins=[Failing()]), engine="embedded").counts.events == 1
    assert "Failing failed in amadou_run_started: ConnectionError: no answer" in caplog.text


def test_plugins_change_a_job_one_after_the_other() -> None:
    class Renaming:
        def __init__(self, suffix: str) -> None:
            self.suffix = suffix

        @hookimpl
        def amadou_prepare_job(self, job: Job) -> Job:
            return attrs.evolve(job, name=job.name + self.suffix)

    class Looking:
        @hookimpl
        def amadou_prepare_job(self, job: Job) -> None:
            seen.append(job.name)

    seen: list[str] = []
    summary = run(job(1, plugins=[Renaming("-a"), Looking(), Renaming("-b")]), engine="embedded")
    assert (summary.job, seen) == ("doubling-a-b", ["doubling-a"])


class Answering:
    def __init__(self, answer: Callable[[Job], Any]) -> None:
        self.answer = answer

    @hookimpl
    def amadou_prepare_job(self, job: Job) -> Any:
        return self.answer(job)


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (lambda job: attrs.evolve(job, sinks={}), "the port 'doubled' of Doubling has no sink"),
        (lambda job: 5, "it returned 5, not an amadou.Job"),
        (lambda job: job.nothing, "AttributeError: 'Job' object has no attribute 'nothing'"),
    ],
)
def test_a_run_with_a_job_that_a_plugin_made_invalid_is_an_error_of_the_plugin(
    answer: Callable[[Job], Any], why: str
) -> None:
    with pytest.raises(PluginError) as caught:
        run(job(1, plugins=[Answering(answer)]), engine="embedded")
    assert "Answering failed in amadou_prepare_job: " in str(caught.value)
    assert why in str(caught.value)


def test_test_runs_do_not_call_plugins_of_the_job() -> None:
    recorder = Recorder()
    result = TestRun(job(plugins=[recorder])).add_record(1).run()
    assert (result.records("doubled"), recorder.calls) == ([2], [])


def test_plugins_change_the_settings_of_the_spark_session() -> None:
    class Packages:
        @hookimpl
        def amadou_prepare_session(self, job: Job, settings: dict[str, str]) -> None:
            settings["spark.jars.packages"] = job.name

    settings = {"spark.ui.enabled": "false"}
    Plugins([Packages()]).prepare_session(job(1), settings)
    assert settings == {"spark.ui.enabled": "false", "spark.jars.packages": "doubling"}


def test_plugins_register_sources_sinks_and_codecs() -> None:
    class More:
        @hookimpl
        def amadou_register_sources(self) -> Any:
            return {"more": MemorySource}

        @hookimpl
        def amadou_register_sinks(self) -> Any:
            return {"more": MemorySink}

        @hookimpl
        def amadou_register_codecs(self) -> Any:
            return {"more": lambda type_: type_}

    plugins = Plugins([More()])
    assert (plugins.sources()["lines"], plugins.sources()["more"]) == (LinesSource, MemorySource)
    assert (plugins.sinks()["json-lines"], plugins.sinks()["more"]) == (JsonLinesSink, MemorySink)
    assert plugins.codecs()["more"](int) is int


def test_the_first_plugin_that_registers_a_name_has_it(caplog: pytest.LogCaptureFixture) -> None:
    class Taking:
        @hookimpl
        def amadou_register_sources(self) -> Any:
            return {"lines": MemorySource}

    assert Plugins([Taking()]).sources()["lines"] is LinesSource
    assert "the plugin connectors already has the source 'lines': choose a different name" in caplog.text


@pytest.mark.parametrize(
    ("registered", "why"),
    [
        ({"odd": MemorySource()}, "'odd' must be a source class, not MemorySource"),
        ({1: MemorySource}, "the name of a source must be a string, not 1"),
    ],
)
def test_registered_connectors_that_are_not_classes_are_ignored_with_a_warning(
    registered: Any, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    class Odd:
        @hookimpl
        def amadou_register_sources(self) -> Any:
            return registered

    assert not registered.keys() & Plugins([Odd()]).sources().keys()
    assert why in caplog.text


def test_the_traceback_of_a_plugin_hides_secrets(caplog: pytest.LogCaptureFixture) -> None:
    secret = Secret("sesame'of\nplugins")

    class Failing:
        @hookimpl
        def amadou_run_ended(self) -> None:
            raise KeyError(secret.reveal())

    run(job(1, plugins=[Failing()]), engine="embedded")
    assert "Traceback" in caplog.text
    assert "sesame" not in caplog.text


def test_a_port_can_name_a_codec_of_a_plugin() -> None:
    written = job(3)
    run(written, engine="embedded")
    assert written.sinks["doubled"].records == [6]  # type: ignore[attr-defined]

    class Unknown(Doubling):
        doubled = SinkSpec(int, codec="xml")

    with pytest.raises(JobError, match="'doubled' uses the codec 'xml', but no plugin registers it: use one of json"):
        run(attrs.evolve(written, handler=Unknown()), engine="embedded")


def test_each_plugin_is_loaded_once_and_those_of_the_job_are_last(installed: Any, tmp_path: Path) -> None:
    installed("first_plugin", "@hookimpl\ndef amadou_run_failed(error): pass\n")
    text = "class Plugin:\n    @hookimpl\n    def amadou_run_failed(self): pass\n\nplugin = Plugin()\n"
    installed("second_plugin", text)
    entry_points = tmp_path / "second_plugin-1.5.dist-info" / "entry_points.txt"
    entry_points.write_text("[amadou]\nsecond = second_plugin:Plugin\n")
    loaded = Plugins(["first_plugin", "second_plugin:plugin", Recorder(), Recorder(["other"])]).found
    ours = [plugin for plugin in loaded if plugin.origin != "amadou"]
    built_in = [plugin.name for plugin in loaded[: len(loaded) - len(ours)]]
    assert built_in == ["commands", "connectors", "metrics"]
    assert {(plugin.name, plugin.origin) for plugin in ours[:2]} == {
        ("first_plugin", "first_plugin 1.5"),
        ("second", "second_plugin 1.5"),
    }
    assert [plugin.name for plugin in ours[2:]] == [
        "second_plugin:plugin",
        f"{__name__}.Recorder",
        f"{__name__}.Recorder (2)",
    ]
    assert {plugin.origin for plugin in ours[2:]} == {"the job"}
    assert all(plugin.hooks and plugin.problem is None for plugin in loaded)


def test_other_plugins_are_loaded_if_an_installed_plugin_cannot_be_loaded(
    installed: Any, caplog: pytest.LogCaptureFixture
) -> None:
    installed("broken_plugin", "1 / 0\n")
    installed("good_plugin", "@hookimpl\ndef amadou_register_codecs(): return {'good': str}\n")
    plugins = Plugins()
    problems = {plugin.name: plugin.problem for plugin in plugins.found}
    assert problems["broken_plugin"] == "ZeroDivisionError: division by zero"
    assert problems["good_plugin"] is None
    assert "good" in plugins.codecs()
    assert "the plugin broken_plugin cannot be loaded: ZeroDivisionError: division by zero" in caplog.text
    assert "from broken_plugin 1.5; turn the plugin off with AMADOU_PLUGINS_OFF=broken_plugin" in caplog.text


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (
            "@hookimpl\ndef amadou_run_over(): pass\n",
            "amadou has no hook amadou_run_over .available hooks: amadou_",
        ),
        ("@hookimpl\ndef amadou_run_failed(mistake): pass\n", "mistake"),
        ("", "it has no function marked with hookimpl"),
        ("raise SystemError('no')\n", "SystemError: no"),
        ("raise SystemExit('no licence')\n", "SystemExit: no licence"),
        (
            "@hookimpl(wrapper=True)\ndef amadou_run_ended(): return (yield)\n",
            "it has hook wrappers .amadou_run_ended.: do not use wrapper=True",
        ),
    ],
)
def test_the_error_for_a_module_that_is_not_a_plugin_states_the_reason(installed: Any, text: str, why: str) -> None:
    installed("odd_plugin", text)
    with pytest.raises(PluginError, match=f"the plugin odd_plugin cannot be loaded: .*{why}") as caught:
        Plugins(["odd_plugin"])
    assert (caught.value.plugin, caught.value.hook) == ("odd_plugin", None)


@pytest.mark.parametrize(
    ("plugin", "why"),
    [(None, "hooks, not None"), ("my plug!", "a plugin's name must be a module name, or module:")],
)
def test_values_that_are_not_plugins_are_refused(plugin: Any, why: str) -> None:
    with pytest.raises(PluginError, match=why):
        Plugins([plugin])


def test_a_plugin_can_have_optional_hooks_of_a_later_amadou() -> None:
    class Later(Recorder):
        @hookimpl(optionalhook=True)
        def amadou_run_paused(self) -> None:
            pass

    assert Plugins([Later()]).found[-1].problem is None


def test_the_error_for_a_plugin_that_does_not_exist_names_it() -> None:
    with pytest.raises(PluginError, match="the plugin no_such_plugin cannot be loaded: ModuleNotFoundError"):
        run(job(1, plugins=["no_such_plugin"]), engine="embedded")


@pytest.mark.parametrize("off", ["all", "other, quiet_plugin"])
def test_installed_plugins_can_be_turned_off(installed: Any, monkeypatch: pytest.MonkeyPatch, off: str) -> None:
    installed("quiet_plugin", "raise SystemError('never')\n")
    monkeypatch.setenv("AMADOU_PLUGINS_OFF", off)
    plugins = Plugins([Recorder()])
    by_name = {plugin.name: plugin for plugin in plugins.found}
    assert by_name["quiet_plugin"].problem == "turned off by AMADOU_PLUGINS_OFF"
    assert by_name[f"{__name__}.Recorder"].problem is None


def test_a_warning_names_plugins_that_are_turned_off_but_not_installed(
    installed: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    installed("quiet_plugin", "@hookimpl\ndef amadou_run_failed(error): pass\n")
    monkeypatch.setenv("AMADOU_PLUGINS_OFF", "quite_plugin")
    Plugins()
    assert "not installed: quite_plugin. Correct the names (valid names: all, quiet_plugin)" in caplog.text


@pytest.mark.parametrize("text", ["", "0", "false"])
def test_calls_of_plugins_are_not_traced_if_the_variable_is_off(
    text: str, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.setenv("AMADOU_TRACE_PLUGINS", text)
    run(job(1, plugins=(Recorder(["off"]),)), engine="embedded")
    assert "amadou_run_started" not in capsys.readouterr().err


def test_calls_of_plugins_are_traced_if_the_variable_is_set(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("AMADOU_TRACE_PLUGINS", "1")
    run(job(1, plugins=(Recorder(),)), engine="embedded")
    traced = capsys.readouterr().err
    assert f"amadou: amadou_run_started(run) by {__name__}.Recorder\n" in traced
    assert "amadou: amadou_register_codecs() by connectors -> {'json': " in traced


def test_plugins_add_commands_and_the_command_plugins_lists_them(
    installed: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    installed(
        "greeting_plugin",
        '@hookimpl\ndef amadou_register_commands(app):\n    app.command("greet")(lambda: print("hello"))\n',
    )
    installed("wrong_plugin", "1 / 0\n")
    monkeypatch.setattr(hooks, "_loaded", {})
    app = typer.Typer()
    plugins_of().register_commands(app)
    assert CliRunner().invoke(app, ["greet"]).stdout == "hello\n"
    listed = CliRunner().invoke(app, ["plugins"]).stdout
    assert "greeting_plugin 1.5" in listed
    monkeypatch.setenv("COLUMNS", "40")
    assert CliRunner().invoke(app, ["plugins"]).stdout == listed, "nothing is cut if the output is not a terminal"
    assert "amadou_register_commands" in listed
    assert "not loaded: ZeroDivisionError: division by zero" in listed
    assert [record.levelno for record in caplog.records] == [logging.WARNING]


def test_the_first_plugin_that_adds_a_command_of_a_name_has_it(caplog: pytest.LogCaptureFixture) -> None:
    class Taking:
        @hookimpl
        def amadou_register_commands(self, app: typer.Typer) -> None:
            @app.command()
            def plugins() -> None:
                raise AssertionError

    app = typer.Typer()
    Plugins([Taking()]).register_commands(app)
    assert "connectors" in CliRunner().invoke(app, ["plugins"]).stdout
    assert "the plugin commands already has the command 'plugins': choose a different name" in caplog.text


def test_other_commands_work_if_a_plugin_cannot_add_its_command(caplog: pytest.LogCaptureFixture) -> None:
    class Failing:
        @hookimpl
        def amadou_register_commands(self, app: typer.Typer) -> None:
            raise ValueError("no name")

    app = typer.Typer()
    Plugins([Failing()]).register_commands(app)
    assert CliRunner().invoke(app, ["plugins"]).exit_code == 0
    assert "Failing failed in amadou_register_commands: ValueError: no name" in caplog.text
