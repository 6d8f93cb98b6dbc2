"""A broker for two principals: ``web`` may publish to the queue ``default``, and ``worker`` may consume from it too."""

from pathlib import Path

from fleximq.security.checkers.passwords import hashOf

_RULES = """
[principals.web]
publish = ["default"]
read = ["/schedule/list"]

[principals.worker]
publish = ["default"]
consume = ["default"]
"""


def granting(folder: Path) -> tuple[str, ...]:
    """Return the options of the broker, whose files are written into a new folder."""
    folder = folder.absolute()
    folder.mkdir()
    passwords, rules = folder / "passwords", folder / "permissions.toml"
    passwords.write_text("".join(f"{each}:{hashOf('p')}\n" for each in ("web", "worker")))
    passwords.chmod(0o600)
    rules.write_text(_RULES)
    return "--auth", f"passwords:{passwords}", "--config", str(rules)


def basic(name: str) -> dict[str, str]:
    """Return the credentials of a principal."""
    return {"type": "basic", "username": name, "password": "p"}
