"""Both ends of a connection whose messages are signed, whatever carries them.

===========  ==================================================================================
coordinator  signs each message for one site; takes a reply only if that site signed it, for it,
             in answer to this message
site         answers only what the coordinator signed whose key it has pinned; signs its answer
carrier      sees the bundles; can lose or repeat them
===========  ==================================================================================
"""

import logging

from eigenfed.errors import DataError, ProtocolError
from eigenfed.privacy.secagg.identity import Identity
from eigenfed.protocol.messages import Message
from eigenfed.transport.bundles import (
    COORDINATOR,
    Bundle,
    Manifest,
    digest_start,
    hash_message,
    name_site,
    sign_bundle,
)
from eigenfed.transport.local import Answering

_log = logging.getLogger(__name__)


class SignedConnection:
    """The coordinator's end: messages leave as signed bundles, and replies are verified.

    Parameters
    ----------
    carrier : Answering
        What takes a bundle to the site and brings one back.
    site : str
    identity : Identity
        The coordinator's.
    public : bytes
        The site's public key, as the roster has it.
    """

    def __init__(self, carrier: Answering, *, site: str, identity: Identity, public: bytes) -> None:
        self._carrier = carrier
        self._site = site
        self._identity = identity
        self._public = public

    def answer(self, data: bytes) -> bytes:
        """Send a message, and return the site's answer.

        Raises
        ------
        ConnectionError
            If the site cannot be reached.
        ProtocolError
            If the answer is not by this site, or not to this message.
        """
        there = name_site(self._site)
        sent = sign_bundle(data, self._identity, sender=COORDINATOR, recipient=there)
        try:
            bundle = Bundle.from_bytes(self._carrier.answer(sent))
        except DataError:
            raise self._forged("is damaged") from None
        manifest = bundle.manifest
        if (manifest.sender, manifest.recipient) != (there, COORDINATOR):
            raise self._forged("is not from it")
        if not bundle.is_signed_by(self._public):
            raise self._forged("is not signed by its key in the roster")
        if manifest.answers != hash_message(data) and not _refuses(manifest, sent):
            raise self._forged("answers another request")
        return bundle.message

    def _forged(self, why: str) -> ProtocolError:
        return ProtocolError(
            f"The answer from site {self._site!r} {why}. Compare its fingerprint with the people "
            "there: eigenfed network show."
        )


def _refuses(manifest: Manifest, sent: bytes) -> bool:
    """Return whether a site says that just this bundle, with its signature, is not signed."""
    is_refusal = (manifest.kind, manifest.operation) == ("refusal", "unsigned")
    return is_refusal and manifest.answers == digest_start(sent)


class SignedSite:
    """The site's end: only what the coordinator signed for this site reaches it.

    Parameters
    ----------
    site : Answering
    name : str
        The site's name.
    identity : Identity
        The site's.
    coordinator : bytes
        The coordinator's public key, which the site has pinned.

    Examples
    --------
    >>> class Echo:
    ...     def answer(self, data: bytes) -> bytes:
    ...         return data
    >>> mine, theirs = Identity.generate(), Identity.generate()
    >>> site = SignedSite(Echo(), name="north", identity=theirs, coordinator=mine.public)
    >>> near = SignedConnection(site, site="north", identity=mine, public=theirs.public)
    >>> message = Message("request", "r1", 0, "moments", {}).to_bytes()
    >>> near.answer(message) == message
    True
    """

    def __init__(
        self, site: Answering, *, name: str, identity: Identity, coordinator: bytes
    ) -> None:
        self._site = site
        self._here = name_site(name)
        self._identity = identity
        self._coordinator = coordinator

    def answer(self, data: bytes) -> bytes:
        """Answer a bundle with a bundle."""
        try:
            bundle = Bundle.from_bytes(data)
        except DataError:
            _log.warning("a message was refused: it is damaged, or of another release")
            return self._reply(Message("refusal", "", -1, "malformed", {}).to_bytes(), "")
        manifest = bundle.manifest
        is_ours = (manifest.sender, manifest.recipient) == (COORDINATOR, self._here)
        if not is_ours or not bundle.is_signed_by(self._coordinator):
            _log.warning("a message was refused: it is not signed by the coordinator for this site")
            refused = Message("refusal", manifest.run, manifest.round, "unsigned", {}).to_bytes()
            # Anybody can put another signature on a message of the coordinator. This refusal is no
            # answer to the message, but to the bundle.
            return self._reply(refused, digest_start(data))
        return self._reply(self._site.answer(bundle.message), hash_message(bundle.message))

    def _reply(self, message: bytes, answers: str) -> bytes:
        return sign_bundle(
            message,
            self._identity,
            sender=self._here,
            recipient=COORDINATOR,
            answers=answers,
        )
