"""What clients that want transactions are told: they are not served yet.

A client has to stop, and its user has to learn why.  Java's client stops at any code but those
that it retries, and shows the message of the response; for TRANSACTIONAL_ID_AUTHORIZATION_FAILED it
shows words of its own, about missing rights.  librdkafka stops at that code only, and shows the
message with it; all other codes it retries.  The two use different versions of the same requests.
"""

from typing import Final

from quipu.model.errors import Code

NO_TRANSACTIONS: Final = (
    "this cluster does not serve transactions, whatever rights the client has; use an idempotent "
    "producer (enable.idempotence) without transactional.id")


def transaction_refusal(version: int, any_code_since: int) -> Code:
    """The code for a request of `version`, whose clients stop at any code from a version on."""
    if version >= any_code_since:
        return Code.UNSUPPORTED_VERSION
    return Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
