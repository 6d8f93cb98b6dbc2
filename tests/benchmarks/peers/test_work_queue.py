"""How jobs look in the protocols of all brokers with work queues, and what settles them."""

import re
from collections.abc import Sequence

from twisted.trial.unittest import SynchronousTestCase

from benchmarks.peers.beanstalkd import Beanstalkd
from benchmarks.peers.fleximq_queue import FlexiQueue
from benchmarks.peers.jetstream_queue import JetStreamQueue
from benchmarks.peers.rabbitmq import RabbitMQ
from benchmarks.peers.redis_queue import RedisLists, RedisStreams
from benchmarks.peers.work_queue import WorkQueue, synced

_JOB = b"0123456789abcdef"
_FLEXI = b"\xa8delivery\x83\xa5queue\xa1q\xa3tag%s\xa7attempt\x01\x00\x00\x00\x00\x00\x00\x00\x12\xc4\x10" + _JOB
_ENTRY = b"*2\r\n$3\r\n%s\r\n*2\r\n$1\r\np\r\n$16\r\n" + _JOB + b"\r\n"
_STREAM = b":2\r\n*1\r\n*2\r\n$1\r\nq\r\n*2\r\n"
_AMQP = b"\x00\x3c\x00\x3c\x01w%s\x00\x00\x01q\xce\x02header\xce\x03\x00\x01\x00\x00\x00\x10" + _JOB + b"\xce"
_NATS = b"MSG bench.q 0001 %s 16\r\n" + _JOB + b"\r\n"
#: Of each peer: what it says for two jobs, and their tags.
_SAID: list[tuple[WorkQueue, bytes, list[bytes]]] = [
    (FlexiQueue(), _FLEXI % b"\x05" + _FLEXI % b"\xcd\x01\x00", [b"\x05", b"\xcd\x01\x00"]),
    (RedisStreams(), _STREAM + _ENTRY % b"1-0" + _ENTRY % b"1-1", [b"1-0", b"1-1"]),
    (RedisLists(), b":1\r\n" + (b"$16\r\n" + _JOB + b"\r\n") * 2, [_JOB, _JOB]),
    (
        RabbitMQ(),
        _AMQP % b"\0\0\0\0\0\0\0\x01" + _AMQP % b"\0\0\0\0\0\0\n\xff",
        [bytes(7) + b"\1", bytes(6) + b"\n\xff"],
    ),
    (
        JetStreamQueue(),
        _NATS % b"$JS.ACK.b.w.1.1" + _NATS % b"$JS.ACK.b.w.1.2",
        [b"$JS.ACK.b.w.1.1", b"$JS.ACK.b.w.1.2"],
    ),
]


def found(peer: WorkQueue, said: bytes) -> tuple[list[bytes], bytes]:
    """Return the tags of jobs that are complete, and the bytes after them."""
    end = peer.whole(said, _JOB + peer.suffix, 2)
    return peer.jobs(16).findall(said, 0, end), said[end:]


class JobsTests(SynchronousTestCase):
    """Jobs in a stream of bytes."""

    def test_completeJobsHaveTags(self) -> None:
        """Whatever stands between jobs, each has its tag."""
        for peer, said, tags in _SAID:
            self.assertEqual(found(peer, said), (tags, b""), peer.broker)

    def test_incompleteJobsWait(self) -> None:
        """Cut anywhere, no job is found before it is complete, and together all are."""
        for peer, said, tags in _SAID:
            for cut in range(len(said)):
                before, rest = found(peer, said[:cut])
                after, rest = found(peer, rest + said[cut:])
                self.assertEqual((before + after, rest), (tags, b""), (peer.broker, cut))

    def test_listsAnswerEveryRequest(self) -> None:
        """A request that found no job is an answer too."""
        said = b"$16\r\n" + _JOB + b"\r\n"
        self.assertEqual(found(RedisLists(), said), ([], said))
        self.assertEqual(found(RedisLists(), said + b"$-1\r\n"), ([_JOB], b""))

    def test_oneJobAtATime(self) -> None:
        """beanstalkd answers one request."""
        self.assertEqual(found(Beanstalkd(), b"DELETED\r\nRESERVED 7 16\r\n" + _JOB + b"\r\n"), ([b"7"], b""))


def settling(peer: WorkQueue, who: int | bytes | None, tags: Sequence[bytes]) -> bytes:
    """Return what settles two jobs at most."""
    return peer.settled(who, b"q", tags, 2)


class SettledTests(SynchronousTestCase):
    """Acknowledgements, and requests for the next jobs."""

    def test_fleximq(self) -> None:
        """One NOTIF has the tags as they came."""
        said = settling(FlexiQueue(), 1000, [b"\x05", b"\xcd\x01\x00"])
        self.assertTrue(said.endswith(b"\x82\xa5queue\xa1q\xa3ack\xdc\x00\x02\x05\xcd\x01\x00"))
        self.assertEqual(said[:2], b"\x01\x03")

    def test_redis(self) -> None:
        """XACK has all ids; LREM takes one by one, each from the consumer's own list."""
        self.assertIn(
            b"$4\r\nXACK\r\n$1\r\nq\r\n$7\r\nworkers\r\n$3\r\n1-0\r\n", settling(RedisStreams(), b"w", [b"1-0"])
        )
        said = settling(RedisLists(), b"w", [_JOB])
        self.assertEqual(
            re.findall(rb"[A-Z]{4,}", said), [b"LREM", b"BLMOVE", b"RIGHT", b"LEFT", b"LMOVE", b"RIGHT", b"LEFT"]
        )

    def test_rabbitmq(self) -> None:
        """The last tag acknowledges all before it."""
        said = settling(RabbitMQ(), None, [bytes(7) + b"\1", bytes(7) + b"\2"])
        self.assertEqual(said, b"\1\0\1\0\0\0\x0d\0\x3c\0\x50\0\0\0\0\0\0\0\2\1\xce")

    def test_nats(self) -> None:
        """Each is acknowledged, and as many are asked for."""
        said = settling(JetStreamQueue(), b"i", [b"a", b"b"])
        self.assertTrue(said.startswith(b"PUB a 4\r\n+ACK\r\nPUB b 4\r\n+ACK\r\n"))
        self.assertTrue(said.endswith(b'i 11\r\n{"batch":2}\r\n'))

    def test_beanstalkd(self) -> None:
        """Each is deleted, and the next reserved."""
        self.assertEqual(settling(Beanstalkd(), None, [b"7"]), b"delete 7\r\nreserve\r\n")


class SyncedTests(SynchronousTestCase):
    """The durable queue of a peer."""

    def test_sameName(self) -> None:
        """It is the same broker, told to sync."""
        kind = synced(RabbitMQ)
        self.assertEqual((kind.broker, kind.isSynced, RabbitMQ.isSynced), ("rabbitmq", True, False))
        self.assertIn(b"\x02", kind().enqueued(None, b"q", b""))
