"""AccessService: who may use ChatMind."""

from chatmind.gateway.v1 import access_service_pb2, access_service_pb2_grpc

from services.common.interceptors.authentication import current_identity
from services.common.interceptors.base import Context
from services.common.text import clean
from services.gateway.api import convert
from services.gateway.api.authentication import current_key
from services.gateway.domain.access import Access
from services.gateway.domain.models import KeyId


class AccessServicer(access_service_pb2_grpc.AccessServiceServicer):
    """Answers the methods of AccessService."""

    def __init__(self, access: Access) -> None:
        self._access = access

    async def GetIdentity(
        self, request: access_service_pb2.GetIdentityRequest, context: Context
    ) -> access_service_pb2.GetIdentityResponse:
        """Tell whom the caller's key stands for."""
        return access_service_pb2.GetIdentityResponse(api_key=convert.api_key(current_key()))

    async def CreateApiKey(
        self, request: access_service_pb2.CreateApiKeyRequest, context: Context
    ) -> access_service_pb2.CreateApiKeyResponse:
        """Make a key and return its secret, this once."""
        issued = await self._access.create(current_identity(), convert.new_key(request))
        return access_service_pb2.CreateApiKeyResponse(
            api_key=convert.api_key(issued.key), secret=issued.secret
        )

    async def ListApiKeys(
        self, request: access_service_pb2.ListApiKeysRequest, context: Context
    ) -> access_service_pb2.ListApiKeysResponse:
        """Return a page of the keys that the caller manages."""
        found = await self._access.page(
            current_identity(), size=request.page_size, token=request.page_token
        )
        return access_service_pb2.ListApiKeysResponse(
            api_keys=[convert.api_key(key) for key in found.keys],
            next_page_token=found.next_page_token,
        )

    async def RevokeApiKey(
        self, request: access_service_pb2.RevokeApiKeyRequest, context: Context
    ) -> access_service_pb2.RevokeApiKeyResponse:
        """End a key."""
        revoked = await self._access.revoke(current_identity(), KeyId(clean(request.api_key_id)))
        return access_service_pb2.RevokeApiKeyResponse(api_key=convert.api_key(revoked))
