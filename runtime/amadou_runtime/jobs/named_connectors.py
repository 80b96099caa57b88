"""Creates the connectors that the command line specifies as ``KIND:MAIN?OPTION=VALUE&…``, such as
``lines:views/?max_files_per_batch=10``. MAIN is the value of the connector's first parameter. Special characters must
be escaped as in URLs, such as ``%3F`` for a question mark. If the connector has a mapping parameter named `options`,
options that do not match any other parameter are added to this mapping.
"""

import re
from collections.abc import Mapping, Sequence
from datetime import timedelta
from inspect import Parameter, signature
from types import UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints
from urllib.parse import parse_qsl, unquote

import attrs

from amadou import Job, Param, Secret, Stage
from amadou.engine import names_secret
from amadou.errors import AmadouError, LoadError
from amadou_runtime.plugins.hooks import Plugins, plugins_of

S = TypeVar("S", Job, Stage)
T = TypeVar("T")
_READABLE = (bool, int, float, timedelta, str, Secret)
_OPTIONS = "options"
_LOGIN = re.compile("//(?:[^/@]*:.*|[^/@]*)@")
_NAMED_VALUE = re.compile(r"([\w.-]+)=[^&]*")


def with_connectors(
    job: Job, sources: Mapping[str, str], sinks: Mapping[str, Sequence[str]], plugins: Sequence[str] = ()
) -> Job:
    """Return a job with the connectors and additional plugins that the command line specifies.

    :param sources: the specification of each source to add or replace, by the source's name; in a job with several
        stages, by ``<stage>.<source>``
    :param sinks: the specifications of a port's sinks, by the port's name or ``<stage>.<port>``
    :raises LoadError: a specification's KIND is not the name of a connector, a connector cannot be created, or the job
        does not have a stage
    :raises PluginError: a plugin cannot be loaded
    :raises JobError: the job does not have one of the ports, or has other mistakes
    """
    if not (sources or sinks or plugins):
        return job
    named = (*job.plugins, *plugins)
    known = plugins_of(named)
    if not job.stages:
        return attrs.evolve(_with(job, sources, sinks, known), plugins=named)
    for option, names in (("--source", sources), ("--sink", sinks)):
        for name in names:
            if name.partition(".")[0] not in job.stages or "." not in name:
                example = f"{next(iter(job.stages))}.{name.rpartition('.')[2]}"
                raise LoadError(
                    f"{option} {name}", f"name one of the stages ({', '.join(job.stages)}), as in {example}"
                )
    stages = {
        stage: _with(of, _of_stage(stage, sources), _of_stage(stage, sinks), known, f"{stage}.")
        for stage, of in job.stages.items()
    }
    return attrs.evolve(job, stages=stages, plugins=named)


def _of_stage(stage: str, named: Mapping[str, T]) -> dict[str, T]:
    return {name.partition(".")[2]: value for name, value in named.items() if name.partition(".")[0] == stage}


def _with(of: S, sources: Mapping[str, str], sinks: Mapping[str, Sequence[str]], known: Plugins, prefix: str = "") -> S:
    """Return a job or a stage with more connectors.

    :param prefix: text before names in error messages
    """
    more_sources = {}
    for name, text in sources.items():
        replaced = of.sources.get(name)
        key_event = None if replaced is None else replaced.key_event
        more_sources[name] = _connector(f"--source {prefix}{name}", text, known.sources(), key_event)
    more_sinks: dict[str, Any] = {}
    for port, texts in sinks.items():
        named_sinks = [_connector(f"--sink {prefix}{port}", text, known.sinks()) for text in texts]
        more_sinks[port] = named_sinks[0] if len(named_sinks) == 1 else named_sinks
    return attrs.evolve(of, sources={**of.sources, **more_sources}, sinks={**of.sinks, **more_sinks})


def _connector(option: str, text: str, kinds: Mapping[str, type], key_event: Any = None) -> Any:
    """Create a connector from its specification.

    :param key_event: the `key_event` of the source that the connector replaces, if any
    """
    kind, colon, rest = text.partition(":")
    main, _, query = rest.partition("?")
    shown = _NAMED_VALUE.sub(lambda found: f"{found[1]}=***" if names_secret(found[1]) else found[0], unquote(main))
    label = f"{option}={kind}{colon}{_LOGIN.sub('//***@', shown)}"  # options can be secrets, so errors never show them
    if kind not in kinds:
        raise LoadError(label, f"no connector is named {kind!r}: use one of {', '.join(sorted(kinds))}")
    try:
        return _made(kinds[kind], kind, unquote(main), query, {} if key_event is None else {"key_event": key_event})
    except (AmadouError, ValueError, TypeError) as error:
        raise LoadError(label, str(error)) from error


def _made(made: type, kind: str, main: str, query: str, kept: Mapping[str, Any]) -> Any:
    """Create a connector.

    :param kept: the settings of the source that the connector replaces
    :raises ValueError: these are not settings of the connector
    """
    hints = get_type_hints(vars(made).get("__init__", made))
    parameters = {
        name: each.replace(annotation=hints.get(name, Any))
        for name, each in signature(made).parameters.items()
        if each.kind in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY)
    }
    options, more = _options(made, parameters, query)
    if main:
        first = next((name for name, each in parameters.items() if each.kind != each.KEYWORD_ONLY), None)
        if first is None or first in options:
            raise ValueError(f"pass all settings of {made.__name__} as options: {kind}:?OPTION=VALUE")
        options[first] = main
    if not kept.keys() <= parameters.keys():
        raise ValueError(f"{made.__name__} does not accept the old source's key_event: use a different source")
    missing = [name for name, each in parameters.items() if each.default is each.empty and name not in options]
    if missing:
        raise ValueError(f"{made.__name__} needs a value for {missing[0]}")
    given = {name: _read(name, option, parameters[name].annotation) for name, option in options.items()}
    return made(**given, **kept, **more)


def _options(made: type, parameters: Mapping[str, Parameter], query: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the options for parameters of a connector, and the argument with the others.

    :raises ValueError: the connector does not have one of the options
    """
    types = {name: _readable(each.annotation) for name, each in parameters.items()}
    usable = [name for name, each in types.items() if each]
    options: dict[str, Any] = dict(parse_qsl(query, keep_blank_values=True))
    options |= {name: Secret(text) for name, text in options.items() if Secret in types.get(name, ())}
    others = {}
    if _OPTIONS in parameters and get_origin(parameters[_OPTIONS].annotation) is Mapping:
        others = {name: _hidden(name, options.pop(name)) for name in [*options] if name not in parameters}
    unknown = [name for name in options if name not in usable]
    if unknown:
        raise ValueError(f"{made.__name__} has no option {unknown[0]} (options: {', '.join(usable) or 'none'})")
    return options, {_OPTIONS: others} if others else {}


def _hidden(name: str, text: str) -> Any:
    return Secret(text) if names_secret(name) else text


def _readable(hint: Any) -> list[Any]:
    """Return the types that a setting's text can be converted to, according to the parameter's annotation."""
    allowed = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    return [type_ for type_ in _READABLE if type_ in allowed]


def _read(name: str, given: Any, hint: Any) -> Any:
    types = _readable(hint)
    if isinstance(given, Secret) or str in types or not types:  # a connector's first parameter may have no annotation
        return given
    return Param(name, type=types[0]).value({name: given})
