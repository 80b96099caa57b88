"""Calls the hooks that plugins implement; see `amadou.hookspecs`."""

import logging
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import pluggy

from amadou import Job
from amadou.errors import AmadouError, PluginError
from amadou.plugins import Metric, Run, Sink, Source
from amadou.text import shown_value
from amadou_runtime.formats.failure import shown_traceback
from amadou_runtime.plugins.loading import LoadedPlugin, PluginLoader
from amadou_runtime.plugins.metrics import guarded

if TYPE_CHECKING:
    import typer

TRACE = "AMADOU_TRACE_PLUGINS"
_ANSWER_LENGTH = 100
_logger = logging.getLogger("amadou")


class Plugins:
    """The plugins of this process and of a job, in the order in which they were loaded.

    :param named: the job's plugins: module names, references of the form ``module:attribute``, or objects
    :raises PluginError: a plugin of the job cannot be loaded
    """

    def __init__(self, named: Iterable[Any] = ()) -> None:
        loader = PluginLoader(named)
        self.found: list[LoadedPlugin] = loader.found
        self._implementations = loader.implementations
        self._traces = os.environ.get(TRACE, "").lower() not in ("", "0", "false", "off", "no")

    def sources(self) -> Mapping[str, type[Source]]:
        """Return the source classes by their names on the command line."""
        return self._registered("amadou_register_sources", "source", Source)

    def sinks(self) -> Mapping[str, type[Sink]]:
        """Return the sink classes by their names on the command line."""
        return self._registered("amadou_register_sinks", "sink", Sink)

    def codecs(self) -> Mapping[str, Callable[[Any], Any]]:
        """Return the functions that create a codec for a type, by the codec's name."""
        return self._registered("amadou_register_codecs", "codec")

    def metrics(self) -> tuple[Metric, ...]:
        """Return the plugins' metrics. If a metric fails, amadou logs the failure and omits the metric from then on."""
        hook = "amadou_register_metrics"
        known: dict[str, Metric] = {}
        owners: dict[str, str] = {}
        for implementation in self._implementations(hook):
            plugin = implementation.plugin_name
            try:
                for metric in self._call(implementation, hook, list):
                    if not isinstance(metric, Metric):
                        raise PluginError(plugin, f"it returned {metric!r}, not an amadou.plugins.Metric", hook)
                    if metric.name in known:
                        raise _taken(plugin, f"the metric {metric.name!r}", owners[metric.name], hook)
                    known[metric.name], owners[metric.name] = guarded(metric, plugin), plugin
            except PluginError as error:
                _warn(error)
        return tuple(known.values())

    def register_commands(self, app: "typer.Typer") -> None:
        """Let plugins add commands. If two plugins add commands with the same name, amadou removes the later one.
        Removed commands and failing plugins are logged as warnings.
        """
        from typer.main import get_command_name

        hook = "amadou_register_commands"
        owners: dict[str, str] = {}
        for implementation in self._implementations(hook):
            plugin, before = implementation.plugin_name, len(app.registered_commands)
            try:
                self._call(implementation, hook, app=app)
            except PluginError as error:
                _warn(error)
            for command in app.registered_commands[before:]:
                name = command.name or get_command_name(getattr(command.callback, "__name__", ""))
                if name in owners:
                    app.registered_commands.remove(command)
                    _warn(_taken(plugin, f"the command {name!r}", owners[name], hook))
                owners.setdefault(name, plugin)

    def prepare_job(self, job: Job) -> Job:
        """Return the job with the plugins' changes.

        :raises PluginError: a plugin failed, or returned a value that is neither a job nor `None`
        """
        hook = "amadou_prepare_job"
        for implementation in self._implementations(hook):
            changed = self._call(implementation, hook, job=job)
            if changed is not None and not isinstance(changed, Job):
                raise PluginError(implementation.plugin_name, f"it returned {changed!r}, not an amadou.Job", hook)
            job = changed or job
        return job

    def prepare_session(self, job: Job, settings: dict[str, str]) -> None:
        """Let plugins change the settings of a new Spark session.

        :raises PluginError: a plugin failed
        """
        hook = "amadou_prepare_session"
        for implementation in self._implementations(hook):
            self._call(implementation, hook, job=job, settings=settings)

    def run_started(self, run: Run) -> None:
        """Notify plugins that a run has started.

        :raises PluginError: a plugin raised an `AmadouError`, which ends the run
        """
        hook = "amadou_run_started"
        for implementation in self._implementations(hook):
            try:
                self._call(implementation, hook, run=run)
            except PluginError as error:
                if isinstance(error.__cause__, AmadouError):
                    raise
                _warn(error)

    @property
    def want_spark_progress(self) -> bool:
        """`True` if a plugin implements `amadou_spark_progress`. Otherwise Spark's progress is not read, which saves a
        few milliseconds per batch.
        """
        return bool(self._implementations("amadou_spark_progress"))

    def _registered(self, hook: str, kind: str, base: type | None = None) -> dict[str, Any]:
        """Return the objects that plugins register, by name.

        :param base: required base class of the registered classes
        """
        known: dict[str, Any] = {}
        owners: dict[str, str] = {}
        for implementation in self._implementations(hook):
            name = implementation.plugin_name
            try:
                added = self._call(implementation, hook)
                if not isinstance(added, Mapping):
                    raise PluginError(name, f"it returned {added!r}, not a mapping of names to {kind}s", hook)
                for key, value in added.items():
                    if not isinstance(key, str):
                        raise PluginError(name, f"the name of a {kind} must be a string, not {key!r}", hook)
                    if base is not None and not (isinstance(value, type) and issubclass(value, base)):
                        raise PluginError(name, f"{key!r} must be a {kind} class, not {value!r}", hook)
                    if key in known:
                        raise _taken(name, f"the {kind} {key!r}", owners[key], hook)
                    known[key], owners[key] = value, name
            except PluginError as error:
                _warn(error)
        return known

    def notify(self, hook: str, **values: Any) -> None:
        """Call a hook in every plugin that implements the hook. Failures are logged and do not end the run."""
        for implementation in self._implementations(hook):
            try:
                self._call(implementation, hook, **values)
            except PluginError as error:
                _warn(error)

    def _call(
        self, implementation: pluggy.HookImpl, hook: str, read: Callable[[Any], Any] | None = None, /, **values: Any
    ) -> Any:
        """Call a plugin's implementation of a hook.

        :param read: function that converts the returned value
        :raises PluginError: the plugin's function or `read` failed
        """
        plugin = implementation.plugin_name
        try:
            answer = implementation.function(*(values[name] for name in implementation.argnames))
            answer = answer if read is None else read(answer)
        except AmadouError as error:
            raise PluginError(plugin, str(error), hook) from error
        except (Exception, SystemExit) as error:
            raise PluginError(plugin, f"{type(error).__name__}: {error}", hook) from error
        if self._traces:
            shown = "" if answer is None else f" -> {shown_value(answer, _ANSWER_LENGTH)}"
            print(f"amadou: {hook}({', '.join(values)}) by {plugin}{shown}", file=sys.stderr, flush=True)
        return answer


_loaded: dict[tuple[Any, ...], Plugins] = {}


def plugins_of(named: Iterable[Any] = ()) -> Plugins:
    """Return the plugins of this process and of a job. Each combination of plugins is loaded only once.

    :param named: see `Plugins`
    """
    given = tuple(named)
    key = tuple(plugin if isinstance(plugin, str) else id(plugin) for plugin in given)  # an object may be unhashable
    if key not in _loaded:
        _loaded[key] = Plugins(given)
    return _loaded[key]


def _taken(plugin: str, what: str, owner: str, hook: str) -> PluginError:
    return PluginError(plugin, f"the plugin {owner} already has {what}: choose a different name", hook)


def _warn(error: PluginError) -> None:
    cause = "" if error.__cause__ is None else f"\n{shown_traceback(error.__cause__)}"
    _logger.warning("%s%s", error, cause)
