"""The markers of a plugin, and how to write one.

A plugin is a module, or an object, with functions that are marked with `hookimpl` and named as in `amadou.hookspecs`.
Each takes the parameters that it needs of those that its hook has::

    from amadou import hookimpl
    from my_company.sinks import PagerSink

    @hookimpl
    def amadou_register_sinks():
        return {"pager": PagerSink}

    @hookimpl
    def amadou_run_failed(run, error):
        page(f"{run.job.name} failed: {error}")

It is found where its package names it as an entry point of the group ``amadou``::

    [project.entry-points.amadou]
    pager = "my_company.plugin"

or where a job names it: `Job(…, plugins=["my_company.plugin"])`. A class becomes an object of it, made without
arguments. ``amadou plugins`` lists what is loaded. Plugins are loaded in the driver alone; the connectors and codecs
that a job uses travel to the workers with it, as its handler does.

- The environment variable ``AMADOU_PLUGINS_OFF`` turns plugins from entry points off: ``all``, or names with commas
  between them.
- ``AMADOU_TRACE_PLUGINS=1`` prints each call of a hook, with the plugin that answers, to standard error.
"""

from typing import Final

import pluggy

PROJECT: Final = "amadou"

hookspec: Final = pluggy.HookspecMarker(PROJECT)
"""Marks a hook. Only amadou's own `hookspecs` has some."""
hookimpl: Final = pluggy.HookimplMarker(PROJECT)
"""Marks a plugin's function for a hook."""
