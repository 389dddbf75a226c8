#!/bin/sh
# The study of compose.yaml without containers: each party in a folder, and a home, of its own.
#   sh deploy/three_sites.sh FOLDER
# ENGINE is files, unless it is set to nvflare. The result is FOLDER/coordinator/result, and what each
# site receives is in FOLDER/<site>/results.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$1/post"
cd "$1"
export POST="$PWD/post" ENGINE="${ENGINE:-files}" HOST="${HOST:-localhost}"

start() {
  mkdir -p "$1"
  cd "$1"
  HOME=$PWD exec sh "$here/party.sh" "$1"
}

running=
trap 'kill $running 2> /dev/null || true; wait' EXIT
trap 'exit 1' INT TERM
for site in north south island; do
  (start "$site") > "$site.log" 2>&1 &
  running="$running $!"
done
(start coordinator)
