"""Nothing of a topic reaches those who may do nothing with it, on any way on which somebody else is told of it.

Each way is tried by an insider, who must see the secret (so that the way is one), and by an outsider, who must not.
Both may read all of the broker's own paths; what they show is what their readers may see.
"""

import atexit
import http.client
import json
import shutil
import tempfile
import uuid
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlencode

from fleximq.cli.credential_files import setSecret
from tests.broker_process import BrokerProcess
from tests.conversations.case import Place, SocketCase
from tests.conversations.clients import PATIENCE, BlipClient, Ended, FlexiClient, IdentityClient, Stream

INSIDER, OUTSIDER = "insider", "outsider"
KEYS = {name: f"a-long-key-of-the-{name}" for name in (INSIDER, OUTSIDER)}
SETTINGS = """\
auth = ["apikeys:{folder}/keys"]
journal = "{folder}/journal"
durable = ["secret.#", "open.#"]
retain = ["secret.kept.#", "open.kept.#"]
history = 5
max-deliveries = 1
redelivery = 0.05
announce-channels = true

[principals.insider]
publish = true
subscribe = ["#", "$sys/#", "$dead/#"]
consume = ["#", "$dead/#"]
read = true

[principals.outsider]
publish = ["open.#"]
subscribe = ["open.#"]
consume = ["open.#"]
read = true
"""


class Guarded(Place):
    """A broker with a journal that lets the two in and gives them their rights."""

    @cached_property
    def _folder(self) -> Path:
        folder = Path(tempfile.mkdtemp(prefix="fleximq-leaks-"))
        atexit.register(shutil.rmtree, folder, True)
        for name, key in KEYS.items():
            setSecret(str(folder / "keys"), name, key)
        (folder / "fleximq.toml").write_text(SETTINGS.format(folder=folder))
        return folder

    @property
    def broker(self) -> BrokerProcess:
        """The running broker."""
        self._options = ("--config", str(self._folder / "fleximq.toml"))
        return super().broker


class Way(NamedTuple):
    """A way on which somebody may learn of a topic.

    :param tried: done by the one who tries; returns everything that was heard, as text.
    :param naming: whether the one who tries names the topic itself; then only the messages are secret.
    """

    tried: Callable[["LeakTests", str], str]
    naming: bool = False


class LeakTests(SocketCase):
    """One test for each way and each of the two; they are made below."""

    place = Guarded()

    def setUp(self) -> None:
        """Make words that nobody knows."""
        super().setUp()
        self.secret = f"secret.{self.topic}"
        self.word = f"w{uuid.uuid4().hex[:12]}"
        self.fence = f"f{uuid.uuid4().hex[:12]}"

    # -- who is there ------------------------------------------------------------------------------

    def member(self, name: str) -> FlexiClient:
        """Return a FlexiMQ client of this name."""
        client = FlexiClient(Stream(self.place.address("fleximq")))
        return self.opened(client).join({"auth": {"type": "api_key", "api_key": KEYS[name]}})

    def poller(self, name: str) -> BlipClient:
        """Return a BlipMQ client of this name."""
        return self.opened(BlipClient(self.place.address("blipmq"))).login(KEYS[name])

    def page(self, name: str) -> IdentityClient:
        """Return an Identity client of this name."""
        return self.opened(IdentityClient(self.place.address("identity"), f"/?api_key={KEYS[name]}"))

    def publish(self, topic: str, word: str) -> None:
        """Let the insider publish; it is safe afterwards."""
        self.assertEqual(self.member(INSIDER).publish(topic, word).barrier(), [])

    # -- ways --------------------------------------------------------------------------------------

    def live(self, name: str, **header: Any) -> str:
        """Subscribe, and hear everything until something comes that both may hear."""
        client = self.member(name).tell("SUB", header)
        refused = client.barrier()
        self.publish(self.secret, self.word)
        self.publish(f"secret.kept.{self.topic}", self.word)
        return self.untilFence(client, refused)

    def late(self, name: str, **header: Any) -> str:
        """Subscribe when all was published already."""
        self.publish(self.secret, self.word)
        self.publish(f"secret.kept.{self.topic}", self.word)
        client = self.member(name).tell("SUB", header)
        # Messages of the journal may come later than a live one.
        return self.untilFence(client, client.barrier(), [self.word] if name == INSIDER else [])

    def untilFence(self, client: FlexiClient, heard: list[Any], wanted: Sequence[str] = ()) -> str:
        """Return all that a client hears until it hears what it may and what is wanted; at once if it was refused."""
        if any(each.kind == "REP" for each in heard):
            return repr(heard)
        fence = f"open.{self.topic[::-1]}"
        heard += client.subscribe(fence).barrier()
        self.publish(fence, self.fence)
        while not all(each in repr(heard) for each in (self.fence, *wanted)):
            heard.append(client.hear())
        return repr(heard)

    def presence(self, name: str) -> str:
        """Hear who comes and which topics come into being."""
        client = self.member(name).subscribe("$sys/#", "#")
        heard = client.barrier()
        self.publish(self.secret, self.word)
        self.publish(f"open.{self.topic[::-1]}", self.fence)
        while self.fence not in repr(heard[-1:]):
            heard.append(client.hear())
        return repr(heard)

    def deadLetters(self, name: str) -> str:
        """Hear what was delivered too often."""
        client = self.member(name).subscribe("$dead/#")
        heard = client.barrier()
        self.bury()
        heard += self.eventually(client.barrier, "a dead letter") if name == INSIDER else client.barrier()
        return repr(heard)

    def bury(self) -> None:
        """Let a message be delivered too often; it is a dead letter afterwards."""
        owner = self.poller(INSIDER)
        subscription = owner.subscribe(self.secret)
        watcher = self.member(INSIDER).subscribe(f"$dead/{self.secret}")
        self.assertEqual(watcher.barrier(), [])
        owner.publish(self.secret, self.word.encode())
        self.eventually(lambda: owner.poll(subscription), "the first delivery")
        self.eventually(lambda: [owner.poll(subscription), *watcher.barrier()][1:], "a dead letter")

    def path(self, name: str, path: str) -> str:
        """Ask one of the broker's paths for all that it has."""
        self.publish(self.secret, self.word)
        watcher = self.member(INSIDER).subscribe(self.secret)
        watcher.barrier()
        client = self.member(name)
        heard: list[Any] = []
        after: Any = None
        while not heard or after is not None:
            arguments = {"position": 0} if path == "/journal/read" else {} if after is None else {"after": after}
            client.request(1, path, "q", arguments)
            answer = client.hear()
            heard.append(answer.raw)
            after = answer.value.get("next") if isinstance(answer.value, dict) and path != "/journal/read" else None
        return repr(heard)

    def http(self, name: str, path: str) -> str:
        """Ask the web site."""
        self.bury()
        connection = http.client.HTTPConnection(*self.place.address("fleximq"), timeout=PATIENCE)
        heard, query = "", {"api_key": KEYS[name], "limit": "1000"}
        while True:
            connection.request("GET", f"{path}?{urlencode(query)}")
            answer = connection.getresponse()
            body = answer.read().decode()
            self.assertEqual(answer.status, 200, body)
            heard += body
            behind = json.loads(body).get("next")
            if behind is None:
                return heard
            query["after"] = str(behind)

    def greeting(self, name: str) -> str:
        """Read which channels an Identity client is told, on arrival and later."""
        self.publish(self.secret, self.word)
        watcher = self.member(INSIDER).subscribe(self.secret)
        watcher.barrier()
        page = self.page(name)
        self.member(INSIDER).subscribe(f"secret.{self.topic}.more").barrier()
        heard = [*page.greeting, *page.say("UNSUBSCRIBE:barrier").barrier()]
        return repr(heard)

    def channel(self, name: str) -> str:
        """Subscribe to it in Identity, with its history."""
        self.publish(self.secret, self.word)
        page = self.page(name).say(f"SUBSCRIBE:{self.secret}")
        heard = [page.hear()]
        while not heard[-1].startswith("ERROR:") and self.word not in heard[-1]:
            heard.append(page.hear())
        return repr(heard)

    def poll(self, name: str) -> str:
        """Poll somebody else's subscription, by its id."""
        owner = self.poller(INSIDER)
        subscription = owner.subscribe(self.secret)
        owner.publish(self.secret, self.word.encode()).barrier()
        other = self.poller(name)
        return repr(self.eventually(lambda: other.poll(subscription), "an answer"))

    def subscribe(self, name: str) -> str:
        """Subscribe to it in BlipMQ, and poll."""
        client = self.poller(name)
        try:
            subscription = client.subscribe(self.secret)
        except (AssertionError, Ended) as refused:
            return repr(refused)
        self.publish(self.secret, self.word)
        return repr(self.eventually(lambda: client.poll(subscription), "an answer"))

    # -- the tests ---------------------------------------------------------------------------------

    def check(self, way: Way, name: str) -> None:
        """Let one of the two try a way."""
        heard = way.tried(self, name)
        known = self.word in heard or (not way.naming and self.topic in heard)
        self.assertEqual(known, name == INSIDER, heard[:2000])


WAYS: Mapping[str, Way] = {
    "all": Way(lambda case, name: case.live(name, topic="#")),
    "pattern": Way(lambda case, name: case.live(name, topic="*.*")),
    "named": Way(lambda case, name: case.live(name, topic=case.secret), naming=True),
    "followAll": Way(lambda case, name: case.late(name, topic="#", **{"from": "first"})),
    "followPattern": Way(lambda case, name: case.late(name, topic="*.*", **{"from": "first"})),
    "followNamed": Way(lambda case, name: case.late(name, topic=case.secret, **{"from": "first"}), naming=True),
    "followOffset": Way(lambda case, name: case.late(name, topic="#", **{"from": 1})),
    "retained": Way(lambda case, name: case.late(name, topic="#")),
    "presence": Way(LeakTests.presence),
    "deadLetters": Way(LeakTests.deadLetters),
    "poll": Way(LeakTests.poll),
    "subscription": Way(LeakTests.subscribe, naming=True),
    "greeting": Way(LeakTests.greeting),
    "channel": Way(LeakTests.channel, naming=True),
    **{
        path.strip("/").replace("/", "_"): Way(partial(LeakTests.path, path=path))
        for path in ("/broker/topics", "/journal/bounds", "/journal/read")
    },
    **{
        path.strip("/").replace("/", "_").replace("-", "_"): Way(partial(LeakTests.http, path=path))
        for path in ("/api/topics", "/api/queues", "/api/subscriptions")
    },
}


def _testOf(way: Way, name: str) -> Callable[[LeakTests], None]:
    return lambda case: case.check(way, name)


for _name, _way in WAYS.items():
    for _who in (INSIDER, OUTSIDER):
        setattr(LeakTests, f"test_{_name}_{_who}", _testOf(_way, _who))
