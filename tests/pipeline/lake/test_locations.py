"""Places of lakes that no library could use are refused before anything is written there."""

from twisted.trial.unittest import SynchronousTestCase

from tests.pipeline.installed import missing as skip

if not skip:
    from fleximq.pipeline.errors import LakeRefused
    from fleximq.pipeline.lake.locations import checkIceberg, lakePath


class LocationsTests(SynchronousTestCase):
    """URLs and paths."""

    def test_places(self) -> None:
        for place in ("s3://b", "s3://b/a b/c%20d", "s3://b/\u00e4", "memory://b/..c/.d", "gs://b/#?"):
            self.assertEqual(lakePath(f"{place}/"), place)
        self.assertEqual(lakePath("/a/../b/"), "/b")

    def test_partsThatAreNoNames(self) -> None:
        """A store refuses them, or takes them for others; without any, the rest would be a local folder."""
        for place, part in (
            ("s3://", ""),
            ("s3:///a", ""),
            ("s3://b//a", ""),
            ("s3://b/./a", "."),
            ("s3://b/..", ".."),
        ):
            words = (
                f"the lake {place} has the part {part!r}, but needs s3://BUCKET/NAME, also with several names, none of "
                "them empty, '.' or '..'"
            )
            self.assertEqual(str(self.assertRaises(LakeRefused, lakePath, place)), words)

    def test_charactersThatEndAUrlOfIceberg(self) -> None:
        checkIceberg("/mnt/h#i?")
        checkIceberg("s3://b/%20 \u00e4")
        for sign in "#?":
            error = self.assertRaises(LakeRefused, checkIceberg, f"s3://b/h{sign}i")
            self.assertIn(f"PyIceberg cannot use a URL with '{sign}'", str(error))
