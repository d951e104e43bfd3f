"""How a content would be cut, without anything being stored."""

import asyncio

from services.common.errors import InvalidArgumentError, ResourceExhaustedError
from services.knowledge.domain.ingest.cutting import (
    CutDocument,
    CutRequest,
    CutterDiedError,
    CutterTimeoutError,
    UncuttableError,
)
from services.knowledge.domain.ports import Cutter
from services.knowledge.domain.reading import FieldNames, check_readable


class Previews:
    """Cuts contents for their authors to look at."""

    def __init__(self, cutter: Cutter) -> None:
        self._cutter = cutter

    async def show(self, request: CutRequest) -> CutDocument:
        """The content in pieces.

        Raises:
            InvalidEncodingError: the content is not text in its charset.
            UnsupportedMediaTypeError: contents of this kind cannot be read.
            InvalidArgumentError: the content cannot be cut, or not in the time that there is.
            ResourceExhaustedError: others are being cut already.
        """
        await asyncio.to_thread(
            check_readable,
            request.content,
            name=request.name,
            media_type=request.media_type,
            fields=FieldNames(),
        )
        try:
            return await self._cutter.cut(request)
        except CutterTimeoutError as error:
            raise InvalidArgumentError.of_field("content", "takes too long to cut") from error
        except UncuttableError as error:
            raise InvalidArgumentError.of_field("content", "cannot be cut") from error
        except CutterDiedError as error:
            raise ResourceExhaustedError("The content could not be cut now.") from error
