"""AccessService over gRPC: manages API keys."""

from chatmind.gateway.v1 import access_service_pb2, access_service_pb2_grpc

from services.common.interceptors.authentication import current_identity
from services.common.interceptors.base import Context
from services.common.paging import PagedList, PageTokens
from services.common.text import clean
from services.gateway.api import convert
from services.gateway.api.authentication import current_key
from services.gateway.domain.access import Access
from services.gateway.domain.models import KeyId


class AccessServicer(access_service_pb2_grpc.AccessServiceServicer):
    """Answers the methods of AccessService."""

    def __init__(self, access: Access, tokens: PageTokens) -> None:
        self._access = access
        self._tokens = tokens

    async def GetIdentity(
        self, request: access_service_pb2.GetIdentityRequest, context: Context
    ) -> access_service_pb2.GetIdentityResponse:
        """Return the caller's own key."""
        return access_service_pb2.GetIdentityResponse(api_key=convert.from_api_key(current_key()))

    async def CreateApiKey(
        self, request: access_service_pb2.CreateApiKeyRequest, context: Context
    ) -> access_service_pb2.CreateApiKeyResponse:
        """Create a key and return its secret, this once."""
        issued = await self._access.create(current_identity(), convert.to_new_key(request))
        return access_service_pb2.CreateApiKeyResponse(
            api_key=convert.from_api_key(issued.key), secret=issued.secret
        )

    async def ListApiKeys(
        self, request: access_service_pb2.ListApiKeysRequest, context: Context
    ) -> access_service_pb2.ListApiKeysResponse:
        """Return a page of the keys that the caller manages."""
        identity = current_identity()
        paged = PagedList.of(self._tokens, "api_keys", identity)
        page = paged.page(request.page_size, request.page_token)
        found = await self._access.page(identity, page)
        return access_service_pb2.ListApiKeysResponse(
            api_keys=[convert.from_api_key(key) for key in found.items],
            next_page_token=paged.next_token(found, lambda key: key.id),
        )

    async def RevokeApiKey(
        self, request: access_service_pb2.RevokeApiKeyRequest, context: Context
    ) -> access_service_pb2.RevokeApiKeyResponse:
        """Revoke a key."""
        revoked = await self._access.revoke(current_identity(), KeyId(clean(request.api_key_id)))
        return access_service_pb2.RevokeApiKeyResponse(api_key=convert.from_api_key(revoked))
