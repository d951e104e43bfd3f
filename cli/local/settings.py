"""Looks at the settings of all services before any of them starts."""

from collections.abc import Sequence
from importlib import import_module

from cli.local.errors import StartError
from cli.local.services import LocalService
from cli.output import Output
from services.common.settings import ServerSettings, misspelled, wrong_settings

_OF_COMMAND = frozenset({"CHATMIND_API_KEY", "CHATMIND_DATA_DIR", "CHATMIND_SERVER"})


def check_settings(services: Sequence[LocalService], output: Output) -> None:
    """Return if all services can read their settings; misspelled ones are told.

    Raises:
        StartError: some are wrong; each line names a variable.
    """
    settings = {service.name: _settings_of(service) for service in services}
    for line in misspelled(*settings.values(), besides=_OF_COMMAND):
        output.note(f"warning: {line}")
    wrong: dict[str, None] = {}
    for service in services:
        # A variable that several services read is told once.
        wrong |= dict.fromkeys(wrong_settings(settings[service.name], service.environment))
    if wrong:
        raise StartError("\n".join(wrong))


def _settings_of(service: LocalService) -> type[ServerSettings]:
    """The settings of a service, found by its name as the service itself is."""
    module = import_module(f"{service.module}.settings")
    (settings,) = (
        each
        for each in vars(module).values()
        if isinstance(each, type)
        and issubclass(each, ServerSettings)
        and each.__module__ == module.__name__
    )
    return settings
