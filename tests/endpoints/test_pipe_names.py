r"""Paths and the names of pipes they mean on Windows."""

import ntpath

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from fleximq.endpoints.pipe_names import LONGEST_NAME, NAMESPACE, isWindowsPath, pipeName
from fleximq.errors import SettingError


class PipeNameTests(SynchronousTestCase):
    """The pure translation."""

    def test_examplesOfSections632And633(self) -> None:
        """The examples of sections 6.3.2 and 6.3.3."""
        for path, name in {
            "myapp_pipe": r"\\.\pipe\myapp_pipe",
            "C:\\temp\\app.pipe": r"\\.\pipe\app",
            "C:\\mydata\\pipes\\app.pipe": r"\\.\pipe\app",
            "myapp_service": r"\\.\pipe\myapp_service",
            "my_pipe_name": r"\\.\pipe\my_pipe_name",
        }.items():
            self.assertEqual(pipeName(path), name)

    def test_simpleNames(self) -> None:
        """A simple name is kept, dots and all."""
        self.assertEqual(pipeName("app.v2.pipe"), r"\\.\pipe\app.v2.pipe")

    def test_fileStyle(self) -> None:
        """Any slash makes a file-style path; its last extension goes."""
        for path in ("c:/temp/app.pipe", "/var/run/app.sock", "run\\app", "C:\\a.b\\app.x", "\\\\host\\share\\app.x"):
            self.assertEqual(pipeName(path), r"\\.\pipe\app")
        self.assertEqual(pipeName("C:\\app.v2.pipe"), r"\\.\pipe\app.v2")

    def test_fullName(self) -> None:
        """A full name is not translated again."""
        self.assertEqual(pipeName(r"\\.\pipe\app.x"), r"\\.\pipe\app.x")
        self.assertEqual(pipeName(r"\\.\PIPE\app"), r"\\.\pipe\app")

    def test_noName(self) -> None:
        """A name must be left."""
        for path in ("", "C:\\temp\\", "/", NAMESPACE, NAMESPACE + "a\\b", "a\0"):
            self.assertRaises(SettingError, pipeName, path)

    def test_nameIsAsLongAsWindowsTakesItAndNoLonger(self) -> None:
        """A name is as long as Windows takes it, and no longer."""
        room = LONGEST_NAME - len(NAMESPACE)
        self.assertEqual([len(pipeName("x" * size)) for size in (room - 1, room)], [LONGEST_NAME - 1, LONGEST_NAME])
        self.assertRaises(SettingError, pipeName, "x" * (room + 1))

    def test_isWindowsPath(self) -> None:
        """A drive or two backslashes cannot be meant for another platform."""
        for path in ("C:\\a", "c:/a", "\\\\.\\pipe\\a"):
            self.assertTrue(isWindowsPath(path), path)
        for path in ("a", "/a", "a\\b", "C:", "cc:/a", "\\a", ""):
            self.assertFalse(isWindowsPath(path), path)

    @given(st.text())
    def test_anyText(self, path: str) -> None:
        """Whatever comes out stands in the namespace, once, and stays as it is."""
        try:
            name = pipeName(path)
        except SettingError:
            return
        self.assertTrue(name.startswith(NAMESPACE))
        self.assertNotIn("\\", name[len(NAMESPACE) :])
        self.assertEqual(pipeName(name), name)
        self.assertEqual(ntpath.basename(name), name[len(NAMESPACE) :])
