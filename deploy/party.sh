#!/bin/sh
# What one party of the three-site study does, in the current folder:
#   party.sh coordinator | party.sh north | party.sh south | party.sh island
# POST is a folder that stands for the mail and the telephone: files are sent through it, and
# fingerprints are told in it. In a real study people do both. ENGINE is nvflare or files; HOST and
# PORT are where sites reach the coordinator.
set -eu
party=$1
sites="north south island"

await() { until [ -e "$POST/$1" ]; do sleep 0.2; done; }
send() { cp "$1" "$POST/$1.part" && mv "$POST/$1.part" "$POST/$1"; }
# Tell the fingerprint that a command printed last after these words.
tell() { sed -n "s/^Fingerprint of $1: *//p" log.txt | tail -n 1 > "$POST/$2.part" && mv "$POST/$2.part" "$POST/$2"; }
told() { await "$1" && cat "$POST/$1"; }

write_study() {
  case $ENGINE in
    files) mkdir -p "$POST/drop" && where="drop = \"$POST/drop\"" ;;
    *) where="host = \"$HOST\"
port = ${PORT:-8102}" ;;
  esac
  cat > study.toml <<END
name = "heart"
sites = ["north", "south", "island"]
components = 2
secure = true
features = ["age", "bmi", "systolic", "hdl", "glucose"]
engine = "$ENGINE"

[network]
$where
END
}

write_site() {
  cat > site.toml <<END
name = "$party"
data = "$party.csv"
ledger = "$party.ledger"

[policy]
min_rows = 50
secure_only = true
END
  python3 - "$party" <<'END'
import sys
import zlib

import numpy as np

rng = np.random.default_rng(zlib.crc32(sys.argv[1].encode()))
level, spread = [55, 27, 130, 52, 100], [12, 4, 15, 10, 9]
rows = level + spread * rng.normal(size=(200, 5)) + 9 * rng.normal(size=(200, 1))
names = "age,bmi,systolic,hdl,glucose"
np.savetxt(f"{sys.argv[1]}.csv", rows, "%.1f", ",", header=names, comments="")
END
}

coordinate() {
  if [ ! -e network/roster.json ]; then
    write_study
    eigenfed network init study.toml > log.txt
    tell "this coordinator" coordinator.told
    tell "the study" study.told
    send heart.invitation.json
    send study.toml
    set --
    for site in $sites; do set -- "$@" --fingerprint "$site=$(told "$site.told")"; done
    for site in $sites; do await "$site.request.json" && set -- "$@" "$POST/$site.request.json"; done
    eigenfed network admit study.toml "$@" > log.txt
    tell "the roster" roster.told
    send heart.roster.json
  fi
  exec eigenfed coordinate study.toml -o result --force
}

serve() {
  if [ ! -e network/roster.json ]; then
    write_site
    eigenfed ledger create "$party.ledger"
    await heart.invitation.json
    eigenfed network join "$POST/heart.invitation.json" site.toml --fingerprint "$(told coordinator.told)" > log.txt
    tell "this site" "$party.told"
    send "$party.request.json"
    await heart.roster.json
    eigenfed network join "$POST/heart.roster.json" site.toml --fingerprint "$(told roster.told)"
    await study.toml
    eigenfed site approve "$POST/study.toml" site.toml --fingerprint "$(told study.told)" --by "$party"
  fi
  exec eigenfed site site.toml
}

case $party in
  coordinator) coordinate ;;
  *) serve ;;
esac
