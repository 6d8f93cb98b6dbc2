"""Which names of hosts need no trust, for nobody can bend them to another place: addresses, and this machine's own."""

import ipaddress


def isAddress(name: str) -> bool:
    """Say whether this is an IP address, and not a name that somebody resolves."""
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def isOwnName(name: str) -> bool:
    """Say whether a name, in lower case, always means this machine (RFC 6761, 6.3)."""
    return name == "localhost" or name.endswith(".localhost")
