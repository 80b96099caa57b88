"""The markers for plugins, and a guide to writing a plugin.

A plugin is a module or an object with functions that implement hooks. Each function is marked with `hookimpl` and has
the name of a hook in `amadou.hookspecs`. A function can declare all, some or none of its hook's parameters::

    from amadou.plugins import hookimpl
    from my_company.sinks import PagerSink

    @hookimpl
    def amadou_register_sinks():
        return {"pager": PagerSink}

    @hookimpl
    def amadou_run_failed(run, error):
        page(f"{run.job.name} failed: {error}")

amadou finds a plugin if its package declares an entry point in the group ``amadou``::

    [project.entry-points.amadou]
    pager = "my_company.plugin"

A job can also list the plugin: `Job(…, plugins=["my_company.plugin"])`. If the plugin is a class, amadou creates an
instance without arguments. ``amadou plugins`` lists the installed plugins. Plugins are loaded on the driver only. The
connectors and codecs that a job uses are sent to the workers together with the job's handler.

- The environment variable ``AMADOU_PLUGINS_OFF`` disables plugins from entry points. Set this variable to ``all``,
  or to the plugins' names separated by commas.
- ``AMADOU_TRACE_PLUGINS=1`` prints each hook call, with the plugin that implements the hook, to standard error.
"""

from typing import Final

import pluggy

PROJECT: Final = "amadou"

hookspec: Final = pluggy.HookspecMarker(PROJECT)
"""Marks a hook. Only `amadou.hookspecs` uses this marker."""
hookimpl: Final = pluggy.HookimplMarker(PROJECT)
"""Marks a plugin function that implements a hook."""
