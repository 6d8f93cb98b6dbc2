"""The sentence of an error that Spark tells in many lines."""

from twisted.trial.unittest import SynchronousTestCase

from fleximq.pipeline.errors import PipelineError
from fleximq.pipeline.failures import sentenceOf

_STREAM = """[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: Job aborted due to stage failure: \
Task 0 in stage 1.0 failed 1 times: org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "/spark/worker.py", line 1, in main
    process()
  File "/fleximq/pipeline/journals.py", line 3, in tell
    raise RecordsMissing(sentence)
fleximq.pipeline.offsets.RecordsMissing: journal ab, offsets 1 to 9 are gone (the option failOnDataLoss=false reads on)

	at org.apache.spark.api.python.BasePythonRunner.read(PythonRunner.scala:1)
SQLSTATE: XXKST"""
_CHAINED = """Traceback (most recent call last):
  File "x", line 1, in f
fleximq.client.errors.ConnectionLost: refused

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "x", line 2, in g
fleximq.pipeline.errors.BrokerGone: the broker at tcp://a:1 is away: refused
"""
_SQL = """[UNRESOLVED_COLUMN.WITH_SUGGESTION] A column with name `x` cannot be resolved. Did you mean [`y`]. \
SQLSTATE: 42703; line 1 pos 7;
'Project ['x]
"""


class SentenceTests(SynchronousTestCase):
    """What is shown of it."""

    def test_ours(self) -> None:
        """An error of the pipeline is its own words, wherever they stand."""
        self.assertEqual(
            sentenceOf(Exception(_STREAM)),
            "journal ab, offsets 1 to 9 are gone (the option failOnDataLoss=false reads on)",
        )

    def test_chained(self) -> None:
        """Of errors that led to each other the last one counts."""
        self.assertEqual(sentenceOf(Exception(_CHAINED)), "the broker at tcp://a:1 is away: refused")

    def test_others(self) -> None:
        """An error of anybody else in Python keeps the name of its class."""
        text = 'a\nTraceback (most recent call last):\n  File "x", line 1\n    1 / 0\nZeroDivisionError: zero\n\tat b'
        self.assertEqual(sentenceOf(Exception(text)), "ZeroDivisionError: zero")

    def test_sql(self) -> None:
        """Of an error of Spark's SQL the words are left, without its number."""
        self.assertEqual(
            sentenceOf(Exception(_SQL)), "A column with name `x` cannot be resolved. Did you mean [`y`].; line 1 pos 7"
        )

    def test_java(self) -> None:
        """An error of Java that Spark did not expect is Java's words."""
        text = "An error occurred while calling o40.sql.\n: java.io.IOException: no space left\n\tat a.b"
        self.assertEqual(sentenceOf(Exception(text)), "java.io.IOException: no space left")

    def test_plain(self) -> None:
        """Other errors are their first line, or the name of their class."""
        self.assertEqual(sentenceOf(PipelineError("no")), "no")
        self.assertEqual(sentenceOf(ValueError("\n a\nb")), "a")
        self.assertEqual(sentenceOf(ValueError()), "ValueError")
