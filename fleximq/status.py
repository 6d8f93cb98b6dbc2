"""The status codes of the FlexiMQ v1 document, section 5.1.

Every :class:`fleximq.errors.BrokerError` carries one, and each dialect translates it into its own words.
"""

from enum import IntEnum


class Status(IntEnum):
    """One status code; its value is sent in the header field ``status``."""

    OK = 200
    CREATED = 201
    ACCEPTED = 202
    NO_CONTENT = 204
    BAD_REQUEST = 400
    UNAUTHORIZED = 401
    FORBIDDEN = 403
    NOT_FOUND = 404
    METHOD_NOT_ALLOWED = 405
    REQUEST_TIMEOUT = 408
    CONFLICT = 409
    PAYLOAD_TOO_LARGE = 413
    UNPROCESSABLE_CONTENT = 422
    TOO_MANY_REQUESTS = 429
    INTERNAL_SERVER_ERROR = 500
    NOT_IMPLEMENTED = 501
    BAD_GATEWAY = 502
    SERVICE_UNAVAILABLE = 503
    GATEWAY_TIMEOUT = 504
    CLIENT_NOT_FOUND = 600
    TOPIC_NOT_FOUND = 601
    INVALID_ROUTING = 602
    SUBSCRIPTION_FAILED = 603
    AUTHENTICATION_FAILED = 604
    JOIN_REJECTED = 605


#: From this code on a status reports a failure.
FIRST_ERROR = 400
