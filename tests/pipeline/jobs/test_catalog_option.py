"""The option ``--catalog`` of ingest: a URL that shows a secret, or is none, is refused in one sentence."""

from twisted.trial.unittest import SynchronousTestCase

from tests.pipeline.installed import missing as skip

if not skip:
    from fleximq.pipeline.errors import OptionRefused
    from fleximq.pipeline.jobs.ingest import _catalog


class CatalogOptionTests(SynchronousTestCase):
    """Names and URLs."""

    if skip:
        skip = skip

    def test_secretsOfUrlsAreRefusedAndNotShown(self) -> None:
        for url in (
            "postgresql+psycopg://u:hidden@db/x",
            "postgresql+psycopg://db/x?password=hidden",
            "postgresql+psycopg://db/x?sslmode=require&sslpassword=hidden",
            "https://catalog/?token=hidden",
            "https://catalog/?Credential=hidden",
            "https://catalog/?client_secret=hidden",
        ):
            error = self.assertRaises(OptionRefused, _catalog, "catalog", url)
            self.assertIn("has a password or token", str(error))
            self.assertNotIn("hidden", str(error))

    def test_malformedUrlIsRefused(self) -> None:
        error = self.assertRaises(OptionRefused, _catalog, "catalog", "http://[bad")
        self.assertIn("is no URL", str(error))
        error = self.assertRaises(OptionRefused, _catalog, "catalog", "http://u:hidden@a\u2100b/")
        self.assertNotIn("hidden", str(error))

    def test_othersAreTaken(self) -> None:
        for each in ("central", "postgresql+psycopg://lake@db/x?sslmode=require", "sqlite:////tmp/c.db"):
            self.assertEqual(_catalog("catalog", each), each)
