"""RFC 6455 as the Autobahn test suite sees it: our WebSockets, met by its fuzzing client."""
