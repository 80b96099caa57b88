"""Finds and loads plugins: amadou's own plugins, installed plugins, and the plugins that a job specifies."""

import importlib
import itertools
import logging
import os
import re
from collections.abc import Callable, Iterable
from functools import partial
from importlib.metadata import EntryPoint, entry_points
from typing import Any

import attrs
import pluggy

from amadou import hookspecs
from amadou.engine import PROJECT
from amadou.errors import PluginError

OFF = "AMADOU_PLUGINS_OFF"
_BUILT_IN = {
    "commands": "amadou_runtime.command.commands",
    "connectors": "amadou_plugins.connector_names",
    "metrics": "amadou_plugins.metrics.plugin",
}
"""amadou's own plugins by name, in the order in which they are loaded."""
_HOOKS = ", ".join(name for name in vars(hookspecs) if name.startswith(f"{PROJECT}_"))
_ALL = "all"
_REFERENCE = re.compile(r"[\w.]+(:[\w.]+)?")
_logger = logging.getLogger("amadou")


@attrs.frozen
class LoadedPlugin:
    """A plugin that was found, whether or not the plugin was loaded.

    :param name: the plugin's name
    :param origin: `amadou`, an installed package with its version, or `the job`
    :param place: the module, or `module:attribute`, from which the plugin is loaded; for an object that the job passes,
        the name of the module or class
    :param hooks: names of the hooks that the plugin implements
    :param problem: the reason why the plugin was not loaded; `None` if the plugin was loaded
    """

    name: str
    origin: str
    place: str
    hooks: tuple[str, ...] = ()
    problem: str | None = None


class PluginLoader:
    """Loads plugins, and stores them in the order in which they were loaded.

    :param named: see `Plugins`
    :raises PluginError: a plugin of the job cannot be loaded
    """

    def __init__(self, named: Iterable[Any]) -> None:
        self._manager = pluggy.PluginManager(PROJECT)
        self._manager.add_hookspecs(hookspecs)
        self.found: list[LoadedPlugin] = []
        for name, module in _BUILT_IN.items():
            self._load(name, "amadou", module, partial(importlib.import_module, module))
        off = {name.strip() for name in os.environ.get(OFF, "").split(",")} - {""}
        entries = entry_points(group=PROJECT)
        unknown = off - {entry.name for entry in entries} - {_ALL}
        if unknown:
            message = "%s names plugins that are not installed: %s. Correct the names (valid names: %s)"
            known = ", ".join([_ALL, *sorted({entry.name for entry in entries})])
            _logger.warning(message, OFF, ", ".join(sorted(unknown)), known)
        for entry in entries:
            self._load_installed(entry, _ALL in off or entry.name in off)
        for plugin in named:
            self._load_named(plugin)

    def implementations(self, hook: str) -> list[pluggy.HookImpl]:
        """Return the functions that implement a hook, in call order."""
        order = [name for name, _ in self._manager.list_name_plugin()]
        found = getattr(self._manager.hook, hook).get_hookimpls()
        return sorted(found, key=lambda each: (not each.tryfirst, each.trylast, order.index(each.plugin_name)))

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
            _logger.warning("%s (from %s; turn the plugin off with %s=%s)", error, origin, OFF, entry.name)

    def _load_named(self, plugin: Any) -> None:
        if not isinstance(plugin, str):
            place = _place(plugin)
            self._load(place, "the job", place, lambda: plugin)
            return
        if not _REFERENCE.fullmatch(plugin):
            raise PluginError(plugin, "a plugin's name must be a module name, or module:attribute for an object")
        self._load(plugin, "the job", plugin, EntryPoint(plugin, plugin, PROJECT).load)

    def _load(self, name: str, origin: str, place: str, load: Callable[[], Any]) -> None:
        try:
            plugin = load()
            plugin = plugin() if isinstance(plugin, type) else plugin
            if plugin is None:
                raise TypeError("a plugin must be a module or an object that implements hooks, not None")
        except (Exception, SystemExit) as error:
            raise PluginError(name, f"{type(error).__name__}: {error}") from error
        if self._manager.is_registered(plugin):
            return  # already loaded, for example because the job also specifies an installed plugin
        name = self._free(name)
        try:
            self._manager.register(plugin, name)
        except pluggy.PluginValidationError as error:
            self._manager.unregister(name=name)
            raise PluginError(name, str(error).strip().splitlines()[-1]) from error
        callers = self._manager.get_hookcallers(plugin) or []
        problem = _problem(plugin, callers)
        if problem is not None:
            self._manager.unregister(name=name)
            raise PluginError(name, problem)
        self.found.append(LoadedPlugin(name, origin, place, tuple(caller.name for caller in callers)))

    def _free(self, name: str) -> str:
        """Return a plugin's name, with a number if the name is taken: objects of the same class have the same name."""
        names = itertools.chain([name], (f"{name} ({number})" for number in itertools.count(2)))
        return next(free for free in names if not self._manager.has_plugin(free))


def _problem(plugin: Any, callers: list[pluggy.HookCaller]) -> str | None:
    """Return the mistake in a plugin's hooks; `None` if the hooks are valid."""
    own = [(caller, each) for caller in callers for each in caller.get_hookimpls() if each.plugin is plugin]
    wrapping = sorted(caller.name for caller, each in own if each.wrapper or each.hookwrapper)
    if wrapping:
        return f"it has hook wrappers ({', '.join(wrapping)}): do not use wrapper=True"
    unknown = sorted(caller.name for caller, each in own if not (caller.has_spec() or each.optionalhook))
    if unknown:
        return f"amadou has no hook {', '.join(unknown)} (available hooks: {_HOOKS})"
    return None if callers else f"it has no function marked with hookimpl (available hooks: {_HOOKS})"


def _place(plugin: Any) -> str:
    name = getattr(plugin, "__name__", None)  # modules have a name
    return name if isinstance(name, str) else f"{type(plugin).__module__}.{type(plugin).__qualname__}"
