"""The typed client of the REST API, in a blocking and an async form."""

from services.client.asynchronous import AsyncClient
from services.client.blocking import Client
from services.client.errors import ClientError, DigestMismatch, LonghaulApiError, Unreachable

__all__ = ["AsyncClient", "Client", "ClientError", "DigestMismatch", "LonghaulApiError", "Unreachable"]
