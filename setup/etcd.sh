#!/usr/bin/env bash
# Installs the etcd server of Debian, with which the tests of the etcd store and rendezvous run (20 MB).
exec "$(dirname "$0")/debian.sh" "An etcd server" etcd-server
