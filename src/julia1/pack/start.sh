#!/bin/sh
# Starts julia1 with the Python of this machine; PYTHON=/path/to/python names another. Nothing is installed.
set -eu
me=$0
while [ -h "$me" ]; do
    link=$(readlink "$me")
    case $link in
        /*) me=$link ;;
        *) me=$(dirname "$me")/$link ;;
    esac
done
here=$(CDPATH='' cd -- "$(dirname -- "$me")" && pwd)
if [ -z "${PYTHON:-}" ]; then
    PYTHON=python@PYTHON@
    command -v "$PYTHON" >/dev/null 2>&1 || PYTHON=python3
fi
if ! command -v "$PYTHON" >/dev/null 2>&1; then
    echo "julia1: error: no program $PYTHON is here: install Python @PYTHON@, or name it by  PYTHON=/path/to/python@PYTHON@" >&2
    exit 1
fi
exec "$PYTHON" -I -S "$here/lib/julia1/pack/start.py" "$@"
