"""The controller's HTTP API, on a unix socket and a loopback port, and the client that commands
use."""
