#!/bin/sh
# The two installing steps of deploy/Containerfile, run at the root of the source, so that they can be tried without a container:
#   deploy/install-image.sh packages TARGET    the locked packages into a virtual environment without pip
#   deploy/install-image.sh warden TARGET      the warden itself, built by locked tools that stay outside of it
set -eu
target=$2
python=${PYTHON:-python3}
install="--quiet --disable-pip-version-check --no-cache-dir --no-warn-script-location"

case $1 in
packages)
  "$python" -m venv --without-pip "$target"
  # Wheels only: nothing of a package runs while it is installed.
  "$python" -m pip --python "$target/bin/python" install $install --require-hashes --only-binary :all: -r requirements/image.txt
  ;;
warden)
  work=$(mktemp -d)
  trap 'rm -rf "$work"' EXIT
  "$python" -m venv "$work/tools"
  "$work/tools/bin/python" -m pip install $install --require-hashes --only-binary :all: -r requirements/build.txt
  "$work/tools/bin/python" -m pip wheel --quiet --disable-pip-version-check --no-deps --no-build-isolation --wheel-dir "$work" .
  "$python" -m pip --python "$target/bin/python" install $install --no-deps --no-index "$work"/*.whl
  ;;
*)
  echo "say packages or warden, not $1" >&2
  exit 2
  ;;
esac
