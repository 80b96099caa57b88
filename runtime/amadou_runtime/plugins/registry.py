"""Loads plugins, and calls their hooks; see `amadou.hookspecs`."""

import importlib
import itertools
import logging
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, Any

import attrs
import pluggy

from amadou import BatchReport, Job, Metric, Run, RunSummary, Sink, Source, hookspecs
from amadou.engine import PROJECT
from amadou.errors import AmadouError, PluginError
from amadou.text import shown_value
from amadou_runtime.core.failure import shown_traceback
from amadou_runtime.plugins.metrics import guarded

if TYPE_CHECKING:
    import typer

OFF = "AMADOU_PLUGINS_OFF"
TRACE = "AMADOU_TRACE_PLUGINS"
_BUILT_IN = {
    "commands": "amadou_runtime.command.commands",
    "connectors": "amadou_plugins.connectors.plugin",
    "metrics": "amadou_plugins.metrics.plugin",
}
"""What comes with amadou, by name, in the order in which it is loaded."""
_ALL = "all"
_REFERENCE = re.compile(r"[\w.]+(:[\w.]+)?")
_ANSWER_LENGTH = 100
_logger = logging.getLogger("amadou")


@attrs.frozen
class LoadedPlugin:
    """A plugin that was found.

    :param name: its name
    :param origin: who named it: `amadou`, an installed package with its version, or `the job`
    :param place: the module, or the object's class
    :param hooks: which hooks it implements
    :param problem: why it is not loaded; `None` where it is
    """

    name: str
    origin: str
    place: str
    hooks: tuple[str, ...] = ()
    problem: str | None = None


class Plugins:
    """The plugins of this process and of a job, in the order in which they were loaded.

    :param named: what the job names: modules, ``module:attribute``, or objects
    :raises PluginError: one that the job names cannot be loaded
    """

    def __init__(self, named: Iterable[Any] = ()) -> None:
        self._manager = pluggy.PluginManager(PROJECT)
        self._manager.add_hookspecs(hookspecs)
        self._traces = os.environ.get(TRACE, "").lower() not in ("", "0", "false", "off", "no")
        self.found: list[LoadedPlugin] = []
        for name, module in _BUILT_IN.items():
            self._load(name, "amadou", module, partial(importlib.import_module, module))
        off = {name.strip() for name in os.environ.get(OFF, "").split(",")} - {""}
        entries = entry_points(group=PROJECT)
        unknown = off - {entry.name for entry in entries} - {_ALL}
        if unknown:
            told = "%s names %s, which is not installed (it takes: %s)"
            known = ", ".join([_ALL, *sorted({entry.name for entry in entries})])
            _logger.warning(told, OFF, ", ".join(sorted(unknown)), known)
        for entry in entries:
            self._load_installed(entry, _ALL in off or entry.name in off)
        for plugin in named:
            self._load_named(plugin)

    def sources(self) -> Mapping[str, type[Source]]:
        """Sources by the names that the command line knows them under."""
        return self._registered("amadou_register_sources", "source", Source)

    def sinks(self) -> Mapping[str, type[Sink]]:
        """Sinks by the names that the command line knows them under."""
        return self._registered("amadou_register_sinks", "sink", Sink)

    def codecs(self) -> Mapping[str, Callable[[Any], Any]]:
        """What makes the codec for a type, by name."""
        return self._registered("amadou_register_codecs", "codec")

    def metrics(self) -> tuple[Metric, ...]:
        """What plugins make of batches. One that fails is told once, and gives nothing from then on."""
        hook = "amadou_register_metrics"
        known: dict[str, Metric] = {}
        owners: dict[str, str] = {}
        for implementation in self._implementations(hook):
            plugin = implementation.plugin_name
            try:
                for metric in self._call(implementation, hook, list):
                    if not isinstance(metric, Metric):
                        raise PluginError(plugin, f"it gave {metric!r}, which is no amadou.Metric", hook)
                    if metric.name in known:
                        raise PluginError(plugin, f"{metric.name} is that of the plugin {owners[metric.name]}", hook)
                    known[metric.name], owners[metric.name] = guarded(metric, plugin), plugin
            except PluginError as error:
                _warn(error)
        return tuple(known.values())

    def register_commands(self, app: "typer.Typer") -> None:
        """Let plugins add commands. One that fails, and a command whose name is taken, is left out with a warning."""
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
                    _warn(PluginError(plugin, f"the command {name!r} is that of the plugin {owners[name]}", hook))
                owners.setdefault(name, plugin)

    def prepare_job(self, job: Job) -> Job:
        """A job as plugins have changed it.

        :raises PluginError: one failed, or gave no job
        """
        hook = "amadou_prepare_job"
        for implementation in self._implementations(hook):
            changed = self._call(implementation, hook, job=job)
            if changed is not None and not isinstance(changed, Job):
                raise PluginError(implementation.plugin_name, f"it gave {changed!r}, which is no amadou.Job", hook)
            job = changed or job
        return job

    def prepare_session(self, job: Job, settings: dict[str, str]) -> None:
        """Let plugins change the settings of a new Spark session.

        :raises PluginError: one failed
        """
        hook = "amadou_prepare_session"
        for implementation in self._implementations(hook):
            self._call(implementation, hook, job=job, settings=settings)

    def run_started(self, run: Run) -> None:
        """Tell plugins.

        :raises PluginError: one of them ends the run
        """
        hook = "amadou_run_started"
        for implementation in self._implementations(hook):
            try:
                self._call(implementation, hook, run=run)
            except PluginError as error:
                if isinstance(error.__cause__, AmadouError):
                    raise
                _warn(error)

    def batch_completed(self, run: Run, batch: BatchReport) -> None:
        """Tell plugins."""
        self._tell("amadou_batch_completed", run=run, batch=batch)

    @property
    def want_spark_progress(self) -> bool:
        """Whether there is one that does: asking Spark costs some milliseconds a batch."""
        return bool(self._implementations("amadou_spark_progress"))

    def spark_progress(self, run: Run, progress: Mapping[str, Any]) -> None:
        """Tell plugins."""
        self._tell("amadou_spark_progress", run=run, progress=progress)

    def run_ended(self, run: Run, summary: RunSummary) -> None:
        """Tell plugins."""
        self._tell("amadou_run_ended", run=run, summary=summary)

    def run_failed(self, run: Run, error: Exception) -> None:
        """Tell plugins."""
        self._tell("amadou_run_failed", run=run, error=error)

    def _load_installed(self, entry: EntryPoint, is_off: bool) -> None:
        package = entry.dist
        origin = "an installed package" if package is None else f"{package.name} {package.version}"
        if is_off:
            self.found.append(LoadedPlugin(entry.name, origin, entry.value, problem=f"turned off by {OFF}"))
            return
        try:
            self._load(entry.name, origin, entry.value, entry.load)
        except PluginError as error:
            self.found.append(LoadedPlugin(entry.name, origin, entry.value, problem=error.why))
            _logger.warning("%s (from %s; %s=%s turns it off)", error, origin, OFF, entry.name)

    def _load_named(self, plugin: Any) -> None:
        if not isinstance(plugin, str):
            place = _place(plugin)
            self._load(place, "the job", place, lambda: plugin)
            return
        if not _REFERENCE.fullmatch(plugin):
            raise PluginError(plugin, "name a module, or an object in it as module:attribute")
        self._load(plugin, "the job", plugin, EntryPoint(plugin, plugin, PROJECT).load)

    def _load(self, name: str, origin: str, place: str, load: Callable[[], Any]) -> None:
        try:
            plugin = load()
            plugin = plugin() if isinstance(plugin, type) else plugin
            if plugin is None:
                raise TypeError("it is None: name a module, or an object in it as module:attribute")
        except (Exception, SystemExit) as error:
            raise PluginError(name, f"{type(error).__name__}: {error}") from error
        if self._manager.is_registered(plugin):
            return  # a job may name what is installed anyway
        name = self._free(name)
        try:
            self._manager.register(plugin, name)
        except pluggy.PluginValidationError as error:
            self._manager.unregister(name=name)
            raise PluginError(name, str(error).strip().splitlines()[-1]) from error
        callers = self._manager.get_hookcallers(plugin) or []
        own = [(caller, each) for caller in callers for each in caller.get_hookimpls() if each.plugin is plugin]
        unknown = sorted(caller.name for caller, each in own if not (caller.has_spec() or each.optionalhook))
        wrapping = sorted(caller.name for caller, each in own if each.wrapper or each.hookwrapper)
        if unknown or wrapping or not callers:
            self._manager.unregister(name=name)
            if wrapping:
                raise PluginError(name, f"{', '.join(wrapping)} is a wrapper: hooks are called one after the other")
            known = ", ".join(name for name in vars(hookspecs) if name.startswith(f"{PROJECT}_"))
            what = f"there is no hook {', '.join(unknown)}" if unknown else "it has no function marked with hookimpl"
            raise PluginError(name, f"{what} (the hooks are: {known})")
        self.found.append(LoadedPlugin(name, origin, place, tuple(caller.name for caller in callers)))

    def _free(self, name: str) -> str:
        """The name, with a number where another plugin has it: two objects of a class, say."""
        names = itertools.chain([name], (f"{name} ({number})" for number in itertools.count(2)))
        return next(free for free in names if not self._manager.has_plugin(free))

    def _registered(self, hook: str, kind: str, base: type | None = None) -> dict[str, Any]:
        """What plugins register by name.

        :param base: of what it must be a class
        """
        known: dict[str, Any] = {}
        owners: dict[str, str] = {}
        for implementation in self._implementations(hook):
            name = implementation.plugin_name
            try:
                added = self._call(implementation, hook)
                if not isinstance(added, Mapping):
                    raise PluginError(name, f"it gave {added!r}, which is no mapping of names", hook)
                for key, value in added.items():
                    if not isinstance(key, str):
                        raise PluginError(name, f"the name of a {kind} must be a text, not {key!r}", hook)
                    if base is not None and not (isinstance(value, type) and issubclass(value, base)):
                        raise PluginError(name, f"{key!r} must be a class of {kind}s, not {value!r}", hook)
                    if key in known:
                        raise PluginError(name, f"the {kind} {key!r} is that of the plugin {owners[key]}", hook)
                    known[key], owners[key] = value, name
            except PluginError as error:
                _warn(error)
        return known

    def _implementations(self, hook: str) -> list[pluggy.HookImpl]:
        """What implements a hook, in the order of calls."""
        order = [name for name, _ in self._manager.list_name_plugin()]
        found = getattr(self._manager.hook, hook).get_hookimpls()
        return sorted(found, key=lambda each: (not each.tryfirst, each.trylast, order.index(each.plugin_name)))

    def _tell(self, hook: str, **told: Any) -> None:
        """Call a hook whose failures harm nobody else."""
        for implementation in self._implementations(hook):
            try:
                self._call(implementation, hook, **told)
            except PluginError as error:
                _warn(error)

    def _call(
        self, implementation: pluggy.HookImpl, hook: str, read: Callable[[Any], Any] | None = None, /, **told: Any
    ) -> Any:
        """Call a plugin's hook.

        :param read: reads the answer
        """
        plugin = implementation.plugin_name
        try:
            answer = implementation.function(*(told[name] for name in implementation.argnames))
            answer = answer if read is None else read(answer)
        except AmadouError as error:
            raise PluginError(plugin, str(error), hook) from error
        except (Exception, SystemExit) as error:
            raise PluginError(plugin, f"{type(error).__name__}: {error}", hook) from error
        if self._traces:
            shown = "" if answer is None else f" -> {shown_value(answer, _ANSWER_LENGTH)}"
            print(f"amadou: {hook}({', '.join(told)}) by {plugin}{shown}", file=sys.stderr, flush=True)
        return answer


class RunHooks:
    """Tells plugins of one run: of its beginning and its end once."""

    def __init__(self, plugins: Plugins) -> None:
        self.plugins = plugins
        self._run: Run | None = None
        self._has_ended = False

    def started(self, run: Run) -> None:
        """Sources and sinks were looked at; batches follow."""
        if self._run is None:
            self._run = attrs.evolve(run, metrics=self.plugins.metrics())
            self.plugins.run_started(self._run)

    def batch_completed(self, batch: BatchReport) -> None:
        """A batch's outputs are committed."""
        assert self._run is not None
        self.plugins.batch_completed(self._run, batch)

    def spark_progress(self, progress: Mapping[str, Any]) -> None:
        """What Spark says of a batch."""
        assert self._run is not None
        self.plugins.spark_progress(self._run, progress)

    def ended(self, outcome: RunSummary | Exception) -> None:
        """The run is over, for good or with an error. One that failed before it began is none."""
        if self._run is None or self._has_ended:
            return
        self._has_ended = True
        if isinstance(outcome, RunSummary):
            self.plugins.run_ended(self._run, outcome)
        else:
            self.plugins.run_failed(self._run, outcome)

    @contextmanager
    def failures_told(self) -> Iterator[None]:
        """Take an error that comes out of the context for the run's end."""
        try:
            yield
        except Exception as error:
            self.ended(error)
            raise


_loaded: dict[tuple[Any, ...], Plugins] = {}


def plugins_of(named: Iterable[Any] = ()) -> Plugins:
    """The plugins of this process for a job, loaded once.

    :param named: see `Plugins`
    """
    given = tuple(named)
    key = tuple(plugin if isinstance(plugin, str) else id(plugin) for plugin in given)  # objects may have no hash
    if key not in _loaded:
        _loaded[key] = Plugins(given)
    return _loaded[key]


def _warn(error: PluginError) -> None:
    cause = "" if error.__cause__ is None else f"\n{shown_traceback(error.__cause__)}"
    _logger.warning("%s%s", error, cause)


def _place(plugin: Any) -> str:
    name = getattr(plugin, "__name__", None)  # a module's
    return name if isinstance(name, str) else f"{type(plugin).__module__}.{type(plugin).__qualname__}"
