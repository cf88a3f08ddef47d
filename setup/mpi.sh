#!/usr/bin/env bash
# Installs Debian's Open MPI, whose library the backend mpi opens (60 MB).
exec "$(dirname "$0")/debian.sh" "The backend mpi" openmpi-bin libopenmpi3
