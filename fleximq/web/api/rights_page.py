"""``/api/rights``: whether a principal may do something, and which rule decides it."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from fleximq.broker.broker import Broker
from fleximq.broker.paths.arguments import Arguments, number, text
from fleximq.broker.topics.names import isBrokerTopic
from fleximq.errors import BadRequest, NotFound
from fleximq.limits import TOPIC_BYTES
from fleximq.rights import Action
from fleximq.security.access_policy import AccessPolicy
from fleximq.security.permissions import Rule
from fleximq.security.principal import ANONYMOUS, MAX_NAME_CHARACTERS, Principal
from fleximq.values.patterns import anyOf, covers, isPattern, overlap
from fleximq.web.request import Argument, HttpReply, Page, PageRequest, jsonReply

_ACTIONS = [action.value for action in Action]
_OPEN = "there are no permissions, so that all clients may do everything"
_ARGUMENTS = (
    Argument("principal", "The name of a principal, or ``anonymous``."),
    Argument("client_id", "In place of the principal, a client of this node.", "integer"),
    Argument("action", f"One of {', '.join(_ACTIONS)}."),
    Argument("name", "A topic, a pattern to subscribe to, a path, or the name that the action is about."),
)


@dataclass(frozen=True, slots=True)
class RightsExplained:
    """The answer."""

    broker: Broker
    security: AccessPolicy

    async def answer(self, request: PageRequest) -> HttpReply:
        """Return whether it is permitted, the rule, and both in a sentence."""
        arguments = request.arguments
        action, name = arguments.get("action"), text(arguments, "name", TOPIC_BYTES)
        if action not in _ACTIONS:
            raise BadRequest(f"'action' must be one of {', '.join(_ACTIONS)}")
        principal, clientId = self._whoIs(arguments)
        who = ANONYMOUS if principal is None else principal.name
        asked = {"principal": who, "action": action, "name": name}
        permitted, rule, why = self._decision(principal, clientId, action, name)
        words = f"{who} may {'' if permitted else 'not '}{action} {name!r}: {why}"
        shown = None if rule is None else {"table": rule.table, "deny": rule.isDenial, "pattern": rule.written}
        return jsonReply({**asked, "permitted": permitted, "rule": shown, "words": words})

    def _whoIs(self, arguments: Arguments) -> tuple[Principal | None, int]:
        """Return a principal, with the roles of its credentials if one of its clients is connected, and a client id."""
        if ("client_id" in arguments) == ("principal" in arguments):
            raise BadRequest("name either a 'principal' or a 'client_id'")
        if "client_id" in arguments:
            client = self.broker.clients.find(number(arguments, "client_id"))
            if client is None:
                raise NotFound(f"there is no client {arguments['client_id']} at this node")
            return client.identity, client.id
        name = text(arguments, "principal", 4 * MAX_NAME_CHARACTERS)
        if name == ANONYMOUS:
            return None, 0
        known = next((each.identity for each in self.broker.clients if each.principal == name), None)
        return known or Principal(name), 0

    def _decision(
        self, principal: Principal | None, clientId: int, action: str, name: str
    ) -> tuple[bool, Rule | None, str]:
        if action == Action.PUBLISH and isBrokerTopic(name):
            return False, None, "only the broker publishes to this topic"
        permissions = self.security.permissions
        if not permissions.configured and not (principal is not None and principal.grants):
            permitted = self.security.rightsOf(principal).may(action, name)
            return permitted, None, _OPEN if permitted else f"{_OPEN} but {action}"
        bare = name.removeprefix("/")
        for rule in permissions.rulesFor(principal, action, clientId):
            if any(_applies(rule, pattern, bare, action) for pattern in rule.patterns):
                kind = "is denied by" if rule.isDenial else "is granted by"
                return not rule.isDenial, rule, f"it {kind} {rule.written!r} in {rule.table}"
        return False, None, f"no rule grants it{self._unknown(principal)}"

    def _unknown(self, principal: Principal | None) -> str:
        isGuessed = principal is not None and not principal.scheme
        return "; roles that its credentials carry are not known, as it is not connected" if isGuessed else ""


def _applies(rule: Rule, pattern: str, name: str, action: str) -> bool:
    if action == Action.SUBSCRIBE and isPattern(name):
        return covers(pattern, name) if rule.isDenial else overlap(name, pattern)
    return anyOf((pattern,))(name)


def rightsPage(rights: RightsExplained) -> Page:
    """Return the page."""
    answer: Callable[[PageRequest], Any] = partial(RightsExplained.answer, rights)
    words = "Whether a principal may do something, and the rule that decides it."
    return Page(answer, Action.ADMIN, words=words, arguments=_ARGUMENTS, everywhere=True)
