"""Ten thousand hostile payloads are refused or read within bounds of time and memory; hostile schemas are refused."""

import json
import subprocess
import sys
from base64 import b64encode
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from fleximq.errors import SettingError
from tests.nightly import repetitions
from tests.schemas.files import ORDER_PROTO, written
from tests.schemas.installed import missing as skip

if not skip:
    from fleximq.schemas.definition import AVRO, JSON_SCHEMA, PROTOBUF, Definition, compiled
    from fleximq.schemas.misfit import MAX_WORDS, Misfit
    from tests.schemas.hostile import BRANCHES, PATTERN, RECORD, REPEATED, TREE, VALUES, documents, records, schemas

#: Runs in a process of its own, since a stack that overflows would end it; its processor time and memory are limited.
ROOT = Path(__file__).parents[2]
_WATCHED = """
import json, resource, sys, time
from base64 import b64decode
from fleximq.schemas.definition import Definition
from fleximq.schemas.misfit import Misfit
from tests.schemas import hostile
form, parts, kind, number, seconds = json.loads(sys.stdin.read())
codec = Definition(form, tuple(parts)).codec()
payloads = list(getattr(hostile, kind)(1, number, 1 << 20))
memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))
resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
fitting = slowest = 0
for payload in payloads:
    begin = time.process_time()
    try:
        codec.read(payload)
        fitting += 1
    except Misfit:
        pass
    slowest = max(slowest, time.process_time() - begin)
grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory
print(json.dumps([len(payloads), fitting, slowest, time.process_time(), grown >> 10]))
"""
#: Processor seconds that all payloads may take; they take a twentieth of it.
_SECONDS = 300
#: MiB that reading may take beside the payloads.
_MEMORY = 600


class HostileTests(SynchronousTestCase):
    """Payloads of up to 1 MiB, and schemas."""

    def readAll(self, kind: str, form: str, *parts: str, number: int = repetitions(1_000, 10_000)) -> None:
        """Have a process read payloads of a kind by a schema."""
        given = json.dumps([form, parts, kind, number, _SECONDS])
        done = subprocess.run(
            [sys.executable, "-c", _WATCHED],
            input=given,
            capture_output=True,
            text=True,
            timeout=3600,
            check=False,
            cwd=ROOT,
        )
        self.assertEqual((done.returncode, done.stderr[-2000:]), (0, ""))
        read, fitting, _, _, grown = json.loads(done.stdout)
        self.assertEqual(read, number)
        # Some of them fit, or nothing would have been read.
        self.assertGreater(fitting, 0)
        self.assertLess(grown, _MEMORY)

    def test_json(self) -> None:
        self.readAll("documents", JSON_SCHEMA, json.dumps(TREE))

    def test_jsonSchemasWithMuchWork(self) -> None:
        """A few bytes, or a long text, must not take more than their share."""
        for schema in (BRANCHES, REPEATED, PATTERN, VALUES):
            self.readAll("branches", JSON_SCHEMA, json.dumps(schema), number=repetitions(100, 2_500))

    def test_avro(self) -> None:
        self.readAll("records", AVRO, json.dumps(RECORD))

    def test_protobuf(self) -> None:
        descriptors = compiled(written(self, "order.proto", ORDER_PROTO).rpartition("/")[0], "order.proto")
        self.readAll("records", PROTOBUF, b64encode(descriptors).decode(), "shop.Order")

    def test_wordsAreShort(self) -> None:
        codec = Definition(JSON_SCHEMA, (json.dumps(TREE),)).codec()
        for payload in documents(2, 200, 100_000):
            try:
                codec.read(payload)
            except Misfit as misfit:
                self.assertLessEqual(len(str(misfit)), 2 * MAX_WORDS + 10)

    def test_schemas(self) -> None:
        """Each is refused with one sentence."""
        for definition in schemas():
            error = self.assertRaises(SettingError, definition.codec)
            self.assertNotIn("\n", str(error))
            self.assertLess(len(str(error)), 320)

    def test_recordsAreOnesOfTheirKind(self) -> None:
        """The payloads are as hostile as they claim: some are read far before they fail."""
        codec = Definition(AVRO, (json.dumps(RECORD),)).codec()
        paths = set()
        for payload in records(3, 300, 1000):
            try:
                codec.read(payload)
            except Misfit as misfit:
                paths.add(misfit.path)
        self.assertLessEqual({"number", "name", "many", "more"}, paths)
