"""The markers of plugins, and a guide to writing a plugin.

A plugin is a module, or an object, with functions that are marked with `hookimpl` and named as in `amadou.hookspecs`.
Each function takes any of its hook's parameters::

    from amadou import hookimpl
    from my_company.sinks import PagerSink

    @hookimpl
    def amadou_register_sinks():
        return {"pager": PagerSink}

    @hookimpl
    def amadou_run_failed(run, error):
        page(f"{run.job.name} failed: {error}")

amadou finds a plugin if its package names it as an entry point of the group ``amadou``::

    [project.entry-points.amadou]
    pager = "my_company.plugin"

or if a job names it: `Job(…, plugins=["my_company.plugin"])`. If the plugin is a class, amadou makes an object of it
without arguments. ``amadou plugins`` lists the loaded plugins. Plugins are loaded in the driver alone; the connectors
and codecs that a job uses travel to the workers with it, as its handler does.

- The environment variable ``AMADOU_PLUGINS_OFF`` turns plugins from entry points off: ``all``, or names separated by
  commas.
- ``AMADOU_TRACE_PLUGINS=1`` prints each call of a hook, with the plugin that answers, to standard error.
"""

from typing import Final

import pluggy

PROJECT: Final = "amadou"

hookspec: Final = pluggy.HookspecMarker(PROJECT)
"""Marks a hook. Only amadou's own `hookspecs` uses it."""
hookimpl: Final = pluggy.HookimplMarker(PROJECT)
"""Marks a plugin's function for a hook."""
