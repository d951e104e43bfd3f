"""The models that are served."""

from collections.abc import Iterable

from services.embedding.domain.batching import Batcher
from services.embedding.domain.errors import UnknownModelError
from services.embedding.domain.models import ModelName


class Registry:
    """The batchers by the names of their models, one of which is the default.

    Attributes:
        default: the model that an empty name stands for.
    """

    def __init__(self, batchers: Iterable[Batcher], *, default: ModelName) -> None:
        """Register the models of the batchers.

        Raises:
            ValueError: two models have the same name, or none has the default's.
        """
        self._batchers: dict[ModelName, Batcher] = {}
        for batcher in sorted(batchers, key=lambda each: each.backend.spec.name):
            name = batcher.backend.spec.name
            if name in self._batchers:
                raise ValueError(f"two backends serve a model named {name}")
            self._batchers[name] = batcher
        if default not in self._batchers:
            raise ValueError(f"no backend serves the default model {default}")
        self.default = default

    def find(self, name: str) -> Batcher:
        """The batcher of a model; an empty name stands for the default.

        Raises:
            UnknownModelError: there is no such model.
        """
        batcher = self._batchers.get(ModelName(name or self.default))
        if batcher is None:
            raise UnknownModelError(name, known=list(self._batchers))
        return batcher

    def all(self) -> list[Batcher]:
        """Every batcher, sorted by model name."""
        return list(self._batchers.values())
